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
    /// Waits. Those whose time is nearly the same go on together, and share a flush.
    pub async fn over(self) {
        let clock = &self.core.world.clock;
        clock.sleep(Duration::from_nanos(self.until).saturating_sub(clock.steady())).await;
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.core.brake.leaves();
    }
}

impl Core {
    /// Whether a change of `bytes` of data waits before it runs.
    pub fn hold(self: &Arc<Self>, bytes: usize) -> Option<Held> {
        let wait = self.brake.wait_for(bytes, bytes >= LARGE, self.log.used(), self.log_for_all());
        if wait.is_zero() {
            return None;
        }
        let until = self.brake.until(wait, self.world.clock.steady())?;
        self.brake.enters();
        Some(Held { core: self.clone(), until })
    }
}
