//! XDR (RFC 4506): big-endian words, everything padded to four bytes.
//!
//! - Reading never panics: what is short or odd is an [`Error::Protocol`].

use crate::error::{Error, Result};

#[derive(Clone, Debug, Default)]
pub struct Writer(pub Vec<u8>);

impl Writer {
    pub fn new() -> Writer {
        Writer::default()
    }

    pub fn u32(mut self, value: u32) -> Writer {
        self.0.extend_from_slice(&value.to_be_bytes());
        self
    }

    pub fn u64(mut self, value: u64) -> Writer {
        self.0.extend_from_slice(&value.to_be_bytes());
        self
    }

    pub fn bool(self, value: bool) -> Writer {
        self.u32(u32::from(value))
    }

    /// Bytes without a length, padded.
    pub fn fixed(mut self, bytes: &[u8]) -> Writer {
        self.0.extend_from_slice(bytes);
        self.0.resize(self.0.len().next_multiple_of(4), 0);
        self
    }

    /// Bytes with their length.
    pub fn bytes(self, bytes: &[u8]) -> Writer {
        self.u32(bytes.len() as u32).fixed(bytes)
    }

    pub fn with(self, write: impl FnOnce(Writer) -> Writer) -> Writer {
        write(self)
    }
}

pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { rest: bytes }
    }

    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    pub fn fixed(&mut self, size: usize) -> Result<&'a [u8]> {
        let padded = size.checked_next_multiple_of(4).unwrap_or(usize::MAX);
        if self.rest.len() < padded {
            return Err(Error::Protocol("a reply is short"));
        }
        let (bytes, rest) = self.rest.split_at(padded);
        self.rest = rest;
        Ok(&bytes[..size])
    }

    pub fn u32(&mut self) -> Result<u32> {
        let bytes = self.fixed(4)?;
        Ok(u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
    }

    pub fn u64(&mut self) -> Result<u64> {
        Ok(u64::from(self.u32()?) << 32 | u64::from(self.u32()?))
    }

    pub fn bool(&mut self) -> Result<bool> {
        match self.u32()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Error::Protocol("a boolean is neither 0 nor 1")),
        }
    }

    pub fn bytes(&mut self) -> Result<&'a [u8]> {
        let size = self.u32()? as usize;
        self.fixed(size)
    }

    /// An optional value: a boolean, then perhaps the value.
    pub fn optional<T>(&mut self, read: impl FnOnce(&mut Reader<'a>) -> Result<T>) -> Result<Option<T>> {
        if self.bool()? { read(self).map(Some) } else { Ok(None) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let bytes = Writer::new().u32(7).u64(1 << 40).bytes(b"abcde").bool(true).0;
        assert_eq!(bytes.len(), 4 + 8 + 4 + 8 + 4);
        let mut reader = Reader::new(&bytes);
        assert_eq!(reader.u32().unwrap(), 7);
        assert_eq!(reader.u64().unwrap(), 1 << 40);
        assert_eq!(reader.bytes().unwrap(), b"abcde");
        assert!(reader.bool().unwrap());
        assert!(reader.u32().is_err());
    }

    #[test]
    fn a_length_beyond_the_end_is_an_error() {
        assert!(Reader::new(&[0xff, 0xff, 0xff, 0xff]).bytes().is_err());
    }
}
