//! The suite over both engines, SlateDB over several stores.

mod support;

use std::sync::Arc;

use tarn_meta::mem::{MemDisk, MemOpener};
use tarn_meta::slate::{SlateOpener, SlateOptions};
use tarn_meta::suite;
use tarn_store::Store;
use tarn_store::local::LocalStore;
use tarn_store::memory::MemoryStore;

fn slate(store: Arc<dyn Store>) -> SlateOpener {
    SlateOpener::new(store, "meta", support::world(7), SlateOptions::default())
}

fn memory() -> Arc<MemoryStore> {
    Arc::new(MemoryStore::new(support::world(1).clock))
}

#[tokio::test]
async fn mem_keeps_the_contract() {
    let disk = MemDisk::new();
    suite::check(&MemOpener::new(disk.clone())).await.unwrap();
    suite::check_fencing(&MemOpener::new(disk.clone()), &MemOpener::new(disk)).await.unwrap();
}

#[tokio::test]
async fn slate_over_memory_keeps_the_contract() {
    let store = memory();
    suite::check(&slate(store.clone())).await.unwrap();
    suite::check_fencing(&slate(store.clone()), &slate(store)).await.unwrap();
}

#[tokio::test]
async fn slate_over_a_directory_keeps_the_contract() {
    let directory = tempfile::tempdir().unwrap();
    let store = Arc::new(LocalStore::open(directory.path(), true).unwrap());
    suite::check(&slate(store.clone())).await.unwrap();
    suite::check_fencing(&slate(store.clone()), &slate(store)).await.unwrap();
}
