//! Decisions about locks, and the one place where the table changes.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::ranges::{ObjectLocks, Piece};
use super::transition::Transition;
use crate::error::Errno;
use crate::types::{Lock, LockInfo, LockOutcome, LockOwner, LockRange, LockRequest, Node};

/// Most locks, held and queued together, that one client may have.
pub const LOCKS_PER_CLIENT_MAX: usize = 65_536;

/// What a request comes to, before anything has changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision<T> {
    /// What to answer.
    pub value: T,
    /// To be logged and applied, in this order; empty if nothing changes.
    pub transitions: Vec<Transition>,
    /// Waiting requests that are held by this; to be told once the transitions are durable.
    pub granted: Vec<LockInfo>,
}

impl<T> Decision<T> {
    fn nothing(value: T) -> Decision<T> {
        Decision { value, transitions: Vec::new(), granted: Vec::new() }
    }
}

/// All locks of a shard, and the clients to be told of a restart.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LockTable {
    pub(super) objects: BTreeMap<Node, ObjectLocks>,
    /// How many pieces each client has on which object.
    clients: BTreeMap<Bytes, BTreeMap<Node, usize>>,
    /// Name and callback of clients to be told of a restart.
    pub(super) notify: BTreeMap<Bytes, Bytes>,
}

impl LockTable {
    pub fn new() -> LockTable {
        LockTable::default()
    }

    // --- decisions ---

    /// Errors: `Invalid` (an empty range), `Grace` (not a reclaim during grace, or a reclaim outside it of what is
    /// not held), `NoLocks`.
    pub fn decide_lock(&self, request: &LockRequest, in_grace: bool) -> Result<Decision<LockOutcome>, Errno> {
        let lock = &request.lock;
        if lock.range.start >= lock.range.end {
            return Err(Errno::Invalid);
        }
        let empty = ObjectLocks::default();
        let object = self.objects.get(&lock.node).unwrap_or(&empty);
        if request.reclaim != in_grace && !(request.reclaim && object.covers(lock)) {
            return Err(Errno::Grace);
        }
        let callback = request.callback.clone();
        if let Some(piece) = object.conflict(&lock.owner, lock.kind, lock.range) {
            if !request.wait {
                return Ok(Decision::nothing(LockOutcome::Denied(piece.lock(lock.node))));
            }
            if !object.is_queued(lock) {
                self.room(&lock.owner.client)?;
            }
            let transitions = vec![Transition::Queued { lock: lock.clone(), callback }];
            return Ok(Decision { value: LockOutcome::Waiting, transitions, granted: Vec::new() });
        }
        self.room(&lock.owner.client)?;
        let mut transitions = vec![Transition::Held { lock: lock.clone(), callback }];
        // Replacing an exclusive lock by a shared one may let others in.
        let granted = self.grants(lock.node, &mut transitions);
        Ok(Decision { value: LockOutcome::Granted, transitions, granted })
    }

    /// Whether the lock is held, or in its queue: asking for it again comes to the same.
    pub fn stands(&self, lock: &Lock) -> bool {
        self.objects.get(&lock.node).is_some_and(|object| object.covers(lock) || object.is_queued(lock))
    }

    /// Also how an administrator breaks a held lock.
    pub fn decide_unlock(&self, node: Node, owner: &LockOwner, range: LockRange) -> Result<Decision<()>, Errno> {
        if range.start >= range.end {
            return Err(Errno::Invalid);
        }
        let mut transitions = vec![Transition::Released { node, owner: owner.clone(), range }];
        let Some(object) = self.objects.get(&node) else { return Ok(Decision::nothing(())) };
        let mut after = object.clone();
        after.release(owner, range);
        if after == *object {
            return Ok(Decision::nothing(()));
        }
        let granted = self.grants(node, &mut transitions);
        Ok(Decision { value: (), transitions, granted })
    }

    /// The held lock that would be in the way; during grace too, for what is not reclaimed yet is not known.
    pub fn test(&self, lock: &Lock) -> Result<Option<Lock>, Errno> {
        if lock.range.start >= lock.range.end {
            return Err(Errno::Invalid);
        }
        let object = self.objects.get(&lock.node);
        let piece = object.and_then(|object| object.conflict(&lock.owner, lock.kind, lock.range));
        Ok(piece.map(|piece| piece.lock(lock.node)))
    }

    /// Whether the request was still queued; it is not any more.
    pub fn decide_cancel(&self, lock: &Lock) -> Decision<bool> {
        if !self.objects.get(&lock.node).is_some_and(|object| object.is_queued(lock)) {
            return Decision::nothing(false);
        }
        let transitions = vec![Transition::Unqueued { lock: lock.clone() }];
        Decision { value: true, transitions, granted: Vec::new() }
    }

    /// Everything of this client is given up, because it has restarted or is gone.
    pub fn decide_release_client(&self, client: &[u8]) -> Decision<()> {
        let Some(nodes) = self.clients.get(client) else { return Decision::nothing(()) };
        let mut transitions = vec![Transition::ClientReleased { client: Bytes::copy_from_slice(client) }];
        let mut granted = Vec::new();
        for node in nodes.keys() {
            granted.extend(self.grants(*node, &mut transitions));
        }
        Decision { value: (), transitions, granted }
    }

    /// The object is gone, and its locks with it.
    pub fn decide_node_gone(&self, node: Node) -> Decision<()> {
        if !self.objects.contains_key(&node) {
            return Decision::nothing(());
        }
        Decision { value: (), transitions: vec![Transition::NodeGone { node }], granted: Vec::new() }
    }

    /// Puts clients on the list of those to be told: their locks were lost with the log.
    pub fn decide_notify(&self, clients: impl IntoIterator<Item = (Bytes, Bytes)>) -> Decision<()> {
        let transitions =
            clients.into_iter().map(|(client, callback)| Transition::ToNotify { client, callback }).collect();
        Decision { value: (), transitions, granted: Vec::new() }
    }

    /// Takes a client off that list.
    pub fn decide_notified(&self, client: &[u8]) -> Decision<()> {
        if !self.notify.contains_key(client) {
            return Decision::nothing(());
        }
        let transitions = vec![Transition::Notified { client: Bytes::copy_from_slice(client) }];
        Decision { value: (), transitions, granted: Vec::new() }
    }

    // --- the change ---

    /// Makes a transition true. What it takes away need not be there.
    pub fn apply(&mut self, transition: &Transition) {
        match transition {
            Transition::Held { lock, callback } => {
                self.change(lock.node, &lock.owner.client, |object| object.hold(lock, callback));
            }
            Transition::Released { node, owner, range } => {
                self.change(*node, &owner.client, |object| object.release(owner, *range));
            }
            Transition::Queued { lock, callback } => {
                self.change(lock.node, &lock.owner.client, |object| object.enqueue(lock, callback));
            }
            Transition::Unqueued { lock } => {
                self.change(lock.node, &lock.owner.client, |object| object.unqueue(lock));
            }
            Transition::ClientReleased { client } => {
                let nodes: Vec<Node> = self.clients.get(client).into_iter().flat_map(|n| n.keys().copied()).collect();
                for node in nodes {
                    self.change(node, client, |object| object.forget_client(client));
                }
            }
            Transition::NodeGone { node } => {
                for piece in self.objects.remove(node).iter().flat_map(ObjectLocks::pieces) {
                    self.forget(*node, &piece.owner.client);
                }
            }
            Transition::ToNotify { client, callback } => {
                self.notify.insert(client.clone(), callback.clone());
            }
            Transition::Notified { client } => {
                self.notify.remove(client);
            }
        }
    }

    /// Applies a whole decision.
    pub fn apply_all<'a>(&mut self, transitions: impl IntoIterator<Item = &'a Transition>) {
        for transition in transitions {
            self.apply(transition);
        }
    }

    // --- listings ---

    /// Held and queued locks, by object; the held ones of an object first.
    pub fn list(&self) -> Vec<LockInfo> {
        let infos = self.objects.iter().flat_map(|(node, object)| {
            let held = object.held.iter().map(|piece| info(*node, piece, false));
            held.chain(object.waiting.iter().map(|piece| info(*node, piece, true)))
        });
        infos.collect()
    }

    /// Name and a callback of each client that holds locks: whom to tell if this table were lost.
    pub fn holders(&self) -> Vec<(Bytes, Bytes)> {
        let mut holders = BTreeMap::new();
        for piece in self.objects.values().flat_map(|object| &object.held) {
            holders.insert(piece.owner.client.clone(), piece.callback.clone());
        }
        holders.into_iter().collect()
    }

    /// Whether this client holds any lock.
    pub fn is_holder(&self, client: &[u8]) -> bool {
        let nodes = self.clients.get(client).into_iter().flat_map(|nodes| nodes.keys());
        nodes
            .filter_map(|node| self.objects.get(node))
            .any(|object| object.held.iter().any(|piece| piece.owner.client == client))
    }

    /// Name and callback of each client to be told of a restart.
    pub fn to_notify(&self) -> Vec<(Bytes, Bytes)> {
        self.notify.iter().map(|(client, callback)| (client.clone(), callback.clone())).collect()
    }

    // --- helpers ---

    /// Appends to `transitions` the grants to waiting requests on `node` that they make possible.
    fn grants(&self, node: Node, transitions: &mut Vec<Transition>) -> Vec<LockInfo> {
        let Some(object) = self.objects.get(&node).filter(|object| !object.waiting.is_empty()) else {
            return Vec::new();
        };
        let mut after = LockTable::new();
        after.insert(node, object.clone());
        after.apply_all(transitions.iter().filter(|transition| !transition.is_about_notices()));
        let mut granted = Vec::new();
        for piece in after.objects.get(&node).map(|object| object.waiting.clone()).unwrap_or_default() {
            let free = after
                .objects
                .get(&node)
                .is_none_or(|object| object.conflict(&piece.owner, piece.kind, piece.range).is_none());
            if free {
                let transition = Transition::Held { lock: piece.lock(node), callback: piece.callback.clone() };
                after.apply(&transition);
                transitions.push(transition);
                granted.push(info(node, &piece, false));
            }
        }
        granted
    }

    fn room(&self, client: &[u8]) -> Result<(), Errno> {
        let count: usize = self.clients.get(client).map_or(0, |nodes| nodes.values().sum());
        if count < LOCKS_PER_CLIENT_MAX { Ok(()) } else { Err(Errno::NoLocks) }
    }

    /// Changes what one client has on an object, and keeps the index of clients true.
    fn change(&mut self, node: Node, client: &Bytes, with: impl FnOnce(&mut ObjectLocks)) {
        let object = self.objects.entry(node).or_default();
        with(object);
        let count = object.count(client);
        if object.is_empty() {
            self.objects.remove(&node);
        }
        if count > 0 {
            self.clients.entry(client.clone()).or_default().insert(node, count);
        } else {
            self.forget(node, client);
        }
    }

    /// The client has nothing on this object any more.
    fn forget(&mut self, node: Node, client: &Bytes) {
        if let Some(nodes) = self.clients.get_mut(client) {
            nodes.remove(&node);
            if nodes.is_empty() {
                self.clients.remove(client);
            }
        }
    }

    /// An object with all its locks, which the table does not have yet.
    pub(super) fn insert(&mut self, node: Node, object: ObjectLocks) {
        for piece in object.pieces() {
            *self.clients.entry(piece.owner.client.clone()).or_default().entry(node).or_default() += 1;
        }
        self.objects.insert(node, object);
    }
}

fn info(node: Node, piece: &Piece, waiting: bool) -> LockInfo {
    LockInfo { lock: piece.lock(node), waiting, callback: piece.callback.clone() }
}

#[cfg(test)]
#[path = "table_tests.rs"]
mod tests;
