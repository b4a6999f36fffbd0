//! Requests that clients were told to wait for: a state machine without IO.
//!
//! - An entry is here exactly while a client has not been told what became of a request of its that may be
//!   queued or granted. Whoever tells it takes the entry out.
//! - A grant that finds no entry concerns a client that knows already, or gave up: it is not delivered.
//! - Each grant has a number, so that the outcome of delivering an old one changes nothing.
//! - A copy of a call may be answered to nobody, or to a client whose connection broke: telling goes on, and a client that
//!   says no, or nothing, keeps the lock.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use tarn_vfs::{Lock, LockKind, LockOwner, LockRange, Node};

/// A request, as far as it is compared.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    node: Node,
    owner: LockOwner,
    kind: LockKind,
    range: LockRange,
}

impl From<&Lock> for Key {
    fn from(lock: &Lock) -> Key {
        Key { node: lock.node, owner: lock.owner.clone(), kind: lock.kind, range: lock.range }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Queued, or so it was when last heard of.
    Queued,
    /// Granted; being delivered under this number.
    Granting(u64),
    /// Granted; the client said no, but may have said yes to an earlier delivery that went unanswered.
    Doubtful,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    state: State,
    /// The answer to a copy of a call has said that it is granted.
    perhaps_told: bool,
}

#[derive(Default)]
struct Inner {
    entries: BTreeMap<Key, Entry>,
    grants: u64,
}

impl Inner {
    fn is_granting(&self, key: &Key, number: u64) -> bool {
        self.entries.get(key).is_some_and(|entry| entry.state == State::Granting(number))
    }
}

#[derive(Default)]
pub struct Waiters {
    inner: Mutex<Inner>,
}

impl Waiters {
    /// The client is about to wait. `true` if it was not known to.
    pub fn wait(&self, key: Key) -> bool {
        let mut inner = self.inner.lock();
        let queued = Entry { state: State::Queued, perhaps_told: false };
        match inner.entries.get_mut(&key) {
            Some(entry) => {
                if entry.state == State::Doubtful {
                    *entry = queued;
                }
                false
            }
            None => inner.entries.insert(key, queued).is_none(),
        }
    }

    /// The request came to nothing before it was queued.
    pub fn forget_queued(&self, key: &Key) {
        let mut inner = self.inner.lock();
        if inner.entries.get(key).is_some_and(|entry| entry.state == State::Queued) {
            inner.entries.remove(key);
        }
    }

    /// The answer to a copy of a call says that the lock is granted; the client may hear it or not.
    pub fn perhaps_told(&self, key: &Key) {
        if let Some(entry) = self.inner.lock().entries.get_mut(key) {
            entry.perhaps_told = true;
        }
    }

    /// The client is being told. `true` if it had not been.
    pub fn told(&self, key: &Key) -> bool {
        self.inner.lock().entries.remove(key).is_some()
    }

    /// The file system granted the request: the number under which to deliver that, unless nobody waits.
    pub fn granted(&self, key: &Key) -> Option<u64> {
        let mut inner = self.inner.lock();
        inner.grants += 1;
        let number = inner.grants;
        inner.entries.get_mut(key)?.state = State::Granting(number);
        Some(number)
    }

    /// Whether the grant of this number still is to be delivered.
    pub fn is_granting(&self, key: &Key, number: u64) -> bool {
        self.inner.lock().is_granting(key, number)
    }

    /// The grant of this number has been dealt with. `false` if it was not the present one: change nothing then.
    pub fn settle(&self, key: &Key, number: u64) -> bool {
        let mut inner = self.inner.lock();
        let ours = inner.is_granting(key, number);
        if ours {
            inner.entries.remove(key);
        }
        ours
    }

    /// As [`Waiters::settle`], for a lock that the client did not take. `false` also if it may have been told otherwise.
    pub fn settle_untaken(&self, key: &Key, number: u64) -> bool {
        let mut inner = self.inner.lock();
        if !inner.is_granting(key, number) {
            return false;
        }
        match inner.entries.get_mut(key) {
            Some(entry) if entry.perhaps_told => {
                entry.state = State::Doubtful;
                false
            }
            _ => inner.entries.remove(key).is_some(),
        }
    }

    /// The client's answer to the grant of this number leaves open whether it has the lock.
    pub fn doubt(&self, key: &Key, number: u64) {
        if let Some(entry) = self.inner.lock().entries.get_mut(key)
            && entry.state == State::Granting(number)
        {
            entry.state = State::Doubtful;
        }
    }

    /// The owner gives up a range, so it knows that it had it.
    pub fn unlocked(&self, node: Node, owner: &LockOwner, range: LockRange) {
        let overlaps = |key: &Key| key.range.start < range.end && range.start < key.range.end;
        let stays = |key: &Key, entry: &Entry| {
            entry.state == State::Queued || key.node != node || key.owner != *owner || !overlaps(key)
        };
        self.inner.lock().entries.retain(|key, entry| stays(key, entry));
    }

    /// The client is gone.
    pub fn forget_client(&self, client: &[u8]) {
        self.inner.lock().entries.retain(|key, _| key.owner.client != client);
    }

    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        self.inner.lock().entries.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(process: u32, start: u64, end: u64) -> Key {
        let owner = LockOwner { client: "c".into(), owner: "o".into(), process };
        let range = LockRange { start, end };
        Key::from(&Lock { node: Node::default(), owner, kind: LockKind::Exclusive, range })
    }

    #[test]
    fn a_grant_is_delivered_once_to_whoever_waits() {
        let waiters = Waiters::default();
        let key = key(1, 0, 10);
        assert_eq!(waiters.granted(&key), None, "nobody waits");
        assert!(waiters.wait(key.clone()));
        assert!(!waiters.wait(key.clone()), "asked again");
        let number = waiters.granted(&key).unwrap();
        assert!(waiters.is_granting(&key, number));
        assert!(waiters.settle(&key, number));
        assert!(!waiters.settle(&key, number));
        assert!(waiters.is_empty());
    }

    #[test]
    fn asking_again_overtakes_a_delivery() {
        let waiters = Waiters::default();
        let key = key(1, 0, 10);
        waiters.wait(key.clone());
        let first = waiters.granted(&key).unwrap();
        assert!(waiters.told(&key), "by the answer to the repeated request");
        waiters.wait(key.clone());
        assert!(!waiters.settle(&key, first), "an answer to the old delivery");
        let second = waiters.granted(&key).unwrap();
        assert!(!waiters.is_granting(&key, first) && waiters.is_granting(&key, second));
    }

    #[test]
    fn a_doubtful_grant_ends_with_a_cancel_an_unlock_or_another_request() {
        let waiters = Waiters::default();
        let key = key(1, 0, 10);
        let doubtful = || {
            waiters.wait(key.clone());
            let number = waiters.granted(&key).unwrap();
            waiters.doubt(&key, number);
            assert!(!waiters.is_granting(&key, number));
        };
        doubtful();
        assert!(waiters.told(&key));
        doubtful();
        waiters.unlocked(Node::default(), &key.owner, LockRange { start: 9, end: 20 });
        assert!(waiters.is_empty());
        doubtful();
        assert!(!waiters.wait(key.clone()));
        waiters.forget_queued(&key);
        assert!(waiters.is_empty());
    }

    #[test]
    fn a_lock_that_a_copy_was_told_of_is_not_taken_back() {
        let waiters = Waiters::default();
        let key = key(1, 0, 10);
        for told_before in [true, false] {
            waiters.wait(key.clone());
            if told_before {
                waiters.perhaps_told(&key);
            }
            let number = waiters.granted(&key).unwrap();
            waiters.perhaps_told(&key);
            assert!(waiters.is_granting(&key, number), "telling goes on");
            assert!(!waiters.settle_untaken(&key, number) && !waiters.is_granting(&key, number));
            assert!(!waiters.wait(key.clone()), "asked for anew");
            let number = waiters.granted(&key).unwrap();
            assert!(waiters.settle_untaken(&key, number) && waiters.is_empty());
        }
    }

    #[test]
    fn an_unlock_leaves_what_is_queued_or_elsewhere() {
        let waiters = Waiters::default();
        for key in [key(1, 0, 10), key(1, 10, 20), key(2, 0, 10)] {
            waiters.wait(key);
        }
        waiters.granted(&key(1, 10, 20)).unwrap();
        waiters.granted(&key(2, 0, 10)).unwrap();
        waiters.unlocked(Node::default(), &key(1, 0, 1).owner, LockRange { start: 0, end: 10 });
        assert!(waiters.told(&key(1, 0, 10)) && waiters.told(&key(1, 10, 20)) && waiters.told(&key(2, 0, 10)));
        waiters.wait(key(1, 0, 10));
        waiters.forget_client(b"c");
        assert!(waiters.is_empty());
    }
}
