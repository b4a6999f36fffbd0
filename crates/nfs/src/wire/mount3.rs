//! MOUNT version 3 (RFC 1813 appendix I).

use super::xdr::{Reader, XdrResult};

pub const PROGRAM: u32 = 100_005;
pub const VERSION: u32 = 3;
/// MNTPATHLEN: the longest path, bytes.
pub const PATH_SIZE_MAX: usize = 1024;

/// mountstat3.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Status {
    Ok = 0,
    Perm = 1,
    NoEnt = 2,
    Io = 5,
    Acces = 13,
    NotDir = 20,
    Inval = 22,
    NameTooLong = 63,
    NotSupp = 10_004,
    ServerFault = 10_006,
}

/// MNT, UMNT: a path.
pub fn path(bytes: &[u8]) -> XdrResult<&[u8]> {
    Reader::new(bytes).opaque(PATH_SIZE_MAX)
}
