//! Decoded records in RAM, by their names, which are for ever.
//!
//! A record that large reads ask for again and again moves into [`Pages`], from where replies are sent without being copied.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use bytes::Bytes;
use quick_cache::Weighter;
use quick_cache::sync::Cache;
use tarn_base::ids::SegmentId;
use tarn_base::pages::Pages;

use crate::hash::FastBuild;

/// What an entry of a cache costs beside its bytes: its place and that of what was there before, the index, the value's buffer.
pub const ENTRY_OVERHEAD: u64 = 160;

/// Large reads after which a record moves. New pages and giving them back cost about 400 us for a MiB where a reply's copy
/// costs 95: whatever happens next, it costs at most twice what the better choice would have.
const READS: u32 = 4;

/// Segment and index.
type Name = (SegmentId, u32);

/// A record, and how many large reads it has had.
struct Record {
    bytes: Bytes,
    reads: AtomicU32,
}

#[derive(Clone, Debug)]
struct Weight;

impl Weighter<Name, Arc<Record>> for Weight {
    fn weight(&self, _name: &Name, record: &Arc<Record>) -> u64 {
        ENTRY_OVERHEAD + record.bytes.len() as u64
    }
}

/// The records, with a limit in bytes.
pub struct Records {
    map: Cache<Name, Arc<Record>, Weight, FastBuild>,
    pages: Pages,
}

impl Records {
    pub fn new(bytes: u64) -> Records {
        let map =
            Cache::with((bytes / (64 << 10)).max(64) as usize, bytes, Weight, FastBuild::default(), Default::default());
        Records { map, pages: Pages::new(bytes) }
    }

    /// Where records lie that are sent as they are.
    pub fn pages(&self) -> &Pages {
        &self.pages
    }

    pub fn get(&self, name: &Name) -> Option<Bytes> {
        self.map.get(name).map(|record| record.bytes.clone())
    }

    /// As [`Records::get`], for a reply with so many bytes of it.
    pub fn read(&self, name: &Name, taken: usize) -> Option<Bytes> {
        let record = self.map.get(name)?;
        // Each of those who count is one of the first few, and the last of these moves it.
        if taken >= Pages::WORTH
            && record.reads.load(Ordering::Relaxed) < READS
            && record.reads.fetch_add(1, Ordering::Relaxed) + 1 == READS
            && let Some(bytes) = self.pages.keep(&record.bytes)
        {
            let moved = Record { bytes: bytes.clone(), reads: AtomicU32::new(READS) };
            // One that has just gone does not come back.
            let _ = self.map.replace(*name, Arc::new(moved), true);
            return Some(bytes);
        }
        Some(record.bytes.clone())
    }

    pub fn holds(&self, name: &Name) -> bool {
        self.map.peek(name).is_some()
    }

    pub fn insert(&self, name: Name, bytes: Bytes) {
        self.map.insert(name, Arc::new(Record { bytes, reads: AtomicU32::new(0) }));
    }

    pub fn remove(&self, name: &Name) {
        self.map.remove(name);
    }

    #[cfg(test)]
    pub fn clear(&self) {
        self.map.clear();
    }

    pub fn len(&self) -> usize {
        self.map.len()
    }

    pub fn weight(&self) -> u64 {
        self.map.weight()
    }

    pub fn capacity(&self) -> u64 {
        self.map.capacity()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAME: Name = (SegmentId { epoch: 1, counter: 2 }, 3);

    fn fill(value: u8) -> Bytes {
        Bytes::from(vec![value; 64 << 10])
    }

    #[test]
    fn what_large_reads_ask_for_again_moves_into_pages() {
        let records = Records::new(16 << 20);
        assert_eq!(records.read(&NAME, 1 << 20), None);
        records.insert(NAME, fill(7));
        for _ in 0..READS + 2 {
            assert!(!records.pages().hold(&records.read(&NAME, Pages::WORTH - 1).unwrap()), "small reads do not count");
        }
        let at = |taken| records.pages().hold(&records.read(&NAME, taken).unwrap());
        let moves: Vec<bool> = (0..READS + 2).map(|_| at(Pages::WORTH)).collect();
        assert_eq!(moves, [false, false, false, true, true, true]);
        let weight = records.weight();
        assert!(at(10) && records.get(&NAME).unwrap() == fill(7));
        records.insert(NAME, fill(8));
        assert_eq!((records.weight(), records.len()), (weight, 1));
        assert!(!at(Pages::WORTH), "what comes anew begins anew");
        records.remove(&NAME);
        assert!(!records.holds(&NAME) && records.get(&NAME).is_none());
    }

    #[test]
    fn what_is_too_small_for_pages_stays_where_it_is() {
        let records = Records::new(16 << 20);
        let small = Bytes::from(vec![1; Pages::WORTH]);
        records.insert(NAME, small.clone());
        for _ in 0..READS * 2 {
            assert_eq!(records.read(&NAME, Pages::WORTH).unwrap().as_ptr(), small.as_ptr());
        }
    }
}
