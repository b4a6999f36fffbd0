//! What belongs to one volume: inodes, names, maps, pointers.
//!
//! - Its keys come in order: inodes, entries by hash, entries by cookie, maps, pointers.
//! - The two keys of an entry are held against each other by a sum over each directory; only where the sums differ
//!   are the entries compared one by one.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use tarn_base::codec::Put;
use tarn_base::ids::{Ino, VolumeId};
use tarn_data::RecordPointer;
use tarn_meta::{MetaError, MetaView};
use tarn_vfs::{COOKIE_FIRST, FileType, NAME_MAX};

use super::shard::{Shard, goes};
use super::{FsckReport, name};
use crate::hash::{name_hash, plain_hash};
use crate::key::{Key, Kind};
use crate::pages::Pages;
use crate::value::{Bucket, CookieEntry, Inode, MapState, Usage};

/// Entries of one side of a directory: their number, and the sum of their hashes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Side {
    count: u64,
    sum: u64,
}

impl Side {
    fn add(&mut self, name: &[u8], ino: Ino, kind: FileType, cookie: u64) {
        let mut bytes = name.to_vec();
        bytes.put_u64(ino.0);
        bytes.put_u8(kind as u8);
        bytes.put_u64(cookie);
        self.count += 1;
        self.sum = self.sum.wrapping_add(plain_hash(&bytes));
    }
}

/// An inode, and what other keys say of it.
#[derive(Debug)]
struct Seen {
    kind: FileType,
    links: u32,
    size: u64,
    records: u64,
    record_bits: u8,
    has_cuts: bool,
    distinct: bool,
    parent: Ino,
    next_cookie: u64,
    map_generation: u32,
    /// Entries that name it, and subdirectories in it.
    names: u32,
    subdirectories: u32,
    by_hash: Side,
    by_cookie: Side,
    /// Pointers that hold a charge.
    charged: u64,
}

pub(super) struct Tree {
    pub id: VolumeId,
    /// `None`: the volume has no record, or its data is being removed, so that its tree says nothing.
    whole: Option<(Ino, [u8; 16])>,
    inodes: BTreeMap<Ino, Seen>,
    /// Maps that have a key.
    maps: BTreeMap<Ino, MapState>,
    /// Entries whose inode has not been met: directory, cookie, inode.
    strays: Vec<(Ino, u64, Ino, FileType)>,
    /// What the inodes are charged for.
    usage: Usage,
}

impl Tree {
    pub fn enter(id: VolumeId, shard: &Shard, report: &mut FsckReport) -> Tree {
        let record = shard.volumes.get(&id);
        if record.is_none() {
            report.find(format!("keys of volume {}, which is not there", id.0));
        }
        let whole = record.filter(|record| !goes(record)).map(|record| (record.root, record.name_secret));
        Tree { id, whole, inodes: BTreeMap::new(), maps: BTreeMap::new(), strays: Vec::new(), usage: Usage::default() }
    }

    pub fn inode(&mut self, key: &Key, value: &[u8], shard: &Shard, report: &mut FsckReport) {
        if self.whole.is_none() {
            return;
        }
        let ino = Ino(key.a);
        let inode = match Inode::decode(value) {
            Ok(inode) => inode,
            Err(error) => return report.find(format!("{}: {error}", name(key))),
        };
        report.counts.inodes += 1;
        report.counts.directories += u64::from(inode.kind == FileType::Directory);
        if ino.number() == 0 || ino.0 >> 63 != 0 || ino.partition() != key.partition || key.b != 0 {
            report.find(format!("{}: no inode may have this number", name(key)));
        }
        let next = shard.state.as_ref().map_or(0, |state| state.next_inode);
        if ino.partition() == 0 && ino.number() >= next {
            report.find(format!("{}: its number is still to be given out", name(key)));
        }
        if inode.cookie_lineage > shard.state.as_ref().map_or(0, |state| state.lineage) {
            report.find(format!("{}: its cookies are of a lineage that is still to come", name(key)));
        }
        self.usage.inodes += 1;
        self.usage.bytes += inode.records << inode.record_bits;
        if inode.kind != FileType::Regular && (inode.records > 0 || inode.has_cuts) {
            report.find(format!("{}: it is no file, but is charged for data", name(key)));
        }
        let seen = Seen {
            kind: inode.kind,
            links: inode.links,
            size: inode.size,
            records: inode.records,
            record_bits: inode.record_bits,
            has_cuts: inode.has_cuts,
            distinct: inode.distinct,
            parent: inode.parent,
            next_cookie: inode.next_cookie,
            map_generation: inode.map_generation,
            names: 0,
            subdirectories: 0,
            by_hash: Side::default(),
            by_cookie: Side::default(),
            charged: 0,
        };
        self.inodes.insert(ino, seen);
    }

    /// The directory of an entry, and its volume's secret.
    fn directory(&mut self, key: &Key, report: &mut FsckReport) -> Option<(&mut Seen, [u8; 16])> {
        let (_, secret) = self.whole?;
        match self.inodes.get_mut(&Ino(key.a)) {
            Some(seen) if seen.kind == FileType::Directory => Some((seen, secret)),
            Some(_) => {
                report.find(format!("{}: its directory is none", name(key)));
                None
            }
            None => {
                report.find(format!("{}: its directory is not there", name(key)));
                None
            }
        }
    }

    pub fn entry_hash(&mut self, key: &Key, value: &[u8], report: &mut FsckReport) {
        let Some((dir, secret)) = self.directory(key, report) else { return };
        let bucket = match Bucket::decode(value) {
            Ok(bucket) => bucket,
            Err(error) => return report.find(format!("{}: {error}", name(key))),
        };
        if bucket.entries.is_empty() {
            report.find(format!("{}: it is empty", name(key)));
        }
        if bucket.entries.len() > 1 && dir.distinct {
            report.find(format!("{}: its directory says that no two names have one hash", name(key)));
        }
        let mut names = BTreeSet::new();
        for entry in &bucket.entries {
            dir.by_hash.add(&entry.name, entry.ino, entry.kind, entry.cookie);
            if name_hash(&secret, &entry.name) != key.b {
                report.find(format!("{}: {} has another hash", name(key), text(&entry.name)));
            }
            if !names.insert(&entry.name) {
                report.find(format!("{}: {} is there twice", name(key), text(&entry.name)));
            }
        }
    }

    pub fn entry_cookie(&mut self, key: &Key, value: &[u8], report: &mut FsckReport) {
        let Some((dir, _)) = self.directory(key, report) else { return };
        let entry = match CookieEntry::decode(value) {
            Ok(entry) => entry,
            Err(error) => return report.find(format!("{}: {error}", name(key))),
        };
        report.counts.entries += 1;
        dir.by_cookie.add(&entry.name, entry.ino, entry.kind, key.b);
        dir.subdirectories += u32::from(entry.kind == FileType::Directory);
        if !(COOKIE_FIRST..dir.next_cookie).contains(&key.b) {
            report.find(format!("{}: its cookie was not given out (the next is {})", name(key), dir.next_cookie));
        }
        if !is_name(&entry.name) {
            report.find(format!("{}: {} is no name", name(key), text(&entry.name)));
        }
        self.named((Ino(key.a), key.b), entry.ino, entry.kind, report);
    }

    /// An entry names an inode.
    fn named(&mut self, (dir, cookie): (Ino, u64), ino: Ino, kind: FileType, report: &mut FsckReport) {
        let key = Key::entry_cookie(self.id, dir, cookie);
        let Some(seen) = self.inodes.get_mut(&ino) else {
            self.strays.push((dir, cookie, ino, kind));
            return;
        };
        seen.names += 1;
        if seen.kind != kind {
            report.find(format!("{}: it says {kind:?}, inode {} is {:?}", name(&key), ino.0, seen.kind));
        }
        if seen.kind == FileType::Directory && seen.parent != dir {
            report.find(format!("{}: the parent of inode {} is {}", name(&key), ino.0, seen.parent.0));
        }
    }

    pub fn map(&mut self, key: &Key, value: &[u8], report: &mut FsckReport) {
        report.counts.maps += 1;
        let state = match MapState::decode(value) {
            Ok(state) => state,
            Err(error) => return report.find(format!("{}: {error}", name(key))),
        };
        let mut find = |what: &str| report.find(format!("{}: {what}", name(key)));
        match self.inodes.get(&Ino(key.a)) {
            _ if self.whole.is_none() => {}
            None if !state.dead => find("it has cuts, but no inode"),
            Some(_) if state.dead => find("it is dead, but has an inode"),
            Some(inode) if !inode.has_cuts => find("it has cuts, but its inode says none"),
            Some(inode) if state.cuts.iter().any(|cut| cut.generation > inode.map_generation) => {
                find("it has a cut of a generation to come");
            }
            Some(_) if state.cuts.is_empty() => find("it has neither cuts nor death to tell of"),
            Some(_) | None => {}
        }
        self.maps.insert(Ino(key.a), state);
    }

    /// Takes a pointer and gives it decoded.
    pub fn pointer(&mut self, key: &Key, value: &[u8], report: &mut FsckReport) -> Option<RecordPointer> {
        report.counts.pointers += 1;
        let pointer = match RecordPointer::decode(value) {
            Ok(pointer) => pointer,
            Err(error) => {
                report.find(format!("{}: {error}", name(key)));
                return None;
            }
        };
        if self.whole.is_none() {
            return Some(pointer);
        }
        let map = self.maps.get(&Ino(key.a));
        let hidden = map.is_some_and(|map| !map.counts(key.b, pointer.generation));
        let charged = map.is_none_or(|map| !map.drops_charge(pointer.generation));
        let mut find = |what: String| report.find(format!("{}: {what}", name(key)));
        match self.inodes.get_mut(&Ino(key.a)) {
            None if map.is_some_and(|map| map.dead) => {}
            None => find("it is of no file".into()),
            Some(inode) => {
                inode.charged += u64::from(charged);
                if inode.kind != FileType::Regular {
                    find("it is of no regular file".into());
                }
                if pointer.generation > inode.map_generation {
                    find("it is of a generation to come".into());
                }
                if u64::from(pointer.data()) > 1 << inode.record_bits {
                    find(format!("{} bytes are more than its file's records have", pointer.data()));
                }
                if !hidden && pointer.lost != 0 {
                    find("bytes of it are lost: they were damaged when others were written; write them again".into());
                }
                if !hidden && key.b >= inode.size.div_ceil(1 << inode.record_bits) {
                    find("it lies behind the end of its file".into());
                }
            }
        }
        Some(pointer)
    }

    /// Whether readers see what a pointer names.
    pub fn counts(&self, key: &Key, pointer: &RecordPointer) -> bool {
        self.whole.is_some() && self.maps.get(&Ino(key.a)).is_none_or(|map| map.counts(key.b, pointer.generation))
    }

    /// What can be said once all its keys have been seen.
    pub fn finish(&mut self, shard: &mut Shard, report: &mut FsckReport) {
        let Some((root, _)) = self.whole else { return };
        shard.counted.insert(self.id, self.usage);
        for (dir, cookie, ino, kind) in std::mem::take(&mut self.strays) {
            if self.inodes.contains_key(&ino) {
                self.named((dir, cookie), ino, kind, report);
            } else {
                let key = Key::entry_cookie(self.id, dir, cookie);
                report.find(format!("{}: inode {}, which it names, is not there", name(&key), ino.0));
            }
        }
        match self.inodes.get(&root) {
            Some(seen) if seen.kind == FileType::Directory && seen.parent == root && seen.names == 0 => {}
            Some(_) => report.find(format!("volume {}: its root is not a root", self.id.0)),
            None => report.find(format!("volume {}: its root is not there", self.id.0)),
        }
        for (ino, seen) in &self.inodes {
            self.finish_inode(root, *ino, seen, report);
        }
        self.climb(root, report);
    }

    fn finish_inode(&self, root: Ino, ino: Ino, seen: &Seen, report: &mut FsckReport) {
        let mut find = |what: String| report.find(format!("{}: {what}", name(&Key::inode(self.id, ino))));
        if seen.names == 0 && ino != root {
            find("nothing names it".into());
        }
        if seen.kind == FileType::Directory {
            if seen.names > 1 {
                find(format!("{} entries name this directory", seen.names));
            }
            if seen.links != 2 + seen.subdirectories {
                find(format!("it has {} links, but {} subdirectories", seen.links, seen.subdirectories));
            }
            if seen.size != seen.by_cookie.count {
                find(format!("it counts {} entries, but has {}", seen.size, seen.by_cookie.count));
            }
        } else if seen.links != seen.names {
            find(format!("it has {} links, but {} entries name it", seen.links, seen.names));
        }
        if seen.records != seen.charged {
            find(format!("it is charged for {} records, but has {}", seen.records, seen.charged));
        }
        if seen.has_cuts && !self.maps.contains_key(&ino) {
            find("it says that it has cuts, but has none".into());
        }
    }

    /// Every directory leads to the root.
    fn climb(&self, root: Ino, report: &mut FsckReport) {
        let mut leads = BTreeSet::from([root]);
        let directories = self.inodes.iter().filter(|(_, seen)| seen.kind == FileType::Directory);
        for (start, _) in directories {
            let (mut path, mut at) = (BTreeSet::new(), *start);
            while !leads.contains(&at) && path.insert(at) {
                match self.inodes.get(&at) {
                    Some(seen) => at = seen.parent,
                    None => break,
                }
            }
            if !leads.contains(&at) {
                let key = Key::inode(self.id, *start);
                report.find(format!("{}: its parents do not lead to the root", name(&key)));
            }
            leads.extend(path);
        }
    }

    /// Directories whose entries by hash and by cookie are not the same.
    pub fn unequal_directories(&self) -> Vec<Ino> {
        let unequal = self.inodes.iter().filter(|(_, seen)| seen.by_hash != seen.by_cookie);
        unequal.map(|(ino, _)| *ino).collect()
    }

    /// Names the entries that a directory holds once only.
    pub async fn compare(&self, view: &Arc<dyn MetaView>, dir: Ino, report: &mut FsckReport) -> Result<(), MetaError> {
        type Entry = (u64, Bytes, Ino, u8);
        let mut by_hash: BTreeSet<Entry> = BTreeSet::new();
        let mut by_cookie: BTreeSet<Entry> = BTreeSet::new();
        for kind in [Kind::EntryHash, Kind::EntryCookie] {
            let first = Key { kind, ..Key::entry_hash(self.id, dir, 0) };
            let last = Key { b: u64::MAX, ..first };
            let mut pages = Pages::new(view.clone(), &first.encode(), &[&last.encode()[..], &[0]].concat());
            while let Some(entries) = pages.next().await? {
                for (key, value) in entries {
                    let Some(key) = Key::decode(&key) else { continue };
                    if kind == Kind::EntryHash {
                        let bucket = Bucket::decode(&value).unwrap_or_default();
                        let entries = bucket.entries.into_iter();
                        by_hash.extend(entries.map(|held| (held.cookie, held.name, held.ino, held.kind as u8)));
                    } else if let Ok(held) = CookieEntry::decode(&value) {
                        by_cookie.insert((key.b, held.name, held.ino, held.kind as u8));
                    }
                }
            }
        }
        for (cookie, held, ino, _) in by_hash.difference(&by_cookie) {
            let key = Key::entry_cookie(self.id, dir, *cookie);
            report.find(format!("{}: {} (inode {}) is found by name only", name(&key), text(held), ino.0));
        }
        for (cookie, held, ino, _) in by_cookie.difference(&by_hash) {
            let key = Key::entry_cookie(self.id, dir, *cookie);
            report.find(format!("{}: {} (inode {}) is listed only", name(&key), text(held), ino.0));
        }
        Ok(())
    }
}

/// Whether an entry may have this name.
fn is_name(name: &[u8]) -> bool {
    let plain = !name.contains(&b'/') && !name.contains(&0);
    plain && !name.is_empty() && name.len() <= NAME_MAX && name != b"." && name != b".."
}

fn text(name: &[u8]) -> String {
    format!("{:?}", String::from_utf8_lossy(name))
}
