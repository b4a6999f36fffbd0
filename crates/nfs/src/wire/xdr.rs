//! XDR (RFC 4506): big-endian, in units of four bytes.
//!
//! - [`Reader`] checks every length against what is there before it uses it, and allocates nothing.
//! - [`Writer`] is one growing buffer; large payloads hang on it by reference and go out by a vectored write.
//! - Padding is written as zeros; when read it is skipped unjudged, as other implementations do.

use std::io::IoSlice;

use bytes::Bytes;

/// Payloads from this size on are attached by reference instead of being copied. A copy of less costs less than
/// another element of a vectored write.
const ATTACH_SIZE_MIN: usize = 4096;

/// Why bytes are not what they should be. Always the peer's fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum XdrError {
    #[error("the message ends too early")]
    Short,
    #[error("an opaque or an array is longer than its protocol allows")]
    TooLong,
    #[error("a value is outside its type: {0}")]
    Value(&'static str),
    #[error("bytes are left over")]
    Trailing,
}

pub type XdrResult<T> = Result<T, XdrError>;

/// Takes values from the front of a slice.
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { rest: bytes }
    }

    /// What has not been taken yet.
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    #[inline]
    pub fn u32(&mut self) -> XdrResult<u32> {
        self.fixed::<4>().map(|bytes| u32::from_be_bytes(*bytes))
    }

    pub fn i32(&mut self) -> XdrResult<i32> {
        self.fixed::<4>().map(|bytes| i32::from_be_bytes(*bytes))
    }

    #[inline]
    pub fn u64(&mut self) -> XdrResult<u64> {
        self.fixed::<8>().map(|bytes| u64::from_be_bytes(*bytes))
    }

    /// 0 or 1, nothing else.
    #[inline]
    pub fn bool(&mut self) -> XdrResult<bool> {
        match self.u32()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(XdrError::Value("a boolean")),
        }
    }

    /// Opaque data of fixed length; `N` must be a multiple of four.
    #[inline]
    pub fn fixed<const N: usize>(&mut self) -> XdrResult<&'a [u8; N]> {
        const { assert!(N.is_multiple_of(4), "fixed opaque data of odd length needs padding") };
        let (head, rest) = self.rest.split_first_chunk::<N>().ok_or(XdrError::Short)?;
        self.rest = rest;
        Ok(head)
    }

    /// Opaque data or a string of at most `max` bytes.
    #[inline]
    pub fn opaque(&mut self, max: usize) -> XdrResult<&'a [u8]> {
        let len = self.u32()? as usize;
        if len > max {
            return Err(XdrError::TooLong);
        }
        let (data, rest) = self.rest.split_at_checked(len).ok_or(XdrError::Short)?;
        self.rest = rest.get(padding(len)..).ok_or(XdrError::Short)?;
        Ok(data)
    }

    /// The optional value (`*` in XDR) that `read` takes.
    pub fn option<T>(&mut self, read: impl FnOnce(&mut Reader<'a>) -> XdrResult<T>) -> XdrResult<Option<T>> {
        if self.bool()? { read(self).map(Some) } else { Ok(None) }
    }

    /// The length of an array of at most `max` elements of at least `each` bytes.
    pub fn count(&mut self, max: usize, each: usize) -> XdrResult<usize> {
        let count = self.u32()? as usize;
        if count > max {
            return Err(XdrError::TooLong);
        }
        if count.saturating_mul(each) > self.rest.len() {
            return Err(XdrError::Short);
        }
        Ok(count)
    }

    /// Nothing may be left.
    pub fn end(&self) -> XdrResult<()> {
        if self.rest.is_empty() { Ok(()) } else { Err(XdrError::Trailing) }
    }
}

/// Bytes that fill up `len` to a multiple of four.
pub fn padding(len: usize) -> usize {
    len.wrapping_neg() & 3
}

/// Bytes of opaque data of `len` bytes on the wire, its length included.
pub fn opaque_size(len: usize) -> usize {
    4 + len + padding(len)
}

/// A buffer that messages are appended to.
///
/// A place in it ([`Writer::mark`]) is a number of bytes in the buffer proper; attached payloads lie between them.
#[derive(Debug, Default)]
pub struct Writer {
    bytes: Vec<u8>,
    /// Payloads, each before the byte of `bytes` with this index; in order.
    attached: Vec<(usize, Bytes)>,
    attached_size: usize,
}

impl Writer {
    pub fn new() -> Writer {
        Writer::default()
    }

    /// Bytes written, payloads included.
    pub fn len(&self) -> usize {
        self.bytes.len() + self.attached_size
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Forgets the content and keeps the memory, unless that has grown beyond `keep` bytes.
    pub fn clear(&mut self, keep: usize) {
        self.bytes.clear();
        self.bytes.shrink_to(keep);
        self.attached.clear();
        self.attached_size = 0;
    }

    #[inline]
    pub fn u32(&mut self, v: u32) {
        self.bytes.extend_from_slice(&v.to_be_bytes());
    }

    pub fn i32(&mut self, v: i32) {
        self.bytes.extend_from_slice(&v.to_be_bytes());
    }

    #[inline]
    pub fn u64(&mut self, v: u64) {
        self.bytes.extend_from_slice(&v.to_be_bytes());
    }

    #[inline]
    pub fn bool(&mut self, v: bool) {
        self.u32(u32::from(v));
    }

    /// Opaque data of fixed length, padded.
    #[inline]
    pub fn fixed(&mut self, data: &[u8]) {
        self.bytes.extend_from_slice(data);
        self.pad(data.len());
    }

    /// Opaque data or a string, with its length, padded.
    #[inline]
    pub fn opaque(&mut self, data: &[u8]) {
        self.u32(data.len() as u32);
        self.fixed(data);
    }

    /// An optional value.
    #[inline]
    pub fn option<T>(&mut self, value: Option<T>, write: impl FnOnce(&mut Writer, T)) {
        self.bool(value.is_some());
        if let Some(value) = value {
            write(self, value);
        }
    }

    /// Opaque data in pieces; large ones are taken, not copied.
    pub fn opaque_pieces(&mut self, pieces: &mut [Bytes]) {
        let len: usize = pieces.iter().map(Bytes::len).sum();
        self.u32(len as u32);
        for piece in pieces {
            if piece.len() < ATTACH_SIZE_MIN {
                self.bytes.extend_from_slice(piece);
            } else {
                tarn_base::soon::read(piece);
                self.attached_size += piece.len();
                self.attached.push((self.bytes.len(), std::mem::take(piece)));
            }
        }
        self.pad(len);
    }

    #[inline]
    fn pad(&mut self, len: usize) {
        self.bytes.extend_from_slice(&[0; 3][..padding(len)]);
    }

    /// The present place.
    pub fn mark(&self) -> usize {
        self.bytes.len()
    }

    /// Forgets everything written since `mark`.
    pub fn rewind(&mut self, mark: usize) {
        self.bytes.truncate(mark);
        while let Some((_, piece)) = self.attached.pop_if(|(at, _)| *at > mark) {
            self.attached_size -= piece.len();
        }
    }

    /// Overwrites the four bytes at `mark`, which must have been written.
    pub fn patch(&mut self, mark: usize, v: u32) {
        self.bytes[mark..mark + 4].copy_from_slice(&v.to_be_bytes());
    }

    /// Bytes written since `mark`, payloads included.
    pub fn len_since(&self, mark: usize) -> usize {
        let attached: usize =
            self.attached.iter().rev().take_while(|(at, _)| *at > mark).map(|(_, piece)| piece.len()).sum();
        self.bytes.len() - mark + attached
    }

    /// Moves everything written since `mark` to the end of `to`.
    pub fn move_since(&mut self, mark: usize, to: &mut Writer) {
        let first = self.attached.iter().rposition(|(at, _)| *at <= mark).map_or(0, |index| index + 1);
        let shift = to.bytes.len();
        for (at, piece) in self.attached.drain(first..) {
            self.attached_size -= piece.len();
            to.attached_size += piece.len();
            to.attached.push((at - mark + shift, piece));
        }
        to.bytes.extend_from_slice(&self.bytes[mark..]);
        self.bytes.truncate(mark);
    }

    /// Moves everything to the end of `to`; costs nothing if `to` is empty.
    pub fn append_to(&mut self, to: &mut Writer) {
        if to.is_empty() {
            std::mem::swap(self, to);
        } else {
            self.move_all(to);
        }
    }

    fn move_all(&mut self, to: &mut Writer) {
        let shift = to.bytes.len();
        to.bytes.extend_from_slice(&self.bytes);
        to.attached.extend(self.attached.drain(..).map(|(at, piece)| (at + shift, piece)));
        to.attached_size += self.attached_size;
        self.bytes.clear();
        self.attached_size = 0;
    }

    /// Everything in one piece, for datagrams and tests.
    pub fn to_vec(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.len());
        let mut from = 0;
        for (at, piece) in &self.attached {
            out.extend_from_slice(&self.bytes[from..*at]);
            out.extend_from_slice(piece);
            from = *at;
        }
        out.extend_from_slice(&self.bytes[from..]);
        out
    }

    /// At most `most` bytes of what follows the first `skip`, as slices for a vectored write; gives how many of `slices` are
    /// used.
    pub fn slices<'a>(&'a self, mut skip: usize, mut most: usize, slices: &mut [IoSlice<'a>]) -> usize {
        let mut used = 0;
        let mut from = 0;
        let mut push = |mut piece: &'a [u8]| {
            let skipped = skip.min(piece.len());
            skip -= skipped;
            piece = &piece[skipped..];
            piece = &piece[..piece.len().min(most)];
            most -= piece.len();
            if !piece.is_empty() && used < slices.len() {
                slices[used] = IoSlice::new(piece);
                used += 1;
            }
            used < slices.len() && most > 0
        };
        for (at, piece) in &self.attached {
            if !(push(&self.bytes[from..*at]) && push(piece)) {
                return used;
            }
            from = *at;
        }
        push(&self.bytes[from..]);
        used
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn opaque_data_is_padded_and_bounded() {
        let mut w = Writer::new();
        w.opaque(b"tarn!");
        w.bool(true);
        assert_eq!(w.to_vec(), b"\0\0\0\x05tarn!\0\0\0\0\0\0\x01");
        let bytes = w.to_vec();
        let mut r = Reader::new(&bytes);
        assert_eq!(r.clone().opaque(4), Err(XdrError::TooLong));
        assert_eq!(r.opaque(5), Ok(&b"tarn!"[..]));
        assert_eq!(r.bool(), Ok(true));
        assert_eq!(r.end(), Ok(()));
        assert_eq!(Reader::new(&bytes[..10]).opaque(5), Err(XdrError::Short), "the padding is missing");
        assert_eq!(Reader::new(&[0xff; 8]).opaque(usize::MAX), Err(XdrError::Short));
        assert_eq!(Reader::new(&[0, 0, 0, 2]).bool(), Err(XdrError::Value("a boolean")));
    }

    fn sample(size: usize) -> Writer {
        let mut w = Writer::new();
        w.u32(7);
        w.opaque_pieces(&mut [Bytes::from(vec![1; 10]), Bytes::from(vec![2; size]), Bytes::from(vec![3; 4097])]);
        w
    }

    #[test]
    fn attached_payloads_keep_their_place() {
        for size in [100, 5000] {
            let w = sample(size);
            let flat = w.to_vec();
            assert_eq!(flat.len(), w.len());
            for skip in [0, 1, 9, 19, 2000, w.len() - 1, w.len()] {
                let mut slices = [IoSlice::new(&[]); 8];
                let used = w.slices(skip, usize::MAX, &mut slices);
                let joined: Vec<u8> = slices[..used].iter().flat_map(|s| s.to_vec()).collect();
                assert_eq!(joined, flat[skip..]);
            }
            let mut few = [IoSlice::new(&[]); 1];
            assert_eq!(w.slices(0, usize::MAX, &mut few), 1);
            assert_eq!(w.slices(0, 0, &mut few), 0);
        }
    }

    #[test]
    fn messages_can_be_moved_taken_back_and_measured() {
        let mut w = sample(5000);
        let first = w.to_vec();
        let mark = w.mark();
        w.u32(9);
        w.opaque_pieces(&mut [Bytes::from(vec![4; 9000])]);
        let both = w.to_vec();
        assert_eq!(w.len_since(mark), both.len() - first.len());

        let mut to = sample(4096);
        let before = to.to_vec();
        w.move_since(mark, &mut to);
        assert_eq!(w.to_vec(), first);
        assert_eq!(to.to_vec(), [&before[..], &both[first.len()..]].concat());
        assert_eq!((w.len(), to.len()), (first.len(), before.len() + both.len() - first.len()));

        w.append_to(&mut to);
        assert!(w.is_empty());
        assert!(to.to_vec().ends_with(&first));

        let mark = to.mark();
        to.u32(1);
        to.opaque_pieces(&mut [Bytes::from(vec![5; 9000])]);
        let len = to.len() - to.len_since(mark);
        to.rewind(mark);
        assert_eq!(to.len(), len);
    }
}
