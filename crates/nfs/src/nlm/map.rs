//! What the file system says, as the lock protocol says it. The only file that knows both.

use tarn_vfs::Errno;

use super::proto::Status;

/// The status for a refusal of the file system.
// long: exhaustive match
pub fn status(errno: Errno) -> Status {
    match errno {
        // The only status that makes a client wait and ask again: a program that waits for a lock must not see an
        // error because we are busy.
        Errno::Grace | Errno::TryLater => Status::DeniedGracePeriod,
        Errno::Stale | Errno::BadHandle | Errno::NotFound => Status::StaleHandle,
        Errno::ReadOnly => Status::ReadOnly,
        Errno::FileTooBig => Status::FileTooBig,
        Errno::NoLocks => Status::DeniedNoLocks,
        Errno::Deadlock => Status::Deadlock,
        Errno::Exists
        | Errno::NotDirectory
        | Errno::IsDirectory
        | Errno::NotEmpty
        | Errno::Access
        | Errno::NotPermitted
        | Errno::NoSpace
        | Errno::Quota
        | Errno::NameTooLong
        | Errno::Invalid
        | Errno::CrossVolume
        | Errno::TooManyLinks
        | Errno::Io
        | Errno::NotSupported
        | Errno::WrongType
        | Errno::GuardFailed => Status::Failed,
    }
}
