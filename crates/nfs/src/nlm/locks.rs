//! What the procedures do: TEST, LOCK, CANCEL, UNLOCK, SHARE and UNSHARE.
//!
//! - Each runs in its owner's turn, so a repeated request finds what the first one did.
//! - A client that is told GRANTED here is not told again by a callback.
//! - After a CANCEL that is answered GRANTED the client has nothing, whatever crossed it on its way: a client only
//!   cancels what it does not know it holds.
//! - During grace releasing is allowed: it takes nothing from anybody who has not reclaimed yet.

use bytes::Bytes;
use tarn_base::ids::Position;
use tarn_vfs::{Caller, FILE_SIZE_MAX, Lock, LockKind, LockOutcome, LockOwner, LockRange, LockRequest, Node, Sent};

use super::map;
use super::proto::{Holder, Range, Status};
use super::server::Nlm;
use super::shares::Mode;
use super::waiters::Key;
use crate::peer::Contact;

/// A request that passed the gate, kept for as long as it runs.
#[derive(Clone, Debug)]
pub struct Asked {
    pub caller: Caller,
    pub lock: Lock,
    pub block: bool,
    pub reclaim: bool,
    pub contact: Contact,
}

/// What to answer, and when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    pub status: Status,
    /// The lock in the way of a TEST.
    pub holder: Option<Holder>,
    /// The answer leaves once this is durable.
    pub position: Position,
}

impl Outcome {
    pub fn now(status: Status) -> Outcome {
        Outcome { status, holder: None, position: Position::ZERO }
    }

    fn at(status: Status, position: Position) -> Outcome {
        Outcome { status, holder: None, position }
    }
}

impl Nlm {
    pub(super) async fn test(&self, asked: Asked) -> Outcome {
        // What is not reclaimed yet is not known.
        if self.gate.fs.in_grace() {
            return Outcome::now(Status::DeniedGracePeriod);
        }
        match self.gate.fs.test_lock(&asked.caller, asked.lock).await {
            Ok(done) => {
                let status = if done.value.is_some() { Status::Denied } else { Status::Granted };
                Outcome { status, holder: done.value.as_ref().map(holder), position: done.position }
            }
            Err(done) => Outcome::at(map::status(done.value.errno), done.position),
        }
    }

    pub(super) async fn lock(&self, asked: Asked) -> Outcome {
        let Asked { caller, lock, block, reclaim, contact } = asked;
        let _turn = self.turns.take(lock.node, &lock.owner).await;
        let key = Key::from(&lock);
        let copy = self.is_copy(&caller);
        // Before the file system hears of it: the grant may come before the answer.
        let fresh = block && !copy && self.waiters.wait(key.clone());
        let request = LockRequest { lock, wait: block, reclaim, callback: contact.encode() };
        let (status, position) = match self.gate.fs.lock(&caller, request).await {
            Ok(done) => {
                let status = match done.value {
                    LockOutcome::Granted => Status::Granted,
                    LockOutcome::Waiting => Status::Blocked,
                    LockOutcome::Denied(_) => Status::Denied,
                };
                (status, done.position)
            }
            Err(done) => (map::status(done.value.errno), done.position),
        };
        match status {
            Status::Granted if copy => self.waiters.perhaps_told(&key),
            Status::Granted => {
                self.waiters.told(&key);
            }
            Status::Blocked => {}
            // An earlier request for the same lock may still be queued.
            _ if fresh => self.waiters.forget_queued(&key),
            _ => {}
        }
        Outcome::at(status, position)
    }

    pub(super) async fn cancel(&self, asked: Asked) -> Outcome {
        let Asked { caller, lock, .. } = asked;
        let _turn = self.turns.take(lock.node, &lock.owner).await;
        let key = Key::from(&lock);
        let copy = self.is_copy(&caller);
        // What may be a second change under the same call needs a name of its own.
        let second = Caller { once: None, sent: caller.sent.map(Sent::second), ..caller.clone() };
        let outcome = match self.gate.fs.cancel_lock(&caller, lock.clone()).await {
            Ok(done) if done.value => {
                self.waiters.told(&key);
                Outcome::at(Status::Granted, done.position)
            }
            // Granted, but the client does not know, even if it was told: it gives up waiting, so it gives up the lock.
            Ok(_) if !copy && self.waiters.told(&key) || self.holds(&lock) => {
                return self.release(&second, lock.node, lock.owner, lock.range).await;
            }
            Ok(done) => Outcome::at(Status::Denied, done.position),
            Err(done) => Outcome::at(map::status(done.value.errno), done.position),
        };
        // There was no second change, and a copy of the call may not make it either.
        second.sent.iter().for_each(|sent| self.gate.fs.answered(sent));
        outcome
    }

    pub(super) async fn unlock(&self, asked: Asked) -> Outcome {
        let Asked { caller, lock, .. } = asked;
        let _turn = self.turns.take(lock.node, &lock.owner).await;
        if !self.is_copy(&caller) {
            self.waiters.unlocked(lock.node, &lock.owner, lock.range);
        }
        self.release(&caller, lock.node, lock.owner, lock.range).await
    }

    /// Whether the call was answered before. Who waits since then is to be told all the same: nobody may be listening to this
    /// answer.
    fn is_copy(&self, caller: &Caller) -> bool {
        caller.sent.is_some_and(|sent| self.gate.fs.was_answered(&sent))
    }

    /// Whether the owner holds all of this, in this kind.
    fn holds(&self, lock: &Lock) -> bool {
        self.gate.fs.locks().iter().any(|info| {
            let held = &info.lock;
            !info.waiting
                && (held.node, held.kind) == (lock.node, lock.kind)
                && held.owner == lock.owner
                && held.range.start <= lock.range.start
                && lock.range.end <= held.range.end
        })
    }

    async fn release(&self, caller: &Caller, node: Node, owner: LockOwner, range: LockRange) -> Outcome {
        match self.gate.fs.unlock(caller, node, owner, range).await {
            Ok(done) => Outcome::at(Status::Granted, done.position),
            Err(done) => Outcome::at(map::status(done.value.errno), done.position),
        }
    }

    /// Reserves `mode`, or gives up what is reserved. A copy of a call that was answered changes nothing.
    pub(super) fn share(&self, node: Node, owner: LockOwner, mode: Option<Mode>, sent: &Sent, reclaim: bool) -> Status {
        let mut shares = self.shares.held();
        let status = match mode {
            _ if self.gate.fs.was_answered(sent) && shares.mode(node, &owner) != mode => Status::DeniedGracePeriod,
            Some(_) if reclaim != self.gate.fs.in_grace() => Status::DeniedGracePeriod,
            Some(mode) => shares.share(node, owner, mode),
            None => {
                shares.unshare(node, &owner);
                Status::Granted
            }
        };
        self.gate.fs.answered(sent);
        status
    }
}

/// The bytes a request speaks of. A lock whose last byte no file can have reaches to the end, however far that is.
pub(super) fn range(range: &Range) -> Result<LockRange, Status> {
    if range.offset > FILE_SIZE_MAX {
        return Err(Status::FileTooBig);
    }
    if range.length == 0 {
        return Ok(LockRange { start: range.offset, end: u64::MAX });
    }
    // The last byte that can be locked is FILE_SIZE_MAX.
    if range.length - 1 > FILE_SIZE_MAX - range.offset {
        return Err(Status::FileTooBig);
    }
    let end = range.offset + range.length;
    Ok(LockRange { start: range.offset, end: if end > FILE_SIZE_MAX { u64::MAX } else { end } })
}

/// The owner as the file system knows it. Owners differ by their number as well, which the file system does not
/// compare: it is appended to the name.
pub(super) fn owner(client: Bytes, range: &Range) -> LockOwner {
    let owner = [&range.owner[..], &range.process.to_be_bytes()].concat().into();
    LockOwner { client, owner, process: range.process }
}

/// The name of an owner as its client gave it.
pub(super) fn owner_name(owner: &LockOwner) -> Bytes {
    match owner.owner.strip_suffix(&owner.process.to_be_bytes()) {
        Some(name) => owner.owner.slice_ref(name),
        // Another front end's; names of more than a protocol's maximum are shown in part.
        None => owner.owner.slice(..owner.owner.len().min(super::proto::OPAQUE_MAX)),
    }
}

/// Offset and length of a range on the wire.
pub(super) fn extent(range: LockRange) -> (u64, u64) {
    (range.start, if range.end == u64::MAX { 0 } else { range.end - range.start })
}

fn holder(lock: &Lock) -> Holder {
    let (offset, length) = extent(lock.range);
    let exclusive = lock.kind == LockKind::Exclusive;
    Holder { exclusive, process: lock.owner.process, owner: owner_name(&lock.owner), offset, length }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_end_where_files_do() {
        let ask = |offset, length| {
            range(&Range {
                caller: Bytes::new(),
                handle: Bytes::new(),
                owner: Bytes::new(),
                process: 0,
                offset,
                length,
            })
        };
        let to = |start, end| Ok(LockRange { start, end });
        assert_eq!(ask(0, 0), to(0, u64::MAX));
        assert_eq!(ask(5, 1), to(5, 6));
        assert_eq!(ask(FILE_SIZE_MAX, 0), to(FILE_SIZE_MAX, u64::MAX));
        assert_eq!(ask(FILE_SIZE_MAX, 1), to(FILE_SIZE_MAX, u64::MAX), "the last byte is the end");
        assert_eq!(ask(0, FILE_SIZE_MAX), to(0, FILE_SIZE_MAX));
        assert_eq!(ask(0, FILE_SIZE_MAX + 1), to(0, u64::MAX));
        assert_eq!(ask(1, FILE_SIZE_MAX + 1), Err(Status::FileTooBig));
        assert_eq!(ask(FILE_SIZE_MAX + 1, 0), Err(Status::FileTooBig));
        assert_eq!(ask(5, u64::MAX), Err(Status::FileTooBig));
        assert_eq!(extent(LockRange { start: 5, end: u64::MAX }), (5, 0));
    }

    #[test]
    fn owners_of_one_name_differ_by_their_number() {
        let range = |process| Range {
            caller: Bytes::new(),
            handle: Bytes::new(),
            owner: Bytes::from_static(b"me"),
            process,
            offset: 0,
            length: 0,
        };
        let (one, two) = (owner("c".into(), &range(1)), owner("c".into(), &range(2)));
        assert_ne!(one.owner, two.owner);
        assert_eq!(owner_name(&one), "me");
        assert_eq!(owner_name(&LockOwner { owner: "theirs".into(), ..one }), "theirs");
    }
}
