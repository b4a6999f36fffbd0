//! The probe of conditions: honest stores pass, stores that ignore a condition do not.

use std::ops::Range;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use tarn_store::local::LocalStore;
use tarn_store::memory::MemoryStore;
use tarn_store::probe::{ProbeError, conditions};
use tarn_store::{ObjectInfo, PutMode, Store, StoreResult, Version};

mod support;

/// What a [`Careless`] store does not look at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ignored {
    Create,
    Replace,
    Both,
    Nothing,
}

/// A store that takes some conditions for none.
#[derive(Debug)]
struct Careless(Arc<dyn Store>, Ignored);

#[async_trait]
impl Store for Careless {
    async fn put(&self, name: &str, bytes: Bytes, mode: PutMode) -> StoreResult<Version> {
        let ignored = match (&mode, self.1) {
            (_, Ignored::Both) => true,
            (PutMode::Create, ignored) => ignored == Ignored::Create,
            (PutMode::Replace(_), ignored) => ignored == Ignored::Replace,
            (PutMode::Overwrite, _) => false,
        };
        self.0.put(name, bytes, if ignored { PutMode::Overwrite } else { mode }).await
    }

    async fn get(&self, name: &str) -> StoreResult<(Bytes, Version)> {
        self.0.get(name).await
    }

    async fn get_range(&self, name: &str, range: Range<u64>) -> StoreResult<Bytes> {
        self.0.get_range(name, range).await
    }

    async fn head(&self, name: &str) -> StoreResult<ObjectInfo> {
        self.0.head(name).await
    }

    async fn delete(&self, name: &str) -> StoreResult<()> {
        self.0.delete(name).await
    }

    async fn list(&self, prefix: &str) -> StoreResult<Vec<ObjectInfo>> {
        self.0.list(prefix).await
    }
}

#[tokio::test]
async fn honest_stores_pass_and_keep_nothing() {
    let world = support::world(1);
    let directory = tempfile::tempdir().unwrap();
    let memory = Arc::new(MemoryStore::new(world.clock.clone()));
    let local = Arc::new(LocalStore::open(directory.path(), true).unwrap());
    for store in [memory as Arc<dyn Store>, local] {
        conditions(&*store, &world).await.unwrap();
        assert!(store.list("").await.unwrap().is_empty(), "{store:?}");
    }
}

#[tokio::test]
async fn a_store_that_ignores_a_condition_is_found_out() {
    let world = support::world(1);
    for (ignored, told) in
        [(Ignored::Create, "If-None-Match"), (Ignored::Replace, "If-Match"), (Ignored::Both, "If-None-Match")]
    {
        let memory = Arc::new(MemoryStore::new(world.clock.clone()));
        let found = conditions(&Careless(memory.clone(), ignored), &world).await;
        assert!(matches!(&found, Err(ProbeError::Ignores(what)) if what.contains(told)), "{ignored:?}: {found:?}");
        assert!(memory.contents().is_empty());
    }
    let memory = Arc::new(MemoryStore::new(world.clock.clone()));
    conditions(&Careless(memory, Ignored::Nothing), &world).await.unwrap();
}
