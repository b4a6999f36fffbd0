//! Which keys a generation has surely not changed.
//!
//! - Most keys that are looked for have not changed, and a tree of many keys makes a reader wait for memory at each level; this
//!   takes one look.
//! - A key is in it before it is in its tree; whoever must see a change holds the lock under which it was made.

use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::hash::FastHasher;
use crate::key::Key;

/// Of 512 KiB: with 300,000 keys one absent key of fourteen is looked for in its tree.
const BITS: u32 = 22;

#[derive(Debug)]
pub struct Filter(Box<[AtomicU64]>);

impl Default for Filter {
    fn default() -> Filter {
        Filter((0..1 << (BITS - 6)).map(|_| AtomicU64::new(0)).collect())
    }
}

impl Filter {
    fn place(&self, key: &Key) -> (&AtomicU64, u64) {
        let mut hasher = FastHasher::default();
        (key.volume.0, key.kind as u8, key.a, key.b).hash(&mut hasher);
        let bit = hasher.finish() >> (64 - BITS);
        (&self.0[(bit >> 6) as usize], 1 << (bit & 63))
    }

    pub fn add(&self, key: &Key) {
        let (word, bit) = self.place(key);
        if word.load(Ordering::Relaxed) & bit == 0 {
            word.fetch_or(bit, Ordering::Release);
        }
    }

    /// Whether the key may have changed.
    #[inline]
    pub fn may_hold(&self, key: &Key) -> bool {
        let (word, bit) = self.place(key);
        word.load(Ordering::Acquire) & bit != 0
    }
}

#[cfg(test)]
mod tests {
    use tarn_base::ids::{Ino, VolumeId};

    use super::*;

    #[test]
    fn what_was_added_is_held_and_little_else() {
        let filter = Filter::default();
        let hash = |number: u64| Key::entry_hash(VolumeId(1), Ino(7), number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let keys = |from: u64| {
            let inodes = (from..from + 50_000).map(|number| Key::inode(VolumeId(1), Ino(number)));
            inodes.chain((from..from + 50_000).map(|number| Key::entry_cookie(VolumeId(1), Ino(7), number)))
        };
        let hashes = |from: u64| (from..from + 50_000).map(hash);
        keys(0).chain(hashes(0)).for_each(|key| filter.add(&key));
        assert!(keys(0).chain(hashes(0)).all(|key| filter.may_hold(&key)));
        let taken = keys(1 << 20).chain(hashes(1 << 20)).filter(|key| filter.may_hold(key)).count();
        assert!(taken < 150_000 / 14, "{taken} of 150,000 absent keys");
    }
}
