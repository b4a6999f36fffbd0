//! What is brought beside what was asked for, and that it is the present.

use tarn_base::ids::Ino;
use tarn_vfs::{Caller, Errno, FileSystem, ListRequest, Node, SetAttr};

use super::opening::{look, make, root};
use crate::engine::Engine;
use crate::hash::name_hash;
use crate::key::Key;
use crate::testing::Rig;
use crate::value::Inode;

/// All names of the root, as a client lists them.
async fn list(engine: &Engine) -> usize {
    list_with(engine, false).await
}

async fn list_with(engine: &Engine, attrs: bool) -> usize {
    let request = ListRequest { after: 0, entries_max: 4096, bytes_max: 1 << 20, entry_overhead: 24, attrs };
    engine.list(&Caller::root(), root(engine), request).await.expect("a directory").value.entries.len()
}

fn inode(engine: &Engine, ino: Ino) -> bool {
    engine.core.caches.keys.peek(&Key::inode(root(engine).volume, ino)).is_some()
}

/// Whether what is found by `name` in the root is in the cache.
fn name(engine: &Engine, name: &str) -> bool {
    let volume = root(engine).volume;
    let secret = engine.core.volumes.get(volume).unwrap().record.name_secret;
    let hash = name_hash(&secret, name.as_bytes());
    engine.core.caches.keys.peek(&Key::entry_hash(volume, root(engine).ino, hash)).is_some()
}

/// Makes "file 0" and so on in the root.
async fn files(engine: &Engine, count: usize) -> Vec<Node> {
    let mut nodes = Vec::new();
    for number in 0..count {
        nodes.push(make(engine, &format!("file {number}")).await);
    }
    nodes
}

async fn reopened(rig: &Rig, engine: &Engine) -> std::sync::Arc<Engine> {
    engine.close().await.unwrap();
    rig.crash();
    rig.open().await.0
}

#[tokio::test]
async fn the_inodes_of_a_stretch_come_together_and_are_the_present() {
    let rig = Rig::new();
    let engine = rig.create().await;
    let nodes = files(&engine, 200).await;
    let engine = reopened(&rig, &engine).await;
    let change = SetAttr { mode: Some(0o600), ..SetAttr::default() };
    engine.setattr(&Caller::root(), nodes[70], change).await.expect("it is there");
    look(&engine, "file 150").await;
    assert!(!inode(&engine, nodes[160].ino) && !inode(&engine, nodes[72].ino));
    look(&engine, "file 71").await;
    assert!(inode(&engine, nodes[72].ino) && !inode(&engine, nodes[160].ino), "of the same stretch");
    let found = engine.lookup(&Caller::root(), root(&engine), b"file 70").await.unwrap();
    assert_eq!(found.value.0.mode, 0o600, "what lies over the store counts");
}

/// Many more names than a page asks the store for were there and are removed again: what is left behind them is found at once,
/// while whoever removes goes on.
#[tokio::test]
async fn a_page_behind_many_removed_names_asks_the_store_seldom() {
    let rig = Rig::new();
    let engine = rig.create().await;
    make(&engine, "first").await;
    let engine = reopened(&rig, &engine).await;
    for number in 0..3000 {
        let name = format!("file {number}");
        make(&engine, &name).await;
        engine.remove(&Caller::root(), root(&engine), name.as_bytes()).await.expect("it is there");
    }
    make(&engine, "last").await;
    let mut after = 0;
    let mut names = Vec::new();
    let before = rig.disk.scans();
    loop {
        let request = ListRequest { after, entries_max: 10, bytes_max: 512, entry_overhead: 24, attrs: false };
        let page = engine.list(&Caller::root(), root(&engine), request).await.expect("a directory").value;
        names.extend(page.entries.iter().map(|entry| entry.name.clone()));
        after = page.entries.last().map_or(after, |entry| entry.cookie);
        if page.eof {
            break;
        }
    }
    assert_eq!(names, [&b"."[..], b"..", b"first", b"last"]);
    assert!(rig.disk.scans() - before <= 2, "{} scans", rig.disk.scans() - before);
    // What the store still has of them is asked for in ever larger parts.
    let names: Vec<String> = (0..3000).map(|number| format!("again {number}")).collect();
    for name in &names {
        make(&engine, name).await;
    }
    let engine = reopened(&rig, &engine).await;
    for name in &names {
        engine.remove(&Caller::root(), root(&engine), name.as_bytes()).await.expect("it is there");
    }
    let before = rig.disk.scans();
    let request = ListRequest { after: 0, entries_max: 10, bytes_max: 512, entry_overhead: 24, attrs: false };
    let page = engine.list(&Caller::root(), root(&engine), request).await.expect("a directory").value;
    assert_eq!(page.entries.len(), 4);
    assert!(rig.disk.scans() - before <= 10, "{} scans", rig.disk.scans() - before);
}

#[tokio::test]
async fn names_that_were_listed_are_found_without_the_store_and_are_the_present() {
    let rig = Rig::new();
    let engine = rig.create().await;
    for number in 0..100 {
        make(&engine, &format!("file {number}")).await;
    }
    let engine = reopened(&rig, &engine).await;
    engine.remove(&Caller::root(), root(&engine), b"file 7").await.expect("it is there");
    assert!(!name(&engine, "file 8"));
    assert_eq!(list(&engine).await, 101);
    assert!(name(&engine, "file 8"));
    let gone = engine.lookup(&Caller::root(), root(&engine), b"file 7").await;
    assert_eq!(gone.unwrap_err().value.errno, Errno::NotFound);
    for number in (0..100).filter(|number| *number != 7) {
        engine.remove(&Caller::root(), root(&engine), format!("file {number}").as_bytes()).await.expect("it is there");
    }
    assert_eq!(list(&engine).await, 2);
}

#[tokio::test]
async fn names_listed_with_attributes_come_along_only_where_there_is_room() {
    for (key_cache_bytes, room) in [(1 << 20, true), (40 << 10, false)] {
        let mut rig = Rig::new();
        rig.config.key_cache_bytes = key_cache_bytes;
        let engine = rig.create().await;
        for number in 0..100 {
            make(&engine, &format!("file {number}")).await;
        }
        let engine = reopened(&rig, &engine).await;
        let known = || (0..100).filter(|number| name(&engine, &format!("file {number}"))).count();
        assert_eq!(list_with(&engine, true).await, 102);
        assert_eq!(known() == 100, room, "{} names are known", known());
        assert!(room || known() == 0, "{} names took the room of others", known());
        assert_eq!(list(&engine).await, 102);
        assert!(known() > 0, "without attributes they always come along");
    }
}

#[tokio::test]
async fn attributes_listed_are_the_present_whatever_of_them_is_in_ram() {
    for known in [None, Some(0), Some(50)] {
        let rig = Rig::new();
        let engine = rig.create().await;
        let nodes = files(&engine, 100).await;
        let engine = reopened(&rig, &engine).await;
        if let Some(known) = known {
            look(&engine, &format!("file {known}")).await;
        }
        let change = SetAttr { mode: Some(0o444), ..SetAttr::default() };
        engine.setattr(&Caller::root(), nodes[70], change).await.expect("it is there");
        let request = ListRequest { after: 2, entries_max: 4096, bytes_max: 1 << 20, entry_overhead: 24, attrs: true };
        let page = engine.list(&Caller::root(), root(&engine), request).await.expect("a directory").value;
        let shown =
            page.entries.iter().map(|entry| (entry.ino, entry.attr.as_ref().expect("it is there").mode == 0o444));
        let made = nodes.iter().enumerate().map(|(at, node)| (node.ino, at == 70));
        assert_eq!(shown.collect::<Vec<_>>(), made.collect::<Vec<_>>(), "{known:?} was known");
        assert!(nodes.iter().all(|node| node.ino == nodes[70].ino || inode(&engine, node.ino)));
    }
}

#[tokio::test]
async fn names_that_share_a_hash_are_both_found_after_a_listing() {
    let rig = Rig::new();
    let engine = rig.create().await;
    let nodes = [make(&engine, "File").await, make(&engine, "file").await];
    let engine = reopened(&rig, &engine).await;
    assert_eq!(list(&engine).await, 4);
    assert!(!name(&engine, "file"), "a listing does not say all that stands there");
    assert_eq!([look(&engine, "File").await, look(&engine, "file").await], nodes);
    engine.remove(&Caller::root(), root(&engine), b"File").await.expect("it is there");
    let engine = reopened(&rig, &engine).await;
    assert_eq!(list(&engine).await, 3);
    assert_eq!(look(&engine, "file").await, nodes[1]);
    let held = engine.core.stack.load().view.clone();
    let root = held.get(&Key::inode(root(&engine).volume, root(&engine).ino).encode()).await.unwrap().unwrap();
    assert!(!Inode::decode(&root).unwrap().distinct, "once is enough");
}
