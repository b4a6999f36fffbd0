//! The files of a local store: what the operating system is asked for, and what its errors mean.
//!
//! - Every path is relative to the store's directory, held open.
//! - An error before a name changes means "not done"; an error after it means [`StoreError::Unknown`].
//! - No call creates the store's own directory or what is in `.tarn`, except [`Files::open`] when told to.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Read;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;
use rustix::fs::{AtFlags, Dir, FileType, FlockOperation, Mode, OFlags, Stat};
use rustix::io::Errno;
use tarn_base::turns::Turns;

use super::direct;
use super::reserve::Reserve;
use crate::contract::{ObjectInfo, StoreError, StoreResult, Version};

/// The directory within the store's that is not for objects.
pub const OWN: &str = ".tarn";
const LOCK: &str = ".tarn/lock";
const STAGING: &str = ".tarn/staging";

pub(super) const FILE_MODE: Mode = Mode::from_raw_mode(0o600);
const DIRECTORY_MODE: Mode = Mode::from_raw_mode(0o700);

/// Bytes hashed in one go.
const HASHED_AT_ONCE: usize = 128 << 10;

/// The version of an object of these bytes.
pub fn version(bytes: &[u8]) -> Version {
    let (mut hasher, mut turns) = (blake3::Hasher::new(), Turns::default());
    for part in bytes.chunks(HASHED_AT_ONCE) {
        hasher.update(part);
        turns.worked(part.len());
    }
    Version(hasher.finalize().to_hex()[..32].to_owned())
}

/// Counts the staging files of this process, over all its handles.
static STAGED: AtomicU64 = AtomicU64::new(0);

/// An open store directory.
pub struct Files {
    root: OwnedFd,
    path: PathBuf,
    /// Directories whose own entries, up to the root, this handle knows to be durable.
    durable: Mutex<BTreeSet<String>>,
    /// Directories that are known to have been there: the two upper levels at the opening, and all that were written into
    /// since. None of them is removed by us.
    present: Mutex<BTreeSet<String>>,
    reserve: Reserve,
}

/// Held while names change; released when dropped.
pub struct Lock(#[expect(dead_code, reason = "closing the file releases the lock")] OwnedFd);

impl Files {
    pub fn open(path: &Path, create: bool) -> StoreResult<Files> {
        let shown = path.display().to_string();
        let failed = |errno| failure(&shown, errno);
        if create {
            create_directories(path).map_err(|error| failed(errno_of(&error)))?;
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::open(path, flags, Mode::empty()).map_err(|errno| match errno {
            Errno::NOENT => StoreError::Unavailable(format!("there is no store directory {shown}")),
            Errno::NOTDIR => StoreError::Denied(format!("{shown} is not a directory")),
            errno => failed(errno),
        })?;
        let files = Files {
            root,
            path: path.to_owned(),
            durable: Mutex::default(),
            present: Mutex::default(),
            reserve: Reserve::default(),
        };
        if create {
            files.create_own().map_err(failed)?;
        }
        *files.present.lock() = files.directories().map_err(failed)?;
        files.stat(LOCK).map_err(|errno| match errno {
            Errno::NOENT => StoreError::Unavailable(format!("{shown} is not a store directory: it has no {LOCK}")),
            errno => failed(errno),
        })?;
        Ok(files)
    }

    /// Whether the directory that is open is the one of its name.
    pub fn has_its_place(&self) -> StoreResult<bool> {
        let open = rustix::fs::fstat(&self.root).map_err(|errno| self.failed(errno))?;
        match rustix::fs::stat(&self.path) {
            // A directory that was removed keeps its number as long as it is open: nobody else has it.
            Ok(named) => Ok(named.st_ino == open.st_ino && named.st_dev == open.st_dev),
            Err(Errno::NOENT | Errno::NOTDIR) => Err(self.gone()),
            Err(errno) => Err(failure(&self.shown(), errno)),
        }
    }

    /// The store's directory that has the name now.
    pub fn opened_anew(&self) -> StoreResult<Files> {
        Files::open(&self.path, false).map_err(|error| {
            StoreError::Unavailable(format!("{error}; another directory has taken its place: put it back as it was"))
        })
    }

    pub fn shown(&self) -> String {
        self.path.display().to_string()
    }

    fn create_own(&self) -> Result<(), Errno> {
        for directory in [OWN, STAGING] {
            match rustix::fs::mkdirat(&self.root, directory, DIRECTORY_MODE) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(errno) => return Err(errno),
            }
        }
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC;
        rustix::fs::openat(&self.root, LOCK, flags, FILE_MODE)?;
        rustix::fs::fsync(self.directory(OWN)?)?;
        rustix::fs::fsync(self.directory(".")?)
    }

    /// Removes staging files without a living writer.
    pub fn remove_stale(&self) -> StoreResult<()> {
        let directory = self.directory(STAGING).map_err(|errno| self.failed(errno))?;
        for entry in Dir::read_from(&directory).map_err(|errno| self.failed(errno))? {
            let entry = entry.map_err(|errno| self.failed(errno))?;
            let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            if matches!(entry.file_name().to_bytes(), b"." | b"..") {
                continue;
            }
            let Ok(file) = rustix::fs::openat(&directory, entry.file_name(), flags, Mode::empty()) else {
                continue;
            };
            if rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok() {
                match rustix::fs::unlinkat(&directory, entry.file_name(), AtFlags::empty()) {
                    Ok(()) | Err(Errno::NOENT) => {}
                    Err(errno) => return Err(self.failed(errno)),
                }
            }
        }
        Ok(())
    }

    pub fn lock_shared(&self) -> StoreResult<Lock> {
        self.lock(FlockOperation::LockShared)
    }

    pub fn lock_exclusive(&self) -> StoreResult<Lock> {
        self.lock(FlockOperation::LockExclusive)
    }

    /// Each call opens the file anew, so that threads of one process exclude each other too.
    fn lock(&self, how: FlockOperation) -> StoreResult<Lock> {
        let flags = OFlags::RDWR | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&self.root, LOCK, flags, Mode::empty()).map_err(|errno| self.failed(errno))?;
        rustix::io::retry_on_intr(|| rustix::fs::flock(&file, how)).map_err(|errno| self.failed(errno))?;
        Ok(Lock(file))
    }

    /// Writes and fsyncs a file that has no object's name yet; on a full disk, in the room that was kept back.
    pub fn stage(&self, bytes: &[u8]) -> StoreResult<Staged<'_>> {
        let staged = match self.stage_once(bytes) {
            Err(StoreError::Full(_)) if self.reserve.give_up(&self.root) => return self.stage_once(bytes),
            staged => staged?,
        };
        self.reserve.take(&self.root);
        Ok(staged)
    }

    fn stage_once(&self, bytes: &[u8]) -> StoreResult<Staged<'_>> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        loop {
            let count = STAGED.fetch_add(1, Ordering::Relaxed);
            let name = format!("{STAGING}/{}-{count}", std::process::id());
            let file = match rustix::fs::openat(&self.root, &name, flags, FILE_MODE) {
                Ok(file) => File::from(file),
                Err(Errno::EXIST) => continue,
                Err(errno) => return Err(self.failed(errno)),
            };
            // Whoever opens the store at this moment may have taken the file for a stale one. Once it is locked and still
            // has its name, nobody removes it.
            let locked = rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok();
            if !locked || !self.has_name(&file, &name).map_err(|errno| self.failed(errno))? {
                continue;
            }
            let mut staged = Staged { files: self, name, file, moved: AtomicBool::new(false) };
            let written = direct::write(&mut staged.file, bytes).and_then(|()| staged.file.sync_all());
            written.map_err(|error| self.failed(errno_of(&error)))?;
            return Ok(staged);
        }
    }

    fn has_name(&self, file: &File, name: &str) -> Result<bool, Errno> {
        let open = rustix::fs::fstat(file)?;
        match self.stat(name) {
            Ok(named) => Ok(named.st_ino == open.st_ino && named.st_dev == open.st_dev),
            Err(Errno::NOENT) => Ok(false),
            Err(errno) => Err(errno),
        }
    }

    /// Makes the directories above `name`, durably, and gives the innermost.
    pub fn make_parents<'a>(&self, name: &'a str) -> StoreResult<&'a str> {
        let Some((parent, _)) = name.rsplit_once('/') else {
            return Ok(".");
        };
        if self.durable.lock().contains(parent) {
            return Ok(parent);
        }
        let mut above = ".";
        for end in parent.match_indices('/').map(|(at, _)| at).chain([parent.len()]) {
            let directory = &parent[..end];
            self.expect_present(directory)?;
            match rustix::fs::mkdirat(&self.root, directory, DIRECTORY_MODE) {
                Ok(()) => {}
                // Perhaps it is no directory.
                Err(Errno::EXIST) => drop(self.directory(directory).map_err(|errno| self.failed(errno))?),
                Err(errno) => return Err(self.failed(errno)),
            }
            self.sync(above).map_err(|errno| self.failed(errno))?;
            self.present.lock().insert(directory.to_owned());
            above = directory;
        }
        self.durable.lock().insert(parent.to_owned());
        Ok(parent)
    }

    /// A directory that was there is not made again: it was taken away, and may be put back.
    fn expect_present(&self, directory: &str) -> StoreResult<()> {
        if !self.present.lock().contains(directory) || self.stat(directory).is_ok() {
            return Ok(());
        }
        let shown = self.shown();
        Err(StoreError::Unavailable(format!("{shown}/{directory} was removed or moved away; put it back as it was")))
    }

    /// Directories right below the root, and right below those.
    fn directories(&self) -> Result<BTreeSet<String>, Errno> {
        let mut out = self.directories_in(".")?;
        for first in out.clone() {
            // Not everything below the root is ours: a file system's own lost+found cannot be read by everybody.
            let below = self.directories_in(&first).unwrap_or_default();
            out.extend(below.into_iter().map(|name| format!("{first}/{name}")));
        }
        Ok(out)
    }

    fn directories_in(&self, above: &str) -> Result<BTreeSet<String>, Errno> {
        let mut out = BTreeSet::new();
        for entry in Dir::read_from(&self.directory(above)?)? {
            let entry = entry?;
            let Ok(name) = entry.file_name().to_str() else { continue };
            let is_directory = match entry.file_type() {
                FileType::Directory => true,
                FileType::Unknown => self.directory(&format!("{above}/{name}")).is_ok(),
                _ => false,
            };
            if is_directory && !matches!(name, "." | "..") {
                out.insert(name.to_owned());
            }
        }
        Ok(out)
    }

    /// Makes the names in `directory` durable, after one of them has changed.
    pub fn sync_directory(&self, directory: &str) -> StoreResult<()> {
        self.sync(directory).map_err(|errno| {
            StoreError::Unknown(format!("{}: {directory} was changed but not made durable: {errno}", self.shown()))
        })
    }

    fn sync(&self, directory: &str) -> Result<(), Errno> {
        rustix::fs::fsync(self.directory(directory)?)
    }

    fn directory(&self, name: &str) -> Result<OwnedFd, Errno> {
        rustix::fs::openat(&self.root, name, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
    }

    fn stat(&self, name: &str) -> Result<Stat, Errno> {
        rustix::fs::statat(&self.root, name, AtFlags::empty())
    }

    fn open_object(&self, name: &str) -> StoreResult<(File, u64)> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&self.root, name, flags, Mode::empty()).map_err(|e| self.failed_on(name, e))?;
        let stat = rustix::fs::fstat(&file).map_err(|errno| self.failed_on(name, errno))?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(StoreError::NotFound(name.to_owned()));
        }
        Ok((File::from(file), stat.st_size as u64))
    }

    pub fn read(&self, name: &str) -> StoreResult<Vec<u8>> {
        let (mut file, size) = self.open_object(name)?;
        let mut bytes = Vec::with_capacity(size as usize);
        file.read_to_end(&mut bytes).map_err(|error| self.failed_on(name, errno_of(&error)))?;
        Ok(bytes)
    }

    pub fn read_range(&self, name: &str, range: Range<u64>) -> StoreResult<Vec<u8>> {
        let (file, size) = self.open_object(name)?;
        if range.start > range.end || range.end > size {
            return Err(StoreError::Range(name.to_owned(), range));
        }
        let mut bytes = vec![0; (range.end - range.start) as usize];
        file.read_exact_at(&mut bytes, range.start).map_err(|error| self.failed_on(name, errno_of(&error)))?;
        Ok(bytes)
    }

    pub fn info(&self, name: &str) -> StoreResult<ObjectInfo> {
        let stat = self.stat(name).map_err(|errno| self.failed_on(name, errno))?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(StoreError::NotFound(name.to_owned()));
        }
        Ok(info(name.to_owned(), &stat))
    }

    pub fn remove(&self, name: &str) -> StoreResult<()> {
        let parent = name.rsplit_once('/').map_or(".", |(parent, _)| parent);
        match rustix::fs::unlinkat(&self.root, name, AtFlags::empty()) {
            Ok(()) => self.sync_directory(parent),
            Err(Errno::ISDIR) => Ok(()),
            // An earlier removal may not be durable yet.
            Err(Errno::NOENT | Errno::NOTDIR) => match self.sync(parent) {
                Ok(()) => self.alive(),
                Err(Errno::NOENT | Errno::NOTDIR) => self.alive(),
                Err(errno) => Err(self.failed(errno)),
            },
            Err(errno) => Err(self.failed(errno)),
        }
    }

    pub fn list(&self, prefix: &str) -> StoreResult<Vec<ObjectInfo>> {
        let mut out = Vec::new();
        let mut directories = vec![prefix.rsplit_once('/').map_or("", |(parent, _)| parent).to_owned()];
        while let Some(directory) = directories.pop() {
            self.list_directory(&directory, prefix, &mut directories, &mut out)?;
        }
        if out.is_empty() {
            self.alive()?;
        }
        out.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        Ok(out)
    }

    fn list_directory(
        &self,
        directory: &str,
        prefix: &str,
        directories: &mut Vec<String>,
        out: &mut Vec<ObjectInfo>,
    ) -> StoreResult<()> {
        let opened = match self.directory(if directory.is_empty() { "." } else { directory }) {
            Ok(opened) => opened,
            Err(Errno::NOENT | Errno::NOTDIR) => return Ok(()),
            Err(errno) => return Err(self.failed(errno)),
        };
        for entry in Dir::read_from(&opened).map_err(|errno| self.failed(errno))? {
            let entry = entry.map_err(|errno| self.failed(errno))?;
            // What cannot be an object's name is not ours.
            let Ok(part) = entry.file_name().to_str() else {
                continue;
            };
            let name = if directory.is_empty() { part.to_owned() } else { format!("{directory}/{part}") };
            if name == OWN || crate::name::check(&name).is_err() {
                continue;
            }
            let stat = match self.stat(&name) {
                Ok(stat) => stat,
                Err(Errno::NOENT) => continue,
                Err(errno) => return Err(self.failed(errno)),
            };
            match FileType::from_raw_mode(stat.st_mode) {
                FileType::Directory => {
                    let below = format!("{name}/");
                    if below.starts_with(prefix) || prefix.starts_with(&below) {
                        directories.push(name);
                    }
                }
                FileType::RegularFile if name.starts_with(prefix) => out.push(info(name, &stat)),
                _ => {}
            }
        }
        Ok(())
    }

    /// An error if the store's directory has been removed.
    fn alive(&self) -> StoreResult<()> {
        match self.stat(LOCK) {
            Ok(_) => Ok(()),
            Err(Errno::NOENT) => Err(self.gone()),
            Err(errno) => Err(failure(&self.shown(), errno)),
        }
    }

    fn gone(&self) -> StoreError {
        let shown = self.shown();
        StoreError::Unavailable(format!("the store directory {shown} was removed or moved away; put it back as it was"))
    }

    fn failed(&self, errno: Errno) -> StoreError {
        if errno == Errno::NOENT && matches!(self.stat(LOCK), Err(Errno::NOENT)) {
            return self.gone();
        }
        failure(&self.shown(), errno)
    }

    fn failed_on(&self, name: &str, errno: Errno) -> StoreError {
        match errno {
            Errno::NOENT | Errno::NOTDIR => match self.alive() {
                Ok(()) => StoreError::NotFound(name.to_owned()),
                Err(error) => error,
            },
            errno => failure(&format!("{}/{name}", self.shown()), errno),
        }
    }
}

/// A written file on its way to an object's name; removed if it does not get there.
pub struct Staged<'a> {
    files: &'a Files,
    name: String,
    /// Open and locked as long as it is staged.
    file: File,
    /// It has its object's name and no other.
    moved: AtomicBool,
}

impl Staged<'_> {
    /// Puts the file in place of whatever has the name.
    pub fn rename_to(&self, name: &str) -> StoreResult<()> {
        let root = &self.files.root;
        rustix::fs::renameat(root, &self.name, root, name).map_err(|errno| self.refused(name, errno))?;
        self.moved.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Gives the file the name if nothing has it.
    pub fn link_to(&self, name: &str) -> StoreResult<()> {
        let root = &self.files.root;
        rustix::fs::linkat(root, &self.name, root, name, AtFlags::empty()).map_err(|errno| match errno {
            Errno::EXIST => StoreError::Exists(name.to_owned()),
            errno => self.refused(name, errno),
        })
    }

    fn refused(&self, name: &str, errno: Errno) -> StoreError {
        match errno {
            Errno::ISDIR | Errno::NOTDIR | Errno::NOTEMPTY => {
                StoreError::Denied(format!("{name} is a directory of the store, or passes through an object"))
            }
            errno => {
                // A directory that was thought durable may have been removed.
                self.files.durable.lock().clear();
                self.files.failed(errno)
            }
        }
    }
}

impl Drop for Staged<'_> {
    fn drop(&mut self) {
        if !*self.moved.get_mut() {
            // What cannot be removed here is removed by the next opening.
            let _ = rustix::fs::unlinkat(&self.files.root, &self.name, AtFlags::empty());
        }
    }
}

fn info(name: String, stat: &Stat) -> ObjectInfo {
    let modified_ms = stat.st_mtime.saturating_mul(1000).saturating_add(stat.st_mtime_nsec as i64 / 1_000_000);
    ObjectInfo { name, size: stat.st_size as u64, modified_ms }
}

/// What the operating system's error means to whoever uses the store; nothing was changed.
fn failure(place: &str, errno: Errno) -> StoreError {
    let what = format!("{place}: {errno}");
    match errno {
        Errno::NOSPC | Errno::DQUOT => StoreError::Full(what),
        Errno::ROFS | Errno::ACCESS | Errno::PERM | Errno::NOTDIR | Errno::ISDIR => StoreError::Denied(what),
        _ => StoreError::Unavailable(what),
    }
}

fn errno_of(error: &std::io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}

/// As `create_dir_all`, but each new directory is durable.
fn create_directories(path: &Path) -> std::io::Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    let parent = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    create_directories(parent)?;
    match std::fs::create_dir(path) {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    File::open(parent)?.sync_all()
}
