//! Closed generations that one checkpoint brings to the store.

use std::sync::Arc;

use bytes::Bytes;
use tarn_base::ids::Position;

use super::generation::{Closed, DataKey, Generation};
use super::record::DirtyRecord;
use super::stack::Stack;
use crate::key::Key;

/// The oldest closed generation, with those that were closed after it where the store is full: what they remove or write over
/// then needs no room there.
#[derive(Debug)]
pub struct Span {
    /// All but the newest, the oldest first.
    older: Vec<Arc<Generation>>,
    newest: Arc<Generation>,
    end: Closed,
}

impl Span {
    /// The oldest closed generation of `stack`, or `all`; `None` if none is closed.
    pub fn of(stack: &Stack, all: bool) -> Option<Span> {
        let closed = stack.generations.iter().rev().filter(|generation| generation.closed.get().is_some());
        let mut older: Vec<_> = closed.take(if all { usize::MAX } else { 1 }).cloned().collect();
        let newest = older.pop()?;
        let end = newest.closed.get()?.clone();
        Some(Span { older, newest, end })
    }

    fn generations(&self) -> impl Iterator<Item = &Arc<Generation>> {
        self.older.iter().chain([&self.newest])
    }

    pub fn is_several(&self) -> bool {
        !self.older.is_empty()
    }

    pub fn oldest(&self) -> &Generation {
        self.older.first().unwrap_or(&self.newest)
    }

    /// Number of the newest.
    pub fn number(&self) -> u64 {
        self.newest.number
    }

    /// Every entry in it is later than this.
    pub fn after(&self) -> Position {
        self.oldest().after
    }

    /// What it ends with.
    pub fn end(&self) -> &Closed {
        &self.end
    }

    /// Changed keys and dirty records.
    pub fn count(&self) -> usize {
        self.generations().map(|generation| generation.count()).sum()
    }

    /// Bytes of data that are not in the log.
    pub fn unlogged(&self) -> u64 {
        self.generations().map(|generation| generation.unlogged()).sum()
    }

    /// As [`Generation::to_store`].
    pub fn to_store(&self, record_size: u64) -> u64 {
        self.generations().map(|generation| generation.to_store(record_size)).sum()
    }

    /// All changed keys in order, each as the newest has it.
    pub fn sorted_keys(&self) -> Vec<(Key, Option<Bytes>)> {
        let mut keys = self.sorted(Generation::sorted_keys);
        keys.dedup_by(|later, held| {
            let same = later.0 == held.0;
            if same {
                std::mem::swap(later, held);
            }
            same
        });
        keys
    }

    /// All dirty records in order of volume, map and record; of the same one the oldest first.
    pub fn sorted_records(&self) -> Vec<(DataKey, DirtyRecord)> {
        self.sorted(Generation::sorted_records)
    }

    fn sorted<K: Ord + Copy, V>(&self, of: impl Fn(&Generation) -> Vec<(K, V)>) -> Vec<(K, V)> {
        if self.older.is_empty() {
            return of(&self.newest);
        }
        let mut all: Vec<_> = self.generations().flat_map(|generation| of(generation)).collect();
        all.sort_by_key(|(key, _)| *key);
        all
    }
}
