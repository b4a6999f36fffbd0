//! Another try, where another try can do no harm.
//!
//! - [`StoreError::Unavailable`] is tried again whatever the call: it was not done.
//! - [`StoreError::Unknown`] is tried again if doing it twice is doing it once: an overwriting `put`, reads, `delete`. After a
//!   conditional `put` it is handed up: only the caller can tell its own object from another's.
//! - Everything else is an answer.
//! - Waits grow twofold from `first` to `longest`, each shortened by chance by up to half, and end after `tries`.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use tarn_base::world::World;

use crate::contract::{ObjectInfo, PutMode, Store, StoreError, StoreResult, Version};

/// How often and how fast.
#[derive(Clone, Debug)]
pub struct RetryPolicy {
    /// Calls in all, the first included; at least 1.
    pub tries: u32,
    /// Wait before the second.
    pub first: Duration,
    /// No wait is longer.
    pub longest: Duration,
}

impl Default for RetryPolicy {
    fn default() -> RetryPolicy {
        // Some six seconds in all: longer than a store's slow-down or the loss of a connection, shorter than a client's
        // patience.
        RetryPolicy { tries: 8, first: Duration::from_millis(50), longest: Duration::from_secs(2) }
    }
}

/// `inner`, asked again.
pub struct RetryStore {
    inner: Arc<dyn Store>,
    world: World,
    policy: RetryPolicy,
}

impl fmt::Debug for RetryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Retry({:?})", self.inner)
    }
}

impl RetryStore {
    pub fn new(inner: Arc<dyn Store>, world: World, policy: RetryPolicy) -> RetryStore {
        RetryStore { inner, world, policy }
    }

    /// The answer of the last call; waits between calls as the policy says.
    async fn again<T, F, C>(&self, twice_is_once: bool, call: C) -> StoreResult<T>
    where
        F: Future<Output = StoreResult<T>>,
        C: Fn() -> F,
    {
        let mut wait = self.policy.first;
        for _ in 1..self.policy.tries {
            match call().await {
                Err(StoreError::Unavailable(_)) => {}
                Err(StoreError::Unknown(_)) if twice_is_once => {}
                answer => return answer,
            }
            let parts = 512 + u32::from(self.world.random_bytes::<1>()[0]) * 2;
            self.world.clock.sleep(wait * parts / 1024).await;
            wait = (wait * 2).min(self.policy.longest);
        }
        call().await
    }
}

#[async_trait]
impl Store for RetryStore {
    async fn put(&self, name: &str, bytes: Bytes, mode: PutMode) -> StoreResult<Version> {
        let twice_is_once = mode == PutMode::Overwrite;
        self.again(twice_is_once, || self.inner.put(name, bytes.clone(), mode.clone())).await
    }

    async fn create(&self, name: &str, bytes: Bytes) -> StoreResult<()> {
        self.again(false, || self.inner.create(name, bytes.clone())).await
    }

    async fn get(&self, name: &str) -> StoreResult<(Bytes, Version)> {
        self.again(true, || self.inner.get(name)).await
    }

    async fn get_range(&self, name: &str, range: Range<u64>) -> StoreResult<Bytes> {
        self.again(true, || self.inner.get_range(name, range.clone())).await
    }

    async fn head(&self, name: &str) -> StoreResult<ObjectInfo> {
        self.again(true, || self.inner.head(name)).await
    }

    async fn delete(&self, name: &str) -> StoreResult<()> {
        self.again(true, || self.inner.delete(name)).await
    }

    async fn list(&self, prefix: &str) -> StoreResult<Vec<ObjectInfo>> {
        self.again(true, || self.inner.list(prefix)).await
    }
}
