//! The log's medium as a file of fixed size.
//!
//! - Every block is written once at creation, so that a later flush changes no metadata of the host's file system.
//! - A file under its final name is whole: creation happens under another name and ends with a rename.
//! - Writes and large reads of whole blocks go past the page cache, where the file system takes that: a log is written far
//!   more than it is read, and a stream is read back once. Smaller writes do not while they are expected to be read back, one
//!   here, one there. One flush covers both.
//! - One process at a time: an exclusive advisory lock is held as long as the device lives.

use std::fs::{File, OpenOptions};
use std::io;
use std::num::NonZeroU64;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{Advice, FallocateFlags, FlockOperation, OFlags};
use rustix::io::Errno;

use crate::aligned::{ALIGN, Aligned, is_aligned};
use crate::device::LogDevice;

const FILL_CHUNK: usize = 4 << 20;
/// Reads from this size on go past the page cache, and writes though they are read back soon, bytes.
const LARGE: usize = 1 << 20;

/// A log in a file.
#[derive(Debug)]
pub struct FileDevice {
    file: File,
    /// The same file past the page cache, where it can be opened so.
    direct: Option<File>,
    path: PathBuf,
    size: u64,
    /// What is written is read back soon.
    read_soon: AtomicBool,
}

impl FileDevice {
    /// Makes `path`, which must not exist, with `size` bytes of zeros, all of them written, file and parent synced.
    ///
    /// Takes as long as writing `size` bytes; `progress` is told how many are written. An interrupted creation leaves
    /// only `path` with `.creating` appended, which the next one replaces.
    pub fn create(path: &Path, size: u64, mut progress: impl FnMut(u64)) -> io::Result<FileDevice> {
        if path.exists() {
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, "the log exists already"));
        }
        let mut staged = path.as_os_str().to_owned();
        staged.push(".creating");
        let staged = PathBuf::from(staged);
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(&staged)?;
        lock(&file)?;
        file.set_len(0)?;
        match rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, size) {
            // Not every file system knows it; the zeros below take the room all the same.
            Ok(()) | Err(rustix::io::Errno::OPNOTSUPP) => {}
            Err(error) => return Err(error.into()),
        }
        let device = FileDevice::new(file, direct(&staged), path, size);
        let mut memory = Aligned::default();
        let zeros = memory.room(FILL_CHUNK);
        zeros.fill(0);
        let mut at = 0;
        while at < size {
            let count = zeros.len().min((size - at) as usize);
            device.write(at, &zeros[..count])?;
            at += count as u64;
            progress(at);
        }
        device.file.sync_all()?;
        std::fs::rename(&staged, path)?;
        sync_parent(path)?;
        Ok(device)
    }

    /// Opens `path` and locks it; an error of kind `WouldBlock` says another process has it open.
    pub fn open(path: &Path) -> io::Result<FileDevice> {
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        lock(&file)?;
        let size = file.metadata()?.len();
        Ok(FileDevice::new(file, direct(path), path, size))
    }

    /// Opens `path` for reading only and without a lock: for `verify` beside a running server.
    pub fn open_read_only(path: &Path) -> io::Result<FileDevice> {
        let file = File::open(path)?;
        let size = file.metadata()?.len();
        Ok(FileDevice::new(file, None, path, size))
    }

    fn new(file: File, direct: Option<File>, path: &Path, size: u64) -> FileDevice {
        FileDevice { file, direct, path: path.to_owned(), size, read_soon: AtomicBool::new(false) }
    }

    /// Writes as much of `data` as goes past the page cache; gives how much.
    fn write_past_cache(&self, at: u64, data: &[u8]) -> io::Result<usize> {
        let worth = data.len() >= LARGE || !self.read_soon.load(Ordering::Relaxed);
        let Some(direct) = self.past_cache(worth, at, data) else { return Ok(0) };
        in_whole_blocks(data.len(), |done| direct.write_at(&data[done..], at + done as u64))
    }

    /// Fills as much of `buf` as comes past the page cache; gives how much.
    fn read_past_cache(&self, at: u64, buf: &mut [u8]) -> io::Result<usize> {
        let Some(direct) = self.past_cache(buf.len() >= LARGE, at, buf) else { return Ok(0) };
        in_whole_blocks(buf.len(), |done| direct.read_at(&mut buf[done..], at + done as u64))
    }

    fn past_cache(&self, worth: bool, at: u64, bytes: &[u8]) -> Option<&File> {
        self.direct.as_ref().filter(|_| worth && is_aligned(at, bytes))
    }
}

/// Repeats `step`, which is told how many of `len` bytes are done, for as long as it does whole blocks; gives how many it did.
fn in_whole_blocks(len: usize, mut step: impl FnMut(usize) -> io::Result<usize>) -> io::Result<usize> {
    let mut done = 0;
    while done < len {
        match step(done) {
            Ok(0) => return Ok(done),
            Ok(count) => done += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            // A disk of larger blocks, or a file system that says so late.
            Err(error) if Errno::from_io_error(&error) == Some(Errno::INVAL) => return Ok(done),
            Err(error) => return Err(error),
        }
        if !done.is_multiple_of(ALIGN) {
            // It ended amid a block: the rest cannot begin there.
            return Ok(done);
        }
    }
    Ok(done)
}

/// The file past the page cache. A file system that has no such way refuses here or at the first write.
fn direct(path: &Path) -> Option<File> {
    OpenOptions::new().read(true).write(true).custom_flags(OFlags::DIRECT.bits() as i32).open(path).ok()
}

fn lock(file: &File) -> io::Result<()> {
    rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive).map_err(|errno| match errno {
        rustix::io::Errno::WOULDBLOCK => io::Error::new(io::ErrorKind::WouldBlock, "another process has the log open"),
        other => other.into(),
    })
}

fn sync_parent(path: &Path) -> io::Result<()> {
    let parent = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    File::open(parent)?.sync_all()
}

impl LogDevice for FileDevice {
    fn size(&self) -> u64 {
        self.size
    }

    fn read(&self, at: u64, buf: &mut [u8]) -> io::Result<()> {
        let done = self.read_past_cache(at, buf)?;
        self.file.read_exact_at(&mut buf[done..], at + done as u64)
    }

    fn write(&self, at: u64, data: &[u8]) -> io::Result<()> {
        // A file never grows: a write outside would change metadata, and lie outside every promise.
        crate::device::range_within(at, data.len(), self.size)?;
        let done = self.write_past_cache(at, data)?;
        self.file.write_all_at(&data[done..], at + done as u64)
    }

    fn flush(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn name(&self) -> String {
        self.path.display().to_string()
    }

    fn expect_reads(&self, soon: bool) {
        // It is told far more often than it changes.
        if self.read_soon.load(Ordering::Relaxed) != soon {
            self.read_soon.store(soon, Ordering::Relaxed);
        }
    }

    fn read_ahead(&self, at: u64, len: u64) {
        // A file system that does not know it reads no worse than without.
        let _ = rustix::fs::fadvise(&self.file, at, NonZeroU64::new(len), Advice::WillNeed);
    }
}

/// What a path lies on, as far as a flush is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Medium {
    /// A local file system: fdatasync reaches the disk.
    Local,
    /// Memory: nothing survives a power loss.
    Memory(&'static str),
    /// A network or user-space file system: what a flush means is somebody else's promise.
    Remote(&'static str),
}

/// Says what file system `path` (which exists, or whose parent does) is on.
pub fn medium(path: &Path) -> io::Result<Medium> {
    let stat = match rustix::fs::statfs(path) {
        Err(rustix::io::Errno::NOENT) => {
            let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
            rustix::fs::statfs(parent.unwrap_or(Path::new(".")))?
        }
        other => other?,
    };
    // The width and sign of `f_type` differ between targets; the magics are 32 bits.
    Ok(match stat.f_type as u32 {
        0x0102_1994 => Medium::Memory("tmpfs"),
        0x8584_58f6 => Medium::Memory("ramfs"),
        0x0000_6969 => Medium::Remote("nfs"),
        0xff53_4d42 => Medium::Remote("cifs"),
        0xfe53_4d42 => Medium::Remote("smb2"),
        0x0000_517b => Medium::Remote("smb"),
        0x6573_5546 => Medium::Remote("fuse"),
        0x0102_1997 => Medium::Remote("9p"),
        0x00c3_6400 => Medium::Remote("ceph"),
        0x5346_414f => Medium::Remote("afs"),
        _ => Medium::Local,
    })
}
