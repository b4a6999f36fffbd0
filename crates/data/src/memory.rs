//! Memory of segments in the making, used again: what the kernel gives anew costs more than filling it.
//!
//! - A segment's bytes begin where a disk's block may, so that a disk can be given them as they lie.
//! - It holds only what was in use at one time. What nobody needed between two calls of [`SegmentMemory::rest`] is given
//!   back.

use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use tarn_base::memory::Spares;

/// What the block size of any disk divides.
const ALIGN: usize = 4096;

/// Shared by all who make segments at one place.
#[derive(Clone, Debug, Default)]
pub struct SegmentMemory(Arc<Mutex<Spares>>);

impl SegmentMemory {
    /// Room for `capacity` bytes.
    pub(crate) fn take(&self, capacity: usize) -> Buffer {
        let old = self.0.lock().take();
        let mut bytes = old.unwrap_or_default();
        let missing = (capacity + ALIGN).saturating_sub(bytes.len());
        if bytes.capacity() - bytes.len() < missing {
            bytes.reserve_exact(missing);
        }
        let begin = bytes.as_ptr().align_offset(ALIGN).min(ALIGN);
        Buffer { bytes, begin, end: begin, memory: self.clone() }
    }

    fn give(&self, bytes: Vec<u8>) {
        self.0.lock().give(bytes);
    }

    /// Gives back what was not needed since the last call.
    pub fn rest(&self) {
        let gone = self.0.lock().rest();
        drop(gone);
    }
}

/// Bytes of a segment; one that outgrows the room it was taken for is no longer aligned, and as good otherwise.
#[derive(Debug)]
pub(crate) struct Buffer {
    /// As long as it ever was: what was written once is not cleared before it is written over.
    bytes: Vec<u8>,
    /// Where the segment lies in them.
    begin: usize,
    end: usize,
    memory: SegmentMemory,
}

impl Buffer {
    pub fn len(&self) -> usize {
        self.end - self.begin
    }

    pub fn append(&mut self, part: &[u8]) {
        self.grow(part.len()).copy_from_slice(part);
    }

    /// The next `len` bytes of the segment, all of which the caller writes: they hold anything.
    pub fn grow(&mut self, len: usize) -> &mut [u8] {
        let from = self.end;
        self.end += len;
        if self.bytes.len() < self.end {
            self.bytes.resize(self.end, 0);
        }
        &mut self.bytes[from..self.end]
    }

    /// The whole; its memory is used again once nobody has it any more. Little is copied, so that whoever keeps it keeps
    /// little.
    pub fn finish(self) -> Bytes {
        if self.len() < self.bytes.capacity() / 2 {
            let bytes = Bytes::copy_from_slice(&self.bytes[self.begin..self.end]);
            self.memory.give(self.bytes);
            return bytes;
        }
        Bytes::from_owner(Lent(self))
    }
}

struct Lent(Buffer);

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        &self.0.bytes[self.0.begin..self.0.end]
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        let bytes = std::mem::take(&mut self.0.bytes);
        self.0.memory.give(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_aligned_used_again_and_given_back() {
        let memory = SegmentMemory::default();
        let made = |size: usize| {
            let mut buffer = memory.take(1 << 20);
            let content: Vec<u8> = (0..size).map(|at| at as u8).collect();
            buffer.append(&content[..size / 3]);
            buffer.grow(size - size / 3).copy_from_slice(&content[size / 3..]);
            assert_eq!(buffer.len(), size);
            let bytes = buffer.finish();
            assert_eq!(bytes.len(), size);
            assert!(bytes.iter().enumerate().all(|(at, byte)| *byte == at as u8));
            bytes
        };
        let idle = || memory.0.lock().len();
        let large = made(1 << 20);
        assert_eq!(large.as_ptr().align_offset(ALIGN), 0);
        let (place, part) = (large.as_ptr(), large.slice(5..6));
        drop(large);
        assert_eq!((idle(), part[0]), (0, 5), "a part keeps the whole");
        drop(part);
        assert_eq!(idle(), 1);
        assert_eq!(made(1 << 20).as_ptr(), place);
        let small = made(100);
        assert_eq!(idle(), 1, "what keeps a little has a buffer of its own");
        drop(small);
        memory.rest();
        assert_eq!(idle(), 1, "it was needed");
        memory.rest();
        assert_eq!(idle(), 0);
        assert_eq!(made(5 << 20).len(), 5 << 20);
    }
}
