//! A state of the database, to be read.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use futures::{StreamExt, TryStreamExt, stream};
use slatedb::DbReadOps;
use slatedb::config::ScanOptions;

use super::error;
use crate::contract::{MetaResult, MetaView, Page};

/// How many gets of [`MetaView::get_sorted`] run at once.
const GETS_AT_ONCE: usize = 16;
/// [`MetaView::get_sorted`] tries to find so many keys by one scan, at least and at most.
const PASS_LEAST: usize = 32;
const PASS_MOST: usize = 1024;
/// Such a scan may meet so many entries for each key; beyond that single gets, which have filters, are faster.
const PASS_ENTRIES: usize = 4;
/// After a scan that met too many, so many times [`PASS_LEAST`] keys are got singly before the next is tried.
const SPARSE_GETS: usize = 8;
/// A scan of more entries reads ahead, so many bytes.
const SCAN_SHORT: usize = 64;
const SCAN_AHEAD: usize = 256 * 1024;
/// A scan of more entries goes through the whole store and leaves the cache to others.
const SCAN_LONG: usize = 4096;

/// What a snapshot or a reader shows.
pub struct SlateView<R> {
    reads: Arc<R>,
    /// Keeps open what is read.
    _opened: Arc<dyn Any + Send + Sync>,
}

impl<R> fmt::Debug for SlateView<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SlateView")
    }
}

impl<R> SlateView<R> {
    pub fn new(reads: Arc<R>, opened: Arc<dyn Any + Send + Sync>) -> SlateView<R> {
        SlateView { reads, _opened: opened }
    }
}

impl<R: DbReadOps + Send + Sync> SlateView<R> {
    async fn scan_once(&self, from: &[u8], to: &[u8], limit: usize) -> Result<Page, slatedb::Error> {
        let ahead = if limit > SCAN_SHORT { SCAN_AHEAD } else { 1 };
        let cached = limit <= SCAN_LONG;
        let options = ScanOptions::default().with_cache_blocks(cached).with_read_ahead_bytes(ahead);
        let range = Bytes::copy_from_slice(from)..Bytes::copy_from_slice(to);
        let mut entries = self.reads.scan_with_options(range, &options).await?;
        let mut page = Page { entries: Vec::new(), complete: true };
        while let Some(entry) = entries.next().await? {
            if page.entries.len() == limit {
                page.complete = false;
                break;
            }
            page.entries.push((detached(&entry.key), detached(&entry.value)));
        }
        Ok(page)
    }
}

/// The same bytes without the block they lie in.
fn detached(bytes: &Bytes) -> Bytes {
    Bytes::copy_from_slice(bytes)
}

#[async_trait]
impl<R: DbReadOps + Send + Sync> MetaView for SlateView<R> {
    async fn get(&self, key: &[u8]) -> MetaResult<Option<Bytes>> {
        let found = self.reads.get(key).await.map_err(|error| error::of_reading(&error))?;
        Ok(found.map(|value| detached(&value)))
    }

    async fn scan(&self, from: &[u8], to: &[u8], limit: usize) -> MetaResult<Page> {
        if from >= to {
            return Ok(Page { entries: Vec::new(), complete: true });
        }
        self.scan_once(from, to, limit).await.map_err(|error| error::of_reading(&error))
    }

    async fn get_sorted(&self, keys: &[Bytes]) -> MetaResult<Vec<Option<Bytes>>> {
        let mut out = Vec::with_capacity(keys.len());
        let (mut window, mut sparse) = (PASS_LEAST, 0);
        while out.len() < keys.len() {
            let rest = &keys[out.len()..];
            if sparse == 0 && rest.len() >= PASS_LEAST {
                let part = &rest[..rest.len().min(window)];
                let found = self.pass(part).await?;
                if found.len() == part.len() {
                    window = (window * 4).min(PASS_MOST);
                } else {
                    (window, sparse) = (PASS_LEAST, SPARSE_GETS);
                }
                out.extend(found);
                continue;
            }
            let part = rest[..rest.len().min(PASS_LEAST)].to_vec();
            // Neighbours wait for one another's block in the cache, so each is read once.
            let gets = stream::iter(part).map(|key| async move { self.get(&key).await });
            out.extend(gets.buffered(GETS_AT_ONCE).try_collect::<Vec<_>>().await?);
            sparse = sparse.saturating_sub(1);
        }
        Ok(out)
    }
}

impl<R: DbReadOps + Send + Sync> SlateView<R> {
    /// The values of the first of `keys`: of all if they lie close together, else of as many as a short scan passed.
    async fn pass(&self, keys: &[Bytes]) -> MetaResult<Vec<Option<Bytes>>> {
        let (Some(first), Some(last)) = (keys.first(), keys.last()) else { return Ok(Vec::new()) };
        let mut to = last.to_vec();
        to.push(0);
        let page = self.scan(first, &to, keys.len() * PASS_ENTRIES).await?;
        let mut entries = page.entries.into_iter().peekable();
        let mut out = Vec::with_capacity(keys.len());
        for key in keys {
            while entries.next_if(|(held, _)| held < key).is_some() {}
            match entries.peek() {
                Some((held, value)) if held == key => out.push(Some(value.clone())),
                Some(_) => out.push(None),
                None if page.complete => out.push(None),
                None => break,
            }
        }
        Ok(out)
    }
}
