//! Reclaim: whatever is truncated, removed or overwritten gives its space back, and nothing else goes.
//!
//! The random walk's seed decides operations, checkpoints, passes of reclaim beside them, and crashes. After each step
//! files read as their model says; after some, the full walk finds nothing. Odd seeds have a store that was full before each
//! checkpoint, which then takes all closed generations together. Replay: call `wander` with the seed.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use tarn_base::ids::VolumeId;
use tarn_data::{SegmentState, SegmentValue, parse_object_name};
use tarn_vfs::{Caller, CreateMode, FileSystem, Node, SetAttr, Stability, VolumeSettings};

use super::opening::{make, read, write};
use crate::admin::VolumeSpec;
use crate::config::Space;
use crate::engine::Engine;
use crate::key::{Key, Kind, segment_id};
use crate::testing::Rig;

const HOLD: Duration = Duration::from_secs(15 * 60);
/// Bytes of the small volume's records.
const RECORD: usize = 4096;

pub async fn clean(engine: &Engine) -> crate::FsckCounts {
    let report = engine.fsck(true, |_| ()).await.expect("a walk");
    assert!(report.is_clean(), "{:#?}", report.findings);
    report.counts
}

pub async fn set_size(engine: &Engine, node: Node, size: u64) {
    let set = SetAttr { size: Some(size), ..SetAttr::default() };
    let done = engine.setattr(&Caller::root(), node, set).await.expect("a size");
    engine.durable(done.position).await.expect("a log that works");
}

async fn remove(engine: &Engine, dir: Node, name: &str) {
    let done = engine.remove(&Caller::root(), dir, name.as_bytes()).await.expect("a name that goes");
    engine.durable(done.position).await.expect("a log that works");
}

fn used(engine: &Engine) -> (u64, u64) {
    let volume = engine.volume_list().into_iter().next().expect("a volume");
    (volume.usage.bytes, volume.usage.inodes)
}

/// Names of segment objects that are there.
fn objects(rig: &Rig) -> Vec<String> {
    let names = rig.memory.contents().into_iter().map(|(name, _)| name);
    names.filter(|name| parse_object_name(name).is_some()).collect()
}

fn segments(rig: &Rig) -> Vec<(tarn_base::ids::SegmentId, SegmentValue)> {
    let contents = rig.disk.contents().into_iter();
    let keys = contents.filter_map(|(key, value)| Some((Key::decode(&key)?, value)));
    let segments = keys.filter(|(key, _)| key.kind == Kind::Segment);
    segments.map(|(key, value)| (segment_id(key.a), SegmentValue::decode(&value).expect("a segment"))).collect()
}

/// Bytes that compression does not make smaller.
pub fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let step = |_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    (0..len).map(step).collect()
}

async fn reopened(rig: &Rig, engine: Arc<Engine>) -> Arc<Engine> {
    drop(engine);
    rig.crash();
    rig.open().await.0
}

#[tokio::test]
async fn the_space_of_cut_overwritten_and_removed_files_comes_back() {
    for crash in [false, true] {
        let rig = Rig::new();
        let mut engine = rig.create().await;
        let root = engine.volumes()[0].root;
        let mut nodes = Vec::new();
        for (nth, name) in ["part", "whole", "gone", "over"].iter().enumerate() {
            nodes.push(make(&engine, name).await);
            write(&engine, nodes[nth], 0, &noise(nth as u64, 1 << 20)).await;
        }
        clean(&engine).await;
        assert_eq!(used(&engine), (4 << 20, 5));
        set_size(&engine, nodes[0], 300_000).await;
        set_size(&engine, nodes[1], 0).await;
        remove(&engine, root, "gone").await;
        write(&engine, nodes[3], 0, &noise(9, 512 << 10)).await;
        if crash {
            engine = reopened(&rig, engine).await;
        }
        let counts = clean(&engine).await;
        assert_eq!(counts.maps, 3);
        if crash {
            engine = reopened(&rig, engine).await;
        }
        let done = engine.reclaim_now().await.unwrap();
        // 300,000 bytes are five records of 64 KiB.
        assert_eq!((done.pointers, done.cuts), (11 + 16 + 16, 3));
        let counts = clean(&engine).await;
        assert_eq!((counts.maps, counts.pointers), (0, 5 + 16));
        assert_eq!(used(&engine), (21 << 16, 4));
        // What was cut off reads as zeros when the file grows over it.
        write(&engine, nodes[0], 700_000, b"end").await;
        let content = read(&engine, nodes[0], 0, 1 << 20).await;
        assert!(content[..300_000] == noise(0, 1 << 20)[..300_000]);
        assert!(content[300_000..700_000].iter().all(|byte| *byte == 0) && &content[700_000..] == b"end");
        for name in ["part", "whole", "over"] {
            remove(&engine, root, name).await;
        }
        engine.reclaim_now().await.unwrap();
        clean(&engine).await;
        rig.clock.advance(HOLD);
        engine.reclaim_now().await.unwrap();
        assert_eq!(used(&engine), (0, 1));
        assert_eq!(objects(&rig), Vec::<String>::new());
        assert_eq!(segments(&rig), []);
        clean(&engine).await;
    }
}

#[tokio::test]
async fn pointers_behind_the_end_that_a_cut_left_there_die_with_what_is_written_over_them() {
    let rig = Rig::new();
    let engine = rig.create().await;
    let node = make(&engine, "file").await;
    let put = async |at: u64, seed, len: usize| {
        for (nth, part) in noise(seed, len << 16).chunks(1 << 20).enumerate() {
            write(&engine, node, (at << 16) + ((nth as u64) << 20), part).await;
        }
    };
    put(0, 1, 40).await;
    engine.checkpoint().await.unwrap();
    set_size(&engine, node, 1 << 16).await;
    engine.checkpoint().await.unwrap();
    put(2, 2, 30).await;
    assert_eq!(clean(&engine).await.pointers, 40, "one that stays, the new ones, and nine that the cut hides");
    engine.reclaim_now().await.unwrap();
    // And appended without one.
    put(32, 3, 20).await;
    assert_eq!(clean(&engine).await.pointers, 51);
    let mut all = noise(1, 1 << 16);
    all.resize(2 << 16, 0);
    all.extend(noise(2, 30 << 16).into_iter().chain(noise(3, 20 << 16)));
    for (nth, part) in all.chunks(1 << 20).enumerate() {
        assert!(read(&engine, node, (nth as u64) << 20, part.len() as u32).await == part, "MiB {nth}");
    }
}

#[tokio::test]
async fn a_cut_waits_for_dirty_data_over_its_pointers_and_keeps_the_charge_right() {
    let rig = Rig::new();
    let engine = rig.create().await;
    let node = make(&engine, "file").await;
    write(&engine, node, 0, &noise(1, 8 << 16)).await;
    engine.checkpoint().await.unwrap();
    set_size(&engine, node, 1 << 16).await;
    engine.checkpoint().await.unwrap();
    // Over three pointers that are hidden: they carry the charge on.
    write(&engine, node, 3 << 16, &noise(2, 3 << 16)).await;
    engine.core.close_generation().unwrap();
    write(&engine, node, 4 << 16, b"newest").await;
    let mut done = crate::reclaim::Reclaimed::default();
    engine.reclaim.work_cuts_off(&mut done).await.unwrap();
    assert_eq!((done.pointers, done.cuts), (4, 0));
    assert_eq!(used(&engine).0, 4 << 16);
    let content = read(&engine, node, 0, 1 << 20).await;
    let check = |content: &[u8]| {
        assert!(content[1 << 16..3 << 16].iter().all(|byte| *byte == 0));
        assert!(content[3 << 16..4 << 16] == noise(2, 3 << 16)[..1 << 16]);
        assert_eq!(&content[4 << 16..][..6], b"newest");
        assert_eq!(content.len(), 6 << 16);
    };
    check(&content);
    assert_eq!(clean(&engine).await.maps, 1);
    assert_eq!(engine.reclaim_now().await.unwrap().cuts, 1);
    assert_eq!(clean(&engine).await.pointers, 4);
    check(&read(&engine, node, 0, 1 << 20).await);
    let engine = reopened(&rig, engine).await;
    check(&read(&engine, node, 0, 1 << 20).await);
    clean(&engine).await;
}

#[tokio::test]
async fn condemned_objects_stay_for_their_hold_time_and_go_by_themselves() {
    let rig = Rig::new();
    let engine = rig.create().await;
    let root = engine.volumes()[0].root;
    let node = make(&engine, "file").await;
    write(&engine, node, 0, &noise(1, 1 << 20)).await;
    engine.checkpoint().await.unwrap();
    let before = objects(&rig);
    assert!(!before.is_empty());
    remove(&engine, root, "file").await;
    // The background loop alone, by time: removal, checkpoint, cuts, checkpoint.
    for _ in 0..60 {
        rig.pass(Duration::from_secs(2)).await;
    }
    assert!(segments(&rig).iter().all(|(_, value)| matches!(value.state, SegmentState::Condemned { .. })));
    assert_eq!(objects(&rig), before);
    let left = |segment: &(_, SegmentValue)| match segment.1.state {
        SegmentState::Condemned { at_ms } => at_ms,
        _ => panic!("{segment:?}"),
    };
    let at_ms = segments(&rig).iter().map(left).min().unwrap();
    let now_ms = tarn_base::world::Clock::now(&*rig.clock).as_millis();
    let rest = HOLD - Duration::from_millis((now_ms - at_ms) as u64);
    rig.pass(rest - Duration::from_secs(3)).await;
    assert_eq!(objects(&rig), before);
    for _ in 0..3 {
        rig.pass(Duration::from_secs(2)).await;
    }
    assert_eq!(objects(&rig), Vec::<String>::new());
    // The keys go with the next batch.
    make(&engine, "other").await;
    engine.checkpoint().await.unwrap();
    assert_eq!(segments(&rig), []);
    assert_eq!(engine.status().segments.map(|totals| totals.live), Some(0));
    clean(&engine).await;
}

/// A volume of such records beside the first.
pub async fn volume_of(engine: &Engine, record_size: u32) -> (VolumeId, Node) {
    let settings = VolumeSettings { record_size, ..VolumeSettings::default() };
    let spec = VolumeSpec { name: "beside".into(), settings, uid: 0, gid: 0, mode: 0o755 };
    let id = engine.create_volume(spec).await.expect("a volume");
    (id, engine.volumes().iter().find(|volume| volume.id == id).expect("the volume").root)
}

pub async fn make_in(engine: &Engine, dir: Node, name: &str) -> Node {
    let made = engine.create(&Caller::root(), dir, name.as_bytes(), CreateMode::Guarded, SetAttr::default());
    made.await.expect("a new file").value.attr.expect("attributes").node
}

#[tokio::test]
async fn moved_records_are_read_under_their_old_names_however_often_they_move() {
    let mut rig = Rig::new();
    rig.config.hold = Duration::ZERO;
    let mut engine = rig.create().await;
    let (id, root) = volume_of(&engine, RECORD as u32).await;
    let mut files = BTreeMap::new();
    for nth in 0..160u64 {
        let node = make_in(&engine, root, &nth.to_string()).await;
        write(&engine, node, 0, &noise(nth, RECORD)).await;
        files.insert(nth, node);
    }
    clean(&engine).await;
    let pointers = |rig: &Rig| -> Vec<_> {
        let contents = rig.disk.contents().into_iter();
        contents.filter(|(key, _)| Key::decode(key).is_some_and(|key| key.kind == Kind::Pointer)).collect()
    };
    for keep in [3, 9, 27] {
        let gone: Vec<u64> = files.keys().copied().filter(|nth| nth % keep != 0).collect();
        for nth in gone {
            files.remove(&nth);
            remove(&engine, root, &nth.to_string()).await;
        }
        let before = objects(&rig);
        let done = engine.reclaim_now().await.unwrap();
        assert_eq!(done.moved, files.len() as u64, "{done:?}");
        let old = pointers(&rig);
        assert_eq!(old.len(), files.len());
        clean(&engine).await;
        // The old objects go; the pointers stay as they are.
        engine.reclaim_now().await.unwrap();
        assert!(objects(&rig).iter().all(|name| !before.contains(name)), "{:?}", objects(&rig));
        assert_eq!(pointers(&rig), old);
        for cold in [false, true] {
            if cold {
                engine.close().await.unwrap();
                engine = reopened(&rig, engine).await;
            }
            engine.core.caches.records.clear();
            for (nth, node) in &files {
                assert!(read(&engine, *node, 0, 1 << 16).await == noise(*nth, RECORD), "file {nth}");
            }
            clean(&engine).await;
        }
    }
    for (key, value) in segments(&rig) {
        if let SegmentState::Forwarding(forwarding) = value.state {
            assert_eq!((forwarding.condemned_at_ms, value.live.count()), (None, 0), "{key}");
        }
    }
    // Nothing is moved that is dense, and what dies there is found through the forwarding.
    assert_eq!(engine.reclaim_now().await.unwrap().moved, 0);
    for nth in files.keys() {
        remove(&engine, root, &nth.to_string()).await;
    }
    engine.reclaim_now().await.unwrap();
    engine.reclaim_now().await.unwrap();
    assert_eq!((segments(&rig), objects(&rig)), (vec![], vec![]));
    assert_eq!(clean(&engine).await.pointers, 0);
    assert_eq!(engine.volume_list().iter().find(|volume| volume.id == id).unwrap().usage.bytes, 0);
}

#[tokio::test]
async fn records_that_die_while_they_are_moved_are_not_brought_back() {
    let mut rig = Rig::new();
    rig.config.hold = Duration::ZERO;
    let engine = rig.create().await;
    let (_, root) = volume_of(&engine, RECORD as u32).await;
    let mut nodes = Vec::new();
    for nth in 0..40u64 {
        nodes.push(make_in(&engine, root, &nth.to_string()).await);
        write(&engine, nodes[nth as usize], 0, &noise(nth, RECORD)).await;
    }
    engine.checkpoint().await.unwrap();
    for nth in 5..40 {
        remove(&engine, root, &nth.to_string()).await;
    }
    engine.checkpoint().await.unwrap();
    let mut done = crate::reclaim::Reclaimed::default();
    engine.reclaim.work_cuts_off(&mut done).await.unwrap();
    engine.checkpoint().await.unwrap();
    // Small files took their pointers along.
    assert_eq!(done.pointers, 0);
    // Copied, but not in a batch yet: two of the five are overwritten.
    engine.reclaim.compact_now(&mut done).await.unwrap();
    assert_eq!(done.moved, 5);
    write(&engine, nodes[0], 0, &noise(100, RECORD)).await;
    write(&engine, nodes[1], 0, &noise(101, RECORD)).await;
    clean(&engine).await;
    engine.reclaim_now().await.unwrap();
    clean(&engine).await;
    let live: u32 = segments(&rig).iter().map(|(_, value)| value.live.count()).sum();
    assert_eq!(live, 5);
    for nth in 0..5u64 {
        let expected = noise(if nth < 2 { 100 + nth } else { nth }, RECORD);
        engine.core.caches.records.clear();
        assert!(read(&engine, nodes[nth as usize], 0, 1 << 16).await == expected);
    }
}

#[tokio::test]
async fn a_crash_while_records_are_moved_leaves_no_object_behind() {
    for place in ["before moved records are written", "moved records are written", "a condemned object is deleted"] {
        let mut rig = Rig::new();
        rig.config.hold = Duration::ZERO;
        rig.config.crash_points = Some(Arc::new(move |name| name == place));
        let engine = rig.create().await;
        let (_, root) = volume_of(&engine, RECORD as u32).await;
        let mut kept = None;
        for nth in 0..20u64 {
            let node = make_in(&engine, root, &nth.to_string()).await;
            write(&engine, node, 0, &noise(nth, RECORD)).await;
            kept.get_or_insert(node);
        }
        engine.checkpoint().await.unwrap();
        for nth in 1..20 {
            remove(&engine, root, &nth.to_string()).await;
        }
        let passing = engine.clone();
        let pass = tokio::spawn(async move { passing.reclaim_now().await });
        crate::testing::settle().await;
        crate::testing::settle().await;
        assert!(!pass.is_finished(), "{place} was not reached");
        pass.abort();
        rig.crash();
        rig.config.crash_points = None;
        let (engine, _) = rig.open().await;
        clean(&engine).await;
        for _ in 0..3 {
            engine.reclaim_now().await.unwrap();
        }
        clean(&engine).await;
        assert!(read(&engine, kept.unwrap(), 0, 1 << 16).await == noise(0, RECORD));
        let live = segments(&rig).into_iter().filter(|(_, value)| value.state == SegmentState::Live).count();
        assert_eq!((objects(&rig).len(), live), (1, 1), "{place}: {:?}", segments(&rig));
    }
}

#[tokio::test]
async fn a_deleted_volume_stays_for_a_while_and_then_goes_entirely() {
    let mut rig = Rig::new();
    rig.config.volume_keep = Duration::from_secs(3600);
    let engine = rig.create().await;
    let (id, root) = volume_of(&engine, RECORD as u32).await;
    let mut node = None;
    for nth in 0..700u64 {
        let made = make_in(&engine, root, &nth.to_string()).await;
        node.get_or_insert(made);
    }
    write(&engine, node.unwrap(), 0, &noise(1, 200_000)).await;
    engine.delete_volume("beside").await.unwrap();
    engine.reclaim_now().await.unwrap();
    clean(&engine).await;
    engine.undelete_volume("beside").await.unwrap();
    assert!(read(&engine, node.unwrap(), 0, 1 << 20).await == noise(1, 200_000));
    engine.delete_volume("beside").await.unwrap();
    engine.reclaim_now().await.unwrap();
    rig.clock.advance(Duration::from_secs(3600));
    let engine = reopened(&rig, engine).await;
    // Begun, not ended: it cannot come back, and a crash does not forget it.
    let mut done = crate::reclaim::Reclaimed::default();
    engine.checkpoint().await.unwrap();
    engine.reclaim.take_volumes_down(&mut done).await.unwrap();
    assert!(done.volume_keys > 2100 && done.volumes == 0, "{done:?}");
    assert!(engine.undelete_volume("beside").await.is_err());
    clean(&engine).await;
    let engine = reopened(&rig, engine).await;
    assert!(engine.undelete_volume("beside").await.is_err());
    assert_eq!(engine.reclaim_now().await.unwrap().volumes, 1);
    assert_eq!(engine.volume_list().len(), 1);
    clean(&engine).await;
    let of_volume = |(key, _): &(Bytes, Bytes)| {
        Key::decode(key).is_some_and(|key| {
            key.volume == id || (matches!(key.kind, Kind::Volume | Kind::Usage) && key.a == u64::from(id.0))
        })
    };
    assert_eq!(rig.disk.contents().iter().filter(|entry| of_volume(entry)).count(), 0);
    rig.clock.advance(HOLD);
    engine.reclaim_now().await.unwrap();
    assert_eq!(objects(&rig), Vec::<String>::new());
    let engine = reopened(&rig, engine).await;
    assert_eq!(engine.volume_list().len(), 1);
    clean(&engine).await;
}

#[tokio::test]
async fn all_of_it_works_on_slatedb_too() {
    let mut rig = Rig::new();
    rig.config.hold = Duration::ZERO;
    let clock = rig.clock.clone();
    let time = Box::pin(async move {
        loop {
            tokio::task::yield_now().await;
            clock.advance(Duration::from_millis(1));
        }
    });
    rig.world.spawn.spawn("time", time);
    let wake = Arc::new(tokio::sync::Notify::new());
    let waking = wake.clone();
    let meta = crate::open::slate(rig.world.clone(), tarn_meta::slate::SlateOptions::default());
    let parts = crate::open::Parts { meta, ..rig.parts() };
    let made = Engine::create(parts, Rig::first_volume(), Arc::new(move || waking.notify_one())).await;
    let engine = made.unwrap().0;
    rig.drive(&engine, wake);
    let (_, root) = volume_of(&engine, RECORD as u32).await;
    let mut kept = None;
    for nth in 0..30u64 {
        let node = make_in(&engine, root, &nth.to_string()).await;
        write(&engine, node, 0, &noise(nth, 3 * RECORD)).await;
        kept.get_or_insert(node);
    }
    clean(&engine).await;
    for nth in 1..30 {
        remove(&engine, root, &nth.to_string()).await;
    }
    set_size(&engine, kept.unwrap(), RECORD as u64).await;
    let done = engine.reclaim_now().await.unwrap();
    assert_eq!((done.pointers, done.moved), (2, 1));
    engine.reclaim_now().await.unwrap();
    engine.core.caches.records.clear();
    assert!(read(&engine, kept.unwrap(), 0, 1 << 16).await == noise(0, 3 * RECORD)[..RECORD]);
    assert_eq!((clean(&engine).await.pointers, objects(&rig).len()), (1, 1));
    let report = engine.scrub(|_| std::ops::ControlFlow::Continue(())).await.unwrap();
    assert!(report.damage.is_empty() && report.records == 1, "{report:?}");
    rig.crash();
}

#[tokio::test]
async fn collection_goes_on_while_the_log_is_filling() {
    let mut rig = Rig::new();
    rig.config.log_fill_percent = 0;
    rig.config.hold = Duration::ZERO;
    let engine = rig.create().await;
    let (_, root) = volume_of(&engine, RECORD as u32).await;
    let node = make_in(&engine, root, "file").await;
    write(&engine, node, 0, &noise(1, 100 * RECORD)).await;
    engine.checkpoint().await.unwrap();
    write(&engine, node, 0, &noise(2, 90 * RECORD)).await;
    engine.checkpoint().await.unwrap();
    for _ in 0..40 {
        assert!(engine.core.log_is_filling(), "there is always a session image in it");
        rig.pass(Duration::from_secs(1)).await;
    }
    assert!(engine.status().collected_bytes > 0, "the store would grow for ever");
    assert!(read(&engine, node, 0, 100 * RECORD as u32).await[90 * RECORD..] == noise(1, 100 * RECORD)[90 * RECORD..]);
    clean(&engine).await;
}

/// A small stream of numbers that a seed decides.
struct Chance(u64);

impl Chance {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

/// Files of the small volume as they must be.
type Model = BTreeMap<u64, (Node, Vec<u8>)>;

async fn change(engine: &Engine, root: Node, model: &mut Model, chance: &mut Chance, step: u64) {
    let nth = chance.below(4);
    let Some((node, content)) = model.get_mut(&nth) else {
        let node = make_in(engine, root, &nth.to_string()).await;
        model.insert(nth, (node, Vec::new()));
        return;
    };
    match chance.below(8) {
        0..=3 => {
            let (at, len) = (chance.below(40_000) as usize, 1 + chance.below(12_000) as usize);
            let bytes = noise(step, len);
            if content.len() < at + len {
                content.resize(at + len, 0);
            }
            content[at..at + len].copy_from_slice(&bytes);
            let effect = engine.write(&Caller::root(), *node, at as u64, bytes.into(), Stability::Unstable).await;
            effect.expect("a write");
        }
        4..=6 => {
            let size = [0, 1, RECORD, 5000, 20_000, 40_000][chance.below(6) as usize];
            set_size(engine, *node, size as u64).await;
            content.resize(size, 0);
        }
        _ => {
            remove(engine, root, &nth.to_string()).await;
            model.remove(&nth);
        }
    }
}

async fn check(engine: &Engine, model: &Model, seed: u64, step: u64) {
    for (nth, (node, content)) in model {
        let found = read(engine, *node, 0, 1 << 20).await;
        assert!(found == *content, "seed {seed}, step {step}: file {nth} differs");
    }
}

async fn wander(seed: u64) {
    let mut rig = Rig::new();
    rig.config.hold = Duration::ZERO;
    rig.config.capacity = Some(Arc::new(|| Some(Space { total: 1 << 30, free: 1 << 29, files: u64::MAX })));
    let mut engine = rig.create().await;
    let (_, root) = volume_of(&engine, RECORD as u32).await;
    let was_full = |engine: &Engine, full| engine.core.health.store_full.store(full, Ordering::Relaxed);
    let (mut model, mut chance) = (Model::new(), Chance(seed));
    for step in 0..120 {
        change(&engine, root, &mut model, &mut chance, step).await;
        let event = chance.below(24);
        was_full(&engine, seed % 2 == 1 && matches!(event, 0..=2 | 6));
        match event {
            0..=2 => drop(engine.checkpoint().await.unwrap()),
            3..=5 => drop(engine.core.close_generation().unwrap()),
            6 => drop(engine.reclaim_now().await.unwrap()),
            7..=8 => {
                // A pass beside changes.
                let passing = engine.clone();
                let pass = tokio::spawn(async move { passing.reclaim_now().await });
                for more in 0..6 {
                    tokio::task::yield_now().await;
                    change(&engine, root, &mut model, &mut chance, 1000 * step + more).await;
                }
                pass.await.unwrap().unwrap();
            }
            9 => {
                let position = engine.core.log.appended();
                engine.durable(position).await.unwrap();
                engine = reopened(&rig, engine).await;
            }
            10 => engine.core.caches.keys.clear(),
            11..=12 => {
                let report = engine.fsck(true, |_| ()).await.unwrap();
                assert!(report.is_clean(), "seed {seed}, step {step}: {:#?}", report.findings);
            }
            _ => {}
        }
        was_full(&engine, false);
        check(&engine, &model, seed, step).await;
    }
    for nth in model.keys() {
        remove(&engine, root, &nth.to_string()).await;
    }
    for _ in 0..3 {
        engine.reclaim_now().await.unwrap();
    }
    let report = engine.fsck(true, |_| ()).await.unwrap();
    assert!(report.is_clean(), "seed {seed}: {:#?}", report.findings);
    assert_eq!((objects(&rig), segments(&rig)), (vec![], vec![]), "seed {seed}");
}

#[tokio::test]
async fn random_changes_beside_reclaim_lose_nothing_and_leave_nothing() {
    for seed in 0..60 {
        wander(seed).await;
    }
}

#[tokio::test]
async fn what_an_older_checkpoint_of_the_metadata_may_name_is_not_deleted() {
    let rig = Rig::new();
    let engine = rig.create().await;
    let root = engine.volumes()[0].root;
    let node = make(&engine, "file").await;
    write(&engine, node, 0, &noise(1, 1 << 20)).await;
    engine.checkpoint().await.unwrap();
    let before = objects(&rig);
    let now_ms = || tarn_base::world::Clock::now(&*rig.clock).as_millis();
    rig.disk.hold_checkpoint(Some(now_ms()));
    remove(&engine, root, "file").await;
    engine.reclaim_now().await.unwrap();
    rig.clock.advance(2 * HOLD);
    assert_eq!(engine.reclaim_now().await.unwrap().deleted, 0);
    assert_eq!(objects(&rig), before);
    // One that was made long after knows that they are condemned.
    rig.disk.hold_checkpoint(Some(now_ms()));
    assert!(engine.reclaim_now().await.unwrap().deleted > 0);
    assert!(objects(&rig).is_empty());
    clean(&engine).await;
}
