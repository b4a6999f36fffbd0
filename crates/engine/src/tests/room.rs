//! A store that is nearly full: refused before the metadata store meets it, and over with the first free byte.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use tarn_vfs::{Caller, Errno, FileSystem, Stability};

use super::opening::{look, make, read, root, write};
use crate::checkpoint::CheckpointError;
use crate::testing::Rig;

#[tokio::test]
async fn without_room_for_metadata_nothing_is_begun_and_reading_goes_on() {
    let free = Arc::new(AtomicU64::new(1 << 30));
    let mut rig = Rig::new();
    let told = free.clone();
    rig.config.capacity = Some(Arc::new(move || Some((1 << 30, told.load(Ordering::Relaxed)))));
    rig.config.key_cache_bytes = 0;
    let engine = rig.create().await;
    let node = make(&engine, "file").await;
    write(&engine, node, 0, b"content").await;
    engine.checkpoint().await.expect("a checkpoint");

    free.store(1000, Ordering::Relaxed);
    let (keys, objects) = (rig.disk.contents(), rig.memory.contents().len());
    make(&engine, "later").await;
    assert!(matches!(engine.checkpoint().await, Err(CheckpointError::Full(_))));
    assert!(engine.status().store_full);
    assert!(rig.disk.contents() == keys && rig.memory.contents().len() == objects);
    let more = engine.write(&Caller::root(), node, 1 << 20, Bytes::from_static(b"more"), Stability::File).await;
    assert_eq!(more.expect_err("no room").value.errno, Errno::NoSpace);
    write(&engine, node, 0, b"CONTENT").await;
    assert_eq!(look(&engine, "file").await, node);
    assert_eq!(read(&engine, node, 0, 100).await, b"CONTENT");

    free.store(1 << 30, Ordering::Relaxed);
    rig.pass(Duration::from_secs(30)).await;
    assert!(!engine.status().store_full);
    write(&engine, node, 1 << 20, b"more").await;
}

#[tokio::test]
async fn new_content_leaves_room_for_deletions() {
    let free = Arc::new(AtomicU64::new(1 << 30));
    let mut rig = Rig::new();
    let told = free.clone();
    rig.config.capacity = Some(Arc::new(move || Some((1 << 30, told.load(Ordering::Relaxed)))));
    let engine = rig.create().await;
    let node = make(&engine, "file").await;
    write(&engine, node, 0, b"content").await;
    engine.checkpoint().await.expect("a checkpoint");

    free.store(12 << 20, Ordering::Relaxed);
    let done = engine.remove(&Caller::root(), root(&engine), b"file").await.expect("a removal");
    engine.durable(done.position).await.expect("a log that works");
    engine.checkpoint().await.expect("a checkpoint of a removal");
    let objects = rig.memory.contents().len();
    let node = make(&engine, "another").await;
    write(&engine, node, 0, b"content").await;
    assert!(matches!(engine.checkpoint().await, Err(CheckpointError::Full(_))));
    assert_eq!(rig.memory.contents().len(), objects, "what does not count does not stay");
    assert_eq!(read(&engine, node, 0, 100).await, b"content");
}

#[tokio::test]
async fn a_disk_without_a_size_is_not_full() {
    let mut rig = Rig::new();
    rig.config.capacity = Some(Arc::new(|| Some((0, 0))));
    let engine = rig.create().await;
    let node = make(&engine, "file").await;
    write(&engine, node, 0, b"content").await;
    engine.checkpoint().await.expect("a checkpoint");
}
