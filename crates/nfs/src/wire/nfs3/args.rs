//! Arguments of the procedures (RFC 1813 section 3.3), each decoded from one slice.
//!
//! - What follows the arguments is ignored, as by the other servers of the field: nothing depends on it, and a
//!   client that pads its messages works.

use super::types::*;
use crate::wire::xdr::{Reader, XdrError, XdrResult};

/// Decodes an argument list.
fn list<'a, T>(bytes: &'a [u8], read: impl FnOnce(&mut Reader<'a>) -> XdrResult<T>) -> XdrResult<T> {
    read(&mut Reader::new(bytes))
}

/// GETATTR, READLINK, FSSTAT, FSINFO, PATHCONF: a handle.
pub fn one_handle(bytes: &[u8]) -> XdrResult<&[u8]> {
    list(bytes, handle)
}

/// LOOKUP, REMOVE, RMDIR: a name in a directory.
pub fn dir_op(bytes: &[u8]) -> XdrResult<DirOp<'_>> {
    list(bytes, DirOp::decode)
}

/// SETATTR3args.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SetAttrArgs<'a> {
    pub handle: &'a [u8],
    pub attributes: Sattr,
    pub guard: Option<NfsTime>,
}

pub fn setattr(bytes: &[u8]) -> XdrResult<SetAttrArgs<'_>> {
    list(bytes, |r| {
        Ok(SetAttrArgs { handle: handle(r)?, attributes: Sattr::decode(r)?, guard: r.option(NfsTime::decode)? })
    })
}

/// ACCESS3args.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AccessArgs<'a> {
    pub handle: &'a [u8],
    pub want: u32,
}

pub fn access(bytes: &[u8]) -> XdrResult<AccessArgs<'_>> {
    list(bytes, |r| Ok(AccessArgs { handle: handle(r)?, want: r.u32()? }))
}

/// READ3args and COMMIT3args.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RangeArgs<'a> {
    pub handle: &'a [u8],
    pub offset: u64,
    pub count: u32,
}

pub fn range(bytes: &[u8]) -> XdrResult<RangeArgs<'_>> {
    list(bytes, |r| Ok(RangeArgs { handle: handle(r)?, offset: r.u64()?, count: r.u32()? }))
}

/// WRITE3args, `data` cut to the count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteArgs<'a> {
    pub handle: &'a [u8],
    pub offset: u64,
    pub stable: StableHow,
    pub data: &'a [u8],
}

pub fn write(bytes: &[u8]) -> XdrResult<WriteArgs<'_>> {
    list(bytes, |r| {
        let (handle, offset, count) = (handle(r)?, r.u64()?, r.u32()?);
        let stable = match r.u32()? {
            0 => StableHow::Unstable,
            1 => StableHow::DataSync,
            2 => StableHow::FileSync,
            _ => return Err(XdrError::Value("a stability")),
        };
        let data = r.opaque(usize::MAX)?;
        let data = data.get(..count as usize).ok_or(XdrError::Value("a count of more bytes than were sent"))?;
        Ok(WriteArgs { handle, offset, stable, data })
    })
}

/// createhow3.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CreateHow {
    Unchecked(Sattr),
    Guarded(Sattr),
    Exclusive(Verifier),
}

/// CREATE3args.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CreateArgs<'a> {
    pub place: DirOp<'a>,
    pub how: CreateHow,
}

pub fn create(bytes: &[u8]) -> XdrResult<CreateArgs<'_>> {
    list(bytes, |r| {
        let place = DirOp::decode(r)?;
        let how = match r.u32()? {
            0 => CreateHow::Unchecked(Sattr::decode(r)?),
            1 => CreateHow::Guarded(Sattr::decode(r)?),
            2 => CreateHow::Exclusive(*r.fixed()?),
            _ => return Err(XdrError::Value("a way to create")),
        };
        Ok(CreateArgs { place, how })
    })
}

/// MKDIR3args.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MkDirArgs<'a> {
    pub place: DirOp<'a>,
    pub attributes: Sattr,
}

pub fn mkdir(bytes: &[u8]) -> XdrResult<MkDirArgs<'_>> {
    list(bytes, |r| Ok(MkDirArgs { place: DirOp::decode(r)?, attributes: Sattr::decode(r)? }))
}

/// SYMLINK3args.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SymlinkArgs<'a> {
    pub place: DirOp<'a>,
    pub attributes: Sattr,
    pub target: &'a [u8],
}

pub fn symlink(bytes: &[u8]) -> XdrResult<SymlinkArgs<'_>> {
    list(bytes, |r| Ok(SymlinkArgs { place: DirOp::decode(r)?, attributes: Sattr::decode(r)?, target: name(r)? }))
}

/// mknoddata3.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MkNodWhat {
    Block(Sattr, (u32, u32)),
    Character(Sattr, (u32, u32)),
    Socket(Sattr),
    Fifo(Sattr),
    /// A type that is made by another procedure; answered with BADTYPE.
    Other,
}

/// MKNOD3args.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MkNodArgs<'a> {
    pub place: DirOp<'a>,
    pub what: MkNodWhat,
}

pub fn mknod(bytes: &[u8]) -> XdrResult<MkNodArgs<'_>> {
    list(bytes, |r| {
        let place = DirOp::decode(r)?;
        let what = match Type::decode(r)? {
            Type::Block => MkNodWhat::Block(Sattr::decode(r)?, (r.u32()?, r.u32()?)),
            Type::Character => MkNodWhat::Character(Sattr::decode(r)?, (r.u32()?, r.u32()?)),
            Type::Socket => MkNodWhat::Socket(Sattr::decode(r)?),
            Type::Fifo => MkNodWhat::Fifo(Sattr::decode(r)?),
            Type::Regular | Type::Directory | Type::Link => MkNodWhat::Other,
        };
        Ok(MkNodArgs { place, what })
    })
}

/// RENAME3args.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RenameArgs<'a> {
    pub from: DirOp<'a>,
    pub to: DirOp<'a>,
}

pub fn rename(bytes: &[u8]) -> XdrResult<RenameArgs<'_>> {
    list(bytes, |r| Ok(RenameArgs { from: DirOp::decode(r)?, to: DirOp::decode(r)? }))
}

/// LINK3args.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkArgs<'a> {
    pub handle: &'a [u8],
    pub place: DirOp<'a>,
}

pub fn link(bytes: &[u8]) -> XdrResult<LinkArgs<'_>> {
    list(bytes, |r| Ok(LinkArgs { handle: handle(r)?, place: DirOp::decode(r)? }))
}

/// READDIR3args.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadDirArgs<'a> {
    pub dir: &'a [u8],
    pub cookie: u64,
    pub verifier: Verifier,
    /// Most bytes of READDIR3resok.
    pub count: u32,
}

pub fn readdir(bytes: &[u8]) -> XdrResult<ReadDirArgs<'_>> {
    list(bytes, |r| Ok(ReadDirArgs { dir: handle(r)?, cookie: r.u64()?, verifier: *r.fixed()?, count: r.u32()? }))
}

/// READDIRPLUS3args.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadDirPlusArgs<'a> {
    pub dir: &'a [u8],
    pub cookie: u64,
    pub verifier: Verifier,
    /// Most bytes of entries, attributes and handles not counted.
    pub dir_count: u32,
    /// Most bytes of READDIRPLUS3resok.
    pub max_count: u32,
}

pub fn readdirplus(bytes: &[u8]) -> XdrResult<ReadDirPlusArgs<'_>> {
    list(bytes, |r| {
        Ok(ReadDirPlusArgs {
            dir: handle(r)?,
            cookie: r.u64()?,
            verifier: *r.fixed()?,
            dir_count: r.u32()?,
            max_count: r.u32()?,
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::xdr::Writer;

    #[test]
    fn setattr_is_decoded_as_the_rfc_draws_it() {
        let bytes = [
            &[0, 0, 0, 4, 1, 2, 3, 4][..],            // handle
            &[0, 0, 0, 1, 0, 0, 1, 0xa4],             // mode 0644
            &[0, 0, 0, 0],                            // no uid
            &[0, 0, 0, 1, 0, 0, 0, 7],                // gid 7
            &[0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0x10, 0], // size 4096
            &[0, 0, 0, 1],                            // atime: the server's
            &[0, 0, 0, 2, 0, 0, 0, 9, 0, 0, 0, 8],    // mtime 9.000000008
            &[0, 0, 0, 1, 0, 0, 0, 5, 0, 0, 0, 6],    // guard
        ]
        .concat();
        let args = setattr(&bytes).unwrap();
        assert_eq!(args.handle, [1, 2, 3, 4]);
        let expected = Sattr {
            mode: Some(0o644),
            uid: None,
            gid: Some(7),
            size: Some(4096),
            atime: SetTime::ToServerTime,
            mtime: SetTime::ToClientTime(NfsTime { seconds: 9, nanos: 8 }),
        };
        assert_eq!(args.attributes, expected);
        assert_eq!(args.guard, Some(NfsTime { seconds: 5, nanos: 6 }));
        for len in 0..bytes.len() {
            assert!(setattr(&bytes[..len]).is_err());
        }
        assert_eq!(setattr(&[&bytes[..], &[0; 4]].concat()), Ok(args));
    }

    #[test]
    fn a_write_never_promises_more_bytes_than_it_brings() {
        let encoded = |count: u32, stable: u32| {
            let mut w = Writer::new();
            w.opaque(&[9; 32]);
            w.u64(1);
            w.u32(count);
            w.u32(stable);
            w.opaque(b"abcdef");
            w.to_vec()
        };
        assert_eq!(write(&encoded(6, 2)).unwrap().data, b"abcdef");
        assert_eq!(write(&encoded(2, 0)).unwrap().data, b"ab");
        assert!(write(&encoded(7, 0)).is_err());
        assert!(write(&encoded(6, 3)).is_err());
    }

    #[test]
    fn a_handle_of_more_than_64_bytes_is_garbage() {
        let mut w = Writer::new();
        w.opaque(&[0; 65]);
        assert_eq!(one_handle(&w.to_vec()), Err(XdrError::TooLong));
    }
}
