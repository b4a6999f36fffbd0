//! Whether this node was stopped for so long that another may have taken its store meanwhile.
//!
//! - A pulse says four times a heartbeat that the node is awake. Whoever takes a store waits for two heartbeats: one whose
//!   pulse is older than one has the owner record looked at before connections go on. Who asks keeps the pulse too.
//! - A look counts if it began after the sleep was noticed. A store that does not answer stops nobody for long: engine rule 31
//!   and [`crate::awake`].
//! - A clock that stood still with the node tells nothing: docs/assumptions.md.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::Notify;

/// Pulses of a heartbeat.
pub const PULSES: u32 = 4;

#[derive(Debug, Default)]
pub struct Pulse {
    /// The last one, in nanoseconds of the steady clock.
    last: AtomicU64,
    /// When a sleep was noticed, as above; 0: awake.
    slept: AtomicU64,
    /// Asks for a look at the owner record at once.
    pub look: Notify,
    /// A look is over.
    looked: Notify,
}

fn nanos(time: Duration) -> u64 {
    time.as_nanos() as u64
}

impl Pulse {
    /// Says that the node is awake at `now`, unless it finds that it was not.
    pub fn beat(&self, now: Duration, heartbeat: Duration) {
        if !self.sleeps(now, heartbeat) {
            self.last.store(nanos(now), Ordering::Relaxed);
        }
    }

    /// Begins to count.
    pub fn begin(&self, now: Duration) {
        self.last.store(nanos(now), Ordering::Relaxed);
    }

    /// Nobody looks any more: the node is awake to its end.
    pub fn end(&self) {
        self.last.store(u64::MAX, Ordering::Relaxed);
        self.slept.store(0, Ordering::Release);
        self.looked.notify_waiters();
    }

    /// Whether the node slept and nobody has looked since.
    pub fn sleeps(&self, now: Duration, heartbeat: Duration) -> bool {
        if self.slept.load(Ordering::Acquire) > 0 {
            return true;
        }
        let now = nanos(now);
        let since = now.saturating_sub(self.last.load(Ordering::Relaxed));
        let sleeps = since > nanos(heartbeat);
        if !sleeps && since > nanos(heartbeat / PULSES) {
            // Who asks is awake, though the pulse is late.
            self.last.fetch_max(now, Ordering::Relaxed);
        }
        if sleeps && self.slept.swap(now, Ordering::AcqRel) == 0 {
            tracing::warn!("this node stood still: it looks whether the store is still its own before it answers");
            self.look.notify_one();
        }
        sleeps
    }

    /// Completes when a look has been taken since the sleep was noticed.
    pub async fn is_known(&self) {
        loop {
            let looked = self.looked.notified();
            if self.slept.load(Ordering::Acquire) == 0 {
                return;
            }
            looked.await;
        }
    }

    /// Whether a sleep was noticed and no look has counted since.
    pub fn waits(&self) -> bool {
        self.slept.load(Ordering::Acquire) > 0
    }

    /// A look at the owner record that began at `begun` is over at `now`, and counts.
    pub fn looked(&self, begun: Duration, now: Duration) {
        let slept = self.slept.load(Ordering::Acquire);
        if slept > 0 && nanos(begun) >= slept {
            self.last.store(nanos(now), Ordering::Relaxed);
            self.slept.store(0, Ordering::Release);
            self.looked.notify_waiters();
        }
    }
}
