//! Encryption of whole objects, readable by range.
//!
//! - Every `put` draws a salt and so has a key of its own: HKDF-SHA256 of the store's key under that salt. Its nonces count
//!   the chunks, so no pair of key and nonce is used twice.
//! - The tag of a chunk covers the header, the object's name, the chunk's number and whether it is the last. A chunk
//!   moved, changed, cut off or left over does not open: [`StoreError::Damaged`].
//! - The size of the plaintext follows from the size of the object; nothing needs reading to list it.
//! - Reading a range decrypts the chunks it touches only. Salt and size of an object are remembered; when they do not open
//!   it any more it was overwritten, and they are read again.
//! - Not hidden: names, sizes, times. Not noticed: an object put back to an older state of itself.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::Mutex;
use tarn_base::crypto::{Cipher, Key, TAG_SIZE};
use tarn_base::world::Random;

use crate::contract::{ObjectInfo, PutMode, Store, StoreError, StoreResult, Version};
use crate::name;

#[doc(hidden)]
pub mod decoders;
mod format;

use format::{CHUNK_SIZE, HEADER_SIZE, Header};

/// Remembered headers; an entry is some 150 bytes.
const SEALS_MAX: usize = 16_384;
/// Readings of an object that is being overwritten before it counts as damaged.
const TRIES: usize = 3;

/// `inner`, where every object is encrypted.
pub struct SealedStore {
    inner: Arc<dyn Store>,
    key: Key,
    random: Arc<dyn Random>,
    seals: Mutex<BTreeMap<String, Seal>>,
}

/// What it takes to read a range of an object.
#[derive(Clone)]
struct Seal {
    header: Header,
    cipher: Arc<Cipher>,
    /// Of the plaintext, bytes.
    size: u64,
}

impl fmt::Debug for SealedStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Sealed({:?})", self.inner)
    }
}

fn damaged(name: &str, why: impl fmt::Display) -> StoreError {
    StoreError::Damaged(name.to_owned(), why.to_string())
}

impl SealedStore {
    /// Seals under keys derived from `key`; salts come from `random`.
    pub fn new(inner: Arc<dyn Store>, key: Key, random: Arc<dyn Random>) -> SealedStore {
        SealedStore { inner, key, random, seals: Mutex::default() }
    }

    fn seal(&self, header: Header, size: u64) -> Seal {
        let cipher = Arc::new(self.key.derive(&header.salt, &[format::PURPOSE]).cipher());
        Seal { header, cipher, size }
    }

    fn remember(&self, name: &str, seal: Seal) {
        let mut seals = self.seals.lock();
        while seals.len() >= SEALS_MAX {
            seals.pop_first();
        }
        seals.insert(name.to_owned(), seal);
    }

    /// Reads how `name` is sealed.
    async fn read_seal(&self, name: &str) -> StoreResult<Seal> {
        let stored = self.inner.head(name).await?.size;
        let size = format::plain_size(stored).ok_or_else(|| damaged(name, "its size is none of a sealed object"))?;
        let header = match self.inner.get_range(name, 0..HEADER_SIZE).await {
            Ok(header) if header.len() as u64 == HEADER_SIZE => header,
            Ok(_) | Err(StoreError::Range(..)) => return Err(damaged(name, "its header is cut off")),
            Err(error) => return Err(error),
        };
        let header = Header::decode(&header).map_err(|error| damaged(name, error))?;
        Ok(self.seal(header, size))
    }

    /// The plaintext of `range`, which is within the size that `seal` tells.
    async fn read_range(&self, name: &str, seal: &Seal, range: Range<u64>) -> StoreResult<Bytes> {
        let first = range.start / CHUNK_SIZE;
        let last = (range.end - 1) / CHUNK_SIZE;
        let stored = format::stored_range(first, last, seal.size);
        let wanted = stored.end - stored.start;
        let sealed = match self.inner.get_range(name, stored).await {
            // A store that answers with less makes a mistake, and must not make us make one.
            Ok(sealed) if sealed.len() as u64 == wanted => sealed,
            Ok(_) | Err(StoreError::Range(..)) => return Err(damaged(name, "it is cut off")),
            Err(error) => return Err(error),
        };
        let plain = open(name, seal, first, &sealed)?;
        let from = (range.start - first * CHUNK_SIZE) as usize;
        let to = (range.end - first * CHUNK_SIZE) as usize;
        Ok(plain.slice(from..to))
    }

    /// Whether the end of the object is where its size says; an object cut off at a chunk has none.
    async fn check_end(&self, name: &str, seal: &Seal) -> StoreResult<()> {
        let last = seal.size.saturating_sub(1) / CHUNK_SIZE;
        let sealed = self.inner.get_range(name, format::stored_range(last, last, seal.size)).await?;
        open(name, seal, last, &sealed).map(drop)
    }

    async fn get_once(&self, name: &str) -> StoreResult<(Bytes, Version)> {
        let (stored, version) = self.inner.get(name).await?;
        let size = format::plain_size(stored.len() as u64);
        let size = size.ok_or_else(|| damaged(name, "its size is none of a sealed object"))?;
        let header = Header::decode(&stored[..HEADER_SIZE as usize]).map_err(|error| damaged(name, error))?;
        let seal = self.seal(header, size);
        Ok((open(name, &seal, 0, &stored[HEADER_SIZE as usize..])?, version))
    }

    async fn try_range(&self, name: &str, seal: &Seal, range: Range<u64>) -> StoreResult<Bytes> {
        if range.start > range.end || range.end > seal.size {
            self.check_end(name, seal).await?;
            return Err(StoreError::Range(name.to_owned(), range));
        }
        if range.is_empty() {
            return Ok(Bytes::new());
        }
        self.read_range(name, seal, range).await
    }
}

/// The plaintext of consecutive whole chunks, of which the first has the number `first`.
fn open(name: &str, seal: &Seal, first: u64, sealed: &[u8]) -> StoreResult<Bytes> {
    let count = format::chunk_count(seal.size);
    let mut plain = vec![0; sealed.len()];
    let mut at = 0;
    for (number, chunk) in (first..).zip(sealed.chunks(CHUNK_SIZE as usize + TAG_SIZE)) {
        let (data, tag) = chunk.split_last_chunk::<TAG_SIZE>().ok_or_else(|| damaged(name, "a chunk has no tag"))?;
        let last = number + 1 == count;
        let covered = seal.header.associated_data(name, number, last);
        let out = &mut plain[at..at + data.len()];
        let opened = seal.cipher.open_to(format::nonce(number, last), &covered, tag, data, out);
        opened.map_err(|error| damaged(name, format_args!("chunk {number}: {error}")))?;
        at += data.len();
    }
    plain.truncate(at);
    Ok(Bytes::from(plain))
}

#[async_trait]
impl Store for SealedStore {
    async fn put(&self, name: &str, bytes: Bytes, mode: PutMode) -> StoreResult<Version> {
        name::check(name)?;
        let mut salt = [0; format::SALT_SIZE];
        self.random.fill(&mut salt);
        let seal = self.seal(Header { salt }, bytes.len() as u64);
        let count = format::chunk_count(seal.size);
        let mut out = Vec::with_capacity(format::stored_size(seal.size) as usize);
        seal.header.encode(&mut out);
        for number in 0..count {
            let from = (number * CHUNK_SIZE) as usize;
            let to = bytes.len().min(from + CHUNK_SIZE as usize);
            let last = number + 1 == count;
            let covered = seal.header.associated_data(name, number, last);
            seal.cipher.seal_to(format::nonce(number, last), &covered, &bytes[from..to], &mut out);
        }
        self.seals.lock().remove(name);
        let version = self.inner.put(name, Bytes::from(out), mode).await?;
        self.remember(name, seal);
        Ok(version)
    }

    /// What does not open is read again: the copy on the way may be bad, the object right.
    async fn get(&self, name: &str) -> StoreResult<(Bytes, Version)> {
        let mut tries = 1;
        loop {
            match self.get_once(name).await {
                Err(StoreError::Damaged(..)) if tries < TRIES => tries += 1,
                result => return result,
            }
        }
    }

    async fn get_range(&self, name: &str, range: Range<u64>) -> StoreResult<Bytes> {
        let remembered = self.seals.lock().get(name).cloned();
        if let Some(seal) = remembered {
            match self.try_range(name, &seal, range.clone()).await {
                Err(StoreError::Damaged(..) | StoreError::Range(..)) => {}
                result => return result,
            }
        }
        let mut tries = 1;
        loop {
            let read = match self.read_seal(name).await {
                Ok(seal) => self.try_range(name, &seal, range.clone()).await.map(|bytes| (seal, bytes)),
                Err(error) => Err(error),
            };
            match read {
                Ok((seal, bytes)) => {
                    self.remember(name, seal);
                    return Ok(bytes);
                }
                Err(StoreError::Damaged(..)) if tries < TRIES => tries += 1,
                Err(error) => return Err(error),
            }
        }
    }

    async fn head(&self, name: &str) -> StoreResult<ObjectInfo> {
        let mut info = self.inner.head(name).await?;
        info.size =
            format::plain_size(info.size).ok_or_else(|| damaged(name, "its size is none of a sealed object"))?;
        Ok(info)
    }

    async fn delete(&self, name: &str) -> StoreResult<()> {
        self.seals.lock().remove(name);
        self.inner.delete(name).await
    }

    /// What cannot be a sealed object is listed with size 0; reading it tells.
    async fn list(&self, prefix: &str) -> StoreResult<Vec<ObjectInfo>> {
        let mut listed = self.inner.list(prefix).await?;
        for info in &mut listed {
            info.size = format::plain_size(info.size).unwrap_or(0);
        }
        Ok(listed)
    }
}

#[cfg(test)]
mod tests;
