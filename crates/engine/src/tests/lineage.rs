//! Numbers after an opening that may have lost answers (engine rule 18): none that a client has seen comes again.

use std::sync::Arc;

use tarn_vfs::{Caller, FileSystem, ListRequest, Node, VolumeSettings, WriteSpeed};

use super::opening::{make, root};
use crate::engine::Engine;
use crate::testing::Rig;

/// How far cookies and inode numbers jump.
const JUMP: u64 = 1 << 32;

/// The entries of a directory but `.` and `..`: cookie and inode number of each, in listing order.
async fn listed(engine: &Engine, dir: Node) -> Vec<(u64, u64)> {
    let request = ListRequest { after: 2, entries_max: 100, bytes_max: 1 << 20, entry_overhead: 0, attrs: false };
    let done = engine.list(&Caller::root(), dir, request).await.expect("a listing");
    done.value.entries.iter().map(|entry| (entry.cookie, entry.ino.0)).collect()
}

/// Takes the bucket over from another machine, whose log is lost.
async fn take_over(rig: &Rig) -> (Rig, Arc<Engine>) {
    let other = rig.elsewhere();
    let taker = other.clone();
    let taking = tokio::spawn(async move { taker.try_open(true, false).await });
    other.pass(rig.config.heartbeat).await;
    other.pass(rig.config.heartbeat).await;
    let (engine, report) = taking.await.unwrap().unwrap();
    assert!(report.taken);
    (other, engine)
}

#[tokio::test]
async fn cookies_and_inode_numbers_that_a_lost_log_showed_never_come_again() {
    let mut rig = Rig::new();
    let mut engine = rig.create().await;
    make(&engine, "kept").await;
    engine.checkpoint().await.unwrap();
    let dir = root(&engine);
    let kept = listed(&engine, dir).await;
    // The directory does not change in the store: each lineage shows an entry, and its log is lost.
    let mut seen = kept.clone();
    for lineage in 1..=3 {
        make(&engine, "lost").await;
        let shown = *listed(&engine, dir).await.last().unwrap();
        assert!(!seen.iter().any(|(cookie, ino)| *cookie == shown.0 || *ino == shown.1), "{shown:?} of {seen:?}");
        seen.push(shown);
        rig.crash();
        (rig, engine) = take_over(&rig).await;
        assert_eq!(listed(&engine, dir).await, kept, "lineage {lineage}");
    }
    make(&engine, "new").await;
    make(&engine, "newer").await;
    let after = listed(&engine, dir).await;
    assert_eq!((after[1].0, after[2].0), (kept[0].0 + 1 + 3 * JUMP, kept[0].0 + 2 + 3 * JUMP));
    assert!(engine.fsck(true, |_| ()).await.unwrap().is_clean());
    // A directory of this lineage counts from the beginning.
    engine.close().await.unwrap();
    rig.crash();
    let (engine, _) = rig.open().await;
    make(&engine, "newest").await;
    assert_eq!(listed(&engine, dir).await[3].0, kept[0].0 + 3 + 3 * JUMP);
}

#[tokio::test]
async fn a_crash_under_high_write_speed_begins_a_lineage_and_one_under_normal_does_not() {
    let rig = Rig::new();
    let engine = rig.create().await;
    let dir = root(&engine);
    make(&engine, "first").await;
    rig.crash();
    let (engine, _) = rig.open().await;
    make(&engine, "second").await;
    let before = listed(&engine, dir).await;
    assert_eq!(before[1], (before[0].0 + 1, before[0].1 + 1));

    let settings = VolumeSettings { write_speed: WriteSpeed::High, ..VolumeSettings::default() };
    engine.set_volume("vol", settings).await.unwrap();
    rig.crash();
    let (engine, _) = rig.open().await;
    make(&engine, "third").await;
    assert_eq!(listed(&engine, dir).await[2], (before[1].0 + 1 + JUMP, before[1].1 + 1 + JUMP));
    // Nothing was lost by a clean stop.
    engine.close().await.unwrap();
    rig.crash();
    let (engine, _) = rig.open().await;
    make(&engine, "fourth").await;
    assert_eq!(listed(&engine, dir).await[3], (before[1].0 + 2 + JUMP, before[1].1 + 2 + JUMP));
    // Administrators' changes are durable under any speed: volumes are counted on.
    let spec = crate::admin::VolumeSpec { name: "next".into(), ..Rig::first_volume() };
    assert_eq!(engine.create_volume(spec).await.unwrap().0, dir.volume.0 + 1);
    assert!(engine.fsck(true, |_| ()).await.unwrap().is_clean());
}
