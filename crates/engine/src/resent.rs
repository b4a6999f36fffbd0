//! Copies of a change that come late, on a connection that the client has given up (engine rule 9).
//!
//! - A client that sends a call again on a new connection takes the first answer, goes on, and may write newer bytes to the
//!   same place. What it had sent before may still lie in the old connection, or wait here for room: it must not run then.
//! - So the latest connection that brought a change is kept, and a copy from an earlier one is refused when its turn comes,
//!   under the locks of what it changes. The first copy to run is not the one that counts: the one last sent is.
//! - Kept are the last [`KEPT`] at least, of clients that had another connection shortly before; of others nothing can come
//!   late. A name that two changes share costs the one sent earlier a refusal for the moment.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use tarn_base::mutant;
use tarn_vfs::Sent;

/// Changes kept at least: 2 s of the fastest client, and some 5 MiB with those before them.
pub const KEPT: usize = 7 << 14;

const SHARDS: usize = 16;

/// Connections by the names of changes: of the latest, and of as many before them.
#[derive(Debug, Default)]
struct Shard {
    latest: HashMap<u64, u64>,
    before: HashMap<u64, u64>,
}

/// See the head of the file.
#[derive(Debug, Default)]
pub struct Resent {
    shards: [Mutex<Shard>; SHARDS],
    /// There was something to keep.
    any: AtomicBool,
}

impl Resent {
    fn shard(&self, name: u64) -> &Mutex<Shard> {
        &self.shards[(name >> 60) as usize % SHARDS]
    }

    /// The change has come, and will run after this.
    pub fn note(&self, sent: &Sent) {
        if !sent.follows {
            return;
        }
        let mut shard = self.shard(sent.name).lock();
        if shard.latest.len() >= KEPT / SHARDS {
            shard.before = std::mem::take(&mut shard.latest);
            shard.latest.reserve(KEPT / SHARDS);
        }
        let connection = shard.latest.entry(sent.name).or_default();
        *connection = sent.connection.max(*connection);
        self.any.store(true, Ordering::Release);
    }

    /// Whether a copy of the change has come on a later connection.
    pub fn is_late(&self, sent: &Sent) -> bool {
        if !self.any.load(Ordering::Acquire) || mutant::on(mutant::LATE_COPY_RUNS) {
            return false;
        }
        let shard = self.shard(sent.name).lock();
        let later = |kept: &HashMap<u64, u64>| kept.get(&sent.name).is_some_and(|later| *later > sent.connection);
        later(&shard.latest) || later(&shard.before)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(name: u64, connection: u64) -> Sent {
        Sent { name, connection, follows: connection > 1 }
    }

    #[test]
    fn a_copy_is_late_once_another_came_on_a_later_connection() {
        let resent = Resent::default();
        resent.note(&sent(7, 1));
        assert!(!resent.is_late(&sent(7, 1)));
        resent.note(&sent(7, 2));
        assert!(resent.is_late(&sent(7, 1)) && !resent.is_late(&sent(7, 2)), "the last one sent runs");
        resent.note(&sent(7, 1));
        assert!(resent.is_late(&sent(7, 1)), "a late copy makes nothing earlier");
        assert!(!resent.is_late(&sent(8, 1)), "another change");
    }

    #[test]
    fn the_last_ones_are_kept_and_memory_is_bounded() {
        let resent = Resent::default();
        let name = |number: u64| number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let count = 5 * KEPT as u64;
        (0..count).for_each(|number| resent.note(&sent(name(number), 2)));
        let last = count - KEPT as u64 * 9 / 10;
        assert!((last..count).all(|number| resent.is_late(&sent(name(number), 1))));
        let kept = |shard: &Mutex<Shard>| {
            let shard = shard.lock();
            shard.latest.len() + shard.before.len()
        };
        assert!(resent.shards.iter().map(kept).sum::<usize>() <= 2 * KEPT);
    }
}
