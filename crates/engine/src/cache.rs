//! What is kept in RAM of the store: values of keys, absent ones included, and decoded records.
//!
//! - The key cache shows the store's present view; the overlay is always asked first.
//! - A fetched value enters only if no exchange has happened since the fetch began (engine rule 15). A checkpoint's values enter
//!   before the exchange that takes its generation away; from then on until it has happened, no key enters that a generation holds.
//! - Records are named for ever by (segment, index), so theirs needs no invalidation ([`crate::decoded`]).
//! - Both resist scans (quick_cache keeps what is asked for twice).

use bytes::Bytes;
use quick_cache::Weighter;
use quick_cache::sync::Cache;
use tarn_base::pages::Pages;

use crate::decoded::{ENTRY_OVERHEAD, Records};
use crate::hash::FastBuild;
use crate::key::Key;
use crate::listings::Listings;
use crate::names::Names;
use crate::neighbours::Neighbours;

/// About what an entry by its hash and an inode take together.
const ENTRY_AND_INODE: u64 = 2 * ENTRY_OVERHEAD + 192;

#[derive(Clone, Debug)]
pub struct KeyWeight;

impl Weighter<Key, Option<Bytes>> for KeyWeight {
    fn weight(&self, _key: &Key, value: &Option<Bytes>) -> u64 {
        ENTRY_OVERHEAD + value.as_ref().map_or(0, |bytes| bytes.len() as u64)
    }
}

type KeyMap = Cache<Key, Option<Bytes>, KeyWeight, FastBuild>;

/// A listing names its keys once more, and is asked for far less often than they are.
const LISTINGS_SHARE: u64 = 8;
/// Some seven bytes of this stand for a name that would take 160 with its absence.
const NAMES_SHARE: u64 = 16;

/// The caches, each with a limit in bytes.
pub struct Caches {
    pub keys: KeyMap,
    pub listings: Listings,
    pub names: Names,
    pub neighbours: Neighbours,
    pub records: Records,
    /// Where data lies that is sent as it is.
    pub pages: Pages,
}

impl Caches {
    /// `name_bytes` are for keys, listings and the names of directories; `waiting_bytes` of data are kept outside, some of it in
    /// pages.
    pub fn new(name_bytes: u64, record_bytes: u64, waiting_bytes: u64) -> Caches {
        let pages = Pages::new(record_bytes.saturating_add(waiting_bytes));
        let listing_bytes = name_bytes / LISTINGS_SHARE;
        let names_bytes = name_bytes / NAMES_SHARE;
        let key_bytes = name_bytes - listing_bytes - names_bytes;
        Caches {
            listings: Listings::new(listing_bytes),
            names: Names::new(names_bytes),
            neighbours: Neighbours::default(),
            keys: Cache::with(
                (key_bytes / 256) as usize,
                key_bytes,
                KeyWeight,
                FastBuild::default(),
                Default::default(),
            ),
            records: Records::new(record_bytes, pages.clone()),
            pages,
        }
    }

    /// Whether so many more directory entries and their inodes fit among the keys.
    pub fn has_room(&self, entries: usize) -> bool {
        self.keys.weight() + entries as u64 * ENTRY_AND_INODE <= self.keys.capacity()
    }
}

impl std::fmt::Debug for Caches {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Caches({} keys, {} records)", self.keys.len(), self.records.len())
    }
}
