//! Records into segments, segments into the store.
//!
//! - A segment number is durably reserved before its object is written (engine rule 24).
//! - An object whose PUT was not confirmed gives its number up: the bytes are bound to it, and it is never used again
//!   (engine rule 15).
//! - A record whose content is there already, in this checkpoint or before, is pointed to and not stored (rule 25). One
//!   that nobody in this life has written or read whole is read back and compared first: what is acknowledged must not
//!   come to hang on what is gone bad.
//! - Few PUTs are under way at once, which bounds the memory they take.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use tarn_base::ids::{SegmentId, Uuid, VolumeId};
use tarn_base::mutant;
use tarn_base::turns::Turns;
use tarn_data::{Compression, RecordHash, RecordPointer, SegmentBuilder, SegmentValue};
use tarn_store::StoreError;
use tarn_vfs::{CompressionSetting, Errno};
use tokio::sync::oneshot;

use super::collect::{Due, damaged};
use super::merge::Merged;
use super::{CheckpointError, Done, Keeper, Stages, Turn};
use crate::config::Config;
use crate::core::Core;
use crate::dedupe::{Known, LENGTH_MIN};
use crate::key::Key;
use crate::records::Family;

/// PUTs at once: as many as a disk needs to be busy, fewer where their segments were more than a share of the memory for changes.
const PUTS_MAX: u64 = 8;
const PUTS_MIN: u64 = 4;
const PUTS_SHARE: u64 = 8;
/// Segment numbers reserved beyond those in use.
pub(crate) const RESERVE: u32 = 64;

/// The first epoch: snapshots would count it.
const BORN: u32 = 1;
/// Segments that dedupe keeps the values of.
const SEEN_MAX: usize = 10_000;

/// Records read back at once before they are shared.
const CHECKS_MAX: usize = 16;

/// How many PUTs may be under way.
fn puts_at_once(config: &Config) -> usize {
    let fit = config.overlay_limit() / PUTS_SHARE / u64::from(config.segment_bytes).max(1);
    fit.clamp(PUTS_MIN, PUTS_MAX) as usize
}

type Put = Pin<Box<dyn Future<Output = (SegmentId, Result<(), StoreError>)> + Send>>;
type Checking = Pin<Box<dyn Future<Output = Check> + Send>>;

/// A record to be stored or shared.
#[derive(Debug)]
struct Record {
    /// Of its pointer.
    key: Key,
    /// Of its map.
    generation: u32,
    family: Family,
    plain: Bytes,
    /// The buffer holds nothing else.
    own: bool,
    lost: u32,
    zeros: u32,
    /// Of its content, if it may be shared.
    hash: Option<RecordHash>,
    /// Readers are likely to ask for it.
    wanted: bool,
}

impl Record {
    /// Whose content it is, and which, if it may be shared.
    fn content(&self) -> Option<(Uuid, RecordHash)> {
        self.hash.map(|hash| (self.family.key.id(), hash))
    }
}

/// What a record that may hold this content was found to hold.
#[derive(Debug)]
struct Check {
    record: Record,
    hash: RecordHash,
    known: Known,
    outcome: Result<Bytes, Errno>,
}

/// Reads a record back that nobody in this life has written or read.
fn check(core: Arc<Core>, record: Record, hash: RecordHash, known: Known) -> Checking {
    Box::pin(async move {
        // What is found damaged meanwhile makes it doubtful again.
        let known = core.dedupe.trusting(known);
        let outcome = core.read_back(record.key.volume, &known.pointer).await;
        Check { record, hash, known, outcome }
    })
}

/// What came of packing.
#[derive(Debug, Default)]
pub struct Packed {
    /// New pointers, in order of key.
    pub pointers: Vec<(Key, RecordPointer)>,
    pub segments: BTreeMap<SegmentId, SegmentValue>,
    pub bytes: u64,
    /// Of `pointers` those to records that another pointer names already.
    pub shared: Vec<RecordPointer>,
    /// What of the new records the dedupe index is to learn, by family.
    pub fresh: BTreeMap<(Uuid, RecordHash), RecordPointer>,
}

pub struct Packer<'a> {
    keeper: &'a Keeper,
    turn: &'a mut Turn,
    /// Families of the volumes met; `None`: the volume is gone.
    families: BTreeMap<VolumeId, Option<Family>>,
    builders: BTreeMap<Uuid, SegmentBuilder>,
    puts: FuturesUnordered<Put>,
    checks: FuturesUnordered<Checking>,
    /// Numbers drawn since the packer was made.
    drawn: Vec<u32>,
    /// Segments that dedupe asked for, as the view has them.
    seen: BTreeMap<SegmentId, Option<SegmentValue>>,
    packed: Packed,
    turns: Turns,
}

impl<'a> Packer<'a> {
    pub(super) fn new(keeper: &'a Keeper, turn: &'a mut Turn) -> Packer<'a> {
        Packer {
            keeper,
            turn,
            families: BTreeMap::new(),
            builders: BTreeMap::new(),
            puts: FuturesUnordered::new(),
            checks: FuturesUnordered::new(),
            drawn: Vec::new(),
            seen: BTreeMap::new(),
            packed: Packed::default(),
            turns: Turns::default(),
        }
    }

    /// Before something is given up: whether that in which it is missing is ours, and whole.
    pub(super) async fn surely_whole(&mut self) -> Result<(), CheckpointError> {
        self.keeper.surely_ours().await?;
        self.keeper.verify(self.turn).await
    }

    pub(super) fn stages(&mut self) -> &mut Stages {
        &mut self.turn.stages
    }

    /// Adds a record; its pointer counts if the whole succeeds.
    pub async fn push(&mut self, due: &Due, merged: Merged) -> Result<(), CheckpointError> {
        let Merged { plain, own, lost, zeros, wanted } = merged;
        let volume = due.key.0;
        if !self.families.contains_key(&volume) {
            let family = self.keeper.core.family(volume).await?;
            self.families.insert(volume, family);
        }
        let Some(Some(family)) = self.families.get(&volume).cloned() else { return Ok(()) };
        // What lists lost bytes stays by itself: it is rewritten as soon as they are.
        let dedupe = family.dedupe && lost == 0 && plain.len() >= LENGTH_MIN;
        let hash = dedupe.then(|| match family.key.hash(&plain) {
            hash if mutant::on(mutant::CONTENT_TAKEN_BY_LENGTH) => [hash[0] & 1; 32],
            hash => hash,
        });
        let key = Key::pointer(volume, due.key.1, due.key.2);
        let generation = due.dirty.generation;
        let record = Record { key, generation, family, plain, own, lost, zeros, hash, wanted };
        let Some(content) = record.content() else { return self.store(record).await };
        if let Some(pointer) = self.packed.fresh.get(&content).copied() {
            self.share(&record, pointer);
            return Ok(());
        }
        match self.known(&record, &content.1).await? {
            Some((known, true)) => {
                self.share(&record, known.pointer);
                Ok(())
            }
            Some((known, false)) => {
                self.checks.push(check(self.keeper.core.clone(), record, content.1, known));
                self.settle_checks(CHECKS_MAX).await
            }
            None => self.store(record).await,
        }
    }

    /// A record of the family that holds this content and lives in the view that the batch is built on, and whether it is
    /// trusted to be whole. Nothing takes it away before the batch: checkpoints go one at a time, and what else the batch
    /// changes is weighed against the new pointer ([`super::table`]).
    async fn known(&mut self, record: &Record, hash: &RecordHash) -> Result<Option<(Known, bool)>, CheckpointError> {
        let core = &self.keeper.core;
        let Some(known) = core.dedupe.find(hash, record.plain.len()) else { return Ok(None) };
        let segment = known.pointer.segment;
        if !self.seen.contains_key(&segment) {
            let view = core.stack.load().view.clone();
            let key = Key::segment(segment);
            let value = view.get(&key.encode()).await?.map(|value| SegmentValue::decode(&value)).transpose();
            let value = value.map_err(|error| damaged(core, &key, &error.to_string()))?;
            if self.seen.len() >= SEEN_MAX {
                self.seen.clear();
            }
            self.seen.insert(segment, value);
        }
        let family = record.family.key.id();
        let lives = self.seen.get(&segment).and_then(Option::as_ref).is_some_and(|value| known.lives(value, family));
        if !lives {
            core.dedupe.forget(hash);
            return Ok(None);
        }
        Ok(Some((known, core.dedupe.trusts(&known))))
    }

    /// Waits until fewer than `most` records are being read back, and shares or stores what was decided.
    async fn settle_checks(&mut self, most: usize) -> Result<(), CheckpointError> {
        while self.checks.len() >= most.max(1) {
            let Some(Check { record, hash, known, outcome }) = self.checks.next().await else { return Ok(()) };
            let dedupe = &self.keeper.core.dedupe;
            match outcome {
                Ok(held) if held == record.plain => {
                    dedupe.read_back();
                    dedupe.learn(hash, known);
                    self.share(&record, known.pointer);
                }
                Err(Errno::TryLater) => return Err(CheckpointError::Read(Errno::TryLater)),
                Ok(_) | Err(_) => {
                    dedupe.forget(&hash);
                    self.store(record).await?;
                }
            }
        }
        Ok(())
    }

    /// Points to a record that is there.
    fn share(&mut self, record: &Record, held: RecordPointer) {
        let (generation, zeros) = (record.generation, record.zeros);
        let pointer = RecordPointer { born: BORN, generation, lost: 0, zeros, ..held };
        self.packed.shared.push(pointer);
        self.packed.pointers.push((record.key, pointer));
    }

    /// Puts a record into its family's segment.
    async fn store(&mut self, record: Record) -> Result<(), CheckpointError> {
        let content = record.content();
        let Record { key, generation, family, plain, own, lost, zeros, hash, wanted } = record;
        let id = family.key.id();
        if !self.builders.contains_key(&id) {
            let segment = self.draw().await?;
            let target = self.keeper.core.config.segment_bytes as usize;
            let builder =
                SegmentBuilder::within(&self.keeper.memory, segment, family.key.clone(), &self.keeper.salt, target);
            self.builders.insert(id, builder);
        }
        let Some(builder) = self.builders.get_mut(&id) else { return Ok(()) };
        let pointer = builder
            .push_hashed(&plain, hash, compression(family.compression), BORN, generation)
            .map_err(|error| CheckpointError::Damaged(format!("a record in memory ({error})")))?;
        let pointer = RecordPointer { lost, zeros, ..pointer };
        let full = builder.full();
        self.turns.worked(plain.len());
        if let Some(content) = content {
            self.packed.fresh.insert(content, pointer);
        }
        if wanted {
            // The cache would keep a frame of the log for a part of it.
            let records = &self.keeper.core.caches.records;
            let kept = if own { plain } else { records.memory().copy(&plain) };
            records.insert((pointer.segment, pointer.index), kept);
        }
        self.packed.pointers.push((key, pointer));
        if full {
            self.put(id);
            self.wait_below(puts_at_once(&self.keeper.core.config)).await?;
        }
        Ok(())
    }

    /// A segment number that is durably reserved.
    async fn draw(&mut self) -> Result<SegmentId, CheckpointError> {
        if self.turn.next_segment >= self.turn.state.reserved_counter {
            self.keeper.reserve(self.turn).await?;
        }
        let counter = self.turn.next_segment;
        self.turn.next_segment += 1;
        self.drawn.push(counter);
        Ok(SegmentId { epoch: self.keeper.epoch, counter })
    }

    /// Ends a family's segment and begins to write it.
    fn put(&mut self, family: Uuid) {
        let Some(builder) = self.builders.remove(&family) else { return };
        let object = builder.finish();
        self.packed.segments.insert(object.segment, SegmentValue::new(family, &object));
        self.packed.bytes += object.bytes.len() as u64;
        let store: Arc<dyn tarn_store::Store> = self.keeper.core.segments.store.clone();
        let segment = object.segment;
        let (sender, written) = oneshot::channel();
        // A task of its own: a disk holds the thread that writes to it.
        self.keeper.core.world.spawn.spawn_bulk(
            "segment",
            Box::pin(async move {
                let outcome = store.create(&object.name(), object.bytes).await;
                // Whoever has gone looks for the object by its number.
                let _ = sender.send(outcome);
            }),
        );
        self.puts.push(Box::pin(async move {
            let ended = |_| Err(StoreError::Unknown("its task has ended".to_owned()));
            (segment, written.await.unwrap_or_else(ended))
        }));
    }

    async fn wait_below(&mut self, most: usize) -> Result<(), CheckpointError> {
        while self.puts.len() >= most.max(1) {
            let Some((segment, outcome)) = self.puts.next().await else { return Ok(()) };
            if let Err(error) = outcome {
                tracing::warn!(%segment, %error, "a segment could not be written");
                return Err(error.into());
            }
        }
        Ok(())
    }

    /// Writes what is left and waits for all of it.
    pub async fn finish(mut self) -> Result<Packed, CheckpointError> {
        if let Err(error) = self.settle_checks(1).await {
            return Err(self.abandon(error).await);
        }
        let families: Vec<Uuid> = self.builders.keys().copied().collect();
        for family in families {
            self.put(family);
        }
        if mutant::on(mutant::BATCH_BEFORE_SEGMENTS) {
            let late = std::mem::take(&mut self.puts).for_each(|_| std::future::ready(()));
            self.keeper.core.world.spawn.spawn("late segments", Box::pin(late));
        }
        if let Err(error) = self.wait_below(1).await {
            return Err(self.abandon(error).await);
        }
        self.packed.pointers.sort_unstable_by_key(|(key, _)| *key);
        Ok(self.packed)
    }

    /// Gives every number drawn up. What is still being written comes to its end first.
    pub async fn abandon(mut self, error: CheckpointError) -> CheckpointError {
        while self.puts.next().await.is_some() {}
        self.keeper.forget(&self.packed);
        if mutant::on(mutant::TIMEOUT_TAKEN_AS_FAILED) && self.drawn.pop().is_some() {
            self.turn.next_segment -= 1;
        }
        self.turn.given_up.append(&mut self.drawn);
        error
    }
}

impl Packed {
    /// What it brings to the store.
    pub(super) fn done(&self) -> Done {
        let (records, segments) = (self.pointers.len() as u64, self.segments.len() as u64);
        Done { records, segments, bytes: self.bytes, ..Done::default() }
    }
}

impl Keeper {
    /// Takes records out of the cache whose names were given up: nobody will ask for them.
    pub(super) fn forget(&self, packed: &Packed) {
        for (_, pointer) in &packed.pointers {
            self.core.caches.records.remove(&(pointer.segment, pointer.index));
        }
    }
}

fn compression(setting: CompressionSetting) -> Compression {
    match setting {
        CompressionSetting::None => Compression::None,
        CompressionSetting::Lz4 => Compression::Lz4,
        CompressionSetting::Zstd(level) => Compression::Zstd(i32::from(level)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_under_way_take_a_share_of_the_memory_for_changes() {
        let puts =
            |overlay_bytes, segment_bytes| puts_at_once(&Config { overlay_bytes, segment_bytes, ..Config::default() });
        assert_eq!([256, 512, 768, 1024, 4096].map(|mib| puts(mib << 20, 16 << 20)), [4, 4, 6, 8, 8]);
        assert_eq!((puts(4 << 30, 0), puts(0, u32::MAX)), (8, 4));
    }
}
