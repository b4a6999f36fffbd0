//! One generation: the keys and data changed between two closings.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::RwLock;
use tarn_base::ids::{Ino, Position, VolumeId};
use tarn_base::mutant;
use tarn_base::pages::{Copied, Pages};

use super::filter::Filter;
use super::record::{DirtyRecord, Extent, Source};
use crate::key::{KEY_SIZE, Key};
use crate::value::{ShardState, Usage};

const SHARDS: usize = 64;

/// What a changed key takes in RAM beside its value: its place in a tree whose nodes are about half full, the value's
/// buffer and the counter of that.
const KEY_COST: i64 = 176;
/// What a dirty record takes beside its extents: its place in a tree.
const RECORD_COST: i64 = 112;

/// What is longer is copied with no lock held, bytes.
const COPIED_MAX: usize = 16 << 10;

/// Names a record of a file: volume, map, record number.
pub type DataKey = (VolumeId, Ino, u64);

/// A changed key.
#[derive(Clone, Debug)]
pub struct OverlayValue {
    /// `None`: removed.
    pub value: Option<Bytes>,
    /// What must be durable before anybody is shown the value.
    pub barrier: Position,
    /// It is known that nothing below the generation has the key: where it is removed again, the store is not told.
    pub new: bool,
}

fn cost(value: &OverlayValue) -> i64 {
    KEY_COST + value.value.as_ref().map_or(0, |bytes| bytes.len() as i64)
}

#[derive(Debug, Default)]
struct Shard {
    keys: BTreeMap<Key, OverlayValue>,
    data: BTreeMap<DataKey, DirtyRecord>,
}

/// What a generation ends with, taken in the moment it was closed.
#[derive(Clone, Debug, Default)]
pub struct Closed {
    /// Position of its last entry: P of the checkpoint that carries it.
    pub last: Position,
    pub state: ShardState,
    pub usage: Vec<(VolumeId, Usage)>,
}

#[derive(Debug)]
pub struct Generation {
    pub number: u64,
    /// Every entry in it is later than this.
    pub after: Position,
    /// Steady time of its opening, and of its first change once that was noticed.
    pub opened: Duration,
    pub first_change: OnceLock<Duration>,
    pub closed: OnceLock<Closed>,
    shards: Vec<RwLock<Shard>>,
    /// Which keys may be in their trees.
    changed: Filter,
    keys: AtomicUsize,
    records: AtomicUsize,
    /// Of them, those that were there before.
    rewritten: AtomicUsize,
    /// Bytes of the others, from the first on.
    new_bytes: AtomicI64,
    /// Of changed keys, and of dirty records with their data.
    key_bytes: AtomicI64,
    record_bytes: AtomicI64,
    /// Bytes of data that are not in the log.
    unlogged: AtomicI64,
}

impl Generation {
    pub fn new(number: u64, after: Position, opened: Duration) -> Generation {
        Generation {
            number,
            after,
            opened,
            first_change: OnceLock::new(),
            closed: OnceLock::new(),
            shards: (0..SHARDS).map(|_| RwLock::default()).collect(),
            changed: Filter::default(),
            keys: AtomicUsize::new(0),
            records: AtomicUsize::new(0),
            rewritten: AtomicUsize::new(0),
            new_bytes: AtomicI64::new(0),
            key_bytes: AtomicI64::new(0),
            record_bytes: AtomicI64::new(0),
            unlogged: AtomicI64::new(0),
        }
    }

    fn shard(&self, volume: VolumeId, a: u64) -> &RwLock<Shard> {
        let mixed = (a ^ u64::from(volume.0).rotate_left(32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        &self.shards[(mixed >> 58) as usize % SHARDS]
    }

    pub fn get(&self, key: &Key) -> Option<OverlayValue> {
        if !self.changed.may_hold(key) {
            return None;
        }
        self.shard(key.volume, key.a).read().keys.get(key).cloned()
    }

    /// Shows `see` a key, if it has changed here. Its shard is locked meanwhile.
    #[inline]
    pub fn see(&self, key: &Key, see: impl FnOnce(&OverlayValue)) -> bool {
        self.changed.may_hold(key) && self.shard(key.volume, key.a).read().keys.get(key).map(see).is_some()
    }

    /// Puts a changed key. Whether it is new says who changes it first.
    pub fn put(&self, key: Key, value: OverlayValue) {
        let cost_now = cost(&value);
        self.changed.add(&key);
        let mut shard = self.shard(key.volume, key.a).write();
        let cost_before = match shard.keys.entry(key) {
            Entry::Vacant(place) => {
                place.insert(value);
                self.keys.fetch_add(1, Ordering::Relaxed);
                0
            }
            Entry::Occupied(mut held) => {
                let new = held.get().new;
                cost(&held.insert(OverlayValue { new, ..value }))
            }
        };
        drop(shard);
        self.key_bytes.fetch_add(cost_now - cost_before, Ordering::Relaxed);
    }

    /// The first `limit` keys of one owner within `range`, in order; and the first key left out.
    pub fn range(&self, range: Range<Key>, limit: usize) -> (Vec<(Key, OverlayValue)>, Option<Key>) {
        let shard = self.shard(range.start.volume, range.start.a).read();
        let mut entries = shard.keys.range(range);
        let taken = entries.by_ref().take(limit).map(|(key, value)| (*key, value.clone())).collect();
        (taken, entries.next().map(|(key, _)| *key))
    }

    /// Shows `see` a record, if it is dirty here. Its shard is locked meanwhile.
    pub fn see_record(&self, key: &DataKey, see: impl FnOnce(&DirtyRecord)) {
        // Who may read it holds its file's lock, under which it came.
        if self.records.load(Ordering::Relaxed) == 0 {
            return;
        }
        self.shard(key.0, key.1.0).read().data.get(key).map(see);
    }

    pub fn has_record(&self, key: &DataKey) -> bool {
        self.shard(key.0, key.1.0).read().data.contains_key(key)
    }

    /// Notes a reply with so many bytes of a record. Those of it that are large move into `pages` for the replies that follow, once
    /// they were copied often enough.
    pub fn answered(&self, key: &DataKey, taken: usize, pages: &Pages) {
        let due = self.shard(key.0, key.1.0).read().data.get(key).map(|record| record.answered(taken, pages));
        for from in due.into_iter().flatten() {
            // Copied with no lock held: what is written meanwhile stays.
            let Some(to) = pages.keep(&from) else { return };
            let mut shard = self.shard(key.0, key.1.0).write();
            let growth = shard.data.get_mut(key).map(|record| record.moved(&from, &to)).unwrap_or_default();
            self.record_bytes.fetch_add(growth.ram, Ordering::Relaxed);
        }
    }

    /// Map generation in which a record is dirty here.
    pub fn record_generation(&self, key: &DataKey) -> Option<u32> {
        self.shard(key.0, key.1.0).read().data.get(key).map(|record| record.generation)
    }

    /// Writes into a record. What a cut hid has been discarded when the cut was applied, so what is there counts.
    pub fn write(&self, key: DataKey, generation: u32, new: bool, extent: Extent) {
        let growth = self.change(key, generation, new, |record| record.write(extent));
        self.record_bytes.fetch_add(growth.ram, Ordering::Relaxed);
        self.unlogged.fetch_add(growth.unlogged, Ordering::Relaxed);
    }

    /// As [`Generation::write`], of a copy of `bytes` from `start` on.
    pub fn write_copy(&self, key: DataKey, generation: u32, new: bool, start: u32, bytes: &[u8]) {
        if bytes.len() > COPIED_MAX {
            let source = Source::Ram(Bytes::copy_from_slice(bytes));
            return self.write(key, generation, new, Extent { start, end: start + bytes.len() as u32, source });
        }
        let growth = self.change(key, generation, new, |record| record.write_copy(start, bytes));
        self.record_bytes.fetch_add(growth.ram, Ordering::Relaxed);
        self.unlogged.fetch_add(growth.unlogged, Ordering::Relaxed);
    }

    /// A record was written whose bytes are lost: it is dirty, and holds what it held.
    pub fn touch(&self, key: DataKey, generation: u32, new: bool) {
        self.change(key, generation, new, |_| ());
    }

    fn change<T>(&self, key: DataKey, generation: u32, new: bool, change: impl FnOnce(&mut DirtyRecord) -> T) -> T {
        let mut shard = self.shard(key.0, key.1.0).write();
        let record = shard.data.entry(key).or_insert_with(|| {
            self.records.fetch_add(1, Ordering::Relaxed);
            self.rewritten.fetch_add(usize::from(!new), Ordering::Relaxed);
            self.record_bytes.fetch_add(RECORD_COST, Ordering::Relaxed);
            DirtyRecord { generation, copied: Copied::default(), new, extents: Vec::new() }
        });
        record.generation = record.generation.max(generation);
        let before = record.new_bytes();
        if new && !record.new {
            self.rewritten.fetch_sub(1, Ordering::Relaxed);
            record.new = true;
        }
        let changed = change(record);
        let growth = record.new_bytes() as i64 - before as i64;
        if growth != 0 {
            self.new_bytes.fetch_add(growth, Ordering::Relaxed);
        }
        changed
    }

    /// How many dirty records among `records` of a map hold the only charge for themselves.
    pub fn charged(&self, volume: VolumeId, map: Ino, records: Range<u64>) -> u64 {
        let shard = self.shard(volume, map.0).read();
        let range = (volume, map, records.start)..(volume, map, records.end);
        shard.data.range(range).filter(|(_, record)| record.new).count() as u64
    }

    /// Drops the dirty records `records` of a map: a cut hides them.
    pub fn discard(&self, volume: VolumeId, map: Ino, records: Range<u64>) {
        let mut shard = self.shard(volume, map.0).write();
        let range = (volume, map, records.start)..(volume, map, records.end);
        let gone: Vec<DataKey> = shard.data.range(range).map(|(key, _)| *key).collect();
        for key in gone {
            if let Some(record) = shard.data.remove(&key) {
                self.records.fetch_sub(1, Ordering::Relaxed);
                self.rewritten.fetch_sub(usize::from(!record.new), Ordering::Relaxed);
                self.new_bytes.fetch_sub(record.new_bytes() as i64, Ordering::Relaxed);
                self.record_bytes.fetch_sub(RECORD_COST + record.ram_bytes() as i64, Ordering::Relaxed);
                self.unlogged.fetch_sub(record.unlogged() as i64, Ordering::Relaxed);
            }
        }
    }

    /// Changed keys and dirty records.
    pub fn count(&self) -> usize {
        self.keys.load(Ordering::Relaxed) + self.records.load(Ordering::Relaxed)
    }

    /// Dirty records.
    pub fn records(&self) -> u64 {
        self.records.load(Ordering::Relaxed) as u64
    }

    /// Of them, those that were there before.
    pub fn rewritten(&self) -> u64 {
        self.rewritten.load(Ordering::Relaxed) as u64
    }

    /// Bytes that the others take in the store, were they stored as they are.
    pub fn new_bytes(&self) -> u64 {
        self.new_bytes.load(Ordering::Relaxed).max(0) as u64
    }

    /// Bytes of RAM that its keys and values take.
    pub fn key_bytes(&self) -> u64 {
        self.key_bytes.load(Ordering::Relaxed).max(0) as u64
    }

    /// Bytes that its keys and values take in the store.
    pub fn keys_to_store(&self) -> u64 {
        let keys = self.keys.load(Ordering::Relaxed) as u64;
        self.key_bytes().saturating_sub(keys * KEY_COST as u64) + keys * KEY_SIZE as u64
    }

    /// Bytes of RAM that it takes, all told.
    pub fn ram_bytes(&self) -> u64 {
        self.key_bytes() + self.record_bytes.load(Ordering::Relaxed).max(0) as u64
    }

    /// Bytes that a checkpoint of it stores at most, were its records all of `record_size`: of what was written over only the last, and
    /// of a record that was changed all of it.
    pub fn to_store(&self, record_size: u64) -> u64 {
        self.key_bytes() + self.records() * record_size
    }

    /// Bytes of data that are not in the log.
    pub fn unlogged(&self) -> u64 {
        self.unlogged.load(Ordering::Relaxed).max(0) as u64
    }

    /// Records of a map of which bytes are not in the log.
    pub fn unlogged_of(&self, volume: VolumeId, map: Ino) -> Vec<u64> {
        if self.unlogged() == 0 {
            return Vec::new();
        }
        let shard = self.shard(volume, map.0).read();
        let records = shard.data.range((volume, map, 0)..=(volume, map, u64::MAX));
        let unlogged = records.filter(|(_, record)| record.unlogged() > 0);
        unlogged.map(|((.., number), _)| *number).collect()
    }

    /// Whether bytes of a map are not in the log.
    pub fn has_unlogged(&self, volume: VolumeId, map: Ino) -> bool {
        if self.unlogged() == 0 {
            return false;
        }
        let shard = self.shard(volume, map.0).read();
        shard.data.range((volume, map, 0)..=(volume, map, u64::MAX)).any(|(_, record)| record.unlogged() > 0)
    }

    /// Maps of which bytes are not in the log.
    pub fn unlogged_maps(&self) -> BTreeSet<(VolumeId, Ino)> {
        let mut maps = BTreeSet::new();
        for shard in self.shards.iter().filter(|_| self.unlogged() > 0) {
            let shard = shard.read();
            let unlogged = shard.data.iter().filter(|(_, record)| record.unlogged() > 0);
            maps.extend(unlogged.map(|((volume, map, _), _)| (*volume, *map)));
        }
        maps
    }

    /// All changed keys that the store is to be told of, in order.
    pub fn sorted_keys(&self) -> Vec<(Key, Option<Bytes>)> {
        let mut out = Vec::with_capacity(self.keys.load(Ordering::Relaxed));
        let told = |value: &OverlayValue| value.value.is_some() || !(value.new || mutant::on(mutant::REMOVAL_NOT_TOLD));
        for shard in &self.shards {
            let shard = shard.read();
            let keys = shard.keys.iter().filter(|(_, value)| told(value));
            out.extend(keys.map(|(key, value)| (*key, value.value.clone())));
        }
        // Each shard's are in order, which this sort makes use of.
        out.sort_by_key(|(key, _)| *key);
        out
    }

    /// All dirty records in order of volume, map and record.
    pub fn sorted_records(&self) -> Vec<(DataKey, DirtyRecord)> {
        let mut out = Vec::with_capacity(self.records.load(Ordering::Relaxed));
        for shard in &self.shards {
            out.extend(shard.read().data.iter().map(|(key, record)| (*key, record.clone())));
        }
        out.sort_by_key(|(key, _)| *key);
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_store_is_not_told_of_a_new_key_that_is_gone_again() {
        let generation = Generation::new(1, Position::ZERO, Duration::ZERO);
        let key = |number| Key::inode(VolumeId(1), Ino(number));
        let put = |number, value: Option<&'static [u8]>, new| {
            let value = value.map(Bytes::from_static);
            generation.put(key(number), OverlayValue { value, barrier: Position(9), new });
        };
        put(1, Some(b"new"), true);
        put(1, None, false);
        put(2, Some(b"changed"), false);
        put(2, None, false);
        put(2, Some(b"made again"), true);
        put(2, None, false);
        put(3, Some(b"new"), true);
        put(3, Some(b"and changed"), false);
        put(4, Some(b"new"), true);
        put(4, None, false);
        put(4, Some(b"made again"), true);
        let changed = |text: &'static [u8]| Some(Bytes::from_static(text));
        assert_eq!(
            generation.sorted_keys(),
            [(key(2), None), (key(3), changed(b"and changed")), (key(4), changed(b"made again"))]
        );
        let gone = generation.get(&key(1)).expect("until it is stored, readers are told what must be durable");
        assert!(gone.value.is_none() && gone.barrier == Position(9));
        assert_eq!(generation.count(), 4);
    }

    #[test]
    fn what_a_checkpoint_stores_of_its_records_is_counted() {
        let generation = Generation::new(1, Position::ZERO, Duration::ZERO);
        let key = |record| (VolumeId(1), Ino(1), record);
        let counts = || (generation.records(), generation.rewritten(), generation.new_bytes());
        generation.write_copy(key(0), 0, false, 100, b"of what was there");
        assert_eq!(counts(), (1, 1, 0));
        generation.write_copy(key(1), 0, true, 4000, b"1234");
        assert_eq!(counts(), (2, 1, 4004), "with the zeros before it");
        generation.write_copy(key(1), 0, false, 0, b"1234");
        assert_eq!(counts(), (2, 1, 4004));
        // What was there before it was cut off meanwhile.
        generation.write_copy(key(0), 1, true, 0, b"1234");
        assert_eq!(counts(), (2, 0, 4004 + 117));
        generation.write(key(2), 0, false, Extent { start: 0, end: 8, source: Source::Zero });
        generation.discard(VolumeId(1), Ino(1), 1..9);
        assert_eq!(counts(), (1, 0, 117));
        generation.discard(VolumeId(1), Ino(1), 0..1);
        assert_eq!(counts(), (0, 0, 0));
    }
}
