//! Why a file system says no.

use std::ops::Deref;

use crate::types::Change;

/// The reasons, named as POSIX names them; each front end maps them to its own codes in one place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, thiserror::Error)]
#[repr(u8)]
pub enum Errno {
    #[error("no such file or directory")]
    NotFound = 1,
    #[error("file exists")]
    Exists = 2,
    #[error("not a directory")]
    NotDirectory = 3,
    #[error("is a directory")]
    IsDirectory = 4,
    #[error("directory not empty")]
    NotEmpty = 5,
    /// EACCES: the mode forbids it.
    #[error("permission denied")]
    Access = 6,
    /// EPERM: only the owner or the superuser may.
    #[error("operation not permitted")]
    NotPermitted = 7,
    #[error("no space left: the volume's limit or the store is full")]
    NoSpace = 8,
    #[error("quota exceeded")]
    Quota = 9,
    #[error("file too large")]
    FileTooBig = 10,
    #[error("name too long")]
    NameTooLong = 11,
    #[error("invalid argument")]
    Invalid = 12,
    #[error("read-only file system")]
    ReadOnly = 13,
    /// EXDEV.
    #[error("cross-volume link or rename")]
    CrossVolume = 14,
    #[error("too many links")]
    TooManyLinks = 15,
    /// The object that the handle names is gone.
    #[error("stale file handle")]
    Stale = 16,
    /// The handle was never ours, or has been changed.
    #[error("bad file handle")]
    BadHandle = 17,
    /// Busy, recovering or full for the moment: nothing happened, the client asks again.
    #[error("try again later")]
    TryLater = 18,
    /// The medium gave back something wrong, or nothing.
    #[error("input/output error")]
    Io = 19,
    #[error("not supported")]
    NotSupported = 20,
    /// A symlink or special file where a regular file is needed.
    #[error("wrong file type")]
    WrongType = 21,
    /// The guard of a conditional change does not match.
    #[error("changed meanwhile")]
    GuardFailed = 22,
    /// During the grace period only reclaims are granted.
    #[error("in the grace period after a restart")]
    Grace = 23,
    /// No more locks can be kept for this client.
    #[error("no locks available")]
    NoLocks = 24,
    /// Waiting for this lock would never end.
    #[error("deadlock")]
    Deadlock = 25,
}

/// A refusal, with the attributes as they were inside the operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    pub errno: Errno,
    /// Of the directory or object the call names, and of the second directory if there is one.
    pub changes: Changes,
}

impl From<Errno> for Failure {
    fn from(errno: Errno) -> Failure {
        Failure { errno, changes: Changes::default() }
    }
}

/// What a refusal shows of two objects. Apart: every result has room for a refusal, and few are one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes(Option<Box<[Change; 2]>>);

impl Changes {
    pub fn into_inner(self) -> [Change; 2] {
        self.0.map_or_else(Default::default, |changes| *changes)
    }
}

impl From<[Change; 2]> for Changes {
    fn from(changes: [Change; 2]) -> Changes {
        Changes(Some(Box::new(changes)))
    }
}

impl Deref for Changes {
    type Target = [Change; 2];

    fn deref(&self) -> &[Change; 2] {
        static NONE: [Change; 2] = [const { Change { before: None, after: None } }; 2];
        self.0.as_deref().unwrap_or(&NONE)
    }
}
