//! Turns: what concerns one owner's locks on one object happens one after the other.
//!
//! - Taking back a grant that the client refused, and the client asking again, must not overtake each other: the
//!   lock would be released under whoever was just told that it is held.
//! - Requests of different owners never wait for each other.
//! - Nothing is kept for an owner whose turn nobody has or wants.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tarn_vfs::{LockOwner, Node};
use tokio::sync::OwnedMutexGuard;

type Key = (Node, LockOwner);
type Queue = Arc<tokio::sync::Mutex<()>>;

#[derive(Default)]
pub struct Turns {
    queues: Mutex<BTreeMap<Key, Queue>>,
}

/// A turn; ends when dropped.
pub struct Turn<'a> {
    turns: &'a Turns,
    key: Key,
    guard: Option<OwnedMutexGuard<()>>,
}

impl Turns {
    /// Waits for the owner's turn on the object. Turns come in the order of asking.
    pub async fn take(&self, node: Node, owner: &LockOwner) -> Turn<'_> {
        let key = (node, owner.clone());
        let queue = self.queues.lock().entry(key.clone()).or_default().clone();
        // The turn exists before it has come, so that whoever stops waiting tidies up as well.
        let mut turn = Turn { turns: self, key, guard: None };
        turn.guard = Some(queue.lock_owned().await);
        turn
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.guard = None;
        let mut queues = self.turns.queues.lock();
        // Those who wait hold the queue too; nobody can join while the map is locked.
        if queues.get(&self.key).is_some_and(|queue| Arc::strong_count(queue) == 1) {
            queues.remove(&self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn turns_follow_each_other_and_leave_nothing() {
        let turns = Turns::default();
        let (node, owner) = (Node::default(), LockOwner { client: "c".into(), owner: "o".into(), process: 0 });
        let first = turns.take(node, &owner).await;
        let mut second = Box::pin(turns.take(node, &owner));
        tokio::select! {
            biased;
            _ = &mut second => panic!("the first turn is not over"),
            () = std::future::ready(()) => {}
        }
        let other = LockOwner { process: 1, ..owner.clone() };
        drop(turns.take(node, &other).await);
        drop(first);
        drop(second.await);
        assert!(turns.queues.lock().is_empty());
    }
}
