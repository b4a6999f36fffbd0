//! Parts of the store taken away under a running node, and put back: nothing acknowledged is lost, and it is said clearly
//! what is gone. Over the metadata engine that serves.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::Mutex;
use tarn_meta::slate::SlateOptions;
use tarn_store::memory::MemoryStore;
use tarn_store::{ObjectInfo, PutMode, Store, StoreResult, Version};
use tarn_vfs::{Caller, Errno, FileSystem, Node};
use tokio::sync::Notify;

use super::opening::{look, make, read, root, write};
use super::survival::keep_time;
use crate::checkpoint::CheckpointError;
use crate::engine::Engine;
use crate::error::OpenError;
use crate::open::{OpenOptions, Parts, RecoveryReport, slate};
use crate::testing::Rig;

fn parts(rig: &Rig) -> Parts {
    Parts { meta: slate(rig.world.clone(), SlateOptions::default()), ..rig.parts() }
}

fn hook(wake: &Arc<Notify>) -> tarn_wal::Wake {
    let wake = wake.clone();
    Arc::new(move || wake.notify_one())
}

async fn create(rig: &Rig) -> Arc<Engine> {
    keep_time(rig);
    let wake = Arc::new(Notify::new());
    let (engine, _) = Engine::create(parts(rig), Rig::first_volume(), hook(&wake)).await.unwrap();
    rig.drive(&engine, wake);
    engine
}

pub async fn open(rig: &Rig) -> Result<Arc<Engine>, OpenError> {
    open_with(rig, false).await.map(|(engine, _)| engine)
}

pub async fn open_with(rig: &Rig, accept_loss: bool) -> Result<(Arc<Engine>, RecoveryReport), OpenError> {
    keep_time(rig);
    let wake = Arc::new(Notify::new());
    let options = OpenOptions { accept_loss, ..OpenOptions::new(hook(&wake)) };
    let (engine, report) = Engine::open(parts(rig), options).await?;
    rig.drive(&engine, wake);
    Ok((engine, report))
}

pub type Objects = Vec<(String, Bytes)>;

pub fn below(rig: &Rig, prefix: &str) -> Objects {
    rig.memory.contents().into_iter().filter(|(name, _)| name.starts_with(prefix)).collect()
}

pub async fn take_away(rig: &Rig, prefix: &str) -> Objects {
    let taken = below(rig, prefix);
    for (name, _) in &taken {
        rig.memory.delete(name).await.unwrap();
    }
    taken
}

/// As it was: nothing else is left there.
pub async fn put_back(rig: &Rig, prefix: &str, objects: &Objects) {
    take_away(rig, prefix).await;
    for (name, bytes) in objects {
        rig.memory.put(name, bytes.clone(), PutMode::Overwrite).await.unwrap();
    }
}

/// A file whose first byte is in the store and whose second is only in the log.
pub async fn begun(rig: &Rig) -> (Arc<Engine>, Node) {
    let engine = create(rig).await;
    let node = make(&engine, "file").await;
    write(&engine, node, 0, b"a").await;
    engine.checkpoint().await.unwrap();
    (engine, node)
}

async fn taken_away(prefix: &str, told: &str) {
    for restarted in [false, true] {
        let rig = Rig::new();
        let (engine, node) = begun(&rig).await;
        let objects = take_away(&rig, prefix).await;
        write(&engine, node, 1, b"b").await;
        let used = engine.log().used();
        for _ in 0..3 {
            let failed = engine.checkpoint().await;
            assert!(matches!(&failed, Err(CheckpointError::Gone(what)) if what.contains(told)), "{failed:?}");
        }
        assert!(engine.log().used() >= used, "the log was trimmed");
        assert!(below(&rig, "meta/").is_empty(), "something was made in its place");
        let shown = engine.status().checkpoint_error.expect("an error");
        assert!(shown.contains("gone") && shown.contains(told), "{shown}");
        assert_eq!(read(&engine, node, 1, 1).await, b"b");
        let engine = if restarted {
            rig.crash();
            drop(engine);
            let left = below(&rig, "");
            let refused = open(&rig).await;
            if prefix == "meta/" {
                assert!(matches!(&refused, Err(OpenError::Gone(what)) if what.contains(told)), "{refused:?}");
                assert!(below(&rig, "") == left, "something was made in its place");
            } else {
                assert!(matches!(refused, Err(OpenError::NotCreated)), "{refused:?}");
            }
            put_back(&rig, prefix, &objects).await;
            open(&rig).await.unwrap()
        } else {
            put_back(&rig, prefix, &objects).await;
            engine
        };
        goes_on(&rig, &engine, node).await;
    }
}

#[tokio::test]
async fn nothing_is_given_up_while_part_of_the_metadata_is_gone_too() {
    for metadata_goes_at in [0, 5] {
        let mut rig = Rig::new();
        rig.config.record_cache_bytes = 0;
        rig.config.missing = Duration::from_secs(60);
        let (engine, node) = begun(&rig).await;
        let segments = take_away(&rig, "segments/").await;
        write(&engine, node, 1, b"b").await;
        let mut tables = Vec::new();
        for round in 0..30 {
            if round == metadata_goes_at {
                tables = take_away(&rig, "meta/compacted/").await;
            }
            assert!(engine.checkpoint().await.is_err(), "round {round}");
            rig.pass(Duration::from_secs(1)).await;
        }
        let told = engine.status().checkpoint_error.expect("an error");
        assert!(told.contains(".sst"), "{told}");
        tables.extend(below(&rig, "meta/compacted/"));
        put_back(&rig, "meta/compacted/", &tables).await;
        put_back(&rig, "segments/", &segments).await;
        engine.checkpoint().await.unwrap();
        assert_eq!(read(&engine, node, 0, 10).await, b"ab");
        rig.crash();
    }
}

#[tokio::test]
async fn what_was_missed_before_more_was_gone_is_waited_for_anew() {
    let mut rig = Rig::new();
    rig.config.record_cache_bytes = 0;
    rig.config.missing = Duration::from_secs(60);
    let (engine, node) = begun(&rig).await;
    let segments = take_away(&rig, "segments/").await;
    write(&engine, node, 1, b"b").await;
    let begun = rig.world.clock.steady();
    while rig.world.clock.steady() - begun < Duration::from_secs(50) {
        assert!(matches!(engine.checkpoint().await, Err(CheckpointError::Read(Errno::Io))));
    }
    let metadata = take_away(&rig, "meta/").await;
    rig.pass(Duration::from_secs(15)).await;
    assert!(matches!(engine.checkpoint().await, Err(CheckpointError::Gone(_))));
    put_back(&rig, "meta/", &metadata).await;
    for _ in 0..3 {
        assert!(matches!(engine.checkpoint().await, Err(CheckpointError::Read(Errno::Io))));
    }
    put_back(&rig, "segments/", &segments).await;
    engine.checkpoint().await.unwrap();
    assert_eq!(read(&engine, node, 0, 10).await, b"ab");
    rig.crash();
}

#[tokio::test]
async fn what_is_lost_is_given_up_though_metadata_was_away_for_a_moment() {
    let mut rig = Rig::new();
    rig.config.record_cache_bytes = 0;
    rig.config.missing = Duration::ZERO;
    let (engine, node) = begun(&rig).await;
    take_away(&rig, "segments/").await;
    let metadata = take_away(&rig, "meta/").await;
    write(&engine, node, 1, b"b").await;
    assert!(matches!(engine.checkpoint().await, Err(CheckpointError::Gone(_))));
    assert_eq!(fails(&engine, node).await, Errno::TryLater, "it may have gone with the rest");
    put_back(&rig, "meta/", &metadata).await;
    let mut attempts = 0;
    while engine.checkpoint().await.is_err() {
        attempts += 1;
        assert!(attempts < 20, "{:?}", engine.status().checkpoint_error);
        rig.pass(Duration::from_secs(1)).await;
    }
    assert_eq!(fails(&engine, node).await, Errno::Io);
    assert_eq!(read(&engine, node, 1, 1).await, b"b");
    assert_eq!(engine.status().checkpoint_error, None);
    rig.crash();
}

async fn fails(engine: &Engine, node: Node) -> Errno {
    engine.read(&Caller::root(), node, 0, 1).await.expect_err("its object is not there").value.errno
}

#[tokio::test]
async fn metadata_that_is_taken_away_stops_checkpoints_until_it_is_back() {
    taken_away("meta/", "metadata").await;
}

#[tokio::test]
async fn a_store_that_is_taken_away_whole_stops_checkpoints_until_it_is_back() {
    taken_away("", "owner record").await;
}

#[tokio::test]
async fn who_asks_for_metadata_that_was_taken_away_is_told_to_try_later() {
    let rig = Rig::new();
    let (engine, _) = begun(&rig).await;
    // More than an opening reads.
    for number in 0..500 {
        make(&engine, &format!("file {number}")).await;
    }
    engine.checkpoint().await.unwrap();
    engine.close().await.unwrap();
    rig.crash();
    let engine = open(&rig).await.unwrap();
    let objects = take_away(&rig, "meta/").await;
    let lookup = || engine.lookup(&Caller::root(), root(&engine), b"file 250");
    assert_eq!(lookup().await.unwrap_err().value.errno, Errno::TryLater);
    let shown = engine.status().checkpoint_error.expect("an error");
    assert!(shown.contains("gone") && shown.contains("below meta/"), "{shown}");
    assert!(engine.status().damage.is_empty());
    put_back(&rig, "meta/", &objects).await;
    rig.pass(rig.config.heartbeat * 2).await;
    assert!(lookup().await.is_ok());
    assert_eq!(engine.status().checkpoint_error, None);
    rig.crash();
}

#[tokio::test]
async fn one_missing_object_of_the_metadata_keeps_the_log() {
    let rig = Rig::new();
    let (engine, node) = begun(&rig).await;
    let mut objects = take_away(&rig, "meta/compacted/").await;
    assert!(!objects.is_empty());
    write(&engine, node, 1, b"b").await;
    let failed = engine.checkpoint().await;
    assert!(matches!(&failed, Err(CheckpointError::Gone(what)) if what.contains(".sst")), "{failed:?}");
    // What the failed attempt wrote stays: only what was taken away comes back.
    objects.extend(below(&rig, "meta/compacted/"));
    put_back(&rig, "meta/compacted/", &objects).await;
    engine.checkpoint().await.unwrap();
    assert_eq!(read(&engine, node, 0, 10).await, b"ab");
    rig.crash();
    let engine = open(&rig).await.unwrap();
    assert_eq!(read(&engine, node, 0, 10).await, b"ab");
    rig.crash();
}

#[tokio::test]
async fn an_earlier_state_put_in_place_is_not_gone_on_from() {
    let rig = Rig::new();
    let (engine, node) = begun(&rig).await;
    let earlier = below(&rig, "meta/");
    write(&engine, node, 1, b"b").await;
    engine.checkpoint().await.unwrap();
    let present = below(&rig, "meta/");
    put_back(&rig, "meta/", &earlier).await;
    write(&engine, node, 2, b"c").await;
    for _ in 0..3 {
        let failed = engine.checkpoint().await;
        assert!(matches!(failed, Err(CheckpointError::Gone(_))), "{failed:?}");
    }
    // Either the state as such is earlier, or what was still running has written what leads beyond it.
    let shown = engine.status().checkpoint_error.expect("an error");
    assert!(shown.contains("is gone"), "{shown}");
    put_back(&rig, "meta/", &present).await;
    engine.checkpoint().await.unwrap();
    assert_eq!(read(&engine, node, 0, 10).await, b"abc");
    rig.crash();
    let engine = open(&rig).await.unwrap();
    assert_eq!(read(&engine, node, 0, 10).await, b"abc");
    rig.crash();
}

/// Takes the last `count` manifests away.
async fn take_newest(rig: &Rig, count: usize) -> Objects {
    let manifests = below(rig, "meta/manifest/");
    let newest = manifests[manifests.len() - count..].to_vec();
    for (name, _) in &newest {
        rig.memory.delete(name).await.unwrap();
    }
    newest
}

/// Puts back what was taken; nothing has taken its place meanwhile.
async fn into_free_places(rig: &Rig, objects: &Objects) {
    for (name, bytes) in objects {
        let put = rig.memory.put(name, bytes.clone(), PutMode::Create).await;
        assert!(put.is_ok(), "{name} was written over");
    }
}

/// Checkpoints fail for that metadata is gone, however long it takes, and nothing is trimmed.
async fn waits(rig: &Rig, engine: &Engine) {
    let used = engine.log().used();
    for _ in 0..3 {
        let failed = engine.checkpoint().await;
        assert!(matches!(failed, Err(CheckpointError::Gone(_))), "{failed:?}");
        rig.pass(Duration::from_secs(12)).await;
    }
    assert!(engine.log().used() >= used, "the log was trimmed");
}

/// The store is whole again: what is missing comes into it, and is there after a crash.
async fn goes_on(rig: &Rig, engine: &Engine, node: Node) {
    engine.checkpoint().await.unwrap();
    assert_eq!(engine.status().checkpoint_error, None);
    assert_eq!(read(engine, node, 0, 10).await, b"ab");
    rig.crash();
    let engine = open(rig).await.unwrap();
    assert_eq!(look(&engine, "file").await, node);
    assert_eq!(read(&engine, node, 0, 10).await, b"ab");
    let walk = engine.fsck(true, |_| ()).await.unwrap();
    assert!(walk.findings.is_empty(), "{walk:?}");
    rig.crash();
}

#[tokio::test]
async fn what_a_start_wrote_to_the_metadata_is_missed_before_its_first_checkpoint() {
    for count in 1..=3 {
        let rig = Rig::new();
        let (engine, node) = begun(&rig).await;
        engine.close().await.unwrap();
        rig.crash();
        let engine = open(&rig).await.unwrap();
        let taken = take_newest(&rig, count).await;
        write(&engine, node, 1, b"b").await;
        waits(&rig, &engine).await;
        into_free_places(&rig, &taken).await;
        goes_on(&rig, &engine, node).await;
    }
}

#[tokio::test]
async fn the_newest_manifests_alone_are_missed_and_their_places_kept() {
    for (count, idle) in [(1, 0), (1, 12), (2, 12), (2, 40)] {
        let rig = Rig::new();
        let (engine, node) = begun(&rig).await;
        rig.pass(Duration::from_secs(idle)).await;
        let taken = take_newest(&rig, count).await;
        write(&engine, node, 1, b"b").await;
        waits(&rig, &engine).await;
        into_free_places(&rig, &taken).await;
        goes_on(&rig, &engine, node).await;
    }
}

/// Takes the newest manifest away as soon as something was put below a prefix, once.
#[derive(Debug)]
struct Thief {
    store: Arc<dyn Store>,
    memory: Arc<MemoryStore>,
    after: Mutex<Option<&'static str>>,
    taken: Mutex<Objects>,
}

impl Thief {
    /// Watches what is put into the rig's store.
    fn of(rig: &mut Rig) -> Arc<Thief> {
        let (store, memory) = (rig.store.clone(), rig.memory.clone());
        let thief = Arc::new(Thief { store, memory, after: Mutex::default(), taken: Mutex::default() });
        rig.store = thief.clone();
        thief
    }

    fn taken(&self) -> Objects {
        std::mem::take(&mut self.taken.lock())
    }
}

#[async_trait]
impl Store for Thief {
    async fn put(&self, name: &str, bytes: Bytes, mode: PutMode) -> StoreResult<Version> {
        let put = self.store.put(name, bytes, mode).await?;
        if self.after.lock().take_if(|after| name.starts_with(*after)).is_some() {
            let mut objects = self.memory.contents();
            objects.retain(|(name, _)| name.starts_with("meta/manifest/"));
            let newest = objects.pop().expect("a manifest");
            self.memory.delete(&newest.0).await?;
            self.taken.lock().push(newest);
        }
        Ok(put)
    }

    async fn get(&self, name: &str) -> StoreResult<(Bytes, Version)> {
        self.store.get(name).await
    }

    async fn get_range(&self, name: &str, range: Range<u64>) -> StoreResult<Bytes> {
        self.store.get_range(name, range).await
    }

    async fn head(&self, name: &str) -> StoreResult<ObjectInfo> {
        self.store.head(name).await
    }

    async fn delete(&self, name: &str) -> StoreResult<()> {
        self.store.delete(name).await
    }

    async fn list(&self, prefix: &str) -> StoreResult<Vec<ObjectInfo>> {
        self.store.list(prefix).await
    }
}

#[tokio::test]
async fn the_log_is_not_trimmed_without_the_manifest_that_carries_the_batch() {
    for idle in [0, 12] {
        let mut rig = Rig::new();
        let thief = Thief::of(&mut rig);
        let (engine, node) = begun(&rig).await;
        rig.pass(Duration::from_secs(idle)).await;
        write(&engine, node, 1, b"b").await;
        *thief.after.lock() = Some("meta/manifest/");
        waits(&rig, &engine).await;
        into_free_places(&rig, &thief.taken()).await;
        goes_on(&rig, &engine, node).await;
    }
}

#[tokio::test]
async fn a_start_writes_nothing_over_a_manifest_that_goes_away_meanwhile() {
    for closed in [true, false] {
        let mut rig = Rig::new();
        let thief = Thief::of(&mut rig);
        let (engine, node) = begun(&rig).await;
        write(&engine, node, 1, b"b").await;
        if closed {
            engine.close().await.unwrap();
        }
        rig.crash();
        drop(engine);
        let metadata = below(&rig, "meta/");
        // The record is replaced between the look and the opening.
        *thief.after.lock() = Some("owner");
        let refused = open(&rig).await;
        assert!(matches!(refused, Err(OpenError::Gone(_))), "{refused:?}");
        let taken = thief.taken();
        into_free_places(&rig, &taken).await;
        assert!(below(&rig, "meta/") == metadata, "something was written");
        let engine = open(&rig).await.unwrap();
        goes_on(&rig, &engine, node).await;
    }
}

/// A store that takes every condition for none.
#[derive(Debug)]
struct Careless(Arc<dyn Store>);

#[async_trait]
impl Store for Careless {
    async fn put(&self, name: &str, bytes: Bytes, _: PutMode) -> StoreResult<Version> {
        self.0.put(name, bytes, PutMode::Overwrite).await
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
async fn a_store_that_ignores_conditions_is_refused_at_every_opening() {
    let mut rig = Rig::new();
    let careful = rig.store.clone();
    rig.store = Arc::new(Careless(careful.clone()));
    let refused = rig.try_create().await.map(|_| ());
    assert!(matches!(refused, Err(OpenError::Unconditional(_))), "{refused:?}");
    assert!(rig.memory.contents().is_empty(), "something stayed");
    rig.store = careful;
    rig.create().await;
    rig.crash();
    let before = rig.memory.contents();
    rig.store = Arc::new(Careless(rig.store.clone()));
    let refused = rig.try_open(false, false).await.map(|_| ());
    assert!(matches!(refused, Err(OpenError::Unconditional(_))), "{refused:?}");
    assert!(rig.memory.contents() == before, "something was changed");
}
