//! What can be set of the engine; plain data, every default with its reason.

use std::sync::Arc;
use std::time::Duration;

/// Tells size and free space of the object store, where that is known.
pub type Capacity = Arc<dyn Fn() -> Option<Space> + Send + Sync>;

/// A file system's size and what may still be taken of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    /// Bytes; 0 where it does not tell.
    pub total: u64,
    /// Bytes.
    pub free: u64,
    /// Files that may be made; `u64::MAX` where it does not count them.
    pub files: u64,
}

/// Called with the name of each place where a crash is worth trying. Where it says yes, the task that came there
/// goes no further: whoever simulates the crash then drops the engine and everything it started.
pub type CrashPoints = Arc<dyn Fn(&'static str) -> bool + Send + Sync>;

/// Bytes of RAM that the overlay may always take: less would make checkpoints of a few keys each.
pub const OVERLAY_LEAST: u64 = 32 << 20;

/// Which UNSTABLE writes pass the log by: their data is in memory until a checkpoint or a COMMIT (engine rule 5).
#[derive(Clone, Copy, Debug)]
pub struct Bypass {
    /// Bytes of the write, at least.
    pub write_min: usize,
    /// Bytes of UNSTABLE data that the file has taken since its last COMMIT, at least, in writes of a quarter of `write_min` or
    /// more: who commits often gains nothing.
    pub after: u64,
    /// Bytes a second that checkpoints take, at least: for a slower store the log is what takes a burst in, and a COMMIT
    /// has less to bring into it.
    pub speed_min: u64,
    /// Only while a generation that closed because the log was filling, or the memory of such data, is not in the store yet and for
    /// so long after it closed, or while half of the memory is taken beyond which data stays in the log: a burst that ends before
    /// is what the log is for.
    pub pressed: Duration,
}

impl Bypass {
    /// `speed_min` where the store is on the log's disk, and what is logged is so much less stored. It lies below what checkpoints
    /// take beside a log of everything: with a higher one they would never take more.
    pub const SPEED_MIN_ON_ONE_DISK: u64 = 96 << 20;
}

impl Default for Bypass {
    fn default() -> Bypass {
        Bypass { write_min: 256 << 10, after: 64 << 20, speed_min: 256 << 20, pressed: Duration::from_secs(10) }
    }
}

/// Settings of one shard's engine.
#[derive(Clone)]
pub struct Config {
    /// For what files may grow by, and the free space that volumes show.
    pub capacity: Option<Capacity>,
    /// For simulation.
    pub crash_points: Option<CrashPoints>,
    /// Shard number, in every frame of the log.
    pub shard: u32,
    /// Limit of the cache of keys (names, attributes, pointers), bytes.
    pub key_cache_bytes: u64,
    /// Limit of the cache of decoded records, bytes.
    pub record_cache_bytes: u64,
    /// Limit of the dedupe index, bytes; each record in it takes 160.
    pub dedupe_bytes: u64,
    /// RAM of all that the store does not have yet, bytes. From three quarters of it on data stays in the log, to be read
    /// back; at all of it changes wait for a checkpoint. Of less than [`OVERLAY_LEAST`] only the first is true.
    pub overlay_bytes: u64,
    /// A generation closes at this many changed keys: a checkpoint of more would need too much memory.
    pub generation_keys: usize,
    /// A generation closes when of the log that any change may use so much is taken, in percent.
    pub log_fill_percent: u8,
    pub bypass: Bypass,
    /// Data of so many bytes is kept where it was received, and is not copied into the log's frames: front ends receive messages
    /// from about this size on in memory for that.
    pub kept_min: usize,
    /// Size at which a segment is closed, bytes (4 to 32 MiB): large enough to be cheap to PUT, small enough to
    /// be rewritten.
    pub segment_bytes: u32,
    /// How long the objects of condemned segments stay, so that a reader with an old view still finds them.
    pub hold: Duration,
    /// How long a checkpoint waits for an object that is not there and of which only a part is overwritten: somebody may put
    /// it back. Then what it held is lost.
    pub missing: Duration,
    /// How often the owner looks at its record.
    pub heartbeat: Duration,
    /// Locks may be reclaimed for this long after a restart that lost them.
    pub grace: Duration,
    /// How long a change waits for room in the log before the client is told to try later.
    pub log_wait: Duration,
    /// How long the data of a deleted volume stays.
    pub volume_keep: Duration,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            capacity: None,
            crash_points: None,
            shard: 1,
            key_cache_bytes: 256 << 20,
            record_cache_bytes: 512 << 20,
            dedupe_bytes: 128 << 20,
            overlay_bytes: 512 << 20,
            generation_keys: 200_000,
            log_fill_percent: 40,
            bypass: Bypass::default(),
            kept_min: 128 << 10,
            segment_bytes: 16 << 20,
            hold: Duration::from_secs(15 * 60),
            missing: Duration::from_secs(10 * 60),
            heartbeat: Duration::from_secs(2),
            grace: Duration::from_secs(45),
            // Less than a client's first retransmission (60 s), more than a checkpoint takes.
            log_wait: Duration::from_secs(10),
            volume_keep: Duration::from_secs(24 * 3600),
        }
    }
}

impl Config {
    /// Bytes of RAM at which changes wait.
    pub fn overlay_limit(&self) -> u64 {
        self.overlay_bytes.max(OVERLAY_LEAST)
    }

    /// Whether data stays in the log while the overlay takes `ram_bytes`.
    pub fn spills(&self, ram_bytes: u64) -> bool {
        ram_bytes > self.spills_at()
    }

    /// Bytes of RAM that the overlay takes from which data stays in the log.
    pub fn spills_at(&self) -> u64 {
        self.overlay_bytes / 4 * 3
    }

    /// A place where a crash is worth trying.
    pub async fn crash_point(&self, name: &'static str) {
        if self.crash_points.as_ref().is_some_and(|crashes| crashes(name)) {
            std::future::pending().await
        }
    }
}

impl std::fmt::Debug for Config {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Config(shard {})", self.shard)
    }
}
