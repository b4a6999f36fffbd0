//! What a bridge shows and writes once the newest object of the sequence that it follows was taken away.

mod support;

use std::error::Error;
use std::sync::Arc;

use futures::TryStreamExt;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt, PutMode, PutOptions, PutPayload};
use tarn_store::Store;
use tarn_store::bridge::Bridge;
use tarn_store::memory::MemoryStore;
use tarn_store::sequence::{Missed, Sequence};

struct Rig {
    store: Arc<MemoryStore>,
    sequence: Arc<Sequence>,
    bridge: Bridge,
}

impl Rig {
    /// Three objects of a sequence, written through the bridge.
    async fn new() -> Rig {
        let store = Arc::new(MemoryStore::new(support::world(1).clock));
        let sequence = Arc::new(Sequence::new("m/manifest/".to_owned(), ".manifest"));
        let bridge = Bridge::following(store.clone(), sequence.clone());
        let rig = Rig { store, sequence, bridge };
        for number in 1..=3 {
            rig.create(number).await.unwrap();
        }
        rig
    }

    async fn create(&self, number: u64) -> object_store::Result<()> {
        let mode = PutOptions::from(PutMode::Create);
        self.bridge.put_opts(&self.path(number), PutPayload::from_static(b"m"), mode).await.map(drop)
    }

    async fn list(&self) -> object_store::Result<usize> {
        let listed = self.bridge.list(Some(&Path::from("m/manifest"))).try_collect::<Vec<_>>().await;
        listed.map(|listed| listed.len())
    }

    fn path(&self, number: u64) -> Path {
        Path::from(self.sequence.name(number))
    }

    async fn take(&self, number: u64) {
        self.store.delete(&self.sequence.name(number)).await.unwrap();
    }
}

/// The object that is missed.
fn missed<T: std::fmt::Debug>(result: object_store::Result<T>) -> Missed {
    let error = result.expect_err("it was taken away");
    assert!(matches!(error, object_store::Error::NotSupported { .. }), "{error:?} would be tried again");
    error.source().and_then(|source| source.downcast_ref()).cloned().expect("what is missed")
}

#[tokio::test]
async fn the_newest_object_is_missed_wherever_it_is_looked_for() {
    let rig = Rig::new().await;
    rig.take(3).await;
    let newest = Missed(rig.sequence.name(3));
    assert_eq!(missed(rig.list().await), newest);
    assert_eq!(missed(rig.bridge.get(&rig.path(3)).await), newest);
    assert_eq!(missed(rig.bridge.head(&rig.path(3)).await), newest);
    assert_eq!(missed(rig.create(3).await), newest);
}

#[tokio::test]
async fn nothing_is_written_into_a_place_that_was_taken_before() {
    let rig = Rig::new().await;
    rig.take(2).await;
    for number in [2, 3] {
        assert!(matches!(rig.create(number).await, Err(object_store::Error::AlreadyExists { .. })), "{number}");
    }
    rig.take(3).await;
    for number in [2, 3] {
        assert_eq!(missed(rig.create(number).await), Missed(rig.sequence.name(3)), "{number}");
    }
}

#[tokio::test]
async fn older_objects_are_garbage_and_newer_ones_are_learnt_of() {
    let rig = Rig::new().await;
    for number in [1, 2] {
        rig.take(number).await;
    }
    assert_eq!(rig.list().await.unwrap(), 1);
    assert!(matches!(rig.bridge.get(&rig.path(1)).await, Err(object_store::Error::NotFound { .. })));
    assert!(matches!(rig.bridge.get(&rig.path(4)).await, Err(object_store::Error::NotFound { .. })));
    let another = Bridge::new(rig.store.clone());
    let mode = PutOptions::from(PutMode::Create);
    another.put_opts(&rig.path(4), PutPayload::from_static(b"m"), mode).await.unwrap();
    assert_eq!(rig.list().await.unwrap(), 2);
    rig.take(4).await;
    assert_eq!(missed(rig.list().await), Missed(rig.sequence.name(4)));
    // A newer one has come while the newest that was known was asked for, and made it garbage.
    another.put_opts(&rig.path(5), PutPayload::from_static(b"m"), PutOptions::default()).await.unwrap();
    assert!(matches!(rig.bridge.get(&rig.path(4)).await, Err(object_store::Error::NotFound { .. })));
}
