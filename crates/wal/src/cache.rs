//! The last few frames that were read back, decrypted: neighbours in a frame are usually wanted together.

use bytes::Bytes;
use parking_lot::Mutex;

const FRAMES: usize = 8;

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

#[cfg(test)]
mod tests {
    use super::*;

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
