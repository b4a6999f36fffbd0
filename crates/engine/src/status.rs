//! What can be asked of a running engine: its state in numbers, and the walks over everything it holds.

use std::ops::ControlFlow;
use std::sync::atomic::Ordering;

use tarn_base::ids::Position;

use crate::checkpoint::{CheckpointError, Done, Totals};
use crate::dedupe::DedupeTotals;
use crate::engine::Engine;
use crate::fsck::{self, FsckCounts, FsckError, FsckReport};
use crate::reclaim::{ReclaimError, Reclaimed, SegmentTotals};
use crate::scrub::{self, ScrubProgress, ScrubReport};

/// A generation of changes that the store does not have yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GenerationStatus {
    pub number: u64,
    /// Changed keys and dirty records.
    pub keys: u64,
    /// Dirty data held in RAM, bytes.
    pub ram_bytes: u64,
    pub closed: bool,
}

/// One cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheStatus {
    pub entries: u64,
    pub bytes: u64,
    pub capacity_bytes: u64,
}

/// The state of an engine, in numbers.
#[derive(Clone, Debug)]
pub struct Status {
    pub incarnation: u32,
    pub owner_epoch: u32,
    /// The last position given out, the last on the log's medium, and P: the last in the store.
    pub appended: Position,
    pub durable: Position,
    pub stored: Position,
    /// Bytes of the log.
    pub log_used: u64,
    pub log_capacity: u64,
    /// UNSTABLE data that is neither in the log nor in the store, bytes.
    pub unlogged_bytes: u64,
    /// Newest first; the first is open.
    pub generations: Vec<GenerationStatus>,
    /// Memory of the log's frames that they keep, bytes.
    pub kept_log_bytes: u64,
    pub last_checkpoint: Done,
    pub checkpoints: Totals,
    /// What keeps checkpoints from succeeding.
    pub checkpoint_error: Option<String>,
    /// Values of keys, listings, and hashes of names: the entries counted are keys.
    pub key_cache: CacheStatus,
    pub record_cache: CacheStatus,
    /// The dedupe index, and what it saved since the opening.
    pub dedupe_index: CacheStatus,
    pub dedupe: DedupeTotals,
    /// As the last pass of reclaim saw them; `None` before the first.
    pub segments: Option<SegmentTotals>,
    /// Bytes of objects whose live records collection has copied elsewhere since the opening.
    pub collected_bytes: u64,
    /// Why no change is taken any more, if so.
    pub read_only: Option<String>,
    /// Files cannot grow, for want of room in the store.
    pub store_full: bool,
    pub deposed: bool,
    /// Damage found so far, the first hundred.
    pub damage: Vec<String>,
}

impl Engine {
    /// How it is doing. Costs some short locks.
    pub fn status(&self) -> Status {
        let core = &self.core;
        let stack = core.stack.load();
        let generations = stack.generations.iter().map(|generation| GenerationStatus {
            number: generation.number,
            keys: generation.count() as u64,
            ram_bytes: generation.ram_bytes(),
            closed: generation.closed.get().is_some(),
        });
        let (checkpoint_error, last_checkpoint) = self.keeper.last();
        let gone = || core.health.gone().map(|what| CheckpointError::Gone(what).to_string());
        let (entries, bytes, capacity_bytes) = core.dedupe.size();
        let (keys, records) = (&core.caches.keys, &core.caches.records);
        let (listings_bytes, listings_capacity) = core.caches.listings.size();
        let (names_bytes, names_capacity) = core.caches.names.size();
        Status {
            incarnation: core.identity.incarnation,
            owner_epoch: core.identity.owner_epoch,
            appended: core.log.appended(),
            durable: core.log.durable(),
            stored: stack.generations.last().map_or(Position::ZERO, |oldest| oldest.after),
            log_used: core.log.used(),
            log_capacity: core.log.capacity(),
            unlogged_bytes: core.unlogged(),
            generations: generations.collect(),
            kept_log_bytes: core.log.held() as u64,
            last_checkpoint,
            checkpoints: self.keeper.totals(),
            checkpoint_error: checkpoint_error.or_else(gone),
            key_cache: CacheStatus {
                entries: keys.len() as u64,
                bytes: keys.weight() + listings_bytes + names_bytes,
                capacity_bytes: keys.capacity() + listings_capacity + names_capacity,
            },
            record_cache: CacheStatus {
                entries: records.len() as u64,
                bytes: records.weight(),
                capacity_bytes: records.capacity(),
            },
            dedupe_index: CacheStatus { entries, bytes, capacity_bytes },
            dedupe: core.dedupe.totals(),
            segments: self.reclaim.totals(),
            collected_bytes: self.reclaim.collected_bytes(),
            read_only: core.health.read_only.read().clone(),
            store_full: core.store_is_full_for(0),
            deposed: core.health.deposed.load(Ordering::Relaxed),
            damage: core.health.damage.lock().clone(),
        }
    }

    /// One full pass of reclaim, now.
    pub async fn reclaim_now(&self) -> Result<Reclaimed, ReclaimError> {
        self.reclaim.now().await
    }

    /// The full consistency walk, over everything answered so far. `deep` also reads and verifies every record.
    ///
    /// The engine goes on meanwhile. `progress` is called now and then with what has been walked.
    pub async fn fsck(
        &self,
        deep: bool,
        mut progress: impl FnMut(&FsckCounts) + Send,
    ) -> Result<FsckReport, FsckError> {
        self.keeper.sync().await?;
        let view = self.core.stack.load().view.clone();
        let store = self.core.segments.store.clone();
        Ok(fsck::walk(view, store, Some(&self.core), deep, &mut progress).await?)
    }

    /// Reads and verifies everything that lives in the object store, slowly. `progress` may break it off.
    pub async fn scrub(
        &self,
        mut progress: impl FnMut(ScrubProgress) -> ControlFlow<()> + Send,
    ) -> Result<ScrubReport, tarn_meta::MetaError> {
        scrub::scrub(&self.core, &mut progress).await
    }
}
