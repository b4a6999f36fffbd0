//! What a checkpoint spends its time on.

use std::ops::AddAssign;
use std::time::Duration;

use tarn_base::world::World;

/// The time of each stage, in the order in which they come; together all but a moment of what a checkpoint took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stages {
    /// Waiting until the generation is durable in the log.
    pub log: Duration,
    /// Sorting what changed and reading the old values that matter.
    pub collect: Duration,
    /// Reading old content that new bytes do not cover.
    pub read: Duration,
    /// Merging, compressing, encrypting, and waiting for segments to be written.
    pub pack: Duration,
    /// Bringing the segments' keys up to date.
    pub table: Duration,
    /// Writing the batch.
    pub commit: Duration,
    /// Into the caches, and the exchange.
    pub show: Duration,
    /// The image of session state, and giving room in the log back.
    pub trim: Duration,
}

impl Stages {
    /// Each with its name.
    pub fn named(&self) -> [(&'static str, Duration); 8] {
        [
            ("log", self.log),
            ("collect", self.collect),
            ("read", self.read),
            ("pack", self.pack),
            ("table", self.table),
            ("commit", self.commit),
            ("show", self.show),
            ("trim", self.trim),
        ]
    }
}

impl AddAssign for Stages {
    fn add_assign(&mut self, other: Stages) {
        self.log += other.log;
        self.collect += other.collect;
        self.read += other.read;
        self.pack += other.pack;
        self.table += other.table;
        self.commit += other.commit;
        self.show += other.show;
        self.trim += other.trim;
    }
}

/// A clock that tells the time since it was last asked.
pub(super) struct Lap<'a> {
    world: &'a World,
    last: Duration,
}

impl<'a> Lap<'a> {
    pub(super) fn new(world: &'a World) -> Lap<'a> {
        Lap { world, last: world.clock.steady() }
    }

    pub(super) fn next(&mut self) -> Duration {
        let now = self.world.clock.steady();
        let last = std::mem::replace(&mut self.last, now);
        now.saturating_sub(last)
    }
}
