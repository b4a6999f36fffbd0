//! A store that is nearly full: refused before the metadata store meets it, and over with the first free byte.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use tarn_meta::mem::Refuses;
use tarn_store::StoreError;
use tarn_store::fault::{Effect, Fault, FaultStore};
use tarn_store::operation::Operation;
use tarn_vfs::{Caller, CreateMode, Errno, FileSystem, Node, SetAttr, Special, Stability};
use tokio::sync::Notify;

use super::checkpoint::failing;
use super::opening::{look, make, read, root, write};
use super::reclaim::{clean, noise, set_size};
use super::survival::keep_time;
use crate::Engine;
use crate::checkpoint::CheckpointError;
use crate::config::Space;
use crate::testing::Rig;

fn space(total: u64, free: u64) -> Space {
    Space { total, free, files: u64::MAX }
}

#[tokio::test]
async fn without_inodes_for_metadata_nothing_is_begun() {
    let files = Arc::new(AtomicU64::new(1000));
    let mut rig = Rig::new();
    let told = files.clone();
    let ask = move || Some(Space { files: told.load(Ordering::Relaxed), ..space(1 << 30, 1 << 30) });
    rig.config.capacity = Some(Arc::new(ask));
    let engine = rig.create().await;
    make(&engine, "file").await;
    files.store(63, Ordering::Relaxed);
    let refused = engine.checkpoint().await.unwrap_err();
    assert!(matches!(refused, CheckpointError::Full(_)) && refused.to_string().contains("63 more files"), "{refused}");
    // Nothing new is begun while they are as few.
    rig.pass(Duration::from_secs(6)).await;
    assert_eq!(try_make(&engine, "more").await, Err(Errno::NoSpace));
    files.store(64, Ordering::Relaxed);
    engine.checkpoint().await.expect("a checkpoint");
}

#[tokio::test]
async fn what_is_stored_is_read_while_the_metadata_store_does_not_open_for_writing() {
    for tells in [false, true] {
        let free = Arc::new(AtomicU64::new(1 << 30));
        let told = free.clone();
        let mut rig = Rig::new();
        rig.config.key_cache_bytes = 0;
        rig.config.capacity = Some(Arc::new(move || tells.then(|| space(1 << 30, told.load(Ordering::Relaxed)))));
        let engine = rig.create().await;
        keep_time(&rig);
        let node = make(&engine, "file").await;
        write(&engine, node, 0, b"content").await;
        engine.checkpoint().await.expect("a checkpoint");

        make(&engine, "later").await;
        free.store(1000, Ordering::Relaxed);
        if tells {
            // It waits for room, and opens nothing meanwhile.
            full(&engine).await;
        }
        rig.disk.end_opened();
        rig.disk.refuse(Refuses::Writers);
        full(&engine).await;
        assert_eq!(look(&engine, "file").await, node);
        assert!(read(&engine, node, 0, 7).await == *b"content");
        free.store(1 << 30, Ordering::Relaxed);
        rig.disk.refuse(Refuses::Nobody);
        engine.checkpoint().await.expect("a checkpoint");
        for name in ["file", "later"] {
            look(&engine, name).await;
        }
        clean(&engine).await;
    }
}

/// A checkpoint that meets a full store, after one, perhaps, that finds that the metadata store has ended.
async fn full(engine: &Engine) {
    let mut failed = engine.checkpoint().await.unwrap_err();
    if matches!(failed, CheckpointError::Meta(_)) {
        failed = engine.checkpoint().await.unwrap_err();
    }
    assert!(matches!(failed, CheckpointError::Full(_)), "{failed}");
}

#[tokio::test]
async fn what_another_has_written_since_is_not_read() {
    let mut rig = Rig::new();
    rig.config.key_cache_bytes = 0;
    let other = rig.elsewhere();
    // The one machine sees nothing of the owner record once it has opened.
    let hidden = Arc::new(AtomicBool::new(false));
    let hides = hidden.clone();
    let faults = move |operation: Operation<'_>| match operation.name == "owner" && hides.load(Ordering::Relaxed) {
        true => Fault { effect: Effect::Before(StoreError::Unavailable("away".into())), ..Fault::default() },
        false => Fault::default(),
    };
    rig.store = Arc::new(FaultStore::new(rig.memory.clone(), rig.clock.clone(), Arc::new(faults)));
    // All that it does by itself ends with `rig`; time and its log go on with the other.
    let wake = Arc::new(Notify::new());
    let woken = wake.clone();
    let made = Engine::create(rig.parts(), Rig::first_volume(), Arc::new(move || woken.notify_one())).await;
    let (engine, _) = made.expect("a new store");
    other.drive(&engine, wake);
    keep_time(&other);
    make(&engine, "file").await;
    engine.checkpoint().await.expect("a checkpoint");
    engine.setattr(&Caller::root(), root(&engine), SetAttr::default()).await.expect("a change");
    rig.crash();
    hidden.store(true, Ordering::Relaxed);
    let file = || engine.lookup(&Caller::root(), root(&engine), b"file");
    rig.disk.end_opened();
    rig.disk.refuse(Refuses::Writers);
    full(&engine).await;
    file().await.expect("what it wrote itself");

    rig.disk.refuse(Refuses::Nobody);
    let (taker, _) = other.try_open(true, true).await.expect("a store that is taken");
    taker.remove(&Caller::root(), root(&taker), b"file").await.expect("a file that goes");
    taker.checkpoint().await.expect("a checkpoint");
    rig.disk.refuse(Refuses::Writers);
    full(&engine).await;
    assert_eq!(file().await.unwrap_err().value.errno, Errno::TryLater);
}

#[tokio::test]
async fn without_room_for_metadata_nothing_is_begun_and_reading_goes_on() {
    let free = Arc::new(AtomicU64::new(1 << 30));
    let mut rig = Rig::new();
    let told = free.clone();
    rig.config.capacity = Some(Arc::new(move || Some(space(1 << 30, told.load(Ordering::Relaxed)))));
    rig.config.key_cache_bytes = 0;
    let engine = rig.create().await;
    let node = make(&engine, "file").await;
    write(&engine, node, 0, b"content").await;
    engine.checkpoint().await.expect("a checkpoint");

    make(&engine, "later").await;
    free.store(1000, Ordering::Relaxed);
    let (keys, objects) = (rig.disk.contents(), rig.memory.contents().len());
    assert!(matches!(engine.checkpoint().await, Err(CheckpointError::Full(_))));
    assert!(engine.status().store_full);
    assert!(rig.disk.contents() == keys && rig.memory.contents().len() == objects);
    let more = engine.write(&Caller::root(), node, 1 << 20, Bytes::from_static(b"more"), Stability::File).await;
    assert_eq!(more.expect_err("no room").value.errno, Errno::NoSpace);
    write(&engine, node, 0, b"CONTENT").await;
    assert_eq!(look(&engine, "file").await, node);
    assert_eq!(read(&engine, node, 0, 100).await, b"CONTENT");

    free.store(1 << 30, Ordering::Relaxed);
    rig.pass(Duration::from_secs(30)).await;
    assert!(!engine.status().store_full);
    write(&engine, node, 1 << 20, b"more").await;
}

#[tokio::test]
async fn new_content_leaves_room_for_deletions() {
    let free = Arc::new(AtomicU64::new(1 << 30));
    let mut rig = Rig::new();
    let told = free.clone();
    rig.config.capacity = Some(Arc::new(move || Some(space(1 << 30, told.load(Ordering::Relaxed)))));
    let engine = rig.create().await;
    let node = make(&engine, "file").await;
    write(&engine, node, 0, b"content").await;
    engine.checkpoint().await.expect("a checkpoint");

    free.store(12 << 20, Ordering::Relaxed);
    remove(&engine, "file").await;
    engine.checkpoint().await.expect("a checkpoint of a removal");
    free.store(1 << 30, Ordering::Relaxed);
    rig.pass(Duration::from_secs(6)).await;
    let objects = rig.memory.contents().len();
    let node = make(&engine, "another").await;
    write(&engine, node, 0, b"content").await;
    free.store(12 << 20, Ordering::Relaxed);
    assert!(matches!(engine.checkpoint().await, Err(CheckpointError::Full(_))));
    assert_eq!(rig.memory.contents().len(), objects, "what does not count does not stay");
    assert_eq!(read(&engine, node, 0, 100).await, b"content");
    // Removed, it needs no room any more.
    remove(&engine, "another").await;
    for _ in 0..3 {
        rig.pass(Duration::from_secs(10)).await;
    }
    assert!(!does_not_fit(&engine));
    assert!(engine.status().store_full, "there is no room to grow");
}

/// The last checkpoint did not fit.
fn does_not_fit(engine: &Engine) -> bool {
    engine.core.health.store_full.load(Ordering::Relaxed)
}

async fn try_make(engine: &Engine, name: &str) -> Result<(), Errno> {
    let (mode, attributes) = (CreateMode::Guarded, SetAttr::default());
    let made = engine.create(&Caller::root(), root(engine), name.as_bytes(), mode, attributes).await;
    made.map(|_| ()).map_err(|refused| refused.value.errno)
}

/// Of so many bytes, which may be changed, objects and keys have taken some.
fn bounded(rig: &mut Rig, total: u64) -> Arc<AtomicU64> {
    let (memory, disk) = (rig.memory.clone(), rig.disk.clone());
    let taken = move || {
        let objects = memory.contents().iter().map(|(_, bytes)| bytes.len()).sum::<usize>();
        let keys = disk.contents().iter().map(|(key, value)| key.len() + value.len()).sum::<usize>();
        (objects + keys) as u64
    };
    let total = Arc::new(AtomicU64::new(total));
    let told = total.clone();
    let ask = move |total: u64| space(total, total.saturating_sub(taken()));
    rig.config.capacity = Some(Arc::new(move || Some(ask(told.load(Ordering::Relaxed)))));
    total
}

#[tokio::test]
async fn growth_that_would_not_fit_is_refused_and_all_that_was_answered_is_stored() {
    let mut rig = Rig::new();
    bounded(&mut rig, 24 << 20);
    // Nothing but the store's room asks for a checkpoint.
    rig.config.log_fill_percent = 99;
    let engine = rig.create().await;
    let kept = make(&engine, "kept").await;
    write(&engine, kept, 0, &noise(1, 1 << 20)).await;
    let node = make(&engine, "file").await;
    let (at, refused) = until_refused(&rig, 32, |at| write_at(&engine, node, at << 20, noise(2 + at, 1 << 20))).await;
    assert_eq!(refused, Errno::NoSpace);
    assert!(at >= 4, "there was room for more than {at} MiB");
    assert_eq!(try_make(&engine, "another").await, Err(Errno::NoSpace));
    assert!(engine.status().store_full);
    let shown = engine.statfs(&Caller::root(), root(&engine).volume).await.expect("what is shown").value;
    assert!(shown.bytes_free < 1 << 20, "{shown:?}");
    // Writing over, too, though it takes room of its own.
    write(&engine, kept, 0, &noise(1000, 300_000)).await;
    engine.checkpoint().await.expect("what was answered fits");
    assert_eq!(engine.status().checkpoints.failures, 0);
    // Of what the store has, removed.
    remove(&engine, "file").await;
    engine.checkpoint().await.expect("a removal fits");
    for _ in 0..200 {
        rig.pass(Duration::from_secs(10)).await;
    }
    assert!(!engine.status().store_full, "what was removed made room");
    write(&engine, kept, 1 << 20, b"more").await;
    engine.checkpoint().await.expect("a checkpoint");
    let mut expected = noise(1, 1 << 20);
    expected[..300_000].copy_from_slice(&noise(1000, 300_000));
    assert!(read(&engine, kept, 0, 1 << 20).await == expected);
    assert_eq!(read(&engine, kept, 1 << 20, 100).await, b"more");
    clean(&engine).await;
}

#[tokio::test]
async fn names_without_data_are_growth_too() {
    let mut rig = Rig::new();
    bounded(&mut rig, 24 << 20);
    rig.config.log_fill_percent = 99;
    let engine = rig.create().await;
    let target = Special::Symlink("t".repeat(4000).into());
    let link = |number: u64| {
        let (engine, target) = (engine.clone(), target.clone());
        async move {
            let (caller, name) = (Caller::root(), format!("link {number}"));
            let made = engine.make(&caller, root(&engine), name.as_bytes(), target, SetAttr::default());
            made.await.map(|_| ()).map_err(|refused| refused.value.errno)
        }
    };
    let (count, refused) = until_refused(&rig, 10_000, link).await;
    assert_eq!(refused, Errno::NoSpace);
    assert!(count > 500, "there was room for more than {count}");
    engine.checkpoint().await.expect("what was answered fits");
    assert_eq!(engine.status().checkpoints.failures, 0);
}

#[tokio::test]
async fn what_grows_within_a_record_is_growth_and_what_is_written_over_is_not() {
    let mut rig = Rig::new();
    let total = bounded(&mut rig, 64 << 20);
    let engine = rig.create().await;
    let node = make(&engine, "file").await;
    write(&engine, node, 0, b"content").await;
    engine.checkpoint().await.expect("a checkpoint");
    total.store(20 << 20, Ordering::Relaxed);
    rig.pass(Duration::from_secs(6)).await;
    write(&engine, node, 7, b" and more").await;
    total.store(17 << 20, Ordering::Relaxed);
    rig.pass(Duration::from_secs(6)).await;
    let data = Bytes::from_static(b" and still more");
    let more = engine.write(&Caller::root(), node, 16, data, Stability::File).await;
    assert_eq!(more.expect_err("no room").value.errno, Errno::NoSpace);
    let linked = engine.link(&Caller::root(), node, root(&engine), b"another name").await;
    assert_eq!(linked.expect_err("no room").value.errno, Errno::NoSpace);
    write(&engine, node, 0, b"CONTENT").await;
    assert_eq!(read(&engine, node, 0, 100).await, b"CONTENT and more");
}

#[tokio::test]
async fn growth_waits_while_a_checkpoint_may_show_that_it_fits() {
    let mut rig = Rig::new();
    bounded(&mut rig, 24 << 20);
    rig.config.log_fill_percent = 99;
    let engine = rig.create().await;
    let node = make(&engine, "file").await;
    for at in 0..40 {
        // It takes a thousandth of that in the store.
        let written = while_time_passes(&rig, write_at(&engine, node, at << 20, vec![7; 1 << 20])).await;
        assert_eq!(written, Ok(()), "MiB {at}");
    }
    assert!(!engine.status().store_full);
    engine.checkpoint().await.expect("a checkpoint");
}

async fn remove(engine: &Engine, name: &str) {
    let done = engine.remove(&Caller::root(), root(engine), name.as_bytes()).await.expect("a removal");
    engine.durable(done.position).await.expect("a log that works");
}

#[tokio::test]
async fn a_full_store_is_emptied_by_removing_what_does_not_fit() {
    let puts = Arc::new(AtomicU64::new(0));
    let counted = puts.clone();
    let mut rig = failing(move |nth| {
        counted.store(nth as u64 + 1, Ordering::Relaxed);
        Effect::None
    });
    let total = bounded(&mut rig, 64 << 20);
    let engine = rig.create().await;
    let kept = make(&engine, "kept").await;
    write(&engine, kept, 0, &noise(1, 300_000)).await;
    engine.checkpoint().await.expect("a checkpoint");
    let large = make(&engine, "large").await;
    let cut = make(&engine, "cut").await;
    for part in 0..2 {
        write(&engine, large, part << 20, &noise(2 + part, 1 << 20)).await;
        write(&engine, cut, part << 20, &noise(4 + part, 1 << 20)).await;
    }
    let objects = rig.memory.contents().len();
    // Somebody else takes the room.
    total.store(18 << 20, Ordering::Relaxed);
    assert!(matches!(engine.checkpoint().await, Err(CheckpointError::Full(_))));
    assert_eq!(rig.memory.contents().len(), objects, "what it left would take the room");

    // One of the two is not enough.
    set_size(&engine, cut, 1000).await;
    write(&engine, kept, 100_000, &noise(6, 1000)).await;
    let before = puts.load(Ordering::Relaxed);
    for _ in 0..3 {
        rig.pass(Duration::from_secs(10)).await;
    }
    assert!(does_not_fit(&engine));
    assert_eq!(puts.load(Ordering::Relaxed), before, "what did not fit is not written again at once");
    for _ in 0..4 {
        rig.pass(Duration::from_secs(10)).await;
    }
    assert!(puts.load(Ordering::Relaxed) > before, "but in time");
    assert!(does_not_fit(&engine));
    let closed = engine.core.stack.load().generations.len();
    assert!(closed <= 2, "none is closed in vain");
    remove(&engine, "large").await;
    for _ in 0..3 {
        rig.pass(Duration::from_secs(10)).await;
    }
    assert!(!does_not_fit(&engine));
    assert_eq!(engine.core.stack.load().generations.len(), 1, "all are in the store");
    total.store(64 << 20, Ordering::Relaxed);
    rig.pass(Duration::from_secs(6)).await;
    write(&engine, kept, 400_000, b"more").await;
    engine.checkpoint().await.expect("a checkpoint");

    drop(engine);
    rig.crash();
    let engine = rig.open().await.0;
    let mut expected = noise(1, 300_000);
    expected[100_000..101_000].copy_from_slice(&noise(6, 1000));
    expected.resize(400_000, 0);
    expected.extend(b"more");
    assert!(read(&engine, kept, 0, 1 << 20).await == expected);
    assert!(read(&engine, cut, 0, 1 << 20).await == noise(4, 1 << 20)[..1000]);
    clean(&engine).await;
}

#[tokio::test]
async fn a_full_store_deletes_what_is_dead_while_the_log_is_filling() {
    let mut rig = Rig::new();
    bounded(&mut rig, 20 << 20);
    rig.config.log_fill_percent = 1;
    let engine = rig.create().await;
    let node = make(&engine, "file").await;
    let mut version = 0;
    loop {
        version += 1;
        write(&engine, node, 0, &noise(version, 1 << 20)).await;
        assert!(version < 8, "dead objects stay for a quarter of an hour");
        match engine.checkpoint().await {
            Ok(_) => {}
            Err(CheckpointError::Full(_)) => break,
            Err(error) => panic!("{error}"),
        }
    }
    rig.pass(Duration::from_secs(10 * 60)).await;
    assert!(engine.status().store_full && engine.core.log_is_filling());
    for _ in 0..60 {
        rig.pass(Duration::from_secs(10)).await;
    }
    assert!(!engine.status().store_full);
    assert!(read(&engine, node, 0, 1 << 20).await == noise(version, 1 << 20));
    clean(&engine).await;
}

#[tokio::test]
async fn a_disk_without_a_size_is_not_full() {
    let mut rig = Rig::new();
    rig.config.capacity = Some(Arc::new(|| Some(space(0, 0))));
    let engine = rig.create().await;
    let node = make(&engine, "file").await;
    write(&engine, node, 0, b"content").await;
    engine.checkpoint().await.expect("a checkpoint");
}

#[tokio::test]
async fn a_full_store_never_meets_a_log_full_of_what_does_not_fit_there() {
    // A bucket: it does not tell that it is full.
    let mut rig = failing(|_| Effect::Before(StoreError::Full("full".into())));
    // It comes too late to say that the store is full.
    rig.config.log_fill_percent = 99;
    let engine = rig.create().await;
    let node = make(&engine, "file").await;
    let (_, refused) = until_refused(&rig, 32, |at| write_at(&engine, node, at << 20, vec![7; 1 << 20])).await;
    assert_eq!(refused, Errno::TryLater);
    assert!(matches!(engine.checkpoint().await, Err(CheckpointError::Full(_))));
    assert!(engine.status().store_full);
    while_time_passes(&rig, write_at(&engine, node, 0, vec![7; 1 << 20])).await.expect("writing over");
    let done = engine.remove(&Caller::root(), root(&engine), b"file").await.expect("a removal");
    engine.durable(done.position).await.expect("a log that works");
}

fn write_at(
    engine: &Arc<Engine>,
    node: Node,
    offset: u64,
    data: Vec<u8>,
) -> impl Future<Output = Result<(), Errno>> + Send + use<> {
    let engine = engine.clone();
    async move {
        let written = engine.write(&Caller::root(), node, offset, data.into(), Stability::File).await;
        written.map(|_| ()).map_err(|refused| refused.value.errno)
    }
}

/// How many of `calls` are answered, and what the next is refused with.
async fn until_refused<F>(rig: &Rig, most: u64, calls: impl Fn(u64) -> F) -> (u64, Errno)
where
    F: Future<Output = Result<(), Errno>> + Send + 'static,
{
    for number in 0..most {
        if let Err(errno) = while_time_passes(rig, calls(number)).await {
            return (number, errno);
        }
    }
    panic!("none of {most} is refused");
}

pub async fn while_time_passes<T: Send + 'static>(rig: &Rig, call: impl Future<Output = T> + Send + 'static) -> T {
    let call = tokio::spawn(call);
    tokio::task::yield_now().await;
    while !call.is_finished() {
        rig.pass(Duration::from_millis(100)).await;
    }
    call.await.expect("an answer")
}
