//! What RFC 1813 names, as far as tests look at it.

use crate::xdr::{Reader, Writer};

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
    pub const ACCES: Status = Status(13);
    pub const EXIST: Status = Status(17);
    pub const NOTDIR: Status = Status(20);
    pub const ISDIR: Status = Status(21);
    pub const NOSPC: Status = Status(28);
    pub const NOTEMPTY: Status = Status(66);
    pub const STALE: Status = Status(70);
    pub const BADHANDLE: Status = Status(10001);
    pub const JUKEBOX: Status = Status(10008);

    const NAMES: &[(Status, &'static str)] = &[
        (Status::PERM, "PERM"),
        (Status::NOENT, "NOENT"),
        (Status::ACCES, "ACCES"),
        (Status::EXIST, "EXIST"),
        (Status::NOTDIR, "NOTDIR"),
        (Status::ISDIR, "ISDIR"),
        (Status::NOSPC, "NOSPC"),
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

/// nfs_fh3: opaque, at most 64 bytes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Handle(pub Vec<u8>);

/// ftype3.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Regular = 1,
    Directory = 2,
    Block = 3,
    Character = 4,
    Symlink = 5,
    Socket = 6,
    Fifo = 7,
}

/// stable_how: when the data is durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stable {
    Unstable = 0,
    DataSync = 1,
    FileSync = 2,
}

/// fattr3. Times are (seconds, nanoseconds).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attributes {
    pub kind: Kind,
    pub mode: u32,
    pub links: u32,
    pub uid: u32,
    pub gid: u32,
    pub size: u64,
    /// Bytes that the file takes.
    pub used: u64,
    pub fsid: u64,
    pub fileid: u64,
    pub atime: (u32, u32),
    pub mtime: (u32, u32),
    pub ctime: (u32, u32),
}

impl Attributes {
    pub fn read(reader: &mut Reader) -> Result<Attributes> {
        let kind = match reader.u32()? {
            1 => Kind::Regular,
            2 => Kind::Directory,
            3 => Kind::Block,
            4 => Kind::Character,
            5 => Kind::Symlink,
            6 => Kind::Socket,
            7 => Kind::Fifo,
            _ => return Err(Error::Protocol("a file type is unknown")),
        };
        let (mode, links, uid, gid) = (reader.u32()?, reader.u32()?, reader.u32()?, reader.u32()?);
        let (size, used) = (reader.u64()?, reader.u64()?);
        let _device = reader.u64()?;
        let (fsid, fileid) = (reader.u64()?, reader.u64()?);
        let mut time = || -> Result<(u32, u32)> { Ok((reader.u32()?, reader.u32()?)) };
        Ok(Attributes {
            kind,
            mode,
            links,
            uid,
            gid,
            size,
            used,
            fsid,
            fileid,
            atime: time()?,
            mtime: time()?,
            ctime: time()?,
        })
    }
}

/// An entry of READDIR or READDIRPLUS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub fileid: u64,
    pub name: Vec<u8>,
    pub cookie: u64,
    /// READDIRPLUS only.
    pub attributes: Option<Attributes>,
    pub handle: Option<Handle>,
}

/// sattr3: what is `None` is left as it is.
#[derive(Clone, Copy, Debug, Default)]
pub struct Change {
    pub mode: Option<u32>,
    pub uid: Option<u32>,
    pub gid: Option<u32>,
    pub size: Option<u64>,
}

impl Change {
    pub fn mode(mode: u32) -> Change {
        Change { mode: Some(mode), ..Change::default() }
    }

    pub fn size(size: u64) -> Change {
        Change { size: Some(size), ..Change::default() }
    }

    pub fn write(&self, writer: Writer) -> Writer {
        let optional = |writer: Writer, value: Option<u32>| match value {
            Some(value) => writer.bool(true).u32(value),
            None => writer.bool(false),
        };
        let writer = [self.mode, self.uid, self.gid].into_iter().fold(writer, optional);
        let writer = match self.size {
            Some(size) => writer.bool(true).u64(size),
            None => writer.bool(false),
        };
        // atime and mtime: leave.
        writer.u32(0).u32(0)
    }
}
