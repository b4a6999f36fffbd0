//! Which bytes of a record are lost, though the record itself is whole.
//!
//! - A record that was damaged or gone when part of it was overwritten keeps the new bytes; of the others it says that
//!   they are lost. They stand as zeros in it, and this list stands at its end; its pointer knows how long the list is.
//! - Ranges are in order, not empty, apart from each other, and within the record's data.
//! - The encoding is the shorter of two: ranges, or a bit for each byte.

use std::ops::Range;

use tarn_base::codec::{DecodeError, Decoded, Put, Take};

use crate::pointer::{RecordPointer, small};

const RANGES: u8 = 0;
const BITS: u8 = 1;

/// Lost bytes of a record.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LostBytes(Vec<Range<u32>>);

impl LostBytes {
    /// The first `size` bytes.
    pub fn all(size: u32) -> LostBytes {
        LostBytes(std::iter::once(0..size).filter(|range| !range.is_empty()).collect())
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many bytes are lost.
    pub fn count(&self) -> u64 {
        self.0.iter().map(|range| u64::from(range.end - range.start)).sum()
    }

    pub fn ranges(&self) -> &[Range<u32>] {
        &self.0
    }

    /// Whether a byte of `range` is lost.
    pub fn touch(&self, range: &Range<u32>) -> bool {
        self.0.iter().any(|lost| lost.start < range.end && range.start < lost.end)
    }

    /// `range` has been written: its bytes are known again.
    pub fn heal(&mut self, range: &Range<u32>) {
        if range.is_empty() {
            return;
        }
        let mut left = Vec::with_capacity(self.0.len() + 1);
        for lost in self.0.drain(..) {
            let (before, after) = (lost.start..lost.end.min(range.start), lost.start.max(range.end)..lost.end);
            if before.is_empty() && after.is_empty() {
                continue;
            }
            left.extend([before, after].into_iter().filter(|part| !part.is_empty()));
        }
        self.0 = left;
    }

    /// Appends the list to `data`, the record's bytes; gives the bytes it takes, at most an eighth of `data` and 16.
    pub fn append(&self, data: &mut Vec<u8>) -> u32 {
        let size = data.len();
        let mut list = Vec::new();
        list.put_u8(RANGES);
        list.put_varint(self.0.len() as u64);
        let mut at = 0;
        for range in &self.0 {
            list.put_varint(u64::from(range.start - at));
            list.put_varint(u64::from(range.end - range.start));
            at = range.end;
        }
        if list.len() > 1 + size.div_ceil(8) {
            list.clear();
            list.put_u8(BITS);
            list.resize(1 + size.div_ceil(8), 0);
            for byte in self.0.iter().flat_map(|range| range.clone()) {
                list[1 + byte as usize / 8] |= 1 << (byte % 8);
            }
        }
        data.extend_from_slice(&list);
        list.len() as u32
    }

    /// Takes the list that ends a record's plaintext, as `pointer` says; none if it says none.
    pub fn of(pointer: &RecordPointer, plain: &[u8]) -> Decoded<LostBytes> {
        if pointer.lost == 0 {
            return Ok(LostBytes::default());
        }
        let size = plain.len().checked_sub(pointer.lost as usize).ok_or(DecodeError::Short)?;
        let mut take = Take::new(&plain[size..]);
        let lost = match take.u8()? {
            RANGES => decode_ranges(&mut take, size as u32)?,
            BITS => decode_bits(take.take(size.div_ceil(8))?, size as u32)?,
            _ => return Err(DecodeError::Range("the form of a list of lost bytes")),
        };
        take.end()?;
        Ok(LostBytes(lost))
    }
}

fn decode_ranges(take: &mut Take<'_>, size: u32) -> Decoded<Vec<Range<u32>>> {
    let outside = DecodeError::Range("a range of lost bytes");
    let mut out = Vec::new();
    let mut at = 0u32;
    for _ in 0..small(take)? {
        let start = at.checked_add(small(take)?).ok_or(outside)?;
        let end = start.checked_add(small(take)?).ok_or(outside)?;
        if start >= end || end > size || (start == at && at > 0) {
            return Err(outside);
        }
        out.push(start..end);
        at = end;
    }
    Ok(out)
}

fn decode_bits(bits: &[u8], size: u32) -> Decoded<Vec<Range<u32>>> {
    let set = |byte: u32| bits.get(byte as usize / 8).is_some_and(|bits| bits & (1 << (byte % 8)) != 0);
    let mut out: Vec<Range<u32>> = Vec::new();
    for byte in (0..size).filter(|byte| set(*byte)) {
        match out.last_mut() {
            Some(last) if last.end == byte => last.end += 1,
            _ => out.push(byte..byte + 1),
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn back(lost: &LostBytes, size: usize) -> usize {
        let mut plain = vec![7; size];
        let list = lost.append(&mut plain);
        assert_eq!(plain.len(), size + list as usize);
        let pointer = RecordPointer { plain: plain.len() as u32, lost: list, ..RecordPointer::default() };
        assert_eq!(LostBytes::of(&pointer, &plain).as_ref(), Ok(lost));
        list as usize
    }

    #[test]
    fn what_is_written_is_healed_and_the_rest_stays_lost() {
        let mut lost = LostBytes::all(100);
        lost.heal(&(10..20));
        assert_eq!(lost.ranges(), [0..10, 20..100]);
        lost.heal(&(0..5));
        lost.heal(&(90..200));
        lost.heal(&(30..30));
        assert_eq!(lost.ranges(), [5..10, 20..90]);
        assert_eq!(lost.count(), 75);
        assert!(lost.touch(&(9..11)) && !lost.touch(&(10..20)) && !lost.touch(&(90..1000)));
        assert!(back(&lost, 100) < 8);
        lost.heal(&(0..100));
        assert!(lost.is_empty());
    }

    #[test]
    fn the_list_is_never_longer_than_a_bit_a_byte() {
        let mut lost = LostBytes::all(1 << 20);
        (0..1 << 20).step_by(2).for_each(|byte| lost.0.push(byte..byte + 1));
        lost.0.remove(0);
        assert_eq!(back(&lost, 1 << 20), 1 + (1 << 17));
        assert!(back(&LostBytes::all(1), 1) <= 16);
    }

    #[test]
    fn a_list_that_is_none_is_refused() {
        let pointer = RecordPointer { plain: 10, lost: 4, ..RecordPointer::default() };
        for list in [[0, 1, 0, 7], [0, 1, 6, 1], [0, 1, 0, 0], [2, 0, 0, 0], [1, 1, 0, 0]] {
            let plain = [vec![0; 6], list.to_vec()].concat();
            assert!(LostBytes::of(&pointer, &plain).is_err(), "{list:?}");
        }
        assert!(LostBytes::of(&RecordPointer { lost: 11, ..pointer }, &[0; 10]).is_err());
    }
}
