//! Memory that a disk can be given as it is: it begins where a block may.
//!
//! - It is taken once and used again.

use crate::format::BLOCK;

/// What the block size of any disk divides.
pub(crate) const ALIGN: usize = BLOCK as usize;

/// Bytes whose first one lies at a multiple of [`ALIGN`].
#[derive(Debug, Default)]
pub(crate) struct Aligned(Vec<u8>);

impl Aligned {
    /// `len` bytes to be written over; what they hold is of no use.
    pub fn room(&mut self, len: usize) -> &mut [u8] {
        if self.0.len() < len + ALIGN {
            self.0 = vec![0; len + ALIGN];
        }
        let begin = self.begin();
        &mut self.0[begin..begin + len]
    }

    /// The first `len` bytes, after [`Aligned::room`] for as many.
    pub fn bytes(&self, len: usize) -> &[u8] {
        let begin = self.begin();
        &self.0[begin..begin + len]
    }

    fn begin(&self) -> usize {
        self.0.as_ptr().align_offset(ALIGN)
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
        for len in [0, 1, ALIGN, 1 << 20, 5, 3 << 20, 2 << 20] {
            let room = memory.room(len);
            assert_eq!((room.len(), room.as_ptr().align_offset(ALIGN)), (len, 0));
        }
        memory.room(5)[4] = 9;
        assert_eq!(memory.bytes(5)[4], 9);
        let room = memory.room(2 * ALIGN);
        assert!(is_aligned(0, room) && is_aligned(8192, &room[..ALIGN]));
        assert!(!is_aligned(1, room) && !is_aligned(0, &room[1..]) && !is_aligned(0, &room[..5]));
    }
}
