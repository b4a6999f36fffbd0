//! Memory that a disk can be given as it is: it begins where a block may.
//!
//! - It is taken once and used again.

use tarn_base::memory::in_large_pages;

use crate::format::BLOCK;

/// What the block size of any disk divides.
pub(crate) const ALIGN: usize = BLOCK as usize;

/// A large page.
const LARGE: usize = 2 << 20;

/// Bytes whose first one lies at a multiple of [`ALIGN`].
#[derive(Debug, Default)]
pub(crate) struct Aligned {
    bytes: Vec<u8>,
    /// What takes a quarter of a large page or more is given whole ones.
    large: bool,
}

impl Aligned {
    /// Of large pages: for what is written again and again, and never lent.
    pub fn large() -> Aligned {
        Aligned { bytes: Vec::new(), large: true }
    }

    /// `len` bytes to be written over; what they hold is of no use.
    pub fn room(&mut self, len: usize) -> &mut [u8] {
        if self.bytes.len() < len + self.align() {
            if self.large && len >= LARGE / 4 {
                let size = len.next_multiple_of(LARGE) + LARGE;
                self.bytes = Vec::with_capacity(size);
                in_large_pages(&mut self.bytes);
                self.bytes.resize(size, 0);
            } else {
                self.bytes = vec![0; len + ALIGN];
            }
        }
        let begin = self.begin();
        &mut self.bytes[begin..begin + len]
    }

    /// The first `len` bytes, after [`Aligned::room`] for as many.
    pub fn bytes(&self, len: usize) -> &[u8] {
        let begin = self.begin();
        &self.bytes[begin..begin + len]
    }

    fn begin(&self) -> usize {
        self.bytes.as_ptr().align_offset(self.align())
    }

    fn align(&self) -> usize {
        if self.large && self.bytes.len() > LARGE { LARGE } else { ALIGN }
    }
}

/// Whether a disk takes `bytes` at `at` as they lie.
pub(crate) fn is_aligned(at: u64, bytes: &[u8]) -> bool {
    at.is_multiple_of(BLOCK) && bytes.len().is_multiple_of(ALIGN) && bytes.as_ptr().align_offset(ALIGN) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_aligned_however_much_it_is() {
        let mut memory = Aligned::default();
        for memory in [&mut memory, &mut Aligned::large()] {
            for len in [0, 1, ALIGN, 1 << 20, 5, 3 << 20, 2 << 20, 8 << 20] {
                let room = memory.room(len);
                assert_eq!((room.len(), room.as_ptr().align_offset(ALIGN)), (len, 0));
            }
        }
        memory.room(5)[4] = 9;
        assert_eq!(memory.bytes(5)[4], 9);
        let room = memory.room(2 * ALIGN);
        assert!(is_aligned(0, room) && is_aligned(8192, &room[..ALIGN]));
        assert!(!is_aligned(1, room) && !is_aligned(0, &room[1..]) && !is_aligned(0, &room[..5]));
    }
}
