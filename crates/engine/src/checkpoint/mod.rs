//! Checkpoints: moving closed generations to the object store. Segments first, then one batch, then the log is
//! trimmed (engine rules 14 to 16).
//!
//! - `close` ends a generation, `driver` says when. `collect` and `merge` find what is to be stored, `pack` puts it into
//!   segments, `table` keeps the segments' keys, `commit` makes it durable, `presence` sees that it will stay, `exchange`
//!   shows it and trims the log.
//! - The oldest closed generation goes first, one at a time; where the store is full all go together, if that makes them fit (`room`).
//! - A checkpoint that fails is thrown away whole, its segment numbers given up, and begun again from the oldest
//!   generation.
//! - After an error of the metadata store it is opened anew and P is read before anything else is decided.
//! - Nothing is shown or deleted before the batch that justifies it is durable.

mod close;
mod collect;
mod commit;
mod driver;
mod exchange;
mod merge;
mod numbers;
mod pack;
mod presence;
mod room;
mod stages;
mod suspects;
mod table;

pub(crate) use close::end_generation;
pub(crate) use pack::RESERVE;
pub use stages::Stages;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tarn_base::ids::Position;
use tarn_base::mutant;
use tarn_data::{Salt, SegmentMemory};
use tarn_meta::{MetaError, MetaLook, MetaOpener, MetaStore};
use tarn_store::StoreError;
use tarn_wal::LogError;
use tokio::sync::Notify;

use self::stages::Lap;
use crate::brake::Stored;
use crate::core::Core;
use crate::overlay::Span;
use crate::owner::Tenure;
use crate::value::ShardState;

/// Why a checkpoint did not come to its end. Nothing was lost: it begins again.
#[derive(Clone, Debug, thiserror::Error)]
pub enum CheckpointError {
    #[error("another node has taken this store; this one has stopped, keep its log")]
    Deposed,
    #[error("the object store has no space left ({0}); make room, changes wait in the log")]
    Full(String),
    #[error("the object store failed: {0}; changes wait in the log")]
    Store(StoreError),
    #[error("the metadata store failed: {0}; changes wait in the log")]
    Meta(MetaError),
    #[error("{0}")]
    Log(#[from] LogError),
    #[error("{}; changes wait in the log", unread(*.0))]
    Read(tarn_vfs::Errno),
    #[error("{0} is damaged; changes wait in the log")]
    Damaged(String),
    /// Taken away under the running node.
    #[error("part of the object store is gone: {0}; put it back as it was, changes wait in the log until then")]
    Gone(String),
    /// Nothing is known to be wrong any more.
    #[error("the metadata store had to be opened again: {0}; the checkpoint begins again")]
    Again(String),
    #[error("the engine is closing")]
    Stopping,
    /// The end of use after `failed`, without all that was answered UNSTABLE.
    #[error(
        "{failed}; UNSTABLE data that no client has committed is lost, for the log did not take it either: {errno}"
    )]
    Lost { failed: Box<CheckpointError>, errno: tarn_vfs::Errno },
}

fn unread(errno: tarn_vfs::Errno) -> String {
    match errno {
        tarn_vfs::Errno::Io => {
            "old content does not open: put right what `tarn status` names as damaged; what stays so for ten \
                                minutes is lost as far as it is not written anew"
                .to_owned()
        }
        errno => format!("old content could not be read: {errno}"),
    }
}

/// How often somebody who waits for a checkpoint begins it again because the metadata store was opened again.
const REOPENED_MAX: u32 = 8;

impl From<StoreError> for CheckpointError {
    fn from(error: StoreError) -> CheckpointError {
        match error {
            StoreError::Full(what) => CheckpointError::Full(what),
            other => CheckpointError::Store(other),
        }
    }
}

impl From<MetaError> for CheckpointError {
    fn from(error: MetaError) -> CheckpointError {
        match error {
            MetaError::Damaged(what) => CheckpointError::Damaged(what),
            MetaError::Gone(what) => CheckpointError::Gone(format!("of its metadata, {what}")),
            MetaError::Full(what) => CheckpointError::Full(what),
            other => CheckpointError::Meta(other),
        }
    }
}

/// What a checkpoint did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Done {
    /// P of the batch.
    pub position: Position,
    pub keys: u64,
    pub records: u64,
    pub segments: u64,
    /// Bytes of segment objects.
    pub bytes: u64,
    pub took: Duration,
    pub stages: Stages,
}

/// Sums over the checkpoints of this opening.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Those that succeeded; `took`, `stages` and `bytes` are theirs.
    pub count: u64,
    pub failures: u64,
    pub took: Duration,
    pub stages: Stages,
    /// Bytes of segment objects.
    pub bytes: u64,
}

/// State that only the running checkpoint touches.
#[derive(Debug)]
pub(crate) struct Turn {
    /// `None` after an error, until it is opened again.
    meta: Option<Arc<dyn MetaStore>>,
    /// What is read from until then, where that fails.
    look: Option<Box<dyn MetaLook>>,
    /// The shard's state in the store.
    state: ShardState,
    /// What the log was trimmed to, at most: no store with less than this is ours.
    trimmed: Position,
    /// The metadata store said that another has opened it: without an answer from the owner record it is not opened again.
    fenced: bool,
    /// Part of the store was gone: it is looked at before it is used again.
    doubtful: bool,
    /// The next segment number of this owner epoch.
    next_segment: u32,
    /// Numbers whose objects may lie in the store without a key.
    given_up: Vec<u32>,
    /// Numbers given up whose objects were deleted, and when: a PUT may still be on its way.
    deleted: Vec<(u32, Duration)>,
    /// Numbers in a batch of which nobody knows whether it is there.
    undecided: Vec<u32>,
    /// Numbers lent to reclaim, until a batch holds their keys.
    lent: BTreeSet<u32>,
    /// What the running checkpoint has spent its time on.
    stages: Stages,
    /// It takes, or the last one took, all closed generations together.
    together: bool,
    /// Bytes that were free after an attempt that did not fit, and when.
    left: Option<(u64, Duration)>,
}

/// Keeps the store up with the log. One per opening.
pub struct Keeper {
    pub core: Arc<Core>,
    opener: Arc<dyn MetaOpener>,
    tenure: Arc<Tenure>,
    epoch: u32,
    salt: Salt,
    turn: tokio::sync::Mutex<Turn>,
    suspects: suspects::Suspects,
    /// When all that is needed is looked at again, while something suspected keeps checkpoints.
    full_look: Mutex<Duration>,
    /// What the running attempt, or one whose outcome nobody knows, takes for lost.
    losses: Mutex<Vec<String>>,
    /// What segments are made in.
    memory: SegmentMemory,
    /// A generation has been closed.
    closed: Notify,
    stopping: AtomicBool,
    /// The last checkpoint's error, until one succeeds; and what the last success did.
    last: Mutex<(Option<String>, Done)>,
    totals: Mutex<Totals>,
}

impl std::fmt::Debug for Keeper {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Keeper(epoch {})", self.epoch)
    }
}

/// What a keeper begins with.
pub struct Beginning {
    pub opener: Arc<dyn MetaOpener>,
    pub meta: Arc<dyn MetaStore>,
    pub tenure: Arc<Tenure>,
    pub epoch: u32,
    pub salt: Salt,
    pub state: ShardState,
}

impl Keeper {
    pub fn new(core: Arc<Core>, beginning: Beginning) -> Arc<Keeper> {
        let Beginning { opener, meta, tenure, epoch, salt, state } = beginning;
        let turn = Turn {
            meta: Some(meta),
            look: None,
            trimmed: state.position,
            fenced: false,
            doubtful: false,
            state,
            next_segment: 1,
            given_up: Vec::new(),
            deleted: Vec::new(),
            undecided: Vec::new(),
            lent: BTreeSet::new(),
            stages: Stages::default(),
            together: false,
            left: None,
        };
        Arc::new(Keeper {
            core,
            opener,
            tenure,
            epoch,
            salt,
            turn: tokio::sync::Mutex::new(turn),
            suspects: Default::default(),
            full_look: Mutex::default(),
            losses: Mutex::default(),
            memory: SegmentMemory::default(),
            closed: Notify::new(),
            stopping: AtomicBool::new(false),
            last: Mutex::default(),
            totals: Mutex::default(),
        })
    }

    /// The error that keeps checkpoints from succeeding, and what the last success did.
    pub fn last(&self) -> (Option<String>, Done) {
        self.last.lock().clone()
    }

    pub fn totals(&self) -> Totals {
        *self.totals.lock()
    }

    /// Closes the open generation, if anything is in it, and brings everything closed into the store.
    pub async fn sync(&self) -> Result<Done, CheckpointError> {
        self.close()?;
        let mut done = None;
        while let Some(next) = self.run_surely(false).await? {
            done = Some(next);
        }
        Ok(done.unwrap_or_else(|| self.last().1))
    }

    /// As [`Keeper::sync`], and leaves no segment number reserved: the last checkpoint of this opening. Gives P.
    pub(crate) async fn sync_finally(&self) -> Result<Position, CheckpointError> {
        self.close()?;
        while self.run_surely(true).await?.is_some() {}
        let mut turn = self.turn.lock().await;
        self.ready(&mut turn).await?;
        self.release(&mut turn).await?;
        Ok(turn.state.position)
    }

    /// Ends the driver. The running checkpoint comes to its end.
    pub fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
        self.closed.notify_one();
        self.core.checkpoint_due.notify_one();
    }

    pub(crate) fn stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    /// Closes the metadata store.
    pub(crate) async fn close_meta(&self) {
        let mut turn = self.turn.lock().await;
        if let Some(meta) = turn.meta.take()
            && let Err(error) = meta.close().await
        {
            tracing::debug!(%error, "closing the metadata store");
        }
        if let Some(look) = turn.look.take() {
            commit::end_look(&*look).await;
        }
    }

    /// As [`Keeper::run_next`], and does not leave it at a record that is only suspected of damage, nor at a metadata
    /// store that only had to be opened again.
    async fn run_surely(&self, finally: bool) -> Result<Option<Done>, CheckpointError> {
        let (mut tries, mut reopened, mut full) = (0, 0, false);
        loop {
            match self.run_next(finally).await {
                Err(CheckpointError::Read(tarn_vfs::Errno::Io)) if tries < suspects::ATTEMPTS => {
                    tries += 1;
                    self.core.world.clock.sleep(Duration::from_millis(700)).await;
                }
                Err(CheckpointError::Again(_)) if reopened < REOPENED_MAX => reopened += 1,
                // All together may fit where the oldest does not, or the oldest alone.
                Err(CheckpointError::Full(_)) if !full && self.core.config.capacity.is_some() => full = true,
                outcome => return outcome,
            }
        }
    }

    /// One checkpoint of the oldest closed generation, or of all together; `None` if there is none.
    async fn run_next(&self, finally: bool) -> Result<Option<Done>, CheckpointError> {
        let mut turn = self.turn.lock().await;
        // The oldest alone may fit where all do not after all: each has its turn.
        turn.together =
            !turn.together && self.core.health.store_full.load(Ordering::Relaxed) && self.closed_to_fit()?;
        let Some(span) = Span::of(&self.core.stack.load(), turn.together) else {
            self.core.look_for_room();
            return Ok(None);
        };
        if let Some(error) = self.in_vain(&turn).filter(|_| !turn.together) {
            self.read_without_room(&mut turn).await;
            return Err(error);
        }
        let drawn = turn.next_segment;
        let begun = self.core.world.clock.steady();
        turn.stages = Stages::default();
        let frees = self.core.log.used_up_to(span.end().last) + span.unlogged();
        self.core.brake.begins(frees, span.to_store(self.core.record_size()));
        let outcome = self.run(&mut turn, &span, finally).await;
        let took = self.core.world.clock.steady() - begun;
        // One that was in the store already took no time.
        let stored = outcome.is_ok() && !turn.stages.commit.is_zero();
        let Stages { log, collect, read, pack, .. } = turn.stages;
        let stored =
            stored.then_some(Stored { count: span.count(), took, before: log + collect, records: read + pack });
        self.core.brake.ends(stored);
        turn.together &= outcome.is_err();
        let outcome = outcome.map(|done| Done { took, stages: turn.stages, ..done });
        if let Err(CheckpointError::Meta(error)) = &outcome
            && let Some(meta) = turn.meta.take()
        {
            self.note_fence(&mut turn, error);
            // Whatever is wrong with it, it is opened again for the next try.
            let _ = meta.close().await;
        }
        self.note(&outcome);
        // Only now: a store that does not answer takes its time.
        self.tidy(&mut turn, &outcome).await;
        let was_full = matches!(outcome, Err(CheckpointError::Full(_))) && turn.next_segment > drawn;
        self.note_room(&mut turn, was_full);
        self.core.look_for_room();
        outcome.map(Some)
    }

    async fn run(&self, turn: &mut Turn, span: &Span, finally: bool) -> Result<Done, CheckpointError> {
        self.suspects.begin();
        // What is in the store must never be ahead of what the log has: a reply may still be waiting for it.
        let mut lap = Lap::new(&self.core.world);
        self.core.log.wait(span.end().last).await?;
        turn.stages.log = lap.next();
        self.core.config.crash_point("checkpoint begins").await;
        if span.is_several() {
            self.core.config.crash_point("generations go together").await;
        }
        if let Err(full) = self.room_to_begin() {
            self.read_without_room(turn).await;
            return Err(full);
        }
        self.ready(turn).await?;
        if self.core.health.gone().is_some() {
            // Until it is known to be whole, nothing that is missing in it counts as lost.
            self.suspects.clear();
            self.verify(turn).await?;
            self.note_gone(None);
        }
        let mut undecided = std::mem::take(&mut turn.undecided);
        let oldest = span.oldest();
        if let Some(closed) = oldest.closed.get()
            && turn.state.position >= closed.last
            && !mutant::on(mutant::CHECKPOINT_DONE_TWICE)
        {
            // A batch whose answer was lost: it is there.
            return self.adopt(turn, oldest.number, closed).await;
        }
        turn.given_up.append(&mut undecided);
        self.losses.lock().clear();
        let view = self.core.stack.load().view.clone();
        let collected = collect::collect(&self.core, &view, span).await?;
        turn.stages.collect = lap.next();
        let mut packer = pack::Packer::new(self, turn);
        let packed = match self.store_records(&collected, &mut packer).await {
            Ok(()) => packer.finish().await,
            Err(error) => Err(packer.abandon(error).await),
        };
        let packed = match packed {
            Ok(packed) => packed,
            Err(error) => return Err(self.unless_gone(turn, error).await),
        };
        turn.stages.pack = lap.next().saturating_sub(turn.stages.read);
        self.core.config.crash_point("segments are written").await;
        self.finish(turn, span, collected, packed, finally).await
    }

    fn note(&self, outcome: &Result<Done, CheckpointError>) {
        let full = matches!(outcome, Err(CheckpointError::Full(_)));
        self.core.health.store_full.store(full, Ordering::Relaxed);
        self.core.health.checkpoint_failed.store(outcome.is_err(), Ordering::Relaxed);
        self.note_gone(outcome.as_ref().err());
        let mut last = self.last.lock();
        let mut totals = self.totals.lock();
        match outcome {
            Ok(done) => {
                self.suspects.clear();
                self.losses.lock().drain(..).for_each(|loss| self.core.note_damage(loss));
                totals.count += 1;
                totals.took += done.took;
                totals.stages += done.stages;
                totals.bytes += done.bytes;
                *last = (None, *done);
                let stages = done.stages.named().map(|(name, took)| format!("{name} {}", took.as_millis())).join(", ");
                let (position, milliseconds) = (done.position, done.took.as_millis());
                tracing::debug!(%position, keys = done.keys, records = done.records, milliseconds, %stages, "checkpoint");
            }
            Err(error) => {
                if matches!(error, CheckpointError::Gone(_)) {
                    // More was taken away: what was missing before may be part of that.
                    self.suspects.clear();
                }
                totals.failures += 1;
                tracing::warn!(%error, "a checkpoint failed");
                last.0 = Some(error.to_string());
                if matches!(error, CheckpointError::Deposed) {
                    self.core.health.deposed.store(true, Ordering::Relaxed);
                }
            }
        }
    }
}
