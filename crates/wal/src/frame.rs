//! A frame in memory: entries in plaintext until the flush that writes them is over.
//!
//! - The plaintext is not touched by sealing, so entries can be read back while their frame is being written.
//! - Buffers are used again: in steady state a flush of small entries allocates nothing.
//! - The data of a large entry, which has its frame to itself, is not copied into it.

use bytes::Bytes;
use tarn_base::crc32c;
use tarn_base::crypto::TAG_SIZE;
use tarn_base::ids::{Position, Uuid};

use crate::format::{ENTRY_HEADER, FRAME_HEADER, FrameHeader, LogKeys, frame_extent};

/// Entries that will lie in one frame.
#[derive(Debug, Default)]
pub(crate) struct Frame {
    pub offset: u64,
    pub first: Position,
    pub entries: u32,
    /// Bytes of `body` that belong to whole entries; a panicking encoder may have left more.
    pub len: usize,
    pub body: Vec<u8>,
    /// What follows `body`, where it lies: the end of the only entry.
    pub data: Vec<Bytes>,
}

impl Frame {
    /// Makes the frame empty, at `offset`, its first entry to be `first`.
    pub fn begin(&mut self, offset: u64, first: Position) {
        self.offset = offset;
        self.first = first;
        self.entries = 0;
        self.len = 0;
        self.body.clear();
        self.data.clear();
    }

    /// Bytes it takes in the ring, were it closed now; nothing while empty.
    pub fn extent(&self) -> u64 {
        if self.entries == 0 { 0 } else { frame_extent(self.len) }
    }

    /// As [`Frame::extent`], with one more entry of `len` bytes.
    pub fn extent_with(&self, len: usize) -> u64 {
        frame_extent(self.len + ENTRY_HEADER + len)
    }

    pub fn last(&self) -> Position {
        Position(self.first.0 + u64::from(self.entries) - 1)
    }

    /// Appends an entry that `encode` writes, at most `max` bytes, and that `data` follows; gives where its payload is, or how
    /// long what was written was. With data it must be the only one.
    pub fn push(
        &mut self,
        max: usize,
        encode: impl FnOnce(&mut Vec<u8>),
        data: Vec<Bytes>,
    ) -> Result<(u32, u32), usize> {
        self.body.truncate(self.len);
        if self.body.is_empty() {
            // Of a large entry that is alone in its frame, no more than it takes.
            self.body.reserve_exact(ENTRY_HEADER + max);
        }
        self.body.extend_from_slice(&[0; ENTRY_HEADER]);
        let start = self.len + ENTRY_HEADER;
        encode(&mut self.body);
        let len = self.body.len().saturating_sub(start);
        if len > max || self.body.len() < start {
            return Err(len);
        }
        let len = len + data.iter().map(|part| part.len()).sum::<usize>();
        self.body[self.len..start].copy_from_slice(&(len as u32).to_le_bytes());
        self.data = data;
        self.len = start + len;
        self.entries += 1;
        Ok((start as u32, len as u32))
    }

    /// All of it that belongs to whole entries, in order.
    fn parts(&self) -> impl Iterator<Item = &[u8]> {
        let data: usize = self.data.iter().map(|part| part.len()).sum();
        std::iter::once(&self.body[..self.len - data]).chain(self.data.iter().map(|part| &part[..]))
    }

    /// A copy of `len` bytes from `start` on, if there are so many.
    pub fn copy(&self, start: usize, len: usize) -> Option<Bytes> {
        if start.checked_add(len)? > self.len {
            return None;
        }
        let mut out = Vec::with_capacity(len);
        let mut at = 0;
        for part in self.parts() {
            let (from, to) = (start.max(at), (start + len).min(at + part.len()));
            if from < to {
                out.extend_from_slice(&part[from - at..to - at]);
            }
            at += part.len();
        }
        Some(out.into())
    }

    /// Puts the whole frame as it goes to the device into `out`, which is as long as its extent: header, sealed body,
    /// zeros up to a block.
    pub fn seal(&self, keys: &LogKeys, id: Uuid, shard: u32, opening: u32, durable: u64, out: &mut [u8]) {
        let (head, rest) = out.split_first_chunk_mut::<FRAME_HEADER>().expect("an extent has room for a header");
        let mut header = FrameHeader {
            id,
            shard,
            first: self.first,
            entries: self.entries,
            len: self.len as u32,
            offset: self.offset,
            durable,
            opening,
            body_crc: 0,
            tag: [0; TAG_SIZE],
        };
        header.tag = self.seal_body(keys, &header, rest);
        let (body, padding) = rest.split_at_mut(self.len);
        header.body_crc = crc32c(body);
        header.encode(head);
        padding.fill(0);
    }

    /// Seals into the first bytes of `out`; what follows them may be overwritten.
    fn seal_body(&self, keys: &LogKeys, header: &FrameHeader, out: &mut [u8]) -> [u8; TAG_SIZE] {
        let (nonce, bare) = (header.nonce(), header.bare());
        let (body, padding) = out.split_at_mut(self.len);
        match &self.data[..] {
            [] => keys.frames.seal_apart(nonce, &bare, &self.body[..self.len], body),
            [data] if padding.len() >= TAG_SIZE => {
                let head = &self.body[..self.len - data.len()];
                keys.frames.seal_joined(nonce, &bare, head, data, &mut out[..self.len + TAG_SIZE])
            }
            _ => {
                let mut rest = &mut *body;
                for part in self.parts() {
                    let (place, after) = rest.split_at_mut(part.len());
                    place.copy_from_slice(part);
                    rest = after;
                }
                keys.frames.seal_in_place(nonce, &bare, body)
            }
        }
    }
}
