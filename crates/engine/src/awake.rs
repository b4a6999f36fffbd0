//! Whose the store is, looked at every heartbeat, and before anything is answered after a sleep ([`crate::pulse`]).

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures::future::{Either, select};
use tarn_vfs::{Answer, Done, Errno};

use crate::core::Core;
use crate::owner::{Standing, Tenure};
use crate::pulse::PULSES;

/// Heartbeats after which a look that is not answered is given up, and the next begins.
const LOOK_MAX: u32 = 5;

impl Core {
    /// As [`tarn_vfs::FileSystem::awake`].
    pub fn awake(self: &Arc<Core>, now: Duration) -> Option<Answer<()>> {
        if !self.pulse.sleeps(now, self.config.heartbeat) {
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
        loop {
            select(clock.sleep(heartbeat), pin!(self.pulse.look.notified())).await;
            if tenure.has_ended() {
                return self.pulse.end();
            }
            let begun = clock.steady();
            let standing = match select(pin!(tenure.check()), clock.sleep(heartbeat * LOOK_MAX)).await {
                Either::Left((standing, _)) => standing,
                Either::Right(_) => Standing::Unknown,
            };
            self.stands(standing);
            self.pulse.looked(begun, clock.steady());
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
