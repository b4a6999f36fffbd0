//! What each decorator adds to the store below it.

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tarn_base::time::Time;
use tarn_base::world::{BoxFuture, Clock, World};
use tarn_store::fault::{Effect, Fault, FaultStore};
use tarn_store::memory::MemoryStore;
use tarn_store::meter::{MeterStore, Trouble};
use tarn_store::operation::{Kind, Operation};
use tarn_store::retry::{RetryPolicy, RetryStore};
use tarn_store::shape::{Shape, ShapeStore};
use tarn_store::{PutMode, Store, StoreError};

/// A clock whose sleepers wake at once and move it.
#[derive(Default)]
struct Leaping(Mutex<Duration>);

impl Clock for Leaping {
    fn now(&self) -> Time {
        Time::from_nanos(self.0.lock().as_nanos() as i64)
    }
    fn steady(&self) -> Duration {
        *self.0.lock()
    }
    fn sleep(&self, span: Duration) -> BoxFuture<()> {
        *self.0.lock() += span;
        Box::pin(std::future::ready(()))
    }
}

fn world() -> (Arc<Leaping>, World) {
    let clock = Arc::new(Leaping::default());
    (clock.clone(), World { clock, ..support::world(1) })
}

fn memory(world: &World) -> Arc<MemoryStore> {
    Arc::new(MemoryStore::new(world.clock.clone()))
}

/// A store that spoils its first `count` calls, and a counter of all calls.
fn failing(world: &World, count: u32, effect: Effect) -> (Arc<FaultStore>, Arc<AtomicU32>) {
    let calls = Arc::new(AtomicU32::new(0));
    let counter = calls.clone();
    let faults = move |_: Operation<'_>| {
        let first = counter.fetch_add(1, Ordering::Relaxed) < count;
        Fault { delay: Duration::ZERO, effect: if first { effect.clone() } else { Effect::None } }
    };
    (Arc::new(FaultStore::new(memory(world), world.clock.clone(), Arc::new(faults))), calls)
}

fn unavailable() -> Effect {
    Effect::Before(StoreError::Unavailable("slow down".to_owned()))
}

#[tokio::test]
async fn retry_outlasts_a_store_that_is_away() {
    let (clock, world) = world();
    let (store, calls) = failing(&world, 5, unavailable());
    let retry = RetryStore::new(store, world, RetryPolicy::default());
    retry.put("x", Bytes::from("1"), PutMode::Create).await.unwrap();
    assert_eq!(calls.load(Ordering::Relaxed), 6);
    let waited = clock.steady();
    assert!(waited >= Duration::from_millis(775) && waited <= Duration::from_millis(1550), "{waited:?}");
}

#[tokio::test]
async fn retry_gives_up_in_the_end() {
    let (_, world) = world();
    let (store, calls) = failing(&world, 100, unavailable());
    let retry = RetryStore::new(store, world, RetryPolicy { tries: 3, ..RetryPolicy::default() });
    assert!(matches!(retry.get("x").await, Err(StoreError::Unavailable(_))));
    assert_eq!(calls.load(Ordering::Relaxed), 3);
}

#[tokio::test]
async fn retry_repeats_only_what_may_be_done_twice() {
    let (_, world) = world();
    let (store, calls) = failing(&world, 1, Effect::After);
    let retry = RetryStore::new(store, world.clone(), RetryPolicy::default());
    let created = retry.put("x", Bytes::from("1"), PutMode::Create).await;
    assert!(matches!(created, Err(StoreError::Unknown(_))), "{created:?}");
    assert_eq!(calls.load(Ordering::Relaxed), 1);
    assert_eq!(retry.get("x").await.unwrap().0, "1");
    let (store, calls) = failing(&world, 1, Effect::After);
    let retry = RetryStore::new(store, world, RetryPolicy::default());
    retry.put("x", Bytes::from("1"), PutMode::Overwrite).await.unwrap();
    assert_eq!(calls.load(Ordering::Relaxed), 2);
    assert!(matches!(retry.get("absent").await, Err(StoreError::NotFound(_))));
    assert_eq!(calls.load(Ordering::Relaxed), 3);
}

#[tokio::test]
async fn shape_keeps_its_rates() {
    let (clock, world) = world();
    let shape = Shape {
        latency: Duration::from_millis(10),
        operations_per_second: Some(100),
        bytes_per_second: Some(1_000_000),
    };
    let store = ShapeStore::new(memory(&world), world.clock.clone(), shape);
    for _ in 0..10 {
        store.put("x", Bytes::from(vec![0; 100_000]), PutMode::Overwrite).await.unwrap();
    }
    let waited = clock.steady();
    assert!(waited >= Duration::from_millis(1000) && waited <= Duration::from_millis(1110), "{waited:?}");
    store.set(Shape::default());
    store.get("x").await.unwrap();
    assert!(clock.steady() - waited < Duration::from_millis(1));
}

#[tokio::test]
async fn meter_counts_calls_bytes_and_troubles() {
    let (_, world) = world();
    let store = MeterStore::new(memory(&world));
    store.put("x", Bytes::from("12345"), PutMode::Create).await.unwrap();
    store.put("x", Bytes::from("12345"), PutMode::Create).await.unwrap_err();
    store.get_range("x", 1..3).await.unwrap();
    store.get("y").await.unwrap_err();
    let meter = store.meter();
    let puts = meter.counts(Kind::Put);
    assert_eq!((puts.calls, puts.bytes, puts.of(Trouble::Conflict), puts.errors()), (2, 5, 1, 1));
    assert_eq!(meter.counts(Kind::GetRange).bytes, 2);
    assert_eq!(meter.counts(Kind::Get).of(Trouble::NotFound), 1);
    assert_eq!(meter.counts(Kind::List).calls, 0);
}

#[tokio::test]
async fn a_meter_with_a_clock_counts_time() {
    let (_, world) = world();
    let slow = |_: Operation<'_>| Fault { delay: Duration::from_secs(2), effect: Effect::None };
    let slow = FaultStore::new(memory(&world), world.clock.clone(), Arc::new(slow));
    let store = MeterStore::timed(Arc::new(slow), world.clock.clone());
    store.get("x").await.unwrap_err();
    store.get("x").await.unwrap_err();
    let meter = store.meter();
    assert_eq!(meter.counts(Kind::Get).microseconds, 4_000_000);
    assert_eq!(meter.counts(Kind::Put).microseconds, 0);
}

#[tokio::test]
async fn a_fault_does_what_it_says() {
    let (clock, world) = world();
    let (store, _) = failing(&world, 1, Effect::After);
    let lost = store.put("x", Bytes::from("12345"), PutMode::Create).await;
    assert!(matches!(lost, Err(StoreError::Unknown(_))));
    assert_eq!(store.get("x").await.unwrap().0, "12345");
    let spoiled = |effect: Effect| {
        let faults = move |_: Operation<'_>| Fault { delay: Duration::from_secs(1), effect: effect.clone() };
        FaultStore::new(store.clone(), world.clock.clone(), Arc::new(faults))
    };
    assert_eq!(spoiled(Effect::Truncate(2)).get("x").await.unwrap().0, "12");
    assert_eq!(spoiled(Effect::Flip(8)).get_range("x", 0..5).await.unwrap(), "13345");
    assert!(matches!(spoiled(unavailable()).delete("x").await, Err(StoreError::Unavailable(_))));
    assert_eq!(store.get("x").await.unwrap().0, "12345");
    assert_eq!(clock.steady(), Duration::from_secs(3));
}
