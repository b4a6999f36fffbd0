//! Copies of a change that come after it was answered (engine rule 9).
//!
//! - A client sends a call again when its answer is late, on the same connection or on another. It takes the first answer,
//!   goes on, and may write newer bytes to the same place; the other copy may still lie in a connection, or wait here for
//!   room or for a fetch. Nobody can tell by what it came on which one the client sent last.
//! - So the names of calls that could have changed something are kept once they are answered: whether they did, changed
//!   nothing, or were refused. A copy of one may run only if that comes to the same as not running: a write whose bytes are
//!   there, a lock that is held. Any other is refused for the moment, under the locks of what it changes. A client that did
//!   not hear the first answer asks once more, under another name.
//! - Kept are the last [`KEPT_OF_ALL`] of all clients, and besides of each client the last [`KEPT`], which no other
//!   client's calls push out; for [`AGE`] at least and twice that at most. See also [`CLIENTS_MAX`].

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use parking_lot::Mutex;
use tarn_base::mutant;
use tarn_vfs::{ClientId, Sent};

use crate::hash::SecretBuild;

/// Calls of a client that are kept at least: some 300 KiB with as many before them.
pub const KEPT: usize = 7 << 10;
/// How long they are kept at least. A client that begins its numbers anew must not be refused for ever.
pub const AGE: Duration = Duration::from_secs(300);
/// Clients whose calls are kept whatever others do; for one more, whoever has been silent the longest is forgotten.
pub const CLIENTS_MAX: usize = 1024;
/// Calls of all clients that are kept at least, and those of single clients together at most. A sixteenth just fits into a
/// table of 2^16 places, of 9 bytes each: some 10 MiB, and with as many before them 20.
pub const KEPT_OF_ALL: usize = 7 << 17;

const SHARDS: usize = 16;

/// Names in two generations; the elder goes when the younger is full or old.
#[derive(Debug)]
struct Names {
    /// Of calls that were answered after `since`.
    latest: HashSet<u64, SecretBuild>,
    /// And before.
    before: HashSet<u64, SecretBuild>,
    since: Duration,
}

impl Names {
    fn new(build: SecretBuild) -> Names {
        let empty = || HashSet::with_hasher(build);
        Names { latest: empty(), before: empty(), since: Duration::ZERO }
    }

    fn len(&self) -> usize {
        self.latest.len() + self.before.len()
    }

    /// Adds a name; of more than `most` the oldest go.
    fn note(&mut self, name: u64, most: usize, now: Duration) {
        if self.latest.len() >= most || now.saturating_sub(self.since) >= AGE {
            let empty = || HashSet::with_hasher(*self.before.hasher());
            let latest = std::mem::replace(&mut self.latest, empty());
            self.before = if now.saturating_sub(self.since) < 2 * AGE { latest } else { empty() };
            self.since = now;
        }
        self.latest.insert(name);
    }

    fn has(&self, name: u64, now: Duration) -> bool {
        let age = now.saturating_sub(self.since);
        age < 2 * AGE && self.latest.contains(&name) || age < AGE && self.before.contains(&name)
    }
}

#[derive(Debug)]
struct Client {
    names: Names,
    /// The shard's count of calls at its last.
    called: u64,
}

/// What single clients did.
#[derive(Debug, Default)]
struct Shard {
    clients: BTreeMap<ClientId, Client>,
    kept: usize,
    calls: u64,
}

/// See the head of the file.
#[derive(Debug)]
pub struct Resent {
    shards: [Mutex<Shard>; SHARDS],
    /// By name: many clients, or one, fill all of them alike.
    all: [Mutex<Names>; SHARDS],
    build: SecretBuild,
}

impl Resent {
    /// `secret`: nobody outside knows it.
    pub fn new(secret: u64) -> Resent {
        let build = SecretBuild::new(secret);
        Resent { shards: Default::default(), all: std::array::from_fn(|_| Mutex::new(Names::new(build))), build }
    }

    fn shard(&self, client: ClientId) -> &Mutex<Shard> {
        let mixed = (client.0 as u64 ^ (client.0 >> 64) as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        &self.shards[(mixed >> 60) as usize % SHARDS]
    }

    fn all(&self, name: u64) -> &Mutex<Names> {
        &self.all[(name >> 60) as usize % SHARDS]
    }

    /// The call has run, or was refused.
    pub fn note(&self, sent: &Sent, now: Duration) {
        self.all(sent.name).lock().note(sent.name, KEPT_OF_ALL / SHARDS, now);
        let mut guard = self.shard(sent.client).lock();
        let shard = &mut *guard;
        shard.calls += 1;
        let client = shard.clients.entry(sent.client);
        let client = client.or_insert_with(|| Client { names: Names::new(self.build), called: 0 });
        client.called = shard.calls;
        let before = client.names.len();
        client.names.note(sent.name, KEPT, now);
        shard.kept = shard.kept + client.names.len() - before;
        while shard.clients.len() > CLIENTS_MAX / SHARDS || shard.kept > KEPT_OF_ALL / SHARDS {
            let silent = shard.clients.iter().min_by_key(|(_, client)| client.called).map(|(id, _)| *id);
            let Some(gone) = silent.and_then(|id| shard.clients.remove(&id)) else { return };
            shard.kept -= gone.names.len();
        }
    }

    /// Whether the call has been answered, as far as that is kept.
    pub fn answered(&self, sent: &Sent, now: Duration) -> bool {
        let known = || {
            let shard = self.shard(sent.client).lock();
            shard.clients.get(&sent.client).is_some_and(|client| client.names.has(sent.name, now))
        };
        (self.all(sent.name).lock().has(sent.name, now) || known()) && !mutant::on(mutant::LATE_COPY_RUNS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Names are hashes over client and call.
    fn sent(client: u128, name: u64) -> Sent {
        let name = (name << 20 | client as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        Sent { client: ClientId(client), name }
    }

    const NOW: Duration = Duration::from_secs(1000);

    #[test]
    fn what_ran_is_known_for_a_while() {
        let resent = Resent::new(7);
        resent.note(&sent(1, 7), NOW);
        assert!(
            resent.answered(&sent(1, 7), NOW)
                && !resent.answered(&sent(2, 7), NOW)
                && !resent.answered(&sent(1, 8), NOW)
        );
        assert!(resent.answered(&sent(1, 7), NOW + AGE));
        assert!(!resent.answered(&sent(1, 7), NOW + 2 * AGE), "a number that is used again is refused for ever");
        resent.note(&sent(1, 9), NOW + AGE);
        assert!(resent.answered(&sent(1, 7), NOW + AGE) && !resent.answered(&sent(1, 7), NOW + 2 * AGE));
        assert!(resent.answered(&sent(1, 9), NOW + 2 * AGE));
    }

    #[test]
    fn the_last_ones_of_each_client_are_kept_whatever_another_does() {
        let resent = Resent::new(7);
        resent.note(&sent(1, 7), NOW);
        (0..3 * KEPT_OF_ALL as u64).for_each(|name| resent.note(&sent(2, name), NOW));
        assert!(resent.answered(&sent(1, 7), NOW));
        assert!(!resent.answered(&sent(2, 0), NOW));
    }

    #[test]
    fn the_last_ones_of_all_are_kept_whoever_did_them() {
        let resent = Resent::new(7);
        resent.note(&sent(1, 7), NOW);
        let each = 9 * KEPT_OF_ALL as u64 / 10 / 3000;
        (0..each).for_each(|name| (2..3002).for_each(|client| resent.note(&sent(client, name), NOW)));
        assert!(resent.answered(&sent(1, 7), NOW), "many others pushed it out");
        let resent = Resent::new(7);
        (0..9 * KEPT_OF_ALL as u64 / 10).for_each(|name| resent.note(&sent(1, name), NOW));
        assert!(resent.answered(&sent(1, 0), NOW), "its client pushed it out");
    }

    #[test]
    fn memory_is_bounded_and_the_silent_are_forgotten_first() {
        let resent = Resent::new(7);
        for client in 1..=300 {
            (0..2 * KEPT as u64).for_each(|name| resent.note(&sent(client, name), NOW));
            resent.note(&sent(1, 1), NOW);
        }
        (1_000..20_000).for_each(|client| resent.note(&sent(client, 1), NOW));
        let shards = || resent.shards.iter().map(|shard| shard.lock());
        assert!(shards().map(|shard| shard.kept).sum::<usize>() <= KEPT_OF_ALL);
        assert!(shards().map(|shard| shard.clients.len()).sum::<usize>() <= CLIENTS_MAX);
        assert!(shards().all(|shard| {
            let kept = shard.clients.values().map(|client| client.names.len());
            shard.kept == kept.sum::<usize>()
        }));
        assert!(resent.all.iter().map(|names| names.lock().len()).sum::<usize>() <= 2 * KEPT_OF_ALL);
        assert!(resent.answered(&sent(19_999, 1), NOW) && !resent.answered(&sent(2, 1), NOW));
    }
}
