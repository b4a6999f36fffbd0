//! Room for large changes: given at once where there is room, with a flush where the log is behind.

use std::future::Future;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use tarn_vfs::{Caller, FileSystem, Stability};

use super::opening::make;
use crate::testing::{Rig, settle};

fn is_ready(answer: Pin<&mut impl Future>) -> bool {
    matches!(answer.poll(&mut Context::from_waker(Waker::noop())), Poll::Ready(_))
}

#[tokio::test]
async fn room_comes_with_a_flush() {
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
}
