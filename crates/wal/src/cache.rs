//! The last few frames that were read back, decrypted: neighbours in a frame are usually wanted together. And the memory that
//! large ones are read into.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;

use crate::aligned::Aligned;

const FRAMES: usize = 8;
/// Memory that is kept for large frames while nobody has it.
const IDLE_MAX: usize = 2;

#[derive(Default)]
pub(crate) struct FrameCache {
    /// (log offset, plain body), least recently used first.
    frames: Mutex<Vec<(u64, Bytes)>>,
}

impl FrameCache {
    pub fn get(&self, offset: u64) -> Option<Bytes> {
        let mut frames = self.frames.lock();
        let at = frames.iter().position(|(frame, _)| *frame == offset)?;
        frames[at..].rotate_left(1);
        frames.last().map(|(_, body)| body.clone())
    }

    pub fn put(&self, offset: u64, body: Bytes) {
        let mut frames = self.frames.lock();
        if frames.iter().any(|(frame, _)| *frame == offset) {
            return;
        }
        if frames.len() == FRAMES {
            frames.remove(0);
        }
        frames.push((offset, body));
    }
}

/// Memory that large frames are read into, used again.
#[derive(Clone, Default)]
pub(crate) struct Reading(Arc<Mutex<Vec<Aligned>>>);

impl Reading {
    pub fn take(&self) -> Aligned {
        self.0.lock().pop().unwrap_or_default()
    }

    /// `range` of what was read into `memory`; that is used again once nobody has it any more.
    pub fn lend(&self, memory: Aligned, range: Range<usize>) -> Bytes {
        Bytes::from_owner(Lent { memory, range, idle: self.clone() })
    }
}

struct Lent {
    memory: Aligned,
    range: Range<usize>,
    idle: Reading,
}

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        &self.memory.bytes(self.range.end)[self.range.start..]
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        let mut idle = self.idle.0.lock();
        if idle.len() < IDLE_MAX {
            idle.push(std::mem::take(&mut self.memory));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_of_large_frames_is_used_again() {
        let reading = Reading::default();
        let lent = |value: u8| {
            let mut memory = reading.take();
            memory.room(5000)[100..4200].fill(value);
            reading.lend(memory, 100..4200)
        };
        let (one, two) = (lent(1), lent(2));
        let part = one.slice(4000..);
        drop(one);
        assert!(reading.0.lock().is_empty(), "a part of it is still held");
        assert_eq!((&part[..], two.len()), (&[1; 100][..], 4100));
        drop((part, two));
        assert_eq!(reading.0.lock().len(), 2);
        let three: Vec<Bytes> = (0..3).map(lent).collect();
        assert!(three.iter().zip(0..).all(|(bytes, value)| bytes.iter().all(|byte| *byte == value)));
        drop(three);
        assert_eq!(reading.0.lock().len(), IDLE_MAX);
    }

    #[test]
    fn the_least_recently_used_frame_goes_first() {
        let cache = FrameCache::default();
        for offset in 0..FRAMES as u64 {
            cache.put(offset, Bytes::new());
        }
        assert!(cache.get(0).is_some());
        cache.put(99, Bytes::new());
        assert!(cache.get(0).is_some() && cache.get(1).is_none() && cache.get(99).is_some());
    }
}
