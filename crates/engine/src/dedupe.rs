//! The dedupe index: which record holds which content (engine rule 25). A hint in RAM, no more.
//!
//! - It is asked while a checkpoint packs, and believed only after the segment's key was: the record must live in the
//!   view that the batch is built on, belong to the same family, and open under what the hint says.
//! - Digests are BLAKE3 of 256 bits under the family's key, compared whole; another family's never match.
//! - It is bounded; what is asked for twice stays longest. What is missing costs space, never data.
//! - Nothing of it is at rest: it is filled by checkpoints, and after an opening from the segments' directories
//!   ([`crate::reclaim`]).
//! - Only what this life has written, or read back and compared, is pointed to without reading it: whoever puts a damaged
//!   file right by writing it again must not get a pointer to the damage, not after a restart either. Damage found
//!   anywhere makes everything known doubtful again.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use quick_cache::Weighter;
use quick_cache::sync::Cache;
use tarn_base::ids::SegmentId;
use tarn_data::{RecordHash, RecordPointer, SegmentState, SegmentValue};

use crate::hash::FastBuild;

/// Shorter records are stored again: remembering one costs about as many bytes of RAM as it would take in the store.
pub const LENGTH_MIN: usize = 512;
/// What an entry costs, its place in the table included, bytes.
const ENTRY_BYTES: u64 = 160;
/// Damaged records kept out; whoever has more has other worries.
const DAMAGED_MAX: usize = 100_000;

/// A record that holds a content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Known {
    /// As a pointer to it would be; epoch and generation are the pointer's own matter.
    pub pointer: RecordPointer,
    /// Whether the pointer's offset is that in the record's first object. Of a record that was found where it was moved
    /// to it is not known, and matters until the first object is deleted.
    pub placed: bool,
    /// How much damage had been met when it was written or read whole; `None`: it never was, as far as is known.
    pub trusted: Option<u64>,
}

impl Known {
    /// Whether a pointer may be made to it, by the value of the segment that it names.
    pub fn lives(&self, value: &SegmentValue, family: tarn_base::ids::Uuid) -> bool {
        let index = self.pointer.index;
        value.family == family
            && match &value.state {
                SegmentState::Live => self.placed && value.live.contains(index),
                SegmentState::Condemned { .. } => false,
                SegmentState::Forwarding(forwarding) => {
                    forwarding.records.contains_key(&index) && (self.placed || forwarding.condemned_at_ms.is_none())
                }
            }
    }
}

#[derive(Clone, Debug)]
struct EntryWeight;

impl Weighter<RecordHash, Known> for EntryWeight {
    fn weight(&self, _hash: &RecordHash, _known: &Known) -> u64 {
        ENTRY_BYTES
    }
}

/// What dedupe has saved since the opening.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DedupeTotals {
    /// Records that were not stored, because they were there.
    pub hits: u64,
    /// Stored bytes that they would have taken.
    pub hit_bytes: u64,
    /// Records read back and compared before they were pointed to.
    pub read_back: u64,
}

/// The index, and what it did.
pub struct Dedupe {
    known: Cache<RecordHash, Known, EntryWeight, FastBuild>,
    damaged: Mutex<BTreeSet<(SegmentId, u32)>>,
    /// How much damage was met.
    doubts: AtomicU64,
    hits: AtomicU64,
    hit_bytes: AtomicU64,
    read_back: AtomicU64,
}

impl std::fmt::Debug for Dedupe {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Dedupe({} records)", self.known.len())
    }
}

impl Dedupe {
    /// An index of at most `bytes`.
    pub fn new(bytes: u64) -> Dedupe {
        let bytes = bytes.max(ENTRY_BYTES);
        let entries = (bytes / ENTRY_BYTES) as usize;
        Dedupe {
            known: Cache::with(entries, bytes, EntryWeight, FastBuild::default(), Default::default()),
            damaged: Mutex::default(),
            doubts: AtomicU64::new(0),
            hits: AtomicU64::new(0),
            hit_bytes: AtomicU64::new(0),
            read_back: AtomicU64::new(0),
        }
    }

    /// A record of this content and length, unless it is known to be damaged. Not yet known to live.
    pub fn find(&self, hash: &RecordHash, plain: usize) -> Option<Known> {
        let known = self.known.get(hash)?;
        let name = (known.pointer.segment, known.pointer.index);
        (known.pointer.plain as usize == plain && !self.damaged.lock().contains(&name)).then_some(known)
    }

    /// Notes what holds a content.
    pub fn learn(&self, hash: RecordHash, known: Known) {
        self.known.insert(hash, known);
    }

    /// As [`Dedupe::learn`], of an older record: what is known already stays.
    pub fn recall(&self, hash: RecordHash, known: Known) {
        if self.known.peek(&hash).is_none() {
            self.known.insert(hash, known);
        }
    }

    /// What was noted of this content does not hold any more.
    pub fn forget(&self, hash: &RecordHash) {
        self.known.remove(hash);
    }

    /// A record is damaged.
    pub fn damaged(&self, segment: SegmentId, index: u32) {
        let mut damaged = self.damaged.lock();
        if damaged.len() >= DAMAGED_MAX || damaged.insert((segment, index)) {
            self.doubt();
        }
    }

    /// Damage was met: what is known of other records is looked at again before it is used.
    pub fn doubt(&self) {
        self.doubts.fetch_add(1, Ordering::AcqRel);
    }

    /// Whether a record may be pointed to without reading it.
    pub fn trusts(&self, known: &Known) -> bool {
        known.trusted == Some(self.doubts.load(Ordering::Acquire))
    }

    /// As it is once it was written or read whole, provided that this begins after.
    pub fn trusting(&self, known: Known) -> Known {
        Known { trusted: Some(self.doubts.load(Ordering::Acquire)), ..known }
    }

    /// A record was read back and is as it should be.
    pub fn read_back(&self) {
        self.read_back.fetch_add(1, Ordering::Relaxed);
    }

    /// Records were pointed to instead of being stored, by a batch that is durable.
    pub fn hit(&self, records: &[RecordPointer]) {
        let bytes: u64 = records.iter().map(|record| u64::from(record.stored)).sum();
        self.hits.fetch_add(records.len() as u64, Ordering::Relaxed);
        self.hit_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub fn totals(&self) -> DedupeTotals {
        DedupeTotals {
            hits: self.hits.load(Ordering::Relaxed),
            hit_bytes: self.hit_bytes.load(Ordering::Relaxed),
            read_back: self.read_back.load(Ordering::Relaxed),
        }
    }

    /// Whether there is no room for what is older.
    pub fn is_full(&self) -> bool {
        self.known.weight() + ENTRY_BYTES > self.known.capacity()
    }

    /// Entries, their bytes, and the most bytes.
    pub fn size(&self) -> (u64, u64, u64) {
        (self.known.len() as u64, self.known.weight(), self.known.capacity())
    }
}
