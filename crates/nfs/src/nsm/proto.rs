//! What a status monitor says on the wire.

use crate::wire::xdr::{Reader, Writer, XdrResult};

pub const PROGRAM: u32 = 100_024;
pub const VERSION: u32 = 1;
/// Longest name, bytes (SM_MAXSTRLEN).
pub const NAME_MAX: usize = 1024;
pub const SM_NOTIFY: u32 = 6;

/// `res`: the monitor does what it was asked, or it does not.
pub const STAT_FAIL: u32 = 1;

/// `stat_chge`: a host has restarted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Notice<'a> {
    pub name: &'a [u8],
    /// Odd while the host is up; grows with every restart.
    pub state: u32,
}

impl<'a> Notice<'a> {
    /// The notice that `args` is, to the last byte.
    pub fn decode(args: &'a [u8]) -> XdrResult<Notice<'a>> {
        let mut r = Reader::new(args);
        let notice = Notice { name: r.opaque(NAME_MAX)?, state: r.u32()? };
        r.end()?;
        Ok(notice)
    }

    pub fn encode(&self) -> Vec<u8> {
        let mut w = Writer::new();
        w.opaque(self.name);
        w.u32(self.state);
        w.to_vec()
    }
}
