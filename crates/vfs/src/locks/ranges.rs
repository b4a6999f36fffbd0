//! The locks of one object: what is held, and who waits.
//!
//! - `held` is sorted by start, then owner. Pieces of one owner never overlap, and never touch if of one kind.
//! - `waiting` is in the order of asking; no two entries ask for the same lock.

use bytes::Bytes;

use crate::types::{Lock, LockKind, LockOwner, LockRange, Node};

/// A lock of one object, held or asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub owner: LockOwner,
    pub kind: LockKind,
    pub range: LockRange,
    pub callback: Bytes,
}

impl Piece {
    pub fn lock(&self, node: Node) -> Lock {
        Lock { node, owner: self.owner.clone(), kind: self.kind, range: self.range }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ObjectLocks {
    pub held: Vec<Piece>,
    pub waiting: Vec<Piece>,
}

pub(super) fn same_owner(a: &LockOwner, b: &LockOwner) -> bool {
    a.client == b.client && a.owner == b.owner
}

fn overlap(a: LockRange, b: LockRange) -> bool {
    a.start < b.end && b.start < a.end
}

fn same_request(piece: &Piece, lock: &Lock) -> bool {
    same_owner(&piece.owner, &lock.owner) && piece.kind == lock.kind && piece.range == lock.range
}

impl ObjectLocks {
    /// The first held lock that is in the way.
    pub fn conflict(&self, owner: &LockOwner, kind: LockKind, range: LockRange) -> Option<&Piece> {
        self.held.iter().find(|piece| {
            overlap(piece.range, range)
                && (kind == LockKind::Exclusive || piece.kind == LockKind::Exclusive)
                && !same_owner(&piece.owner, owner)
        })
    }

    /// Whether the owner holds all of the range, in this kind.
    pub fn covers(&self, lock: &Lock) -> bool {
        // Pieces of one kind never touch, so one piece must cover it.
        self.held.iter().any(|piece| {
            same_owner(&piece.owner, &lock.owner)
                && piece.kind == lock.kind
                && piece.range.start <= lock.range.start
                && lock.range.end <= piece.range.end
        })
    }

    pub fn is_queued(&self, lock: &Lock) -> bool {
        self.waiting.iter().any(|piece| same_request(piece, lock))
    }

    /// The owner holds this from now on, whatever it held there; the same request waits no longer.
    pub fn hold(&mut self, lock: &Lock, callback: &Bytes) {
        self.unqueue(lock);
        self.release(&lock.owner, lock.range);
        let mut range = lock.range;
        // Neighbours of the same kind become one piece with it.
        self.held.retain(|piece| {
            let touches = piece.range.end == lock.range.start || piece.range.start == lock.range.end;
            let joins = touches && piece.kind == lock.kind && same_owner(&piece.owner, &lock.owner);
            if joins {
                range.start = range.start.min(piece.range.start);
                range.end = range.end.max(piece.range.end);
            }
            !joins
        });
        self.insert(Piece { owner: lock.owner.clone(), kind: lock.kind, range, callback: callback.clone() });
    }

    /// The owner holds nothing within the range any more; what sticks out at either side stays.
    pub fn release(&mut self, owner: &LockOwner, range: LockRange) {
        let mut rests = Vec::new();
        self.held.retain(|piece| {
            if !same_owner(&piece.owner, owner) || !overlap(piece.range, range) {
                return true;
            }
            if piece.range.start < range.start {
                let left = LockRange { start: piece.range.start, end: range.start };
                rests.push(Piece { range: left, ..piece.clone() });
            }
            if range.end < piece.range.end {
                let right = LockRange { start: range.end, end: piece.range.end };
                rests.push(Piece { range: right, ..piece.clone() });
            }
            false
        });
        for rest in rests {
            self.insert(rest);
        }
    }

    /// Queues a request behind all others, or gives one that is queued a new callback in its place.
    pub fn enqueue(&mut self, lock: &Lock, callback: &Bytes) {
        match self.waiting.iter_mut().find(|piece| same_request(piece, lock)) {
            Some(piece) => piece.callback = callback.clone(),
            None => self.waiting.push(Piece {
                owner: lock.owner.clone(),
                kind: lock.kind,
                range: lock.range,
                callback: callback.clone(),
            }),
        }
    }

    pub fn unqueue(&mut self, lock: &Lock) {
        self.waiting.retain(|piece| !same_request(piece, lock));
    }

    pub fn forget_client(&mut self, client: &[u8]) {
        self.held.retain(|piece| piece.owner.client != client);
        self.waiting.retain(|piece| piece.owner.client != client);
    }

    pub fn is_empty(&self) -> bool {
        self.held.is_empty() && self.waiting.is_empty()
    }

    /// Held and waiting pieces of a client.
    pub fn count(&self, client: &[u8]) -> usize {
        self.pieces().filter(|piece| piece.owner.client == client).count()
    }

    pub fn pieces(&self) -> impl Iterator<Item = &Piece> {
        self.held.iter().chain(&self.waiting)
    }

    fn insert(&mut self, piece: Piece) {
        let at = self.held.partition_point(|other| {
            let owners = || (&other.owner.client, &other.owner.owner).cmp(&(&piece.owner.client, &piece.owner.owner));
            other.range.start.cmp(&piece.range.start).then_with(owners).is_lt()
        });
        self.held.insert(at, piece);
    }
}
