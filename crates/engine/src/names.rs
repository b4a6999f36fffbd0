//! Which names directories have in the store, as hashes: a name that is not among them is not looked for there.
//!
//! - What is kept of a directory has every hash that any view of the store may hold, or nothing is kept of it. It begins
//!   with the checkpoint that brings the directory itself to the store; each later one adds its names before the exchange.
//! - A name that was removed stays among them: the store is asked for nothing, no more.
//! - A checkpoint of which it is not known what it brings ends them all.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use parking_lot::RwLock;
use tarn_base::ids::{Position, VolumeId};
use tarn_base::mutant;
use tarn_vfs::FileType;

use crate::hash::FastBuild;
use crate::key::{Key, Kind};
use crate::value::Inode;

/// What a directory costs beside its hashes, bytes.
const OVERHEAD: u64 = 192;
/// What a place for a hash costs, bytes: its half and the table's mark. A table has eight for seven.
const PLACE: u64 = 5;
/// So many hashes are added under one lock.
const AT_ONCE: usize = 512;

/// A directory: its volume and inode.
type Dir = (VolumeId, u64);

#[derive(Debug, Default)]
struct Held {
    /// Half of each hash.
    hashes: RwLock<HashSet<u32, FastBuild>>,
    /// The checkpoint that was the last when it was asked or changed.
    used: AtomicU64,
}

impl Held {
    fn bytes(&self) -> u64 {
        OVERHEAD + self.hashes.read().capacity() as u64 * PLACE * 8 / 7
    }
}

#[derive(Debug, Default)]
struct Kept {
    dirs: HashMap<Dir, Arc<Held>, FastBuild>,
    bytes: u64,
    checkpoint: u64,
}

#[derive(Debug)]
pub struct Names {
    kept: RwLock<Kept>,
    limit: u64,
}

impl Names {
    /// Keeps what fits into `limit` bytes: of those asked last.
    pub fn new(limit: u64) -> Names {
        Names { kept: RwLock::default(), limit }
    }

    /// Whether no view of the store holds `key`. Never waits; `false` if that is not known.
    pub fn absent(&self, key: &Key) -> bool {
        if key.kind != Kind::EntryHash {
            return false;
        }
        let Some(kept) = self.kept.try_read() else { return false };
        let Some(held) = kept.dirs.get(&(key.volume, key.a)) else { return false };
        held.used.store(kept.checkpoint, Ordering::Relaxed);
        held.hashes.try_read().is_some_and(|hashes| !hashes.contains(&half(key.b)))
    }

    /// A checkpoint of the generation that begins behind `after` is about to be shown: `keys`, in order, are what it changed.
    pub fn bring(&self, keys: &[(Key, Option<Bytes>)], after: Position) {
        self.kept.write().checkpoint += 1;
        let inodes = keys.iter().filter(|(key, _)| key.kind == Kind::Inode);
        for (key, value) in inodes {
            match value.as_ref().map(|value| Inode::decode(value)) {
                // Nothing of it can be in the store yet.
                Some(Ok(inode)) if inode.kind == FileType::Directory && inode.generation > after => {
                    self.forget((key.volume, key.a));
                    let mut kept = self.kept.write();
                    kept.bytes += OVERHEAD;
                    let used = AtomicU64::new(kept.checkpoint);
                    kept.dirs.insert((key.volume, key.a), Arc::new(Held { used, ..Held::default() }));
                }
                Some(_) => {}
                None => self.forget((key.volume, key.a)),
            }
        }
        if mutant::on(mutant::NAMES_FORGOTTEN) {
            return;
        }
        let entries: Vec<&Key> = keys.iter().map(|(key, _)| key).filter(|key| key.kind == Kind::EntryHash).collect();
        for part in entries.chunk_by(|a, b| (a.volume, a.a) == (b.volume, b.a)) {
            self.add((part[0].volume, part[0].a), part);
        }
        self.shrink();
    }

    fn add(&self, dir: Dir, keys: &[&Key]) {
        let held = self.kept.read().dirs.get(&dir).cloned();
        let Some(held) = held else { return };
        let before = held.bytes();
        for part in keys.chunks(AT_ONCE) {
            held.hashes.write().extend(part.iter().map(|key| half(key.b)));
        }
        let mut kept = self.kept.write();
        kept.bytes = kept.bytes + held.bytes() - before;
        held.used.store(kept.checkpoint, Ordering::Relaxed);
    }

    fn forget(&self, dir: Dir) {
        let mut kept = self.kept.write();
        if let Some(held) = kept.dirs.remove(&dir) {
            kept.bytes -= held.bytes();
        }
    }

    /// Makes room, more than must be, so that this is rare. What takes the most for the longest without being asked goes first:
    /// a directory that is still empty takes next to nothing, and once gone every name made in it would be looked for.
    fn shrink(&self) {
        let mut kept = self.kept.write();
        if kept.bytes <= self.limit {
            return;
        }
        let now = kept.checkpoint;
        let wasted = |(dir, held): (&Dir, &Arc<Held>)| {
            let (idle, bytes) = (now - held.used.load(Ordering::Relaxed).min(now), held.bytes());
            (Reverse((idle + 1).saturating_mul(bytes)), *dir, bytes)
        };
        let mut dirs: Vec<(Reverse<u64>, Dir, u64)> = kept.dirs.iter().map(wasted).collect();
        dirs.sort_unstable();
        for (_, dir, bytes) in dirs {
            if kept.bytes <= self.limit / 4 * 3 {
                break;
            }
            kept.dirs.remove(&dir);
            kept.bytes -= bytes;
        }
    }

    /// A checkpoint of which it is not known what it brings is about to be shown.
    pub fn clear(&self) {
        let mut kept = self.kept.write();
        kept.dirs.clear();
        kept.bytes = 0;
    }

    /// What it takes and the limit of it, bytes.
    pub fn size(&self) -> (u64, u64) {
        (self.kept.read().bytes, self.limit)
    }
}

fn half(hash: u64) -> u32 {
    hash as u32
}

#[cfg(test)]
mod tests {
    use tarn_base::ids::Ino;
    use tarn_base::time::Time;

    use super::*;

    fn directory(ino: u64, generation: u64) -> (Key, Option<Bytes>) {
        let inode = Inode {
            born: 1,
            change: Position(generation),
            generation: Position(generation),
            kind: FileType::Directory,
            mode: 0o755,
            links: 2,
            uid: 0,
            gid: 0,
            size: 0,
            records: 0,
            record_bits: 16,
            device: (0, 0),
            atime: Time::EPOCH,
            mtime: Time::EPOCH,
            ctime: Time::EPOCH,
            btime: Time::EPOCH,
            parent: Ino(1),
            next_cookie: tarn_vfs::COOKIE_FIRST,
            cookie_lineage: 0,
            map_generation: 0,
            has_cuts: false,
            distinct: false,
            verifier: None,
            domain: 0,
            target: Bytes::new(),
        };
        let mut value = Vec::new();
        inode.encode(&mut value);
        (Key::inode(VolumeId(1), Ino(ino)), Some(value.into()))
    }

    fn entry(ino: u64, hash: u64) -> (Key, Option<Bytes>) {
        (Key::entry_hash(VolumeId(1), Ino(ino), hash), Some(Bytes::new()))
    }

    #[test]
    fn of_a_directory_seen_from_its_beginning_every_name_is_known() {
        let names = Names::new(1 << 20);
        let absent = |ino, hash| names.absent(&entry(ino, hash).0);
        names.bring(&[directory(7, 11), directory(8, 10), entry(7, 1), entry(8, 1)], Position(10));
        assert!(!absent(7, 1) && absent(7, 2), "7 came with this generation");
        assert!(!absent(8, 1) && !absent(8, 2), "8 was there before");
        names.bring(&[directory(7, 11), entry(7, 2), entry(9, 1)], Position(20));
        assert!(!absent(7, 1) && !absent(7, 2) && absent(7, 3) && !absent(9, 2));
        names.bring(&[(directory(7, 11).0, None), (entry(7, 1).0, None)], Position(30));
        assert!(!absent(7, 3), "it is gone");
        assert_eq!(names.size().0, 0);
    }

    #[test]
    fn what_is_asked_stays_when_room_is_made_and_nothing_stays_half() {
        let names = Names::new(64 << 10);
        let absent = |ino, hash| names.absent(&entry(ino, hash).0);
        for ino in 0..40 {
            let mut keys = vec![directory(ino, 11)];
            keys.extend((0..500).map(|hash| entry(ino, hash)));
            names.bring(&keys, Position(10));
            assert!(names.size().0 <= 64 << 10);
            assert!(absent(0, 500), "it is asked for all the time");
        }
        assert!((0..40).any(|ino| !absent(ino, 500)), "not all of them fit");
        assert!((0..40).all(|ino| (0..500).all(|hash| !absent(ino, hash))));
        names.clear();
        assert!(!absent(0, 500));
        assert_eq!(names.size().0, 0);
    }

    #[test]
    fn directories_that_are_filled_later_stay_when_room_is_made() {
        let names = Names::new(64 << 10);
        let absent = |ino, hash| names.absent(&entry(ino, hash).0);
        let all: Vec<_> = (0..40).map(|ino| directory(ino, 11)).collect();
        names.bring(&all, Position(10));
        for ino in 0..40 {
            assert!(absent(ino, 0), "{ino} has waited for its first name");
            let keys: Vec<_> = (0..500).map(|hash| entry(ino, hash)).collect();
            names.bring(&keys, Position(20));
            assert!(names.size().0 <= 64 << 10);
        }
        assert!((0..40).any(|ino| !absent(ino, 500)), "not all of them fit");
        assert!(absent(39, 500));
    }
}
