//! Creating, closing, crashing, reopening, moving.

use bytes::Bytes;
use tarn_vfs::{Caller, CreateMode, FileSystem, Node, SetAttr, Stability};

use crate::engine::Engine;
use crate::error::OpenError;
use crate::testing::{Rig, settle};

pub fn root(engine: &Engine) -> Node {
    engine.volumes()[0].root
}

/// Makes a file and waits until it is durable.
pub async fn make(engine: &Engine, name: &str) -> Node {
    let effect = engine
        .create(&Caller::root(), root(engine), name.as_bytes(), CreateMode::Guarded, SetAttr::default())
        .await
        .expect("a new file");
    engine.durable(effect.position).await.expect("a log that works");
    effect.value.attr.expect("attributes").node
}

/// Writes and waits until it is durable.
pub async fn write(engine: &Engine, node: Node, offset: u64, data: &[u8]) {
    let data = Bytes::copy_from_slice(data);
    let effect = engine.write(&Caller::root(), node, offset, data, Stability::File).await.expect("a write");
    engine.durable(effect.position).await.expect("a log that works");
}

pub async fn read(engine: &Engine, node: Node, offset: u64, count: u32) -> Vec<u8> {
    let done = engine.read(&Caller::root(), node, offset, count).await.expect("a read");
    done.value.data.concat()
}

pub async fn look(engine: &Engine, name: &str) -> Node {
    let done = engine.lookup(&Caller::root(), root(engine), name.as_bytes()).await.expect("a name");
    done.value.0.node
}

#[tokio::test]
async fn a_new_store_opens_again_after_a_clean_close_with_everything_in_it() {
    let rig = Rig::new();
    let engine = rig.create().await;
    let node = make(&engine, "file").await;
    write(&engine, node, 0, b"content").await;
    let verifier = engine.write_verifier();
    engine.close().await.unwrap();
    rig.crash();

    let (engine, report) = rig.open().await;
    assert!(report.clean && report.entries == 0, "{report:?}");
    assert_eq!(engine.write_verifier(), verifier);
    assert_eq!(look(&engine, "file").await, node);
    assert_eq!(read(&engine, node, 0, 100).await, b"content");
    write(&engine, node, 7, b" and more").await;
    assert_eq!(read(&engine, node, 0, 100).await, b"content and more");
}

#[tokio::test]
async fn a_crash_loses_nothing_that_was_durable_and_changes_the_verifier() {
    let rig = Rig::new();
    let engine = rig.create().await;
    let node = make(&engine, "file").await;
    write(&engine, node, 3, b"content").await;
    let verifier = engine.write_verifier();
    rig.crash();

    for _ in 0..3 {
        let (engine, report) = rig.open().await;
        assert!(!report.clean && report.entries > 0, "{report:?}");
        assert_ne!(engine.write_verifier(), verifier);
        assert_eq!(look(&engine, "file").await, node);
        assert_eq!(read(&engine, node, 0, 100).await, b"\0\0\0content");
        rig.crash();
    }
}

#[tokio::test]
async fn a_clean_bucket_opens_on_another_machine_with_the_key_only() {
    let rig = Rig::new();
    let engine = rig.create().await;
    let node = make(&engine, "file").await;
    write(&engine, node, 0, &[5; 300_000]).await;
    engine.close().await.unwrap();
    rig.crash();

    let other = rig.elsewhere();
    let (engine, report) = other.open().await;
    assert!(report.clean);
    assert_eq!(read(&engine, node, 0, 1 << 20).await, [5; 300_000]);
    // Back again, although the first machine still has its old log.
    write(&engine, node, 0, b"x").await;
    engine.close().await.unwrap();
    other.crash();
    let (engine, _) = rig.open().await;
    assert_eq!(read(&engine, node, 0, 2).await, b"x\x05");
}

#[tokio::test]
async fn a_killed_nodes_log_opens_the_bucket_elsewhere_and_without_it_only_a_take_does() {
    let rig = Rig::new();
    let engine = rig.create().await;
    let kept = make(&engine, "kept").await;
    engine.checkpoint().await.unwrap();
    let node = make(&engine, "file").await;
    write(&engine, node, 0, b"content").await;
    rig.crash();

    let blank = rig.elsewhere();
    assert!(matches!(blank.try_open(false, false).await, Err(OpenError::Elsewhere { .. })));

    let moved = Rig { device: rig.device.clone(), ..rig.elsewhere() };
    let (engine, report) = moved.open().await;
    assert!(report.entries > 0 && !report.taken);
    assert_eq!(read(&engine, node, 0, 100).await, b"content");
    moved.crash();

    let taker = blank.clone();
    let taking = tokio::spawn(async move { taker.try_open(true, false).await });
    blank.pass(rig.config.heartbeat).await;
    blank.pass(rig.config.heartbeat).await;
    let (engine, report) = taking.await.unwrap().unwrap();
    assert!(report.taken);
    assert_eq!(look(&engine, "kept").await, kept);
    assert!(engine.lookup(&Caller::root(), root(&engine), b"file").await.is_err());
    // The log that was given up is not taken for a log of the present.
    assert!(matches!(rig.try_open(false, false).await, Err(OpenError::Elsewhere { .. })));
    engine.close().await.unwrap();
    blank.crash();
    assert!(matches!(rig.try_open(false, false).await, Err(OpenError::StaleLog)));
}

#[tokio::test]
async fn a_wrong_key_a_foreign_log_and_a_missing_store_are_told_apart() {
    let rig = Rig::new();
    assert!(matches!(rig.try_open(false, false).await, Err(OpenError::NotCreated)));
    let engine = rig.create().await;
    assert!(matches!(rig.try_create().await, Err(OpenError::Exists)));
    engine.close().await.unwrap();
    rig.crash();

    let wrong = Rig { master: tarn_base::crypto::Key::new([8; 32]), ..rig.elsewhere() };
    assert!(matches!(wrong.try_open(false, false).await, Err(OpenError::WrongKey)));

    let stranger = Rig::new();
    let mut shifted = [0u8; 1];
    stranger.world.random.fill(&mut shifted);
    stranger.create().await.close().await.unwrap();
    stranger.crash();
    let foreign = Rig { device: stranger.device.clone(), ..rig.elsewhere() };
    assert!(matches!(foreign.try_open(false, false).await, Err(OpenError::ForeignLog)));
}

/// Stopped for longer than a heartbeat, a node looks at the owner record before it answers.
#[tokio::test]
async fn who_slept_looks_whose_the_store_is_before_it_answers() {
    let rig = Rig::new();
    let engine = rig.create().await;
    let heartbeat = rig.config.heartbeat;
    rig.pass(heartbeat / 2).await;
    let now = || rig.world.clock.steady();
    assert!(engine.awake(now()).is_none());
    rig.clock.advance(heartbeat / 2);
    assert!(engine.awake(now()).is_none());
    rig.clock.advance(heartbeat * 2);
    let sleeps = engine.awake(now()).expect("it slept");
    assert!(engine.awake(now()).is_some(), "until somebody has looked");
    settle().await;
    sleeps.await.unwrap();
    assert!(engine.awake(now()).is_none());

    let taker = rig.elsewhere();
    let taking = tokio::spawn(async move { taker.try_open(true, false).await });
    settle().await;
    rig.clock.advance(heartbeat * 2);
    let sleeps = engine.awake(now()).expect("it slept again");
    settle().await;
    assert!(sleeps.await.is_err(), "another has the store");
    drop(taking);
}

#[tokio::test]
async fn an_owner_that_sees_a_claim_answers_no_change_any_more() {
    let rig = Rig::new();
    let engine = rig.create().await;
    let node = make(&engine, "file").await;
    let other = rig.elsewhere();
    let taker = other.clone();
    let taking = tokio::spawn(async move { taker.try_open(true, false).await });
    rig.pass(rig.config.heartbeat).await;
    let write = engine.write(&Caller::root(), node, 0, Bytes::from_static(b"late"), Stability::File).await;
    assert!(write.is_err());
    rig.pass(rig.config.heartbeat).await;
    assert!(taking.await.unwrap().is_ok());
    assert!(engine.checkpoint().await.is_err());
}
