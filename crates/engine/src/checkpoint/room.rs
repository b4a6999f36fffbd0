//! Room for a checkpoint, asked for before anything is written, where the store tells how much it has.
//!
//! - A metadata store that meets a full disk in the middle of a commit has failed: it has to be opened again, for which it
//!   must write, and until then it reads nothing. So it is not brought there: reading goes on while the disk is full.
//! - New segments leave more room than a batch alone asks for: a generation of deletions still fits where one with new content
//!   does not.
//! - One that is behind such content would wait for it: all go together then, if that fits, and what they remove or write over is
//!   not stored.
//! - What did not fit is not written again and again: only once there is more room, or after a minute.

use std::collections::BTreeMap;
use std::time::Duration;

use tarn_base::ids::{Ino, VolumeId};
use tarn_meta::Batch;
use tarn_wal::LogError;

use super::{CheckpointError, Keeper, Turn};
use crate::admission::{BEYOND, FILES, RECORD, ROOM};
use crate::config::Space;
use crate::key::Key;
use crate::overlay::{DataKey, DirtyRecord, Stack};
use crate::value::{Inode, MapState};

/// What did not fit is not tried again before so much more room is there, or so long after.
const MORE: u64 = 1 << 20;
const AGAIN: Duration = Duration::from_secs(60);
/// So many closed generations at most are there for the sake of a full store: each takes memory of its own.
const CLOSED_MAX: usize = 64;

impl Keeper {
    /// Whether all changes together fit into the store, as far as it tells how much room it has. The open generation is closed then,
    /// to go with the others.
    pub(super) fn closed_to_fit(&self) -> Result<bool, LogError> {
        let Some(Space { free, files, .. }) = self.core.space() else { return Ok(false) };
        if free < ROOM || files < FILES {
            return Ok(false);
        }
        let stack = self.core.stack.load();
        let data = data_together(&stack, self.core.record_size());
        let beyond = if data > 0 { BEYOND } else { 0 };
        let keys: u64 = stack.generations.iter().map(|generation| generation.keys_to_store()).sum();
        // A batch is written once and compacted once.
        if free < ROOM + beyond + data + 2 * keys {
            return Ok(false);
        }
        if stack.open().count() > 0 && stack.generations.len() <= CLOSED_MAX {
            match self.core.close_generation() {
                // What is closed may fit without.
                Ok(_) | Err(LogError::Full | LogError::Busy) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    /// Notes the room that an attempt has left which wrote segments and met a full store.
    pub(super) fn note_room(&self, turn: &mut Turn, was_full: bool) {
        let space = if was_full { self.core.space() } else { None };
        turn.left = space.map(|space| (space.free, self.core.world.clock.steady()));
    }

    /// Why another attempt would only write what the last one wrote, if so.
    pub(super) fn in_vain(&self, turn: &Turn) -> Option<CheckpointError> {
        let (left, at) = turn.left?;
        let Space { free, .. } = self.core.space()?;
        let vain = free < left + MORE && self.core.world.clock.steady() < at + AGAIN;
        vain.then(|| CheckpointError::Full(format!("{free} bytes are free, which was not enough")))
    }

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
        match self.core.space() {
            Some(Space { free, .. }) if free < needed => {
                Err(CheckpointError::Full(format!("{free} bytes are free, and its metadata may need {needed}")))
            }
            Some(Space { files, .. }) if files < FILES => Err(CheckpointError::Full(format!(
                "{files} more files may be made, by its free inodes, and its metadata may need {FILES}"
            ))),
            _ => Ok(()),
        }
    }
}

/// Bytes that the records of all of `stack` take in the store at most, about: not those of files that are gone, nor what was cut off.
/// Nothing is read for it.
fn data_together(stack: &Stack, record_size: u64) -> u64 {
    let mut files: BTreeMap<(VolumeId, Ino), File> = BTreeMap::new();
    let mut sizes: BTreeMap<DataKey, u64> = BTreeMap::new();
    for generation in &stack.generations {
        for (key, record) in generation.sorted_records() {
            let (volume, ino, number) = key;
            let file = files.entry((volume, ino)).or_insert_with(|| File::at_the_end(stack, volume, ino, record_size));
            if let Some(size) = file.stores(number, &record) {
                let held = sizes.entry(key).or_default();
                *held = size.max(*held);
            }
        }
    }
    sizes.values().map(|size| size + RECORD).sum()
}

/// A file as all changes leave it.
struct File {
    /// 0: it is gone.
    record_size: u64,
    cuts: Option<MapState>,
}

impl File {
    fn at_the_end(stack: &Stack, volume: VolumeId, ino: Ino, record_size: u64) -> File {
        let inode = stack.get(&Key::inode(volume, ino)).map(|changed| changed.value);
        let record_size = match inode {
            // As it was before, of which nothing is known here.
            None => record_size,
            Some(None) => 0,
            Some(Some(value)) => Inode::decode(&value).map_or(record_size, |inode| 1 << inode.record_bits),
        };
        let cuts = stack.get(&Key::map(volume, ino)).and_then(|changed| changed.value);
        File { record_size, cuts: cuts.and_then(|value| MapState::decode(&value).ok()) }
    }

    /// Bytes of data that a checkpoint stores of a dirty record; `None` if it does not store it.
    fn stores(&self, number: u64, record: &DirtyRecord) -> Option<u64> {
        match &self.cuts {
            _ if self.record_size == 0 => None,
            Some(cuts) if cuts.drops_charge(record.generation) => None,
            Some(cuts) if !cuts.counts(number, record.generation) => Some(1),
            _ if record.new => Some(record.new_bytes().min(self.record_size)),
            // What was there before is stored with it.
            _ => Some(self.record_size),
        }
    }
}
