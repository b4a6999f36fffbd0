//! What is taken in must fit into the store, where that tells how much room it has.
//!
//! - What was answered and does not fit would wait in the log for room, and every change behind it too, removals among them. So
//!   growth is refused before: for good if there is no room for it, for the moment while a checkpoint may show that there is.
//! - Writing over is not growth. It has room of its own, for what it writes over is deleted later; beyond that it waits in the log.
//! - The store is asked between checkpoints, not for each change. What the others on its disk take between two looks comes as a
//!   checkpoint that does not fit.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::config::Space;
use crate::entry::Entry;
use crate::key::KEY_SIZE;
use crate::overlay::Stack;

/// Bytes that stay free for the metadata store: manifests, compactions, being opened again.
pub(crate) const ROOM: u64 = 8 << 20;
/// Files that stay to be made for it.
pub(crate) const FILES: u64 = 64;
/// Bytes that new segments leave free beyond those, for the batches that come after.
pub(crate) const BEYOND: u64 = 8 << 20;
/// Bytes that a record takes beside its data, at most: in its segment's directory, its seal, its pointer.
pub(crate) const RECORD: u64 = 512;

/// Growth leaves this part of the store to what writes over, and at most so many bytes.
const OVERWRITING: u64 = 32;
const OVERWRITING_MAX: u64 = 256 << 20;
/// With less room than this beside itself a change is refused for good: checkpoints of still less would bring little more.
const LEAST: u64 = 1 << 20;
/// The store does not tell.
const UNTOLD: u64 = u64::MAX;

/// What the store told last.
#[derive(Debug)]
pub struct StoreRoom {
    /// Bytes by which files may grow.
    growth: AtomicU64,
    /// Bytes that are left to what writes over.
    overwriting: AtomicU64,
    /// Bytes of the largest record of which a part was written.
    record_size: AtomicU64,
}

impl Default for StoreRoom {
    fn default() -> StoreRoom {
        StoreRoom {
            growth: AtomicU64::new(UNTOLD),
            overwriting: AtomicU64::default(),
            record_size: AtomicU64::default(),
        }
    }
}

impl StoreRoom {
    /// Not while a checkpoint has stored a part: that would count twice.
    pub fn tells(&self, space: Space) {
        let overwriting = (space.total / OVERWRITING).min(OVERWRITING_MAX);
        self.overwriting.store(overwriting, Ordering::Relaxed);
        let growth = match space {
            // Each checkpoint makes a few files.
            Space { files, .. } if files < 2 * FILES => 0,
            Space { free, .. } => free.saturating_sub(ROOM + BEYOND + overwriting),
        };
        self.growth.store(growth, Ordering::Relaxed);
    }

    /// Part of a record of so many bytes was written: it is stored whole.
    pub fn writes_record(&self, size: u64) {
        if size > self.record_size.load(Ordering::Relaxed) {
            self.record_size.fetch_max(size, Ordering::Relaxed);
        }
    }

    /// Bytes by which files may grow beside what is in `stack` and not in the store; `None` if that does not tell.
    pub fn beside(&self, stack: &Stack) -> Option<u64> {
        if self.growth.load(Ordering::Relaxed) == UNTOLD {
            return None;
        }
        let record_size = self.record_size.load(Ordering::Relaxed);
        let (mut grown, mut rewritten) = (0, 0);
        for generation in &stack.generations {
            // A batch is written once and compacted once.
            grown += 2 * generation.keys_to_store() + generation.new_bytes() + RECORD * generation.records();
            rewritten += record_size * generation.rewritten();
        }
        // Only now: what left the stack meanwhile is no part of it any more.
        let growth = self.growth.load(Ordering::Relaxed);
        Some(growth.saturating_sub(grown + rewritten.saturating_sub(self.overwriting.load(Ordering::Relaxed))))
    }

    /// Whether no checkpoint would bring room for growth by `bytes`.
    pub fn is_full_for(&self, bytes: u64) -> bool {
        self.growth.load(Ordering::Relaxed) < bytes + LEAST
    }
}

/// Bytes that a change takes in the store, at most, if it grows.
pub fn demand(entry: &Entry) -> u64 {
    let keys = entry.keys.iter().map(|(_, value)| KEY_SIZE + value.as_ref().map_or(0, |value| value.len()));
    let records = RECORD * entry.data.len() as u64;
    entry.bytes() as u64 + records + 2 * keys.sum::<usize>() as u64
}
