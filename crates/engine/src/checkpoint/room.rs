//! Room for a checkpoint, asked for before anything is written, where the store tells how much it has.
//!
//! - A metadata store that meets a full disk in the middle of a commit has failed: it has to be opened again, for which it
//!   must write, and until then it reads nothing. So it is not brought there: reading goes on while the disk is full.
//! - New segments leave more room than a batch alone asks for: a generation of deletions still fits where one with new content
//!   does not. One that is behind such content waits for it all the same.

use tarn_meta::Batch;

use super::{CheckpointError, Keeper};
use crate::config::Space;

/// Bytes that stay free for the metadata store: manifests, compactions, being opened again.
const ROOM: u64 = 8 << 20;
/// Files that stay to be made for it.
const FILES: u64 = 64;
/// Bytes that new segments leave free beyond those, for the batches that come after.
const BEYOND: u64 = 8 << 20;

impl Keeper {
    /// Whether there is room to begin at all.
    pub(super) fn room_to_begin(&self) -> Result<(), CheckpointError> {
        self.room(ROOM)
    }

    /// Whether the segments just written leave room.
    pub(super) fn room_after_segments(&self) -> Result<(), CheckpointError> {
        self.room(ROOM + BEYOND)
    }

    /// Whether there is room for `batch`, written once and compacted once, and for opening the store again.
    pub(super) fn room_for(&self, batch: &Batch) -> Result<(), CheckpointError> {
        let size = batch.changes.iter().map(|(key, value)| key.len() + value.as_ref().map_or(0, |value| value.len()));
        self.room(ROOM + 2 * size.sum::<usize>() as u64)
    }

    fn room(&self, needed: u64) -> Result<(), CheckpointError> {
        match self.core.config.capacity.as_ref().and_then(|ask| ask()) {
            // A file system without a size is one that does not tell.
            Some(Space { total, free, .. }) if total > 0 && free < needed => {
                Err(CheckpointError::Full(format!("{free} bytes are free, and its metadata may need {needed}")))
            }
            Some(Space { files, .. }) if files < FILES => Err(CheckpointError::Full(format!(
                "{files} more files may be made, by its free inodes, and its metadata may need {FILES}"
            ))),
            _ => Ok(()),
        }
    }
}
