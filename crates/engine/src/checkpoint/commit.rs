//! Making a checkpoint durable: one batch with P inside it.
//!
//! - The record of ownership is looked at before every batch.
//! - After an error the store is opened anew and its state read: it alone says whether the batch is there
//!   (engine rule 15).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tarn_base::ids::VolumeId;
use tarn_base::mutant;
use tarn_data::{SegmentState, SegmentValue, object_name};
use tarn_meta::{Batch, MetaError, MetaLook, MetaStore, MetaView};

use super::collect::{Collected, damaged};
use super::pack::{Packed, RESERVE};
use super::stages::Lap;
use super::table::Table;
use super::{CheckpointError, Done, Keeper, Turn};
use crate::dedupe::Known;
use crate::key::{KEY_SIZE, Key, Kind, segment_id};
use crate::overlay::{Closed, Span};
use crate::value::{ShardState, Usage};

const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LAST_PAUSE: Duration = Duration::from_secs(10);
/// Tries of opening the store again while the engine is closing.
const TRIES_AT_END: u32 = 3;

impl Keeper {
    /// Commits what was collected and packed, shows it and trims the log.
    pub(super) async fn finish(
        &self,
        turn: &mut Turn,
        span: &Span,
        collected: Collected,
        packed: Packed,
        finally: bool,
    ) -> Result<Done, CheckpointError> {
        let closed = span.end();
        let changes = self.core.segments.waiting();
        let drawn: Vec<u32> = packed.segments.keys().map(|segment| segment.counter).collect();
        let view = self.core.stack.load().view.clone();
        let built = async {
            if !packed.segments.is_empty() {
                self.room_after_segments()?;
            }
            let mut table = Table::new(&self.core, &view, &packed.segments);
            table.point(&collected.dead, &packed.shared).await?;
            table.apply(&changes).await?;
            let usage = usage_of_what_is_there(&view, closed, &collected).await?;
            Ok::<_, CheckpointError>((table.finish(), usage))
        };
        let state = self.next_state(turn, closed, finally);
        let mut lap = Lap::new(&self.core.world);
        let built = built.await;
        turn.stages.table = lap.next();
        if mutant::on(mutant::TRIM_TOO_EARLY) {
            self.trim(closed.last).await?;
        }
        let committed = match built {
            Ok((segments, usage)) => {
                if mutant::on(mutant::DELETED_BEFORE_BATCH) {
                    self.delete_at_once(&segments).await;
                }
                let mut batch = batch(&usage, &collected, &packed, segments, &state);
                if mutant::on(mutant::RENAME_IN_TWO_BATCHES) {
                    // The shard's state, which says P, sorts first.
                    let rest = batch.changes.split_off(batch.changes.len() / 2);
                    self.commit(turn, std::mem::replace(&mut batch, Batch { changes: rest }), state.clone()).await?;
                }
                self.commit(turn, batch, state).await
            }
            Err(error) => Err(error),
        };
        turn.stages.commit = lap.next();
        if let Err(error) = committed {
            self.give_up(turn, &packed, drawn).await;
            return Err(error);
        }
        self.core.segments.done(changes.len());
        turn.landed(&changes);
        self.note_content(&packed);
        self.core.config.crash_point("the batch is durable").await;
        self.core.look_for_room();
        if let Err(error) = self.verify(turn).await {
            // Whether the batch is there is for the store to say once it is whole again.
            turn.undecided.extend(drawn);
            return Err(error);
        }
        let done = Done { position: closed.last, keys: collected.keys.len() as u64, ..packed.done() };
        self.show(turn, span.number(), collected, packed, &changes).await?;
        turn.stages.show = lap.next();
        turn.trimmed = closed.last;
        self.trim(closed.last).await?;
        turn.stages.trim = lap.next();
        Ok(done)
    }

    /// The batch is not there, or nobody can say.
    async fn give_up(&self, turn: &mut Turn, packed: &Packed, drawn: Vec<u32>) {
        if turn.meta.is_some() {
            self.forget(packed);
            turn.given_up.extend(drawn);
        } else {
            // Nobody could say: the objects may be needed.
            turn.undecided.extend(drawn);
        }
    }

    /// Deletes what the batch is about to condemn, for the mutant that does not wait for it.
    async fn delete_at_once(&self, segments: &BTreeMap<Key, Option<Bytes>>) {
        for (key, value) in segments {
            let value = value.as_ref().and_then(|value| SegmentValue::decode(value).ok());
            if value.is_some_and(|value| matches!(value.state, SegmentState::Condemned { .. })) {
                let _ = self.core.segments.store.delete(&object_name(segment_id(key.a))).await;
            }
        }
    }

    /// Tells the dedupe index what the store holds from now on.
    fn note_content(&self, packed: &Packed) {
        for ((_, hash), pointer) in &packed.fresh {
            let known = Known { pointer: *pointer, placed: true, trusted: None };
            self.core.dedupe.learn(*hash, self.core.dedupe.trusting(known));
        }
        self.core.dedupe.hit(&packed.shared);
    }

    /// The shard's state with all up to `closed` in the store.
    fn next_state(&self, turn: &Turn, closed: &Closed, finally: bool) -> ShardState {
        let beyond = if finally { 0 } else { RESERVE };
        let reserved = if finally { turn.next_segment } else { turn.state.reserved_counter };
        ShardState {
            reserved_epoch: self.epoch,
            reserved_counter: reserved.max(turn.next_segment + beyond),
            settled_counter: turn.settled(),
            // A generation that was closed before a recovery does not know how far the numbers jumped after it.
            next_inode: closed.state.next_inode.max(turn.state.next_inode),
            next_volume: closed.state.next_volume.max(turn.state.next_volume),
            lineage: turn.state.lineage,
            ..closed.state.clone()
        }
    }

    /// Gives reserved numbers back that were never drawn: the next opening has no objects to look for.
    pub(super) async fn release(&self, turn: &mut Turn) -> Result<(), CheckpointError> {
        if turn.state.reserved_counter == turn.next_segment || turn.settled() < turn.next_segment {
            return Ok(());
        }
        let (reserved_counter, settled_counter) = (turn.next_segment, turn.next_segment);
        let state = ShardState { reserved_counter, settled_counter, ..turn.state.clone() };
        let batch = Batch { changes: vec![shard_change(&state)] };
        self.commit(turn, batch, state).await
    }

    /// Reserves further segment numbers, durably, P unchanged.
    pub(super) async fn reserve(&self, turn: &mut Turn) -> Result<(), CheckpointError> {
        let reserved_counter = turn.next_segment + 4 * RESERVE;
        let state = ShardState { reserved_counter, reserved_epoch: self.epoch, ..turn.state.clone() };
        let batch = Batch { changes: vec![shard_change(&state)] };
        self.commit(turn, batch, state).await
    }

    /// Makes a batch durable that brings the shard to `state`. After an error the batch is not there if the store is
    /// open; if it is not, nobody knows.
    async fn commit(&self, turn: &mut Turn, batch: Batch, state: ShardState) -> Result<(), CheckpointError> {
        self.ours(turn).await?;
        let meta = self.ready(turn).await?;
        self.glance(turn, &*meta).await?;
        self.room_for(&batch)?;
        self.core.config.crash_point("before the batch").await;
        let Err(error) = meta.commit(batch).await else {
            turn.state = state;
            return Ok(());
        };
        tracing::warn!(%error, "the metadata store failed; it is opened again");
        turn.meta = None;
        // The record says who owns the shard. A metadata store whose answer was lost can take its own writing for
        // another's.
        self.note_fence(turn, &error);
        if let Err(error) = meta.close().await {
            tracing::debug!(%error, "closing the metadata store after its failure");
        }
        // Until it answers nobody knows whether the batch is there, and nothing else can be decided.
        let mut pause = FIRST_PAUSE;
        let mut tries = 0;
        loop {
            self.core.config.crash_point("before opening the metadata store again").await;
            match self.ready(turn).await {
                Ok(_) if turn.state == state && !mutant::on(mutant::CHECKPOINT_DONE_TWICE) => return Ok(()),
                Ok(_) => return Err(not_there(error)),
                Err(CheckpointError::Deposed) => return Err(CheckpointError::Deposed),
                Err(again) => {
                    tracing::warn!(error = %again, "the metadata store does not open");
                    self.note_failure(&again);
                }
            }
            tries += 1;
            if self.stopping() && tries >= TRIES_AT_END {
                return Err(error.into());
            }
            self.core.world.clock.sleep(pause).await;
            pause = (pause * 2).min(LAST_PAUSE);
        }
    }

    /// The metadata store, opened again if it has failed, and then its state read anew.
    pub(super) async fn ready(&self, turn: &mut Turn) -> Result<Arc<dyn MetaStore>, CheckpointError> {
        self.reconsider(turn).await?;
        if let Some(meta) = &turn.meta {
            return Ok(meta.clone());
        }
        // Opening would fence whoever came after us, and make what is not there.
        self.ours(turn).await?;
        if !self.opener.inspect().await? {
            return Err(CheckpointError::Gone("every object of its metadata, below meta/".into()));
        }
        let (meta, state) = match self.open_again(turn).await {
            Ok(opened) => opened,
            Err(error) => {
                self.read_on(turn).await;
                return Err(error);
            }
        };
        turn.state = state;
        turn.fenced = false;
        turn.meta = Some(meta.clone());
        // Views of the store that failed read nothing any more. This one may be a batch further than the stack thinks:
        // the generation that is still over it says the same.
        self.core.stack.show().exchange(0, meta.view());
        if let Some(look) = turn.look.take() {
            end_look(&*look).await;
        }
        Ok(meta)
    }

    async fn open_again(&self, turn: &mut Turn) -> Result<(Arc<dyn MetaStore>, ShardState), CheckpointError> {
        let meta = self.opener.open().await.inspect_err(|error| self.note_fence(turn, error))?;
        let value = meta.view().get(&Key::shard().encode()).await.inspect_err(|error| self.note_fence(turn, error))?;
        let state = self.state_in(turn, value)?;
        Ok((meta, state))
    }

    /// The shard's state as `value` has it, if it is one that this opening left.
    fn state_in(&self, turn: &Turn, value: Option<Bytes>) -> Result<ShardState, CheckpointError> {
        let key = Key::shard();
        let value = value.ok_or_else(|| damaged(&self.core, &key, "it is missing"))?;
        let state = ShardState::decode(&value).map_err(|error| damaged(&self.core, &key, &error.to_string()))?;
        if state.position < turn.trimmed {
            let (held, trimmed) = (state.position, turn.trimmed);
            let what = format!("the changes from {held} to {trimmed}, for it was put back to an earlier state");
            return Err(CheckpointError::Gone(what));
        }
        if state.reserved_epoch < self.epoch {
            let what = "what this start has written to it first, for it was put back to an earlier state".to_owned();
            return Err(CheckpointError::Gone(what));
        }
        Ok(state)
    }

    /// Whether no metadata store is open for writing; one that has ended by itself is closed.
    pub(super) async fn has_ended(&self, turn: &mut Turn) -> bool {
        let ended = turn.meta.as_ref().and_then(|meta| meta.ended());
        if turn.meta.is_some() && ended.is_none() {
            return false;
        }
        if let Some(error) = ended {
            tracing::warn!(%error, "the metadata store has ended; it is opened again");
            self.note_fence(turn, &error);
        }
        if let Some(meta) = turn.meta.take()
            && let Err(error) = meta.close().await
        {
            tracing::debug!(%error, "closing the metadata store that has ended");
        }
        true
    }

    /// Without the room that opening again would take: as [`Keeper::read_on`], if nothing is open.
    pub(super) async fn read_without_room(&self, turn: &mut Turn) {
        if self.has_ended(turn).await && self.ours(turn).await.is_ok() {
            self.read_on(turn).await;
        }
    }

    /// Lets clients read on what the store holds while it does not open for writing, as one does that takes no more: views of
    /// what failed read nothing any more. Each time anew, for another may have written since.
    async fn read_on(&self, turn: &mut Turn) {
        let look = match self.opener.look().await {
            Ok(Some(look)) => look,
            Ok(None) => return,
            Err(error) => {
                tracing::warn!(%error, "the metadata store cannot be read either");
                return;
            }
        };
        let before = if self.is_of_ours(turn, &*look).await {
            // It may be a batch further, as one that is opened.
            self.core.stack.show().exchange(0, look.view());
            turn.look.replace(look)
        } else {
            end_look(&*look).await;
            turn.look.take()
        };
        match before {
            Some(before) => end_look(&*before).await,
            None if turn.look.is_some() => tracing::warn!("the metadata store is only read from until it opens again"),
            None => {}
        }
    }

    /// Whether it reads what this opening left, and nobody after it.
    async fn is_of_ours(&self, turn: &Turn, look: &dyn MetaLook) -> bool {
        let Ok(value) = look.view().get(&Key::shard().encode()).await else { return false };
        self.state_in(turn, value).is_ok_and(|state| state.reserved_epoch == self.epoch)
    }
}

pub(super) async fn end_look(look: &dyn MetaLook) {
    if let Err(error) = look.close().await {
        tracing::debug!(%error, "ending a look at the metadata store");
    }
}

/// What the failure of a batch comes to, once the store is open again and has it not.
fn not_there(error: MetaError) -> CheckpointError {
    match error {
        MetaError::Fenced(_) | MetaError::Unavailable(_) | MetaError::Unknown(_) => {
            CheckpointError::Again(error.to_string())
        }
        MetaError::Full(_) | MetaError::Damaged(_) | MetaError::Gone(_) => error.into(),
    }
}

fn shard_change(state: &ShardState) -> (Bytes, Option<Bytes>) {
    (Key::shard().bytes(), Some(encoded(|out| state.encode(out))))
}

fn encoded(encode: impl FnOnce(&mut Vec<u8>)) -> Bytes {
    let mut out = Vec::new();
    encode(&mut out);
    out.into()
}

/// The encodings of `items`, of about `each` bytes, in one piece of memory: one for each item costs more than its bytes.
fn encoded_together<T, E: Fn(&T, &mut Vec<u8>)>(
    items: &[T],
    each: usize,
    encode: E,
) -> impl Iterator<Item = Bytes> + use<T, E> {
    let mut out = Vec::with_capacity(items.len() * each);
    let mut ends = Vec::with_capacity(items.len());
    for item in items {
        encode(item, &mut out);
        ends.push(out.len());
    }
    let (all, mut from) = (Bytes::from(out), 0);
    ends.into_iter().map(move |end| all.slice(std::mem::replace(&mut from, end)..end))
}

/// Usage of the volumes that are there at the generation's end. One that is being created may be known already without
/// its record being in the log: a crash would leave the usage of a volume that never was.
async fn usage_of_what_is_there(
    view: &Arc<dyn MetaView>,
    closed: &Closed,
    collected: &Collected,
) -> Result<Vec<(VolumeId, Usage)>, CheckpointError> {
    let mut there = Vec::with_capacity(closed.usage.len());
    for (volume, usage) in &closed.usage {
        let key = Key::volume(*volume);
        let is_there = match collected.keys.iter().find(|(changed, _)| *changed == key) {
            Some((_, value)) => value.is_some(),
            None => view.get(&key.encode()).await?.is_some(),
        };
        if is_there {
            there.push((*volume, *usage));
        }
    }
    Ok(there)
}

/// Everything of one checkpoint, each key once.
fn batch(
    usage: &[(VolumeId, Usage)],
    collected: &Collected,
    packed: &Packed,
    segments: BTreeMap<Key, Option<Bytes>>,
    state: &ShardState,
) -> Batch {
    let mut changes = Vec::with_capacity(collected.keys.len() + packed.pointers.len() + segments.len() + usage.len());
    // SlateDB takes hold of each value several times, which costs more of many pieces of memory than of one.
    let values =
        encoded_together(&collected.keys, 64, |(_, value), out| out.extend_from_slice(value.as_deref().unwrap_or(&[])));
    changes
        .extend(collected.keys.iter().zip(values).map(|((key, value), copy)| (*key, value.is_some().then_some(copy))));
    let pointers = encoded_together(&packed.pointers, 48, |(_, pointer), out| pointer.encode(out));
    changes.extend(packed.pointers.iter().zip(pointers).map(|((key, _), value)| (*key, Some(value))));
    changes.extend(segments);
    changes.extend(usage.iter().map(|(volume, usage)| (Key::usage(*volume), Some(encoded(|out| usage.encode(out))))));
    debug_assert!(changes.iter().all(|(key, _)| key.kind != Kind::Shard));
    // What comes later counts. Few runs that are in order already, which this sort makes use of.
    changes.sort_by_key(|(key, _)| *key);
    changes.dedup_by(|later, held| {
        let same = later.0 == held.0;
        if same {
            std::mem::swap(later, held);
        }
        same
    });
    let keys = encoded_together(&changes, KEY_SIZE, |(key, _), out| out.extend_from_slice(&key.encode()));
    let mut batch = Vec::with_capacity(changes.len() + 1);
    batch.push(shard_change(state));
    batch.extend(keys.zip(changes.into_iter().map(|(_, value)| value)));
    Batch { changes: batch }
}
