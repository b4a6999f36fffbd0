//! What recovery finds missing: UNSTABLE data that had passed the log by (engine rule 5), and no later entry covers.

use std::collections::BTreeMap;

use tarn_base::ids::{Ino, Position, VolumeId};

use crate::entry::{Entry, Payload};
use crate::key::Key;
use crate::overlay::DataKey;
use crate::value::Inode;

/// UNSTABLE data that a crash took: these bytes are what they were before, or zeros.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LostData {
    pub volume: VolumeId,
    pub ino: Ino,
    /// Where in the file, and how much, bytes.
    pub offset: u64,
    pub len: u64,
    /// Position of the write.
    pub position: Position,
}

/// Bytes of a record.
#[derive(Clone, Copy, Debug)]
struct Piece {
    start: u32,
    end: u32,
    /// Where the record begins in the file.
    base: u64,
    position: Position,
}

impl Piece {
    /// What is left of it without `start..end`.
    fn without(self, start: u32, end: u32) -> impl Iterator<Item = Piece> {
        let before = Piece { end: self.end.min(start), ..self };
        let behind = Piece { start: self.start.max(end), ..self };
        [before, behind].into_iter().filter(|piece| piece.start < piece.end)
    }
}

/// See the head of the file.
#[derive(Debug, Default)]
pub struct Missing {
    lost: BTreeMap<DataKey, Vec<Piece>>,
    /// All that passed the log by, in order.
    all: Vec<LostData>,
}

fn lost((volume, ino, _): DataKey, piece: &Piece) -> LostData {
    let (offset, len) = (piece.base + u64::from(piece.start), u64::from(piece.end - piece.start));
    LostData { volume, ino, offset, len, position: piece.position }
}

/// Adds the next piece, to the last one if that is its neighbour in one write.
fn join(all: &mut Vec<LostData>, next: LostData) {
    let end = |last: &LostData| (last.volume, last.ino, last.position, last.offset + last.len);
    match all.last_mut() {
        Some(last) if end(last) == (next.volume, next.ino, next.position, next.offset) => last.len += next.len,
        _ => all.push(next),
    }
}

impl Missing {
    /// Goes over the next entry.
    pub fn entry(&mut self, entry: &Entry, position: Position) {
        for (volume, map, records) in &entry.discards {
            let range = (*volume, *map, records.start)..(*volume, *map, records.end);
            let gone: Vec<DataKey> = self.lost.range(range).map(|(key, _)| *key).collect();
            gone.iter().for_each(|key| drop(self.lost.remove(key)));
        }
        for change in &entry.data {
            let (start, end) = (change.start, change.start + change.payload.len());
            if matches!(change.payload, Payload::Lost(_)) {
                // What lies below it is not there either.
                let Some(bits) = record_bits(entry, change.key) else { continue };
                let base = change.key.2 << bits;
                let piece = Piece { start, end, base, position };
                join(&mut self.all, lost(change.key, &piece));
                self.lost.entry(change.key).or_default().push(piece);
            } else if let Some(pieces) = self.lost.get_mut(&change.key) {
                *pieces = pieces.iter().flat_map(|piece| piece.without(start, end)).collect();
            }
        }
    }

    /// In the order it was written, neighbours of one write as one; of each write what nothing that is there covers.
    pub fn list(&self) -> Vec<LostData> {
        let pieces = self.lost.iter().flat_map(|(key, pieces)| pieces.iter().map(|piece| lost(*key, piece)));
        let mut pieces: Vec<LostData> = pieces.collect();
        pieces.sort_by_key(|lost| (lost.position, lost.offset));
        let mut all = Vec::new();
        pieces.into_iter().for_each(|piece| join(&mut all, piece));
        all
    }

    /// All that had passed the log by, whether later entries have it or not.
    pub fn all(&self) -> Vec<LostData> {
        self.all.clone()
    }
}

/// A write carries its file's inode.
fn record_bits(entry: &Entry, (volume, ino, _): DataKey) -> Option<u8> {
    let key = Key::inode(volume, ino);
    let inode = entry.keys.iter().find(|(held, _)| *held == key).and_then(|(_, value)| value.as_ref());
    Some(Inode::decode(inode?).ok()?.record_bits)
}
