//! Checkpoints: what the store holds afterwards, and what a crash, a lost answer or a failing store in the middle
//! leaves.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tarn_data::{LiveSet, RecordPointer, SegmentState, SegmentValue, object_name};
use tarn_meta::mem::CommitFate;
use tarn_store::fault::{Effect, Fault, FaultStore};
use tarn_store::operation::Kind as Call;
use tarn_store::{PutMode, Store, StoreError};
use tarn_vfs::{Caller, FileSystem, Node, SetAttr, Stability};
use tokio::sync::Notify;

use super::opening::{look, make, read, root, write};
use crate::checkpoint::CheckpointError;
use crate::engine::Engine;
use crate::error::OpenError;
use crate::key::{Key, Kind, segment_id};
use crate::testing::{Rig, settle};
use crate::value::ShardState;

/// What clients were told is durable: names and their content.
type Acked = Arc<Mutex<BTreeMap<String, Vec<u8>>>>;

fn bytes(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let step = |_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 57) as u8
    };
    (0..len).map(step).collect()
}

/// Every pointer's record is live in its segment, nothing else is, and every live segment has its object.
fn check_store(rig: &Rig) {
    let mut expected: BTreeMap<u64, Vec<u32>> = BTreeMap::new();
    let mut segments = BTreeMap::new();
    for (key, value) in rig.disk.contents() {
        let key = Key::decode(&key).expect("a key of ours");
        match key.kind {
            Kind::Pointer => {
                let pointer = RecordPointer::decode(&value).expect("a pointer");
                expected.entry(crate::key::segment_number(pointer.segment)).or_default().push(pointer.index);
            }
            Kind::Segment => {
                segments.insert(key.a, SegmentValue::decode(&value).expect("a segment"));
            }
            _ => {}
        }
    }
    let objects: Vec<String> = rig.memory.contents().into_iter().map(|(name, _)| name).collect();
    for (number, value) in &segments {
        let mut live = LiveSet::none(value.live.size());
        expected.remove(number).unwrap_or_default().into_iter().for_each(|index| assert!(live.insert(index)));
        assert_eq!(live, value.live, "live set of {}", segment_id(*number));
        assert_eq!(live.count() == 0, matches!(value.state, SegmentState::Condemned { .. }));
        assert!(objects.contains(&object_name(segment_id(*number))));
    }
    assert!(expected.is_empty(), "pointers into segments without a key: {expected:?}");
}

/// Every object under `segments/` has a key.
fn check_no_orphans(rig: &Rig) {
    let contents = rig.disk.contents();
    let keys: Vec<u64> = contents
        .iter()
        .filter_map(|(key, _)| Key::decode(key))
        .filter(|key| key.kind == Kind::Segment)
        .map(|key| key.a)
        .collect();
    for (name, _) in rig.memory.contents() {
        if let Some(segment) = tarn_data::parse_object_name(&name) {
            assert!(keys.contains(&crate::key::segment_number(segment)), "{name} is an orphan");
        }
    }
}

async fn check_files(engine: &Engine, acked: &Acked) {
    let expected = acked.lock().clone();
    for (name, content) in expected {
        let node = look(engine, &name).await;
        let found = read(engine, node, 0, 1 << 20).await;
        assert!(found == content, "{name}: {} bytes, expected {}", found.len(), content.len());
    }
}

#[tokio::test]
async fn after_a_checkpoint_the_store_alone_gives_everything_back() {
    let mut rig = Rig::new();
    rig.config.key_cache_bytes = 0;
    rig.config.record_cache_bytes = 0;
    let engine = rig.create().await;
    let node = make(&engine, "file").await;
    let mut content = bytes(1, 700_000);
    write(&engine, node, 0, &content).await;
    engine.checkpoint().await.unwrap();
    check_store(&rig);
    // Over part of a record, across a border, and past the end.
    for (at, len) in [(10, 100), (65_000, 5000), (699_000, 60_000)] {
        let patch = bytes(at as u64, len);
        write(&engine, node, at as u64, &patch).await;
        content.resize(content.len().max(at + len), 0);
        content[at..at + len].copy_from_slice(&patch);
    }
    engine.checkpoint().await.unwrap();
    check_store(&rig);
    assert!(read(&engine, node, 0, 1 << 20).await == content);
    // Cut in the middle of a record, then grown: zeros.
    let size = |size| SetAttr { size: Some(size), ..SetAttr::default() };
    for step in [size(100_000), size(200_000)] {
        let done = engine.setattr(&Caller::root(), node, step).await.unwrap();
        engine.durable(done.position).await.unwrap();
    }
    content.truncate(100_000);
    content.resize(200_000, 0);
    assert!(read(&engine, node, 0, 1 << 20).await == content);
    engine.close().await.unwrap();
    rig.crash();

    let (engine, report) = Rig { config: rig.config.clone(), ..rig.elsewhere() }.open().await;
    assert!(report.clean && report.orphans == 0, "{report:?}");
    assert!(read(&engine, node, 0, 1 << 20).await == content);
}

#[tokio::test]
async fn a_generation_goes_to_the_store_when_its_delay_is_over() {
    let rig = Rig::new();
    let engine = rig.create().await;
    let node = make(&engine, "file").await;
    write(&engine, node, 0, b"content").await;
    let position = || {
        let contents: BTreeMap<_, _> = rig.disk.contents().into_iter().collect();
        ShardState::decode(&contents[&Key::shard().bytes()]).unwrap().position
    };
    let before = position();
    rig.pass(Duration::from_secs(29)).await;
    assert_eq!(position(), before);
    rig.pass(Duration::from_secs(2)).await;
    assert!(position() > before);
    check_store(&rig);
}

#[tokio::test]
async fn the_delay_counts_from_the_first_change() {
    let rig = Rig::new();
    let engine = rig.create().await;
    let node = make(&engine, "file").await;
    engine.checkpoint().await.unwrap();
    rig.pass(Duration::from_secs(20)).await;
    write(&engine, node, 0, b"content").await;
    let waits = || engine.core.stack.load().open().count() > 0;
    rig.pass(Duration::from_secs(29)).await;
    assert!(waits(), "a generation that was open for long does not go early");
    rig.pass(Duration::from_secs(2)).await;
    assert!(!waits());
}

/// Names, writes, overwrites, removals, checkpoints, a clean close and an opening. Tells `acked` what is durable.
async fn history(rig: &Rig, acked: &Acked) {
    let mut engine = match rig.try_open(false, false).await {
        Ok((engine, _)) => engine,
        Err(OpenError::NotCreated) => rig.create().await,
        Err(error) => panic!("{error}"),
    };
    for round in 0..3u64 {
        let name = format!("file{round}");
        let node = make(&engine, &name).await;
        acked.lock().insert(name.clone(), Vec::new());
        let mut content = bytes(round + 7, 200_000);
        let pieces: Vec<(usize, Vec<u8>)> = content.chunks(50_000).map(<[u8]>::to_vec).enumerate().collect();
        for (piece, data) in pieces {
            let done = engine
                .write(&Caller::root(), node, piece as u64 * 50_000, data.into(), Stability::Unstable)
                .await
                .expect("a write");
            assert!(done.value.count == 50_000);
        }
        let done = engine.commit(&Caller::root(), node).await.expect("a commit");
        engine.durable(done.position).await.expect("a log");
        acked.lock().insert(name.clone(), content.clone());
        if engine.checkpoint().await.is_err() {
            return;
        }
        // One call, one entry: there whole or not at all.
        let patch = bytes(round + 70, 30_000);
        content[60_000..90_000].copy_from_slice(&patch);
        acked.lock().remove(&name);
        write(&engine, node, 60_000, &patch).await;
        acked.lock().insert(name, content);
        if round == 1 {
            acked.lock().remove("file0");
            let done = engine.remove(&Caller::root(), root(&engine), b"file0").await.expect("a removal");
            engine.durable(done.position).await.expect("a log");
            if engine.close().await.is_err() {
                return;
            }
            engine = rig.open().await.0;
        }
    }
    let _ = engine.close().await;
}

/// Runs [`history`], or without `acked` an opening only, until the crash point that comes `nth`. Gives its name, or
/// `None` if there are fewer.
async fn crash_at(rig: &mut Rig, acked: Option<&Acked>, nth: usize) -> Option<&'static str> {
    let (count, crashed) = (Arc::new(AtomicUsize::new(0)), Arc::new(Notify::new()));
    let place = Arc::new(Mutex::new(None));
    let (counting, telling, noting) = (count, crashed.clone(), place.clone());
    rig.config.crash_points = Some(Arc::new(move |name| {
        let reached = counting.fetch_add(1, Ordering::Relaxed) >= nth;
        if reached {
            noting.lock().get_or_insert(name);
            telling.notify_one();
        }
        reached
    }));
    let run = async {
        match acked {
            Some(acked) => history(rig, acked).await,
            None => {
                // Whether there is a store already depends on where the first crash was.
                if let Err(OpenError::NotCreated) = rig.try_open(false, false).await {
                    rig.create().await;
                }
                settle().await;
            }
        }
    };
    tokio::select! {
        biased;
        () = crashed.notified() => {}
        () = run => {}
    }
    rig.crash();
    rig.config.crash_points = None;
    *place.lock()
}

#[tokio::test]
async fn a_crash_at_any_point_loses_nothing_that_was_told_to_be_durable() {
    let mut met = BTreeMap::new();
    for nth in 0.. {
        let (mut rig, acked) = (Rig::new(), Acked::default());
        let Some(place) = crash_at(&mut rig, Some(&acked), nth).await else { break };
        *met.entry(place).or_insert(0) += 1;
        // A second crash soon after, in the recovery from the first.
        let second = crash_at(&mut rig, None, nth % 7).await;
        let (engine, _) = match rig.try_open(false, false).await {
            Err(OpenError::NotCreated) => rig.try_create().await.unwrap(),
            opened => opened.unwrap_or_else(|error| panic!("after {place}, then {second:?}: {error}")),
        };
        check_files(&engine, &acked).await;
        engine.checkpoint().await.unwrap_or_else(|error| panic!("after {place}: {error}"));
        check_store(&rig);
        engine.close().await.unwrap();
        rig.crash();
        let (engine, report) = rig.open().await;
        assert!(report.clean, "after {place}");
        check_files(&engine, &acked).await;
        check_no_orphans(&rig);
        rig.crash();
    }
    assert!(met.values().sum::<i32>() > 40, "{met:?}");
    for place in ["segments are written", "before the batch", "the batch is durable", "the log is trimmed"] {
        assert!(met.contains_key(place), "{place} was never met: {met:?}");
    }
}

#[tokio::test]
async fn a_batch_whose_answer_was_lost_is_believed_if_it_is_there_and_repeated_if_not() {
    for fate in [CommitFate::FailAfter, CommitFate::FailBefore] {
        let rig = Rig::new();
        let engine = rig.create().await;
        let node = make(&engine, "file").await;
        let content = bytes(3, 400_000);
        write(&engine, node, 0, &content).await;
        let failed = Arc::new(AtomicUsize::new(0));
        let failing = failed.clone();
        rig.disk.set_commit_hook(Some(Arc::new(move |_| {
            let first = failing.fetch_add(1, Ordering::Relaxed) == 0;
            Box::pin(std::future::ready(if first { fate } else { CommitFate::Done }))
        })));
        engine.checkpoint().await.unwrap();
        let failures = engine.status().checkpoints.failures;
        assert_eq!(failures, u64::from(fate == CommitFate::FailBefore), "{fate:?}");
        check_store(&rig);
        check_no_orphans(&rig);
        assert!(read(&engine, node, 0, 1 << 20).await == content);
        engine.close().await.unwrap();
        rig.crash();
        assert!(read(&rig.open().await.0, node, 0, 1 << 20).await == content);
    }
}

/// A rig whose store fails as `decide` says, by the count of PUTs of segments.
pub fn failing(decide: impl Fn(usize) -> Effect + Send + Sync + 'static) -> Rig {
    let mut rig = Rig::new();
    let puts = AtomicUsize::new(0);
    let faults = move |operation: tarn_store::operation::Operation<'_>| {
        let segment = operation.kind == Call::Put && operation.name.starts_with("segments/");
        let effect = if segment { decide(puts.fetch_add(1, Ordering::Relaxed)) } else { Effect::None };
        Fault { delay: Duration::ZERO, effect }
    };
    let store: Arc<dyn Store> = rig.memory.clone();
    rig.store = Arc::new(FaultStore::new(store, rig.clock.clone(), Arc::new(faults)));
    rig
}

#[tokio::test]
async fn a_store_that_fails_is_tried_again_and_what_it_half_did_goes() {
    let effects: [fn() -> Effect; 3] = [
        || Effect::After,
        || Effect::Before(StoreError::Unavailable("away".into())),
        || Effect::Before(StoreError::Full("full".into())),
    ];
    for effect in effects {
        let rig = failing(move |nth| if nth < 2 { effect() } else { Effect::None });
        let engine = rig.create().await;
        let node = make(&engine, "file").await;
        let content = bytes(3, 600_000);
        write(&engine, node, 0, &content).await;
        let failed = engine.checkpoint().await.unwrap_err();
        let full = matches!(effect(), Effect::Before(StoreError::Full(_)));
        assert_eq!(engine.core.health.store_full.load(Ordering::Relaxed), full, "{failed}");
        // Writes go on meanwhile, unless there is no space for them.
        let more = engine.write(&Caller::root(), node, 900_000, Bytes::from_static(b"more"), Stability::File).await;
        assert_eq!(more.is_err(), full);
        for _ in 0..20 {
            rig.pass(Duration::from_secs(1)).await;
        }
        engine.checkpoint().await.unwrap();
        assert!(!engine.core.health.store_full.load(Ordering::Relaxed));
        check_store(&rig);
        check_no_orphans(&rig);
        assert!(read(&engine, node, 0, 600_000).await == content);
    }
}

#[tokio::test]
async fn a_failure_is_shown_before_what_it_left_is_deleted() {
    let mut rig = Rig::new();
    rig.config.segment_bytes = 64 << 10;
    let away = Arc::new(AtomicBool::new(true));
    let deletes = Arc::new(AtomicUsize::new(0));
    let (gone, asked) = (away.clone(), deletes.clone());
    let faults = move |operation: tarn_store::operation::Operation<'_>| {
        if !gone.load(Ordering::Relaxed) || !operation.name.starts_with("segments/") {
            return Fault::default();
        }
        if operation.kind == Call::Delete {
            asked.fetch_add(1, Ordering::Relaxed);
            let effect = Effect::Before(StoreError::Unavailable("away".into()));
            return Fault { delay: Duration::from_secs(5), effect };
        }
        Fault { delay: Duration::ZERO, effect: Effect::After }
    };
    rig.store = Arc::new(FaultStore::new(rig.memory.clone(), rig.clock.clone(), Arc::new(faults)));
    let engine = rig.create().await;
    let node = make(&engine, "file").await;
    let content = bytes(3, 3_000_000);
    for (nth, piece) in content.chunks(500_000).enumerate() {
        write(&engine, node, nth as u64 * 500_000, piece).await;
    }
    let checkpoint = tokio::spawn({
        let engine = engine.clone();
        async move { engine.checkpoint().await }
    });
    rig.pass(Duration::from_secs(1)).await;
    assert!(engine.keeper.last().0.is_some() && !checkpoint.is_finished());
    for _ in 0..100 {
        rig.pass(Duration::from_secs(1)).await;
    }
    assert!(checkpoint.await.unwrap().is_err());
    // Each attempt leaves some, and each asks for a few of them only.
    let attempts = engine.keeper.totals().failures as usize;
    assert!((1..=8 * attempts).contains(&deletes.load(Ordering::Relaxed)), "{deletes:?} in {attempts}");
    away.store(false, Ordering::Relaxed);
    all_are_deleted(&rig, &engine, node).await;
    assert!(read(&engine, node, 2_500_000, 500_000).await == content[2_500_000..]);
}

/// Makes checkpoints until those have had their turn that many failed ones left.
async fn all_are_deleted(rig: &Rig, engine: &Engine, node: Node) {
    for nth in 0..20 {
        rig.pass(Duration::from_secs(60)).await;
        write(engine, node, nth, b"more").await;
        engine.checkpoint().await.unwrap();
    }
    // Some were compacted meanwhile, which `check_store` knows nothing of.
    super::reclaim::clean(engine).await;
    check_no_orphans(rig);
}

#[tokio::test]
async fn a_store_that_is_gone_does_not_say_that_an_object_is() {
    let fails = Arc::new(AtomicBool::new(true));
    let failing = fails.clone();
    let mut rig = Rig::new();
    let faults = move |operation: tarn_store::operation::Operation<'_>| {
        if !failing.load(Ordering::Relaxed) || !operation.name.starts_with("segments/") {
            return Fault::default();
        }
        let away = Effect::Before(StoreError::Unavailable("away".into()));
        Fault { delay: Duration::ZERO, effect: if operation.kind == Call::Delete { away } else { Effect::After } }
    };
    rig.store = Arc::new(FaultStore::new(rig.memory.clone(), rig.clock.clone(), Arc::new(faults)));
    let engine = rig.create().await;
    let node = make(&engine, "file").await;
    write(&engine, node, 0, &bytes(3, 100_000)).await;
    assert!(engine.checkpoint().await.is_err());
    let objects = rig.memory.contents();
    assert!(objects.iter().any(|(name, _)| name.starts_with("segments/")), "one that nothing names");
    for (name, _) in &objects {
        rig.memory.delete(name).await.unwrap();
    }
    fails.store(false, Ordering::Relaxed);
    for _ in 0..60 {
        rig.pass(Duration::from_secs(60)).await;
    }
    assert!(matches!(engine.checkpoint().await, Err(CheckpointError::Gone(_))));
    for (name, bytes) in objects {
        rig.memory.put(&name, bytes, PutMode::Overwrite).await.unwrap();
    }
    all_are_deleted(&rig, &engine, node).await;
}

#[tokio::test]
async fn a_store_that_is_away_at_the_end_leaves_everything_in_the_log() {
    let rig = failing(|_| Effect::Before(StoreError::Unavailable("away".into())));
    let engine = rig.create().await;
    let node = make(&engine, "file").await;
    write(&engine, node, 0, b"content").await;
    let verifier = engine.write_verifier();
    let closing = engine.clone();
    let closed = tokio::spawn(async move { closing.close().await });
    for _ in 0..10 {
        rig.pass(Duration::from_secs(1)).await;
    }
    assert!(matches!(closed.await.unwrap(), Err(CheckpointError::Store(_))));
    rig.crash();
    let (engine, report) = rig.open().await;
    assert!(report.clean && report.entries > 0, "{report:?}");
    assert_eq!(engine.write_verifier(), verifier);
    assert_eq!(read(&engine, node, 0, 100).await, b"content");
}

#[tokio::test]
async fn a_damaged_record_is_an_error_that_is_told_never_other_bytes() {
    let mut rig = Rig::new();
    rig.config.record_cache_bytes = 0;
    let engine = rig.create().await;
    let node = make(&engine, "file").await;
    write(&engine, node, 0, &bytes(1, 100_000)).await;
    engine.checkpoint().await.unwrap();
    let segment = rig.memory.contents().into_iter().find(|(name, _)| name.starts_with("segments/")).unwrap().0;
    assert!(rig.memory.tamper(&segment, |bytes| bytes[500] ^= 1));
    assert!(engine.read(&Caller::root(), node, 0, 1000).await.is_err());
    assert!(engine.core.health.damage.lock()[0].contains(&segment));
    settle().await;
}

#[tokio::test]
async fn nobody_is_held_before_a_checkpoint_has_begun() {
    for percent in [40, 80] {
        let mut rig = Rig::new();
        rig.config.log_fill_percent = percent;
        let engine = rig.create().await;
        let node = make(&engine, "file").await;
        let mut written = 0;
        while engine.keeper.totals().count == 0 {
            let free = (0..8).all(|_| engine.core.hold(1 << 20).is_none());
            assert!(free, "{written} of {} at {percent} %", engine.log().capacity());
            write(&engine, node, written, &bytes(written, 100_000)).await;
            written += 100_000;
        }
        assert!(written > engine.log().capacity() / 4, "{written}");
        rig.crash();
    }
}
