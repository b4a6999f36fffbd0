//! A store whose writes outlive whoever asked for them.
//!
//! - A write that is on its way when the power goes still arrives, some time later; so does a delete.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::Mutex;
use tarn_store::{ObjectInfo, PutMode, Store, StoreError, StoreResult, Version};

use crate::chance::Chance;

/// See the head of the file.
pub struct LateStore {
    inner: Arc<dyn Store>,
    chance: Mutex<Chance>,
    longest_ms: u64,
}

impl fmt::Debug for LateStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Late({:?})", self.inner)
    }
}

impl LateStore {
    pub fn new(inner: Arc<dyn Store>, chance: Chance, longest_ms: u64) -> LateStore {
        LateStore { inner, chance: Mutex::new(chance), longest_ms }
    }

    /// How long a write is on its way; most are there at once.
    fn delay(&self) -> Duration {
        let mut chance = self.chance.lock();
        let late = chance.percent(20);
        Duration::from_millis(if late { chance.range(0, self.longest_ms) } else { 0 })
    }

    async fn send<T: Send + 'static>(
        &self,
        call: impl Future<Output = StoreResult<T>> + Send + 'static,
    ) -> StoreResult<T> {
        let delay = self.delay();
        let call = async move {
            if !delay.is_zero() {
                tokio::time::sleep(delay).await;
            }
            call.await
        };
        // A task of the world, not of the machine: it goes on when the machine does not.
        tokio::spawn(call).await.unwrap_or_else(|error| Err(StoreError::Unknown(error.to_string())))
    }
}

#[async_trait]
impl Store for LateStore {
    async fn put(&self, name: &str, bytes: Bytes, mode: PutMode) -> StoreResult<Version> {
        let (inner, name) = (self.inner.clone(), name.to_owned());
        self.send(async move { inner.put(&name, bytes, mode).await }).await
    }

    async fn get(&self, name: &str) -> StoreResult<(Bytes, Version)> {
        self.inner.get(name).await
    }

    async fn get_range(&self, name: &str, range: Range<u64>) -> StoreResult<Bytes> {
        self.inner.get_range(name, range).await
    }

    async fn head(&self, name: &str) -> StoreResult<ObjectInfo> {
        self.inner.head(name).await
    }

    async fn delete(&self, name: &str) -> StoreResult<()> {
        let (inner, name) = (self.inner.clone(), name.to_owned());
        self.send(async move { inner.delete(&name).await }).await
    }

    async fn list(&self, prefix: &str) -> StoreResult<Vec<ObjectInfo>> {
        self.inner.list(prefix).await
    }
}
