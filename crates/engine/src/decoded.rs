//! Decoded records in RAM, by their names, which are for ever.
//!
//! A record that large reads ask for again and again moves into [`Pages`], from where replies are sent without being copied.

use std::sync::Arc;

use bytes::Bytes;
use quick_cache::sync::Cache;
use quick_cache::{OptionsBuilder, Weighter};
use tarn_base::large::LargePages;
use tarn_base::pages::{Copied, Pages};

use crate::hash::FastBuild;
use crate::segments::flight::Name;

/// What an entry of a cache costs beside its bytes: its place and that of what was there before, the index, the value's buffer.
pub const ENTRY_OVERHEAD: u64 = 160;

/// What one takes besides, with its bytes' owner.
const RECORD_OVERHEAD: u64 = ENTRY_OVERHEAD + 96;

/// A part of the cache holds 31 of the longest records at least: what a last one leaves free is little of it.
const SHARD_MIN: u64 = 32 << 20;

struct Record {
    bytes: Bytes,
    copied: Copied,
}

impl Record {
    fn new(bytes: Bytes) -> Arc<Record> {
        Arc::new(Record { bytes, copied: Copied::default() })
    }
}

#[derive(Clone, Debug)]
struct Weight;

impl Weighter<Name, Arc<Record>> for Weight {
    fn weight(&self, _name: &Name, record: &Arc<Record>) -> u64 {
        RECORD_OVERHEAD + LargePages::takes(record.bytes.len()) as u64
    }
}

/// The records, with a limit in bytes.
pub struct Records {
    map: Cache<Name, Arc<Record>, Weight, FastBuild>,
    /// Where they lie until they move.
    memory: LargePages,
    pages: Pages,
}

impl Records {
    pub fn new(bytes: u64, pages: Pages) -> Records {
        let shards = std::thread::available_parallelism().map_or(4, |cores| cores.get() * 4);
        let options = OptionsBuilder::new()
            .estimated_items_capacity((bytes / (64 << 10)).max(64) as usize)
            .weight_capacity(bytes)
            .shards(shards.next_power_of_two().min(1 << (bytes / SHARD_MIN).max(1).ilog2()))
            .build()
            .expect("sizes are given");
        let map = Cache::with_options(options, Weight, FastBuild::default(), Default::default());
        Records { map, memory: LargePages::new(), pages }
    }

    /// Memory for what is going to be kept here.
    pub fn memory(&self) -> &LargePages {
        &self.memory
    }

    pub fn get(&self, name: &Name) -> Option<Bytes> {
        self.map.get(name).map(|record| record.bytes.clone())
    }

    /// Notes a reply with so many bytes of a record. It moves for those that follow.
    pub fn answered(&self, name: &Name, taken: usize) {
        if taken < Pages::WORTH {
            return;
        }
        let Some(record) = self.map.get(name).filter(|record| !self.pages.hold(&record.bytes)) else { return };
        if record.copied.is_enough(taken, record.bytes.len())
            && let Some(bytes) = self.pages.keep(&record.bytes)
        {
            // One that has just gone does not come back.
            let _ = self.map.replace(*name, Record::new(bytes), true);
        }
    }

    pub fn holds(&self, name: &Name) -> bool {
        self.map.peek(name).is_some()
    }

    pub fn insert(&self, name: Name, bytes: Bytes) {
        self.map.insert(name, Record::new(bytes));
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

    /// Whether one more of so many bytes leaves an eighth free for what readers ask for. Parts fill unevenly: a few may have to go
    /// before.
    pub fn has_room(&self, length: u32) -> bool {
        self.weight() + u64::from(length) < self.capacity() / 8 * 7
    }
}

#[cfg(test)]
mod tests {
    use tarn_base::ids::SegmentId;

    use super::*;

    const NAME: Name = (SegmentId { epoch: 1, counter: 2 }, 3);

    fn fill(value: u8) -> Bytes {
        Bytes::from(vec![value; 64 << 10])
    }

    #[test]
    fn what_large_reads_ask_for_again_moves_into_pages() {
        let pages = Pages::new(16 << 20);
        let records = Records::new(16 << 20, pages.clone());
        records.answered(&NAME, 1 << 20);
        records.insert(NAME, fill(7));
        let weight = records.weight();
        let moves = |taken: usize, times: u32| {
            let place = |_| {
                records.answered(&NAME, taken);
                pages.hold(&records.get(&NAME).unwrap())
            };
            (0..times).map(place).collect::<Vec<bool>>()
        };
        assert_eq!(moves(Pages::WORTH - 1, 20), [false; 20], "small reads do not count");
        assert_eq!(moves(64 << 10, 5), [false, false, false, true, true]);
        let place = records.get(&NAME).unwrap().as_ptr();
        moves(64 << 10, 20);
        assert_eq!(records.get(&NAME).unwrap().as_ptr(), place, "it moves once");
        assert!(records.get(&NAME).unwrap() == fill(7));
        records.insert(NAME, fill(8));
        assert_eq!((records.weight(), records.len()), (weight, 1));
        assert_eq!(moves(32 << 10, 8).iter().filter(|moved| **moved).count(), 1, "what comes anew begins anew");
        assert!(records.get(&NAME).unwrap() == fill(8));
        records.remove(&NAME);
        records.answered(&NAME, 64 << 10);
        assert!(!records.holds(&NAME) && records.get(&NAME).is_none());
    }

    #[test]
    fn one_weighs_the_memory_that_it_takes() {
        let records = Records::new(16 << 20, Pages::default());
        let weighs = |bytes: Bytes| {
            records.insert(NAME, bytes);
            records.weight() - RECORD_OVERHEAD
        };
        let kept = |len: usize| records.memory().copy(&vec![1; len]);
        assert_eq!([9_000, 61_000, 65_536, 70_000].map(|len| weighs(kept(len))), [9_000, 65_536, 65_536, 70_000]);
        assert_eq!(kept(61_000).as_ptr() as usize % (64 << 10), 0, "it has a place");
    }

    #[test]
    fn what_is_too_small_for_pages_stays_where_it_is() {
        let records = Records::new(16 << 20, Pages::new(16 << 20));
        let small = Bytes::from(vec![1; Pages::WORTH]);
        records.insert(NAME, small.clone());
        for _ in 0..20 {
            records.answered(&NAME, Pages::WORTH);
            assert_eq!(records.get(&NAME).unwrap().as_ptr(), small.as_ptr());
        }
    }
}
