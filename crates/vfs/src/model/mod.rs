//! The whole file system in memory: a fake for tests of front ends, and the oracle of the simulator.
//!
//! - Every operation of the contract, complete, and every answer here at once with [`Position::ZERO`].
//! - Deterministic: the same calls under the same clock give the same state and the same answers.
//! - Simple before fast: one mutex, ordered maps; usage is counted when it is asked for.
//! - What POSIX says it asks of [`crate::posix`], [`crate::name`] and [`crate::locks`], as the engine does.
//! - [`Model::snapshot`] is a model of its own from then on and shares what neither changes.

mod clock;
mod content;
mod names;
mod objects;
mod once;
mod state;

use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use tarn_base::ids::{Position, VolumeId};
use tarn_base::time::Time;
use tarn_base::world::Clock;

pub use clock::FixedClock;
pub use once::OUTCOMES_MAX;

use names::Make;
use once::{Remembered, answer};
use state::{Content, Object, Outcome, State};

use crate::answer::Answer;
use crate::contract::{EventSink, FileSystem};
use crate::handle::HandleKey;
use crate::types::*;

/// A file system in memory.
pub struct Model {
    state: Mutex<State>,
    clock: Arc<dyn Clock>,
    sink: Mutex<Option<Arc<dyn EventSink>>>,
}

impl std::fmt::Debug for Model {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Model")
    }
}

impl Model {
    /// No volume yet.
    pub fn new(clock: Arc<dyn Clock>) -> Model {
        Model { state: Mutex::new(State::new()), clock, sink: Mutex::new(None) }
    }

    /// One volume `vol` with default settings, its root the superuser's, under a clock that stands still.
    pub fn with_volume() -> Model {
        let model = Model::new(Arc::new(FixedClock::new()));
        model.add_volume("vol", VolumeSettings::default(), &Caller::root());
        model
    }

    /// A new volume, whose root directory belongs to `owner`.
    pub fn add_volume(&self, name: &str, settings: VolumeSettings, owner: &Caller) -> VolumeInfo {
        let now = self.clock.now();
        self.state.lock().add_volume(name, settings, owner, now)
    }

    /// What there is now, as a model of its own: later changes to either do not touch the other. It has no event
    /// sink.
    pub fn snapshot(&self) -> Model {
        let state = self.state.lock().clone();
        Model { state: Mutex::new(state), clock: self.clock.clone(), sink: Mutex::new(None) }
    }

    /// Goes back to what a snapshot has; the event sink stays.
    pub fn restore(&self, snapshot: &Model) {
        let state = snapshot.state.lock().clone();
        *self.state.lock() = state;
    }

    /// Bytes of a file; nothing if it is not there.
    pub fn size(&self, node: Node) -> Option<u64> {
        self.state.lock().get(node).ok().map(|object| object.attr.size)
    }

    /// Bytes of a file, zeros beyond its end; nothing if it is not there. Sets no access time.
    pub fn peek(&self, node: Node, offset: u64, count: usize) -> Option<Vec<u8>> {
        let state = self.state.lock();
        match &state.get(node).ok()?.content {
            Content::File(records) => Some(records.read(offset, count)),
            _ => None,
        }
    }

    /// Puts bytes into a file, within its size, and changes nothing else of it: what a crash has left of UNSTABLE data.
    pub fn patch(&self, node: Node, offset: u64, data: &[u8]) {
        let mut state = self.state.lock();
        if state.get(node).is_ok()
            && let Ok(Object { content: Content::File(records), .. }) = state.edit(node)
        {
            records.write(offset, data);
        }
    }

    /// The position of the last change; a change of locks alone has none.
    pub fn position(&self) -> Position {
        self.state.lock().position
    }

    /// Begins or ends the grace period.
    pub fn set_grace(&self, in_grace: bool) {
        self.state.lock().in_grace = in_grace;
    }

    /// As after a restart that lost the log: remembered outcomes and locks are gone, holders are to be notified,
    /// the incarnation grows.
    pub fn lose_session_state(&self) {
        let mut state = self.state.lock();
        let holders = state.locks.holders();
        state.outcomes = once::Outcomes::default();
        state.locks = crate::locks::LockTable::new();
        let decision = state.locks.decide_notify(holders);
        state.take(decision);
        state.position = Position::new(state.position.incarnation() + 1, 0);
    }

    /// Runs an operation that reads.
    fn look<T>(&self, with: impl FnOnce(&mut State, Time) -> Outcome<T>) -> Answer<T> {
        let now = self.clock.now();
        answer(with(&mut self.state.lock(), now))
    }

    /// Runs an operation that changes something, at most once per token, and tells what it granted.
    fn change<T: Remembered + Clone>(
        &self,
        caller: &Caller,
        with: impl FnOnce(&mut State, Time) -> Outcome<T>,
    ) -> Answer<T> {
        let now = self.clock.now();
        let (result, events) = {
            let mut state = self.state.lock();
            if let Some(result) = caller.once.and_then(|token| state.outcomes.recall(token)) {
                return answer(result);
            }
            if caller.sent.is_some_and(|call| state.answered.contains(&(call.client, call.name))) {
                return Answer::refuse(crate::error::Failure::from(crate::error::Errno::TryLater));
            }
            let result = with(&mut state, now);
            if let Some(token) = caller.once {
                state.outcomes.remember(token, &result);
            }
            (result, std::mem::take(&mut state.events))
        };
        let sink = self.sink.lock().clone();
        for event in events {
            if let Some(sink) = &sink {
                sink.event(event);
            }
        }
        answer(result)
    }
}

impl FileSystem for Model {
    fn volumes(&self) -> Volumes {
        Arc::new(self.state.lock().volumes.values().map(|volume| volume.info.clone()).collect())
    }

    fn handle_key(&self) -> HandleKey {
        HandleKey(*b"the model's key.")
    }

    fn write_verifier(&self) -> [u8; 8] {
        u64::from(self.incarnation()).to_be_bytes()
    }

    fn incarnation(&self) -> u32 {
        self.state.lock().position.incarnation()
    }

    fn durable(&self, _position: Position) -> Answer<()> {
        Answer::ok(())
    }

    fn statfs(&self, _caller: &Caller, volume: VolumeId) -> Answer<FsStat> {
        self.look(|state, _| state.statfs(volume))
    }

    fn getattr(&self, _caller: &Caller, node: Node) -> Answer<Attr> {
        self.look(|state, _| Ok(state.get(node)?.attr.clone()))
    }

    fn setattr(&self, caller: &Caller, node: Node, set: SetAttr) -> Answer<Effect> {
        self.change(caller, |state, now| state.setattr(caller, node, &set, now))
    }

    fn access(&self, caller: &Caller, node: Node, want: Access) -> Answer<(Access, Attr)> {
        self.look(|state, _| state.access(caller, node, want))
    }

    fn readlink(&self, _caller: &Caller, node: Node) -> Answer<(Bytes, Attr)> {
        self.look(|state, now| state.readlink(node, now))
    }

    fn read(&self, caller: &Caller, node: Node, offset: u64, count: u32) -> Answer<ReadReply> {
        self.look(|state, now| state.read(caller, node, offset, count, now))
    }

    fn write(&self, caller: &Caller, node: Node, offset: u64, data: Bytes, stability: Stability) -> Answer<Effect> {
        self.change(caller, |state, now| state.write(caller, node, offset, &data, stability, now))
    }

    fn commit(&self, _caller: &Caller, node: Node) -> Answer<Effect> {
        self.look(|state, _| state.commit(node))
    }

    fn lookup(&self, caller: &Caller, dir: Node, name: &[u8]) -> Answer<(Attr, Attr)> {
        self.look(|state, _| state.lookup(caller, dir, name))
    }

    fn list(&self, caller: &Caller, dir: Node, request: ListRequest) -> Answer<ListReply> {
        self.look(|state, now| state.list(caller, dir, request, now))
    }

    fn create(&self, caller: &Caller, dir: Node, name: &[u8], mode: CreateMode, set: SetAttr) -> Answer<Effect> {
        self.change(caller, |state, now| state.create(caller, dir, name, mode, &set, now))
    }

    fn mkdir(&self, caller: &Caller, dir: Node, name: &[u8], set: SetAttr) -> Answer<Effect> {
        self.change(caller, |state, now| state.make(caller, dir, name, Make::Directory, &set, now))
    }

    fn make(&self, caller: &Caller, dir: Node, name: &[u8], what: Special, set: SetAttr) -> Answer<Effect> {
        self.change(caller, |state, now| state.make(caller, dir, name, Make::Special(&what), &set, now))
    }

    fn link(&self, caller: &Caller, node: Node, dir: Node, name: &[u8]) -> Answer<Effect> {
        self.change(caller, |state, now| state.link(caller, node, dir, name, now))
    }

    fn remove(&self, caller: &Caller, dir: Node, name: &[u8]) -> Answer<Effect> {
        self.change(caller, |state, now| state.remove(caller, dir, name, false, now))
    }

    fn rmdir(&self, caller: &Caller, dir: Node, name: &[u8]) -> Answer<Effect> {
        self.change(caller, |state, now| state.remove(caller, dir, name, true, now))
    }

    fn rename(&self, caller: &Caller, from: Node, name: &[u8], to: Node, new_name: &[u8]) -> Answer<Effect> {
        self.change(caller, |state, now| state.rename(caller, from, name, to, new_name, now))
    }

    /// A copy of a call that was answered is granted what is held, and nothing else.
    fn lock(&self, caller: &Caller, request: LockRequest) -> Answer<LockOutcome> {
        let stands = |info: &LockInfo| !info.waiting && info.lock == request.lock;
        let is_copy = caller.sent.is_some_and(|call| self.was_answered(&call));
        if is_copy && self.locks().iter().any(stands) {
            return Answer::ready(Ok(crate::Done { value: LockOutcome::Granted, position: Position::ZERO }));
        }
        let answer = self.change(caller, |state, _| {
            state.get(request.lock.node)?;
            let decision = state.locks.decide_lock(&request, state.in_grace)?;
            Ok(state.take(decision))
        });
        caller.sent.iter().for_each(|call| self.answered(call));
        answer
    }

    fn unlock(&self, caller: &Caller, node: Node, owner: LockOwner, range: LockRange) -> Answer<()> {
        self.change(caller, |state, _| {
            state.get(node)?;
            let decision = state.locks.decide_unlock(node, &owner, range)?;
            state.take(decision);
            Ok(())
        })
    }

    fn test_lock(&self, _caller: &Caller, lock: Lock) -> Answer<Option<Lock>> {
        self.look(|state, _| {
            state.get(lock.node)?;
            Ok(state.locks.test(&lock)?)
        })
    }

    fn cancel_lock(&self, caller: &Caller, lock: Lock) -> Answer<bool> {
        self.change(caller, |state, _| {
            let decision = state.locks.decide_cancel(&lock);
            Ok(state.take(decision))
        })
    }

    fn release_client(&self, client: &[u8]) -> Answer<()> {
        self.change(&Caller::root(), |state, _| {
            let decision = state.locks.decide_release_client(client);
            state.take(decision);
            Ok(())
        })
    }

    fn locks(&self) -> Vec<LockInfo> {
        self.state.lock().locks.list()
    }

    fn locks_position(&self) -> Position {
        Position::ZERO
    }

    fn clients_to_notify(&self) -> Vec<(Bytes, Bytes)> {
        self.state.lock().locks.to_notify()
    }

    fn client_notified(&self, client: &[u8]) -> Answer<()> {
        self.change(&Caller::root(), |state, _| {
            let decision = state.locks.decide_notified(client);
            state.take(decision);
            Ok(())
        })
    }

    fn answered(&self, call: &Sent) {
        self.state.lock().answered.insert((call.client, call.name));
    }

    fn was_answered(&self, call: &Sent) -> bool {
        self.state.lock().answered.contains(&(call.client, call.name))
    }

    fn in_grace(&self) -> bool {
        self.state.lock().in_grace
    }

    fn set_event_sink(&self, sink: Arc<dyn EventSink>) {
        *self.sink.lock() = Some(sink);
    }
}
