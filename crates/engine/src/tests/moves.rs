//! What waits for its checkpoint and is read again and again: where it lies changes, what it says does not.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use tarn_vfs::{Caller, FileSystem, Node, Stability};

use super::opening::{look, make, read, root};
use super::reclaim::{clean, noise, set_size};
use super::survival::keep_time;
use crate::Engine;
use crate::config::{Bypass, Config};
use crate::testing::{Rig, settle};

const MIB: usize = 1 << 20;

/// More than enough reads for anything to move.
const OFTEN: usize = 8;

/// A machine with so much memory for changes, on which what is large and UNSTABLE passes the log by.
fn rig(overlay_bytes: u64) -> Rig {
    let mut rig = Rig::new();
    let bypass = Bypass { write_min: 16 << 10, after: 0, speed_min: 0, pressed: Duration::MAX };
    rig.config = Config { bypass, overlay_bytes, ..rig.config };
    rig
}

/// Writes what was received in the log's memory.
async fn write(engine: &Engine, node: Node, offset: u64, data: &[u8], stability: Stability) {
    let memory = engine.memory();
    let mut body = memory.take(data.len());
    body.extend_from_slice(data);
    let data = memory.lend(body);
    let done = engine.write(&Caller::root(), node, offset, data, stability).await.expect("a write");
    engine.durable(done.position).await.expect("a log that works");
}

/// How many bytes of a reply are sent as they lie.
async fn sent_as_they_lie(engine: &Engine, node: Node, data: &[u8]) -> usize {
    let reply = engine.read(&Caller::root(), node, 0, data.len() as u32).await.expect("a read").value;
    assert!(reply.data.concat() == data);
    reply.data.iter().filter(|piece| engine.pages().hold(piece)).map(Bytes::len).sum()
}

async fn read_often(engine: &Engine, node: Node, data: &[u8]) -> usize {
    for _ in 0..OFTEN {
        sent_as_they_lie(engine, node, data).await;
    }
    sent_as_they_lie(engine, node, data).await
}

#[tokio::test]
async fn what_is_read_again_and_again_is_sent_as_it_lies() {
    for stability in [Stability::Unstable, Stability::File] {
        let rig = rig(64 << 20);
        let engine = rig.create().await;
        let (held, ram) = (|| engine.core.log.held(), || engine.core.overlay_ram_bytes() as usize);
        let node = make(&engine, "file").await;
        let mut data = noise(1, MIB);
        write(&engine, node, 0, &data, stability).await;
        assert!(held() >= MIB && ram() < MIB + MIB / 4);
        assert_eq!(sent_as_they_lie(&engine, node, &data).await, 0, "what is read once is not worth it");
        assert_eq!(read_often(&engine, node, &data).await, MIB);
        settle().await;
        assert_eq!(held(), 0, "its memory is the log's again");
        assert!(ram() >= MIB && ram() < MIB + MIB / 4, "and it is counted as before: {}", ram());
        let unlogged = if stability == Stability::Unstable { MIB as u64 } else { 0 };
        assert_eq!(engine.core.unlogged(), unlogged);

        // What is written over it is what is read, and moves in its turn.
        data[300 << 10..][..500 << 10].copy_from_slice(&noise(2, 500 << 10));
        write(&engine, node, 300 << 10, &data[300 << 10..][..500 << 10], stability).await;
        data[100..103].copy_from_slice(b"new");
        write(&engine, node, 100, b"new", Stability::File).await;
        let moved = read_often(&engine, node, &data).await;
        assert!(moved > MIB - (200 << 10) && moved < MIB, "{moved}");

        // None of it is older than what a crash leaves.
        let done = engine.commit(&Caller::root(), node).await.expect("a COMMIT");
        engine.durable(done.position).await.expect("a log that works");
        assert!(read(&engine, node, 0, MIB as u32).await == data);
        read_often(&engine, node, &data).await;
        drop(engine);
        rig.crash();
        settle().await;
        let (engine, report) = rig.open().await;
        assert_eq!(report.lost, []);
        keep_time(&rig);
        let node = look(&engine, "file").await;
        assert!(read(&engine, node, 0, MIB as u32).await == data);
        read_often(&engine, node, &data).await;

        // A checkpoint stores it from there, and readers go on from there.
        let before = read_often(&engine, node, &data).await;
        engine.checkpoint().await.unwrap();
        settle().await;
        assert!(sent_as_they_lie(&engine, node, &data).await >= before);
        assert_eq!(read_often(&engine, node, &data).await, MIB);
        assert!(engine.core.overlay_ram_bytes() < 64 << 10);
        clean(&engine).await;
    }
}

#[tokio::test]
async fn what_is_cut_off_or_removed_takes_its_memory_along() {
    let rig = rig(64 << 20);
    let engine = rig.create().await;
    let before = engine.core.overlay_ram_bytes();
    let node = make(&engine, "file").await;
    let data = noise(1, MIB);
    write(&engine, node, 0, &data, Stability::File).await;
    assert_eq!(read_often(&engine, node, &data).await, MIB);
    set_size(&engine, node, 200 << 10).await;
    assert!(read(&engine, node, 0, MIB as u32).await == data[..200 << 10]);
    assert!(read_often(&engine, node, &data[..200 << 10]).await >= 192 << 10);
    assert!(engine.core.overlay_ram_bytes() < 300 << 10);
    engine.remove(&Caller::root(), root(&engine), b"file").await.expect("a REMOVE");
    assert!(engine.core.overlay_ram_bytes() < before + 4096, "{}", engine.core.overlay_ram_bytes());
    clean(&engine).await;
}

#[tokio::test]
async fn nothing_moves_while_memory_is_short() {
    let mut rig = rig(2 << 20);
    let stuck = Arc::new(AtomicBool::new(false));
    let sticks = stuck.clone();
    rig.config.crash_points = Some(Arc::new(move |name| name == "checkpoint begins" && sticks.load(Ordering::Relaxed)));
    let engine = rig.create().await;
    stuck.store(true, Ordering::Relaxed);
    let node = make(&engine, "file").await;
    let data = noise(1, MIB);
    write(&engine, node, 0, &data, Stability::File).await;
    let mut others = 0;
    while !engine.core.config.spills(engine.core.overlay_ram_bytes()) {
        make(&engine, &format!("other {others}")).await;
        others += 1;
    }
    let ram = engine.core.overlay_ram_bytes();
    assert_eq!(read_often(&engine, node, &data).await, 0);
    assert_eq!(engine.core.overlay_ram_bytes(), ram);
}
