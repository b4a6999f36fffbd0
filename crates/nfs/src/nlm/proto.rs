//! The Network Lock Manager, version 4 (X/Open XNFS chapter 14, RFC 1813 appendix II), on the wire.
//!
//! - Requests are decoded to the last byte and own what they hold: they outlive their message.
//! - Requests to clients are encoded here too; what a client answers is a status.

use bytes::Bytes;

use crate::wire::xdr::{Reader, Writer, XdrError, XdrResult};

pub const PROGRAM: u32 = 100_021;
pub const VERSION: u32 = 4;

/// Longest string, owner, handle or cookie, bytes (LM_MAXSTRLEN, MAXNETOBJ_SZ).
pub const OPAQUE_MAX: usize = 1024;

/// Procedures that a client's lock daemon serves.
pub const NLMPROC4_NULL: u32 = 0;
pub const NLMPROC4_GRANTED: u32 = 5;

/// Names of the procedures by number.
pub const PROCEDURES: &[&str] = &[
    "NULL",
    "TEST",
    "LOCK",
    "CANCEL",
    "UNLOCK",
    "GRANTED",
    "TEST_MSG",
    "LOCK_MSG",
    "CANCEL_MSG",
    "UNLOCK_MSG",
    "GRANTED_MSG",
    "TEST_RES",
    "LOCK_RES",
    "CANCEL_RES",
    "UNLOCK_RES",
    "GRANTED_RES",
    "",
    "",
    "",
    "",
    "SHARE",
    "UNSHARE",
    "NM_LOCK",
    "FREE_ALL",
];

/// `nlm4_stats`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Status {
    Granted = 0,
    Denied = 1,
    DeniedNoLocks = 2,
    Blocked = 3,
    DeniedGracePeriod = 4,
    Deadlock = 5,
    ReadOnly = 6,
    StaleHandle = 7,
    FileTooBig = 8,
    Failed = 9,
}

/// `nlm4_lock`: a range, and who wants it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Range {
    /// The name by which the client calls itself.
    pub caller: Bytes,
    pub handle: Bytes,
    /// Opaque name of the owner within the client.
    pub owner: Bytes,
    /// Number of the owner within the client, usually a process.
    pub process: u32,
    pub offset: u64,
    /// 0 to the end of the file, however it grows.
    pub length: u64,
}

/// `nlm4_lockargs`; what a procedure does not carry is `false` or 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ask {
    pub cookie: Bytes,
    /// Wait for it.
    pub block: bool,
    pub exclusive: bool,
    pub range: Range,
    pub reclaim: bool,
    /// Number of the client's present life.
    pub state: u32,
}

/// `nlm4_shareargs`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShareAsk {
    pub cookie: Bytes,
    pub caller: Bytes,
    pub handle: Bytes,
    pub owner: Bytes,
    /// What others are denied: 1 reading, 2 writing.
    pub deny: u32,
    /// What is wanted: 1 reading, 2 writing.
    pub access: u32,
    pub reclaim: bool,
}

/// A call, by what it wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    Test(Ask),
    Lock(Ask),
    Cancel(Ask),
    Unlock(Ask),
    /// Meant for a client; we wait for no locks of others.
    Granted(Ask),
    Share(ShareAsk),
    Unshare(ShareAsk),
    /// The client called by this name has restarted.
    FreeAll(Bytes),
}

/// `nlm4_holder`: the lock in the way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    pub exclusive: bool,
    pub process: u32,
    pub owner: Bytes,
    pub offset: u64,
    pub length: u64,
}

impl Request {
    /// The arguments of a procedure; `None` for one that takes none or is not served.
    pub fn decode(procedure: u32, args: &[u8]) -> XdrResult<Option<Request>> {
        let mut r = Reader::new(args);
        let r = &mut r;
        let request = match procedure {
            1 | 6 => Request::Test(take_ask(r, &[Part::Exclusive, Part::Range])?),
            2 | 7 | 22 => {
                let parts = [Part::Block, Part::Exclusive, Part::Range, Part::Reclaim, Part::State];
                Request::Lock(take_ask(r, &parts)?)
            }
            3 | 8 => Request::Cancel(take_ask(r, &[Part::Block, Part::Exclusive, Part::Range])?),
            4 | 9 => Request::Unlock(take_ask(r, &[Part::Range])?),
            5 | 10 => Request::Granted(take_ask(r, &[Part::Exclusive, Part::Range])?),
            20 => Request::Share(take_share(r)?),
            21 => Request::Unshare(take_share(r)?),
            23 => {
                let name = take_opaque(r)?;
                r.u32()?;
                Request::FreeAll(name)
            }
            _ => return Ok(None),
        };
        r.end()?;
        Ok(Some(request))
    }
}

/// What follows the cookie of a request.
enum Part {
    Block,
    Exclusive,
    Range,
    Reclaim,
    State,
}

fn take_ask(r: &mut Reader<'_>, parts: &[Part]) -> XdrResult<Ask> {
    let cookie = take_opaque(r)?;
    let (mut block, mut exclusive, mut reclaim, mut state, mut range) = (false, false, false, 0, None);
    for part in parts {
        match part {
            Part::Block => block = r.bool()?,
            Part::Exclusive => exclusive = r.bool()?,
            Part::Range => range = Some(take_range(r)?),
            Part::Reclaim => reclaim = r.bool()?,
            Part::State => state = r.u32()?,
        }
    }
    let range = range.ok_or(XdrError::Short)?;
    Ok(Ask { cookie, block, exclusive, range, reclaim, state })
}

fn take_range(r: &mut Reader<'_>) -> XdrResult<Range> {
    Ok(Range {
        caller: take_opaque(r)?,
        handle: take_opaque(r)?,
        owner: take_opaque(r)?,
        process: r.u32()?,
        offset: r.u64()?,
        length: r.u64()?,
    })
}

fn take_share(r: &mut Reader<'_>) -> XdrResult<ShareAsk> {
    let ask = ShareAsk {
        cookie: take_opaque(r)?,
        caller: take_opaque(r)?,
        handle: take_opaque(r)?,
        owner: take_opaque(r)?,
        deny: r.u32()?,
        access: r.u32()?,
        reclaim: r.bool()?,
    };
    if ask.deny > 3 || ask.access > 3 {
        return Err(XdrError::Value("a share reservation"));
    }
    Ok(ask)
}

fn take_opaque(r: &mut Reader<'_>) -> XdrResult<Bytes> {
    r.opaque(OPAQUE_MAX).map(Bytes::copy_from_slice)
}

impl Range {
    pub(super) fn encode(&self, w: &mut Writer) {
        w.opaque(&self.caller);
        w.opaque(&self.handle);
        w.opaque(&self.owner);
        w.u32(self.process);
        w.u64(self.offset);
        w.u64(self.length);
    }
}

/// `nlm4_testargs`, as GRANTED takes them.
pub fn encode_granted(cookie: &[u8], exclusive: bool, range: &Range) -> Vec<u8> {
    let mut w = Writer::new();
    w.opaque(cookie);
    w.bool(exclusive);
    range.encode(&mut w);
    w.to_vec()
}

/// `nlm4_res`.
pub fn encode_result(w: &mut Writer, cookie: &[u8], status: Status) {
    w.opaque(cookie);
    w.u32(status as u32);
}

/// `nlm4_testres`. `holder` belongs to [`Status::Denied`], and only to it.
pub fn encode_test_result(w: &mut Writer, cookie: &[u8], status: Status, holder: Option<&Holder>) {
    encode_result(w, cookie, status);
    if let (Status::Denied, Some(holder)) = (status, holder) {
        w.bool(holder.exclusive);
        w.u32(holder.process);
        w.opaque(&holder.owner);
        w.u64(holder.offset);
        w.u64(holder.length);
    }
}

/// `nlm4_shareres`. The sequence number has no meaning any more.
pub fn encode_share_result(w: &mut Writer, cookie: &[u8], status: Status) {
    encode_result(w, cookie, status);
    w.u32(0);
}

/// The status in `nlm4_res`, by number.
pub fn decode_status(results: &[u8]) -> XdrResult<u32> {
    let mut r = Reader::new(results);
    r.opaque(OPAQUE_MAX)?;
    r.u32()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A LOCK as a Linux client sends it.
    const LOCK: &[u8] = b"\0\0\0\x04\x01\0\0\0\
        \0\0\0\x01\0\0\0\x01\
        \0\0\0\x09rig-guest\0\0\0\
        \0\0\0\x04\xaa\xbb\xcc\xdd\
        \0\0\0\x0b7@rig-guest\0\
        \0\0\0\x07\
        \0\0\0\0\0\0\0\x10\
        \0\0\0\0\0\0\0\0\
        \0\0\0\0\
        \0\0\0\x05";

    fn lock() -> Ask {
        Ask {
            cookie: Bytes::from_static(b"\x01\0\0\0"),
            block: true,
            exclusive: true,
            range: Range {
                caller: Bytes::from_static(b"rig-guest"),
                handle: Bytes::from_static(b"\xaa\xbb\xcc\xdd"),
                owner: Bytes::from_static(b"7@rig-guest"),
                process: 7,
                offset: 16,
                length: 0,
            },
            reclaim: false,
            state: 5,
        }
    }

    #[test]
    fn a_lock_request_is_read_to_the_last_byte() {
        assert_eq!(Request::decode(2, LOCK), Ok(Some(Request::Lock(lock()))));
        assert_eq!(Request::decode(22, LOCK), Ok(Some(Request::Lock(lock()))), "NM_LOCK");
        for len in 0..LOCK.len() {
            assert!(Request::decode(2, &LOCK[..len]).is_err());
        }
        assert_eq!(Request::decode(2, &[LOCK, b"\0\0\0\0"].concat()), Err(XdrError::Trailing));
        assert_eq!(Request::decode(0, b""), Ok(None));
        assert_eq!(Request::decode(16, b""), Ok(None));
    }

    #[test]
    fn the_other_requests_carry_parts_of_it() {
        let ask = lock();
        let without_state = Ask { reclaim: false, state: 0, ..ask.clone() };
        assert_eq!(Request::decode(3, &LOCK[..LOCK.len() - 8]), Ok(Some(Request::Cancel(without_state.clone()))));
        let granted = encode_granted(b"\x01\0\0\0", true, &ask.range);
        let test = Ask { block: false, ..without_state };
        assert_eq!(Request::decode(1, &granted), Ok(Some(Request::Test(test.clone()))));
        assert_eq!(Request::decode(5, &granted), Ok(Some(Request::Granted(test.clone()))));
        let unlock = [&LOCK[..8], &LOCK[16..LOCK.len() - 8]].concat();
        assert_eq!(Request::decode(4, &unlock), Ok(Some(Request::Unlock(Ask { exclusive: false, ..test }))));
        let free = b"\0\0\0\x01x\0\0\0\0\0\0\x03";
        assert_eq!(Request::decode(23, free), Ok(Some(Request::FreeAll(Bytes::from_static(b"x")))));
    }

    #[test]
    fn shares_are_judged() {
        let share = |deny: u8, access: u8| {
            let mut bytes = b"\0\0\0\0\0\0\0\x01c\0\0\0\0\0\0\x01h\0\0\0\0\0\0\x01o\0\0\0".to_vec();
            bytes.extend_from_slice(&[0, 0, 0, deny, 0, 0, 0, access, 0, 0, 0, 1]);
            Request::decode(20, &bytes)
        };
        let Ok(Some(Request::Share(ask))) = share(2, 3) else { panic!("a share") };
        assert_eq!((ask.deny, ask.access, ask.reclaim), (2, 3, true));
        assert!(share(4, 1).is_err() && share(1, 4).is_err());
    }

    #[test]
    fn answers_are_exact() {
        let holder = Holder { exclusive: true, process: 9, owner: Bytes::from_static(b"o"), offset: 1, length: 2 };
        let mut w = Writer::new();
        encode_test_result(&mut w, b"ck", Status::Denied, Some(&holder));
        let expected = b"\0\0\0\x02ck\0\0\0\0\0\x01\0\0\0\x01\0\0\0\x09\0\0\0\x01o\0\0\0\
            \0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\x02";
        assert_eq!(w.to_vec(), expected);
        let mut w = Writer::new();
        encode_test_result(&mut w, b"", Status::Granted, None);
        encode_share_result(&mut w, b"", Status::DeniedGracePeriod);
        assert_eq!(w.to_vec(), b"\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x04\0\0\0\0");
        assert_eq!(decode_status(b"\0\0\0\x01c\0\0\0\0\0\0\x01"), Ok(1));
        assert!(decode_status(b"\0\0\0\x01c\0\0\0").is_err());
    }
}
