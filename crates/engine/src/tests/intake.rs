//! What keeps changes waiting before they run: a log that is behind its medium, and one that fills.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use tarn_vfs::{Caller, FileSystem, Stability};
use tarn_wal::MemDevice;

use super::opening::make;
use crate::testing::{Rig, settle};

fn is_ready(answer: Pin<&mut impl Future>) -> bool {
    matches!(answer.poll(&mut Context::from_waker(Waker::noop())), Poll::Ready(_))
}

#[tokio::test]
async fn room_comes_with_a_flush() {
    let mut rig = Rig::new();
    rig.device = Arc::new(MemDevice::new(256 << 20));
    let engine = rig.create().await;
    let node = make(&engine, "file").await;
    assert!(is_ready(pin!(engine.room(1 << 20))));
    let data = Bytes::from(vec![7; 1 << 20]);
    // Nothing else runs meanwhile, so nothing is flushed.
    for offset in 0..8 {
        engine.write(&Caller::root(), node, offset << 20, data.clone(), Stability::Unstable).await.expect("a write");
    }
    assert!(engine.log().buffered() > 8 << 20);
    assert!(is_ready(pin!(engine.room(32 << 10))));
    let mut behind = pin!(engine.room(1 << 20));
    assert!(!is_ready(behind.as_mut()), "the log is behind");
    let mut later = pin!(engine.room(32 << 10));
    assert!(!is_ready(later.as_mut()), "the first one comes first");
    settle().await;
    assert!(is_ready(behind) && is_ready(later), "it has been flushed");
}

#[tokio::test]
async fn writes_slow_down_before_the_log_is_full() {
    let mut rig = Rig::new();
    let stuck = Arc::new(AtomicBool::new(false));
    let sticks = stuck.clone();
    rig.config.crash_points = Some(Arc::new(move |name| name == "checkpoint begins" && sticks.load(Ordering::Relaxed)));
    let engine = rig.create().await;
    let node = make(&engine, "file").await;
    stuck.store(true, Ordering::Relaxed);
    let data = Bytes::from(vec![7; 32 << 10]);
    let write = |offset, data| Box::pin(engine.write(&Caller::root(), node, offset, data, Stability::Unstable));
    let mut offset = 0;
    let mut held = loop {
        settle().await;
        let mut write = write(offset, data.clone());
        if !is_ready(write.as_mut()) {
            break write;
        }
        offset += data.len() as u64;
    };
    let used = engine.status().log_used;
    assert!(used > 5 << 20 && used < 9 << 20, "{used} of 16 MiB");
    let mut rooms = (0..100).map(|_| Box::pin(engine.room(1 << 20)));
    let large = rooms.find_map(|mut room| (!is_ready(room.as_mut())).then_some(room));
    let mut large = large.expect("large ones wait before their bytes come");
    let mut little = write(0, Bytes::from_static(b"little"));
    if !is_ready(little.as_mut()) {
        rig.pass(Duration::from_millis(32)).await;
        assert!(is_ready(little.as_mut()), "who brings little waits for a beat at most");
    }
    rig.pass(Duration::from_secs(2)).await;
    assert!(is_ready(held.as_mut()) && is_ready(large.as_mut()), "nobody waits for longer than that");
    assert!(engine.status().log_used > used);
}
