//! A store within a store: every name stands under a fixed prefix.
//!
//! - Nothing outside the prefix is ever read, listed, written or removed.
//! - Names in results and errors are the caller's, without the prefix.

use std::ops::Range;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;

use crate::contract::{ObjectInfo, PutMode, Store, StoreError, StoreResult, Version};
use crate::name;

/// `inner`, seen from below `prefix`.
#[derive(Debug)]
pub struct PrefixStore {
    inner: Arc<dyn Store>,
    /// Empty, or ends in `/`.
    prefix: String,
}

impl PrefixStore {
    /// The part of `inner` below `prefix`, a name without a slash at its end, or empty for everything.
    pub fn new(inner: Arc<dyn Store>, prefix: &str) -> StoreResult<PrefixStore> {
        if prefix.is_empty() {
            return Ok(PrefixStore { inner, prefix: String::new() });
        }
        name::check(prefix)?;
        Ok(PrefixStore { inner, prefix: format!("{prefix}/") })
    }

    fn full(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    fn own(&self, mut info: ObjectInfo) -> ObjectInfo {
        if let Some(name) = info.name.strip_prefix(&self.prefix) {
            info.name = name.to_owned();
        }
        info
    }
}

/// The same error about `name` as the caller knows it.
fn rename(error: StoreError, name: &str) -> StoreError {
    match error {
        StoreError::NotFound(_) => StoreError::NotFound(name.to_owned()),
        StoreError::Exists(_) => StoreError::Exists(name.to_owned()),
        StoreError::Changed(_) => StoreError::Changed(name.to_owned()),
        StoreError::Range(_, range) => StoreError::Range(name.to_owned(), range),
        StoreError::Damaged(_, why) => StoreError::Damaged(name.to_owned(), why),
        other => other,
    }
}

#[async_trait]
impl Store for PrefixStore {
    async fn put(&self, name: &str, bytes: Bytes, mode: PutMode) -> StoreResult<Version> {
        name::check(name)?;
        self.inner.put(&self.full(name), bytes, mode).await.map_err(|error| rename(error, name))
    }

    async fn create(&self, name: &str, bytes: Bytes) -> StoreResult<()> {
        name::check(name)?;
        self.inner.create(&self.full(name), bytes).await.map_err(|error| rename(error, name))
    }

    async fn get(&self, name: &str) -> StoreResult<(Bytes, Version)> {
        self.inner.get(&self.full(name)).await.map_err(|error| rename(error, name))
    }

    async fn get_range(&self, name: &str, range: Range<u64>) -> StoreResult<Bytes> {
        self.inner.get_range(&self.full(name), range).await.map_err(|error| rename(error, name))
    }

    async fn head(&self, name: &str) -> StoreResult<ObjectInfo> {
        let info = self.inner.head(&self.full(name)).await.map_err(|error| rename(error, name))?;
        Ok(self.own(info))
    }

    async fn delete(&self, name: &str) -> StoreResult<()> {
        name::check(name)?;
        self.inner.delete(&self.full(name)).await
    }

    async fn list(&self, prefix: &str) -> StoreResult<Vec<ObjectInfo>> {
        let listed = self.inner.list(&self.full(prefix)).await?;
        Ok(listed.into_iter().map(|info| self.own(info)).collect())
    }
}
