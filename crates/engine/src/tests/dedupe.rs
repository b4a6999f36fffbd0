//! Dedupe: content is stored once, counts follow pointers, and nothing shared is lost with one of its files.

use std::ops::ControlFlow;
use std::time::Duration;

use tarn_base::ids::SegmentId;
use tarn_data::{RecordPointer, SegmentValue, object_name};
use tarn_store::Store;
use tarn_vfs::{Caller, FileSystem, Node, SetAttr, VolumeSettings};

use super::opening::{look, make, read, root, write};
use super::presence::{put_back, take_away};
use super::survival::keep_time;
use crate::engine::Engine;
use crate::key::{Key, Kind};
use crate::testing::Rig;
use crate::value::CountRecord;

const RECORD: usize = 64 << 10;

/// A store whose volume has dedupe on.
async fn deduped(rig: &Rig) -> std::sync::Arc<Engine> {
    let engine = rig.create().await;
    set(&engine, true).await;
    engine
}

async fn set(engine: &Engine, dedupe: bool) {
    engine.set_volume("vol", VolumeSettings { dedupe, ..VolumeSettings::default() }).await.unwrap();
}

/// Content that does not shrink, `records` long; each seed its own.
fn content(seed: u64, records: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let step = |_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    (0..records * RECORD).map(step).collect()
}

async fn file(engine: &Engine, name: &str, data: &[u8]) -> Node {
    let node = make(engine, name).await;
    for (index, part) in data.chunks(RECORD).enumerate() {
        write(engine, node, (index * RECORD) as u64, part).await;
    }
    node
}

async fn remove(engine: &Engine, name: &str) {
    let effect = engine.remove(&Caller::root(), root(engine), name.as_bytes()).await.unwrap();
    engine.durable(effect.position).await.unwrap();
}

async fn all(engine: &Engine, node: Node) -> Vec<u8> {
    let mut out = Vec::new();
    loop {
        let part = read(engine, node, out.len() as u64, 1 << 20).await;
        if part.is_empty() {
            return out;
        }
        out.extend(part);
    }
}

async fn clean(engine: &Engine) {
    let report = engine.fsck(true, |_| ()).await.unwrap();
    assert!(report.is_clean(), "{:?}", report.findings);
}

/// The count keys: pointers of each.
fn counts(rig: &Rig) -> Vec<u64> {
    let keys = rig.disk.contents().into_iter().map(|(key, value)| (Key::decode(&key).unwrap(), value));
    keys.filter(|(key, _)| key.kind == Kind::Count)
        .map(|(_, value)| CountRecord::decode(&value).unwrap().pointers)
        .collect()
}

fn pointers(rig: &Rig, node: Node) -> Vec<RecordPointer> {
    let keys = rig.disk.contents().into_iter().map(|(key, value)| (Key::decode(&key).unwrap(), value));
    keys.filter(|(key, _)| key.kind == Kind::Pointer && key.a == node.ino.0)
        .map(|(_, value)| RecordPointer::decode(&value).unwrap())
        .collect()
}

fn live_bytes(rig: &Rig) -> u64 {
    let keys = rig.disk.contents().into_iter().map(|(key, value)| (Key::decode(&key).unwrap(), value));
    keys.filter(|(key, _)| key.kind == Kind::Segment)
        .map(|(_, value)| SegmentValue::decode(&value).unwrap().live_bytes)
        .sum()
}

#[tokio::test]
async fn content_is_stored_once_and_lives_as_long_as_one_file_has_it() {
    let rig = Rig::new();
    let engine = deduped(&rig).await;
    let data = content(1, 3);
    let first = file(&engine, "first", &data).await;
    let second = file(&engine, "second", &data).await;
    // Within one checkpoint.
    let done = engine.checkpoint().await.unwrap();
    assert_eq!((done.records, live_bytes(&rig)), (6, 3 * RECORD as u64));
    assert_eq!(counts(&rig), [2, 2, 2]);
    // And with what the store had before.
    let third = file(&engine, "third", &data).await;
    engine.checkpoint().await.unwrap();
    assert_eq!((counts(&rig), live_bytes(&rig)), (vec![3, 3, 3], 3 * RECORD as u64));
    assert_eq!(engine.status().dedupe.hits, 6);
    assert_eq!(engine.status().dedupe.hit_bytes, 6 * RECORD as u64);
    clean(&engine).await;
    engine.reclaim_now().await.unwrap();
    let volume = &engine.volume_list()[0];
    let stored = volume.stored.unwrap();
    assert_eq!((stored.stored_bytes, stored.saved_bytes), (3 * RECORD as u64, 6 * RECORD as u64));
    assert_eq!(volume.usage.bytes, 9 * RECORD as u64, "what is charged is logical");

    for (name, left) in [("first", vec![2, 2, 2]), ("third", vec![])] {
        remove(&engine, name).await;
        engine.reclaim_now().await.unwrap();
        assert_eq!((counts(&rig), live_bytes(&rig)), (left, 3 * RECORD as u64));
        clean(&engine).await;
    }
    assert_eq!(all(&engine, second).await, data);
    remove(&engine, "second").await;
    engine.reclaim_now().await.unwrap();
    assert_eq!((counts(&rig), live_bytes(&rig)), (vec![], 0));
    clean(&engine).await;
    let _ = (first, third);
}

#[tokio::test]
async fn overwriting_cutting_and_writing_the_same_again_move_counts() {
    let rig = Rig::new();
    let engine = deduped(&rig).await;
    let data = content(2, 4);
    let a = file(&engine, "a", &data).await;
    let b = file(&engine, "b", &data).await;
    engine.checkpoint().await.unwrap();
    // The same bytes again: the same pointers, the same counts.
    let before = pointers(&rig, a);
    write(&engine, a, 0, &data[..RECORD]).await;
    engine.checkpoint().await.unwrap();
    assert_eq!((pointers(&rig, a), counts(&rig)), (before, vec![2; 4]));
    // Record 0 of both goes and comes back elsewhere, in one batch.
    write(&engine, a, 0, &data[RECORD..2 * RECORD]).await;
    write(&engine, b, 0, &data[RECORD..2 * RECORD]).await;
    write(&engine, b, 3 * RECORD as u64, &data[..RECORD]).await;
    engine.checkpoint().await.unwrap();
    let mut counted = counts(&rig);
    counted.sort_unstable();
    // Record 1 has four pointers, record 2 two, records 0 and 3 one each.
    assert_eq!((counted, live_bytes(&rig)), (vec![2, 4], 4 * RECORD as u64));
    clean(&engine).await;
    // A part of a record is overwritten: its pointer goes, the other stays.
    write(&engine, a, RECORD as u64 + 5, b"other").await;
    let cut = SetAttr { size: Some(3 * RECORD as u64), ..SetAttr::default() };
    engine.setattr(&Caller::root(), b, cut).await.unwrap();
    engine.reclaim_now().await.unwrap();
    clean(&engine).await;
    let mut expected = data.clone();
    expected.copy_within(RECORD..2 * RECORD, 0);
    let of_b = expected[..3 * RECORD].to_vec();
    expected[RECORD + 5..RECORD + 10].copy_from_slice(b"other");
    assert_eq!(all(&engine, a).await, expected);
    assert_eq!(all(&engine, b).await, of_b);
}

#[tokio::test]
async fn records_that_moved_are_found_again_after_an_opening() {
    let mut rig = Rig::new();
    rig.config.hold = std::time::Duration::ZERO;
    let engine = deduped(&rig).await;
    let data = content(3, 2);
    // A segment of which little lives: its records are moved.
    file(&engine, "kept", &data).await;
    file(&engine, "filler", &content(4, 2)).await;
    engine.checkpoint().await.unwrap();
    remove(&engine, "filler").await;
    write(&engine, look(&engine, "kept").await, RECORD as u64, &content(5, 1)).await;
    let done = engine.reclaim_now().await.unwrap();
    assert!(done.moved > 0, "{done:?}");
    rig.clock.advance(std::time::Duration::from_secs(1));
    engine.reclaim_now().await.unwrap();
    // While it is known where it was first: by the index as the checkpoint filled it.
    let second = file(&engine, "second", &data[..RECORD]).await;
    engine.checkpoint().await.unwrap();
    assert_eq!(engine.status().dedupe.hits, 1);
    clean(&engine).await;
    engine.close().await.unwrap();
    rig.crash();

    // By the directory of the segment that it was moved to.
    let (engine, _) = rig.open().await;
    engine.reclaim_now().await.unwrap();
    let third = file(&engine, "third", &data[..RECORD]).await;
    engine.checkpoint().await.unwrap();
    assert_eq!((engine.status().dedupe.hits, counts(&rig)), (1, vec![3]));
    clean(&engine).await;
    for node in [second, third] {
        assert_eq!(all(&engine, node).await, data[..RECORD]);
    }
    for name in ["kept", "second", "third"] {
        remove(&engine, name).await;
        engine.reclaim_now().await.unwrap();
        clean(&engine).await;
    }
    assert_eq!(live_bytes(&rig), 0);
}

#[tokio::test]
async fn what_died_is_not_pointed_to_and_what_was_switched_on_late_is_found() {
    let rig = Rig::new();
    let engine = rig.create().await;
    let data = content(7, 2);
    file(&engine, "before", &data).await;
    file(&engine, "again", &data).await;
    engine.checkpoint().await.unwrap();
    assert_eq!(live_bytes(&rig), 4 * RECORD as u64, "off, it shares nothing");
    set(&engine, true).await;
    engine.reclaim_now().await.unwrap();
    file(&engine, "later", &data).await;
    engine.checkpoint().await.unwrap();
    assert_eq!((engine.status().dedupe.hits, counts(&rig)), (2, vec![2, 2]));
    for name in ["before", "again", "later"] {
        remove(&engine, name).await;
    }
    engine.reclaim_now().await.unwrap();
    assert_eq!(live_bytes(&rig), 0);
    // The index still knows the content; nothing of it lives.
    let node = file(&engine, "anew", &data).await;
    engine.checkpoint().await.unwrap();
    assert_eq!((engine.status().dedupe.hits, live_bytes(&rig)), (2, 2 * RECORD as u64));
    assert_eq!(all(&engine, node).await, data);
    clean(&engine).await;
}

#[tokio::test]
async fn a_crash_before_or_after_the_batch_leaves_counts_that_agree() {
    for point in ["segments are written", "before the batch", "the batch is durable", "the session image is durable"] {
        let mut rig = Rig::new();
        let engine = deduped(&rig).await;
        let data = content(8, 2);
        file(&engine, "old", &data).await;
        engine.checkpoint().await.unwrap();
        engine.close().await.unwrap();
        rig.crash();
        rig.config.crash_points = Some(std::sync::Arc::new(move |name| name == point));
        let (engine, _) = rig.open().await;
        let node = file(&engine, "new", &[&data[..], &data[..]].concat()).await;
        let running = engine.clone();
        let checkpoint = tokio::spawn(async move { running.checkpoint().await });
        crate::testing::settle().await;
        checkpoint.abort();
        rig.crash();
        rig.config.crash_points = None;
        let (engine, _) = rig.open().await;
        assert_eq!(all(&engine, node).await, [&data[..], &data[..]].concat(), "{point}");
        engine.reclaim_now().await.unwrap();
        clean(&engine).await;
        remove(&engine, "new").await;
        engine.reclaim_now().await.unwrap();
        assert_eq!((counts(&rig), live_bytes(&rig)), (vec![], 2 * RECORD as u64), "{point}");
        clean(&engine).await;
    }
}

#[tokio::test]
async fn damage_names_every_file_that_shares_it_and_is_not_shared_further() {
    let rig = Rig::new();
    let engine = deduped(&rig).await;
    let data = content(9, 1);
    let one = file(&engine, "one", &data).await;
    file(&engine, "two", &data).await;
    engine.checkpoint().await.unwrap();
    let RecordPointer { segment, offset, .. } = pointers(&rig, one)[0];
    spoil(&rig, segment, offset as usize + 100).await;
    let report = engine.scrub(|_| ControlFlow::Continue(())).await.unwrap();
    assert_eq!(report.damage.len(), 1, "{report:?}");
    assert!(report.damage[0].contains("/one") && report.damage[0].contains("/two"), "{report:?}");
    // The same content is stored anew: a good copy must not hang on a bad one.
    let three = file(&engine, "three", &data).await;
    engine.checkpoint().await.unwrap();
    assert_ne!(pointers(&rig, three)[0].segment, segment);
    assert_eq!(all(&engine, three).await, data);
}

#[tokio::test]
async fn a_file_put_right_after_a_restart_does_not_hang_on_the_damage() {
    let rig = Rig::new();
    let engine = deduped(&rig).await;
    let data = content(10, 2);
    let one = file(&engine, "one", &data).await;
    engine.close().await.unwrap();
    rig.crash();
    // Bad since nobody knows when, and found by nobody yet: only the new life's look at it can tell.
    let RecordPointer { segment, offset, .. } = pointers(&rig, one)[0];
    spoil(&rig, segment, offset as usize + 100).await;
    let (engine, _) = rig.open().await;
    engine.reclaim_now().await.unwrap();
    assert_eq!(engine.status().dedupe_index.entries, 2, "filled from the directories");
    for (index, part) in data.chunks(RECORD).enumerate() {
        write(&engine, one, (index * RECORD) as u64, part).await;
    }
    engine.checkpoint().await.unwrap();
    let now = pointers(&rig, one);
    assert_ne!(now[0].segment, segment, "stored anew");
    assert_eq!(now[1].segment, segment, "the other one is whole");
    let totals = engine.status().dedupe;
    assert_eq!((totals.hits, totals.read_back), (1, 1));
    assert_eq!(all(&engine, one).await, data);
    clean(&engine).await;
    // What was read back is trusted until damage is met; that was just before it was, so it is looked at once more at most.
    let before = engine.status().dedupe.read_back;
    for name in ["two", "three"] {
        file(&engine, name, &data).await;
        engine.checkpoint().await.unwrap();
    }
    assert!(engine.status().dedupe.read_back <= before + 1);
    assert_eq!(live_bytes(&rig), 2 * RECORD as u64);
    clean(&engine).await;
}

#[tokio::test]
async fn a_store_that_is_away_shares_nothing_unseen() {
    let rig = Rig::new();
    let engine = deduped(&rig).await;
    let data = content(11, 1);
    let one = file(&engine, "one", &data).await;
    engine.close().await.unwrap();
    rig.crash();
    let (engine, _) = rig.open().await;
    engine.reclaim_now().await.unwrap();
    let two = file(&engine, "two", &data).await;
    let RecordPointer { segment, .. } = pointers(&rig, one)[0];
    let name = tarn_data::object_name(segment);
    let (bytes, _) = rig.store.get(&name).await.unwrap();
    rig.store.delete(&name).await.unwrap();
    engine.checkpoint().await.unwrap();
    assert_ne!(pointers(&rig, two)[0].segment, segment, "what is missing is stored again");
    rig.store.put(&name, bytes, tarn_store::PutMode::Overwrite).await.unwrap();
    assert_eq!(all(&engine, two).await, data);
    clean(&engine).await;
}

#[tokio::test]
async fn nothing_new_hangs_on_what_a_waiting_checkpoint_misses() {
    let mut rig = Rig::new();
    rig.config.record_cache_bytes = 0;
    rig.config.missing = Duration::ZERO;
    let engine = deduped(&rig).await;
    keep_time(&rig);
    let first = file(&engine, "first", &content(1, 1)).await;
    let copy = make(&engine, "copy").await;
    engine.checkpoint().await.unwrap();
    // A failure that was met before makes nothing doubtful again.
    let objects = take_away(&rig, "segments/").await;
    assert!(engine.read(&Caller::root(), first, 0, 10).await.is_err());
    put_back(&rig, "segments/", &objects).await;
    // So many records that the last file is not read in an attempt that fails of the first.
    let middle = file(&engine, "middle", &content(2, 200)).await;
    let last = file(&engine, "last", &content(3, 2)).await;
    engine.checkpoint().await.unwrap();
    let (kept, lost) = (pointers(&rig, middle)[0].segment, pointers(&rig, last)[0].segment);
    assert_ne!(kept, lost);
    for segment in [pointers(&rig, first)[0].segment, lost] {
        rig.memory.delete(&object_name(segment)).await.unwrap();
    }
    for (offset, data) in content(3, 2).chunks(RECORD).enumerate() {
        write(&engine, copy, (offset * RECORD) as u64, data).await;
    }
    for index in 0..200 {
        write(&engine, middle, index * RECORD as u64 + 50, b"new").await;
    }
    write(&engine, first, 50, b"new").await;
    write(&engine, last, 50, b"new").await;
    while engine.checkpoint().await.is_err() {
        rig.pass(Duration::from_secs(1)).await;
    }
    assert!(all(&engine, copy).await == content(3, 2));
    assert!(engine.read(&Caller::root(), last, 0, 10).await.is_err(), "it is lost");
    rig.crash();
}

/// Changes one byte of a segment's object.
async fn spoil(rig: &Rig, segment: SegmentId, at: usize) {
    let name = tarn_data::object_name(segment);
    let (bytes, _) = rig.store.get(&name).await.unwrap();
    let mut bytes = bytes.to_vec();
    bytes[at] ^= 1;
    rig.store.put(&name, bytes.into(), tarn_store::PutMode::Overwrite).await.unwrap();
}

#[tokio::test]
async fn many_small_segments_are_put_together() {
    let mut rig = Rig::new();
    rig.config.segment_bytes = 4 << 20;
    rig.config.hold = std::time::Duration::ZERO;
    let engine = rig.create().await;
    let mut nodes = Vec::new();
    for number in 0..64u64 {
        let node = file(&engine, &format!("f{number}"), &content(100 + number, 1)).await;
        nodes.push((node, content(100 + number, 1)));
        engine.checkpoint().await.unwrap();
        if number % 8 == 7 {
            engine.reclaim_now().await.unwrap();
            rig.clock.advance(std::time::Duration::from_secs(1));
            engine.reclaim_now().await.unwrap();
        }
    }
    let objects = rig.store.list("segments/").await.unwrap().len();
    assert!(objects <= 8, "{objects} objects for 4 MiB");
    for (node, data) in &nodes {
        assert_eq!(&all(&engine, *node).await, data);
    }
    clean(&engine).await;
}
