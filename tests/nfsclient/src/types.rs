//! What RFC 1813 names, as far as tests look at it.

use crate::error::{Error, Result};
use crate::xdr::{Reader, Writer};

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
