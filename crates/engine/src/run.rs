//! How an operation runs: under its locks, at once where memory suffices, else after fetching, on the background
//! runtime.
//!
//! - Between taking a position and applying the entry nothing waits and nothing can be cancelled (engine rule 7).
//! - Log order, overlay order and commit order are one: the entry is appended and applied under the locks of
//!   every inode it changes, and within one open generation (the gate).

use std::sync::Arc;

use tarn_base::ids::Position;
use tarn_base::mutant;
use tarn_vfs::{Answer, Attr, Caller, Done, Effect, Errno, Failure, OnceToken, Reply, Sent, WriteSpeed};
use tarn_wal::LogError;
use tokio::sync::oneshot;

use crate::admission::demand;
use crate::core::{Core, grows};
use crate::entry::{Entry, Payload, SessionChange};
use crate::hold::Held;
use crate::once::Enter;
use crate::overlay::{Extent, Generation, Load, OverlayValue, Source};
use crate::stripes::LockSet;
use crate::tx::{Need, Pins, Step, Stop, Tx};
use crate::value::Inode;

/// An operation: pure over what is in RAM, run again from the start when something was not.
pub trait Operation: Send + 'static {
    type Out: Stamp + Send + Unpin + 'static;

    /// The locks it surely needs; others are asked for while it runs.
    fn locks(&self) -> LockSet;

    fn run(&self, tx: &mut Tx<'_>) -> Step<Self::Out>;

    /// Whether it waits before it runs; of one that is run once, never.
    fn hold(&self, _core: &Arc<Core>) -> Option<Held> {
        None
    }
}

/// The open generation, and what all of them took when it was looked at.
#[derive(Debug)]
pub struct Present {
    pub open: Arc<Generation>,
    pub load: Load,
}

/// What a call tells of itself, besides what it asks for.
#[derive(Clone, Copy, Debug, Default)]
struct Marks {
    token: Option<OnceToken>,
    sent: Option<Sent>,
}

/// A result in which the entry's own position still has to be put.
pub trait Stamp {
    fn stamp(&mut self, _position: Position) {}

    /// As an outcome to be remembered.
    fn effect(&self) -> Option<&Effect> {
        None
    }
}

impl Stamp for Attr {
    fn stamp(&mut self, position: Position) {
        if self.change == Inode::PENDING {
            self.change = position;
        }
        if self.node.generation == Inode::PENDING.0 {
            self.node.generation = position.0;
        }
    }
}

impl Stamp for Effect {
    fn stamp(&mut self, position: Position) {
        let afters = self.changes.iter_mut().filter_map(|change| change.after.as_mut());
        self.attr.iter_mut().chain(afters).for_each(|attr| attr.stamp(position));
    }

    fn effect(&self) -> Option<&Effect> {
        Some(self)
    }
}

impl Stamp for () {}
impl Stamp for bool {}
impl<A, B> Stamp for (A, B) {}
impl<A> Stamp for Option<A> {}
impl Stamp for tarn_vfs::LockOutcome {}
impl Stamp for tarn_vfs::ReadReply {}
impl Stamp for tarn_vfs::ListReply {}
impl Stamp for tarn_vfs::FsStat {}

impl Core {
    /// Runs a changing operation, once if the caller says so.
    pub fn execute_once<O>(self: &Arc<Self>, caller: &Caller, operation: O) -> Answer<Effect>
    where
        O: Operation<Out = Effect>,
    {
        let Some(token) = caller.once else { return self.execute_sent(caller, operation) };
        let marks = Marks { token: Some(token), sent: caller.sent };
        match self.once.enter(&token) {
            Enter::Ran(reply) => {
                let mut reply = *reply;
                let position = match &mut reply {
                    Ok(done) => &mut done.position,
                    Err(done) => &mut done.position,
                };
                *position = self.pending(*position);
                Answer::ready(reply)
            }
            Enter::Runs(receiver) => Answer::Later(receiver),
            Enter::Run => self.start(operation, marks, move |core, reply| core.once.leave(&token, reply)),
        }
    }

    /// Runs a changing operation that may run twice where it comes to the same ([`crate::resent`]).
    pub fn execute_sent<O: Operation>(self: &Arc<Self>, caller: &Caller, operation: O) -> Answer<O::Out> {
        self.execute_marked(operation, Marks { token: None, sent: caller.sent })
    }

    /// Runs an operation.
    pub fn execute<O: Operation>(self: &Arc<Self>, operation: O) -> Answer<O::Out> {
        self.execute_marked(operation, Marks::default())
    }

    fn execute_marked<O: Operation>(self: &Arc<Self>, operation: O, marks: Marks) -> Answer<O::Out> {
        let Some(held) = operation.hold(self) else { return self.start(operation, marks, |_, _| ()) };
        let core = self.clone();
        // Whoever goes away meanwhile has not begun it.
        Answer::Waits(Box::pin(async move {
            held.over().await;
            core.start(operation, marks, |_, _| ()).await
        }))
    }

    fn start<O: Operation>(
        self: &Arc<Self>,
        operation: O,
        marks: Marks,
        end: impl FnOnce(&Core, &Reply<O::Out>) + Send + 'static,
    ) -> Answer<O::Out> {
        let mut locks = operation.locks();
        match self.attempt(&operation, &mut locks, &Pins::default(), marks) {
            Ok(reply) => {
                self.note_refusal(&reply, marks);
                end(self, &reply);
                Answer::ready(reply)
            }
            Err(need) => {
                let (sender, receiver) = oneshot::channel();
                let core = self.clone();
                self.world.spawn.spawn(
                    "operation",
                    Box::pin(async move {
                        let reply = core.finish_later(operation, locks, need, marks).await;
                        core.note_refusal(&reply, marks);
                        end(&core, &reply);
                        // A connection that went away loses a reply, not a change.
                        let _ = sender.send(reply);
                    }),
                );
                Answer::Later(receiver)
            }
        }
    }

    /// A call that was refused has been answered too. One that may be tried again comes under another name.
    fn note_refusal<T>(&self, reply: &Reply<T>, marks: Marks) {
        if let (Err(_), Some(sent)) = (reply, &marks.sent) {
            self.answered(sent);
        }
    }

    /// The call is answered: a copy of it that comes now may change nothing.
    pub fn answered(&self, sent: &Sent) {
        self.resent.note(sent, self.world.clock.steady_about());
    }

    pub fn was_answered(&self, sent: &Sent) -> bool {
        self.resent.answered(sent, self.world.clock.steady_about())
    }

    /// Fetches and runs again until it comes to its end.
    async fn finish_later<O: Operation>(
        self: &Arc<Self>,
        operation: O,
        mut locks: LockSet,
        mut need: Need,
        marks: Marks,
    ) -> Reply<O::Out> {
        let mut pins = Pins::default();
        let mut stale = 0;
        let mut pause = None;
        let mut settled = false;
        let begun = self.world.clock.steady();
        loop {
            if let Some((volume, ino)) = need.settled {
                // It may wait for an exchange.
                pause = None;
                if let Err(errno) = self.settle(volume, ino).await {
                    return Err(Done::now(errno.into()));
                }
                settled = true;
            }
            if need.log_room {
                // Room comes from a checkpoint, which ends in an exchange.
                pause = None;
            }
            if need.log_room && self.world.clock.steady() - begun > self.config.log_wait {
                return Err(Done::now(Errno::TryLater.into()));
            }
            if need.stale {
                pins = Pins::default();
                stale += 1;
                if stale >= 3 && pause.is_none() {
                    // Exchanges come faster than fetches: hold them up for one.
                    pause = Some(self.exchange_pause.read().await);
                }
            }
            if let Err(errno) = self.fetch(&mut pins, &need).await {
                // What cannot be read back cannot be compared with a copy: its client comes again, under another name.
                let copy = marks.sent.is_some_and(|sent| self.was_answered(&sent));
                return Err(Done::now(if copy { Errno::TryLater } else { errno }.into()));
            }
            pins.settled = settled;
            match self.attempt(&operation, &mut locks, &pins, marks) {
                Ok(reply) => {
                    drop(pause);
                    return reply;
                }
                Err(more) => need = more,
            }
        }
    }

    /// One run under the locks, repeated while it asks for more of them.
    fn attempt<O: Operation>(
        &self,
        operation: &O,
        locks: &mut LockSet,
        pins: &Pins,
        marks: Marks,
    ) -> Result<Reply<O::Out>, Need> {
        // Who has been deposed answers nothing: what it would show may not be the present any more.
        if self.health.silent() {
            return Ok(Err(Done::now(Errno::TryLater.into())));
        }
        loop {
            let guards = self.stripes.lock(locks);
            let stack = self.stack.load();
            if !pins.fits(&stack) {
                return Err(Need { stale: true, ..Need::default() });
            }
            let mut tx = Tx::new(self, stack, pins, locks);
            tx.again = marks.sent.is_some_and(|sent| self.was_answered(&sent));
            match operation.run(&mut tx) {
                // It was answered before, and it does not come to the same.
                Ok(_) if tx.again && tx.changes() => return Ok(Err(Done::now(Errno::TryLater.into()))),
                Ok(out) if tx.changes() => match self.commit(tx, out, marks) {
                    Err(need) if need.again => {}
                    end => return end,
                },
                Ok(value) => {
                    // Under the locks: it was answered for what is there now.
                    marks.sent.iter().for_each(|sent| self.answered(sent));
                    let position = self.pending(tx.seen);
                    return Ok(Ok(Done { value, position }));
                }
                // What was answered before may have been done before: then it was not refused.
                Err(Stop::Refuse(_)) if tx.again => return Ok(Err(Done::now(Errno::TryLater.into()))),
                Err(Stop::Refuse(value)) => {
                    let position = self.pending(tx.seen);
                    return Ok(Err(Done { value, position }));
                }
                Err(Stop::Lock(volume, ino, exclusive)) => {
                    drop(tx);
                    drop(guards);
                    locks.add(volume, ino, exclusive);
                }
                Err(Stop::Need) => return Err(tx.into_need()),
            }
        }
    }

    /// The end of a run: position, log, overlay.
    fn commit<T: Stamp>(&self, tx: Tx<'_>, mut out: T, marks: Marks) -> Result<Reply<T>, Need> {
        let grows = tx.entry().filter(|entry| tx.grows || grows(&entry.usage)).map(demand);
        if let Some(errno) = self.refuses_changes(grows) {
            return Ok(Err(Done::now(errno.into())));
        }
        let (settles, closing) = (tx.settles, tx.closing);
        let mut parts = tx.into_parts();
        if let (Some(token), Some(effect)) = (marks.token, out.effect()) {
            parts.entry.session.push(SessionChange::Outcome(token, Box::new(effect.clone())));
        }
        let high = self.write_speed_is_high(&parts.entry);
        let barrier = match (parts.unstable, high) {
            (_, true) => Some(Position::ZERO),
            (true, false) => Some(parts.seen),
            (false, false) => None,
        };
        // Closing a generation waits for this: usage, log, overlay and outcome change within one.
        let gate = self.gate.read();
        if self.health.closing.load(std::sync::atomic::Ordering::Relaxed) && !closing {
            return Ok(Err(Done::now(Errno::TryLater.into())));
        }
        let present = self.present();
        if parts.on_open.is_some_and(|number| number != present.open.number) {
            return Err(Need { again: true, ..Need::default() });
        }
        let bytes = parts.entry.bytes();
        let full = self.ram_bytes(present.load) >= self.config.overlay_limit();
        // The room for what settles was left by what it settles.
        if !settles && (full || !self.has_log_for(&parts.entry.usage, bytes, present.load.unlogged)) {
            return Err(Need { log_room: true, ..Need::default() });
        }
        if grows.is_some_and(|bytes| !self.has_store_for(bytes)) {
            self.want_checkpoint();
            return Err(Need { log_room: true, ..Need::default() });
        }
        if let Err(errno) = self.reserve_usage(&parts.entry) {
            return Ok(Err(Done::now(errno.into())));
        }
        let position = match self.append_gated(&present, &parts.entry, barrier, false) {
            Ok(position) => position,
            Err(failed) => {
                self.return_usage(&parts.entry);
                return match failed {
                    LogError::Full | LogError::Busy => Err(Need { log_room: true, ..Need::default() }),
                    error => Ok(Err(Done::now(self.log_failed(&error).into()))),
                };
            }
        };
        out.stamp(position);
        if settles {
            // Under the file's lock: whoever finds that there is nothing to settle any more waits for this too.
            self.settled.fetch_max(position.0, std::sync::atomic::Ordering::AcqRel);
        }
        if parts.unstable && bytes >= self.config.bypass.write_min / 4 {
            self.streams.takes(&parts.entry);
        }
        if let (Some(token), Some(effect)) = (marks.token, out.effect()) {
            self.once.remember(&token, effect.clone(), position);
        }
        marks.sent.iter().for_each(|sent| self.answered(sent));
        drop(gate);
        if let Some(mut table) = parts.table {
            self.session.apply(&mut table, &parts.transitions, position);
        }
        if !parts.granted.is_empty() {
            self.tell_granted(parts.granted, position);
        }
        Ok(Ok(Done { value: out, position: self.pending(barrier.unwrap_or(position)) }))
    }

    /// Whether the entry's volume is acknowledged from memory.
    fn write_speed_is_high(&self, entry: &Entry) -> bool {
        if self.health.log_late.load(std::sync::atomic::Ordering::Relaxed) {
            return false;
        }
        let volume = entry.keys.first().and_then(|(key, _)| self.volumes.get(key.volume));
        volume.is_some_and(|volume| volume.record.settings.write_speed == WriteSpeed::High)
    }

    /// What an entry is applied to, as long as the caller holds the gate.
    pub fn present(&self) -> Present {
        self.stack.with(|stack| Present { open: stack.open().clone(), load: stack.load() })
    }

    /// Appends an entry and applies it to the open generation, in one order. The caller holds the gate.
    ///
    /// `barrier`: what must be durable before its keys are shown, where that is not its own position.
    /// `reserved`: may use the log's reserve.
    pub fn append_gated(
        &self,
        present: &Present,
        entry: &Entry,
        barrier: Option<Position>,
        reserved: bool,
    ) -> Result<Position, LogError> {
        if mutant::on(mutant::RENAME_IN_TWO_ENTRIES)
            && let Some((first, rest)) = entry.torn()
        {
            self.append_gated(present, &first, barrier, reserved)?;
            self.log.request_flush();
            self.log.flush_now();
            return self.append_gated(present, &rest, barrier, reserved);
        }
        let mut encoded = entry.encode();
        let head = encoded.head.len();
        let apart = !reserved && entry.is_kept() && entry.data_len() >= self.config.kept_min;
        let write = |position: Position, out: &mut Vec<u8>| {
            encoded.stamp(position);
            out.extend_from_slice(&encoded.head);
            if !apart {
                entry.logged().for_each(|bytes| out.extend_from_slice(bytes));
            }
        };
        let appended = match (apart, reserved) {
            (true, _) => self.log.append_before(head, write, entry.pieces())?,
            (false, true) => self.log.append_reserved(head + entry.data_len(), write)?,
            (false, false) => self.log.append_with(head + entry.data_len(), write)?,
        };
        let values = encoded.values.iter().map(|range| bytes::Bytes::copy_from_slice(&encoded.head[range.clone()]));
        let keys = entry.keys.iter().zip(values).map(|((key, value), stamped)| (*key, value.as_ref().map(|_| stamped)));
        let barrier = barrier.unwrap_or(appended.position);
        let Present { open, load } = present;
        for (key, value) in keys {
            open.put(key, OverlayValue { value, barrier, new: entry.new.contains(&key) });
        }
        let ram_bytes = self.ram_bytes(*load);
        let spill = self.config.spills(ram_bytes);
        // A frame of several entries may hold what is the first to stay in the log.
        self.log.expect_reads(ram_bytes > self.config.spills_at() / 2);
        apply_data(open, entry, appended.place, head as u32, spill);
        // The last write of a burst must be seen by itself.
        self.note_progress(open, Load { unlogged: load.unlogged + entry.unlogged_len() as u64, ..*load });
        Ok(appended.position)
    }

    pub(crate) fn reserve_usage(&self, entry: &Entry) -> Result<(), Errno> {
        for (at, (volume, bytes, inodes)) in entry.usage.iter().enumerate() {
            let reserved = match self.volumes.get(*volume) {
                Some(volume) => volume.usage.try_add(*bytes, *inodes, volume.record.settings.size_limit),
                None => {
                    self.add_to_deleted(*volume, *bytes, *inodes);
                    Ok(())
                }
            };
            if let Err(errno) = reserved {
                self.return_first(&entry.usage[..at]);
                return Err(errno);
            }
        }
        Ok(())
    }

    pub(crate) fn return_usage(&self, entry: &Entry) {
        self.return_first(&entry.usage);
    }

    fn return_first(&self, usage: &[(tarn_base::ids::VolumeId, i64, i64)]) {
        for (volume, bytes, inodes) in usage {
            match self.volumes.get(*volume) {
                Some(volume) => volume.usage.add(-bytes, -inodes),
                None => self.add_to_deleted(*volume, -bytes, -inodes),
            }
        }
    }

    /// Charges a volume that was deleted while the operation ran: it may come back.
    fn add_to_deleted(&self, volume: tarn_base::ids::VolumeId, bytes: i64, inodes: i64) {
        if let Some((_, usage)) = self.deleted.lock().get(&volume) {
            usage.add(bytes, inodes);
        }
    }

    /// `position`, or nothing if it is durable already.
    pub fn pending(&self, position: Position) -> Position {
        // What was there at the opening is, though this log may never have held it.
        if position <= self.log.durable().max(self.identity.recovered) { Position::ZERO } else { position }
    }
}

/// Applies discards and data of an entry whose payload lies at `place` in the log, data from `data_at` on.
///
/// `spill`: bytes stay in the log, to be read back.
pub fn apply_data(open: &Generation, entry: &Entry, place: tarn_wal::LogPlace, data_at: u32, spill: bool) {
    for (volume, map, records) in &entry.discards {
        open.discard(*volume, *map, records.clone());
    }
    let mut at = data_at;
    for change in &entry.data {
        let len = change.payload.len();
        let source = match &change.payload {
            Payload::Zero(_) => Source::Zero,
            Payload::Unlogged(bytes) => Source::Unlogged { bytes: bytes.clone(), own: false },
            Payload::Lost(_) => {
                open.touch(change.key, change.generation, change.new);
                continue;
            }
            Payload::Bytes(_) | Payload::Kept(_) if spill => {
                Source::Log(tarn_wal::LogPlace { frame: place.frame, start: place.start + at, len })
            }
            Payload::Kept(bytes) => Source::Held(bytes.clone()),
            // Never the receive buffer (engine rule 13).
            Payload::Bytes(bytes) => {
                open.write_copy(change.key, change.generation, change.new, change.start, bytes);
                at += len;
                continue;
            }
        };
        if change.payload.logged().is_some() {
            at += len;
        }
        let extent = Extent { start: change.start, end: change.start + len, source };
        open.write(change.key, change.generation, change.new, extent);
    }
}

/// A refusal that carries attributes.
pub fn refuse(errno: Errno, changes: [tarn_vfs::Change; 2]) -> Stop {
    Stop::Refuse(Failure { errno, changes: changes.into() })
}
