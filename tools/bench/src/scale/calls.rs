//! The calls that the stories make, and what they take from the replies (RFC 1813).

use crate::load::wire::{Reply, append, call, set_mark};
use tarn_nfsclient::Handle;
use tarn_nfsclient::xdr::Writer;

/// Procedures, by their number in RFC 1813.
pub const LOOKUP: u32 = 3;
pub const READ: u32 = 6;
pub const WRITE: u32 = 7;
pub const CREATE: u32 = 8;
pub const REMOVE: u32 = 12;

/// Calls of one kind: everything before the arguments.
pub struct Kind(Vec<u8>);

impl Kind {
    pub fn new(procedure: u32) -> Kind {
        Kind(call(procedure, &[]))
    }

    /// Appends a call with the arguments that `write` adds.
    pub fn call(&self, xid: u32, out: &mut Vec<u8>, write: impl FnOnce(&mut Arguments)) {
        let at = append(out, &self.0, xid);
        write(&mut Arguments(out));
        set_mark(out, at);
    }
}

/// Arguments that are appended without a buffer of their own.
pub struct Arguments<'a>(&'a mut Vec<u8>);

impl Arguments<'_> {
    pub fn u32(&mut self, value: u32) -> &mut Self {
        self.0.extend_from_slice(&value.to_be_bytes());
        self
    }

    pub fn u64(&mut self, value: u64) -> &mut Self {
        self.0.extend_from_slice(&value.to_be_bytes());
        self
    }

    pub fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        self.u32(bytes.len() as u32);
        self.0.extend_from_slice(bytes);
        self.0.resize(self.0.len() + bytes.len().wrapping_neg() % 4, 0);
        self
    }

    /// sattr3 with mode 0644 alone, behind GUARDED.
    pub fn guarded(&mut self) {
        self.u32(1).u32(1).u32(0o644).u32(0).u32(0).u32(0).u32(0).u32(0);
    }
}

/// A handle as the server gave it, without memory of its own.
#[derive(Clone, Copy, Debug)]
pub struct Short {
    bytes: [u8; 64],
    size: usize,
}

impl Default for Short {
    fn default() -> Short {
        Short { bytes: [0; 64], size: 0 }
    }
}

impl Short {
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.size]
    }

    pub fn handle(&self) -> Handle {
        Handle(self.bytes().to_vec())
    }
}

/// nfs_fh3.
pub fn take_handle(reply: &mut Reply) -> Result<Short, String> {
    let size = reply.u32()? as usize;
    let bytes = reply.bytes(size.next_multiple_of(4))?;
    let mut short = Short { size, ..Short::default() };
    short.bytes.get_mut(..size).ok_or("a handle is too long")?.copy_from_slice(&bytes[..size]);
    Ok(short)
}

/// post_op_fh3, which must be there.
pub fn take_made_handle(reply: &mut Reply) -> Result<Short, String> {
    if reply.u32()? == 0 {
        return Err("a CREATE gave no handle".to_owned());
    }
    take_handle(reply)
}

/// The arguments of READDIR (16) or READDIRPLUS (17).
pub fn listing(procedure: u32, directory: &Handle, cookie: u64, verifier: u64, bytes: u32) -> Vec<u8> {
    let start = Writer::new().bytes(&directory.0).u64(cookie).u64(verifier);
    let end = if procedure == 17 { start.u32(bytes).u32(bytes) } else { start.u32(bytes) };
    call(procedure, &end.0)
}
