//! The full walk and the scrub find every kind of damage: each is planted once, and named.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use bytes::Bytes;
use tarn_base::ids::{Ino, VolumeId};
use tarn_data::{RecordPointer, SegmentState, SegmentValue, object_name};
use tarn_meta::mem::{MemDisk, MemOpener};
use tarn_meta::{Batch, MetaOpener};
use tarn_store::Store;
use tarn_vfs::{Caller, FileSystem, FileType, SetAttr};

use super::opening::{make, write};
use super::reclaim::{clean, noise, set_size};
use crate::core::Core;
use crate::fsck::walk;
use crate::key::{Key, Kind, segment_id};
use crate::testing::Rig;
use crate::value::{Bucket, CookieEntry, CountRecord, Cut, HashEntry, Inode, MapState, SaltRecord, ShardState, Usage};

type Keys = BTreeMap<Key, Bytes>;

/// A store with two directories, a file of sixteen records of which some are cut off, one of two names, a volume
/// beside, a condemned segment and a forwarded one. What the walk is shown.
struct World {
    rig: Rig,
    keys: Keys,
    volume: VolumeId,
    root: Ino,
    dir: Ino,
    file: Ino,
    link: Ino,
}

async fn world() -> World {
    let rig = Rig::new();
    let engine = rig.create().await;
    let root = engine.volumes()[0].root;
    let caller = Caller::root();
    let dir = engine.mkdir(&caller, root, b"dir", SetAttr::default()).await.unwrap().value.attr.unwrap().node;
    engine.mkdir(&caller, dir, b"below", SetAttr::default()).await.unwrap();
    // Of the first segment little is left, so it is forwarded; the second dies.
    for nth in 0..10u64 {
        let node = make(&engine, &format!("short{nth}")).await;
        write(&engine, node, 0, &noise(nth, 1 << 16)).await;
    }
    engine.checkpoint().await.unwrap();
    let dying = make(&engine, "dying").await;
    write(&engine, dying, 0, &noise(20, 1 << 16)).await;
    engine.checkpoint().await.unwrap();
    for name in (1..10).map(|nth| format!("short{nth}")).chain(["dying".into()]) {
        engine.remove(&caller, root, name.as_bytes()).await.unwrap();
    }
    engine.reclaim_now().await.unwrap();
    let link = make(&engine, "link").await;
    engine.link(&caller, link, dir, b"again").await.unwrap();
    let file = make(&engine, "file").await;
    write(&engine, file, 0, &noise(30, 1 << 20)).await;
    engine.checkpoint().await.unwrap();
    set_size(&engine, file, 700_000).await;
    clean(&engine).await;
    engine.close().await.unwrap();
    rig.crash();
    let contents = rig.disk.contents().into_iter();
    let keys: Keys = contents.map(|(key, value)| (Key::decode(&key).unwrap(), value)).collect();
    let (volume, root, dir, file, link) = (root.volume, root.ino, dir.ino, file.ino, link.ino);
    World { rig, keys, volume, root, dir, file, link }
}

impl World {
    /// What the walk says of the store with these keys.
    async fn walk(&self, keys: &Keys) -> Vec<String> {
        self.walk_with(keys, None).await
    }

    /// The same, with the records that `core` reads.
    async fn walk_with(&self, keys: &Keys, core: Option<&Core>) -> Vec<String> {
        let store = MemOpener::new(MemDisk::new()).open().await.unwrap();
        let changes = keys.iter().map(|(key, value)| (key.bytes(), Some(value.clone()))).collect();
        store.commit(Batch { changes }).await.unwrap();
        let objects: Arc<dyn Store> = self.rig.memory.clone();
        let report = walk(store.view(), objects, core, core.is_some(), &mut |_| ()).await.unwrap();
        report.findings
    }

    fn inode(&self, keys: &mut Keys, ino: Ino, change: impl FnOnce(&mut Inode)) {
        let key = Key::inode(self.volume, ino);
        edit(keys, key, Inode::decode, |value: &Inode, out| value.encode(out), change);
    }

    /// Of the directory's names the first by hash.
    fn bucket(&self, keys: &mut Keys, change: impl FnOnce(&mut Bucket)) {
        let key = *keys.range(Key::entry_hash(self.volume, self.dir, 0)..).next().unwrap().0;
        edit(keys, key, Bucket::decode, |value: &Bucket, out| value.encode(out), change);
    }

    fn segment(&self, keys: &Keys, state: impl Fn(&SegmentValue) -> bool) -> (Key, SegmentValue) {
        let segments = keys.iter().filter(|(key, _)| key.kind == Kind::Segment);
        let mut found = segments.map(|(key, value)| (*key, SegmentValue::decode(value).unwrap()));
        found.find(|(_, value)| state(value)).expect("a segment in that state")
    }

    fn pointer(&self, keys: &mut Keys, record: u64, change: impl FnOnce(&mut RecordPointer)) {
        let key = Key::pointer(self.volume, self.file, record);
        edit(keys, key, RecordPointer::decode, |value: &RecordPointer, out| value.encode(out), change);
    }
}

fn edit<T>(
    keys: &mut Keys,
    key: Key,
    decode: impl FnOnce(&[u8]) -> tarn_base::codec::Decoded<T>,
    encode: impl FnOnce(&T, &mut Vec<u8>),
    change: impl FnOnce(&mut T),
) {
    let mut value = decode(&keys[&key]).unwrap();
    change(&mut value);
    let mut out = Vec::new();
    encode(&value, &mut out);
    keys.insert(key, out.into());
}

fn put(keys: &mut Keys, key: Key, encode: impl FnOnce(&mut Vec<u8>)) {
    let mut out = Vec::new();
    encode(&mut out);
    keys.insert(key, out.into());
}

fn live(value: &SegmentValue) -> bool {
    value.state == SegmentState::Live
}

fn forwards(value: &SegmentValue) -> bool {
    matches!(value.state, SegmentState::Forwarding(_))
}

fn condemned(value: &SegmentValue) -> bool {
    matches!(value.state, SegmentState::Condemned { .. })
}

type Plant = fn(&World, &mut Keys);

/// Damage to the tree, and what is said of it.
const TREE: &[(&str, Plant)] = &[
    ("it has 5 links, but 2 entries", |w, k| w.inode(k, w.link, |inode| inode.links = 5)),
    ("it has 9 links, but 1 subdirectories", |w, k| w.inode(k, w.dir, |inode| inode.links = 9)),
    ("it counts 7 entries, but has 2", |w, k| w.inode(k, w.dir, |inode| inode.size = 7)),
    ("the parent of inode", |w, k| w.inode(k, w.dir, |inode| inode.parent = w.file)),
    ("its parents do not lead to the root", |w, k| w.inode(k, w.dir, |inode| inode.parent = w.dir)),
    ("its root is not a root", |w, k| w.inode(k, w.root, |inode| inode.parent = w.dir)),
    ("its root is not there", |w, k| drop(k.remove(&Key::inode(w.volume, w.root)))),
    ("which it names, is not there", |w, k| drop(k.remove(&Key::inode(w.volume, w.link)))),
    ("its cookie was not given out", |w, k| w.inode(k, w.dir, |inode| inode.next_cookie = 4)),
    ("of a lineage that is still to come", |w, k| w.inode(k, w.dir, |inode| inode.cookie_lineage = 9)),
    ("it is charged for 12 records, but has 16", |w, k| w.inode(k, w.file, |inode| inode.records = 12)),
    ("its usage is", |w, k| put(k, Key::usage(w.volume), |out| Usage { bytes: 1, inodes: 2 }.encode(out))),
    ("its usage is missing", |w, k| drop(k.remove(&Key::usage(w.volume)))),
    ("usage of volume 99", |_, k| put(k, Key::usage(VolumeId(99)), |out| Usage::default().encode(out))),
    ("it is no file, but is charged for data", |w, k| w.inode(k, w.dir, |inode| inode.records = 1)),
    ("it says Regular, inode", |w, k| w.inode(k, w.link, |inode| inode.kind = FileType::Fifo)),
    ("nothing names it", |w, k| {
        let value = k[&Key::inode(w.volume, w.link)].clone();
        k.insert(Key::inode(w.volume, Ino::new(0, w.root.number() + 4)), value);
    }),
    ("no inode may have this number", |w, k| {
        let value = k[&Key::inode(w.volume, w.link)].clone();
        k.insert(Key::inode(w.volume, Ino(0)), value);
    }),
    ("its number is still to be given out", |_, k| {
        edit(k, Key::shard(), ShardState::decode, |v: &ShardState, out| v.encode(out), |state| state.next_inode = 3);
    }),
    ("is found by name only", |w, k| drop(k.remove(&cookie_key(w, k)))),
    ("is listed only", |w, k| {
        let key = *k.range(Key::entry_hash(w.volume, w.dir, 0)..).next().unwrap().0;
        k.remove(&key);
    }),
    ("has another hash", |w, k| {
        let (key, value) = k.range(Key::entry_hash(w.volume, w.dir, 0)..).next().map(|(a, b)| (*a, b.clone())).unwrap();
        k.remove(&key);
        k.insert(Key { b: key.b ^ 1, ..key }, value);
    }),
    ("is there twice", |w, k| {
        w.bucket(k, |bucket| bucket.entries.push(bucket.entries[0].clone()));
    }),
    ("no two names have one hash", |w, k| {
        w.bucket(k, |bucket| {
            bucket.entries.push(HashEntry { name: "other".into(), ..bucket.entries[0].clone() });
        });
    }),
    ("it is empty", |w, k| put(k, Key::entry_hash(w.volume, w.dir, 5), |out| Bucket::default().encode(out))),
    ("is no name", |w, k| {
        let key = cookie_key(w, k);
        edit(k, key, CookieEntry::decode, |v: &CookieEntry, out| v.encode(out), |entry| entry.name = "a/b".into());
    }),
    ("its directory is not there", |w, k| {
        let value = k[&cookie_key(w, k)].clone();
        k.insert(Key::entry_cookie(w.volume, Ino::new(0, 900), 3), value);
    }),
    ("its directory is none", |w, k| {
        let value = k[&cookie_key(w, k)].clone();
        k.insert(Key::entry_cookie(w.volume, w.file, 3), value);
    }),
    ("keys of volume 77, which is not there", |w, k| {
        let value = k[&Key::inode(w.volume, w.root)].clone();
        k.insert(Key::inode(VolumeId(77), w.root), value);
    }),
    ("does not belong into a volume", |w, k| drop(k.insert(Key { volume: w.volume, ..Key::salt(1) }, Bytes::new()))),
    ("a key of this kind belongs into a volume", |w, k| {
        k.insert(Key::inode(VolumeId(0), w.root), Bytes::new());
    }),
    ("the shard's state is missing", |_, k| drop(k.remove(&Key::shard()))),
    ("version 9 is newer", |w, k| drop(k.insert(Key::inode(w.volume, w.link), Bytes::from_static(&[9, 9])))),
];

fn cookie_key(w: &World, keys: &Keys) -> Key {
    *keys.range(Key::entry_cookie(w.volume, w.dir, 0)..).next().unwrap().0
}

/// Damage to maps, pointers and segments.
const DATA: &[(&str, Plant)] = &[
    ("it says that it has cuts, but has none", |w, k| drop(k.remove(&Key::map(w.volume, w.file)))),
    ("it lies behind the end of its file", |w, k| drop(k.remove(&Key::map(w.volume, w.file)))),
    ("but its inode says none", |w, k| w.inode(k, w.file, |inode| inode.has_cuts = false)),
    ("it is dead, but has an inode", |w, k| {
        let dead = MapState { dead: true, ..MapState::default() };
        put(k, Key::map(w.volume, w.file), |out| dead.encode(out));
    }),
    ("it has cuts, but no inode", |w, k| {
        let map = MapState { cuts: vec![Cut { from: 1, to: 2, generation: 1 }], ..MapState::default() };
        put(k, Key::map(w.volume, Ino::new(0, 900)), |out| map.encode(out));
    }),
    ("a cut of a generation to come", |w, k| {
        let map = MapState { cuts: vec![Cut { from: 11, to: u64::MAX, generation: 50 }], ..MapState::default() };
        put(k, Key::map(w.volume, w.file), |out| map.encode(out));
    }),
    ("neither cuts nor death", |w, k| put(k, Key::map(w.volume, w.file), |out| MapState::default().encode(out))),
    ("it is of no file", |w, k| {
        let value = k[&Key::pointer(w.volume, w.file, 0)].clone();
        k.insert(Key::pointer(w.volume, Ino::new(0, 900), 0), value);
    }),
    ("it is of no regular file", |w, k| {
        let value = k[&Key::pointer(w.volume, w.file, 0)].clone();
        k.insert(Key::pointer(w.volume, w.dir, 0), value);
    }),
    ("has another pointer already", |w, k| {
        let value = k[&Key::pointer(w.volume, w.file, 0)].clone();
        k.insert(Key::pointer(w.volume, w.file, 1), value);
    }),
    ("are live but no pointer names them", |w, k| drop(k.remove(&Key::pointer(w.volume, w.file, 0)))),
    ("live bytes, pointers", |w, k| drop(k.remove(&Key::pointer(w.volume, w.file, 0)))),
    ("it is of a generation to come", |w, k| w.pointer(k, 0, |pointer| pointer.generation = 60)),
    ("are more than its file's records have", |w, k| {
        w.pointer(k, 0, |pointer| {
            pointer.plain = 1 << 20;
            pointer.codec = tarn_data::Codec::Lz4;
        });
    }),
    ("which is not there", |w, k| w.pointer(k, 0, |pointer| pointer.segment.counter = 900)),
    ("lies outside segment", |w, k| w.pointer(k, 0, |pointer| pointer.index = 900)),
    ("ends outside the object", |w, k| w.pointer(k, 0, |pointer| pointer.offset = 1 << 30)),
    ("which is condemned", |w, k| {
        let segment = segment_id(w.segment(k, condemned).0.a);
        w.pointer(k, 0, |pointer| pointer.segment = segment);
    }),
    ("is not forwarded", |w, k| {
        let segment = segment_id(w.segment(k, forwards).0.a);
        w.pointer(k, 0, |pointer| (pointer.segment, pointer.index) = (segment, 900));
    }),
    ("is not in the live set", |w, k| {
        let (key, mut value) = w.segment(k, |value| live(value) && value.live.count() > 1);
        let index = value.live.iter().next().unwrap();
        value.live.remove(index);
        k.insert(key, value.encode().into());
    }),
    ("it counts 5 live bytes", |w, k| {
        let (key, value) = w.segment(k, live);
        k.insert(key, SegmentValue { live_bytes: 5, ..value }.encode().into());
    }),
    ("it is condemned though records live", |w, k| {
        let (key, value) = w.segment(k, live);
        k.insert(key, SegmentValue { state: SegmentState::Condemned { at_ms: 1 }, ..value }.encode().into());
    }),
    ("nothing in it lives, and it is not condemned", |w, k| {
        let (key, value) = w.segment(k, condemned);
        k.insert(key, SegmentValue { state: SegmentState::Live, ..value }.encode().into());
    }),
    ("records that no pointer names", |w, k| {
        forwarding(w, k, |forwarding| {
            let (_, forward) = forwarding.records.first_key_value().map(|(a, b)| (*a, *b)).unwrap();
            forwarding.records.insert(999, forward);
        })
    }),
    ("another salt than its owner epoch", |w, k| forwarding(w, k, |forwarding| forwarding.salt = [9; 16])),
    ("it is forwarded to segment", |w, k| {
        forwarding(w, k, |forwarding| {
            forwarding.records.values_mut().for_each(|forward| forward.segment.counter = 900);
        })
    }),
    ("which does not live", |w, k| {
        let target = segment_id(w.segment(k, condemned).0.a);
        forwarding(w, k, |forwarding| forwarding.records.values_mut().for_each(|forward| forward.segment = target));
    }),
    ("its records were moved though some live in it", |w, k| {
        let (key, mut value) = w.segment(k, forwards);
        value.live.insert(0);
        k.insert(key, value.encode().into());
    }),
    ("is of another family", |w, k| {
        let (key, mut value) = w.segment(k, live);
        value.family.0[0] ^= 1;
        k.insert(key, value.encode().into());
    }),
    ("the salt of owner epoch 1 is missing", |_, k| drop(k.remove(&Key::salt(1)))),
    ("version 9 is newer", |_, k| {
        k.insert(Key::salt(1), Bytes::from_static(&[9, 9]));
    }),
    ("its number was not reserved", |w, k| {
        let (key, value) = w.segment(k, condemned);
        k.insert(Key { a: key.a + 1_000_000, ..key }, value.encode().into());
    }),
    ("it counts 3 pointers, but has 1", |w, k| count(w, k, 3)),
    ("it counts 3 pointers, but has 2", |w, k| {
        count(w, k, 3);
        let value = k[&Key::pointer(w.volume, w.file, 0)].clone();
        k.insert(Key::pointer(w.volume, w.file, 1), value);
    }),
    ("it counts 2 pointers, but has 0", |_, k| {
        put(k, Key::count(segment_id(1), 1), |out| CountRecord { pointers: 2 }.encode(out));
    }),
    ("out of range: a count of pointers", |_, k| {
        put(k, Key::count(segment_id(1), 1), |out| CountRecord { pointers: 1 }.encode(out));
    }),
    ("another pointer says something else of record", |w, k| {
        count(w, k, 2);
        let value = k[&Key::pointer(w.volume, w.file, 0)].clone();
        k.insert(Key::pointer(w.volume, w.file, 1), value);
        w.pointer(k, 1, |pointer| pointer.tag[0] ^= 1);
    }),
    ("it says 4 records are shared and save 0 bytes, counts 0 and 0", |w, k| {
        let (key, value) = w.segment(k, live);
        k.insert(key, SegmentValue { shared: 4, ..value }.encode().into());
    }),
    ("it says 0 records are shared and save 7 bytes, counts 0 and 0", |w, k| {
        let (key, value) = w.segment(k, live);
        k.insert(key, SegmentValue { saved_bytes: 7, ..value }.encode().into());
    }),
    ("bytes long, not", |w, k| {
        let (key, mut value) = w.segment(k, live);
        value.object_size += 1;
        k.insert(key, value.encode().into());
    }),
];

/// A count key for record 0 of the file.
fn count(w: &World, keys: &mut Keys, pointers: u64) {
    let pointer = RecordPointer::decode(&keys[&Key::pointer(w.volume, w.file, 0)]).unwrap();
    put(keys, Key::count(pointer.segment, pointer.index), |out| CountRecord { pointers }.encode(out));
}

fn forwarding(w: &World, keys: &mut Keys, change: impl FnOnce(&mut tarn_data::Forwarding)) {
    let (key, mut value) = w.segment(keys, forwards);
    let SegmentState::Forwarding(forwarding) = &mut value.state else { return };
    change(forwarding);
    keys.insert(key, value.encode().into());
}

#[tokio::test]
async fn every_kind_of_damage_is_named_and_a_sound_store_has_none() {
    let world = world().await;
    assert_eq!(world.walk(&world.keys).await, Vec::<String>::new());
    let salts = world.keys.iter().filter(|(key, _)| key.kind == Kind::Salt);
    assert!(salts.clone().all(|(_, value)| SaltRecord::decode(value).is_ok()) && salts.count() > 0);
    let mut silent = Vec::new();
    for (expected, plant) in TREE.iter().chain(DATA) {
        let mut keys = world.keys.clone();
        plant(&world, &mut keys);
        let findings = world.walk(&keys).await;
        if !findings.iter().any(|finding| finding.contains(expected)) {
            silent.push(format!("{expected:?}: {findings:#?}"));
        }
    }
    assert!(silent.is_empty(), "{}", silent.join("\n"));
}

#[tokio::test]
async fn missing_and_damaged_objects_are_found_by_walk_and_scrub() {
    let world = world().await;
    let (engine, _) = world.rig.open().await;
    clean(&engine).await;
    let whole = engine.scrub(|_| ControlFlow::Continue(())).await.unwrap();
    assert!(whole.damage.is_empty() && whole.unread.is_empty() && whole.records >= 11, "{whole:?}");
    let mut seen = Vec::new();
    let broken_off = engine.scrub(|at| {
        seen.push(at);
        if at.done > 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    let broken_off = broken_off.await.unwrap();
    assert!(broken_off.canceled && broken_off.segments == 1, "{broken_off:?} {seen:?}");

    let mut keys = world.keys.clone();
    assert_eq!(world.walk_with(&keys, Some(&engine.core)).await, [""; 0]);
    world.pointer(&mut keys, 2, |pointer| pointer.zeros = 9);
    let found = world.walk_with(&keys, Some(&engine.core)).await;
    assert!(found.len() == 1 && found[0].contains("first 9 bytes are not all zeros"), "{found:?}");

    // A byte of a record that lives.
    let pointer = RecordPointer::decode(&world.keys[&Key::pointer(world.volume, world.file, 2)]).unwrap();
    let name = object_name(pointer.segment);
    assert!(world.rig.memory.tamper(&name, |bytes| bytes[pointer.offset as usize + 7] ^= 1));
    let report = engine.scrub(|_| ControlFlow::Continue(())).await.unwrap();
    assert_eq!(report.damage.len(), 1, "{report:?}");
    let text = &report.damage[0];
    assert!(text.contains(&name) && text.contains("/file") && text.contains("record 2 of"), "{text}");
    assert!(engine.status().damage.contains(text));
    engine.core.caches.records.clear();
    let shallow = engine.fsck(false, |_| ()).await.unwrap();
    assert!(shallow.is_clean(), "{shallow:?}");
    let deep = engine.fsck(true, |_| ()).await.unwrap();
    assert!(deep.findings.iter().any(|finding| finding.contains("is damaged")), "{deep:?}");

    world.rig.memory.delete(&name).await.unwrap();
    let missing = engine.fsck(false, |_| ()).await.unwrap();
    assert!(missing.findings.iter().any(|finding| finding.ends_with("it is missing")), "{missing:?}");
    let report = engine.scrub(|_| ControlFlow::Continue(())).await.unwrap();
    assert!(report.damage.len() > 1 && report.damage.iter().all(|text| text.contains(&name)), "{report:?}");
}
