//! UNSTABLE data that passes the log by: what brings it back, what a crash takes, and that nothing else hangs on it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use tarn_meta::mem::Refuses;
use tarn_store::StoreError;
use tarn_store::fault::{Effect, Fault, FaultStore};
use tarn_vfs::{Caller, FileSystem, Node, SetAttr, Stability};
use tarn_wal::faulty::FaultyDisk;

use super::opening::{look, make, read, root, write};
use super::reclaim::{clean, noise, set_size};
use super::survival::keep_time;
use crate::brake::Stored;
use crate::checkpoint::CheckpointError;
use crate::config::{Bypass, Config};
use crate::testing::{Rig, settle};
use crate::{Engine, LostData};

const KIB: usize = 1 << 10;

/// A machine on which every large UNSTABLE write passes the log by.
fn rig() -> Rig {
    let mut rig = Rig::new();
    rig.config =
        Config { bypass: Bypass { write_min: 16 * KIB, after: 0, speed_min: 0, pressed: Duration::MAX }, ..rig.config };
    rig
}

/// Checkpoints get nowhere while it is true.
fn stuck_at_will(rig: &mut Rig) -> Arc<AtomicBool> {
    let stuck = Arc::new(AtomicBool::new(false));
    let sticks = stuck.clone();
    rig.config.crash_points = Some(Arc::new(move |name| name == "checkpoint begins" && sticks.load(Ordering::Relaxed)));
    stuck
}

/// Closes the open generation.
async fn close_generation(engine: &Engine) {
    engine.core.want_checkpoint();
    while engine.status().generations.len() < 2 {
        settle().await;
    }
}

async fn unstable(engine: &Engine, node: Node, offset: u64, data: &[u8]) {
    let data = Bytes::copy_from_slice(data);
    engine.write(&Caller::root(), node, offset, data, Stability::Unstable).await.expect("a write");
}

async fn commit(engine: &Engine, node: Node) {
    let done = engine.commit(&Caller::root(), node).await.expect("a COMMIT");
    engine.durable(done.position).await.expect("a log that works");
}

/// The same machine after its power went.
async fn crashed(rig: &Rig) -> (Arc<Engine>, Vec<LostData>) {
    rig.crash();
    settle().await;
    let (engine, report) = rig.open().await;
    assert!(!report.clean);
    keep_time(rig);
    (engine, report.lost)
}

/// A crash takes nothing of the file, which is `data`.
async fn survives(rig: &Rig, data: &[u8]) {
    let (engine, lost) = crashed(rig).await;
    assert_eq!(lost, []);
    let node = look(&engine, "file").await;
    assert!(read(&engine, node, 0, data.len() as u32).await == data);
    clean(&engine).await;
}

#[tokio::test]
async fn what_was_received_in_the_logs_memory_is_kept_where_it_lies() {
    let rig = rig();
    let engine = rig.create().await;
    let node = make(&engine, "file").await;
    let memory = engine.memory();
    let received = |data: &[u8], before: usize| {
        let mut body = memory.take(before + data.len());
        body.resize(before, 0);
        body.extend_from_slice(data);
        memory.lend(body).slice(before..)
    };
    let held = || engine.core.log.held();
    let unstable = async |offset: u64, data: Bytes| {
        engine.write(&Caller::root(), node, offset, data, Stability::Unstable).await.expect("a write");
    };
    let data = noise(1, 1000 * KIB);
    let bytes = received(&data, 200);
    let size = memory.lent(&bytes).expect("it was lent");
    let place = bytes.as_ptr();
    unstable(0, bytes).await;
    assert_eq!(held(), size, "and counted whole");
    // Where it was received nothing else comes to lie, for it was not copied.
    assert_ne!(received(&data, 200).as_ptr(), place);
    assert!(read(&engine, node, 0, data.len() as u32).await == data);
    // What takes a small part of its memory is copied.
    let small = noise(2, 32 * KIB);
    let bytes = received(&small, 900 * KIB);
    unstable(1 << 20, bytes.clone()).await;
    assert!(held() < size + 100 * KIB, "{}", held());
    drop(bytes);
    assert!(read(&engine, node, 1 << 20, small.len() as u32).await == small);
    // Until its checkpoint; then it is used again.
    engine.checkpoint().await.unwrap();
    settle().await;
    assert_eq!(held(), 0);
    let others: Vec<Bytes> = (0..4).map(|_| received(&data, 200)).collect();
    assert!(others.iter().any(|other| other.as_ptr() == place));
    assert!(read(&engine, node, 0, data.len() as u32).await == data);
}

#[tokio::test]
async fn what_is_logged_is_kept_where_it_was_received_too() {
    let mut rig = rig();
    rig.config.bypass.write_min = usize::MAX;
    let engine = rig.create().await;
    let node = make(&engine, "file").await;
    let memory = engine.memory();
    let data = noise(1, 1000 * KIB);
    let mut body = memory.take(data.len());
    body.extend_from_slice(&data);
    let bytes = memory.lend(body);
    let (place, size) = (bytes.as_ptr(), memory.lent(&bytes).expect("it was lent"));
    engine.write(&Caller::root(), node, 0, bytes, Stability::File).await.expect("a write");
    engine.log().request_flush();
    engine.log().flush_now();
    assert_eq!(engine.core.log.held(), size);
    let other = memory.take(data.len());
    assert_ne!(other.as_ptr(), place, "it is the overlay's");
    assert!(read(&engine, node, 0, data.len() as u32).await == data);
    survives(&rig, &data).await;
}

#[tokio::test]
async fn nothing_passes_it_by_before_checkpoints_have_shown_that_they_are_fast() {
    let mut rig = rig();
    rig.config.bypass.speed_min = Bypass::SPEED_MIN_ON_ONE_DISK;
    let engine = rig.create().await;
    let node = make(&engine, "file").await;
    let data = noise(1, 64 * KIB);
    let unlogged = || engine.status().unlogged_bytes;
    // What they take beside a burst is half of what they take alone.
    let shows = |speed: u64| {
        let (brake, took) = (&engine.core.brake, Duration::from_secs(4));
        brake.begins(8 * speed, 8 * speed);
        brake.goes_on(1, 2, Duration::ZERO);
        brake.ends(Some(Stored { count: 1, took, before: Duration::ZERO, records: took }));
    };
    unstable(&engine, node, 0, &data).await;
    assert_eq!(unlogged(), 0, "nothing is known");
    shows(95 << 20);
    unstable(&engine, node, 64 << 10, &data).await;
    assert_eq!(unlogged(), 0, "for a slow store the log takes it in");
    shows(97 << 20);
    unstable(&engine, node, 128 << 10, &data).await;
    assert_eq!(unlogged(), data.len() as u64);
}

#[tokio::test]
async fn a_burst_is_the_logs_until_it_fills() {
    let mut rig = rig();
    rig.config.bypass.pressed = Duration::from_secs(10);
    let engine = rig.create().await;
    let node = make(&engine, "file").await;
    let data = noise(1, 64 * KIB);
    let unlogged = || engine.status().unlogged_bytes;
    unstable(&engine, node, 0, &data).await;
    assert_eq!(unlogged(), 0);
    engine.core.closes(true);
    unstable(&engine, node, 64 << 10, &data).await;
    assert_eq!(unlogged(), data.len() as u64);
    engine.core.closes(false);
    rig.pass(Duration::from_secs(9)).await;
    unstable(&engine, node, 128 << 10, &data).await;
    let passed = unlogged();
    assert!(passed >= data.len() as u64, "it goes on for a while");
    rig.pass(Duration::from_secs(2)).await;
    unstable(&engine, node, 192 << 10, &data).await;
    assert!(unlogged() <= passed);
    commit(&engine, node).await;
    for part in 0..4 {
        assert!(read(&engine, node, part * data.len() as u64, data.len() as u32).await == data);
    }
}

#[tokio::test]
async fn a_burst_that_outlasts_a_checkpoint_or_memory_passes_the_log_by() {
    let mut rig = rig();
    rig.config.bypass.pressed = Duration::from_secs(10);
    let stuck = stuck_at_will(&mut rig);
    let engine = rig.create().await;
    let node = make(&engine, "file").await;
    let data = noise(1, 64 * KIB);
    let unlogged = || engine.status().unlogged_bytes;
    stuck.store(true, Ordering::Relaxed);
    unstable(&engine, node, 0, &data).await;
    engine.core.closes(true);
    close_generation(&engine).await;
    rig.pass(Duration::from_secs(60)).await;
    assert_eq!(unlogged(), 0);
    unstable(&engine, node, 64 << 10, &data).await;
    assert_eq!(unlogged(), data.len() as u64, "the generation that was pressed is still there");
    stuck.store(false, Ordering::Relaxed);
    rig.crash();

    let mut rig = self::rig();
    rig.config.bypass.pressed = Duration::from_secs(10);
    rig.config.overlay_bytes = 1 << 20;
    let engine = rig.create().await;
    let node = make(&engine, "file").await;
    let unlogged = || engine.status().unlogged_bytes;
    for part in 0..10 {
        unstable(&engine, node, part << 16, &data).await;
    }
    let passed = unlogged();
    assert!((1..=6 * data.len() as u64).contains(&passed), "{passed}: of half of what memory takes on");
}

#[tokio::test]
async fn it_is_not_in_the_log_until_a_commit_and_then_survives() {
    let rig = rig();
    let engine = rig.create().await;
    let node = make(&engine, "file").await;
    let data = noise(1, 900 * KIB);
    let before = engine.status().log_used;
    unstable(&engine, node, 0, &data).await;
    let status = engine.status();
    assert_eq!(status.unlogged_bytes, data.len() as u64);
    assert!(status.log_used < before + 16 * KIB as u64, "{}", status.log_used);
    assert!(read(&engine, node, 0, data.len() as u32).await == data);
    commit(&engine, node).await;
    let status = engine.status();
    assert_eq!(status.unlogged_bytes, 0);
    assert!(status.log_used > before + data.len() as u64);
    let used = status.log_used;
    commit(&engine, node).await;
    assert_eq!(engine.status().log_used, used, "there is nothing more to bring");
    survives(&rig, &data).await;
}

#[tokio::test]
async fn what_a_crash_takes_is_what_it_was_before_and_is_told() {
    let rig = rig();
    let engine = rig.create().await;
    let node = make(&engine, "file").await;
    let old = noise(2, 300 * KIB);
    write(&engine, node, 0, &old).await;
    engine.checkpoint().await.unwrap();
    unstable(&engine, node, 100 * KIB as u64, &noise(3, 400 * KIB)).await;
    // Later, and durable.
    let stable = noise(4, 50 * KIB);
    write(&engine, node, 150 * KIB as u64, &stable).await;
    let empty = make(&engine, "empty").await;
    unstable(&engine, empty, 0, &noise(5, 100 * KIB)).await;
    let verifier = engine.write_verifier();
    let other = make(&engine, "other").await;
    write(&engine, other, 0, b"durable").await;
    for _ in 0..2 {
        // A crash before the next checkpoint changes nothing of it.
        let (engine, lost) = crashed(&rig).await;
        assert_ne!(engine.write_verifier(), verifier);
        let ranges: Vec<_> = lost.iter().map(|lost| (lost.offset / 1024, lost.len / 1024)).collect();
        assert_eq!(ranges, [(100, 50), (200, 300), (0, 100)]);
        assert!(lost[0].ino == node.ino && lost[2].ino == empty.ino);
        let file = read(&engine, node, 0, 600 * KIB as u32).await;
        assert_eq!(file.len(), 500 * KIB, "the size was in the log");
        assert!(file[..150 * KIB] == old[..150 * KIB] && file[150 * KIB..200 * KIB] == stable);
        assert!(file[200 * KIB..300 * KIB] == old[200 * KIB..] && file[300 * KIB..].iter().all(|byte| *byte == 0));
        assert!(read(&engine, empty, 0, 200 * KIB as u32).await == vec![0; 100 * KIB]);
        assert_eq!(read(&engine, other, 0, 10).await, b"durable");
    }
    let (engine, _) = crashed(&rig).await;
    clean(&engine).await;
    // The client writes it again, and that is charged once.
    let again = noise(3, 400 * KIB);
    unstable(&engine, node, 100 * KIB as u64, &again).await;
    commit(&engine, node).await;
    clean(&engine).await;
    assert!(read(&engine, node, 100 * KIB as u64, 400 * KIB as u32).await == again);
    let (engine, lost) = crashed(&rig).await;
    assert!(lost.is_empty(), "a checkpoint has it");
    assert!(read(&engine, node, 100 * KIB as u64, 400 * KIB as u32).await == again);
    clean(&engine).await;
}

#[tokio::test]
async fn a_checkpoint_stores_it_without_the_log() {
    let rig = rig();
    let engine = rig.create().await;
    let node = make(&engine, "file").await;
    let data = noise(6, 900 * KIB);
    unstable(&engine, node, 0, &data).await;
    engine.checkpoint().await.unwrap();
    assert_eq!(engine.status().unlogged_bytes, 0);
    let (engine, lost) = crashed(&rig).await;
    assert_eq!(lost, []);
    assert!(read(&engine, node, 0, data.len() as u32).await == data);
    clean(&engine).await;
}

#[tokio::test]
async fn a_commit_brings_nothing_back_that_is_older_or_cut_off() {
    let rig = rig();
    let engine = rig.create().await;
    let node = make(&engine, "file").await;
    let data = noise(7, 600 * KIB);
    unstable(&engine, node, 0, &data).await;
    write(&engine, node, 10, b"newer").await;
    // What is written after a cut must not come back below it, nor what was cut off.
    unstable(&engine, node, 600 * KIB as u64, &data).await;
    set_size(&engine, node, 300 * KIB as u64 + 5).await;
    write(&engine, node, 400 * KIB as u64, b"beyond").await;
    let mut expected = data[..300 * KIB + 5].to_vec();
    expected[10..15].copy_from_slice(b"newer");
    expected.resize(400 * KIB, 0);
    expected.extend_from_slice(b"beyond");
    commit(&engine, node).await;
    let whole = 2000 * KIB as u32;
    assert!(read(&engine, node, 0, whole).await == expected);
    let (engine, lost) = crashed(&rig).await;
    assert_eq!(lost, []);
    assert!(read(&engine, node, 0, whole).await == expected);
    clean(&engine).await;
}

#[tokio::test]
async fn nothing_comes_back_from_a_closed_generation_either() {
    let mut rig = rig();
    let stuck = stuck_at_will(&mut rig);
    let engine = rig.create().await;
    keep_time(&rig);
    let node = make(&engine, "file").await;
    let gone = make(&engine, "gone").await;
    engine.checkpoint().await.unwrap();
    stuck.store(true, Ordering::Relaxed);
    let data = noise(8, 600 * KIB);
    unstable(&engine, node, 0, &data).await;
    unstable(&engine, gone, 0, &data).await;
    close_generation(&engine).await;
    // The generation that holds it is closed, and never gets anywhere.
    set_size(&engine, node, 0).await;
    write(&engine, node, 100 * KIB as u64, b"newer").await;
    unstable(&engine, node, 200 * KIB as u64, &data[..100 * KIB]).await;
    engine.remove(&Caller::root(), root(&engine), b"gone").await.unwrap();
    commit(&engine, node).await;
    assert!(engine.commit(&Caller::root(), gone).await.is_err());
    let mut expected = vec![0; 200 * KIB];
    expected[100 * KIB..100 * KIB + 5].copy_from_slice(b"newer");
    expected.extend_from_slice(&data[..100 * KIB]);
    assert!(read(&engine, node, 0, 1 << 20).await == expected);
    stuck.store(false, Ordering::Relaxed);
    let (engine, lost) = crashed(&rig).await;
    assert_eq!(lost, []);
    assert!(read(&engine, node, 0, 1 << 20).await == expected);
    clean(&engine).await;
}

#[tokio::test]
async fn a_commit_does_not_wait_for_a_store_that_is_stuck() {
    let mut rig = rig();
    let stuck = stuck_at_will(&mut rig);
    let engine = rig.create().await;
    keep_time(&rig);
    let node = make(&engine, "file").await;
    stuck.store(true, Ordering::Relaxed);
    let data = noise(9, 600 * KIB);
    unstable(&engine, node, 0, &data).await;
    close_generation(&engine).await;
    let begun = engine.core.world.clock.steady();
    commit(&engine, node).await;
    let waited = engine.core.world.clock.steady() - begun;
    assert!(waited >= Duration::from_secs(2) && waited < Duration::from_secs(5), "{waited:?}");
    let begun = engine.core.world.clock.steady();
    write(&engine, node, 0, &data[..10]).await;
    commit(&engine, node).await;
    assert!(engine.core.world.clock.steady() - begun < Duration::from_secs(1), "all of it is in the log already");
    stuck.store(false, Ordering::Relaxed);
    let (engine, lost) = crashed(&rig).await;
    assert_eq!(lost, []);
    assert!(read(&engine, node, 0, data.len() as u32).await == data);
    clean(&engine).await;
}

#[tokio::test]
async fn what_is_in_many_pieces_is_settled_in_many_entries() {
    let rig = rig();
    let engine = rig.create().await;
    let node = make(&engine, "file").await;
    let mut expected = noise(13, 1 << 20);
    unstable(&engine, node, 0, &expected).await;
    for at in (0..expected.len() - 8).step_by(340) {
        unstable(&engine, node, at as u64, b"newer...").await;
        expected[at..at + 8].copy_from_slice(b"newer...");
    }
    let before = engine.log().appended();
    commit(&engine, node).await;
    assert!(engine.log().appended().0 - before.0 >= 3, "3,084 pieces, of which an entry has 1,000");
    assert_eq!(engine.status().unlogged_bytes, 0);
    let (engine, lost) = crashed(&rig).await;
    assert_eq!(lost, []);
    assert!(read(&engine, node, 0, 1 << 20).await == expected);
    clean(&engine).await;
}

#[tokio::test]
async fn small_changes_leave_the_room_that_a_commit_needs() {
    let mut rig = rig();
    rig.config.log_wait = Duration::from_millis(50);
    let stuck = stuck_at_will(&mut rig);
    let engine = rig.create().await;
    keep_time(&rig);
    let (node, other) = (make(&engine, "file").await, make(&engine, "other").await);
    write(&engine, other, 0, &noise(14, 32 * KIB)).await;
    engine.checkpoint().await.unwrap();
    stuck.store(true, Ordering::Relaxed);
    let data = noise(15, 1 << 20);
    for part in 0..3 {
        unstable(&engine, node, part << 20, &data).await;
    }
    let small = Bytes::from(noise(16, 32 * KIB));
    let full = loop {
        match engine.write(&Caller::root(), other, 0, small.clone(), Stability::File).await {
            Ok(_) => {}
            Err(refused) => break refused.value.errno,
        }
    };
    assert_eq!(full, tarn_vfs::Errno::TryLater);
    let status = engine.status();
    assert!(
        status.unlogged_bytes >= 3 << 20 && status.log_used > 10 << 20,
        "{} {}",
        status.unlogged_bytes,
        status.log_used
    );
    commit(&engine, node).await;
    stuck.store(false, Ordering::Relaxed);
    let (engine, lost) = crashed(&rig).await;
    assert_eq!(lost, []);
    for part in 0..3 {
        assert!(read(&engine, node, part << 20, 1 << 20).await == data);
    }
}

#[tokio::test]
async fn a_clean_stop_loses_nothing_of_it_though_the_store_is_away() {
    let mut rig = rig();
    let down = Arc::new(AtomicBool::new(false));
    let is_down = down.clone();
    let faults = move |_: tarn_store::operation::Operation<'_>| match is_down.load(Ordering::Relaxed) {
        true => Fault { effect: Effect::Before(StoreError::Unavailable("down".into())), ..Fault::default() },
        false => Fault::default(),
    };
    rig.store = Arc::new(FaultStore::new(rig.memory.clone(), rig.clock.clone(), Arc::new(faults)));
    let engine = rig.create().await;
    keep_time(&rig);
    let node = make(&engine, "file").await;
    let data = noise(10, 600 * KIB);
    unstable(&engine, node, 0, &data).await;
    assert_eq!(engine.status().unlogged_bytes, data.len() as u64);
    let verifier = engine.write_verifier();
    down.store(true, Ordering::Relaxed);
    engine.close().await.unwrap_err();
    rig.crash();
    settle().await;
    down.store(false, Ordering::Relaxed);
    let (engine, report) = rig.open().await;
    assert!(report.clean && report.lost.is_empty());
    assert_eq!(engine.write_verifier(), verifier, "its client need not write it again");
    assert!(read(&engine, node, 0, data.len() as u32).await == data);
    clean(&engine).await;
}

/// UNSTABLE data of two files, what the one holds not to be known without what is stored; the metadata store has ended and refuses.
async fn cut_off(rig: &Rig, refuses: Refuses) -> (Arc<Engine>, Vec<u8>) {
    let engine = rig.create().await;
    keep_time(rig);
    let [file, other] = [make(&engine, "file").await, make(&engine, "other").await];
    unstable(&engine, file, 0, &noise(13, 1000 * KIB)).await;
    engine.checkpoint().await.unwrap();
    set_size(&engine, file, 300 * KIB as u64).await;
    engine.checkpoint().await.unwrap();
    let data = noise(14, 600 * KIB);
    for node in [file, other] {
        unstable(&engine, node, 0, &data).await;
    }
    rig.disk.end_opened();
    rig.disk.refuse(refuses);
    (engine, data)
}

async fn holds(engine: &Engine, names: &[&str], data: &[u8]) {
    for name in names {
        let node = look(engine, name).await;
        assert!(read(engine, node, 0, data.len() as u32).await == data, "{name}");
    }
}

#[tokio::test]
async fn a_clean_stop_loses_nothing_of_it_though_the_metadata_store_is_full() {
    let mut rig = rig();
    rig.config.key_cache_bytes = 0;
    let (engine, data) = cut_off(&rig, Refuses::Writers).await;
    let verifier = engine.write_verifier();
    let failed = engine.close().await.unwrap_err();
    assert!(matches!(failed, CheckpointError::Full(_)), "{failed}");
    rig.crash();
    settle().await;
    rig.disk.refuse(Refuses::Nobody);
    let (engine, report) = rig.open().await;
    assert!(report.clean && report.lost.is_empty());
    assert_eq!(engine.write_verifier(), verifier);
    holds(&engine, &["file", "other"], &data).await;
    clean(&engine).await;
}

#[tokio::test]
async fn a_stop_that_loses_some_of_it_says_so_and_its_client_is_told() {
    let mut rig = rig();
    rig.config.key_cache_bytes = 0;
    let (engine, data) = cut_off(&rig, Refuses::Everybody).await;
    let verifier = engine.write_verifier();
    let failed = engine.close().await.unwrap_err();
    assert!(matches!(failed, CheckpointError::Lost { .. }), "{failed}");
    rig.disk.refuse(Refuses::Nobody);
    let (engine, lost) = crashed(&rig).await;
    assert_ne!(engine.write_verifier(), verifier);
    assert!(!lost.is_empty());
    // Where nothing else was needed the log took it.
    holds(&engine, &["other"], &data).await;
    let node = look(&engine, "file").await;
    unstable(&engine, node, 0, &data).await;
    holds(&engine, &["file"], &data).await;
    clean(&engine).await;
}

#[tokio::test]
async fn a_stop_whose_log_has_failed_says_what_is_lost() {
    let mut rig = rig();
    let disk = FaultyDisk::new(16 << 20, 1);
    rig.device = disk.device();
    let engine = rig.create().await;
    keep_time(&rig);
    let node = make(&engine, "file").await;
    unstable(&engine, node, 0, &noise(15, 600 * KIB)).await;
    disk.break_down();
    let failed = engine.close().await.unwrap_err();
    assert!(matches!(failed, CheckpointError::Lost { .. }), "{failed}");
}

#[tokio::test]
async fn a_stop_begins_again_while_neither_store_nor_log_takes_it() {
    let mut rig = rig();
    rig.config.key_cache_bytes = 0;
    let (engine, data) = cut_off(&rig, Refuses::Everybody).await;
    let closing = engine.clone();
    let closed = tokio::spawn(async move { closing.close().await });
    // That it has ended is tried again at once, that it is full is not.
    while engine.keeper.totals().failures < 2 {
        tokio::task::yield_now().await;
    }
    rig.disk.refuse(Refuses::Nobody);
    closed.await.unwrap().unwrap();
    rig.crash();
    settle().await;
    let (engine, report) = rig.open().await;
    assert!(report.clean && report.lost.is_empty());
    holds(&engine, &["file", "other"], &data).await;
}

#[tokio::test]
async fn memory_and_the_logs_room_bound_it() {
    let mut rig = rig();
    rig.config.overlay_bytes = 2 << 20;
    let stuck = stuck_at_will(&mut rig);
    let engine = rig.create().await;
    keep_time(&rig);
    let node = make(&engine, "file").await;
    stuck.store(true, Ordering::Relaxed);
    let data = noise(11, 512 * KIB);
    for part in 0..8 {
        unstable(&engine, node, part * data.len() as u64, &data).await;
    }
    let status = engine.status();
    assert!(status.unlogged_bytes <= 2 << 20, "{}", status.unlogged_bytes);
    assert!(status.log_used >= 2 << 20, "the rest is logged: {}", status.log_used);
    commit(&engine, node).await;
    stuck.store(false, Ordering::Relaxed);
    let (engine, lost) = crashed(&rig).await;
    assert_eq!(lost, []);
    for part in 0..8 {
        assert!(read(&engine, node, part * data.len() as u64, data.len() as u32).await == data);
    }
    clean(&engine).await;
}

#[tokio::test]
async fn who_commits_often_and_who_asks_for_stable_data_is_logged_at_once() {
    let mut rig = rig();
    rig.config.bypass.after = 100 * KIB as u64;
    let engine = rig.create().await;
    let node = make(&engine, "file").await;
    let data = noise(12, 64 * KIB);
    for part in 0..4 {
        unstable(&engine, node, part * data.len() as u64, &data).await;
        commit(&engine, node).await;
        assert_eq!(engine.status().unlogged_bytes, 0);
    }
    for part in 4..8 {
        unstable(&engine, node, part * data.len() as u64, &data).await;
    }
    assert_eq!(engine.status().unlogged_bytes, 2 * data.len() as u64, "it has become a stream");
    write(&engine, node, 8 * data.len() as u64, &data).await;
    assert_eq!(engine.status().unlogged_bytes, 2 * data.len() as u64);
    let set = SetAttr { mode: Some(0o600), ..SetAttr::default() };
    engine.setattr(&Caller::root(), node, set).await.unwrap();
    commit(&engine, node).await;
    assert_eq!(engine.status().unlogged_bytes, 0);
}
