//! What comes and goes between two checkpoints: the store is not told of it, and of nothing too little.

use std::sync::Arc;

use bytes::Bytes;
use tarn_base::ids::Position;
use tarn_meta::mem::CommitFate;
use tarn_vfs::{Caller, Errno, FileSystem, ListRequest, SetAttr};
use tokio::sync::Notify;

use super::opening::{make, root, write};
use crate::engine::Engine;
use crate::testing::Rig;

async fn remove(engine: &Engine, name: &str) {
    let effect = engine.remove(&Caller::root(), root(engine), name.as_bytes()).await.expect("it is there");
    engine.durable(effect.position).await.expect("a log that works");
}

async fn rename(engine: &Engine, from: &str, to: &str) {
    let dir = root(engine);
    let effect = engine.rename(&Caller::root(), dir, from.as_bytes(), dir, to.as_bytes()).await.expect("it is there");
    engine.durable(effect.position).await.expect("a log that works");
}

async fn names(engine: &Engine) -> Vec<Bytes> {
    let request = ListRequest { after: 0, entries_max: 4096, bytes_max: 1 << 20, entry_overhead: 24, attrs: false };
    let listed = engine.list(&Caller::root(), root(engine), request).await.expect("a directory").value;
    listed.entries.into_iter().map(|entry| entry.name).filter(|name| !name.starts_with(b".")).collect()
}

async fn is_gone(engine: &Engine, name: &str) -> bool {
    let found = engine.lookup(&Caller::root(), root(engine), name.as_bytes()).await;
    found.is_err_and(|done| done.value.errno == Errno::NotFound)
}

async fn reopened(rig: &Rig) -> Arc<Engine> {
    rig.crash();
    rig.open().await.0
}

#[tokio::test]
async fn the_store_is_not_told_of_files_that_came_and_went() {
    let rig = Rig::new();
    let engine = rig.create().await;
    make(&engine, "stays").await;
    engine.checkpoint().await.unwrap();
    let before: Vec<Bytes> = rig.disk.contents().into_iter().map(|(key, _)| key).collect();
    for number in 0..50 {
        let (name, other) = (format!("file {number}"), format!("other {number}"));
        let node = make(&engine, &name).await;
        write(&engine, node, 0, b"content").await;
        make(&engine, &other).await;
        rename(&engine, &name, &other).await;
        remove(&engine, &other).await;
        let dir = root(&engine);
        let made = engine.mkdir(&Caller::root(), dir, name.as_bytes(), SetAttr::default()).await;
        made.expect("the name is free again");
        engine.rmdir(&Caller::root(), dir, name.as_bytes()).await.expect("it is empty");
    }
    let done = engine.checkpoint().await.unwrap();
    assert!(done.keys <= 2 && done.records == 0, "{done:?}");
    let after: Vec<Bytes> = rig.disk.contents().into_iter().map(|(key, _)| key).collect();
    assert_eq!(after, before);
    let engine = reopened(&rig).await;
    assert_eq!(names(&engine).await, ["stays"]);
    assert!(is_gone(&engine, "file 7").await && is_gone(&engine, "other 7").await);
}

#[tokio::test]
async fn what_the_store_has_goes_however_often_it_was_made_again_meanwhile() {
    let rig = Rig::new();
    let engine = rig.create().await;
    for name in ["removed", "made again", "replaced", "moved", "Beside"] {
        make(&engine, name).await;
    }
    engine.checkpoint().await.unwrap();
    remove(&engine, "removed").await;
    for _ in 0..2 {
        remove(&engine, "made again").await;
        make(&engine, "made again").await;
    }
    remove(&engine, "made again").await;
    // In one operation the name is taken away and stands there again.
    make(&engine, "new").await;
    rename(&engine, "new", "replaced").await;
    remove(&engine, "replaced").await;
    // Both names stand under one key.
    rename(&engine, "moved", "Moved").await;
    remove(&engine, "Moved").await;
    make(&engine, "beside").await;
    remove(&engine, "beside").await;
    remove(&engine, "Beside").await;
    engine.checkpoint().await.unwrap();
    for name in ["removed", "made again", "replaced", "moved", "Moved", "Beside"] {
        assert!(is_gone(&engine, name).await, "{name}");
    }
    let engine = reopened(&rig).await;
    assert!(names(&engine).await.is_empty());
    for name in ["removed", "made again", "replaced", "moved", "Moved", "Beside"] {
        assert!(is_gone(&engine, name).await, "{name}");
        make(&engine, name).await;
    }
    assert_eq!(names(&engine).await.len(), 6);
}

#[tokio::test]
async fn what_went_while_its_making_was_being_stored_goes_from_the_store() {
    let rig = Rig::new();
    let engine = rig.create().await;
    let node = make(&engine, "file").await;
    let (begun, go) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (tell, wait) = (begun.clone(), go.clone());
    rig.disk.set_commit_hook(Some(Arc::new(move |_| {
        let (tell, wait) = (tell.clone(), wait.clone());
        Box::pin(async move {
            tell.notify_one();
            wait.notified().await;
            CommitFate::Done
        })
    })));
    let storing = tokio::spawn({
        let engine = engine.clone();
        async move { engine.checkpoint().await }
    });
    begun.notified().await;
    remove(&engine, "file").await;
    make(&engine, "file").await;
    remove(&engine, "file").await;
    rig.disk.set_commit_hook(None);
    go.notify_one();
    storing.await.unwrap().unwrap();
    assert!(is_gone(&engine, "file").await);
    engine.checkpoint().await.unwrap();
    let engine = reopened(&rig).await;
    assert!(is_gone(&engine, "file").await && names(&engine).await.is_empty());
    let stale = engine.getattr(&Caller::root(), node).await;
    assert_eq!(stale.unwrap_err().value.errno, Errno::Stale);
}

#[tokio::test]
async fn who_is_told_that_it_is_gone_waits_until_that_is_durable() {
    let rig = Rig::new();
    let engine = rig.create().await;
    let node = make(&engine, "file").await;
    let removed = engine.remove(&Caller::root(), root(&engine), b"file").await.expect("it is there").position;
    let told = engine.getattr(&Caller::root(), node).await.unwrap_err();
    assert_eq!(told.value.errno, Errno::Stale);
    assert!(removed > Position::ZERO && told.position >= removed, "{}, {removed}", told.position);
}
