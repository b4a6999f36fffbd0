//! Promises where room, order or another writer is against them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use tarn_base::ids::{Position, SegmentId};
use tarn_data::object_name;
use tarn_meta::MetaOpener;
use tarn_meta::mem::{CommitFate, MemOpener};
use tarn_store::fault::{Effect as Broken, Fault, FaultStore};
use tarn_store::operation::Operation;
use tarn_store::{PutMode, Store, StoreError};
use tarn_vfs::{
    Caller, ClientId, Effect, Errno, FileSystem, Lock, LockKind, LockOutcome, LockOwner, LockRange, LockRequest, Node,
    OnceToken, SetAttr, Stability, VolumeSettings,
};
use tarn_wal::MemDevice;

use super::opening::{make, read, write};
use super::reclaim::{clean, make_in, noise, set_size, volume_of};
use crate::engine::Engine;
use crate::once::OUTCOMES_MAX;
use crate::owner::record::NAME;
use crate::testing::{Rig, settle};

fn lock(node: Node, owner: &'static str) -> LockRequest {
    let owner = LockOwner { client: Bytes::from(owner), owner: Bytes::from_static(b"process"), process: 1 };
    let lock = Lock { node, owner, kind: LockKind::Exclusive, range: LockRange { start: 0, end: 10 } };
    LockRequest { lock, wait: false, reclaim: false, callback: Bytes::new() }
}

#[tokio::test]
async fn remembered_outcomes_take_a_small_part_of_the_log() {
    let rig = Rig::new();
    let engine = rig.create().await;
    for number in 0..40_000 {
        let token = OnceToken { client: ClientId(u128::from(number) / 1000), number, digest: 0 };
        engine.core.once.remember(&token, Effect::default(), Position(number));
    }
    let before = engine.log().used();
    let (_, outcomes) = engine.core.append_session_image(usize::MAX).unwrap();
    assert!(outcomes.written == outcomes.all && outcomes.all >= OUTCOMES_MAX, "{outcomes:?}");
    assert!(engine.log().used() - before <= (engine.log().capacity() / 8).max(1 << 20), "{outcomes:?}");
    rig.crash();
}

#[tokio::test]
async fn locks_are_in_an_image_before_a_log_without_room_is_trimmed() {
    let mut rig = Rig::new();
    rig.device = Arc::new(MemDevice::new(2 << 20));
    let armed = Arc::new(AtomicBool::new(false));
    let reached = Arc::new(AtomicBool::new(false));
    let (arm, note) = (armed.clone(), reached.clone());
    rig.config.log_fill_percent = 100;
    rig.config.crash_points = Some(Arc::new(move |name| {
        let crash = arm.load(Ordering::SeqCst) && name == "the session image is durable";
        note.fetch_or(crash, Ordering::SeqCst);
        crash
    }));
    let engine = rig.create().await;
    let node = make(&engine, "file").await;
    let held = engine.lock(&Caller::root(), lock(node, "one")).await.unwrap();
    engine.durable(held.position).await.unwrap();
    // More outcomes than the log has room for.
    for client in 0..20 {
        for number in 0..1000 {
            let token = OnceToken { client: ClientId(client), number, digest: 0 };
            engine.core.once.remember(&token, Effect::default(), held.position);
        }
    }
    write(&engine, node, 0, &noise(1, 1 << 20)).await;
    armed.store(true, Ordering::SeqCst);
    let checkpoint = engine.clone();
    rig.world.spawn.spawn(
        "checkpoint",
        Box::pin(async move {
            let _ = checkpoint.checkpoint().await;
        }),
    );
    for _ in 0..20 {
        settle().await;
    }
    assert!(reached.load(Ordering::SeqCst), "the log was trimmed before the image was written");
    rig.crash();
    rig.config.crash_points = None;
    let (engine, _) = rig.open().await;
    let denied = engine.lock(&Caller::root(), lock(node, "other")).await.unwrap().value;
    assert!(matches!(denied, LockOutcome::Denied(_)), "{denied:?}");
    assert!(read(&engine, node, 0, 1 << 20).await == noise(1, 1 << 20));
    rig.crash();
}

#[tokio::test]
async fn many_cuts_of_one_file_bring_the_checkpoint_that_they_wait_for() {
    let rig = Rig::new();
    let engine = rig.create().await;
    let node = make(&engine, "file").await;
    for part in 0..6 {
        write(&engine, node, part << 20, &noise(part, 1 << 20)).await;
    }
    engine.checkpoint().await.unwrap();
    let mut waited = Duration::ZERO;
    for step in 1..90u64 {
        let size = SetAttr { size: Some(step * (64 << 10)), ..SetAttr::default() };
        loop {
            match engine.setattr(&Caller::root(), node, size).await {
                Ok(_) => break,
                Err(refused) => assert_eq!(refused.value.errno, Errno::TryLater),
            }
            rig.pass(Duration::from_millis(500)).await;
            waited += Duration::from_millis(500);
            assert!(waited < Duration::from_secs(20), "nobody works the cuts off, at {step}");
        }
        // Longer again, so that the next one cuts something off.
        write(&engine, node, (6 << 20) - 1, b"x").await;
    }
    assert!(waited > Duration::ZERO, "nothing had to wait");
    engine.reclaim_now().await.unwrap();
    clean(&engine).await;
    rig.crash();
}

#[tokio::test]
async fn a_volume_is_charged_for_what_commits_while_it_is_deleted() {
    let rig = Rig::new();
    let engine = rig.create().await;
    let node = make(&engine, "file").await;
    write(&engine, node, 0, &noise(1, 64 << 10)).await;
    let volume = engine.core.volumes.get(node.volume).unwrap();
    engine.delete_volume("vol").await.unwrap();
    // As an operation does that had found the volume before.
    let entry = crate::entry::Entry { usage: vec![(volume.id, 4096, 1)], ..Default::default() };
    engine.core.reserve_usage(&entry).unwrap();
    assert_eq!(volume.usage.get().bytes, (64 << 10) + 4096);
    engine.core.return_usage(&entry);
    engine.undelete_volume("vol").await.unwrap();
    assert_eq!(engine.volume_list()[0].usage.bytes, 64 << 10);
    rig.crash();
}

#[tokio::test]
async fn a_limit_is_reached_to_the_record() {
    let rig = Rig::new();
    let engine = rig.create().await;
    let limited = VolumeSettings { size_limit: Some(4 * (64 << 10)), ..VolumeSettings::default() };
    engine.set_volume("vol", limited).await.unwrap();
    let node = make(&engine, "file").await;
    for record in 0..4 {
        write(&engine, node, record * (64 << 10), &[1]).await;
    }
    let put = |offset| engine.write(&Caller::root(), node, offset, Bytes::from_static(b"x"), Stability::File);
    assert_eq!(put(4 * (64 << 10)).await.unwrap_err().value.errno, Errno::NoSpace);
    put(3 * (64 << 10) + 5).await.unwrap();
    set_size(&engine, node, 3 * (64 << 10)).await;
    engine.reclaim_now().await.unwrap();
    put(3 * (64 << 10)).await.unwrap();
    rig.crash();
}

#[tokio::test]
async fn a_put_that_arrives_late_leaves_no_object_behind() {
    let rig = Rig::new();
    let engine = rig.create().await;
    let node = make(&engine, "file").await;
    write(&engine, node, 0, &noise(1, 64 << 10)).await;
    engine.checkpoint().await.unwrap();
    rig.crash();
    let (engine, report) = rig.open().await;
    assert!(report.orphans > 0);
    // One of the numbers that nothing names, and one that something does.
    let late = object_name(SegmentId { epoch: report.owner_epoch - 1, counter: 40 });
    rig.memory.put(&late, Bytes::from_static(b"late"), PutMode::Create).await.unwrap();
    rig.pass(rig.config.hold).await;
    rig.pass(Duration::from_secs(1)).await;
    assert!(rig.memory.head(&late).await.is_err(), "it is still there");
    assert!(read(&engine, node, 0, 1 << 20).await == noise(1, 64 << 10));
    rig.crash();
}

#[tokio::test]
async fn a_failed_checkpoint_leaves_nothing_in_the_cache_of_records() {
    let rig = Rig::new();
    let engine = rig.create().await;
    let node = make(&engine, "file").await;
    write(&engine, node, 0, &noise(1, 1 << 20)).await;
    rig.disk.set_commit_hook(Some(Arc::new(|_| Box::pin(async { CommitFate::FailBefore }))));
    let before = engine.core.caches.records.len();
    for _ in 0..3 {
        assert!(engine.checkpoint().await.is_err());
        assert_eq!(engine.core.caches.records.len(), before);
    }
    rig.disk.set_commit_hook(None);
    engine.checkpoint().await.unwrap();
    assert_eq!(engine.core.caches.records.len(), before + 16);
    rig.crash();
}

/// A stream fills the cache as long as an eighth of it is free, whatever the records' size; what was there stays.
#[tokio::test]
async fn a_stream_stays_in_the_cache_where_that_pushes_nothing_out() {
    for record in [64 << 10, 1 << 20] {
        let mut rig = Rig::new();
        rig.config.record_cache_bytes = 16 << 20;
        rig.config.segment_bytes = 4 << 20;
        let engine = rig.create().await;
        let (_, root) = volume_of(&engine, record).await;
        let stream = async |name: &str, seed: u64, mebibytes: u64| {
            let node = make_in(&engine, root, name).await;
            for mebibyte in 0..mebibytes {
                write(&engine, node, mebibyte << 20, &noise(seed + mebibyte, 1 << 20)).await;
            }
            engine.checkpoint().await.unwrap();
        };
        let records = &engine.core.caches.records;
        let of_a_mebibyte = (1 << 20) / record as usize;
        stream("first", 1, 9).await;
        assert_eq!(records.len(), 9 * of_a_mebibyte, "more than half of the cache, and all of it kept");
        stream("second", 100, 9).await;
        let room = records.capacity() / 8 * 7;
        let full = room - 2 * u64::from(record)..room + 256;
        assert!(full.contains(&records.weight()), "{record}: {} of {room}", records.weight());
        let kept = records.len();
        stream("third", 200, 9).await;
        assert_eq!(records.len(), kept, "a full cache takes none of it");
        rig.crash();
    }
}

/// The metadata store took its own writing for another's, or somebody opened it who does not own the shard: the owner
/// record decides.
#[tokio::test]
async fn a_fence_of_nobody_deposes_nobody() {
    let rig = Rig::new();
    let engine: Arc<Engine> = rig.create().await;
    let node = make(&engine, "file").await;
    for round in 0..3 {
        MemOpener::new(rig.disk.clone()).open().await.unwrap();
        write(&engine, node, round, b"x").await;
        let _ = engine.checkpoint().await;
        engine.checkpoint().await.unwrap();
        assert!(!engine.status().deposed);
    }
    assert_eq!(read(&engine, node, 0, 10).await, b"xxx");
    rig.crash();
    let (engine, _) = rig.open().await;
    assert_eq!(read(&engine, node, 0, 10).await, b"xxx");
    rig.crash();
}

#[tokio::test]
async fn a_fenced_node_is_silent_until_the_owner_record_answers() {
    let mut rig = Rig::new();
    let away = Arc::new(AtomicBool::new(false));
    let hidden = away.clone();
    let faults = move |operation: Operation<'_>| match hidden.load(Ordering::Relaxed) && operation.name == NAME {
        true => Fault { effect: Broken::Before(StoreError::Unavailable("away".to_owned())), ..Fault::default() },
        false => Fault::default(),
    };
    rig.store = Arc::new(FaultStore::new(rig.store.clone(), rig.clock.clone(), Arc::new(faults)));
    let engine = rig.create().await;
    let node = make(&engine, "file").await;
    write(&engine, node, 0, b"a").await;
    away.store(true, Ordering::Relaxed);
    MemOpener::new(rig.disk.clone()).open().await.unwrap();
    let checkpoint = tokio::spawn({
        let engine = engine.clone();
        async move { engine.checkpoint().await }
    });
    settle().await;
    for _ in 0..3 {
        let asked = engine.getattr(&Caller::root(), node).await;
        assert_eq!(asked.unwrap_err().value.errno, Errno::TryLater);
        rig.pass(Duration::from_secs(5)).await;
    }
    away.store(false, Ordering::Relaxed);
    rig.pass(Duration::from_secs(30)).await;
    checkpoint.await.unwrap().unwrap();
    assert_eq!(read(&engine, node, 0, 10).await, b"a");
    rig.crash();
}
