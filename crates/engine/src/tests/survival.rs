//! What survives checkpoints and crashes beside files: outcomes, locks, spilled data, a log that is always full; and the
//! whole over the metadata engine that serves.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use tarn_base::ids::Position;
use tarn_base::time::Time;
use tarn_meta::slate::SlateOptions;
use tarn_store::StoreError;
use tarn_store::fault::{Effect, Fault, FaultStore};
use tarn_store::operation::Operation;
use tarn_vfs::{
    Caller, ClientId, CreateMode, Errno, FileSystem, Lock, LockKind, LockOutcome, LockOwner, LockRange, LockRequest,
    Node, OnceToken, Reply, Sent, SetAttr, SetTime, Stability,
};
use tarn_wal::MemDevice;

use super::opening::{look, make, read, root, write};
use crate::open::{OpenOptions, slate};
use crate::resent;
use crate::testing::{Rig, settle};
use crate::{Engine, Parts};

/// Moves time on by itself.
pub fn keep_time(rig: &Rig) {
    let clock = rig.clock.clone();
    rig.world.spawn.spawn(
        "time",
        Box::pin(async move {
            loop {
                tokio::task::yield_now().await;
                clock.advance(Duration::from_millis(1));
            }
        }),
    );
}

fn lock(node: Node, owner: &'static str) -> LockRequest {
    let owner = LockOwner { client: Bytes::from(owner), owner: Bytes::from_static(b"process"), process: 1 };
    let range = LockRange { start: 0, end: 10 };
    let lock = Lock { node, owner, kind: LockKind::Exclusive, range };
    LockRequest { lock, wait: false, reclaim: false, callback: Bytes::new() }
}

#[tokio::test]
async fn outcomes_and_locks_survive_trimming_and_crashes() {
    let rig = Rig::new();
    let engine = rig.create().await;
    let node = make(&engine, "file").await;
    let token = OnceToken { client: ClientId(5), number: 6, digest: 7 };
    let caller = Caller { once: Some(token), ..Caller::root() };
    let create =
        |engine: &Arc<Engine>| engine.create(&caller, root(engine), b"once", CreateMode::Guarded, SetAttr::default());
    let first = create(&engine).await.unwrap();
    let held = engine.lock(&Caller::root(), lock(node, "one")).await.unwrap();
    assert_eq!(held.value, LockOutcome::Granted);
    engine.durable(held.position).await.unwrap();
    for trimmed in [false, true, true] {
        if trimmed {
            write(&rig.open().await.0, node, 0, b"x").await;
            rig.crash();
            let (engine, _) = rig.open().await;
            engine.checkpoint().await.unwrap();
        }
        rig.crash();
        let (engine, _) = rig.open().await;
        assert_eq!(create(&engine).await.unwrap().value, first.value, "trimmed: {trimmed}");
        assert!(matches!(
            engine.lock(&Caller::root(), lock(node, "other")).await.unwrap().value,
            LockOutcome::Denied(_)
        ));
        assert!(!engine.in_grace());
        rig.crash();
    }
    rig.open().await.0.close().await.unwrap();
    rig.crash();
    assert_eq!(create(&rig.open().await.0).await.unwrap().value, first.value);
    rig.crash();
}

/// A caller whose call has this name.
fn sent(name: u64) -> Caller {
    Caller { sent: Some(Sent { client: ClientId(5), name }), ..Caller::root() }
}

fn later(errno: Errno) {
    assert_eq!(errno, Errno::TryLater);
}

#[tokio::test]
async fn a_late_copy_does_not_run_over_what_came_since() {
    let rig = Rig::new();
    let engine = rig.create().await;
    let node = make(&engine, "file").await;
    let write =
        |name, data: &'static [u8]| engine.write(&sent(name), node, 0, Bytes::from_static(data), Stability::File);
    write(7, b"first").await.unwrap();
    write(7, b"first").await.expect("a copy that comes to the same");
    write(8, b"newer").await.unwrap();
    later(write(7, b"first").await.unwrap_err().value.errno);
    assert_eq!(read(&engine, node, 0, 9).await, b"newer");
    // For as long as it is tried, and not for ever.
    for _ in 0..10 {
        later(write(7, b"first").await.unwrap_err().value.errno);
        rig.pass(resent::AGE / 5).await;
    }
    rig.pass(resent::AGE * 2).await;
    write(7, b"first").await.expect("another call under the same number");
    write(8, b"newer").await.unwrap();
    // Where the content has to be fetched too.
    engine.checkpoint().await.unwrap();
    write(8, b"newer").await.expect("a copy that comes to the same");
    later(write(7, b"first").await.unwrap_err().value.errno);
    // A call whose outcome has been forgotten.
    let cut = |number| {
        let token = OnceToken { client: ClientId(5), number, digest: 7 };
        let set = SetAttr { size: Some(0), ..SetAttr::default() };
        engine.setattr(&Caller { once: Some(token), ..sent(9) }, node, set)
    };
    cut(1).await.unwrap();
    later(write(8, b"newer").await.unwrap_err().value.errno);
    write(10, b"again").await.unwrap();
    later(cut(2).await.unwrap_err().value.errno);
    assert_eq!(read(&engine, node, 0, 9).await, b"again");
    // An unlock, after which the lock was taken again; a lock, after it was given up.
    let take = |name| engine.lock(&sent(name), lock(node, "one"));
    let Lock { owner, range, .. } = lock(node, "one").lock;
    let unlock = |name| engine.unlock(&sent(name), node, owner.clone(), range);
    take(11).await.unwrap();
    take(11).await.expect("the lock is held");
    unlock(12).await.unwrap();
    unlock(12).await.expect("the lock is not held");
    later(take(11).await.unwrap_err().value.errno);
    take(13).await.unwrap();
    later(unlock(12).await.unwrap_err().value.errno);
    assert_eq!(engine.locks().len(), 1);
}

#[tokio::test]
async fn a_late_copy_of_what_was_done_is_not_told_that_it_may_not_be_done() {
    let rig = Rig::new();
    let engine = rig.create().await;
    let node = make(&engine, "file").await;
    let mode = |mode| engine.setattr(&Caller::root(), node, SetAttr { mode: Some(mode), ..SetAttr::default() });
    mode(0o777).await.unwrap();
    let write = |name| {
        let caller = Caller { sent: sent(name).sent, ..Caller::user(1000, 1000) };
        engine.write(&caller, node, 0, Bytes::from_static(b"bytes"), Stability::File)
    };
    write(1).await.unwrap();
    mode(0o700).await.unwrap();
    later(write(1).await.unwrap_err().value.errno);
    assert_eq!(write(2).await.unwrap_err().value.errno, Errno::Access);
    mode(0o744).await.unwrap();
    write(1).await.expect("he may read that his bytes are there");
    engine.write(&Caller::root(), node, 0, Bytes::from_static(b"newer"), Stability::File).await.unwrap();
    later(write(1).await.unwrap_err().value.errno);
    write(2).await.unwrap_err();
    // One that no file has room for is not looked for.
    let beyond = || engine.write(&sent(3), node, u64::MAX - 2, Bytes::from_static(b"bytes"), Stability::File);
    assert_eq!(beyond().await.unwrap_err().value.errno, Errno::FileTooBig);
    later(beyond().await.unwrap_err().value.errno);
    assert_eq!(read(&engine, node, 0, 9).await, b"newer");
}

#[tokio::test]
async fn what_is_told_of_locks_waits_for_their_last_change() {
    let rig = Rig::new();
    let engine = rig.create().await;
    let node = make(&engine, "file").await;
    let held = engine.lock(&Caller::root(), lock(node, "one")).await.unwrap();
    engine.durable(held.position).await.unwrap();
    let Lock { owner, range, .. } = lock(node, "one").lock;
    let unlock = || engine.unlock(&Caller::root(), node, owner.clone(), range);
    let first = unlock().await.unwrap().position;
    let again = unlock().await.unwrap().position;
    assert!(first != Position::ZERO && again == first, "{first:?} {again:?}");
    engine.durable(first).await.unwrap();
    assert_eq!(unlock().await.unwrap().position, Position::ZERO);
}

#[tokio::test]
async fn a_late_copy_of_a_call_that_changed_nothing_changes_nothing() {
    let rig = Rig::new();
    let engine = rig.create().await;
    let node = make(&engine, "file").await;
    // A create that found its file; a rename of a file to another name of its own.
    let create = |name| engine.create(&sent(name), root(&engine), b"file", CreateMode::Unchecked, SetAttr::default());
    create(1).await.unwrap();
    create(1).await.expect("it is still there");
    engine.link(&sent(2), node, root(&engine), b"other").await.unwrap();
    let rename = |name| engine.rename(&sent(name), root(&engine), b"file", root(&engine), b"other");
    rename(3).await.unwrap();
    engine.remove(&sent(4), root(&engine), b"other").await.unwrap();
    later(rename(3).await.unwrap_err().value.errno);
    engine.remove(&sent(5), root(&engine), b"file").await.unwrap();
    later(create(1).await.unwrap_err().value.errno);
    // Locks that were denied, and given up where there was nothing.
    let node = make(&engine, "locked").await;
    let take = |name, owner| engine.lock(&sent(name), lock(node, owner));
    let unlock = |name, owner| {
        let Lock { owner, range, .. } = lock(node, owner).lock;
        engine.unlock(&sent(name), node, owner, range)
    };
    unlock(10, "one").await.unwrap();
    take(11, "one").await.unwrap();
    later(unlock(10, "one").await.unwrap_err().value.errno);
    assert!(matches!(take(12, "two").await.unwrap().value, LockOutcome::Denied(_)));
    unlock(13, "one").await.unwrap();
    later(take(12, "two").await.unwrap_err().value.errno);
    assert!(engine.locks().is_empty());
    // Bytes that still stand, below attributes that are newer.
    let write = |name| engine.write(&sent(name), node, 0, Bytes::from_static(b"bytes"), Stability::File);
    write(20).await.unwrap();
    let set = SetAttr { mode: Some(0o4755), mtime: Some(SetTime::To(Time::EPOCH)), ..SetAttr::default() };
    let attr = engine.setattr(&sent(21), node, set).await.unwrap().value.attr.unwrap();
    let copy = write(20).await.expect("the bytes are there");
    assert_eq!(copy.value.count, 5);
    engine.durable(copy.position).await.unwrap();
    assert_eq!(engine.getattr(&Caller::root(), node).await.unwrap().value, attr);
}

#[tokio::test]
async fn locks_that_went_with_their_log_are_reclaimed_in_grace() {
    let rig = Rig::new();
    let engine = rig.create().await;
    let node = make(&engine, "file").await;
    let held = engine.lock(&Caller::root(), lock(node, "one")).await.unwrap();
    assert_eq!(held.value, LockOutcome::Granted);
    engine.close().await.unwrap();
    rig.crash();
    let other = rig.elsewhere();
    let (engine, report) = other.open().await;
    assert!(report.session_lost && engine.in_grace());
    assert_eq!(engine.clients_to_notify().len(), 1);
    let reclaim = LockRequest { reclaim: true, ..lock(node, "one") };
    assert_eq!(engine.lock(&Caller::root(), reclaim).await.unwrap().value, LockOutcome::Granted);
    other.pass(other.config.grace).await;
    assert!(!engine.in_grace());
}

#[tokio::test]
async fn data_that_is_only_in_the_log_is_read_back_and_checkpointed_after_a_crash() {
    let mut rig = Rig::new();
    rig.config.overlay_bytes = 0;
    rig.config.record_cache_bytes = 0;
    let engine = rig.create().await;
    let node = make(&engine, "file").await;
    let content: Vec<u8> = (0..500_000u32).map(|at| (at / 7) as u8).collect();
    write(&engine, node, 0, &content[..250_000]).await;
    write(&engine, node, 250_000, &content[250_000..]).await;
    write(&engine, node, 100, &content[100..200]).await;
    assert!(read(&engine, node, 0, 1 << 20).await == content);
    rig.crash();
    let (engine, _) = rig.open().await;
    assert!(read(&engine, node, 0, 1 << 20).await == content);
    engine.checkpoint().await.unwrap();
    assert!(read(&engine, node, 0, 1 << 20).await == content);
}

#[tokio::test]
async fn what_is_kept_of_the_logs_memory_is_counted_until_the_last_of_it_goes() {
    const MIB: u64 = 1 << 20;
    let rig = Rig::new();
    let engine = rig.create().await;
    let node = make(&engine, "file").await;
    let content: Vec<u8> = (0..MIB).map(|at| (at / 5) as u8).collect();
    write(&engine, node, 0, &content).await;
    let held = || engine.core.log.held() as u64;
    assert!((MIB..MIB + MIB / 16).contains(&held()), "{}", held());
    assert!(engine.core.overlay_ram_bytes() > held());
    // All but one record in the middle, by little at a time, then a part of that.
    let mut expected = content.clone();
    for record in (0..16).filter(|record| *record != 7) {
        let part = vec![record as u8; 64 << 10];
        write(&engine, node, record << 16, &part).await;
        expected[(record as usize) << 16..(record as usize + 1) << 16].copy_from_slice(&part);
    }
    assert!(held() > MIB, "a part of it is still there");
    assert!(read(&engine, node, 0, MIB as u32).await == expected);
    write(&engine, node, 7 << 16, b"x").await;
    assert_eq!(held(), 0);
    write(&engine, node, 0, &content).await;
    engine.checkpoint().await.unwrap();
    assert_eq!(held(), 0, "the caches keep copies");
    assert!(read(&engine, node, 0, MIB as u32).await == content);
}

#[tokio::test]
async fn a_log_much_smaller_than_what_is_written_slows_writers_down_and_fails_none() {
    let mut rig = Rig::new();
    rig.device = Arc::new(MemDevice::new(2 << 20));
    let engine = rig.create().await;
    keep_time(&rig);
    let node = make(&engine, "file").await;
    let piece = |at: u64| vec![(at % 251) as u8; 64 << 10];
    for at in 0..200u64 {
        let offset = at * (64 << 10);
        let done = engine
            .write(&Caller::root(), node, offset, Bytes::from(piece(at)), Stability::Unstable)
            .await
            .unwrap_or_else(|failed| panic!("write {at}: {failed:?}"));
        assert_eq!(done.value.count, 64 << 10);
    }
    let done = engine.commit(&Caller::root(), node).await.unwrap();
    engine.durable(done.position).await.unwrap();
    rig.crash();
    let (engine, _) = rig.open().await;
    for at in 0..200u64 {
        assert!(read(&engine, node, at * (64 << 10), 64 << 10).await == piece(at), "piece {at}");
    }
    rig.crash();
}

async fn create_named(engine: &Engine, name: &str) -> Reply<tarn_vfs::Effect> {
    engine.create(&Caller::root(), root(engine), name.as_bytes(), CreateMode::Guarded, SetAttr::default()).await
}

#[tokio::test]
async fn while_no_checkpoint_succeeds_changes_take_no_more_memory_than_they_may() {
    let mut rig = Rig::new();
    rig.device = Arc::new(MemDevice::new(256 << 20));
    rig.config.overlay_bytes = 0;
    let down = Arc::new(AtomicBool::new(false));
    let faults = {
        let down = down.clone();
        move |_: Operation<'_>| match down.load(Ordering::Relaxed) {
            true => Fault { effect: Effect::Before(StoreError::Unavailable("down".into())), ..Fault::default() },
            false => Fault::default(),
        }
    };
    rig.store = Arc::new(FaultStore::new(rig.memory.clone(), rig.clock.clone(), Arc::new(faults)));
    let engine = rig.create().await;
    keep_time(&rig);
    let limit = rig.config.overlay_limit();
    down.store(true, Ordering::Relaxed);
    // Data, so that the store is needed.
    write(&engine, make(&engine, "file").await, 0, b"x").await;
    let mut made = 0u32;
    let refused = loop {
        match create_named(&engine, &format!("a file with a name of some length {made}")).await {
            Ok(_) => made += 1,
            Err(failed) => break failed.value.errno,
        }
        assert!(engine.core.overlay_ram_bytes() < limit + (64 << 10), "{made} files");
        assert!(made < 200_000, "nothing waits");
    };
    assert_eq!(refused, Errno::TryLater);
    down.store(false, Ordering::Relaxed);
    let mut tries = 0;
    let done = loop {
        match create_named(&engine, "one more").await {
            Ok(done) => break done,
            Err(_) => tries += 1,
        }
        assert!(tries < 10, "changes wait for ever");
    };
    engine.durable(done.position).await.unwrap();
    assert!(engine.core.overlay_ram_bytes() < limit);
    rig.crash();
    let (engine, _) = rig.open().await;
    look(&engine, &format!("a file with a name of some length {}", made - 1)).await;
    look(&engine, "one more").await;
    rig.crash();
}

#[tokio::test]
async fn the_whole_stands_on_slatedb_and_shows_nothing_in_the_clear() {
    let rig = Rig::new();
    let parts = |rig: &Rig| Parts { meta: slate(rig.world.clone(), SlateOptions::default()), ..rig.parts() };
    keep_time(&rig);
    let wake = Arc::new(tokio::sync::Notify::new());
    let hook = |wake: &Arc<tokio::sync::Notify>| -> tarn_wal::Wake {
        let wake = wake.clone();
        Arc::new(move || wake.notify_one())
    };
    let (engine, _) = Engine::create(parts(&rig), Rig::first_volume(), hook(&wake)).await.unwrap();
    rig.drive(&engine, wake.clone());
    let node = make(&engine, "a planted name").await;
    let content = b"planted content ".repeat(20_000);
    write(&engine, node, 0, &content).await;
    engine.checkpoint().await.unwrap();
    write(&engine, node, 5, b"more").await;
    rig.crash();
    settle().await;

    keep_time(&rig);
    let (engine, report) = Engine::open(parts(&rig), OpenOptions::new(hook(&wake))).await.unwrap();
    rig.drive(&engine, wake.clone());
    assert!(report.entries > 0);
    assert_eq!(look(&engine, "a planted name").await, node);
    assert_eq!(&read(&engine, node, 0, 12).await, b"plantmoreont");
    engine.close().await.unwrap();
    rig.crash();
    for (name, object) in rig.memory.contents() {
        for planted in [&b"planted"[..], b"a planted name"] {
            assert!(!object.windows(planted.len()).any(|part| part == planted), "{name} shows it");
        }
    }
    let other = rig.elsewhere();
    keep_time(&other);
    let (engine, report) = Engine::open(parts(&other), OpenOptions::new(hook(&wake))).await.unwrap();
    assert!(report.clean);
    assert_eq!(&read(&engine, node, 0, 12).await, b"plantmoreont");
    other.crash();
}

#[tokio::test]
async fn a_metadata_store_that_ends_by_itself_is_opened_again_though_nothing_changes() {
    let rig = Rig::new();
    let engine = rig.create().await;
    let node = make(&engine, "file").await;
    write(&engine, node, 0, b"text").await;
    engine.checkpoint().await.unwrap();
    drop(engine);
    rig.crash();
    let (engine, _) = rig.open().await;
    rig.disk.end_opened();
    assert!(engine.status().checkpoint_error.is_none());
    rig.pass(Duration::from_secs(6)).await;
    // Nothing of it was in memory.
    assert_eq!(look(&engine, "file").await, node);
    assert_eq!(read(&engine, node, 0, 10).await, b"text");
    engine.checkpoint().await.unwrap();
    rig.crash();
}
