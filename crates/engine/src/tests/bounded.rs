//! Write speed `high`: replies do not wait for the log, and what a crash takes is bounded all the same.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tarn_base::ids::Position;
use tarn_vfs::{Caller, FileSystem, Node, Stability, VolumeSettings, WriteSpeed};

use super::opening::{make, read};
use crate::engine::Engine;
use crate::open::OpenOptions;
use crate::testing::Rig;

/// A volume of speed `high` with a file in it.
async fn high(rig: &Rig) -> (Arc<Engine>, Node) {
    let engine = rig.create().await;
    let settings = VolumeSettings { write_speed: WriteSpeed::High, ..VolumeSettings::default() };
    engine.set_volume("vol", settings).await.unwrap();
    let node = make(&engine, "file").await;
    (engine, node)
}

/// Writes; whether the reply says that it need not wait.
async fn answers_at_once(engine: &Engine, node: Node, data: &'static [u8]) -> bool {
    let written = engine.write(&Caller::root(), node, 0, Bytes::from_static(data), Stability::File).await;
    written.expect("a write").position == Position::ZERO
}

#[tokio::test]
async fn what_was_answered_from_memory_is_durable_a_second_later() {
    let rig = Rig::new();
    let (engine, node) = high(&rig).await;
    rig.pass(Duration::from_millis(1500)).await;
    assert!(answers_at_once(&engine, node, b"kept").await);
    rig.pass(Duration::from_secs(1)).await;
    assert!(answers_at_once(&engine, node, b"lost").await);
    rig.crash();
    let (engine, _) = rig.open().await;
    assert_eq!(read(&engine, node, 0, 10).await, b"kept");
    rig.crash();
}

#[tokio::test]
async fn a_medium_that_does_not_flush_makes_replies_wait() {
    let rig = Rig::new();
    let (engine, _) = high(&rig).await;
    engine.close().await.unwrap();
    rig.crash();
    // Nobody drives the flushes of this one.
    let (engine, _) = Engine::open(rig.parts(), OpenOptions::new(Arc::new(|| ()))).await.unwrap();
    let node = super::opening::look(&engine, "file").await;
    for second in 0..5 {
        assert!(answers_at_once(&engine, node, b"from memory").await, "second {second}");
        rig.pass(Duration::from_secs(1)).await;
    }
    rig.pass(Duration::from_secs(1)).await;
    rig.pass(Duration::from_secs(1)).await;
    assert!(!answers_at_once(&engine, node, b"from the medium").await);
    engine.log().flush_now();
    for _ in 0..7 {
        rig.pass(Duration::from_secs(1)).await;
        engine.log().flush_now();
    }
    assert!(answers_at_once(&engine, node, b"from memory again").await);
    rig.crash();
}
