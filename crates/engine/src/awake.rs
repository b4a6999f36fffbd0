//! Whose the store is, looked at every heartbeat, and before connections go on after a sleep ([`crate::pulse`]).
//!
//! - After a sleep up to five looks of a heartbeat each are tried; if none says anything, the node goes on as it does beside a
//!   store that is away.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures::future::{Either, select};
use tarn_base::mutant;
use tarn_vfs::{Answer, Done, Errno};

use crate::core::Core;
use crate::owner::{Standing, Tenure};
use crate::pulse::PULSES;

/// Heartbeats after which a look that is not answered is given up; one, where everything waits for it.
const LOOK_MAX: u32 = 5;
/// Looks after a sleep that may say nothing before the node goes on without.
const LOOKS_MAX: u32 = 5;

impl Core {
    /// As [`tarn_vfs::FileSystem::awake`].
    pub fn awake(self: &Arc<Core>, now: Duration) -> Option<Answer<()>> {
        if self.health.deposed.load(Ordering::Relaxed) {
            return Some(Answer::ready(Err(Done::now(Errno::TryLater.into()))));
        }
        if !self.pulse.sleeps(now, self.config.heartbeat) || mutant::on(mutant::SLEEPER_ANSWERS) {
            return None;
        }
        let core = self.clone();
        Some(Answer::Waits(Box::pin(async move {
            core.pulse.is_known().await;
            match core.health.deposed.load(Ordering::Relaxed) {
                true => Err(Done::now(Errno::TryLater.into())),
                false => Ok(Done::now(())),
            }
        })))
    }

    /// Looks at the owner record every heartbeat, and when the node slept, until deposed or ended.
    pub async fn watch(self: Arc<Core>, tenure: Arc<Tenure>) {
        let (clock, heartbeat) = (self.world.clock.clone(), self.config.heartbeat);
        let mut in_vain = 0;
        loop {
            let pause = if in_vain > 0 { heartbeat / PULSES } else { heartbeat };
            select(clock.sleep(pause), pin!(self.pulse.look.notified())).await;
            if tenure.has_ended() {
                return self.pulse.end();
            }
            let begun = clock.steady();
            let patience = if self.pulse.waits() { heartbeat } else { heartbeat * LOOK_MAX };
            let standing = match select(pin!(tenure.check()), clock.sleep(patience)).await {
                Either::Left((standing, _)) => standing,
                Either::Right(_) => Standing::Unknown,
            };
            self.stands(standing);
            if self.health.metadata_missing.load(Ordering::Relaxed) {
                self.metadata_is_gone().await;
            }
            // What was answered late may have been overtaken by another sleep.
            let now = clock.steady();
            let says = standing != Standing::Unknown && now.saturating_sub(begun) <= heartbeat;
            in_vain = if says || !self.pulse.waits() { 0 } else { in_vain + 1 };
            if says || in_vain >= LOOKS_MAX {
                self.pulse.looked(begun, now);
                in_vain = 0;
            }
            if standing == Standing::Deposed {
                return;
            }
        }
    }

    fn stands(&self, standing: Standing) {
        if standing != Standing::Unknown {
            self.health.owner_missing.store(standing == Standing::Missing, Ordering::Relaxed);
        }
        if standing == Standing::Deposed {
            self.health.deposed.store(true, Ordering::Relaxed);
        }
    }

    /// Notes that the node is awake, until it is deposed or ends.
    pub async fn beat(self: Arc<Core>, tenure: Arc<Tenure>) {
        let (clock, heartbeat) = (self.world.clock.clone(), self.config.heartbeat);
        while !tenure.has_ended() && !self.health.deposed.load(Ordering::Relaxed) {
            self.pulse.beat(clock.steady(), heartbeat);
            clock.sleep(heartbeat / PULSES).await;
        }
        self.pulse.end();
    }
}
