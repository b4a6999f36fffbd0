//! Calls and replies as bytes (RFC 5531, RFC 1813), made for the generator's hot path.
//!
//! - A call is built once and copied; only its number changes.
//! - Reading a reply never panics: what is short or odd is an error with its reason.

use crate::stream::LAST;
use tarn_nfsclient::Handle;
use tarn_nfsclient::xdr::Writer;

pub const NFS: u32 = 100_003;
/// Offset of the call's number behind the record's mark.
const NUMBER_AT: usize = 4;

/// A whole call with its mark; its number is 0.
pub fn call(procedure: u32, arguments: &[u8]) -> Vec<u8> {
    let who = Writer::new().u32(0).bytes(b"tarn-bench").u32(0).u32(0).u32(0).0;
    let header = Writer::new().u32(0).u32(0).u32(0).u32(2).u32(NFS).u32(3).u32(procedure).u32(1).bytes(&who);
    let mut record = header.u32(0).u32(0).0;
    record.extend_from_slice(arguments);
    set_mark(&mut record, 0);
    record
}

/// Appends a copy of `call` under the number `xid`.
pub fn append(out: &mut Vec<u8>, call: &[u8], xid: u32) -> usize {
    let at = out.len();
    out.extend_from_slice(call);
    out[at + NUMBER_AT..at + NUMBER_AT + 4].copy_from_slice(&xid.to_be_bytes());
    at
}

/// Sets the mark of the record that begins at `at` and ends with the buffer.
pub fn set_mark(out: &mut [u8], at: usize) {
    let size = (out.len() - at - 4) as u32 | LAST;
    out[at..at + 4].copy_from_slice(&size.to_be_bytes());
}

pub fn handle_arguments(handle: &Handle) -> Writer {
    Writer::new().bytes(&handle.0)
}

/// Reads words from a reply; how many of its last bytes nobody saw.
pub struct Reply<'a>(pub &'a [u8], pub usize);

type Judged<T> = Result<T, String>;

impl<'a> Reply<'a> {
    pub fn bytes(&mut self, size: usize) -> Judged<&'a [u8]> {
        let (bytes, rest) = self.0.split_at_checked(size).ok_or("a reply is short")?;
        self.0 = rest;
        Ok(bytes)
    }

    /// The reply's last `size` bytes, or of those what was not dropped.
    pub fn last(&mut self, size: usize) -> Judged<&'a [u8]> {
        let longer = || "a reply is longer than it says".to_owned();
        let seen = self.bytes(size.checked_sub(self.1).ok_or_else(longer)?)?;
        if self.0.is_empty() { Ok(seen) } else { Err(longer()) }
    }

    pub fn u32(&mut self) -> Judged<u32> {
        let (word, rest) = self.0.split_first_chunk::<4>().ok_or("a reply is short")?;
        self.0 = rest;
        Ok(u32::from_be_bytes(*word))
    }

    pub fn u64(&mut self) -> Judged<u64> {
        Ok(u64::from(self.u32()?) << 32 | u64::from(self.u32()?))
    }

    /// The number of an accepted and successful reply; its results follow.
    pub fn accepted(&mut self) -> Judged<u32> {
        let xid = self.u32()?;
        if (self.u32()?, self.u32()?) != (1, 0) {
            return Err("RPC denied a call".to_owned());
        }
        let _flavor = self.u32()?;
        let verifier = self.u32()? as usize;
        self.bytes(verifier.next_multiple_of(4))?;
        match self.u32()? {
            0 => Ok(xid),
            status => Err(format!("RPC refused a call with {status}")),
        }
    }

    /// nfsstat3 must be OK.
    pub fn status(&mut self) -> Judged<()> {
        match self.u32()? {
            0 => Ok(()),
            status => Err(format!("{:?}", tarn_nfsclient::Status(status))),
        }
    }

    /// fattr3: its fileid.
    pub fn attributes(&mut self) -> Judged<u64> {
        let attributes = self.bytes(84)?;
        Ok(attributes[52..60].iter().fold(0, |id, byte| id << 8 | u64::from(*byte)))
    }

    /// post_op_attr: the fileid, if there are attributes.
    pub fn optional_attributes(&mut self) -> Judged<Option<u64>> {
        if self.u32()? == 0 { Ok(None) } else { self.attributes().map(Some) }
    }

    /// wcc_data.
    pub fn weak_cache_data(&mut self) -> Judged<()> {
        if self.u32()? != 0 {
            self.bytes(24)?;
        }
        self.optional_attributes().map(|_| ())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_carries_its_size_and_number() {
        let template = call(1, &[1, 2, 3, 4]);
        let mut out = vec![9];
        let at = append(&mut out, &template, 0x0102_0304);
        assert_eq!(at, 1);
        assert_eq!(out[1..5], ((template.len() - 4) as u32 | LAST).to_be_bytes());
        assert_eq!(out[5..9], [1, 2, 3, 4]);
        assert_eq!(out.len() % 4, 1);
    }

    #[test]
    fn a_short_or_refused_reply_is_an_error() {
        let reply = Writer::new().u32(5).u32(1).u32(0).u32(0).u32(0).u32(0).u32(13).0;
        let mut whole = Reply(&reply, 0);
        assert_eq!(whole.accepted(), Ok(5));
        assert_eq!(whole.status(), Err("NFS3ERR_ACCES".to_owned()));
        for size in 0..24 {
            assert!(Reply(&reply[..size], 0).accepted().is_err());
        }
        let refused = Writer::new().u32(5).u32(1).u32(0).u32(0).u32(0).u32(3).0;
        assert!(Reply(&refused, 0).accepted().is_err());
    }
}
