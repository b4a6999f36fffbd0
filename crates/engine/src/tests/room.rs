<<<<<<< HEAD
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
=======
//! Room for large changes: given at once where there is room, with a flush where the log is behind, and in the end anyhow.

use std::future::Future;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use tarn_vfs::{Caller, FileSystem, Stability};

use super::opening::make;
use crate::testing::{Rig, settle};

fn is_ready(answer: Pin<&mut impl Future>) -> bool {
    matches!(answer.poll(&mut Context::from_waker(Waker::noop())), Poll::Ready(_))
}

#[tokio::test]
async fn room_comes_with_a_flush_or_a_trim_and_in_the_end_anyhow() {
    let rig = Rig::new();
    let engine = rig.create().await;
    let node = make(&engine, "file").await;
    assert!(is_ready(pin!(engine.room(1 << 20))));
    let data = Bytes::from(vec![7; 1 << 20]);
    // Nothing else runs meanwhile, so nothing is flushed.
    for offset in 0..3 {
        engine.write(&Caller::root(), node, offset << 20, data.clone(), Stability::Unstable).await.expect("a write");
    }
    assert!(engine.log().buffered() > 3 << 20);
    assert!(is_ready(pin!(engine.room(64 << 10))));
    let mut behind = pin!(engine.room(1 << 20));
    assert!(!is_ready(behind.as_mut()), "the log is behind");
    settle().await;
    assert!(is_ready(behind), "it has been flushed");

    let free = engine.log().capacity() * 3 / 4 - engine.log().used();
    let mut full = pin!(engine.room(free as usize + 4096));
    assert!(!is_ready(full.as_mut()), "the last quarter is for small changes");
    settle().await;
    assert!(!is_ready(full.as_mut()));
    rig.pass(Duration::from_secs(60)).await;
    assert!(is_ready(full), "nobody waits for ever");
>>>>>>> ac26f8e (Let no client's stream stand before others' calls)
}
