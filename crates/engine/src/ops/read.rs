//! Reading bytes: overlay first, then the records of the store; holes are zeros.

use bytes::{Buf, Bytes};
use smallvec::SmallVec;
use tarn_base::pages::Pages;
use tarn_data::{LostBytes, RecordPointer, object_name};
use tarn_vfs::posix::check_read;
use tarn_vfs::{Caller, Change, Errno, IO_SIZE_MAX, Node, ReadReply};

use super::data::{self, records_of};
use crate::key::Key;
use crate::overlay::{Extent, Source};
use crate::run::{Operation, refuse};
use crate::segments::flight::Name;
use crate::stripes::LockSet;
use crate::tx::{Step, Stop, Tx};
use crate::value::{Layout, MapState};

static ZEROS: [u8; IO_SIZE_MAX as usize] = [0; IO_SIZE_MAX as usize];

pub struct Read {
    pub caller: Caller,
    pub node: Node,
    pub offset: u64,
    pub count: u32,
}

impl Operation for Read {
    type Out = ReadReply;

    fn locks(&self) -> LockSet {
        LockSet::shared(self.node.volume, self.node.ino.0)
    }

    fn run(&self, tx: &mut Tx<'_>) -> Step<ReadReply> {
        let (volume, ino) = (self.node.volume, self.node.ino);
        let (mut attr, layout) = tx.node_as(self.node, |inode| (inode.attr(volume, ino), inode.layout()))?;
        if let Err(errno) = check_read(&attr, &self.caller) {
            return Err(refuse(errno, [Change { before: None, after: Some(attr) }, Change::default()]));
        }
        let count = u64::from(self.count.min(IO_SIZE_MAX)).min(attr.size.saturating_sub(self.offset));
        let data = if count == 0 { SmallVec::new() } else { self.pieces(tx, layout, count)? };
        let eof = self.offset.saturating_add(count) >= attr.size;
        data::touch(tx, self.node, &mut attr)?;
        Ok(ReadReply { data, eof, attr })
    }
}

/// What was found of a read.
#[derive(Default)]
struct Pieces {
    data: SmallVec<[Bytes; 2]>,
    /// Of which records of the store, and how many of its bytes each gave.
    records: SmallVec<[(Name, usize); 4]>,
    /// As well of those that wait for it, by their generation's place in the stack.
    waiting: SmallVec<[(usize, u64, usize); 4]>,
}

impl Read {
    /// The bytes, of which there are so many.
    pub(super) fn pieces(&self, tx: &mut Tx<'_>, layout: Layout, count: u64) -> Step<SmallVec<[Bytes; 2]>> {
        let cuts = tx.cuts(self.node.volume, self.node.ino, layout.has_cuts)?;
        let mut out = Pieces::default();
        let mut missing = false;
        for part in records_of(layout.record_bits, self.offset, count) {
            match self.record(tx, layout, cuts.as_ref(), part, &mut out) {
                // Go on, so that one fetch brings all that is missing.
                Err(Stop::Need) => missing = true,
                other => other?,
            }
        }
        if missing {
            return Err(Stop::Need);
        }
        out.records.iter().for_each(|(name, taken)| tx.core.caches.records.answered(name, *taken));
        if !out.waiting.is_empty() && tx.core.may_move() {
            for (generation, record, taken) in out.waiting {
                let key = (self.node.volume, self.node.ino, record);
                tx.stack.generations[generation].answered(&key, taken, &tx.core.caches.pages);
            }
        }
        Ok(out.data)
    }

    /// Bytes `start..end` of a record.
    fn record(
        &self,
        tx: &mut Tx<'_>,
        layout: Layout,
        cuts: Option<&MapState>,
        (record, start, end): (u64, u32, u32),
        out: &mut Pieces,
    ) -> Step<()> {
        let key = (self.node.volume, self.node.ino, record);
        let counts = |generation| cuts.is_none_or(|map: &MapState| map.counts(record, generation));
        let mut gaps: SmallVec<[(u32, u32); 4]> = SmallVec::from_slice(&[(start, end)]);
        let mut found: SmallVec<[Extent; 4]> = SmallVec::new();
        // The newest first.
        for (place, generation) in tx.stack.generations.iter().enumerate() {
            let before = found.len();
            generation.see_record(&key, |dirty| {
                if counts(dirty.generation) {
                    gaps = fill(std::mem::take(&mut gaps), &dirty.extents, &mut found);
                }
            });
            let lies = |extent: &Extent| extent.source.bytes().map_or(0, Bytes::len);
            let taken: usize = found[before..].iter().map(lies).sum();
            if taken >= Pages::WORTH {
                out.waiting.push((place, record, taken));
            }
            if gaps.is_empty() {
                break;
            }
        }
        if !gaps.is_empty() {
            let pointer = if tx.is_fresh_from(layout.generation) {
                None
            } else {
                data::pointer(tx, self.node.volume, self.node.ino, record)?
            };
            let stored = match pointer.filter(|pointer| counts(pointer.generation)) {
                Some(pointer) => self.stored(tx, record, &pointer, &gaps, out)?,
                None => Bytes::new(),
            };
            if found.is_empty() && stored.len() >= end as usize {
                // As nearly always: nothing of it is newer, and it is no hole.
                out.data.push(part(stored, start, end));
                return Ok(());
            }
            for (from, to) in gaps {
                let held = to.min(stored.len() as u32);
                if from < held {
                    let source = Source::Ram(stored.slice(from as usize..held as usize));
                    found.push(Extent { start: from, end: held, source });
                }
                if from.max(held) < to {
                    found.push(Extent { start: from.max(held), end: to, source: Source::Zero });
                }
            }
        }
        found.sort_unstable_by_key(|extent| extent.start);
        for extent in found {
            out.data.push(match extent.source {
                Source::Ram(bytes) | Source::Held(bytes) | Source::Unlogged { bytes, .. } => bytes,
                Source::Log(place) => tx.logged(place)?,
                Source::Zero => Bytes::from_static(&ZEROS[..(extent.end - extent.start) as usize]),
            });
        }
        Ok(())
    }
}

impl Read {
    /// The bytes of a record as it is stored, of which `gaps` are going to be answered.
    fn stored(
        &self,
        tx: &mut Tx<'_>,
        record: u64,
        pointer: &RecordPointer,
        gaps: &[(u32, u32)],
        out: &mut Pieces,
    ) -> Step<Bytes> {
        let mut plain = tx.record(Key::pointer(self.node.volume, self.node.ino, record), pointer)?;
        let taken: u32 = gaps.iter().map(|(from, to)| to - from).sum();
        out.records.push(((pointer.segment, pointer.index), taken as usize));
        if pointer.lost != 0 {
            self.check_lost(tx, record, pointer, &plain, gaps)?;
        }
        plain.truncate(pointer.data() as usize);
        Ok(plain)
    }

    /// Refuses bytes that are lost; says whose they are and where they were kept.
    fn check_lost(
        &self,
        tx: &Tx<'_>,
        record: u64,
        pointer: &RecordPointer,
        plain: &[u8],
        gaps: &[(u32, u32)],
    ) -> Step<()> {
        let lost = LostBytes::of(pointer, plain);
        if lost.is_ok_and(|lost| !gaps.iter().any(|(from, to)| lost.touch(&(*from..*to)))) {
            return Ok(());
        }
        let (volume, ino, object) = (self.node.volume.0, self.node.ino.0, object_name(pointer.segment));
        let what = format!("bytes of record {record} of volume {volume}, inode {ino}, are lost, as {object} notes");
        tx.core.note_damage(what);
        Err(Errno::Io.into())
    }
}

/// Bytes `start..end` of `bytes`.
fn part(mut bytes: Bytes, start: u32, end: u32) -> Bytes {
    // In place, where a slice would count one more for a moment.
    bytes.truncate(end as usize);
    bytes.advance(start as usize);
    bytes
}

/// Takes what `extents` hold of `gaps`; gives what is still missing.
pub(super) fn fill(
    gaps: SmallVec<[(u32, u32); 4]>,
    extents: &[Extent],
    found: &mut SmallVec<[Extent; 4]>,
) -> SmallVec<[(u32, u32); 4]> {
    let mut rest = SmallVec::new();
    for (from, to) in gaps {
        let mut at = from;
        for part in extents.iter().filter_map(|extent| extent.clip(from, to)) {
            if at < part.start {
                rest.push((at, part.start));
            }
            at = part.end;
            found.push(part);
        }
        if at < to {
            rest.push((at, to));
        }
    }
    rest
}
