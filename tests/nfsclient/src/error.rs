//! What can go wrong with a call, told apart by who is to blame.

pub type Result<T> = std::result::Result<T, Error>;

#[derive(Debug)]
pub enum Error {
    /// The connection; the call may have been executed.
    Io(std::io::Error),
    /// The server's answer.
    Status(Status),
    /// The server does not speak as the RFC says.
    Protocol(&'static str),
    /// RPC itself refused the call: accept or reject status.
    Refused(u32),
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Error::Io(error) => write!(f, "{error}"),
            Error::Status(status) => write!(f, "{status:?}"),
            Error::Protocol(what) => write!(f, "protocol: {what}"),
            Error::Refused(status) => write!(f, "RPC refused with {status}"),
        }
    }
}

impl std::error::Error for Error {}

impl From<std::io::Error> for Error {
    fn from(error: std::io::Error) -> Error {
        Error::Io(error)
    }
}

/// nfsstat3 (RFC 1813, 2.6); also mountstat3, whose numbers are the same where both exist.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Status(pub u32);

impl Status {
    pub const PERM: Status = Status(1);
    pub const NOENT: Status = Status(2);
    pub const IO: Status = Status(5);
    pub const ACCES: Status = Status(13);
    pub const EXIST: Status = Status(17);
    pub const NOTDIR: Status = Status(20);
    pub const ISDIR: Status = Status(21);
    pub const NOSPC: Status = Status(28);
    pub const ROFS: Status = Status(30);
    pub const NOTEMPTY: Status = Status(66);
    pub const STALE: Status = Status(70);
    pub const BADHANDLE: Status = Status(10001);
    pub const JUKEBOX: Status = Status(10008);

    const NAMES: &[(Status, &'static str)] = &[
        (Status::PERM, "PERM"),
        (Status::NOENT, "NOENT"),
        (Status::IO, "IO"),
        (Status::ACCES, "ACCES"),
        (Status::EXIST, "EXIST"),
        (Status::NOTDIR, "NOTDIR"),
        (Status::ISDIR, "ISDIR"),
        (Status::NOSPC, "NOSPC"),
        (Status::ROFS, "ROFS"),
        (Status::NOTEMPTY, "NOTEMPTY"),
        (Status::STALE, "STALE"),
        (Status::BADHANDLE, "BADHANDLE"),
        (Status::JUKEBOX, "JUKEBOX"),
    ];
}

impl std::fmt::Debug for Status {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match Status::NAMES.iter().find(|(status, _)| status == self) {
            Some((_, name)) => write!(f, "NFS3ERR_{name}"),
            None => write!(f, "NFS3ERR {}", self.0),
        }
    }
}
