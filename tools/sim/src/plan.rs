//! What the seed decides before anything happens: sizes, speeds, faults, how each life ends.

use std::sync::Arc;
use std::time::Duration;

use tarn_engine::config::{Capacity, Space};
use tarn_engine::{Bypass, Config};
use tarn_vfs::{CompressionSetting, VolumeSettings, WriteSpeed};

use crate::chance::Chance;

/// How the life of a machine ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// Power goes once so many operations have been issued.
    Operations(u64),
    /// Power goes at the so-and-so-many'th crash point.
    Point(u64),
    /// Power goes in the middle of the disk's so-and-so-many'th write or flush.
    Disk(u64),
    /// Power goes at this crash point, the so-and-so-many'th time it is met.
    Named(&'static str, u64),
    /// The log's device fails, and power goes some time later.
    Device(DeviceFault),
    /// A clean stop.
    Clean,
    /// A clean stop, interrupted: at one of the stop's own crash points, or after so many of any kind.
    CleanUntil(u64),
}

/// How the log's device fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceFault {
    /// One flush fails; what it should have written is gone with the power.
    Flush,
    /// One write fails.
    Write,
    /// Every write and flush fails.
    ForEver,
}

impl Ending {
    pub fn name(self) -> &'static str {
        match self {
            Ending::Operations(_) => "between operations",
            Ending::Point(_) => "at a crash point",
            Ending::Disk(_) => "in the middle of a write",
            Ending::Named(..) => "at a crash point that was chosen",
            Ending::Device(_) => "after the log's device failed",
            Ending::Clean | Ending::CleanUntil(_) => "while stopping",
        }
    }
}

impl DeviceFault {
    pub fn name(self) -> &'static str {
        match self {
            DeviceFault::Flush => "a flush fails",
            DeviceFault::Write => "a write fails",
            DeviceFault::ForEver => "every write and flush fails",
        }
    }
}

/// Crash points met while clients work.
pub const LIFE_POINTS: [&str; 11] = [
    "checkpoint begins",
    "generations go together",
    "segments are written",
    "before the batch",
    "before opening the metadata store again",
    "the batch is durable",
    "the session image is durable",
    "the log is trimmed",
    "before moved records are written",
    "moved records are written",
    "a condemned object is deleted",
];
/// Of those, the ones that only a pass of reclaim meets, the one that only a failed commit leads to, and the one that only a full
/// store does.
const COLLECTION_POINTS: [&str; 3] =
    ["before moved records are written", "moved records are written", "a condemned object is deleted"];
const REOPENING_POINT: &str = "before opening the metadata store again";
const TOGETHER_POINT: &str = "generations go together";
/// Crash points met while opening; of the last, when the store is taken over.
pub const OPENING_POINTS: [&str; 5] = [
    "the owner record names us",
    "the log is replayed",
    "the opening batch is durable",
    "the log is started",
    "the store is claimed",
];
/// Crash points met while creating a store, besides those of an opening.
pub const CREATING_POINTS: [&str; 2] = ["the owner record is created", "the first volume is created"];
/// Crash points met while stopping.
pub const CLOSING_POINTS: [&str; 2] = ["before the owner record is closed", "before the log is closed"];

/// Lives of one history, at most.
pub const LIVES_MAX: usize = 30;

/// One life.
#[derive(Clone, Copy, Debug)]
pub struct LifePlan {
    /// Operations issued, if nothing ends it before.
    pub operations: u64,
    pub ending: Ending,
    /// After a clean stop, the next life begins on another machine with the bucket alone.
    pub moves: bool,
    /// After a crash the log is lost too, and the store is taken over without it.
    pub loses_log: bool,
    /// Faults of the object store, in a thousand calls.
    pub store_faults: u32,
    /// The object store has no space left, in a thousand writes.
    pub store_full: u32,
    /// The object store refuses many calls in a row, or is slow, in a thousand calls.
    pub store_spells: u32,
    /// Spoilt reads, in a thousand.
    pub spoilt_reads: u32,
    /// The wall clock jumps while clients work, in a thousand operations.
    pub clock_jumps: u32,
    /// Failed commits of the metadata store, in a hundred.
    pub commit_faults: u32,
    /// Passes of reclaim are asked for meanwhile.
    pub collects: bool,
    /// Volumes are made, changed and deleted meanwhile.
    pub administered: bool,
    /// Crash points met during each attempt to open before it is let through.
    pub opening_crashes: u32,
    /// The wall clock jumps before it.
    pub jump_ms: i64,
}

/// Everything the seed decides beforehand.
#[derive(Clone, Debug)]
pub struct Plan {
    pub seed: u64,
    /// Clients go through the NFS front end.
    pub wire: bool,
    /// More than are needed: lives go on until enough has happened.
    pub lives: Vec<LifePlan>,
    /// Lives that there are at least.
    pub lives_min: usize,
    pub clients: u64,
    /// Longest pause of a client between two operations, milliseconds.
    pub think_ms: u64,
    /// Longest delay before a wanted flush of the log begins, milliseconds.
    pub flush_ms: u64,
    /// Longest delay of a call of the object store, milliseconds.
    pub store_ms: u64,
    pub log_bytes: u64,
    pub volumes: Vec<VolumeSettings>,
    pub key_cache_bytes: u64,
    pub record_cache_bytes: u64,
    pub dedupe_bytes: u64,
    pub overlay_bytes: u64,
    pub generation_keys: usize,
    pub segment_bytes: u32,
    pub hold: Duration,
    /// Which UNSTABLE writes pass the log by.
    pub bypass: Bypass,
    /// From which size on data is kept where it was received.
    pub kept_min: usize,
    /// The store says how much room it has, and always that it has enough: one that was full takes all changes together.
    pub tells_room: bool,
}

impl Plan {
    pub fn new(seed: u64) -> Plan {
        let mut chance = Chance::new(seed, "plan");
        let chance = &mut chance;
        let lives_min = chance.range(5, 7) as usize;
        Plan {
            seed,
            wire: Chance::new(seed, "front end").percent(50),
            lives: (0..LIVES_MAX).map(|number| LifePlan::new(chance, number)).collect(),
            lives_min,
            clients: chance.range(2, 6),
            think_ms: *chance.pick(&[0, 1, 5, 40, 400]),
            flush_ms: *chance.pick(&[0, 0, 1, 4, 30]),
            store_ms: *chance.pick(&[0, 1, 20, 20, 200]),
            log_bytes: *chance.pick(&[1 << 20, 1 << 20, 2 << 20, 4 << 20]),
            volumes: (0..chance.range(1, 2)).map(|_| settings(chance)).collect(),
            key_cache_bytes: *chance.pick(&[1 << 10, 8 << 10, 64 << 10, 1 << 20]),
            record_cache_bytes: *chance.pick(&[4 << 10, 64 << 10, 1 << 20]),
            dedupe_bytes: *chance.pick(&[0, 4 << 10, 1 << 20, 1 << 20]),
            overlay_bytes: *chance.pick(&[0, 8 << 10, 64 << 10, 16 << 20]),
            generation_keys: *chance.pick(&[30, 60, 200, 1000]),
            segment_bytes: *chance.pick(&[16 << 10, 64 << 10, 256 << 10]),
            hold: Duration::from_millis(*chance.pick(&[0, 500, 20_000, 900_000])),
            bypass: bypass(&mut Chance::new(seed, "bypass")),
            kept_min: *Chance::new(seed, "kept").pick(&[1, 4096, 128 << 10]),
            tells_room: Chance::new(seed, "room").percent(80),
        }
    }

    /// The engine's settings, as the plan has them.
    pub fn config(&self) -> Config {
        let room: Capacity = Arc::new(|| Some(Space { total: 1 << 40, free: 1 << 40, files: u64::MAX }));
        Config {
            capacity: self.tells_room.then_some(room),
            key_cache_bytes: self.key_cache_bytes,
            record_cache_bytes: self.record_cache_bytes,
            dedupe_bytes: self.dedupe_bytes,
            overlay_bytes: self.overlay_bytes,
            generation_keys: self.generation_keys,
            segment_bytes: self.segment_bytes,
            hold: self.hold,
            bypass: self.bypass,
            kept_min: self.kept_min,
            // Clocks jump, and a deleted volume must not vanish for that.
            volume_keep: Duration::from_secs(10 * 365 * 24 * 3600),
            ..Config::default()
        }
    }
}

impl LifePlan {
    fn new(chance: &mut Chance, number: usize) -> LifePlan {
        let operations = chance.range(50, 130);
        // The first three end in a crash whatever happens.
        let clean = if number < 3 { 0 } else { 40 };
        let ending = match chance.weighted(&[30, 15, 15, 8, clean, clean / 2, 25]) {
            0 => Ending::Operations(chance.range(1, operations)),
            1 => Ending::Point(chance.range(1, 16)),
            2 => Ending::Disk(chance.range(1, operations)),
            3 => Ending::Device(*chance.pick(&[DeviceFault::Flush, DeviceFault::Write, DeviceFault::ForEver])),
            4 => Ending::Clean,
            5 => Ending::CleanUntil(chance.range(0, 4)),
            _ => Ending::Named(chance.pick::<&str>(&LIFE_POINTS), chance.range(1, 2)),
        };
        let named = match ending {
            Ending::Named(name, _) => Some(name),
            _ => None,
        };
        let collecting = named.is_some_and(|name| COLLECTION_POINTS.contains(&name));
        // Only after a commit that failed is it opened again.
        let reopening = named == Some(REOPENING_POINT);
        LifePlan {
            operations,
            ending,
            collects: chance.percent(20) || collecting,
            moves: chance.percent(50),
            loses_log: number >= 2 && chance.percent(15),
            store_faults: *chance.pick(&[0, 0, 10, 50, 200]),
            store_full: if named == Some(TOGETHER_POINT) { 400 } else { *chance.pick(&[0, 0, 0, 100, 400]) },
            store_spells: *chance.pick(&[0, 0, 0, 10]),
            spoilt_reads: *chance.pick(&[0, 0, 0, 20]),
            clock_jumps: *chance.pick(&[0, 0, 20]),
            commit_faults: if reopening { 40 } else { *chance.pick(&[0, 0, 5, 25]) },
            administered: chance.percent(30),
            opening_crashes: *chance.pick(&[0, 1, 1, 2, 3]),
            jump_ms: *chance.pick(&[0, 0, 0, 3_600_000, -60_000, -3_600_000]),
        }
    }
}

fn bypass(chance: &mut Chance) -> Bypass {
    if !chance.percent(60) {
        return Bypass { write_min: usize::MAX, after: 0, speed_min: 0, pressed: Duration::MAX };
    }
    let (write_min, after) = (*chance.pick(&[1, 512, 4096]), *chance.pick(&[0, 0, 8192]));
    let pressed = *chance.pick(&[Duration::MAX, Duration::MAX, Duration::from_secs(1)]);
    Bypass { write_min, after, speed_min: 0, pressed }
}

fn settings(chance: &mut Chance) -> VolumeSettings {
    VolumeSettings {
        record_size: *chance.pick(&[4 << 10, 4 << 10, 8 << 10, 64 << 10]),
        write_back_delay_ms: *chance.pick(&[0, 20, 200, 2_000, 30_000]),
        compression: *chance.pick(&[
            CompressionSetting::None,
            CompressionSetting::Lz4,
            CompressionSetting::Lz4,
            CompressionSetting::Zstd(1),
        ]),
        write_speed: if chance.percent(8) { WriteSpeed::High } else { WriteSpeed::Normal },
        dedupe: chance.percent(50),
        size_limit: chance.percent(15).then(|| chance.range(64 << 10, 1 << 20)),
        ..VolumeSettings::default()
    }
}
