//! Giving space back: cuts worked off, objects deleted, sparse and small segments rewritten, volumes taken down; and
//! filling the dedupe index, which saves some.
//!
//! - Everything to be done is found in the store's view, by key: a crash forgets nothing.
//! - Changes of files' keys are entries of the log like any other, of at most [`KEYS_AT_ONCE`] keys (engine rule 8);
//!   changes of segments' keys ride in the next checkpoint's batch.
//! - Nothing is deleted before the batch that condemns it is in the view (rule 24).
//! - One pass at a time, and slowly while the log is filling, but never not at all: a store that is always written to
//!   would grow for ever. None begins once the engine is closing.

mod compact;
mod condemned;
mod cuts;
mod driver;
mod pace;
mod recall;
mod survey;
mod volumes;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tarn_base::ids::{SegmentId, Uuid};
use tarn_meta::MetaError;
use tarn_vfs::{Done, Errno, Failure};
use tokio::sync::Notify;

use crate::checkpoint::{CheckpointError, Keeper};
use crate::core::Core;
use crate::run::Operation;

pub(crate) use pace::Pace;
pub use survey::{FamilyTotals, SegmentTotals};

/// Keys changed by one entry.
const KEYS_AT_ONCE: usize = 500;
/// Between two entries while the log is filling: twenty a second, each of less than 64 KiB.
const PRESSED_PAUSE: Duration = Duration::from_millis(50);

/// Why a pass did not come to its end. Nothing was lost: the next begins again.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ReclaimError {
    #[error("{0}")]
    Checkpoint(#[from] CheckpointError),
    #[error("the metadata store could not be read: {0}")]
    Meta(#[from] MetaError),
    #[error("a change was refused: {0}")]
    Refused(Errno),
    #[error("the engine is closing")]
    Stopping,
}

/// What a pass did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reclaimed {
    /// Pointers removed that a cut hid or whose file is gone.
    pub pointers: u64,
    /// Cuts and dead maps that are done with.
    pub cuts: u64,
    /// Keys removed of deleted volumes, and volumes that are gone entirely.
    pub volume_keys: u64,
    pub volumes: u64,
    /// Records copied into new segments, and their bytes.
    pub moved: u64,
    pub moved_bytes: u64,
    /// Objects deleted, and their bytes.
    pub deleted: u64,
    pub deleted_bytes: u64,
}

/// What a pass knows of the passes before it; nothing depends on it but work saved.
#[derive(Debug, Default)]
struct Memory {
    /// Version of the view whose cuts have been worked off as far as they could be.
    cuts_seen: Option<u64>,
    survey: Option<survey::Taken>,
    /// Objects deleted whose keys do not say so yet.
    deleted: BTreeSet<SegmentId>,
    /// Segments whose records have been copied, until the view says so.
    moved: BTreeSet<SegmentId>,
    /// Segments that cannot be moved, because they are damaged.
    immovable: BTreeSet<SegmentId>,
    recall: recall::Recall,
}

/// What a survey counted: of the shard, and by family.
type Totals = (SegmentTotals, BTreeMap<Uuid, FamilyTotals>);

/// The background work of one engine.
pub struct Reclaim {
    core: Arc<Core>,
    keeper: Arc<Keeper>,
    memory: tokio::sync::Mutex<Memory>,
    totals: Mutex<Option<Totals>>,
    /// Bytes of objects whose live records were copied elsewhere, since the opening.
    collected: AtomicU64,
    wake: Notify,
    stopping: AtomicBool,
}

impl std::fmt::Debug for Reclaim {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Reclaim({:?})", self.core)
    }
}

impl Reclaim {
    pub fn new(core: Arc<Core>, keeper: Arc<Keeper>) -> Arc<Reclaim> {
        Arc::new(Reclaim {
            core,
            keeper,
            memory: Default::default(),
            totals: Default::default(),
            collected: AtomicU64::new(0),
            wake: Notify::new(),
            stopping: AtomicBool::new(false),
        })
    }

    /// Ends the background work and waits until the running pass has ended.
    pub async fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
        self.wake.notify_one();
        drop(self.memory.lock().await);
    }

    /// One full pass, with the checkpoints that it needs before, between and behind its steps.
    ///
    /// Objects that it condemns itself are deleted by a later pass, once their hold time is over.
    pub async fn now(&self) -> Result<Reclaimed, ReclaimError> {
        let mut memory = self.memory.lock().await;
        let mut done = Reclaimed::default();
        let mut pace = Pace::free(&self.core.world);
        self.keeper.sync().await?;
        self.take_volumes_down(&mut done).await?;
        self.work_cuts_off(&mut done).await?;
        self.keeper.sync().await?;
        self.take_volumes_down(&mut done).await?;
        let survey = self.survey(&mut memory).await?;
        self.compact(&mut memory, &survey, &mut pace, &mut done).await?;
        self.keeper.sync().await?;
        let survey = self.survey(&mut memory).await?;
        self.delete_condemned(&mut memory, &survey, &mut done).await?;
        self.keeper.sync().await?;
        self.survey(&mut memory).await?;
        while self.recall(&mut memory).await? {}
        Ok(done)
    }

    /// Copies what is worth it, and leaves the rest to the next checkpoint.
    #[cfg(test)]
    pub async fn compact_now(&self, done: &mut Reclaimed) -> Result<(), ReclaimError> {
        let mut memory = self.memory.lock().await;
        let survey = self.survey(&mut memory).await?;
        self.compact(&mut memory, &survey, &mut Pace::free(&self.core.world), done).await
    }

    /// Segments by state, as the last pass saw them.
    pub fn totals(&self) -> Option<SegmentTotals> {
        self.totals.lock().as_ref().map(|(totals, _)| *totals)
    }

    /// What a family's records take, likewise.
    pub fn family_totals(&self, family: Uuid) -> Option<FamilyTotals> {
        self.totals.lock().as_ref().map(|(_, families)| families.get(&family).copied().unwrap_or_default())
    }

    /// Bytes of objects whose live records were copied elsewhere since the opening, so that they can be deleted.
    pub fn collected_bytes(&self) -> u64 {
        self.collected.load(Ordering::Relaxed)
    }

    fn go_on(&self) -> Result<(), ReclaimError> {
        if self.stopping.load(Ordering::Acquire) { Err(ReclaimError::Stopping) } else { Ok(()) }
    }

    /// Runs an operation of its own. A full log is waited for.
    async fn execute<O: Operation + Clone>(&self, operation: O) -> Result<O::Out, ReclaimError> {
        loop {
            self.go_on()?;
            match self.core.execute(operation.clone()).await {
                Ok(Done { value, .. }) => {
                    if self.core.log_is_filling() {
                        self.core.world.clock.sleep(PRESSED_PAUSE).await;
                    }
                    return Ok(value);
                }
                Err(Done { value: Failure { errno: Errno::TryLater, .. }, .. })
                    if !self.core.health.deposed.load(Ordering::Relaxed) =>
                {
                    self.core.world.clock.sleep(Duration::from_millis(500)).await;
                }
                Err(Done { value: Failure { errno, .. }, .. }) => return Err(ReclaimError::Refused(errno)),
            }
        }
    }
}
