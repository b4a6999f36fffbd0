//! Locks: asked for, released, tested, taken back (see `vfs::locks` for the rules).
//!
//! A decision, its transitions and what the bucket must know of it are one entry; the table is held meanwhile.

use bytes::Bytes;
use tarn_base::mutant;
use tarn_vfs::locks::{Decision, Transition};
use tarn_vfs::{Errno, FileType, Lock, LockOutcome, LockOwner, LockRange, LockRequest, Node};

use crate::hash::plain_hash;
use crate::key::Key;
use crate::run::Operation;
use crate::stripes::LockSet;
use crate::tx::{Step, Tx};
use crate::value::NotifyRecord;

/// The file to be locked must be there.
fn check_file(tx: &mut Tx<'_>, node: Node) -> Step<()> {
    match tx.node(node)?.kind {
        FileType::Regular => Ok(()),
        _ => Err(Errno::Invalid.into()),
    }
}

/// Takes a decision into the entry, and notes in the bucket who begins to hold locks.
///
/// Who holds none any more stays noted until it is told or says that it restarted: a notice too many does no
/// harm, one too few would.
fn take<T>(tx: &mut Tx<'_>, decision: Decision<T>) -> T {
    for transition in &decision.transitions {
        let Transition::Held { lock, callback } = transition else { continue };
        let client = &lock.owner.client;
        if !tx.table().is_holder(client) {
            let record = NotifyRecord { client: client.clone(), callback: callback.clone() };
            tx.put(Key::notify(plain_hash(client)), |out| record.encode(out));
        }
    }
    tx.decide(decision)
}

pub struct TakeLock {
    pub request: LockRequest,
}

impl Operation for TakeLock {
    type Out = LockOutcome;

    fn locks(&self) -> LockSet {
        LockSet::shared(self.request.lock.node.volume, self.request.lock.node.ino.0)
    }

    fn run(&self, tx: &mut Tx<'_>) -> Step<LockOutcome> {
        check_file(tx, self.request.lock.node)?;
        let in_grace = tx.core.session.in_grace(tx.core.world.clock.steady());
        let in_grace = in_grace && !mutant::on(mutant::LOCK_GRANTED_IN_GRACE);
        if self.request.reclaim && mutant::on(mutant::RECLAIM_REFUSED) {
            return Err(Errno::Grace.into());
        }
        tx.again = tx.again && !tx.table().stands(&self.request.lock);
        let decision = tx.table().decide_lock(&self.request, in_grace)?;
        Ok(take(tx, decision))
    }
}

pub struct Unlock {
    pub node: Node,
    pub owner: LockOwner,
    pub range: LockRange,
}

impl Operation for Unlock {
    type Out = ();

    fn locks(&self) -> LockSet {
        LockSet::shared(self.node.volume, self.node.ino.0)
    }

    fn run(&self, tx: &mut Tx<'_>) -> Step<()> {
        let decision = tx.table().decide_unlock(self.node, &self.owner, self.range)?;
        take(tx, decision);
        Ok(())
    }
}

pub struct TestLock {
    pub lock: Lock,
}

impl Operation for TestLock {
    type Out = Option<Lock>;

    fn locks(&self) -> LockSet {
        LockSet::shared(self.lock.node.volume, self.lock.node.ino.0)
    }

    fn run(&self, tx: &mut Tx<'_>) -> Step<Option<Lock>> {
        check_file(tx, self.lock.node)?;
        Ok(tx.table().test(&self.lock)?)
    }
}

pub struct CancelLock {
    pub lock: Lock,
}

impl Operation for CancelLock {
    type Out = bool;

    fn locks(&self) -> LockSet {
        LockSet::shared(self.lock.node.volume, self.lock.node.ino.0)
    }

    fn run(&self, tx: &mut Tx<'_>) -> Step<bool> {
        let decision = tx.table().decide_cancel(&self.lock);
        Ok(take(tx, decision))
    }
}

pub struct ReleaseClient {
    pub client: Bytes,
}

impl Operation for ReleaseClient {
    type Out = ();

    fn locks(&self) -> LockSet {
        LockSet::default()
    }

    fn run(&self, tx: &mut Tx<'_>) -> Step<()> {
        let decision = tx.table().decide_release_client(&self.client);
        if !decision.transitions.is_empty() {
            tx.remove(Key::notify(plain_hash(&self.client)));
        }
        take(tx, decision);
        Ok(())
    }
}

pub struct ClientNotified {
    pub client: Bytes,
}

impl Operation for ClientNotified {
    type Out = ();

    fn locks(&self) -> LockSet {
        LockSet::default()
    }

    fn run(&self, tx: &mut Tx<'_>) -> Step<()> {
        let decision = tx.table().decide_notified(&self.client);
        if !decision.transitions.is_empty() && !tx.table().is_holder(&self.client) {
            tx.remove(Key::notify(plain_hash(&self.client)));
        }
        take(tx, decision);
        Ok(())
    }
}
