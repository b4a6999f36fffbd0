//! SlateDB under the conditions a checkpoint meets: large batches, lost replies, a store that is away, a clock set back.

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use bytes::Bytes;
use tarn_base::time::Time;
use tarn_base::world::{BoxFuture, Clock, Spawn, World};
use tarn_meta::slate::{SlateOpener, SlateOptions};
use tarn_meta::{Batch, MetaError, MetaOpener, MetaStore};
use tarn_store::fault::{Effect, Fault, FaultStore};
use tarn_store::memory::MemoryStore;
use tarn_store::operation::{Kind, Operation};
use tarn_store::{PutMode, Store, StoreError};

fn memory(world: &World) -> Arc<MemoryStore> {
    Arc::new(MemoryStore::new(world.clock.clone()))
}

fn opener(store: Arc<dyn Store>, world: &World) -> SlateOpener {
    SlateOpener::new(store, "shard/meta", world.clone(), SlateOptions::default())
}

fn key(number: u32) -> Bytes {
    Bytes::from(format!("key-{number:013}"))
}

/// Sets `count` keys to `value`.
fn batch(count: u32, value: &[u8]) -> Batch {
    let value = Bytes::copy_from_slice(value);
    Batch { changes: (0..count).map(|number| (key(number), Some(value.clone()))).collect() }
}

async fn count_of(store: &dyn MetaStore, value: &[u8]) -> usize {
    let page = store.view().scan(b"key-", b"key.", usize::MAX).await.unwrap();
    page.entries.iter().filter(|(_, found)| found == value).count()
}

/// A life of the store with one commit.
async fn commit_once(opener: &SlateOpener, batch: Batch) {
    let meta = opener.open().await.unwrap();
    meta.commit(batch).await.unwrap();
    meta.close().await.unwrap();
}

async fn names(store: &dyn Store, part: &str) -> Vec<String> {
    let listed = store.list("shard/meta/").await.unwrap();
    listed.into_iter().map(|info| info.name).filter(|name| name.contains(part)).collect()
}

/// Bulk work on a runtime of its own.
struct Apart(tokio::runtime::Handle);

impl Spawn for Apart {
    fn spawn(&self, _: &'static str, task: BoxFuture<()>) {
        tokio::spawn(task);
    }
    fn spawn_bulk(&self, _: &'static str, task: BoxFuture<()>) {
        self.0.spawn(task);
    }
}

#[test]
fn whatever_slatedb_does_by_itself_is_bulk_work() {
    let runtime = || tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let (ordinary, bulk) = (runtime(), runtime());
    let world = World { spawn: Arc::new(Apart(bulk.handle().clone())), ..support::world(21) };
    ordinary.block_on(async {
        let meta = opener(memory(&world), &world).open().await.unwrap();
        meta.commit(batch(3, b"value")).await.unwrap();
        assert!(bulk.metrics().num_alive_tasks() > 0, "what fills and flushes tables lives there");
        assert_eq!(ordinary.metrics().num_alive_tasks(), 0, "nothing of it lives where it was opened");
        meta.close().await.unwrap();
    });
}

#[tokio::test]
async fn a_batch_of_200_k_keys_is_one_object_and_one_manifest() {
    let world = support::world(1);
    let store = memory(&world);
    let meta = opener(store.clone(), &world).open().await.unwrap();
    meta.commit(batch(1, b"first")).await.unwrap();
    let manifests = names(&*store, "manifest/").await;
    let tables = names(&*store, ".sst").await;
    let begun = world.clock.steady();
    meta.commit(batch(200_000, &[7; 150])).await.unwrap();
    println!("committed 200 k keys of 17 + 150 bytes in {:?}", world.clock.steady() - begun);
    assert_eq!(names(&*store, ".sst").await.len(), tables.len() + 1);
    assert_eq!(names(&*store, "manifest/").await.len(), manifests.len() + 1);
    assert_eq!(count_of(&*meta, &[7; 150]).await, 200_000);
    let begun = world.clock.steady();
    let keys: Vec<Bytes> = (0..20_000).map(|number| key(number * 10)).collect();
    let found = meta.view().get_sorted(&keys).await.unwrap();
    assert!(found.iter().all(|value| value.as_deref() == Some(&[7; 150][..])));
    println!("read 20 k of them in order in {:?}", world.clock.steady() - begun);
    meta.close().await.unwrap();
}

/// A store that can be made to fail: each change from the `at`th on, or that one alone.
struct Failing {
    changes: AtomicU32,
    at: AtomicU32,
    alone: bool,
    effect: Effect,
}

impl Failing {
    fn over(store: Arc<MemoryStore>, world: &World, alone: bool, effect: Effect) -> (Arc<Failing>, Arc<FaultStore>) {
        let changes = AtomicU32::new(0);
        let failing = Arc::new(Failing { changes, at: AtomicU32::new(u32::MAX), alone, effect });
        let decide = failing.clone();
        let faults = move |call: Operation<'_>| Fault { delay: Duration::ZERO, effect: decide.decide(call) };
        (failing, Arc::new(FaultStore::new(store, world.clock.clone(), Arc::new(faults))))
    }

    fn decide(&self, call: Operation<'_>) -> Effect {
        if call.kind != Kind::Put {
            return Effect::None;
        }
        let number = self.changes.fetch_add(1, Ordering::SeqCst);
        let at = self.at.load(Ordering::SeqCst);
        let fails = if self.alone { number == at } else { number >= at };
        if fails { self.effect.clone() } else { Effect::None }
    }

    fn fail_after(&self, puts: u32) {
        self.changes.store(0, Ordering::SeqCst);
        self.at.store(puts, Ordering::SeqCst);
    }

    fn reached(&self) -> bool {
        self.changes.load(Ordering::SeqCst) > self.at.load(Ordering::SeqCst)
    }
}

/// More changes than go into a memtable at a time.
const MANY: u32 = 1400;

/// Fails every single `put` of a commit in turn and for good; afterwards the batch is there whole or not at all.
#[tokio::test]
async fn a_commit_that_fails_at_any_request_is_whole_or_nothing() {
    for put in 0.. {
        let world = support::world(u64::from(put));
        let memory = memory(&world);
        let effect = Effect::Before(StoreError::Denied("injected".to_owned()));
        let (failing, store) = Failing::over(memory.clone(), &world, false, effect);
        let meta = opener(store, &world).open().await.unwrap();
        meta.commit(batch(MANY, b"old")).await.unwrap();
        failing.fail_after(put);
        let committed = meta.commit(batch(MANY, b"new")).await;
        let reached = failing.reached();
        if committed.is_err() {
            assert!(matches!(committed, Err(MetaError::Unknown(_))), "{committed:?}");
            assert!(meta.commit(batch(1, b"more")).await.is_err(), "a store commits after an error");
        }
        drop(meta);
        let again = opener(memory, &world).open().await.unwrap();
        let new = count_of(&*again, b"new").await;
        assert_eq!(new + count_of(&*again, b"old").await, MANY as usize);
        assert_eq!(new, if committed.is_ok() { MANY as usize } else { 0 });
        again.close().await.unwrap();
        if !reached {
            assert!(put >= 2, "a commit of {put} requests");
            break;
        }
    }
}

/// Loses the reply to every single `put` of a commit in turn; the commit recognises what it wrote.
#[tokio::test]
async fn a_commit_survives_the_loss_of_any_reply() {
    for put in 0.. {
        let world = support::world(u64::from(put));
        let memory = memory(&world);
        let (failing, store) = Failing::over(memory.clone(), &world, true, Effect::After);
        let meta = opener(store, &world).open().await.unwrap();
        meta.commit(batch(MANY, b"old")).await.unwrap();
        failing.fail_after(put);
        meta.commit(batch(MANY, b"new")).await.unwrap();
        let reached = failing.reached();
        assert_eq!(count_of(&*meta, b"new").await, MANY as usize);
        meta.commit(batch(MANY / 2, b"newer")).await.unwrap();
        drop(meta);
        let again = opener(memory, &world).open().await.unwrap();
        assert_eq!(
            (count_of(&*again, b"newer").await, count_of(&*again, b"new").await),
            (MANY as usize / 2, MANY as usize / 2)
        );
        again.close().await.unwrap();
        if !reached {
            break;
        }
    }
}

#[tokio::test]
async fn a_store_that_is_away_fails_the_commit_and_keeps_nothing_of_it() {
    let world = support::world(1);
    let memory = memory(&world);
    let away = Arc::new(AtomicBool::new(false));
    let decide = away.clone();
    let faults = move |_: Operation<'_>| {
        let away = decide.load(Ordering::SeqCst);
        let error = StoreError::Unavailable("away".to_owned());
        Fault { delay: Duration::ZERO, effect: if away { Effect::Before(error) } else { Effect::None } }
    };
    let store = Arc::new(FaultStore::new(memory.clone(), world.clock.clone(), Arc::new(faults)));
    let options = SlateOptions { patience: Duration::from_millis(300), ..SlateOptions::default() };
    let opener = SlateOpener::new(store, "shard/meta", world.clone(), options);
    let meta = opener.open().await.unwrap();
    meta.commit(batch(10, b"old")).await.unwrap();
    away.store(true, Ordering::SeqCst);
    let committed = meta.commit(batch(10, b"new")).await;
    assert!(matches!(committed, Err(MetaError::Unknown(_))), "{committed:?}");
    assert!(matches!(opener.open().await, Err(MetaError::Unavailable(_))));
    away.store(false, Ordering::SeqCst);
    let before = memory.contents();
    world.clock.sleep(Duration::from_millis(1500)).await;
    assert!(memory.contents() == before, "a failed commit goes on in the background");
    let again = opener.open().await.unwrap();
    assert_eq!(count_of(&*again, b"old").await, 10);
    again.commit(batch(10, b"new")).await.unwrap();
    drop(meta);
    again.commit(batch(10, b"newest")).await.unwrap();
    again.close().await.unwrap();
}

#[tokio::test]
async fn damage_is_told_and_names_the_object() {
    let world = support::world(1);
    let memory = memory(&world);
    let sealed = || {
        let key = tarn_base::crypto::Key::new([1; 32]);
        Arc::new(tarn_store::sealed::SealedStore::new(memory.clone(), key, world.random.clone()))
    };
    commit_once(&opener(sealed(), &world), batch(1000, &[3; 500])).await;
    for name in names(&*memory, "compacted/").await {
        memory.tamper(&name, |bytes| bytes[100] ^= 1);
    }
    let meta = opener(sealed(), &world).open().await.unwrap();
    let read = meta.view().get(&key(1)).await;
    assert!(matches!(&read, Err(MetaError::Damaged(why)) if why.contains(".sst")), "{read:?}");
}

/// The real clock, but days off.
struct Shifted(Arc<dyn Clock>, i64);

impl Clock for Shifted {
    fn now(&self) -> Time {
        let now = self.0.now();
        Time { seconds: now.seconds + self.1 * 86_400, ..now }
    }
    fn steady(&self) -> Duration {
        self.0.steady()
    }
    fn sleep(&self, span: Duration) -> BoxFuture<()> {
        self.0.sleep(span)
    }
}

#[tokio::test]
async fn a_clock_set_back_stops_nothing() {
    let world = support::world(1);
    let memory = memory(&world);
    for (days, value) in [(0, b"one"), (-300, b"two"), (5, b"six"), (-5, b"ten")] {
        let shifted = World { clock: Arc::new(Shifted(world.clock.clone(), days)), ..world.clone() };
        let meta = opener(memory.clone(), &shifted).open().await.unwrap();
        meta.commit(batch(10, value)).await.unwrap();
        assert_eq!(count_of(&*meta, value).await, 10);
        meta.close().await.unwrap();
    }
}

#[tokio::test]
async fn the_oldest_checkpoint_that_lives_is_told() {
    use slatedb::admin::Admin;
    use slatedb::config::CheckpointOptions;
    let world = support::world(1);
    let store = memory(&world);
    let meta = opener(store.clone(), &world).open().await.unwrap();
    meta.commit(batch(3, b"first")).await.unwrap();
    assert_eq!(meta.oldest_checkpoint().await.unwrap(), None);
    let bridge = Arc::new(tarn_store::bridge::Bridge::new(store.clone()));
    let admin = Admin::builder("shard/meta", bridge).build();
    let make = |lifetime| CheckpointOptions { lifetime, ..CheckpointOptions::default() };
    admin.create_detached_checkpoint(&make(None)).await.unwrap();
    let made = meta.oldest_checkpoint().await.unwrap().expect("a checkpoint");
    // SlateDB stamps it with the machine's clock, in whole seconds.
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_millis() as i64;
    assert!((now - 60_000..=now).contains(&made), "{made} at {now}");
}

/// SlateDB's own compactor and collector may have replaced the manifest that the database knows, and taken it away as garbage.
#[tokio::test]
async fn a_manifest_that_was_outrun_is_not_missed_and_one_that_is_gone_is() {
    let world = support::world(9);
    let store = memory(&world);
    let meta = opener(store.clone(), &world).open().await.unwrap();
    meta.commit(batch(10, b"first")).await.unwrap();
    let known = names(&*store, "manifest/").await.pop().unwrap();
    let (bytes, _) = store.get(&known).await.unwrap();
    let number: u64 = known.rsplit('/').next().unwrap().trim_end_matches(".manifest").parse().unwrap();
    let newer = format!("shard/meta/manifest/{:020}.manifest", number + 1);
    store.put(&newer, bytes, PutMode::Create).await.unwrap();
    store.delete(&known).await.unwrap();
    meta.glance().await.unwrap();
    meta.verify().await.unwrap();
    meta.commit(batch(10, b"second")).await.unwrap();
    assert_eq!(count_of(&*meta, b"second").await, 10);
    for name in names(&*store, "manifest/").await {
        store.delete(&name).await.unwrap();
    }
    assert!(matches!(meta.glance().await, Err(MetaError::Gone(_))));
    assert!(matches!(meta.verify().await, Err(MetaError::Gone(_))));
}

#[tokio::test]
async fn objects_named_like_the_stores_own_are_not_taken_for_them() {
    let world = support::world(1);
    let store = memory(&world);
    commit_once(&opener(store.clone(), &world), batch(10, b"first")).await;
    let newest = names(&*store, "manifest/").await.pop().unwrap();
    let (bytes, _) = store.get(&newest).await.unwrap();
    for name in ["manifest/99.manifest", "manifest/notes.manifest", "compactions/99.compactions"] {
        store.put(&format!("shard/meta/{name}"), bytes.clone(), PutMode::Create).await.unwrap();
    }
    for value in [b"second", b"third!"] {
        let opener = opener(store.clone(), &world);
        assert!(opener.inspect().await.unwrap());
        let meta = opener.open().await.unwrap();
        meta.commit(batch(10, value)).await.unwrap();
        assert_eq!(count_of(&*meta, value).await, 10);
        meta.close().await.unwrap();
    }
}

#[tokio::test]
async fn lists_of_compactions_that_were_all_taken_away_are_missed_before_anything_is_written() {
    let world = support::world(1);
    let store = memory(&world);
    commit_once(&opener(store.clone(), &world), batch(10, b"first")).await;
    let boundary = Bytes::from_static(b"up to here they were garbage");
    store.put("shard/meta/gc/compactions.boundary", boundary, PutMode::Create).await.unwrap();
    let mut taken = Vec::new();
    for name in names(&*store, "compactions/").await {
        taken.push((name.clone(), store.get(&name).await.unwrap().0));
        store.delete(&name).await.unwrap();
    }
    assert!(!taken.is_empty());
    let before = names(&*store, "").await;
    let looked = opener(store.clone(), &world).look().await;
    assert!(matches!(&looked, Err(MetaError::Gone(what)) if what.contains("meta/compactions/")), "{looked:?}");
    assert_eq!(names(&*store, "").await, before);
    for (name, bytes) in taken {
        store.put(&name, bytes, PutMode::Create).await.unwrap();
    }
    assert!(opener(store.clone(), &world).look().await.unwrap().is_some());
}
