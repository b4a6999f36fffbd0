//! Old content that is damaged or gone when part of it is overwritten: the new bytes are kept, the rest is known to be
//! lost, and nothing waits for it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use tarn_store::fault::{Effect, Fault, FaultStore};
use tarn_store::operation::{Kind, Operation};
use tarn_store::{PutMode, Store, StoreError};
use tarn_vfs::{Caller, Errno, FileSystem, Node, SetAttr};

use super::opening::{make, read, write};
use super::presence::{put_back, take_away};
use super::survival::keep_time;
use crate::checkpoint::CheckpointError;
use crate::engine::Engine;
use crate::testing::Rig;

const SIZE: u32 = 300_000;

fn content() -> Vec<u8> {
    (0..SIZE).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect()
}

/// A file in the store, and a machine that keeps no record in RAM.
async fn stored(rig: &mut Rig) -> (Arc<Engine>, Node) {
    rig.config.record_cache_bytes = 0;
    let engine = rig.create().await;
    keep_time(rig);
    let node = make(&engine, "file").await;
    write(&engine, node, 0, &content()).await;
    engine.checkpoint().await.unwrap();
    (engine, node)
}

fn segments(rig: &Rig) -> Vec<String> {
    rig.memory.contents().into_iter().map(|(name, _)| name).filter(|name| name.starts_with("segments/")).collect()
}

async fn fails(engine: &Engine, node: Node, offset: u64, count: u32) -> Errno {
    engine.read(&Caller::root(), node, offset, count).await.expect_err("lost bytes").value.errno
}

/// The bytes written are there, those around them in the same record are not, and everybody says so.
async fn check_lost(engine: &Engine, node: Node, patch: &[u8]) {
    assert_eq!(read(engine, node, 1000, 100).await, patch);
    assert_eq!(fails(engine, node, 0, 1000).await, Errno::Io);
    assert_eq!(fails(engine, node, 999, 2).await, Errno::Io);
    assert_eq!(fails(engine, node, 1099, 2).await, Errno::Io);
    let told = engine.status().damage.join("\n");
    assert!(told.contains("are lost") && told.contains(&format!("inode {}", node.ino.0)), "{told}");
    assert!(told.contains("segments/"), "{told}");
    let walk = engine.fsck(false, |_| ()).await.unwrap();
    assert!(walk.findings.iter().any(|text| text.contains("bytes of it are lost")), "{walk:?}");
    let scrub = engine.scrub(|_| std::ops::ControlFlow::Continue(())).await.unwrap();
    let told = scrub.damage.iter().find(|text| text.contains("lost earlier")).expect("lost bytes");
    assert!(told.contains("/file"), "{told}");
}

async fn overwritten_in_part(gone: bool) {
    let mut rig = Rig::new();
    rig.config.missing = Duration::ZERO;
    let (engine, node) = stored(&mut rig).await;
    for name in segments(&rig) {
        match gone {
            true => rig.store.delete(&name).await.unwrap(),
            false => assert!(rig.memory.tamper(&name, |bytes| bytes[5000] ^= 4)),
        }
    }
    let patch = [7; 100];
    write(&engine, node, 1000, &patch).await;
    engine.checkpoint().await.unwrap();
    assert_eq!(engine.status().checkpoint_error, None);
    check_lost(&engine, node, &patch).await;
    rig.crash();
    keep_time(&rig);
    let (engine, _) = rig.open().await;
    check_lost(&engine, node, &patch).await;
    if !gone {
        // Only one record was damaged.
        assert_eq!(read(&engine, node, 150_000, 1000).await, content()[150_000..151_000]);
    }
    // Written again in part, what is still lost stays so; and the record now is another one.
    write(&engine, node, 0, &content()[..1000]).await;
    engine.checkpoint().await.unwrap();
    assert_eq!(read(&engine, node, 0, 1000).await, content()[..1000]);
    assert_eq!(read(&engine, node, 1000, 100).await, patch);
    assert_eq!(fails(&engine, node, 1100, 1).await, Errno::Io);
    rig.crash();
    keep_time(&rig);
    let (engine, _) = rig.open().await;
    assert_eq!(fails(&engine, node, 1100, 1).await, Errno::Io);
    // Cut off, the rest is not lost any more.
    let size = SetAttr { size: Some(1100), ..SetAttr::default() };
    let done = engine.setattr(&Caller::root(), node, size).await.unwrap();
    engine.durable(done.position).await.unwrap();
    let grown = SetAttr { size: Some(2000), ..SetAttr::default() };
    engine.setattr(&Caller::root(), node, grown).await.unwrap();
    let expected = [&content()[..1000], &patch, &[0; 900]].concat();
    for _ in 0..2 {
        assert!(read(&engine, node, 0, SIZE).await == expected);
        engine.checkpoint().await.unwrap();
    }
    engine.reclaim_now().await.unwrap();
    engine.checkpoint().await.unwrap();
    let walk = engine.fsck(true, |_| ()).await.unwrap();
    assert!(walk.findings.is_empty(), "{walk:?}");
    rig.crash();
}

#[tokio::test]
async fn a_damaged_record_that_is_overwritten_in_part_keeps_what_is_new() {
    overwritten_in_part(false).await;
}

#[tokio::test]
async fn a_missing_object_that_is_overwritten_in_part_keeps_what_is_new() {
    overwritten_in_part(true).await;
}

#[tokio::test]
async fn a_missing_object_that_is_put_back_in_time_loses_nothing() {
    let mut rig = Rig::new();
    let (engine, node) = stored(&mut rig).await;
    let taken: Vec<_> = rig.memory.contents().into_iter().filter(|(name, _)| name.starts_with("segments/")).collect();
    for (name, _) in &taken {
        rig.store.delete(name).await.unwrap();
    }
    write(&engine, node, 1000, &[7; 100]).await;
    write(&engine, node, SIZE as u64 - 100, &[8; 100]).await;
    for _ in 0..20 {
        assert!(matches!(engine.checkpoint().await, Err(CheckpointError::Read(Errno::Io))));
    }
    let told = engine.status().damage.join("\n");
    assert!(taken.iter().all(|(name, _)| told.contains(&format!("{name}: the object is missing"))), "{told}");
    assert!(!told.contains("are lost"), "{told}");
    // It grows in its place, as a copy of it does, first too short and then not yet written.
    for name in taken.iter().map(|(name, _)| name) {
        for attempt in 0..10_u8 {
            let half = vec![attempt; if attempt < 5 { 20_000 } else { 10_000_000 }];
            rig.memory.put(name, half.into(), PutMode::Overwrite).await.unwrap();
            assert!(matches!(engine.checkpoint().await, Err(CheckpointError::Read(Errno::Io))));
        }
    }
    // It stops growing for long, with records in it that are whole.
    for (name, bytes) in &taken {
        rig.memory.put(name, bytes.slice(..bytes.len() / 2), PutMode::Overwrite).await.unwrap();
    }
    for _ in 0..10 {
        assert!(matches!(engine.checkpoint().await, Err(CheckpointError::Read(Errno::Io))));
    }
    for (name, bytes) in taken {
        rig.memory.put(&name, bytes, PutMode::Overwrite).await.unwrap();
    }
    engine.checkpoint().await.unwrap();
    let expected = [&content()[..1000], &[7; 100], &content()[1100..SIZE as usize - 100], &[8; 100]].concat();
    assert!(read(&engine, node, 0, SIZE).await == expected);
    let walk = engine.fsck(true, |_| ()).await.unwrap();
    assert!(walk.findings.is_empty(), "{walk:?}");
    rig.crash();
}

#[tokio::test]
async fn a_block_behind_zeros_is_written_over_without_its_old_content() {
    let mut rig = Rig::new();
    rig.config.record_cache_bytes = 0;
    rig.config.missing = Duration::ZERO;
    let engine = rig.create().await;
    let node = make(&engine, "sparse").await;
    write(&engine, node, 20_000, &[1; 4000]).await;
    engine.checkpoint().await.unwrap();
    for name in segments(&rig) {
        rig.memory.tamper(&name, |bytes| bytes[100] ^= 4);
    }
    let behind = |byte: u8, from: usize| [vec![0; from], vec![byte; 24_000 - from]].concat();
    // The same block, then all from before it on.
    for (byte, from) in [(2, 20_000), (3, 16_000)] {
        write(&engine, node, from as u64, &behind(byte, from)[from..]).await;
        engine.checkpoint().await.unwrap();
        assert!(read(&engine, node, 0, 24_000).await == behind(byte, from));
        assert!(engine.fsck(true, |_| ()).await.unwrap().findings.is_empty());
    }
    // A part of it shows what was there, and so does what lies before: that is no zeros any more.
    write(&engine, node, 18_000, &[4; 2000]).await;
    engine.checkpoint().await.unwrap();
    write(&engine, node, 18_000, &[5; 6000]).await;
    engine.checkpoint().await.unwrap();
    let expected = [vec![0; 16_000], vec![3; 2000], vec![5; 6000]].concat();
    assert!(read(&engine, node, 0, 24_000).await == expected);
    assert!(engine.status().damage.is_empty() && engine.fsck(true, |_| ()).await.unwrap().findings.is_empty());
    rig.crash();
}

#[tokio::test]
async fn a_damaged_record_that_is_written_whole_is_healed() {
    let mut rig = Rig::new();
    rig.config.missing = Duration::ZERO;
    let (engine, node) = stored(&mut rig).await;
    for name in segments(&rig) {
        rig.memory.tamper(&name, |bytes| bytes[5000] ^= 4);
    }
    write(&engine, node, 1000, b"part").await;
    engine.checkpoint().await.unwrap();
    assert_eq!(fails(&engine, node, 0, 10).await, Errno::Io);
    write(&engine, node, 0, &content()).await;
    engine.checkpoint().await.unwrap();
    assert!(read(&engine, node, 0, SIZE).await == content());
    let walk = engine.fsck(true, |_| ()).await.unwrap();
    assert!(walk.findings.is_empty(), "{walk:?}");
    rig.crash();
}

#[tokio::test]
async fn a_store_that_is_away_for_long_loses_nothing() {
    let mut rig = Rig::new();
    let away = Arc::new(AtomicBool::new(false));
    let decide = away.clone();
    let faults = move |call: Operation<'_>| {
        let away = decide.load(Ordering::SeqCst) && call.kind == Kind::GetRange;
        let error = StoreError::Unavailable("away".to_owned());
        Fault { delay: Duration::ZERO, effect: if away { Effect::Before(error) } else { Effect::None } }
    };
    rig.store = Arc::new(FaultStore::new(rig.memory.clone(), rig.world.clock.clone(), Arc::new(faults)));
    let (engine, node) = stored(&mut rig).await;
    away.store(true, Ordering::SeqCst);
    write(&engine, node, 1000, b"new").await;
    for _ in 0..12 {
        assert!(engine.checkpoint().await.is_err());
        rig.pass(Duration::from_secs(10)).await;
    }
    away.store(false, Ordering::SeqCst);
    engine.checkpoint().await.unwrap();
    let mut expected = content();
    expected[1000..1003].copy_from_slice(b"new");
    assert!(read(&engine, node, 0, SIZE).await == expected);
    assert!(engine.status().damage.is_empty());
    let data = Bytes::from(expected);
    rig.crash();
    keep_time(&rig);
    let (engine, _) = rig.open().await;
    assert!(read(&engine, node, 0, SIZE).await == data);
    rig.crash();
}

/// A store that takes no segment while the switch is on.
fn without_room(rig: &mut Rig) -> Arc<AtomicBool> {
    let full = Arc::new(AtomicBool::new(false));
    let decide = full.clone();
    let faults = move |call: Operation<'_>| {
        let full = decide.load(Ordering::SeqCst) && call.kind == Kind::Put && call.name.starts_with("segments/");
        let effect = if full { Effect::Before(StoreError::Full("full".to_owned())) } else { Effect::None };
        Fault { delay: Duration::ZERO, effect }
    };
    rig.store = Arc::new(FaultStore::new(rig.memory.clone(), rig.world.clock.clone(), Arc::new(faults)));
    full
}

#[tokio::test]
async fn an_object_that_was_read_in_between_is_not_given_up_though_that_attempt_failed() {
    let mut rig = Rig::new();
    let full = without_room(&mut rig);
    let (engine, node) = stored(&mut rig).await;
    full.store(true, Ordering::SeqCst);
    write(&engine, node, 1000, &[7; 100]).await;
    for _ in 0..12 {
        let taken = take_away(&rig, "segments/").await;
        assert!(matches!(engine.checkpoint().await, Err(CheckpointError::Read(Errno::Io))));
        put_back(&rig, "segments/", &taken).await;
        assert!(matches!(engine.checkpoint().await, Err(CheckpointError::Full(_))));
        rig.pass(Duration::from_secs(90)).await;
    }
    full.store(false, Ordering::SeqCst);
    engine.checkpoint().await.unwrap();
    let expected = [&content()[..1000], &[7; 100], &content()[1100..]].concat();
    assert!(read(&engine, node, 0, SIZE).await == expected);
    rig.crash();
}

#[tokio::test]
async fn what_an_attempt_gives_up_is_told_when_the_checkpoint_has_succeeded() {
    let mut rig = Rig::new();
    rig.config.missing = Duration::ZERO;
    let full = without_room(&mut rig);
    let (engine, node) = stored(&mut rig).await;
    let taken = take_away(&rig, "segments/").await;
    write(&engine, node, 1000, &[7; 100]).await;
    full.store(true, Ordering::SeqCst);
    while !matches!(engine.checkpoint().await, Err(CheckpointError::Full(_))) {
        rig.pass(Duration::from_secs(1)).await;
    }
    let told = engine.status().damage.join("\n");
    assert!(told.contains("the object is missing") && !told.contains("are lost"), "{told}");
    full.store(false, Ordering::SeqCst);
    put_back(&rig, "segments/", &taken).await;
    engine.checkpoint().await.unwrap();
    let told = engine.status().damage.join("\n");
    assert!(!told.contains("are lost"), "{told}");
    let expected = [&content()[..1000], &[7; 100], &content()[1100..]].concat();
    assert!(read(&engine, node, 0, SIZE).await == expected);
    rig.crash();
}

/// Writes `content` over and over from `from` to `to`, and has it stored.
async fn fill(engine: &Engine, node: Node, from: u64, to: u64) {
    let data = content();
    for offset in (from..to).step_by(data.len()) {
        write(engine, node, offset, &data[..data.len().min((to - offset) as usize)]).await;
    }
    engine.checkpoint().await.unwrap();
}

#[tokio::test]
async fn a_record_that_was_moved_is_not_taken_for_missing() {
    // So many records that the last is not read in an attempt that fails of the first.
    const RECORD: u64 = 65_536;
    const LAST: u64 = 200 * RECORD;
    let mut rig = Rig::new();
    let (engine, node) = stored(&mut rig).await;
    fill(&engine, node, 0, LAST + 100).await;
    let first = segments(&rig);
    fill(&engine, node, 0, LAST).await;
    let second: Vec<String> = segments(&rig).into_iter().filter(|name| !first.contains(name)).collect();
    for _ in 0..4 {
        engine.reclaim_now().await.unwrap();
        engine.checkpoint().await.unwrap();
        rig.pass(rig.config.hold + Duration::from_secs(1)).await;
    }
    assert!(
        segments(&rig).iter().all(|name| !first.contains(name)),
        "the last record was moved, and its object is gone"
    );
    let expected = read(&engine, node, LAST, 100).await;
    drop(engine);
    rig.crash();
    keep_time(&rig);
    let (engine, _) = rig.open().await;
    let taken: Vec<_> = rig.memory.contents().into_iter().filter(|(name, _)| second.contains(name)).collect();
    for (name, _) in &taken {
        rig.memory.delete(name).await.unwrap();
    }
    for offset in (0..=LAST).step_by(RECORD as usize) {
        write(&engine, node, offset + 50, b"new").await;
    }
    assert!(matches!(engine.checkpoint().await, Err(CheckpointError::Read(Errno::Io))));
    for (name, bytes) in taken {
        rig.memory.put(&name, bytes, PutMode::Overwrite).await.unwrap();
    }
    engine.checkpoint().await.unwrap();
    let expected = [&expected[..50], b"new", &expected[53..]].concat();
    assert!(read(&engine, node, LAST, 100).await == expected);
    rig.crash();
}
