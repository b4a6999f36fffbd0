//! Changes that the brake holds back before they run.

use std::sync::Arc;
use std::time::Duration;

use crate::brake::Fill;
use crate::core::{Core, LARGE};

/// A change that waits.
#[derive(Debug)]
pub struct Held {
    core: Arc<Core>,
    /// Steady time, nanoseconds.
    until: u64,
}

impl Held {
    /// Waits. Those of one beat go on together, and share a flush.
    pub async fn over(self) {
        let clock = &self.core.world.clock;
        clock.sleep(Duration::from_nanos(self.until).saturating_sub(clock.steady())).await;
    }
}

impl Core {
    /// Whether a change of `bytes` of data waits before it runs.
    pub fn hold(self: &Arc<Self>, bytes: usize) -> Option<Held> {
        let large = bytes >= LARGE;
        let now = || self.world.clock.steady();
        let load = self.load();
        let until = self.brake.until(bytes, large, self.fills(large, load.unlogged), self.keys_share(load), now)?;
        Some(Held { core: self.clone(), until })
    }

    /// Bytes of the log that are taken, and those that it has. A stream that passes the log by fills memory: where that is less, but
    /// at least half of it, a brake that waited for the log to fill would begin when the stream does not pass any more.
    fn fills(&self, large: bool, unlogged: u64) -> Fill {
        let (logged, room) = (self.log.used(), self.log_for_all());
        let memory = self.config.spills_at();
        let passes = large && unlogged > logged && memory >= room / 2 && self.has_bypass();
        if passes && memory < room {
            return Fill::of_memory(logged + unlogged, memory);
        }
        Fill::of_log(logged + unlogged, room, self.config.log_fill_percent)
    }
}
