//! The dirty bytes of one record within one generation.
//!
//! - What an overwrite leaves of a buffer is copied out of it: no few bytes keep a large buffer alive.
//! - Neighbours that are small become one, so that a stream of tiny writes does not become as many extents.
//! - What large reads ask for again and again moves to where replies are sent from without being copied
//!   ([`tarn_base::pages`]); that changes where bytes are, and none of them.

use bytes::Bytes;
use smallvec::SmallVec;
use tarn_base::pages::{Copied, Pages};
use tarn_wal::LogPlace;

/// Neighbours are put together up to this size, bytes: copying so much costs less than an extent of its own.
const JOINED_MAX: u32 = 4096;
/// What an extent takes in RAM beside its bytes: itself, and for a buffer what the allocator and its counter take.
const EXTENT_COST: u64 = 48;
const BUFFER_COST: u64 = 48;

/// Where dirty bytes are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// In a buffer of its own.
    Ram(Bytes),
    /// In the log's own memory, which is kept and counted as long as anything in it is ([`tarn_wal::Log::held`]).
    Held(Bytes),
    /// In memory and nowhere else: UNSTABLE data that has passed the log by (engine rule 5). What is not `own`, a part of the
    /// buffer it came in, is counted by that ([`tarn_wal::Log::held`]).
    Unlogged {
        bytes: Bytes,
        own: bool,
    },
    /// Only in the log, to be read back.
    Log(LogPlace),
    Zero,
}

impl Source {
    /// Its bytes, if they are in memory.
    pub fn bytes(&self) -> Option<&Bytes> {
        match self {
            Source::Ram(bytes) | Source::Held(bytes) | Source::Unlogged { bytes, .. } => Some(bytes),
            Source::Log(_) | Source::Zero => None,
        }
    }

    /// The part from `skip` on, `len` bytes long.
    fn slice(&self, skip: u32, len: u32) -> Source {
        match self {
            Source::Ram(bytes) => Source::Ram(bytes.slice(skip as usize..(skip + len) as usize)),
            Source::Held(bytes) => Source::Held(bytes.slice(skip as usize..(skip + len) as usize)),
            Source::Unlogged { bytes, own } => {
                Source::Unlogged { bytes: bytes.slice(skip as usize..(skip + len) as usize), own: *own }
            }
            Source::Log(place) => Source::Log(LogPlace { frame: place.frame, start: place.start + skip, len }),
            Source::Zero => Source::Zero,
        }
    }
}

/// Dirty bytes `start..end` of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Extent {
    pub start: u32,
    pub end: u32,
    pub source: Source,
}

impl Extent {
    /// The part of it within `start..end`.
    pub fn clip(&self, start: u32, end: u32) -> Option<Extent> {
        let (from, to) = (self.start.max(start), self.end.min(end));
        (from < to).then(|| Extent { start: from, end: to, source: self.source.slice(from - self.start, to - from) })
    }

    /// As [`Extent::clip`], in a buffer of its own size.
    fn cut_out(&self, start: u32, end: u32) -> Option<Extent> {
        let mut part = self.clip(start, end)?;
        if part.end - part.start < self.end - self.start {
            match &mut part.source {
                Source::Unlogged { bytes, own } => (*bytes, *own) = (Bytes::copy_from_slice(bytes), true),
                Source::Ram(bytes) | Source::Held(bytes) => part.source = Source::Ram(Bytes::copy_from_slice(bytes)),
                Source::Log(_) | Source::Zero => {}
            }
        }
        Some(part)
    }

    /// Both as one, if they touch, are in RAM and are small.
    fn joined(&self, next: &Extent) -> Option<Extent> {
        let (first, second) = self.joins(next)?;
        Some(Extent { start: self.start, end: next.end, source: Source::Ram([first, second].concat().into()) })
    }

    /// The bytes of both, if they become one.
    fn joins<'a>(&'a self, next: &'a Extent) -> Option<(&'a [u8], &'a [u8])> {
        let (Source::Ram(first), Source::Ram(second)) = (&self.source, &next.source) else { return None };
        (self.end == next.start && next.end - self.start <= JOINED_MAX).then_some((&first[..], &second[..]))
    }

    /// Bytes of RAM that it takes.
    fn ram_bytes(&self) -> u64 {
        match &self.source {
            Source::Ram(bytes) | Source::Unlogged { bytes, own: true } => {
                EXTENT_COST + BUFFER_COST + bytes.len() as u64
            }
            Source::Held(_) | Source::Unlogged { .. } | Source::Log(_) | Source::Zero => EXTENT_COST,
        }
    }

    /// What it takes more than `old`.
    fn growth_over(&self, old: &Extent) -> Growth {
        Growth {
            ram: self.ram_bytes() as i64 - old.ram_bytes() as i64,
            unlogged: self.unlogged() as i64 - old.unlogged() as i64,
        }
    }

    /// Bytes of it that are not in the log.
    fn unlogged(&self) -> u64 {
        if matches!(self.source, Source::Unlogged { .. }) { u64::from(self.end - self.start) } else { 0 }
    }
}

/// What a write changed of the bytes of RAM that a record takes, and of those that are not in the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Growth {
    pub ram: i64,
    pub unlogged: i64,
}

/// Extents in order, without overlap. What lies between them is older.
#[derive(Clone, Debug, Default)]
pub struct DirtyRecord {
    /// Map generation it was written in.
    pub generation: u32,
    /// Since it was written last.
    pub copied: Copied,
    /// It was charged when it was written here: nothing older holds the charge.
    pub new: bool,
    pub extents: Vec<Extent>,
}

impl DirtyRecord {
    /// Puts `extent` over what is there; the newest bytes win.
    pub fn write(&mut self, extent: Extent) -> Growth {
        self.copied = Copied::default();
        let (from, to) = (extent.start, extent.end);
        // What lies before it and what lies behind it stay as they are, and neighbours do that do not become one with it.
        let mut first = self.extents.partition_point(|old| old.end < from);
        let mut last = self.extents.partition_point(|old| old.start <= to);
        let before = self.extents[first..last].first();
        first += usize::from(before.is_some_and(|old| old.end == from && old.joins(&extent).is_none()));
        let behind = self.extents[first..last].last();
        last -= usize::from(behind.is_some_and(|old| old.start == to && extent.joins(old).is_none()));
        if let [old] = &mut self.extents[first..last]
            && from <= old.start
            && old.end <= to
        {
            // As most that are written again are: nothing is left of it.
            let growth = extent.growth_over(old);
            *old = extent;
            return growth;
        }
        let touched = &self.extents[first..last];
        let costs = |extents: &[Extent]| {
            let ram: u64 = extents.iter().map(Extent::ram_bytes).sum();
            (ram as i64, extents.iter().map(Extent::unlogged).sum::<u64>() as i64)
        };
        let before = costs(touched);
        let left = touched.iter().filter_map(|old| old.cut_out(0, from));
        let right = touched.iter().filter_map(|old| old.cut_out(to, u32::MAX));
        let mut new: SmallVec<[Extent; 4]> = SmallVec::new();
        for part in left.chain([extent]).chain(right) {
            match new.last().and_then(|previous| previous.joined(&part)) {
                Some(joined) => {
                    new.pop();
                    new.push(joined);
                }
                None => new.push(part),
            }
        }
        let after = costs(&new);
        if self.extents.is_empty() {
            // Most records are written once.
            self.extents.reserve_exact(1);
        }
        drop(self.extents.splice(first..last, new));
        Growth { ram: after.0 - before.0, unlogged: after.1 - before.1 }
    }

    /// Puts what a later generation has of the record over what is there.
    pub fn write_later(&mut self, later: DirtyRecord) {
        self.generation = self.generation.max(later.generation);
        self.new |= later.new;
        for extent in later.extents {
            self.write(extent);
        }
    }

    /// As [`DirtyRecord::write`], of a copy of `bytes`. They come where the same place was written before, if nobody else has what
    /// lies there.
    pub fn write_copy(&mut self, start: u32, bytes: &[u8]) -> Growth {
        let end = start + bytes.len() as u32;
        let at = self.extents.partition_point(|old| old.start < start);
        if let Some(Extent { start: from, end: to, source: Source::Ram(held) }) = self.extents.get_mut(at)
            && (*from, *to) == (start, end)
        {
            // Never what was moved to be sent as it lies: it has an owner, and is nobody's alone.
            match std::mem::take(held).try_into_mut() {
                Ok(mut own) => {
                    own.copy_from_slice(bytes);
                    *held = own.freeze();
                    self.copied = Copied::default();
                    return Growth::default();
                }
                Err(shared) => *held = shared,
            }
        }
        self.write(Extent { start, end, source: Source::Ram(Bytes::copy_from_slice(bytes)) })
    }

    /// Notes a reply with so many of its bytes. What should move now, if that is time.
    pub fn answered(&self, taken: usize, pages: &Pages) -> SmallVec<[Bytes; 1]> {
        let bytes = self.extents.iter().filter_map(|extent| extent.source.bytes());
        let large = bytes.filter(|bytes| bytes.len() >= Pages::LEAST && !pages.hold(bytes));
        let len = large.clone().map(Bytes::len).sum();
        if len > 0 && self.copied.is_enough(taken, len) { large.cloned().collect() } else { SmallVec::new() }
    }

    /// Puts `to`, which holds the same bytes and nothing else, in the place of `from`, if that is still what is here.
    pub fn moved(&mut self, from: &Bytes, to: &Bytes) -> Growth {
        let lies = |bytes: &Bytes| (bytes.as_ptr(), bytes.len()) == (from.as_ptr(), from.len());
        let Some(extent) = self.extents.iter_mut().find(|extent| extent.source.bytes().is_some_and(lies)) else {
            return Growth::default();
        };
        let before = extent.ram_bytes();
        match &mut extent.source {
            Source::Unlogged { bytes, own } => (*bytes, *own) = (to.clone(), true),
            source => *source = Source::Ram(to.clone()),
        }
        Growth { ram: extent.ram_bytes() as i64 - before as i64, unlogged: 0 }
    }

    /// Whether every byte from `from` on of a record of `len` bytes is here.
    pub fn covers(&self, from: u32, len: u32) -> bool {
        let mut at = from;
        for extent in &self.extents {
            if extent.start > at {
                break;
            }
            at = at.max(extent.end);
        }
        at >= len
    }

    /// Where its first byte is that is not known to be a zero, if there was nothing before it was written.
    pub fn zeros(&self) -> u32 {
        let written = self.extents.iter().find(|extent| !matches!(extent.source, Source::Zero));
        written.map_or_else(|| self.extents.last().map_or(0, |extent| extent.end), |extent| extent.start)
    }

    /// Bytes of it that are stored if nothing was there before: what lies before the first that was written is zeros. 0 otherwise.
    pub fn new_bytes(&self) -> u64 {
        let end = || self.extents.last().map_or(0, |extent| extent.end);
        if self.new { u64::from(end()) } else { 0 }
    }

    /// Bytes of RAM that its extents take.
    pub fn ram_bytes(&self) -> u64 {
        self.extents.iter().map(Extent::ram_bytes).sum()
    }

    /// Bytes of it that are not in the log.
    pub fn unlogged(&self) -> u64 {
        self.extents.iter().map(Extent::unlogged).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ram(start: u32, bytes: &'static [u8]) -> Extent {
        Extent { start, end: start + bytes.len() as u32, source: Source::Ram(Bytes::from_static(bytes)) }
    }

    fn bytes_of(record: &DirtyRecord) -> Vec<(u32, Vec<u8>)> {
        let of = |extent: &Extent| match &extent.source {
            Source::Ram(bytes) | Source::Unlogged { bytes, .. } => (extent.start, bytes.to_vec()),
            _ => (extent.start, vec![0; (extent.end - extent.start) as usize]),
        };
        record.extents.iter().map(of).collect()
    }

    #[test]
    fn the_newest_bytes_win_and_older_ones_stay_around_them() {
        let mut record = DirtyRecord::default();
        record.write(ram(0, b"aaaaaaaa"));
        record.write(ram(2, b"bb"));
        assert_eq!(bytes_of(&record), [(0, b"aabbaaaa".to_vec())]);
        assert!(record.covers(0, 8) && !record.covers(0, 9));
        record.write(Extent { start: 1, end: 6, source: Source::Zero });
        assert_eq!(bytes_of(&record), [(0, b"a".to_vec()), (1, vec![0; 5]), (6, b"aa".to_vec())]);
        record.write(ram(20, b"c"));
        assert!(record.covers(0, 8) && !record.covers(0, 21));
        record.write(ram(10, b"d"));
        assert_eq!(record.extents.len(), 5);
        record.write(ram(0, &[7; 64]));
        assert_eq!(bytes_of(&record), [(0, vec![7; 64])]);
    }

    #[test]
    fn what_lies_behind_the_zeros_of_a_record_is_covered_alone() {
        let zero = |start, end| Extent { start, end, source: Source::Zero };
        let mut record = DirtyRecord::default();
        record.write(zero(2, 4));
        assert_eq!(record.zeros(), 4, "it is all zeros");
        record.write(ram(8, b"aaaa"));
        assert_eq!(record.zeros(), 8);
        assert!(record.covers(8, 12) && record.covers(9, 10), "what lies before does not matter");
        assert!(!record.covers(7, 12) && !record.covers(8, 13) && !record.covers(0, 12));
        record.write(ram(3, b"b"));
        assert_eq!(record.zeros(), 3);
        record.write(ram(12, b"c"));
        assert!(record.covers(8, 13), "of several pieces");
    }

    #[test]
    fn what_is_written_in_any_order_is_what_is_there_and_what_is_counted() {
        let mut random = 1u64;
        let mut draw = |most: u32| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            ((random >> 33) % u64::from(most)) as u32
        };
        let mut expected = vec![None; 65_536];
        let (mut record, mut counted, mut unlogged) = (DirtyRecord::default(), 0, 0);
        for round in 0..2000u32 {
            let (start, len) = match round % 7 {
                0 => (draw(45_000), 1 + draw(20_000)),
                // The same places again and again, beside each other.
                1..4 => (draw(15) << 12, 4096),
                _ => (draw(65_000), 1 + draw(50)),
            };
            let value = round as u8;
            let bytes = Bytes::from(vec![value; len as usize]);
            let zero = round % 11 == 0;
            let source = match (zero, round % 5) {
                (true, _) => Source::Zero,
                (false, 0) => Source::Unlogged { bytes, own: false },
                (false, _) => Source::Ram(bytes),
            };
            let growth = match &source {
                Source::Ram(bytes) if round % 2 == 0 => record.write_copy(start, bytes),
                _ => record.write(Extent { start, end: start + len, source }),
            };
            (counted, unlogged) = (counted + growth.ram, unlogged + growth.unlogged);
            assert_eq!(unlogged, record.unlogged() as i64);
            expected[start as usize..(start + len) as usize].fill(Some(if zero { 0 } else { value }));
            assert_eq!(counted, record.ram_bytes() as i64);
        }
        let mut found = vec![None; 65_536];
        for (start, bytes) in bytes_of(&record) {
            for (at, byte) in bytes.into_iter().enumerate() {
                assert!(found[start as usize + at].replace(byte).is_none(), "two extents overlap");
            }
        }
        assert!(found == expected);
        assert!(record.extents.windows(2).all(|pair| pair[0].end <= pair[1].start));
    }

    #[test]
    fn what_somebody_has_or_may_be_on_its_way_stays_what_it_is() {
        let pages = Pages::new(1 << 20);
        let mut record = DirtyRecord::default();
        let lies = |record: &DirtyRecord| record.extents[0].source.bytes().unwrap().clone();
        record.write_copy(0, &[1; 4096]);
        let place = lies(&record).as_ptr();
        assert_eq!(record.write_copy(0, &[2; 4096]), Growth::default());
        assert!(lies(&record).as_ptr() == place && lies(&record)[..] == [2; 4096], "nobody has it");
        let read = lies(&record);
        record.write_copy(0, &[3; 4096]);
        assert!(read[..] == [2; 4096] && lies(&record)[..] == [3; 4096]);
        let moved = pages.keep(&[4; Pages::LEAST]).unwrap();
        let place = moved.as_ptr();
        let mut record = DirtyRecord::default();
        record.write(Extent { start: 0, end: Pages::LEAST as u32, source: Source::Ram(moved) });
        record.write_copy(0, &[5; Pages::LEAST]);
        assert!(lies(&record).as_ptr() != place && lies(&record)[..] == [5; Pages::LEAST]);
    }

    #[test]
    fn what_is_read_again_and_again_moves_and_stays_what_it_is() {
        let pages = Pages::new(1 << 20);
        let whole = Bytes::from((0..300_000u32).map(|at| (at ^ (at >> 8)) as u8).collect::<Vec<u8>>());
        let part = |start: u32, len: u32| whole.slice(start as usize..(start + len) as usize);
        let mut record = DirtyRecord::default();
        let mut ram = 0;
        let mut write = |record: &mut DirtyRecord, start: u32, source: Source| {
            let len = source.bytes().map_or(100, Bytes::len) as u32;
            ram += record.write(Extent { start, end: start + len, source }).ram;
        };
        write(&mut record, 0, Source::Held(part(0, 65_536)));
        write(&mut record, 65_536, Source::Ram(part(65_536, 100)));
        write(&mut record, 65_636, Source::Unlogged { bytes: part(65_636, 100_000), own: false });
        write(&mut record, 165_636, Source::Zero);
        write(&mut record, 165_736, Source::Ram(part(165_736, 70_000)));
        let reads =
            |record: &DirtyRecord| (0..20).map(|_| record.answered(235_736, &pages)).find(|due| !due.is_empty());
        let due = reads(&record).unwrap();
        assert_eq!(due.iter().map(Bytes::len).collect::<Vec<_>>(), [65_536, 100_000, 70_000]);
        assert!(reads(&record).is_none(), "once");
        let kept: Vec<Bytes> = due.iter().map(|bytes| pages.keep(bytes).unwrap()).collect();
        write(&mut record, 70_000, Source::Zero);
        for (from, to) in due.iter().zip(&kept) {
            let growth = record.moved(from, to);
            assert_eq!(growth.unlogged, 0);
            ram += growth.ram;
            assert_eq!(record.moved(from, to), Growth::default(), "it is gone from there");
        }
        assert_eq!((ram, record.unlogged()), (record.ram_bytes() as i64, 99_900));
        let lies = |extent: &Extent| extent.source.bytes().is_some_and(|bytes| pages.hold(bytes));
        assert_eq!(
            record.extents.iter().map(lies).collect::<Vec<_>>(),
            [true, false, false, false, false, false, true]
        );
        for extent in &record.extents {
            let Some(bytes) = extent.source.bytes() else { continue };
            assert!(bytes[..] == whole[extent.start as usize..extent.end as usize]);
        }
        // What was written over in the meantime is not moved until it has been read as often again.
        assert_eq!(reads(&record).unwrap().iter().map(Bytes::len).collect::<Vec<_>>(), [95_536]);
        assert!(DirtyRecord::default().answered(1 << 20, &pages).is_empty());
    }

    #[test]
    fn little_data_takes_little_memory() {
        let mut stream = DirtyRecord::default();
        for at in 0..65_536 {
            stream.write(ram(at, b"x"));
        }
        assert!(stream.extents.len() <= 32 && stream.ram_bytes() < 70_000, "{}", stream.extents.len());
        let whole = Bytes::from(vec![1; 65_536]);
        let mut record = DirtyRecord::default();
        record.write(Extent { start: 0, end: 65_536, source: Source::Ram(whole.clone()) });
        record.write(Extent { start: 1, end: 65_536, source: Source::Zero });
        assert!(whole.is_unique(), "one byte keeps the whole buffer");
    }
}
