//! Metadata or log put back to an earlier state while no node runs: refused before anything is changed, so that putting
//! back what is missing is enough. Over the metadata engine that serves.

use std::sync::Arc;

use tarn_store::{PutMode, Store};
use tarn_vfs::Node;
use tarn_wal::LogDevice;

use super::opening::{read, write};
use super::presence::{Objects, begun, below, open, open_with, put_back};
use crate::engine::Engine;
use crate::error::OpenError;
use crate::testing::Rig;

/// A store whose metadata was once at "a" and is at "ab" now, and what it was then.
async fn grown(rig: &Rig) -> (Arc<Engine>, Node, Objects) {
    let (engine, node) = begun(rig).await;
    let earlier = below(rig, "meta/");
    write(&engine, node, 1, b"b").await;
    engine.checkpoint().await.unwrap();
    (engine, node, earlier)
}

/// The opening is refused, and leaves every object as it is.
async fn refused(rig: &Rig) -> OpenError {
    let left = below(rig, "");
    let error = open(rig).await.map(|_| ()).expect_err("a refusal");
    assert!(below(rig, "") == left, "{error} - and something was changed");
    error
}

/// The store opens, and the file is what it was.
async fn opens(rig: &Rig, node: Node, content: &[u8]) {
    let engine = open(rig).await.unwrap();
    assert_eq!(read(&engine, node, 0, 10).await, content);
    rig.crash();
}

fn bytes(device: &dyn LogDevice) -> Vec<u8> {
    let mut bytes = vec![0; device.size() as usize];
    device.read(0, &mut bytes).unwrap();
    bytes
}

#[tokio::test]
async fn a_closed_store_that_was_put_back_is_refused_without_its_log_and_with_it() {
    for log_lost in [true, false] {
        let mut rig = Rig::new();
        let (engine, node, earlier) = grown(&rig).await;
        engine.close().await.unwrap();
        let present = below(&rig, "meta/");
        if log_lost {
            rig = rig.elsewhere();
        }
        put_back(&rig, "meta/", &earlier).await;
        let error = refused(&rig).await;
        assert!(matches!(error, OpenError::StoreOlder { .. }), "{error}");
        put_back(&rig, "meta/", &present).await;
        opens(&rig, node, b"ab").await;
    }
}

#[tokio::test]
async fn an_earlier_state_is_gone_on_from_only_if_told_to_and_then_as_after_any_loss() {
    let rig = Rig::new();
    let (engine, node, earlier) = grown(&rig).await;
    let lineage = engine.core.identity.lineage;
    engine.close().await.unwrap();
    put_back(&rig, "meta/", &earlier).await;
    let rig = rig.elsewhere();
    let (engine, report) = open_with(&rig, true).await.unwrap();
    assert!(!report.clean, "{report:?}");
    assert!(engine.core.identity.lineage > lineage, "numbers may come again");
    assert_eq!(read(&engine, node, 0, 10).await, b"a");
    write(&engine, node, 1, b"c").await;
    rig.crash();
    opens(&rig, node, b"ac").await;
}

#[tokio::test]
async fn a_store_that_was_put_back_after_a_crash_is_refused_and_whole_again_with_what_was_missing() {
    let rig = Rig::new();
    let (engine, node, earlier) = grown(&rig).await;
    write(&engine, node, 2, b"c").await;
    rig.crash();
    drop(engine);
    let present = below(&rig, "meta/");
    put_back(&rig, "meta/", &earlier).await;
    let error = refused(&rig).await;
    assert!(matches!(error, OpenError::StoreOlder { .. }), "{error}");
    // The missing objects alone: nothing took their names meanwhile.
    for object in present.iter().filter(|object| !earlier.contains(object)) {
        put_back(&rig, &object.0, &vec![object.clone()]).await;
    }
    opens(&rig, node, b"abc").await;
}

/// A start that ended between its fence and its first manifest leaves what such a start finds, too.
#[tokio::test]
async fn manifests_that_say_nothing_new_are_not_missed() {
    let rig = Rig::new();
    let (engine, node) = begun(&rig).await;
    write(&engine, node, 1, b"b").await;
    rig.crash();
    drop(engine);
    let before = below(&rig, "meta/manifest/").len();
    opens(&rig, node, b"ab").await;
    let manifests = below(&rig, "meta/manifest/");
    for (name, _) in &manifests[before..] {
        rig.memory.delete(name).await.unwrap();
    }
    assert!(manifests.len() > before + 1, "{}", manifests.len());
    opens(&rig, node, b"ab").await;
}

#[tokio::test]
async fn a_damaged_object_of_the_metadata_is_told_before_anything_is_changed() {
    for newest_of in ["meta/manifest/", "meta/compactions/", "meta/compacted/"] {
        let rig = Rig::new();
        let (engine, node, _) = grown(&rig).await;
        write(&engine, node, 2, b"c").await;
        rig.crash();
        drop(engine);
        let objects = below(&rig, newest_of);
        let (name, whole) = objects.last().expect("an object");
        for cut in [0, whole.len() / 2] {
            rig.memory.put(name, whole.slice(..cut), PutMode::Overwrite).await.unwrap();
            let error = refused(&rig).await;
            assert!(matches!(&error, OpenError::Damaged(what) if what.contains(name)), "{name} of {cut}: {error}");
        }
        rig.memory.put(name, whole.clone(), PutMode::Overwrite).await.unwrap();
        opens(&rig, node, b"abc").await;
    }
}

#[tokio::test]
async fn an_owner_record_that_was_put_back_is_refused() {
    for closed in [true, false] {
        let rig = Rig::new();
        let (engine, node) = begun(&rig).await;
        let earlier = below(&rig, "owner");
        engine.close().await.unwrap();
        let engine = open(&rig).await.unwrap();
        write(&engine, node, 1, b"b").await;
        engine.checkpoint().await.unwrap();
        if closed {
            engine.close().await.unwrap();
        } else {
            rig.crash();
        }
        let present = below(&rig, "owner");
        put_back(&rig, "owner", &earlier).await;
        let error = refused(&rig).await;
        assert!(matches!(error, OpenError::OwnerOlder { .. }), "{error}");
        put_back(&rig, "owner", &present).await;
        opens(&rig, node, b"ab").await;
    }
}

#[tokio::test]
async fn the_log_of_an_earlier_opening_is_refused_though_it_does_not_end_before_the_store() {
    let rig = Rig::new();
    let (engine, node) = begun(&rig).await;
    engine.close().await.unwrap();
    let earlier = bytes(&*rig.device);
    let engine = open(&rig).await.unwrap();
    write(&engine, node, 1, b"b").await;
    rig.crash();
    drop(engine);
    let present = bytes(&*rig.device);
    rig.device.write(0, &earlier).unwrap();
    let error = refused(&rig).await;
    assert!(matches!(error, OpenError::LogReplaced { .. }), "{error}");
    rig.device.write(0, &present).unwrap();
    opens(&rig, node, b"ab").await;
}

#[tokio::test]
async fn damage_within_the_log_is_told_before_anything_is_changed() {
    let rig = Rig::new();
    let (engine, node, _) = grown(&rig).await;
    for (at, byte) in (2..).zip([b"c", b"d", b"e"]) {
        write(&engine, node, at, byte).await;
    }
    rig.crash();
    drop(engine);
    let whole = bytes(&*rig.device);
    let end = whole.iter().rposition(|byte| *byte != 0).unwrap();
    // Two frames before the last, each 4 KiB.
    let at = (end & !4095) - 2 * 4096 + 100;
    rig.device.write(at as u64, &[whole[at] ^ 1]).unwrap();
    let error = refused(&rig).await;
    assert!(matches!(error, OpenError::LogDamaged(_)), "{error}");
    rig.device.write(at as u64, &[whole[at]]).unwrap();
    opens(&rig, node, b"abcde").await;
}

#[tokio::test]
async fn a_log_that_was_put_back_to_an_earlier_state_is_refused() {
    let rig = Rig::new();
    let (engine, node) = begun(&rig).await;
    let earlier = bytes(&*rig.device);
    write(&engine, node, 1, b"b").await;
    engine.checkpoint().await.unwrap();
    write(&engine, node, 2, b"c").await;
    rig.crash();
    drop(engine);
    let present = bytes(&*rig.device);
    rig.device.write(0, &earlier).unwrap();
    let error = refused(&rig).await;
    assert!(matches!(error, OpenError::LogOlder { .. }), "{error}");
    rig.device.write(0, &present).unwrap();
    opens(&rig, node, b"abc").await;
}
