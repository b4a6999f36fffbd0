//! Types that several procedures share (RFC 1813 sections 2.5 and 2.6).

use crate::wire::xdr::{Reader, Writer, XdrError, XdrResult, opaque_size};

pub const PROGRAM: u32 = 100_003;
pub const VERSION: u32 = 3;
/// NFS3_FHSIZE: the longest handle, bytes.
pub const HANDLE_SIZE_MAX: usize = 64;
/// Bytes of fattr3.
pub const FATTR_SIZE: usize = 84;
/// Bytes of post_op_attr that is present.
pub const POST_OP_ATTR_SIZE: usize = 4 + FATTR_SIZE;
/// Cookie verifier, create verifier, write verifier.
pub type Verifier = [u8; 8];

/// nfsstat3.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u32)]
pub enum Status {
    Ok = 0,
    Perm = 1,
    NoEnt = 2,
    Io = 5,
    NxIo = 6,
    Acces = 13,
    Exist = 17,
    XDev = 18,
    NoDev = 19,
    NotDir = 20,
    IsDir = 21,
    Inval = 22,
    FBig = 27,
    NoSpc = 28,
    Rofs = 30,
    MLink = 31,
    NameTooLong = 63,
    NotEmpty = 66,
    DQuot = 69,
    Stale = 70,
    Remote = 71,
    BadHandle = 10_001,
    NotSync = 10_002,
    BadCookie = 10_003,
    NotSupp = 10_004,
    TooSmall = 10_005,
    ServerFault = 10_006,
    BadType = 10_007,
    Jukebox = 10_008,
}

/// ftype3.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Type {
    Regular = 1,
    Directory = 2,
    Block = 3,
    Character = 4,
    Link = 5,
    Socket = 6,
    Fifo = 7,
}

impl Type {
    pub fn decode(r: &mut Reader<'_>) -> XdrResult<Type> {
        Ok(match r.u32()? {
            1 => Type::Regular,
            2 => Type::Directory,
            3 => Type::Block,
            4 => Type::Character,
            5 => Type::Link,
            6 => Type::Socket,
            7 => Type::Fifo,
            _ => return Err(XdrError::Value("a file type")),
        })
    }
}

/// nfstime3: seconds since 1970, unsigned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NfsTime {
    pub seconds: u32,
    /// 0 to 999,999,999; a decoder refuses more.
    pub nanos: u32,
}

impl NfsTime {
    pub fn decode(r: &mut Reader<'_>) -> XdrResult<NfsTime> {
        let time = NfsTime { seconds: r.u32()?, nanos: r.u32()? };
        if time.nanos < 1_000_000_000 { Ok(time) } else { Err(XdrError::Value("nanoseconds")) }
    }

    pub fn encode(self, w: &mut Writer) {
        w.u32(self.seconds);
        w.u32(self.nanos);
    }
}

/// fattr3.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fattr {
    pub kind: Type,
    pub mode: u32,
    pub links: u32,
    pub uid: u32,
    pub gid: u32,
    pub size: u64,
    pub used: u64,
    pub device: (u32, u32),
    pub fsid: u64,
    pub fileid: u64,
    pub atime: NfsTime,
    pub mtime: NfsTime,
    pub ctime: NfsTime,
}

impl Fattr {
    pub fn encode(&self, w: &mut Writer) {
        for v in [self.kind as u32, self.mode, self.links, self.uid, self.gid] {
            w.u32(v);
        }
        w.u64(self.size);
        w.u64(self.used);
        w.u32(self.device.0);
        w.u32(self.device.1);
        w.u64(self.fsid);
        w.u64(self.fileid);
        for time in [self.atime, self.mtime, self.ctime] {
            time.encode(w);
        }
    }

    pub fn decode(r: &mut Reader<'_>) -> XdrResult<Fattr> {
        Ok(Fattr {
            kind: Type::decode(r)?,
            mode: r.u32()?,
            links: r.u32()?,
            uid: r.u32()?,
            gid: r.u32()?,
            size: r.u64()?,
            used: r.u64()?,
            device: (r.u32()?, r.u32()?),
            fsid: r.u64()?,
            fileid: r.u64()?,
            atime: NfsTime::decode(r)?,
            mtime: NfsTime::decode(r)?,
            ctime: NfsTime::decode(r)?,
        })
    }
}

/// wcc_attr: the state before an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WccAttr {
    pub size: u64,
    pub mtime: NfsTime,
    pub ctime: NfsTime,
}

impl WccAttr {
    pub fn encode(self, w: &mut Writer) {
        w.u64(self.size);
        self.mtime.encode(w);
        self.ctime.encode(w);
    }

    pub fn decode(r: &mut Reader<'_>) -> XdrResult<WccAttr> {
        Ok(WccAttr { size: r.u64()?, mtime: NfsTime::decode(r)?, ctime: NfsTime::decode(r)? })
    }
}

/// wcc_data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WccData {
    pub before: Option<WccAttr>,
    pub after: Option<Fattr>,
}

impl WccData {
    pub fn encode(&self, w: &mut Writer) {
        w.option(self.before, |w, before| before.encode(w));
        w.option(self.after, |w, after| after.encode(w));
    }

    pub fn decode(r: &mut Reader<'_>) -> XdrResult<WccData> {
        Ok(WccData { before: r.option(WccAttr::decode)?, after: r.option(Fattr::decode)? })
    }
}

/// set_atime, set_mtime.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SetTime {
    #[default]
    DontChange,
    ToServerTime,
    ToClientTime(NfsTime),
}

impl SetTime {
    fn decode(r: &mut Reader<'_>) -> XdrResult<SetTime> {
        match r.u32()? {
            0 => Ok(SetTime::DontChange),
            1 => Ok(SetTime::ToServerTime),
            2 => NfsTime::decode(r).map(SetTime::ToClientTime),
            _ => Err(XdrError::Value("how to set a time")),
        }
    }
}

/// sattr3.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sattr {
    pub mode: Option<u32>,
    pub uid: Option<u32>,
    pub gid: Option<u32>,
    pub size: Option<u64>,
    pub atime: SetTime,
    pub mtime: SetTime,
}

impl Sattr {
    pub fn decode(r: &mut Reader<'_>) -> XdrResult<Sattr> {
        Ok(Sattr {
            mode: r.option(Reader::u32)?,
            uid: r.option(Reader::u32)?,
            gid: r.option(Reader::u32)?,
            size: r.option(Reader::u64)?,
            atime: SetTime::decode(r)?,
            mtime: SetTime::decode(r)?,
        })
    }
}

/// stable_how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum StableHow {
    Unstable = 0,
    DataSync = 1,
    FileSync = 2,
}

/// diropargs3: a name in a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirOp<'a> {
    pub dir: &'a [u8],
    pub name: &'a [u8],
}

impl<'a> DirOp<'a> {
    pub fn decode(r: &mut Reader<'a>) -> XdrResult<DirOp<'a>> {
        Ok(DirOp { dir: handle(r)?, name: name(r)? })
    }
}

/// nfs_fh3.
pub fn handle<'a>(r: &mut Reader<'a>) -> XdrResult<&'a [u8]> {
    r.opaque(HANDLE_SIZE_MAX)
}

/// filename3 or nfspath3: no limit of the protocol's own, so whatever the message holds.
pub fn name<'a>(r: &mut Reader<'a>) -> XdrResult<&'a [u8]> {
    r.opaque(usize::MAX)
}

/// Bytes of one entry3 but for the padded name: whether it follows, fileid, the name's length, cookie.
pub const ENTRY_OVERHEAD: usize = 4 + 8 + 4 + 8;
/// Bytes that entryplus3 adds to entry3 for a handle of `size` bytes.
pub fn entry_plus_overhead(size: usize) -> usize {
    POST_OP_ATTR_SIZE + 4 + opaque_size(size)
}
/// Bytes of READDIR3resok and READDIRPLUS3resok without entries: attributes, verifier, end of list, eof.
pub const LIST_OVERHEAD: usize = POST_OP_ATTR_SIZE + 8 + 4 + 4;
