//! Memory of large pieces of data, used again: what the kernel gives anew costs more than filling it.
//!
//! - It holds only what was in use at one time. What nobody needed between two calls of [`Memory::rest`] is given back.
//! - What it lent is known by its address: whoever is shown a part of it can keep that where it lies, and knows how much
//!   memory he keeps.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;

/// Bytes of data that the smallest piece has room for; each size is twice the one before.
const SMALLEST: usize = 64 << 10;
const SIZES: usize = 5;
/// Room besides, for what describes the data.
const BESIDES: usize = 8 << 10;

/// What lies unused.
#[derive(Debug, Default)]
pub struct Spares {
    /// The last one is used first.
    bodies: Vec<Vec<u8>>,
    /// The fewest that lay here since the last rest.
    needless: usize,
}

impl Spares {
    pub fn take(&mut self) -> Option<Vec<u8>> {
        let body = self.bodies.pop();
        self.needless = self.needless.min(self.bodies.len());
        body
    }

    pub fn give(&mut self, body: Vec<u8>) {
        self.bodies.push(body);
    }

    /// What was not needed since the last call.
    pub fn rest(&mut self) -> Vec<Vec<u8>> {
        let gone = self.bodies.drain(..self.needless).collect();
        self.needless = self.bodies.len();
        gone
    }

    pub fn len(&self) -> usize {
        self.bodies.len()
    }

    pub fn is_empty(&self) -> bool {
        self.bodies.is_empty()
    }
}

/// Shared by all who receive data and all who keep it.
#[derive(Clone, Debug, Default)]
pub struct Memory(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    /// By size.
    spares: [Mutex<Spares>; SIZES],
    /// What is lent: where it begins, and its size.
    lent: Mutex<BTreeMap<usize, usize>>,
}

impl Memory {
    /// From so many bytes on memory is used again.
    pub const LEAST: usize = SMALLEST;

    /// Room for `least` bytes, nothing in it. More than the largest size is not kept for the next.
    pub fn take(&self, least: usize) -> Vec<u8> {
        let Some(size) = (0..SIZES).find(|size| capacity(*size) >= least) else { return Vec::with_capacity(least) };
        let spare = self.0.spares[size].lock().take();
        spare.unwrap_or_else(|| {
            self.free(capacity(size));
            Vec::with_capacity(capacity(size))
        })
    }

    /// Frees about as many bytes as `bytes` of what lies idle, or all: sizes that are used one after another take no more
    /// together than the most that was in use.
    fn free(&self, bytes: usize) {
        let mut freed = 0;
        for spares in self.0.spares.iter().rev() {
            while freed < bytes
                && let Some(body) = { spares.lock().take() }
            {
                freed += body.capacity();
            }
        }
    }

    /// Memory that is used again.
    pub fn give(&self, mut body: Vec<u8>) {
        let size = (0..SIZES).rev().find(|size| capacity(*size) <= body.capacity());
        // One that is much larger than its size would be taken for less than it is.
        if let Some(size) = size.filter(|size| body.capacity() < capacity(*size) + BESIDES) {
            body.clear();
            self.0.spares[size].lock().give(body);
        }
    }

    /// What is in `body`; its memory is used again once nobody has any of it.
    pub fn lend(&self, body: Vec<u8>) -> Bytes {
        self.0.lent.lock().insert(body.as_ptr() as usize, body.capacity());
        Bytes::from_owner(Lent { body, memory: self.clone() })
    }

    /// How much memory is kept by whoever keeps `part`, if it was lent.
    pub fn lent(&self, part: &[u8]) -> Option<usize> {
        let from = part.as_ptr() as usize;
        let lent = self.0.lent.lock();
        let (begin, size) = lent.range(..=from).next_back()?;
        (from + part.len() <= begin + size).then_some(*size)
    }

    /// Gives back what was not needed since the last call.
    pub fn rest(&self) {
        for spares in &self.0.spares {
            let gone = spares.lock().rest();
            drop(gone);
        }
    }
}

fn capacity(size: usize) -> usize {
    (SMALLEST << size) + BESIDES
}

struct Lent {
    body: Vec<u8>,
    memory: Memory,
}

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        &self.body
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        // Before anybody else can have it.
        self.memory.0.lent.lock().remove(&(self.body.as_ptr() as usize));
        self.memory.give(std::mem::take(&mut self.body));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    fn idle(memory: &Memory) -> usize {
        memory.0.spares.iter().map(|spares| spares.lock().len()).sum()
    }

    #[test]
    fn memory_is_used_again_and_what_is_not_needed_goes() {
        let memory = Memory::default();
        let taken: Vec<_> = (0..5).map(|_| memory.take(MIB + 100)).collect();
        taken.into_iter().for_each(|body| memory.give(body));
        memory.rest();
        assert_eq!(idle(&memory), 5, "all were in use at one time");
        let taken: Vec<_> = (0..2).map(|_| memory.take(MIB)).collect();
        taken.into_iter().for_each(|body| memory.give(body));
        memory.rest();
        assert_eq!(idle(&memory), 2);
        memory.rest();
        assert_eq!(idle(&memory), 0);
    }

    #[test]
    fn each_size_has_its_own_and_others_are_not_kept() {
        let memory = Memory::default();
        let (small, large) = (memory.take(100), memory.take(300 << 10));
        memory.give(small);
        memory.give(large);
        assert_eq!(idle(&memory), 2);
        assert_eq!(memory.take(100).capacity(), SMALLEST + BESIDES);
        assert_eq!(memory.take(500 << 10).capacity(), (512 << 10) + BESIDES);
        memory.give(memory.take(8 * MIB));
        memory.give(Vec::with_capacity(100));
        memory.give(Vec::with_capacity(MIB));
        assert_eq!(idle(&memory), 0);
    }

    #[test]
    fn one_size_after_another_takes_no_more_than_the_most_that_was_in_use() {
        let memory = Memory::default();
        for size in [MIB, MIB / 2, MIB / 4, MIB / 8] {
            let taken: Vec<_> = (0..8 * MIB / size).map(|_| memory.take(size)).collect();
            taken.into_iter().for_each(|body| memory.give(body));
            let idle: usize = (0..SIZES).map(|size| memory.0.spares[size].lock().len() * capacity(size)).sum();
            assert!((8 * MIB..9 * MIB).contains(&idle), "{idle}");
        }
    }

    #[test]
    fn what_is_lent_is_known_until_the_last_of_it_goes() {
        let memory = Memory::default();
        let mut body = memory.take(MIB);
        body.extend_from_slice(&[7; 1000]);
        let bytes = memory.lend(body);
        let (place, part) = (bytes.as_ptr(), bytes.slice(10..20));
        assert_eq!(memory.lent(&part), Some(MIB + BESIDES));
        assert_eq!(memory.lent(&[1, 2, 3]), None);
        assert_eq!(memory.lent(&Bytes::from(vec![7; 1000])), None);
        drop(bytes);
        assert_eq!((memory.lent(&part), part[..] == [7; 10], idle(&memory)), (Some(MIB + BESIDES), true, 0));
        drop(part);
        assert_eq!((idle(&memory), memory.0.lent.lock().len()), (1, 0));
        drop(memory.take(8 * MIB));
        assert_eq!(idle(&memory), 1, "what is not kept takes nothing from what is");
        let again = memory.take(MIB);
        assert_eq!(again.as_ptr(), place);
    }
}
