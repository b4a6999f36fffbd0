//! Bringing into the log what has passed it by (engine rule 5): the same bytes again, in entries of their own.
//!
//! - Only what readers see of it, and all of that: what was written over, or cut off, must not come back, and what was written
//!   over by what has passed the log by as well is durable with that.
//! - Nothing else of the file changes.

use smallvec::SmallVec;
use tarn_base::ids::{Ino, VolumeId};
use tarn_base::mutant;

use super::read::fill;
use crate::entry::{DataChange, Payload};
use crate::overlay::{Extent, Source};
use crate::run::Operation;
use crate::stripes::LockSet;
use crate::tx::{Step, Tx};
use crate::value::MapState;

pub struct Settle {
    pub volume: VolumeId,
    pub ino: Ino,
    pub records: Vec<u64>,
    /// The engine is closing.
    pub closing: bool,
}

/// Bytes of one entry, and extents: what describes them counts too.
const BYTES_MAX: usize = 1 << 20;
const EXTENTS_MAX: usize = 1000;

impl Operation for Settle {
    /// The record to go on from; `None`: all of them are settled.
    type Out = Option<u64>;

    fn locks(&self) -> LockSet {
        LockSet::exclusive(self.volume, self.ino.0)
    }

    fn run(&self, tx: &mut Tx<'_>) -> Step<Option<u64>> {
        let Some(inode) = tx.find_inode(self.volume, self.ino)? else { return Ok(None) };
        (tx.settles, tx.closing) = (true, self.closing);
        let (mut bytes_taken, mut extents) = (0, 0);
        let cuts = tx.cuts(self.volume, self.ino, inode.has_cuts)?;
        let stack = tx.stack.clone();
        for record in &self.records {
            let key = (self.volume, self.ino, *record);
            let counts = |generation| cuts.as_ref().is_none_or(|map: &MapState| map.counts(*record, generation));
            let mut gaps: SmallVec<[(u32, u32); 4]> = SmallVec::from_slice(&[(0, inode.record_size() as u32)]);
            for generation in &stack.generations {
                if mutant::on(mutant::SETTLED_OVER_NEWER) {
                    gaps = SmallVec::from_slice(&[(0, inode.record_size() as u32)]);
                }
                let mut found: SmallVec<[Extent; 4]> = SmallVec::new();
                let mut made_in = 0;
                generation.see_record(&key, |dirty| {
                    if counts(dirty.generation) {
                        made_in = dirty.generation;
                        gaps = fill(std::mem::take(&mut gaps), &dirty.extents, &mut found);
                    }
                });
                for Extent { start, source, .. } in found {
                    if let Source::Unlogged { bytes, own } = source {
                        (bytes_taken, extents) = (bytes_taken + bytes.len(), extents + 1);
                        if extents > 1 && (bytes_taken > BYTES_MAX || extents > EXTENTS_MAX) {
                            return Ok(Some(*record));
                        }
                        let payload = if own { Payload::Bytes(bytes) } else { Payload::Kept(bytes) };
                        tx.write(DataChange { key, generation: made_in, new: false, start, payload });
                    }
                }
            }
        }
        Ok(None)
    }
}
