//! The suite over every store and decorator that needs no server.

mod support;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tarn_base::crypto::Key;
use tarn_store::fault::{Fault, FaultStore};
use tarn_store::local::LocalStore;
use tarn_store::memory::MemoryStore;
use tarn_store::meter::MeterStore;
use tarn_store::operation::{Kind, Operation};
use tarn_store::prefix::PrefixStore;
use tarn_store::retry::{RetryPolicy, RetryStore};
use tarn_store::sealed::SealedStore;
use tarn_store::shape::{Shape, ShapeStore};
use tarn_store::{PutMode, Store, StoreError, suite};

fn memory() -> Arc<MemoryStore> {
    Arc::new(MemoryStore::new(support::world(1).clock))
}

fn sealed(inner: Arc<dyn Store>) -> SealedStore {
    SealedStore::new(inner, Key::new([3; 32]), support::world(2).random)
}

#[tokio::test]
async fn memory_keeps_the_contract() {
    suite::check(&*memory()).await.unwrap();
}

#[tokio::test]
async fn prefix_keeps_the_contract_and_to_itself() {
    let memory = memory();
    memory.put("other", Bytes::from("x"), PutMode::Create).await.unwrap();
    memory.put("below", Bytes::from("x"), PutMode::Create).await.unwrap();
    let prefix = PrefixStore::new(memory.clone(), "below/here").unwrap();
    suite::check(&prefix).await.unwrap();
    prefix.put("mine", Bytes::from("y"), PutMode::Create).await.unwrap();
    let names: Vec<String> = memory.contents().into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["below", "below/here/mine", "other"]);
    assert_eq!(prefix.list("").await.unwrap()[0].name, "mine");
}

#[tokio::test]
async fn sealed_keeps_the_contract() {
    suite::check(&sealed(memory())).await.unwrap();
    let directory = tempfile::tempdir().unwrap();
    let local = LocalStore::open(directory.path(), true).unwrap();
    suite::check(&sealed(Arc::new(local))).await.unwrap();
}

#[tokio::test]
async fn every_decorator_at_once_keeps_the_contract() {
    let world = support::world(4);
    let meter = MeterStore::new(memory());
    let counts = meter.meter();
    let calm = FaultStore::new(Arc::new(meter), world.clock.clone(), Arc::new(|_: Operation<'_>| Fault::default()));
    let shape = ShapeStore::new(Arc::new(calm), world.clock.clone(), Shape::default());
    let retry = RetryStore::new(Arc::new(shape), world, RetryPolicy::default());
    suite::check(&sealed(Arc::new(retry))).await.unwrap();
    assert!(counts.counts(Kind::Put).bytes > 1_000_000);
}

/// A suite that everything passes proves nothing.
#[tokio::test]
async fn the_suite_notices_a_store_that_lies() {
    use tarn_store::fault::Effect;
    let world = support::world(5);
    type Lie = fn(Operation<'_>) -> Effect;
    let lies: [(&str, Lie); 4] = [
        ("a flipped bit", |call| if call.kind == Kind::Get { Effect::Flip(3) } else { Effect::None }),
        ("a cut read", |call| if call.kind == Kind::GetRange { Effect::Truncate(10) } else { Effect::None }),
        ("a put that is not done", |call| match call.kind {
            Kind::Put if call.name.ends_with("create") => Effect::Before(StoreError::Exists(call.name.to_owned())),
            _ => Effect::None,
        }),
        ("a lost reply", |call| if call.kind == Kind::Delete { Effect::After } else { Effect::None }),
    ];
    for (lie, effect) in lies {
        let faults = move |call: Operation<'_>| Fault { delay: Duration::ZERO, effect: effect(call) };
        let store = FaultStore::new(memory(), world.clock.clone(), Arc::new(faults));
        assert!(suite::check(&store).await.is_err(), "{lie} passes");
    }
}
