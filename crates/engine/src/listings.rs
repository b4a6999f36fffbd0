//! Beginnings of directories as the store has them, kept in RAM: most directories are small, and listed again and again.
//!
//! - As with the key cache, what is kept is the store's present view, and generations lie over it.
//! - A directory that a checkpoint changes leaves before the exchange, and does not come back before it has happened.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use quick_cache::Weighter;
use quick_cache::sync::Cache;
use tarn_base::ids::VolumeId;
use tarn_base::mutant;
use tarn_vfs::COOKIE_FIRST;

use crate::hash::FastBuild;
use crate::key::{Key, Kind};
use crate::overlay::StackCell;

/// So many entries of a directory are fetched at least when it is listed from its beginning.
pub const AT_LEAST: usize = 256;
/// No more are kept of one directory.
const MOST: usize = 4096;
/// What an entry costs beside its name and the rest of its value, and a listing beside its entries.
const ENTRY_OVERHEAD: u64 = 96;
const LISTING_OVERHEAD: u64 = 160;

/// A directory: its volume and inode.
type Dir = (VolumeId, u64);

/// Entries of a directory, in order of cookie.
#[derive(Debug)]
pub struct Listing {
    pub entries: Vec<(Key, Bytes)>,
    /// Every entry from the first that was asked for to this is here; `None`: all are.
    pub until: Option<Key>,
}

/// Entries, and where they end if that is before what was asked for does.
pub type Part<'a> = (&'a [(Key, Bytes)], Option<Key>);

impl Listing {
    /// Entries within `range` from its beginning, at most `limit`, and where they end if that is before the range does;
    /// nothing if the range begins beyond what is here.
    pub fn part(&self, range: &Range<Key>, limit: usize) -> Option<Part<'_>> {
        if self.until.is_some_and(|until| until <= range.start) {
            return None;
        }
        let from = self.entries.partition_point(|(key, _)| *key < range.start);
        let to = self.entries.partition_point(|(key, _)| *key < range.end).max(from);
        if to - from > limit {
            return Some((&self.entries[from..from + limit], Some(self.entries[from + limit].0)));
        }
        Some((&self.entries[from..to], self.until.filter(|until| *until < range.end)))
    }
}

#[derive(Clone, Debug)]
struct ListingWeight;

impl Weighter<Dir, Arc<Listing>> for ListingWeight {
    fn weight(&self, _: &Dir, listing: &Arc<Listing>) -> u64 {
        let bytes = listing.entries.iter().map(|(_, value)| ENTRY_OVERHEAD + value.len() as u64);
        LISTING_OVERHEAD + bytes.sum::<u64>()
    }
}

/// What a checkpoint changes while it is shown.
#[derive(Debug, Default)]
struct Changing {
    dirs: HashSet<Dir>,
    all: bool,
}

pub struct Listings {
    kept: Cache<Dir, Arc<Listing>, ListingWeight, FastBuild>,
    changing: Mutex<Changing>,
}

impl std::fmt::Debug for Listings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Listings({})", self.kept.len())
    }
}

impl Listings {
    pub fn new(bytes: u64) -> Listings {
        let expected = (bytes / 4096).max(16) as usize;
        let kept = Cache::with(expected, bytes, ListingWeight, FastBuild::default(), Default::default());
        Listings { kept, changing: Mutex::default() }
    }

    /// Whether `range` is of a directory's entries from the first on: then its beginning is worth keeping.
    pub fn begins(range: &Range<Key>) -> bool {
        range.start.kind == Kind::EntryCookie && range.start.b <= COOKIE_FIRST
    }

    /// What is kept of the directory whose entries `range` names.
    pub fn get(&self, range: &Range<Key>) -> Option<Arc<Listing>> {
        if range.start.kind != Kind::EntryCookie {
            return None;
        }
        self.kept.get(&(range.start.volume, range.start.a))
    }

    /// Keeps the beginning of a directory, fetched when the stack had version `then`, if it still is the present one.
    pub fn enter(&self, stack: &StackCell, then: u64, from: Key, listing: Arc<Listing>) {
        if listing.entries.len() > MOST {
            return;
        }
        let dir = (from.volume, from.a);
        let changing = self.changing.lock();
        if changing.all || changing.dirs.contains(&dir) || stack.load().version != then {
            return;
        }
        self.kept.insert(dir, listing);
    }

    /// A checkpoint that changes `keys` is about to be shown.
    pub fn close<'a>(&self, keys: impl Iterator<Item = &'a Key>) {
        if mutant::on(mutant::LISTING_KEPT) {
            return;
        }
        let mut changing = self.changing.lock();
        let mut last = None;
        for key in keys.filter(|key| key.kind == Kind::EntryCookie) {
            // In order of key, so all of a directory come one after the other.
            let dir = (key.volume, key.a);
            if last.replace(dir) != Some(dir) {
                changing.dirs.insert(dir);
            }
        }
        for dir in &changing.dirs {
            self.kept.remove(dir);
        }
    }

    /// A checkpoint of which it is not known what it changes is about to be shown.
    pub fn close_all(&self) {
        let mut changing = self.changing.lock();
        changing.all = true;
        self.kept.clear();
    }

    /// It is shown.
    pub fn open(&self) {
        *self.changing.lock() = Changing::default();
    }

    /// Weight and the limit of it, bytes.
    pub fn size(&self) -> (u64, u64) {
        (self.kept.weight(), self.kept.capacity())
    }
}

#[cfg(test)]
mod tests {
    use tarn_base::ids::Ino;

    use super::*;

    fn key(cookie: u64) -> Key {
        Key::entry_cookie(VolumeId(1), Ino(7), cookie)
    }

    #[test]
    fn a_part_ends_at_the_limit_at_the_range_or_where_what_is_kept_ends() {
        let entries = (3..9).map(|cookie| (key(cookie), Bytes::new())).collect();
        let mut listing = Listing { entries, until: Some(key(10)) };
        let cookies = |listing: &Listing, from: u64, to: u64, limit: usize| {
            let (part, until) = listing.part(&(key(from)..key(to)), limit)?;
            Some((part.iter().map(|(key, _)| key.b).collect::<Vec<_>>(), until.map(|until| until.b)))
        };
        assert_eq!(cookies(&listing, 3, u64::MAX, 2), Some((vec![3, 4], Some(5))));
        assert_eq!(cookies(&listing, 6, u64::MAX, 3), Some((vec![6, 7, 8], Some(10))));
        assert_eq!(cookies(&listing, 6, 8, 9), Some((vec![6, 7], None)));
        assert_eq!(cookies(&listing, 9, u64::MAX, 9), Some((vec![], Some(10))));
        assert_eq!(cookies(&listing, 10, u64::MAX, 9), None);
        listing.until = None;
        assert_eq!(cookies(&listing, 6, u64::MAX, 9), Some((vec![6, 7, 8], None)));
        assert_eq!(cookies(&listing, 10, u64::MAX, 9), Some((vec![], None)));
    }
}
