//! Keys: a family's, and from it one per segment.
//!
//! - A segment's number is used once and its salt belongs to one opening, so its key seals one object only; within
//!   it every record has its own index as nonce.
//! - Opening gives exactly the bytes that were sealed, or an error.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use tarn_base::crypto::{Cipher, Key, TAG_SIZE};
use tarn_base::ids::{SegmentId, Uuid};
use tarn_base::large::LargePages;

use crate::codec::Codec;
use crate::error::DamageError;
use crate::format::{DIRECTORY_INDEX, Footer, check_lengths, directory_aad, record_aad, record_nonce};
use crate::pointer::RecordPointer;

/// 16 random bytes drawn at every opening for writing, kept for ever under the owner epoch.
pub type Salt = [u8; 16];
/// BLAKE3 of a record's plaintext, keyed per family.
pub type RecordHash = [u8; 32];

/// The key of a volume and its clones.
pub struct FamilyKey {
    id: Uuid,
    key: Key,
    hash: Key,
}

impl FamilyKey {
    pub fn new(id: Uuid, key: Key) -> FamilyKey {
        let hash = key.derive(&id.0, &[b"tarn record hash 1"]);
        FamilyKey { id, key, hash }
    }

    pub fn id(&self) -> Uuid {
        self.id
    }

    /// The key of `segment`, whose owner epoch has `salt`.
    pub fn segment(&self, salt: &Salt, segment: SegmentId) -> SegmentKey {
        let purpose: [&[u8]; 3] = [b"tarn segment 1", &segment.epoch.to_le_bytes(), &segment.counter.to_le_bytes()];
        SegmentKey { segment, cipher: self.key.derive(salt, &purpose).cipher() }
    }

    /// What the dedupe index knows `plain` by; tells nothing to anybody without the family's key.
    pub fn hash(&self, plain: &[u8]) -> RecordHash {
        *blake3::keyed_hash(self.hash.expose(), plain).as_bytes()
    }
}

impl std::fmt::Debug for FamilyKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "FamilyKey({})", self.id)
    }
}

/// The key of one segment, its schedule prepared.
#[derive(Debug)]
pub struct SegmentKey {
    segment: SegmentId,
    cipher: Cipher,
}

impl SegmentKey {
    pub fn segment(&self) -> SegmentId {
        self.segment
    }

    /// Seals `packed` as record `index` into `out`, which is as long; each index once.
    pub(crate) fn seal(&self, index: u32, codec: Codec, plain: u32, packed: &[u8], out: &mut [u8]) -> [u8; TAG_SIZE] {
        self.cipher.seal_apart(record_nonce(index), &record_aad(self.segment, index, codec, plain), packed, out)
    }

    /// The plaintext of record `index`, first written in this key's segment: verified against `tag`, expanded.
    pub fn open(
        &self,
        index: u32,
        codec: Codec,
        plain: u32,
        tag: &[u8; TAG_SIZE],
        stored: &[u8],
    ) -> Result<Bytes, DamageError> {
        self.open_in(&LargePages::default(), (index, codec, plain), tag, stored)
    }

    /// As [`SegmentKey::open`], of index, codec and plain length; the plaintext lies in `memory`.
    fn open_in(
        &self,
        memory: &LargePages,
        (index, codec, plain): (u32, Codec, u32),
        tag: &[u8; TAG_SIZE],
        stored: &[u8],
    ) -> Result<Bytes, DamageError> {
        let stored_len = u32::try_from(stored.len()).unwrap_or(u32::MAX);
        check_lengths(codec, stored_len, plain)?;
        let (nonce, aad) = (record_nonce(index), record_aad(self.segment, index, codec, plain));
        memory.fill(plain as usize, |out| {
            if codec == Codec::Plain {
                return Ok(self.cipher.open_to(nonce, &aad, tag, stored, out)?);
            }
            let mut packed = vec![0; stored.len()];
            self.cipher.open_to(nonce, &aad, tag, stored, &mut packed)?;
            codec.expand(&packed, out)
        })
    }

    pub(crate) fn seal_directory(&self, footer: &Footer, plain: &[u8], out: &mut Vec<u8>) {
        self.cipher.seal_to(record_nonce(DIRECTORY_INDEX), &directory_aad(footer), plain, out);
    }

    pub(crate) fn open_directory(&self, footer: &Footer, sealed: &[u8]) -> Result<Vec<u8>, DamageError> {
        Ok(self.cipher.open(record_nonce(DIRECTORY_INDEX), &directory_aad(footer), sealed)?)
    }
}

/// The plaintext that `pointer` names, from its `stored` bytes wherever they lie now; `salt` is that of the pointer's
/// owner epoch. Derives the segment's key anew: see [`SegmentKeyCache`].
pub fn open_record(
    family: &FamilyKey,
    salt: &Salt,
    pointer: &RecordPointer,
    stored: &[u8],
) -> Result<Bytes, DamageError> {
    pointer.open(&family.segment(salt, pointer.segment), stored)
}

impl RecordPointer {
    /// The plaintext it names, from its `stored` bytes, under the key of its segment.
    pub fn open(&self, key: &SegmentKey, stored: &[u8]) -> Result<Bytes, DamageError> {
        self.open_in(&LargePages::default(), key, stored)
    }

    /// As [`RecordPointer::open`], in memory for what is kept.
    pub fn open_in(&self, memory: &LargePages, key: &SegmentKey, stored: &[u8]) -> Result<Bytes, DamageError> {
        if stored.len() != self.stored as usize {
            return Err(DamageError::Length { expected: self.stored as usize, found: stored.len() });
        }
        if key.segment != self.segment {
            return Err(DamageError::OtherSegment { expected: self.segment, found: key.segment });
        }
        key.open_in(memory, (self.index, self.codec, self.plain), &self.tag, stored)
    }
}

/// Prepared keys of recently used segments: about 1 KiB each.
#[derive(Debug)]
pub struct SegmentKeyCache {
    capacity: usize,
    inner: Mutex<CacheInner>,
}

#[derive(Debug, Default)]
struct CacheInner {
    keys: HashMap<(Uuid, Salt, SegmentId), Arc<SegmentKey>>,
    /// In the order they came; the oldest goes first.
    order: VecDeque<(Uuid, Salt, SegmentId)>,
}

impl SegmentKeyCache {
    /// Keeps at most `capacity` keys, at least one.
    pub fn new(capacity: usize) -> SegmentKeyCache {
        SegmentKeyCache { capacity: capacity.max(1), inner: Mutex::default() }
    }

    pub fn get(&self, family: &FamilyKey, salt: &Salt, segment: SegmentId) -> Arc<SegmentKey> {
        let name = (family.id, *salt, segment);
        if let Some(key) = self.inner.lock().keys.get(&name) {
            return key.clone();
        }
        let key = Arc::new(family.segment(salt, segment));
        let mut inner = self.inner.lock();
        if inner.keys.insert(name, key.clone()).is_none() {
            inner.order.push_back(name);
        }
        while inner.order.len() > self.capacity {
            if let Some(oldest) = inner.order.pop_front() {
                inner.keys.remove(&oldest);
            }
        }
        key
    }
}
