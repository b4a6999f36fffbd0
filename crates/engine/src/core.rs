//! The engine's parts, as operations and background work share them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use tarn_base::crypto::Key as Secret;
use tarn_base::ids::{Ino, Position, VolumeId};
use tarn_base::world::World;
use tarn_vfs::{Errno, HandleKey};
use tarn_wal::{Log, LogError};
use tokio::sync::Notify;

use crate::admission::StoreRoom;
use crate::brake::{Brake, KEYS_CLOSE};
use crate::cache::Caches;
use crate::config::{Config, Space};
use crate::dedupe::Dedupe;
use crate::key::{Key, words};
use crate::once::OnceTable;
use crate::overlay::{Generation, Load, StackCell};
use crate::pulse::Pulse;
use crate::readahead::ReadAhead;
use crate::resent::Resent;
use crate::segments::Segments;
use crate::session::Session;
use crate::streams::Streams;
use crate::stripes::Stripes;
use crate::value::VolumeRecord;
use crate::volumes::{UsageCounter, VolumeTable};

/// The share of the log that growth leaves to what does not grow, and the most that it leaves, in bytes.
const GROWTH_LEAVES: u64 = 8;
const GROWTH_LEAVES_MAX: u64 = 256 << 20;
/// Data of so many bytes make a change large. The share of the log that large changes leave to small ones, and the most.
pub const LARGE: usize = 64 << 10;
const LARGE_LEAVE: u64 = 16;
const LARGE_LEAVE_MAX: u64 = 128 << 20;

/// Numbers given out and never given out again.
#[derive(Debug, Default)]
pub struct Numbers {
    pub next_inode: AtomicU64,
    pub next_volume: AtomicU32,
}

impl Numbers {
    /// A new inode number of partition 0.
    pub fn inode(&self) -> Result<Ino, Errno> {
        let number = self.next_inode.fetch_add(1, Ordering::Relaxed);
        if number <= Ino::NUMBER_MAX { Ok(Ino::new(0, number)) } else { Err(Errno::NoSpace) }
    }

    /// A new volume number.
    pub fn volume(&self) -> Result<VolumeId, Errno> {
        let next = |next: u32| next.checked_add(1);
        let drawn = self.next_volume.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
        drawn.map(VolumeId).map_err(|_| Errno::NoSpace)
    }
}

/// What an opening gives the engine for as long as it is open.
#[derive(Clone, Debug)]
pub struct Identity {
    /// Counts openings that do not follow a clean close.
    pub incarnation: u32,
    /// Counts all openings for writing; names segments.
    pub owner_epoch: u32,
    /// Counts openings that may have lost answered entries.
    pub lineage: u32,
    /// Everything up to here is durable, in the store or in the log as they were opened.
    pub recovered: Position,
    pub handle_key: HandleKey,
    /// Seals everything of the shard that is not a record.
    pub shard_key: Secret,
}

/// Deleted volumes that can still be brought back.
pub type Deleted = BTreeMap<VolumeId, (VolumeRecord, Arc<UsageCounter>)>;

/// What keeps the engine from doing all it should.
#[derive(Debug, Default)]
pub struct Health {
    /// No change is taken any more, and why.
    pub read_only: RwLock<Option<String>>,
    /// The store said it has no space left at the last checkpoint.
    pub store_full: AtomicBool,
    /// The last checkpoint failed.
    pub checkpoint_failed: AtomicBool,
    /// The log's medium is so slow that replies from memory would promise too much ([`crate::bounded`]).
    pub log_late: AtomicBool,
    /// The owner record was missing at the last heartbeat.
    pub owner_missing: AtomicBool,
    /// No object of the metadata was found by who looked for one; cleared by the heartbeat that finds some.
    pub metadata_missing: AtomicBool,
    /// What of the store was gone at the last checkpoint.
    pub gone: RwLock<Option<String>>,
    /// Another owner has claimed the shard: nothing is answered any more.
    pub deposed: AtomicBool,
    /// The metadata store says that another has opened it, and the owner record has not answered yet whether that one
    /// owns the shard: nothing is answered until it has.
    pub fenced: AtomicBool,
    /// The engine is closing: no operation changes anything any more. Changes under the gate.
    pub closing: AtomicBool,
    /// Damage found so far: what and where, the first hundred.
    pub damage: Mutex<Vec<String>>,
}

/// Descriptions of damage kept; beyond that there is only the log of the program.
const DAMAGE_MAX: usize = 100;

impl Health {
    /// Whether what this node would show or promise may not be the present any more.
    pub fn silent(&self) -> bool {
        self.deposed.load(Ordering::Relaxed) || self.fenced.load(Ordering::Relaxed)
    }

    /// What of the store is gone as far as is known: taken away under a running node, and perhaps to be put back.
    pub fn gone(&self) -> Option<String> {
        let missing = |what: &AtomicBool, told: &str| what.load(Ordering::Relaxed).then(|| told.to_owned());
        let owner = || missing(&self.owner_missing, "its owner record");
        let metadata = || missing(&self.metadata_missing, "every object of its metadata, below meta/");
        self.gone.read().clone().or_else(owner).or_else(metadata)
    }

    /// Notes and tells damage, described by object and owner; once.
    pub fn damaged(&self, text: String) {
        let mut damage = self.damage.lock();
        if !damage.contains(&text) {
            tracing::error!(damage = %text, "damaged data");
            if damage.len() < DAMAGE_MAX {
                damage.push(text);
            }
        }
    }
}

/// Everything that operations need. One per shard.
pub struct Core {
    pub world: World,
    pub config: Config,
    pub identity: Identity,
    pub log: Arc<Log>,
    pub stack: StackCell,
    /// Held shared while an entry is appended and applied; exclusively to close a generation.
    pub gate: RwLock<()>,
    /// Held shared by an operation that must fetch and run without an exchange between.
    pub exchange_pause: tokio::sync::RwLock<()>,
    pub stripes: Stripes,
    pub caches: Caches,
    pub dedupe: Dedupe,
    pub volumes: VolumeTable,
    pub deleted: Mutex<Deleted>,
    /// Held while an administrator's change is made: one at a time.
    pub admin: tokio::sync::Mutex<()>,
    pub read_ahead: ReadAhead,
    pub streams: Streams,
    /// Position of the last entry that brought data into the log that had passed it by.
    pub settled: AtomicU64,
    pub once: OnceTable,
    pub resent: Resent,
    pub session: Session,
    pub numbers: Numbers,
    pub segments: Segments,
    pub health: Health,
    /// A generation should be closed now rather than when its delay is over.
    pub checkpoint_due: Notify,
    pub pulse: Pulse,
    /// Somebody waits for what only a checkpoint brings.
    pub checkpoint_wanted: AtomicBool,
    /// The last generation closed because the log was filling.
    pub log_pressed: AtomicBool,
    /// When one last did, steady time in milliseconds; 0: never.
    pub pressed_at: AtomicU64,
    pub brake: Brake,
    pub store_room: StoreRoom,
    /// The log has been trimmed.
    pub log_trimmed: Notify,
}

impl std::fmt::Debug for Core {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Core(shard {})", self.config.shard)
    }
}

impl Core {
    /// Notes and tells damage found at `key`.
    pub fn damaged(&self, key: &Key, what: &str) {
        self.health.damaged(format!("{}: {what}", words(key)));
    }

    /// Notes and tells damage of data.
    pub fn note_damage(&self, text: String) {
        self.health.damaged(text);
    }

    /// Why a run may not be committed, if so; `grows`: bytes that it takes in the store, if it makes something grow.
    pub fn refuses_changes(&self, grows: Option<u64>) -> Option<Errno> {
        if self.health.silent() {
            return Some(Errno::TryLater);
        }
        if self.health.read_only.read().is_some() {
            return Some(Errno::ReadOnly);
        }
        grows.is_some_and(|bytes| self.store_is_full_for(bytes)).then_some(Errno::NoSpace)
    }

    /// What the store says of its room, if it does.
    pub fn space(&self) -> Option<Space> {
        // A file system without a size does not.
        self.config.capacity.as_ref().and_then(|ask| ask()).filter(|space| space.total > 0)
    }

    /// Asks the store how much room it has, and tells when there is none any more, or again. Where it does not answer, what it said
    /// last counts.
    pub fn look_for_room(&self) {
        let Some(space) = self.space() else { return };
        let was_full = self.store_room.is_full_for(0);
        self.store_room.tells(space);
        match self.store_room.is_full_for(0) {
            is_full if is_full == was_full => {}
            true => {
                tracing::warn!(free = space.free, "the object store has no space left for files to grow; make room")
            }
            false => tracing::info!(free = space.free, "the object store has space again"),
        }
    }

    /// Bytes by which files may grow beside what waits for a checkpoint; `None` if the store does not tell.
    pub fn room_for_growth(&self) -> Option<u64> {
        let room = self.stack.with(|stack| self.store_room.beside(stack))?;
        Some(if self.store_is_full_for(0) { 0 } else { room })
    }

    /// Whether no checkpoint would bring room for growth by `bytes`, or the last did not fit.
    pub fn store_is_full_for(&self, bytes: u64) -> bool {
        self.health.store_full.load(Ordering::Relaxed) || self.store_room.is_full_for(bytes)
    }

    /// Whether growth by `bytes` fits into the store beside what waits for a checkpoint.
    pub fn has_store_for(&self, bytes: u64) -> bool {
        self.room_for_growth().is_none_or(|room| room >= bytes)
    }

    /// Whether the log has room for an entry of `bytes` of data that makes files grow by `usage`.
    ///
    /// Its last part is kept for removing and writing over, so that a full store never meets a log that is full of what
    /// does not fit there; and a part for what is small, so that whoever writes little does not wait for the checkpoint
    /// that a stream waits for. The room for `unlogged` bytes, which have passed the log by, is left to a COMMIT of them.
    pub fn has_log_for(&self, usage: &[(VolumeId, i64, i64)], bytes: usize, unlogged: u64) -> bool {
        let growth = if grows(usage) { self.log_share(GROWTH_LEAVES, GROWTH_LEAVES_MAX) } else { 0 };
        let large = if bytes >= LARGE { self.log_share(LARGE_LEAVE, LARGE_LEAVE_MAX) } else { 0 };
        // What describes it in the log is a small part of it.
        let kept = growth + large + unlogged + unlogged / 64;
        kept == 0 || self.log.room() >= kept + bytes as u64
    }

    /// Bytes of the log that any change may use.
    pub fn log_for_all(&self) -> u64 {
        let growth = self.log_share(GROWTH_LEAVES, GROWTH_LEAVES_MAX);
        let large = self.log_share(LARGE_LEAVE, LARGE_LEAVE_MAX);
        (self.log.capacity() - self.log.reserve()).saturating_sub(growth + large)
    }

    /// Bytes of the largest records that any volume has.
    pub fn record_size(&self) -> u64 {
        self.volumes.all().iter().map(|volume| 1 << volume.record_bits()).max().unwrap_or(1 << 16)
    }

    fn log_share(&self, part: u64, most: u64) -> u64 {
        (self.log.capacity() / part).min(most)
    }

    /// The log has failed for good: from now on only what is durable is served.
    pub fn log_failed(&self, error: &LogError) -> Errno {
        let mut read_only = self.health.read_only.write();
        if read_only.is_none() {
            tracing::error!(%error, "the write log has failed; this node is read-only from now on");
            *read_only = Some(error.to_string());
        }
        Errno::Io
    }

    /// Bytes of RAM that all generations take, with what they keep of the log's memory.
    pub fn overlay_ram_bytes(&self) -> u64 {
        self.ram_bytes(self.load())
    }

    /// As [`Core::overlay_ram_bytes`], at the moment of this load.
    pub fn ram_bytes(&self, load: Load) -> u64 {
        load.ram + self.log.held() as u64
    }

    /// What all generations take now. Asked for once by what needs several of these numbers: it takes a lock.
    pub fn load(&self) -> Load {
        self.stack.with(|stack| stack.load())
    }

    /// Whether the overlay has room for data in two places, as it is while it moves.
    pub fn may_move(&self) -> bool {
        !self.config.spills(self.overlay_ram_bytes())
    }

    /// Bytes of data that have passed the log by and are not in the store.
    pub fn unlogged(&self) -> u64 {
        self.load().unlogged
    }

    /// The share of the overlay's RAM that changed keys take.
    pub fn keys_share(&self, load: Load) -> f64 {
        load.keys as f64 / self.config.overlay_limit() as f64
    }

    /// Whether the overlay takes all the RAM it may: changes wait for a checkpoint, as for room in the log.
    pub fn overlay_is_full(&self) -> bool {
        self.overlay_ram_bytes() >= self.config.overlay_limit()
    }

    /// Whether the keys of the open generation alone are such a share of the overlay's RAM that it should close.
    pub fn keys_fill(&self, open: &Generation) -> bool {
        open.key_bytes() as f64 >= self.config.overlay_limit() as f64 * KEYS_CLOSE
    }

    /// Whether the open generation holds so much that is in memory only that it should close.
    pub fn unlogged_fills(&self, open: &Generation) -> bool {
        open.unlogged() >= self.config.overlay_limit() / 4
    }

    /// Whether the log is so full that checkpoints should begin.
    pub fn log_is_filling(&self) -> bool {
        self.log_holds(self.config.log_fill_percent, self.unlogged())
    }

    /// Whether the log, with `unlogged` bytes that have passed it by, is so full that a generation should close. Where the last one closed because of it, half of that
    /// is enough: as long as changes come faster than checkpoints take them, checkpoints follow each other without a gap
    /// in which changes would come faster still.
    pub fn log_is_due(&self, unlogged: u64) -> bool {
        let halved = self.log_pressed.load(Ordering::Relaxed);
        self.log_holds(if halved { self.config.log_fill_percent / 2 } else { self.config.log_fill_percent }, unlogged)
    }

    /// A generation closes, because the log or its memory fills or not.
    pub fn closes(&self, pressed: bool) {
        self.log_pressed.store(pressed, Ordering::Relaxed);
        self.brake.closes(pressed);
        if pressed {
            let now = self.world.clock.steady().as_millis() as u64;
            self.pressed_at.store(now.max(1), Ordering::Relaxed);
        }
    }

    /// Whether one that closed so is not in the store yet, or closed less than `ago` ago; for [`Duration::MAX`] in any case.
    pub fn was_pressed(&self, ago: Duration) -> bool {
        let at = match self.pressed_at.load(Ordering::Relaxed) {
            _ if ago == Duration::MAX => return true,
            0 => return false,
            at => Duration::from_millis(at),
        };
        let is_there =
            || self.log_pressed.load(Ordering::Relaxed) && self.stack.with(|stack| stack.generations.len() > 1);
        self.world.clock.steady().saturating_sub(at) < ago || is_there()
    }

    /// Room is left in the log for what has passed it by, as a COMMIT may bring that into it.
    fn log_holds(&self, percent: u8, unlogged: u64) -> bool {
        // Of what the brake counts too: it would hold a burst for a checkpoint that has not begun.
        self.log.used() + unlogged > self.log_for_all() / 100 * u64::from(percent)
    }

    /// Asks for a checkpoint, however little there is for it.
    pub fn want_checkpoint(&self) {
        self.checkpoint_wanted.store(true, Ordering::Relaxed);
        self.checkpoint_due.notify_one();
    }

    /// Notes when the open generation begins to hold something; asks for a checkpoint when it or the log is full.
    pub fn note_progress(&self, open: &Generation, load: Load) {
        if open.first_change.get().is_none()
            && open.count() > 0
            && open.first_change.set(self.world.clock.steady()).is_ok()
        {
            self.checkpoint_due.notify_one();
        }
        // While one waits, none closes because of the log.
        let log_due = || {
            (self.log_is_due(load.unlogged) || self.unlogged_fills(open))
                && self.stack.with(|stack| stack.generations.len() == 1)
        };
        if open.count() >= self.config.generation_keys || self.keys_fill(open) || log_due() {
            self.checkpoint_due.notify_one();
        }
    }
}

/// Whether a change of usage takes room.
pub fn grows(usage: &[(VolumeId, i64, i64)]) -> bool {
    usage.iter().any(|(_, bytes, inodes)| *bytes > 0 || *inodes > 0)
}
