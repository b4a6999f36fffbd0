//! The data directory and the log's place: judged first, made afterwards.
//!
//! - Judging changes nothing. What is refused leaves no trace.
//! - A data directory has one server: it holds an exclusive lock on `lock`, which names its process.
//! - `format` says how the directory is laid out; a newer layout is refused, never guessed at.
//! - `store` says which store was served from it: where that is empty, it is away.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{ErrorKind, Read, Seek, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{Access, FlockOperation};
use tarn_store::url::StoreUrl;
use tarn_wal::Medium;

use crate::config::Settings;
use crate::exit::{Outcome, Stop, path_stop};
use crate::sizes::show_size;

/// How the data directory is laid out.
const FORMAT: u32 = 1;
const FORMAT_WORDS: &str = "tarn data directory, format ";

/// Name of the note that says which store is served from the directory.
const STORE_NOTE: &str = "store";
const NOTE_WORDS: &str = "tarn store, format 1";

/// Name of the log's file in its directory.
pub const LOG_FILE: &str = "tarn.log";

/// A data directory that may be used, and whether it was there.
#[derive(Debug)]
pub struct Judged {
    lock: Option<File>,
}

/// Looks whether `settings` name places that can be used, and takes the lock if there is a directory to lock.
pub fn judge(settings: &Settings) -> Outcome<Judged> {
    let data = &settings.data;
    check_format(data)?;
    let lock = match OpenOptions::new().read(true).write(true).open(data.join("lock")) {
        Ok(file) => Some(take_lock(file, data)?),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => None,
        Err(error) => return Err(path_stop(data, "--data", &error)),
    };
    check_writable(data, "--data")?;
    check_writable(&settings.log_dir, "--log")?;
    judge_log(settings)?;
    Ok(Judged { lock })
}

impl Judged {
    /// Makes what is missing. The lock is held until the file that is given back is dropped.
    pub fn make(self, settings: &Settings) -> Outcome<File> {
        let data = &settings.data;
        make_dir(data, "--data")?;
        let mut lock = match self.lock {
            Some(lock) => lock,
            None => {
                let path = data.join("lock");
                let opened =
                    OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(&path);
                take_lock(opened.map_err(|error| path_stop(&path, "--data", &error))?, data)?
            }
        };
        let failed = |error: std::io::Error| path_stop(data, "--data", &error);
        lock.set_len(0).map_err(failed)?;
        lock.rewind().map_err(failed)?;
        writeln!(lock, "{}", std::process::id()).map_err(failed)?;
        write_format(data)?;
        make_dir(&settings.log_dir, "--log")?;
        Ok(lock)
    }
}

/// Whether a server holds the lock of `data`: its process, as it wrote it.
pub fn server_of(data: &Path) -> Option<String> {
    let file = OpenOptions::new().read(true).write(true).open(data.join("lock")).ok()?;
    match take_lock(file, data) {
        Err(Stop::SecondServer { pid, .. }) => Some(pid),
        _ => None,
    }
}

/// A short path for `name` in the directory `dir`: the length of a socket's path is limited, a directory's is not.
///
/// Valid as long as the file that comes with it.
pub fn short_path(dir: &Path, name: &str) -> std::io::Result<(File, PathBuf)> {
    let handle = File::open(dir)?;
    let path = PathBuf::from(format!("/proc/self/fd/{}/{name}", handle.as_raw_fd()));
    Ok((handle, path))
}

/// The directory `path` and those around it, the innermost closed to others.
pub fn make_dir(path: &Path, flag: &'static str) -> Outcome<()> {
    let failed = |error: std::io::Error| path_stop(path, flag, &error);
    if path.is_dir() {
        return Ok(());
    }
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent).map_err(failed)?;
    }
    DirBuilder::new().mode(0o700).create(path).map_err(failed)?;
    match path.parent() {
        Some(parent) => File::open(parent).and_then(|dir| dir.sync_all()).map_err(failed),
        None => Ok(()),
    }
}

fn take_lock(file: File, data: &Path) -> Outcome<File> {
    match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(file),
        Err(rustix::io::Errno::WOULDBLOCK) => {
            let mut pid = String::new();
            let _ = (&file).take(32).read_to_string(&mut pid);
            let pid = if pid.trim().is_empty() { "unknown".to_owned() } else { pid.trim().to_owned() };
            Err(Stop::SecondServer { path: data.to_path_buf(), pid })
        }
        Err(error) => Err(path_stop(data, "--data", &error.into())),
    }
}

fn check_format(data: &Path) -> Outcome<()> {
    let path = data.join("format");
    let text = match fs::read(&path) {
        Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
        // What is not there says nothing; what is no directory is judged later.
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => return Ok(()),
        Err(error) => return Err(path_stop(&path, "--data", &error)),
    };
    match text.trim().strip_prefix(FORMAT_WORDS).and_then(|number| number.parse::<u32>().ok()) {
        Some(FORMAT) => Ok(()),
        Some(found) if found > FORMAT => Err(Stop::NewerFormat { path: data.to_path_buf(), found: found.to_string() }),
        _ => Err(Stop::PathUnusable {
            path,
            reason: "it does not say which format; choose another directory with --data".to_owned(),
        }),
    }
}

fn write_format(data: &Path) -> Outcome<()> {
    match data.join("format").exists() {
        true => Ok(()),
        false => write_small(data, "format", &format!("{FORMAT_WORDS}{FORMAT}\n")),
    }
}

/// Writes the file `name` of the data directory, all of it or nothing, durably.
fn write_small(data: &Path, name: &str, text: &str) -> Outcome<()> {
    let path = data.join(name);
    let write = || -> std::io::Result<()> {
        let staging = data.join(format!(".{name}"));
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&staging)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&staging, &path)?;
        File::open(data)?.sync_all()
    };
    write().map_err(|error| path_stop(&path, "--data", &error))
}

/// What the data directory says of the store that was served from it, after its first line: the address, and where that is.
///
/// A directory store goes by where it is, too, or a renamed data directory or another way to the same place hides it.
fn store_names(settings: &Settings) -> Vec<String> {
    let mut names = vec![settings.store.show()];
    if let StoreUrl::Local(dir) = &settings.store.url {
        let (store, data) = (resolved(dir), resolved(&settings.data));
        names.push(match store.strip_prefix(&data) {
            Ok(inside) => format!("in the data directory: {}", inside.display()),
            Err(_) => format!("at {}", store.display()),
        });
    }
    names
}

/// `path` without symbolic links, as far as it is there.
fn resolved(path: &Path) -> PathBuf {
    let there = nearest(path);
    let rest = path.strip_prefix(there).unwrap_or(Path::new(""));
    // Made of its parts, or an empty rest would leave a slash at the end.
    there
        .canonicalize()
        .map_or_else(|_| path.to_path_buf(), |there| there.components().chain(rest.components()).collect())
}

/// Notes in the data directory which store is served from it.
pub fn note_store(settings: &Settings) -> Outcome<()> {
    let words = format!("{NOTE_WORDS}\n{}\n", store_names(settings).join("\n"));
    match fs::read_to_string(settings.data.join(STORE_NOTE)) {
        Ok(noted) if noted == words => Ok(()),
        _ => write_small(&settings.data, STORE_NOTE, &words),
    }
}

/// The note that this very store was served from this directory before, if there is one; a store in memory never was.
pub fn noted_store(settings: &Settings) -> Outcome<Option<PathBuf>> {
    let path = settings.data.join(STORE_NOTE);
    match fs::read(&path) {
        Ok(_) if settings.store.url == StoreUrl::Memory => Ok(None),
        Ok(noted) => {
            let noted = String::from_utf8_lossy(&noted);
            if noted.lines().next() != Some(NOTE_WORDS) || noted.lines().count() < 2 {
                let reason =
                    "it does not say which store was served from here; remove it if the store is to be a new one";
                return Err(Stop::PathUnusable { path, reason: reason.to_owned() });
            }
            let names = store_names(settings);
            Ok(noted.lines().skip(1).any(|line| names.iter().any(|name| name == line)).then_some(path))
        }
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(None),
        Err(error) => Err(path_stop(&path, "--data", &error)),
    }
}

/// The nearest directory at or above `path` that is there.
fn nearest(path: &Path) -> &Path {
    path.ancestors().find(|dir| dir.exists()).unwrap_or(Path::new("/"))
}

fn check_writable(path: &Path, flag: &'static str) -> Outcome<()> {
    let there = nearest(path);
    if !there.is_dir() {
        return Err(Stop::PathUnusable {
            path: there.to_path_buf(),
            reason: format!("it is not a directory; choose another with {flag}"),
        });
    }
    rustix::fs::access(there, Access::WRITE_OK | Access::EXEC_OK | Access::READ_OK)
        .map_err(|error| path_stop(there, flag, &error.into()))
}

fn judge_log(settings: &Settings) -> Outcome<()> {
    let dir = nearest(&settings.log_dir);
    let failed = |error: std::io::Error| path_stop(dir, "--log", &error);
    if !settings.unsafe_log {
        let kind = match tarn_wal::medium(dir).map_err(failed)? {
            Medium::Local => None,
            Medium::Memory(kind) | Medium::Remote(kind) => Some(kind),
        };
        if let Some(kind) = kind {
            return Err(Stop::LogUnsafe { path: settings.log_dir.clone(), kind });
        }
    }
    if settings.log_dir.join(LOG_FILE).exists() {
        return Ok(());
    }
    let needed = log_size(settings)?;
    let free = disk(dir).map_err(failed)?.free;
    if needed > free {
        return Err(Stop::LogSpace { path: dir.to_path_buf(), needed: show_size(needed), free: show_size(free) });
    }
    Ok(())
}

/// Bytes that a new log gets: what is configured, or a tenth of its disk, at most 8 GiB.
pub fn log_size(settings: &Settings) -> Outcome<u64> {
    if let Some(bytes) = settings.log_size {
        return Ok(bytes & !0xf_ffff);
    }
    let dir = nearest(&settings.log_dir);
    let disk = disk(dir).map_err(|error| path_stop(dir, "--log", &error))?;
    Ok((disk.total / 10).clamp(crate::config::LOG_SIZE_MIN, 8 << 30) & !0xf_ffff)
}

/// A file system's size and what this user may still take of it.
#[derive(Clone, Copy, Debug)]
pub struct Disk {
    /// Bytes.
    pub total: u64,
    /// Bytes.
    pub free: u64,
    /// Files that may still be made; `u64::MAX` where they are not counted.
    pub files: u64,
}

/// The disk under the nearest existing directory at or above `path`.
pub fn disk(path: &Path) -> std::io::Result<Disk> {
    let stat = rustix::fs::statvfs(nearest(path))?;
    let files = if stat.f_files == 0 { u64::MAX } else { stat.f_favail };
    Ok(Disk { total: stat.f_blocks * stat.f_frsize, free: stat.f_bavail * stat.f_frsize, files })
}

/// Whether the nearest existing directories at or above both are of one file system; not if that cannot be told.
pub fn on_one_disk(one: &Path, other: &Path) -> bool {
    let device = |path: &Path| fs::metadata(nearest(path)).ok().map(|metadata| metadata.dev());
    device(one).is_some_and(|found| device(other) == Some(found))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Flags;

    fn settings(dir: &Path) -> Settings {
        let flags = Flags { data: Some(dir.join("deep/data")), ..Flags::default() };
        let mut settings = Settings::join(&flags, &crate::config::File::default(), 1 << 30).unwrap();
        settings.log_size = Some(64 << 20);
        settings.unsafe_log = true;
        settings
    }

    #[test]
    fn one_disk_is_told_before_anything_is_made_there() {
        let dir = tempfile::tempdir().unwrap();
        assert!(on_one_disk(&dir.path().join("data/objects"), &dir.path().join("log")));
        assert!(!on_one_disk(dir.path(), Path::new("/proc/self")));
    }

    #[test]
    fn judging_makes_nothing_and_making_locks() {
        let dir = tempfile::tempdir().unwrap();
        let settings = settings(dir.path());
        let judged = judge(&settings).unwrap();
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
        let lock = judged.make(&settings).unwrap();
        assert!(settings.log_dir.is_dir());
        let stop = judge(&settings).unwrap_err();
        assert_eq!(stop.code(), 31);
        assert!(stop.to_string().contains(&std::process::id().to_string()), "{stop}");
        assert_eq!(server_of(&settings.data), Some(std::process::id().to_string()));
        drop(lock);
        assert_eq!(server_of(&settings.data), None);
        judge(&settings).unwrap();
    }

    #[test]
    fn a_newer_layout_and_a_strange_one_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let settings = settings(dir.path());
        drop(judge(&settings).unwrap().make(&settings).unwrap());
        fs::write(settings.data.join("format"), "tarn data directory, format 2\n").unwrap();
        assert_eq!(judge(&settings).unwrap_err().code(), 32);
        fs::write(settings.data.join("format"), "something").unwrap();
        assert_eq!(judge(&settings).unwrap_err().code(), 35);
    }

    #[test]
    fn memory_is_no_place_for_a_log() {
        if !matches!(tarn_wal::medium(Path::new("/dev/shm")), Ok(Medium::Memory(_))) {
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let mut settings = settings(dir.path());
        settings.log_dir = "/dev/shm/tarn-test-log".into();
        judge(&settings).unwrap();
        settings.unsafe_log = false;
        assert_eq!(judge(&settings).unwrap_err().code(), 33);
        assert!(!settings.log_dir.exists());
    }

    #[test]
    fn a_log_that_does_not_fit_is_refused_before_it_is_made() {
        let dir = tempfile::tempdir().unwrap();
        let mut settings = settings(dir.path());
        settings.log_size = Some(1 << 50);
        assert_eq!(judge(&settings).unwrap_err().code(), 34);
        settings.log_size = None;
        assert!(log_size(&settings).unwrap() <= 8 << 30);
    }
}
