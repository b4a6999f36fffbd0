//! The suite over both engines, SlateDB over several stores.

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tarn_base::crypto::Key;
use tarn_meta::mem::{MemDisk, MemOpener};
use tarn_meta::slate::{SlateOpener, SlateOptions};
use tarn_meta::suite;
use tarn_store::Store;
use tarn_store::local::LocalStore;
use tarn_store::memory::MemoryStore;
use tarn_store::sealed::SealedStore;

/// An opener with chance of its own: two that draw the same numbers in the same millisecond would name their objects
/// alike, which nobody's do who has the system's randomness.
fn slate(store: Arc<dyn Store>) -> SlateOpener {
    static SEED: AtomicU64 = AtomicU64::new(7);
    let seed = SEED.fetch_add(1 << 32, Ordering::Relaxed);
    SlateOpener::new(store, "meta", support::world(seed), SlateOptions::default())
}

async fn check_slate(store: Arc<dyn Store>) {
    suite::check(&slate(store.clone())).await.unwrap();
    suite::check_fencing(&slate(store.clone()), &slate(store)).await.unwrap();
}

#[tokio::test]
async fn mem_keeps_the_contract() {
    let disk = MemDisk::new();
    suite::check(&MemOpener::new(disk.clone())).await.unwrap();
    suite::check_fencing(&MemOpener::new(disk.clone()), &MemOpener::new(disk)).await.unwrap();
}

#[tokio::test]
async fn slate_over_memory_keeps_the_contract() {
    check_slate(Arc::new(MemoryStore::new(support::world(1).clock))).await;
}

#[tokio::test]
async fn slate_over_a_directory_keeps_the_contract() {
    let directory = tempfile::tempdir().unwrap();
    check_slate(Arc::new(LocalStore::open(directory.path(), true).unwrap())).await;
}

#[tokio::test]
async fn slate_over_a_sealed_directory_keeps_the_contract_and_the_secret() {
    let directory = tempfile::tempdir().unwrap();
    let local = Arc::new(LocalStore::open(directory.path(), true).unwrap());
    check_slate(Arc::new(SealedStore::new(local.clone(), Key::new([5; 32]), support::world(3).random))).await;
    let objects = local.list("").await.unwrap();
    assert!(!objects.is_empty());
    for info in objects {
        let bytes = local.get(&info.name).await.unwrap().0;
        let planted = bytes.windows(8).any(|part| part == b"value of" || part == b"second l");
        assert!(!planted, "{} shows what is in it", info.name);
    }
}

#[tokio::test]
async fn slate_on_a_multi_threaded_runtime_keeps_the_contract() {
    let runtime = std::thread::spawn(|| {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        runtime.block_on(check_slate(Arc::new(MemoryStore::new(support::world(1).clock))));
    });
    tokio::task::spawn_blocking(|| runtime.join().unwrap()).await.unwrap();
}
