//! The background loop: what a pass does bit by bit, while nobody notices.
//!
//! - An idle shard costs nothing: cuts are looked for when the view has changed, segments when that is some time ago
//!   or a hold time is over.
//! - While the log is filling it goes on at a quarter of its rate: a store that is always written to would grow for ever without.
//!   Only where checkpoints fail too it waits, for nothing comes of it then, and the log's room is the clients'. Where they fail
//!   because the store is full, it deletes what may be deleted, which takes no room and makes some.
//! - It stops where the engine may not change anything any more.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::{Pace, Reclaim, ReclaimError, Reclaimed};
use crate::fetch::either;

/// How often it looks whether there is something to do.
const TICK: Duration = Duration::from_secs(2);
/// Between two surveys of all segments; one reads some hundred bytes for each.
const SURVEY_MIN: Duration = Duration::from_secs(1);
const SURVEY_MAX: Duration = Duration::from_secs(300);
/// Bytes per second that rewriting reads and writes: little beside what a foreground moves.
const RATE: u64 = 32 << 20;

impl Reclaim {
    /// Starts the loop; it ends with [`Reclaim::stop`].
    pub(crate) fn start(self: &Arc<Self>) {
        self.core.world.spawn.spawn_bulk("reclaim", Box::pin(self.clone().run()));
    }

    async fn run(self: Arc<Self>) {
        let mut pace = Pace::limited(&self.core.world, RATE);
        while self.go_on().is_ok() {
            either(self.wake.notified(), self.core.world.clock.sleep(TICK)).await;
            if self.go_on().is_err() {
                return;
            }
            if self.holds_back() {
                continue;
            }
            let turn = if self.deletes_only() { self.delete_due().await } else { self.turn(&mut pace).await };
            if let Err(error) = turn {
                tracing::debug!(%error, "reclaim begins again later");
            }
        }
    }

    fn holds_back(&self) -> bool {
        let health = &self.core.health;
        let failing = || self.keeper.last().0.is_some() && !health.store_full.load(Ordering::Relaxed);
        self.core.log_is_filling() && failing()
            || health.deposed.load(Ordering::Relaxed)
            || health.read_only.read().is_some()
            || health.gone().is_some()
    }

    fn deletes_only(&self) -> bool {
        self.core.log_is_filling() && self.core.health.store_full.load(Ordering::Relaxed)
    }

    async fn delete_due(&self) -> Result<(), ReclaimError> {
        let mut memory = self.memory.lock().await;
        if self.survey_is_due(memory.survey, self.core.stack.load().version) {
            let (survey, mut done) = (self.survey(&mut memory).await?, Reclaimed::default());
            self.delete_condemned(&mut memory, &survey, &mut done).await?;
            tracing::debug!(?done, "reclaimed while the store is full");
        }
        Ok(())
    }

    async fn turn(&self, pace: &mut Pace) -> Result<(), ReclaimError> {
        let mut memory = self.memory.lock().await;
        let mut done = Reclaimed::default();
        let version = self.core.stack.load().version;
        if memory.cuts_seen != Some(version) {
            self.take_volumes_down(&mut done).await?;
            self.work_cuts_off(&mut done).await?;
            memory.cuts_seen = Some(version);
        } else if self.volumes_due().iter().any(|(_, begun)| !begun) {
            self.take_volumes_down(&mut done).await?;
        }
        if self.survey_is_due(memory.survey, version) {
            let survey = self.survey(&mut memory).await?;
            self.delete_condemned(&mut memory, &survey, &mut done).await?;
            self.compact(&mut memory, &survey, pace, &mut done).await?;
        }
        self.recall(&mut memory).await?;
        if done.moved > 0 && !self.core.log_is_filling() {
            // The space comes back with the batch, and nothing else might ask for one.
            self.keeper.sync().await?;
        }
        if done != Reclaimed::default() {
            tracing::debug!(?done, "reclaimed");
        }
        Ok(())
    }

    fn survey_is_due(&self, last: Option<super::survey::Taken>, version: u64) -> bool {
        let Some(last) = last else { return true };
        let clock = &self.core.world.clock;
        let every = (self.core.config.hold / 4).clamp(SURVEY_MIN, SURVEY_MAX);
        let changed = last.version != version && clock.steady() >= last.at + every;
        changed || last.next_due_ms.is_some_and(|due| due <= clock.now().as_millis())
    }
}
