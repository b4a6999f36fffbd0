//! Room that is kept back for the write that meets a full disk.
//!
//! - Whoever shares the disk can fill it between the look at the free space and the write. A metadata store that fails in the
//!   midst of a commit reads nothing until it could write again; so its write is done in what was kept back for it.
//! - It is a file of blocks that nothing is written to: given up at the first write without room, taken again once there is
//!   plenty. A file system that cannot set blocks apart has none.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{FallocateFlags, OFlags};
use rustix::io::Errno;

use super::files::FILE_MODE;

const NAME: &str = ".tarn/reserve";
/// What is kept back, bytes: a metadata table of a small batch, its manifest, and both once more at the next opening.
pub(super) const SIZE: u64 = 16 << 20;
/// It is taken while so much is free, bytes.
const PLENTY: u64 = 4 * SIZE;

/// Whether the reserve of a store's directory is there, as far as this handle knows.
#[derive(Default)]
pub(super) struct Reserve {
    held: AtomicBool,
}

impl Reserve {
    /// Takes it where there is plenty. Not having it is no error.
    pub(super) fn take(&self, root: &OwnedFd) {
        if self.held.load(Ordering::Relaxed) {
            return;
        }
        let plenty = rustix::fs::fstatvfs(root).is_ok_and(|space| space.f_bavail * space.f_frsize >= PLENTY);
        if plenty && set_apart(root).is_ok() {
            self.held.store(true, Ordering::Relaxed);
        }
    }

    /// Gives it up for a write that found no room. Whether to try that again.
    pub(super) fn give_up(&self, root: &OwnedFd) -> bool {
        // Another handle, or an earlier process, may have taken what this one does not know of.
        let held = rustix::fs::openat(root, NAME, OFlags::RDWR | OFlags::CLOEXEC, FILE_MODE).is_ok_and(|file| {
            let holds = rustix::fs::fstat(&file).is_ok_and(|stat| stat.st_blocks > 0);
            // Made durable, because a file system may not hand out again before that what was given up.
            holds && rustix::fs::ftruncate(&file, 0).is_ok() && rustix::fs::fsync(&file).is_ok()
        });
        self.held.store(false, Ordering::Relaxed);
        held
    }
}

fn set_apart(root: &OwnedFd) -> Result<(), Errno> {
    let file = rustix::fs::openat(root, NAME, OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC, FILE_MODE)?;
    rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, SIZE)
}
