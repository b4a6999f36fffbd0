//! One bit per record of a segment: whether any pointer, present or history, names it.
//!
//! - The count is kept beside the bits and always agrees with them.
//! - The encoding is the shortest of four and depends on the bits only.

use tarn_base::codec::{DecodeError, Decoded, Put, Take};

use crate::format::RECORDS_MAX;
use crate::pointer::small;

const ALL: u8 = 0;
const BITS: u8 = 1;
/// Indices of the live ones, as differences.
const LIVE: u8 = 2;
/// Indices of the dead ones, as differences.
const DEAD: u8 = 3;

/// Which records live.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LiveSet {
    words: Vec<u64>,
    size: u32,
    count: u32,
}

impl LiveSet {
    /// `size` records, all of them live.
    pub fn all(size: u32) -> LiveSet {
        let mut set = LiveSet::none(size);
        for word in &mut set.words {
            *word = u64::MAX;
        }
        if let Some(last) = set.words.last_mut()
            && !size.is_multiple_of(64)
        {
            *last = (1 << (size % 64)) - 1;
        }
        set.count = size;
        set
    }

    /// `size` records, none of them live.
    pub fn none(size: u32) -> LiveSet {
        LiveSet { words: vec![0; size.div_ceil(64) as usize], size, count: 0 }
    }

    /// Records of the segment, live or not.
    pub fn size(&self) -> u32 {
        self.size
    }

    /// Live records.
    pub fn count(&self) -> u32 {
        self.count
    }

    pub fn contains(&self, index: u32) -> bool {
        index < self.size && self.words[index as usize / 64] & (1 << (index % 64)) != 0
    }

    /// Marks a record live; false if it was already, or does not exist.
    pub fn insert(&mut self, index: u32) -> bool {
        let new = index < self.size && !self.contains(index);
        if new {
            self.words[index as usize / 64] |= 1 << (index % 64);
            self.count += 1;
        }
        new
    }

    /// Marks a record dead; false if it was already, or does not exist.
    pub fn remove(&mut self, index: u32) -> bool {
        let was = self.contains(index);
        if was {
            self.words[index as usize / 64] &= !(1 << (index % 64));
            self.count -= 1;
        }
        was
    }

    /// The live ones, ascending.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.indices(true)
    }

    fn indices(&self, live: bool) -> impl Iterator<Item = u32> + '_ {
        (0..self.size).filter(move |&index| self.contains(index) == live)
    }

    pub fn encode(&self, out: &mut Vec<u8>) {
        out.put_varint(u64::from(self.size));
        if self.count == self.size {
            return out.put_u8(ALL);
        }
        let live = self.count <= self.size - self.count;
        let mut list = Vec::new();
        list.put_varint(u64::from(if live { self.count } else { self.size - self.count }));
        let mut next = 0;
        for index in self.indices(live) {
            list.put_varint(u64::from(index - next));
            next = index + 1;
        }
        let bytes = self.size.div_ceil(8) as usize;
        if list.len() < bytes {
            out.put_u8(if live { LIVE } else { DEAD });
            return out.put(&list);
        }
        out.put_u8(BITS);
        let at = out.len();
        self.words.iter().for_each(|&word| out.put_u64(word));
        out.truncate(at + bytes);
    }

    /// Takes a set from the front of `take`.
    pub fn decode(take: &mut Take<'_>) -> Decoded<LiveSet> {
        let size = small(take)?;
        if size > RECORDS_MAX {
            return Err(DecodeError::Range("a live set's size"));
        }
        match take.u8()? {
            ALL => Ok(LiveSet::all(size)),
            BITS => decode_bits(take, size),
            LIVE => {
                let mut set = LiveSet::none(size);
                decode_list(take, size, |index| set.insert(index))?;
                Ok(set)
            }
            DEAD => {
                let mut set = LiveSet::all(size);
                decode_list(take, size, |index| set.remove(index))?;
                Ok(set)
            }
            _ => Err(DecodeError::Range("a live set's form")),
        }
    }
}

fn decode_bits(take: &mut Take<'_>, size: u32) -> Decoded<LiveSet> {
    let mut set = LiveSet::none(size);
    let bytes = take.take(size.div_ceil(8) as usize)?;
    for (word, part) in set.words.iter_mut().zip(bytes.chunks(8)) {
        let mut whole = [0u8; 8];
        whole[..part.len()].copy_from_slice(part);
        *word = u64::from_le_bytes(whole);
        set.count += word.count_ones();
    }
    let beyond = set.words.last().is_some_and(|&last| !size.is_multiple_of(64) && last >> (size % 64) != 0);
    if beyond { Err(DecodeError::Range("a live set's bits")) } else { Ok(set) }
}

fn decode_list(take: &mut Take<'_>, size: u32, mut each: impl FnMut(u32) -> bool) -> Decoded<()> {
    let mut next = 0u64;
    for _ in 0..small(take)? {
        let index = next.checked_add(take.varint()?).filter(|&index| index < u64::from(size));
        let index = index.ok_or(DecodeError::Range("a live set's index"))?;
        each(index as u32);
        next = index + 1;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn back(set: &LiveSet) -> usize {
        let mut out = Vec::new();
        set.encode(&mut out);
        let mut take = Take::new(&out);
        assert_eq!(&LiveSet::decode(&mut take).unwrap(), set);
        take.end().unwrap();
        out.len()
    }

    #[test]
    fn every_form_comes_back_and_is_short() {
        for size in [0, 1, 63, 64, 65, 1000, 4096] {
            assert!(back(&LiveSet::all(size)) <= 3);
            assert!(back(&LiveSet::none(size)) <= 5);
            let mut half = LiveSet::none(size);
            (0..size).step_by(2).for_each(|index| assert!(half.insert(index)));
            assert_eq!(half.count(), size.div_ceil(2));
            assert!(back(&half) <= 4 + size.div_ceil(8) as usize);
            let mut few = LiveSet::all(size);
            (0..size).step_by(500).for_each(|index| assert!(few.remove(index) && !few.remove(index)));
            back(&few);
        }
    }

    #[test]
    fn what_lies_outside_is_never_live() {
        let mut set = LiveSet::all(65);
        assert!(!set.contains(65) && !set.remove(65) && !set.insert(65));
        assert_eq!(set.iter().count(), 65);
    }
}
