//! Closing the open generation.
//!
//! - The entry that closes it is its last; it stands in the log, so that replay closes it at the same place.
//! - Nothing is between that entry and the next generation's first: the gate is held exclusively.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tarn_base::ids::{Position, VolumeId};
use tarn_wal::LogError;

use super::Keeper;
use crate::core::Core;
use crate::entry::Entry;
use crate::overlay::{Closed, Generation};
use crate::value::{ShardState, Usage};

impl Keeper {
    /// Closes the open generation unless nothing is in it; gives its last position.
    pub(super) fn close(&self) -> Result<Option<Position>, LogError> {
        let closed = self.core.close_generation()?;
        if closed.is_some() {
            self.closed.notify_one();
        }
        Ok(closed)
    }
}

impl Core {
    /// Closes the open generation unless nothing is in it; gives its last position.
    pub fn close_generation(&self) -> Result<Option<Position>, LogError> {
        let _gate = self.gate.write();
        let open = self.stack.with(|stack| stack.open().clone());
        if self.log.appended() <= open.after {
            return Ok(None);
        }
        let entry = Entry { closes: true, ..Entry::default() };
        let last = self.append_gated(&self.present(), &entry, None, true)?;
        let taken = self.log.used_up_to(last).saturating_sub(self.log.used_up_to(open.after));
        self.brake.weighs(taken + open.unlogged());
        let mut usage: Vec<_> = self.volumes.all().iter().map(|volume| (volume.id, volume.usage.get())).collect();
        usage.extend(self.deleted.lock().iter().map(|(id, (_, usage))| (*id, usage.get())));
        let next_inode = self.numbers.next_inode.load(Ordering::Relaxed);
        let next_volume = self.numbers.next_volume.load(Ordering::Relaxed);
        let next = end_generation(&open, last, (next_inode, next_volume), usage, self.world.clock.steady());
        self.stack.push(next);
        Ok(Some(last))
    }
}

/// Ends `open` with the entry at `last` and gives the generation that follows it.
pub(crate) fn end_generation(
    open: &Generation,
    last: Position,
    (next_inode, next_volume): (u64, u32),
    usage: Vec<(VolumeId, Usage)>,
    now: std::time::Duration,
) -> Arc<Generation> {
    let state = ShardState { position: last, next_inode, next_volume, ..ShardState::default() };
    // It was open, so nobody has closed it.
    let _ = open.closed.set(Closed { last, state, usage });
    Arc::new(Generation::new(open.number + 1, last, now))
}
