//! The engine as programs hold it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use tarn_base::ids::Position;
use tarn_base::world::World;
use tarn_data::Salt;
use tarn_meta::{MetaOpener, MetaStore};
use tarn_store::Store;
use tarn_vfs::HandleKey;
use tarn_wal::{Log, LogError};

use crate::cache::Caches;
use crate::checkpoint::{Beginning, CheckpointError, Done, Keeper};
use crate::config::Config;
use crate::core::{Core, Health, Identity, Numbers};
use crate::dedupe::Dedupe;
use crate::error::OpenError;
use crate::overlay::{Stack, StackCell};
use crate::owner::{Held, OwnerError, Register, Tenure};
use crate::reclaim::Reclaim;
use crate::recovery::Rebuilt;
use crate::resent::Resent;
use crate::segments::Segments;
use crate::value::{NotifyRecord, ShardState};
use crate::volumes::VolumeTable;

/// Tries of the last checkpoint before the log keeps what the store did not take.
const LAST_TRIES: u32 = 3;
/// Pause between them, and while the log's last flush runs.
const LAST_PAUSE: Duration = Duration::from_millis(200);
/// No further try of it once so long has passed with a store that hangs.
const LAST_PATIENCE: Duration = Duration::from_secs(60);

/// One shard, open for writing. Implements [`tarn_vfs::FileSystem`].
#[derive(Clone, Debug)]
pub struct Engine {
    pub(crate) core: Arc<Core>,
    pub(crate) keeper: Arc<Keeper>,
    pub(crate) reclaim: Arc<Reclaim>,
    pub(crate) tenure: Arc<Tenure>,
}

/// What an opening has made.
pub(crate) struct Assembly {
    pub world: World,
    pub config: Config,
    pub store: Arc<dyn Store>,
    pub register: Register,
    pub held: Held,
    pub opener: Arc<dyn MetaOpener>,
    pub meta: Arc<dyn MetaStore>,
    pub salt: Salt,
    pub state: ShardState,
    pub rebuilt: Rebuilt,
    pub log: Arc<Log>,
    /// Clients that held locks in a log that is lost.
    pub notify: Vec<NotifyRecord>,
}

impl Engine {
    /// The write log, for whoever drives its flushes.
    pub fn log(&self) -> &Arc<Log> {
        &self.core.log
    }

    /// Whether small changes were held back since it was last asked, because checkpoints do not keep up.
    pub fn were_held(&self) -> bool {
        self.core.brake.small_were_held()
    }

    /// Puts the parts together and starts the background tasks.
    pub(crate) fn assemble(made: Assembly) -> Result<Arc<Engine>, OpenError> {
        let Assembly { world, config, store, register, held, opener, meta, salt, state, rebuilt, log, notify } = made;
        let identity = Identity {
            incarnation: held.owner.incarnation,
            owner_epoch: held.owner.epoch,
            lineage: rebuilt.lineage,
            recovered: state.position.max(log.appended()),
            handle_key: HandleKey(held.secrets.handle),
            shard_key: held.secrets.shard.clone(),
        };
        let segments = Segments::new(store);
        segments.note_salt(held.owner.epoch, salt);
        let stack = Stack { generations: rebuilt.generations, view: meta.view(), version: 0 };
        let core = Arc::new(Core {
            identity,
            log,
            stack: StackCell::new(stack),
            gate: Default::default(),
            exchange_pause: Default::default(),
            stripes: Default::default(),
            caches: Caches::new(config.key_cache_bytes, config.record_cache_bytes, config.overlay_limit()),
            dedupe: Dedupe::new(config.dedupe_bytes),
            volumes: VolumeTable::default(),
            deleted: Default::default(),
            admin: Default::default(),
            read_ahead: Default::default(),
            streams: Default::default(),
            settled: Default::default(),
            once: rebuilt.once,
            resent: Resent::new(world.random_u64()),
            session: rebuilt.session,
            numbers: Numbers {
                next_inode: AtomicU64::new(rebuilt.next_inode),
                next_volume: AtomicU32::new(rebuilt.next_volume),
            },
            segments,
            health: Health::default(),
            checkpoint_due: Default::default(),
            pulse: Default::default(),
            checkpoint_wanted: Default::default(),
            log_pressed: Default::default(),
            pressed_at: Default::default(),
            brake: Default::default(),
            store_room: Default::default(),
            log_trimmed: Default::default(),
            world: world.clone(),
            config,
        });
        for (id, found) in rebuilt.volumes {
            if found.record.deleted.is_some() {
                core.deleted.lock().insert(id, (found.record, found.usage));
            } else {
                let mounted = core.mount_volume(id, found.record, found.usage);
                mounted.map_err(|_| OpenError::Damaged(format!("the key of volume {}", id.0)))?;
            }
        }
        let clients: Vec<_> = notify.into_iter().map(|record| (record.client, record.callback)).collect();
        // Whoever is still to be told may still have to reclaim.
        if !clients.is_empty() || !core.session.table().to_notify().is_empty() {
            core.session_lost(clients)?;
        }
        let tenure = Arc::new(Tenure::new(register, held));
        let epoch = core.identity.owner_epoch;
        let beginning = Beginning { opener, meta, tenure: tenure.clone(), epoch, salt, state };
        let keeper = Keeper::new(core.clone(), beginning);
        let reclaim = Reclaim::new(core.clone(), keeper.clone());
        let engine = Arc::new(Engine { core, keeper, reclaim, tenure });
        engine.start();
        Ok(engine)
    }

    fn start(&self) {
        self.keeper.start();
        self.reclaim.start();
        let (core, world) = (self.core.clone(), self.core.world.clone());
        world.spawn.spawn("flushes", Box::pin(core.clone().flush_steadily()));
        core.pulse.begin(world.clock.steady());
        world.spawn.spawn("heartbeat", Box::pin(core.clone().watch(self.tenure.clone())));
        world.spawn.spawn("pulse", Box::pin(core.beat(self.tenure.clone())));
    }

    /// Brings everything answered so far into the store.
    pub async fn checkpoint(&self) -> Result<Done, CheckpointError> {
        self.keeper.sync().await
    }

    /// The error that keeps checkpoints from succeeding, if any, and what the last success did.
    pub fn last_checkpoint(&self) -> (Option<String>, Done) {
        self.keeper.last()
    }

    /// Ends use: a last checkpoint, the owner record closed, the log closed clean. Front ends have stopped; whoever
    /// drives the log's flushes goes on until this returns.
    ///
    /// If the store does not take the last checkpoint, the log keeps what it holds and is closed clean all the same:
    /// the next opening needs it. [`CheckpointError::Lost`]: neither took all UNSTABLE data, and the log is not closed clean.
    pub async fn close(&self) -> Result<(), CheckpointError> {
        self.keeper.stop();
        self.reclaim.stop().await;
        {
            // Whatever would still change something comes after the last checkpoint, and is refused.
            let _gate = self.core.gate.write();
            self.core.health.closing.store(true, Ordering::Relaxed);
        }
        let saved = self.save().await;
        let position = self.core.log.appended();
        let saved = match (saved, self.core.log.wait(position).await) {
            (Err(lost @ CheckpointError::Lost { .. }), _) => Err(lost),
            (_, Err(error)) => Err(error.into()),
            (Ok(stored), Ok(())) => {
                self.core.config.crash_point("before the owner record is closed").await;
                // Without it the bucket alone does not open, so it is no clean end.
                self.release(position, stored).await
            }
            (Err(error), Ok(())) => Err(error),
        };
        self.tenure.end();
        // A log that is closed clean lacks nothing.
        if !matches!(saved, Err(CheckpointError::Lost { .. } | CheckpointError::Log(_))) {
            self.core.config.crash_point("before the log is closed").await;
            self.close_log(position).await?;
        }
        self.keeper.close_meta().await;
        saved
    }

    /// Closes the owner record, patiently: `closed` is the last position given out, `stored` the store's P.
    async fn release(&self, closed: Position, stored: Position) -> Result<(), CheckpointError> {
        let mut tries = 1;
        loop {
            match self.tenure.close(closed, stored).await {
                Ok(()) => return Ok(()),
                Err(OwnerError::Store(_)) if tries < LAST_TRIES => {}
                Err(OwnerError::Store(error)) => return Err(error.into()),
                Err(OwnerError::Lost) => return Err(CheckpointError::Deposed),
                Err(OwnerError::Record(error)) => return Err(CheckpointError::Damaged(error.to_string())),
            }
            self.core.world.clock.sleep(LAST_PAUSE).await;
            tries += 1;
        }
    }

    async fn close_log(&self, position: Position) -> Result<(), LogError> {
        loop {
            match self.core.log.close_clean(position) {
                Err(LogError::Busy) => self.core.world.clock.sleep(LAST_PAUSE / 10).await,
                closed => return closed,
            }
        }
    }

    /// The last checkpoint; if it fails, what has passed the log by is brought into it. Both again while neither is done.
    async fn save(&self) -> Result<Position, CheckpointError> {
        let (mut tries, begun) = (1, self.core.world.clock.steady());
        loop {
            let failed = match self.last_checkpoints().await {
                Ok(stored) => return Ok(stored),
                Err(failed) => failed,
            };
            let Err(errno) = self.core.settle_all().await else { return Err(failed) };
            let spent = tries == LAST_TRIES || self.core.world.clock.steady() - begun > LAST_PATIENCE;
            if spent || matches!(failed, CheckpointError::Deposed) {
                return Err(CheckpointError::Lost { failed: Box::new(failed), errno });
            }
            self.core.world.clock.sleep(LAST_PAUSE).await;
            tries += 1;
        }
    }

    async fn last_checkpoints(&self) -> Result<Position, CheckpointError> {
        let mut tries = 1;
        loop {
            match self.keeper.sync_finally().await {
                Err(CheckpointError::Store(_) | CheckpointError::Meta(_) | CheckpointError::Again(_))
                    if tries < LAST_TRIES => {}
                outcome => return outcome,
            }
            self.core.world.clock.sleep(LAST_PAUSE).await;
            tries += 1;
        }
    }
}
