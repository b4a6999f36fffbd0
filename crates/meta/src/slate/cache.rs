//! The cache of SlateDB's blocks, indexes and filters.
//!
//! - Whoever misses a block that another is fetching waits for that fetch; each is fetched once.
//! - An entry never changes: it is named by the SST, which is written once.

use async_trait::async_trait;
use quick_cache::Weighter;
use quick_cache::sync::Cache;
use slatedb::Error;
use slatedb::db_cache::{CacheFetch, CacheLoader, CachedEntry, CachedKey, DbCache};

/// What an entry costs besides its own size, bytes.
const OVERHEAD: u64 = 128;
/// For the estimate of how many entries there will be, bytes.
const ENTRY_SIZE: u64 = 4096;

#[derive(Clone)]
struct Weight;

impl Weighter<CachedKey, CachedEntry> for Weight {
    fn weight(&self, _: &CachedKey, entry: &CachedEntry) -> u64 {
        entry.size() as u64 + OVERHEAD
    }
}

pub struct BlockCache {
    entries: Cache<CachedKey, CachedEntry, Weight>,
}

impl BlockCache {
    /// A cache of `bytes` of memory.
    pub fn new(bytes: u64) -> BlockCache {
        let estimate = usize::try_from(bytes / ENTRY_SIZE).unwrap_or(usize::MAX).max(16);
        BlockCache { entries: Cache::with_weighter(estimate, bytes, Weight) }
    }

    async fn fetch(&self, key: CachedKey, loader: CacheLoader) -> Result<CacheFetch, Error> {
        if let Some(entry) = self.entries.get(&key) {
            return Ok(CacheFetch::hit(entry));
        }
        let mut missed = false;
        let load = async {
            missed = true;
            loader().await
        };
        let entry = self.entries.get_or_insert_async(&key, load).await?;
        Ok(if missed { CacheFetch::miss(entry) } else { CacheFetch::hit(entry) })
    }
}

#[async_trait]
impl DbCache for BlockCache {
    async fn get_block(&self, key: &CachedKey) -> Result<Option<CachedEntry>, Error> {
        Ok(self.entries.get(key))
    }

    async fn get_index(&self, key: &CachedKey) -> Result<Option<CachedEntry>, Error> {
        Ok(self.entries.get(key))
    }

    async fn get_filter(&self, key: &CachedKey) -> Result<Option<CachedEntry>, Error> {
        Ok(self.entries.get(key))
    }

    async fn get_stats(&self, key: &CachedKey) -> Result<Option<CachedEntry>, Error> {
        Ok(self.entries.get(key))
    }

    async fn fetch_block(&self, key: CachedKey, loader: CacheLoader) -> Result<CacheFetch, Error> {
        self.fetch(key, loader).await
    }

    async fn fetch_index(&self, key: CachedKey, loader: CacheLoader) -> Result<CacheFetch, Error> {
        self.fetch(key, loader).await
    }

    async fn fetch_filter(&self, key: CachedKey, loader: CacheLoader) -> Result<CacheFetch, Error> {
        self.fetch(key, loader).await
    }

    async fn fetch_stats(&self, key: CachedKey, loader: CacheLoader) -> Result<CacheFetch, Error> {
        self.fetch(key, loader).await
    }

    async fn insert(&self, key: CachedKey, value: CachedEntry) {
        self.entries.insert(key, value);
    }

    async fn remove(&self, key: &CachedKey) {
        self.entries.remove(key);
    }

    fn entry_count(&self) -> u64 {
        self.entries.len() as u64
    }
}
