//! When a generation closes, and bringing closed ones to the store (engine rule 14).
//!
//! - Two tasks: one closes, one checkpoints, so that a slow store does not let a generation grow beyond its size.
//! - A failure is retried with growing pauses for as long as it takes; writes go on meanwhile.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tarn_wal::LogError;

use super::{CheckpointError, Keeper};
use crate::fetch::either;

const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LAST_PAUSE: Duration = Duration::from_secs(10);
/// How long nothing is looked at when nothing is to be done.
const IDLE: Duration = Duration::from_secs(3600);
/// Between two looks at a store that nothing is committed to: at its room, and at its metadata.
const LOOK: Duration = Duration::from_secs(5);
/// Between two looks at a generation that nothing is in, at least.
const LOOK_MIN: Duration = Duration::from_secs(1);

impl Keeper {
    /// Starts both tasks; they end with [`Keeper::stop`].
    pub(crate) fn start(self: &Arc<Self>) {
        // What was replayed may be of any volume.
        self.core.store_room.writes_record(self.core.record_size());
        self.core.look_for_room();
        let spawn = self.core.world.spawn.clone();
        spawn.spawn("generations", Box::pin(self.clone().close_when_due()));
        spawn.spawn_bulk("checkpoints", Box::pin(self.clone().run_when_closed()));
    }

    async fn close_when_due(self: Arc<Self>) {
        while !self.stopping() {
            let wait = match self.due_in() {
                Duration::ZERO => {
                    match self.close() {
                        Ok(_) => {}
                        // A checkpoint of what is closed already makes room.
                        Err(LogError::Full | LogError::Busy) => self.core.world.clock.sleep(FIRST_PAUSE).await,
                        Err(error) => {
                            self.core.log_failed(&error);
                            return;
                        }
                    }
                    continue;
                }
                wait => wait,
            };
            either(self.core.checkpoint_due.notified(), self.core.world.clock.sleep(wait)).await;
        }
    }

    /// How long the open generation may stay open.
    fn due_in(&self) -> Duration {
        let stack = self.core.stack.load();
        let open = stack.open();
        let one_waits = stack.generations.len() > 1;
        if open.count() >= self.core.config.generation_keys || self.core.keys_fill(open) {
            return Duration::ZERO;
        }
        if one_waits {
            return IDLE;
        }
        let wanted = self.core.checkpoint_wanted.swap(false, Ordering::Relaxed);
        if open.count() > 0 && (wanted || self.core.overlay_is_full()) {
            return Duration::ZERO;
        }
        let pressed = (self.core.log_is_due(self.core.unlogged()) || self.core.unlogged_fills(open))
            && self.core.log.appended() > open.after
            && self.log_gains();
        self.core.closes(pressed);
        if pressed {
            return Duration::ZERO;
        }
        let volumes = self.core.volumes.all();
        let delay = volumes.iter().map(|volume| volume.record.settings.write_back_delay_ms).min();
        let delay = delay.map_or(IDLE, Duration::from_millis);
        if open.count() == 0 {
            // The first change wakes this up; what recovery left open tells of none.
            return delay.max(LOOK_MIN);
        }
        let since = open.first_change.get().copied().unwrap_or(open.opened);
        (since + delay).saturating_sub(self.core.world.clock.steady())
    }

    /// Whether a checkpoint would free more of the log than its own session image takes.
    fn log_gains(&self) -> bool {
        let stack = self.core.stack.load();
        stack.open().count() > 0 || self.core.log.appended().0 > stack.open().after.0 + 64
    }

    async fn run_when_closed(self: Arc<Self>) {
        let mut pause = FIRST_PAUSE;
        while !self.stopping() {
            match self.run_next(false).await {
                Ok(Some(_)) => {
                    pause = FIRST_PAUSE;
                    self.core.checkpoint_due.notify_one();
                }
                Ok(None) => {
                    either(self.closed.notified(), self.core.world.clock.sleep(LOOK)).await;
                    self.memory.rest();
                    self.revive().await;
                }
                Err(CheckpointError::Deposed) => return,
                Err(CheckpointError::Log(error)) if !matches!(error, LogError::Full | LogError::Busy) => {
                    self.core.log_failed(&error);
                    return;
                }
                Err(_) => {
                    either(self.closed.notified(), self.core.world.clock.sleep(pause)).await;
                    pause = (pause * 2).min(LAST_PAUSE);
                }
            }
        }
    }

    /// Opens the metadata store again if it has ended by itself: until then nothing is read that is not in memory, and the
    /// next checkpoint may be far away.
    async fn revive(&self) {
        let mut turn = self.turn.lock().await;
        if self.stopping() || !self.has_ended(&mut turn).await {
            return;
        }
        match self.ready(&mut turn).await {
            Ok(_) => {
                self.note_gone(None);
                self.last.lock().0 = None;
            }
            Err(error) => {
                tracing::warn!(%error, "the metadata store does not open");
                self.note_failure(&error);
            }
        }
    }
}
