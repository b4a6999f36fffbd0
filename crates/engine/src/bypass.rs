//! UNSTABLE data that passes the log by (engine rule 5): which, and making it durable before its checkpoint does.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use tarn_base::ids::{Ino, VolumeId};
use tarn_vfs::{Errno, WriteSpeed};

use crate::core::Core;
use crate::fetch::either;
use crate::ops::settle::Settle;
use crate::volumes::Volume;

/// Records that are gone through at once.
const RECORDS_AT_ONCE: usize = 256;
/// Data that nobody commits is in memory only for no longer than this: the longest write-back delay of a volume with bypass.
const DELAY_MAX_MS: u64 = 60_000;
/// How long a COMMIT waits for the checkpoint of what is closed already.
const WAIT: Duration = Duration::from_secs(2);
/// Between two looks at it.
const LOOK: Duration = Duration::from_millis(20);

impl Core {
    /// Whether an UNSTABLE write of `len` bytes passes the log by: there is memory for it, and a checkpoint will take it soon.
    pub fn bypasses(&self, volume: &Volume, ino: Ino, len: usize) -> bool {
        let bypass = &self.config.bypass;
        len >= bypass.write_min
            && volume.record.settings.write_speed != WriteSpeed::High
            && volume.record.settings.write_back_delay_ms <= DELAY_MAX_MS
            && self.streams.taken(volume.id, ino) >= bypass.after
            && self.has_bypass()
            && self.has_log_for(&[(volume.id, len as i64, 0)], len, self.unlogged())
    }

    /// Whether anything may pass the log by at present.
    pub fn has_bypass(&self) -> bool {
        let memory = self.overlay_ram_bytes();
        // What memory will not hold would be read back from the log.
        let outlasts = || memory > self.config.spills_at() / 2 || self.was_pressed(self.config.bypass.pressed);
        self.brake.speed() >= self.config.bypass.speed_min
            && outlasts()
            && !self.checkpoint_fails()
            && !self.config.spills(memory)
    }

    /// Brings all data of a file that has passed the log by into the log, or sees it into the store. It is durable once
    /// [`Core::settled`] is.
    pub async fn settle(self: &Arc<Self>, volume: VolumeId, ino: Ino) -> Result<(), Errno> {
        let open = self.stack.load().open().number;
        let from = self.streams.unsettled_from(volume, ino);
        self.settle_of(volume, ino, open..=open, false).await?;
        // What is closed is on its way into the store; once there it needs no log.
        let until = self.world.clock.steady() + WAIT;
        let waits = |core: &Core| {
            let stack = core.stack.load();
            let mut closed = stack.generations.iter().filter(|generation| (from..=open).contains(&generation.number));
            closed.any(|generation| generation.has_unlogged(volume, ino))
        };
        while waits(self) && self.world.clock.steady() < until && !self.checkpoint_fails() {
            either(self.log_trimmed.notified(), self.world.clock.sleep(LOOK)).await;
        }
        self.settle_of(volume, ino, from..=open, false).await?;
        // Those before it were closed already, and change no more.
        self.streams.settled_before(volume, ino, open, self.stack.load().oldest());
        Ok(())
    }

    /// The same of every file, without waiting for the store, at the end of use; the first error, when all have had their turn.
    pub async fn settle_all(self: &Arc<Self>) -> Result<(), Errno> {
        let stack = self.stack.load();
        let files: BTreeSet<_> = stack.generations.iter().flat_map(|generation| generation.unlogged_maps()).collect();
        let mut settled = Ok(());
        for (volume, ino) in files {
            settled = settled.and(self.settle_of(volume, ino, 0..=u64::MAX, true).await);
        }
        settled
    }

    fn checkpoint_fails(&self) -> bool {
        self.health.checkpoint_failed.load(std::sync::atomic::Ordering::Relaxed)
    }

    /// Settles the records of a file of which some generations hold data that has passed the log by.
    async fn settle_of(
        self: &Arc<Self>,
        volume: VolumeId,
        ino: Ino,
        numbers: RangeInclusive<u64>,
        closing: bool,
    ) -> Result<(), Errno> {
        let stack = self.stack.load();
        let meant = stack.generations.iter().filter(|generation| numbers.contains(&generation.number));
        let records: BTreeSet<u64> = meant.flat_map(|generation| generation.unlogged_of(volume, ino)).collect();
        drop(stack);
        let records: Vec<u64> = records.into_iter().collect();
        for part in records.chunks(RECORDS_AT_ONCE) {
            let mut records = part.to_vec();
            while !records.is_empty() {
                self.wait_for_room(1 << 20, true).await;
                let settle = Settle { volume, ino, records: records.clone(), closing };
                let done = self.execute(settle).await.map_err(|done| done.value.errno)?;
                let Some(next) = done.value else { break };
                records.retain(|record| *record >= next);
            }
        }
        Ok(())
    }
}
