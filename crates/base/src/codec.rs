//! Bytes to values and back, little-endian, for formats that are ours.
//!
//! Decoding judges: every read is checked, lengths are bounded by what is there, and nothing panics.

use bytes::Bytes;

/// Why bytes could not be understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    #[error("the bytes end too early")]
    Short,
    #[error("bytes are left over")]
    Trailing,
    #[error("a value is out of range: {0}")]
    Range(&'static str),
    #[error("version {0} is newer than this program; use a newer tarn")]
    Version(u32),
}

pub type Decoded<T> = Result<T, DecodeError>;

/// Appends values to a buffer. Writing never fails.
pub trait Put {
    fn put(&mut self, bytes: &[u8]);

    #[inline]
    fn put_u8(&mut self, v: u8) {
        self.put(&[v]);
    }
    #[inline]
    fn put_u16(&mut self, v: u16) {
        self.put(&v.to_le_bytes());
    }
    #[inline]
    fn put_u32(&mut self, v: u32) {
        self.put(&v.to_le_bytes());
    }
    #[inline]
    fn put_u64(&mut self, v: u64) {
        self.put(&v.to_le_bytes());
    }
    #[inline]
    fn put_i64(&mut self, v: i64) {
        self.put(&v.to_le_bytes());
    }
    #[inline]
    fn put_bool(&mut self, v: bool) {
        self.put_u8(u8::from(v));
    }
    /// Length in 32 bits, then the bytes.
    #[inline]
    fn put_bytes(&mut self, v: &[u8]) {
        self.put_u32(v.len() as u32);
        self.put(v);
    }
    /// A number in LEB128, 1 to 10 bytes.
    #[inline]
    fn put_varint(&mut self, mut v: u64) {
        while v >= 0x80 {
            self.put_u8(v as u8 | 0x80);
            v >>= 7;
        }
        self.put_u8(v as u8);
    }
}

impl Put for Vec<u8> {
    #[inline]
    fn put(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }
}

/// Takes values from the front of a slice.
#[derive(Clone, Debug)]
pub struct Take<'a> {
    rest: &'a [u8],
}

impl<'a> Take<'a> {
    #[inline]
    pub fn new(bytes: &'a [u8]) -> Take<'a> {
        Take { rest: bytes }
    }

    #[inline]
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    #[inline]
    pub fn take(&mut self, count: usize) -> Decoded<&'a [u8]> {
        let (head, rest) = self.rest.split_at_checked(count).ok_or(DecodeError::Short)?;
        self.rest = rest;
        Ok(head)
    }

    #[inline]
    pub fn array<const N: usize>(&mut self) -> Decoded<[u8; N]> {
        let (head, rest) = self.rest.split_first_chunk::<N>().ok_or(DecodeError::Short)?;
        self.rest = rest;
        Ok(*head)
    }

    #[inline]
    pub fn u8(&mut self) -> Decoded<u8> {
        Ok(self.array::<1>()?[0])
    }
    #[inline]
    pub fn u16(&mut self) -> Decoded<u16> {
        Ok(u16::from_le_bytes(self.array()?))
    }
    #[inline]
    pub fn u32(&mut self) -> Decoded<u32> {
        Ok(u32::from_le_bytes(self.array()?))
    }
    #[inline]
    pub fn u64(&mut self) -> Decoded<u64> {
        Ok(u64::from_le_bytes(self.array()?))
    }
    #[inline]
    pub fn i64(&mut self) -> Decoded<i64> {
        Ok(i64::from_le_bytes(self.array()?))
    }
    #[inline]
    pub fn bool(&mut self) -> Decoded<bool> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(DecodeError::Range("a boolean")),
        }
    }
    /// The counterpart of [`Put::put_bytes`]; borrows, so it allocates nothing.
    #[inline]
    pub fn bytes(&mut self) -> Decoded<&'a [u8]> {
        let len = self.u32()? as usize;
        self.take(len)
    }
    /// As [`Take::bytes`], but copied and at most `max` long.
    #[inline]
    pub fn owned(&mut self, max: usize) -> Decoded<Bytes> {
        let bytes = self.bytes()?;
        if bytes.len() > max {
            return Err(DecodeError::Range("a length"));
        }
        Ok(Bytes::copy_from_slice(bytes))
    }
    #[inline]
    pub fn varint(&mut self) -> Decoded<u64> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.u8()?;
            let part = u64::from(byte & 0x7f);
            if shift == 63 && part > 1 {
                return Err(DecodeError::Range("a varint"));
            }
            value |= part << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(DecodeError::Range("a varint"))
    }
    /// A count of things that take at least `each` bytes; refuses more than can be there.
    #[inline]
    pub fn count(&mut self, each: usize) -> Decoded<usize> {
        let count = self.u32()? as usize;
        if count.saturating_mul(each.max(1)) > self.rest.len() {
            return Err(DecodeError::Short);
        }
        Ok(count)
    }
    #[inline]
    pub fn end(&self) -> Decoded<()> {
        if self.rest.is_empty() { Ok(()) } else { Err(DecodeError::Trailing) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_put_is_taken() {
        let mut out = Vec::new();
        out.put_u8(7);
        out.put_u64(u64::MAX - 1);
        out.put_varint(300);
        out.put_varint(u64::MAX);
        out.put_bytes(b"tarn");
        let mut take = Take::new(&out);
        assert_eq!(take.u8(), Ok(7));
        assert_eq!(take.u64(), Ok(u64::MAX - 1));
        assert_eq!(take.varint(), Ok(300));
        assert_eq!(take.varint(), Ok(u64::MAX));
        assert_eq!(take.bytes(), Ok(&b"tarn"[..]));
        assert_eq!(take.end(), Ok(()));
    }

    #[test]
    fn a_lying_length_is_refused_before_anything_is_allocated() {
        let mut out = Vec::new();
        out.put_u32(u32::MAX);
        assert_eq!(Take::new(&out).bytes(), Err(DecodeError::Short));
        assert_eq!(Take::new(&out).count(8), Err(DecodeError::Short));
    }
}
