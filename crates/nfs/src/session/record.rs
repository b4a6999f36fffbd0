//! Record marking (RFC 5531 section 11): a message on a stream is one or more fragments, each with a length.
//!
//! - A message may not be longer than [`RECORD_SIZE_MAX`]; a peer that announces more is cut off before anything
//!   is allocated for it.
//! - A message in one fragment, which is what everybody sends, is taken from the buffer without a copy.
//! - Empty fragments that are not the last are refused, or a peer could keep us busy with nothing.

use bytes::{Buf, Bytes, BytesMut};

use crate::wire::xdr::Writer;

/// Longest message, bytes: 1 MiB of data and room for headers, credentials, handles and names.
pub const RECORD_SIZE_MAX: usize = (1 << 20) + (64 << 10);

const MARK_SIZE: usize = 4;
const LAST: u32 = 1 << 31;

/// The stream cannot be understood any more; the peer's fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    #[error("a message of more than {RECORD_SIZE_MAX} bytes")]
    TooLong,
    #[error("an empty fragment")]
    EmptyFragment,
}

/// Finds messages in a stream.
#[derive(Debug, Default)]
pub struct Framer {
    /// Fragments of the message so far, if it has several.
    fragments: BytesMut,
}

/// What the buffer holds.
#[derive(Debug, PartialEq, Eq)]
pub enum Framed {
    /// A whole message, taken out of the buffer.
    Message(Bytes),
    /// At least so many bytes are missing.
    Missing(usize),
}

impl Framer {
    /// Takes the next message out of `buffer`.
    pub fn next(&mut self, buffer: &mut BytesMut) -> Result<Framed, RecordError> {
        loop {
            let Some(mark) = buffer.first_chunk::<MARK_SIZE>() else {
                return Ok(Framed::Missing(MARK_SIZE - buffer.len()));
            };
            let mark = u32::from_be_bytes(*mark);
            let (last, size) = (mark & LAST != 0, (mark & !LAST) as usize);
            if self.fragments.len() + size > RECORD_SIZE_MAX {
                return Err(RecordError::TooLong);
            }
            if size == 0 && !last {
                return Err(RecordError::EmptyFragment);
            }
            let whole = MARK_SIZE + size;
            if buffer.len() < whole {
                return Ok(Framed::Missing(whole - buffer.len()));
            }
            buffer.advance(MARK_SIZE);
            if last && self.fragments.is_empty() {
                return Ok(Framed::Message(buffer.split_to(size).freeze()));
            }
            self.fragments.extend_from_slice(&buffer[..size]);
            buffer.advance(size);
            if last {
                return Ok(Framed::Message(std::mem::take(&mut self.fragments).freeze()));
            }
        }
    }

    /// Bytes of the message that `buffer` begins with, as far as its mark tells; 0 if not even that is there.
    pub fn announced(&self, buffer: &BytesMut) -> usize {
        let size = buffer.first_chunk::<MARK_SIZE>().map_or(0, |mark| u32::from_be_bytes(*mark) & !LAST);
        self.fragments.len() + size as usize
    }

    /// What `buffer` holds of the message that it begins with, and the size of that, if it is the whole of a message that comes
    /// in one fragment. [`Framer::next`] has let it pass.
    pub fn single<'a>(&self, buffer: &'a BytesMut) -> Option<(&'a [u8], usize)> {
        let (mark, begun) = buffer.split_first_chunk::<MARK_SIZE>()?;
        let mark = u32::from_be_bytes(*mark);
        (mark & LAST != 0 && self.fragments.is_empty()).then_some((begun, (mark & !LAST) as usize))
    }

    /// Bytes of the message that have been taken so far.
    pub fn taken(&self) -> usize {
        self.fragments.len()
    }

    /// Whether part of a message has been taken.
    pub fn is_amid(&self) -> bool {
        !self.fragments.is_empty()
    }
}

/// Leaves room for a record mark; [`end`] fills it in.
pub fn begin(w: &mut Writer) -> usize {
    let mark = w.mark();
    w.u32(0);
    mark
}

/// The message since `mark` is complete.
pub fn end(w: &mut Writer, mark: usize) {
    let size = w.len_since(mark) - MARK_SIZE;
    w.patch(mark, LAST | size as u32);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fragment(last: bool, data: &[u8]) -> Vec<u8> {
        let mark = data.len() as u32 | if last { LAST } else { 0 };
        [&mark.to_be_bytes(), data].concat()
    }

    #[test]
    fn messages_are_found_however_the_stream_is_cut() {
        let stream = [
            fragment(true, b"one"),
            fragment(false, b"tw"),
            fragment(true, b"o"),
            fragment(true, b""),
            fragment(false, b"th"),
            fragment(false, b"re"),
            fragment(true, b"e"),
        ]
        .concat();
        for step in 1..=stream.len() {
            let mut framer = Framer::default();
            let mut buffer = BytesMut::new();
            let mut found = Vec::new();
            for piece in stream.chunks(step) {
                buffer.extend_from_slice(piece);
                while let Framed::Message(message) = framer.next(&mut buffer).unwrap() {
                    found.push(message);
                }
            }
            assert_eq!(found, [&b"one"[..], b"two", b"", b"three"]);
            assert!(buffer.is_empty() && !framer.is_amid());
        }
    }

    #[test]
    fn what_is_missing_is_told() {
        let mut framer = Framer::default();
        let mut buffer = BytesMut::from(&fragment(true, &[7; 100])[..50]);
        assert_eq!(framer.announced(&buffer), 100);
        assert_eq!(framer.announced(&BytesMut::new()), 0);
        assert_eq!(framer.next(&mut buffer), Ok(Framed::Missing(54)));
    }

    #[test]
    fn a_message_without_end_is_refused() {
        let mut framer = Framer::default();
        let mut buffer = BytesMut::from(&(LAST | 0x7fff_ffff).to_be_bytes()[..]);
        assert_eq!(framer.next(&mut buffer), Err(RecordError::TooLong));
        let mut buffer = BytesMut::from(&fragment(false, b"")[..]);
        assert_eq!(framer.next(&mut buffer), Err(RecordError::EmptyFragment));
        let mut buffer = BytesMut::new();
        for _ in 0..40 {
            buffer.extend_from_slice(&fragment(false, &[0; 32 << 10]));
        }
        assert_eq!(framer.next(&mut buffer), Err(RecordError::TooLong));
    }
}
