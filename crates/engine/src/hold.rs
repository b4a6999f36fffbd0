//! Changes that the brake holds back before they run.

use std::sync::Arc;
use std::time::Duration;

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
        let log = (self.log_used(), self.log_for_all());
        let now = || self.world.clock.steady();
        let until = self.brake.until(bytes, bytes >= LARGE, log, self.keys_share(), now)?;
        Some(Held { core: self.clone(), until })
    }
}
