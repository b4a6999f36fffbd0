//! What operations on names share: an open directory, its entries, objects that come and go.
//!
//! - An entry is two keys; both change in one entry of the log (engine rule 19).
//! - A refusal carries the directory's attributes, taken inside the operation.

use std::sync::Arc;

use bytes::Bytes;
use tarn_base::ids::{Ino, Position};
use tarn_base::mutant;
use tarn_vfs::posix::{entry_changed, may_search};
use tarn_vfs::{Attr, Before, Caller, Change, Effect, Errno, FileType, Node};

use super::data;
use crate::hash::name_hash;
use crate::key::Key;
use crate::tx::{Step, Stop, Tx};
use crate::value::{Bucket, CookieEntry, HashEntry, Inode};
use crate::volumes::Volume;

/// Cookies stay below this, so that every front end can show them.
const COOKIE_MAX: u64 = 1 << 62;
/// How far cookies jump for each lineage since the last entry (engine rule 18).
const COOKIES_SKIPPED: u64 = 1 << 32;

/// What stands under the hash of a name. It is no more so once another entry of the directory has come or gone.
pub struct Place {
    key: Key,
    bucket: Bucket,
    at: Option<usize>,
    /// Nothing stands under it.
    free: bool,
}

impl Place {
    /// The entry of the name.
    pub fn entry(&self) -> Option<&HashEntry> {
        self.bucket.entries.get(self.at?)
    }
}

/// A directory under its lock.
pub struct Directory {
    pub volume: Arc<Volume>,
    pub ino: Ino,
    pub inode: Inode,
    /// As it was.
    pub before: Attr,
}

impl Directory {
    /// Opens what must be a directory; with the lock held, exclusively if entries are to change.
    #[inline]
    pub fn open(tx: &mut Tx<'_>, node: Node, exclusive: bool) -> Step<Directory> {
        tx.lock(node.volume, node.ino, exclusive)?;
        let volume = tx.volume(node.volume)?;
        let inode = tx.node(node)?;
        let before = inode.attr(node.volume, node.ino);
        let dir = Directory { volume, ino: node.ino, inode, before };
        if dir.inode.kind != FileType::Directory {
            return Err(dir.refuse(Errno::NotDirectory));
        }
        Ok(dir)
    }

    /// Whether the caller may look names up in it.
    pub fn search(&self, caller: &Caller) -> Step<()> {
        Ok(may_search(&self.before, caller)?)
    }

    /// A refusal that shows the directory as it was.
    pub fn refuse(&self, errno: Errno) -> Stop {
        refuse(errno, &self.before)
    }

    pub fn unchanged(&self) -> Change {
        unchanged(&self.before)
    }

    /// Adds the directory's attributes to a refusal that has none.
    pub fn explain<T>(&self, result: Step<T>) -> Step<T> {
        explain(result, &self.before)
    }

    /// The place of a name, taken or not.
    pub fn place(&self, tx: &mut Tx<'_>, name: &[u8]) -> Step<Place> {
        let hash = name_hash(&self.volume.record.name_secret, name);
        let (key, fresh) = (Key::entry_hash(self.volume.id, self.ino, hash), tx.is_fresh(&self.inode));
        let there = tx.value_of(&key, fresh, Bucket::decode)?;
        let free = there.is_none();
        let bucket = there.unwrap_or_default();
        let at = bucket.find(name);
        Ok(Place { key, bucket, at, free })
    }

    /// Adds an entry at the place of its name, which is not taken.
    pub fn add(&mut self, tx: &mut Tx<'_>, place: Place, name: &[u8], ino: Ino, kind: FileType) -> Step<()> {
        let Place { key, mut bucket, free, .. } = place;
        let lineage = tx.core.identity.lineage;
        let cookie = next_cookie(&self.inode, lineage);
        if bucket.entries.len() >= Bucket::ENTRIES_MAX || cookie >= COOKIE_MAX {
            return Err(Errno::NoSpace.into());
        }
        self.inode.distinct &= bucket.entries.is_empty() || mutant::on(mutant::HASH_TAKEN_AS_DISTINCT);
        self.inode.next_cookie = cookie + 1;
        self.inode.cookie_lineage = lineage;
        self.inode.size += 1;
        let name = Bytes::copy_from_slice(name);
        let born = self.volume.record.epoch;
        bucket.born = born;
        bucket.entries.push(HashEntry { name: name.clone(), ino, kind, cookie });
        match free {
            true => tx.put_new(key, |out| bucket.encode(out)),
            false => tx.put(key, |out| bucket.encode(out)),
        }
        let entry = CookieEntry { born, name, ino, kind };
        // A cookie is never used twice.
        tx.put_new(Key::entry_cookie(self.volume.id, self.ino, cookie), |out| entry.encode(out));
        Ok(())
    }

    /// Takes the entry at a place away, if there is one.
    pub fn take(&mut self, tx: &mut Tx<'_>, place: Place) {
        let Place { key, mut bucket, at, .. } = place;
        let Some(at) = at else { return };
        let cookie = bucket.entries.remove(at).cookie;
        if bucket.entries.is_empty() {
            tx.remove(key);
        } else {
            tx.put(key, |out| bucket.encode(out));
        }
        tx.remove(Key::entry_cookie(self.volume.id, self.ino, cookie));
        self.inode.size = self.inode.size.saturating_sub(1);
    }

    /// Puts the directory after entries came or went, and tells what that did.
    pub fn changed(&mut self, tx: &mut Tx<'_>, subdirectories: i32) -> Change {
        let mut attr = self.inode.attr(self.volume.id, self.ino);
        entry_changed(&mut attr, subdirectories, tx.now());
        self.inode.adopt(&attr);
        self.inode.links = attr.links;
        tx.put_inode(self.volume.id, self.ino, &mut self.inode);
        Change { before: Some(Before::from(&self.before)), after: Some(self.inode.attr(self.volume.id, self.ino)) }
    }
}

fn unchanged(dir: &Attr) -> Change {
    Change { before: Some(Before::from(dir)), after: Some(dir.clone()) }
}

fn refuse(errno: Errno, dir: &Attr) -> Stop {
    crate::run::refuse(errno, [unchanged(dir), Change::default()])
}

/// As [`Directory::explain`], of a directory with these attributes.
#[inline]
pub fn explain<T>(result: Step<T>, dir: &Attr) -> Step<T> {
    result.map_err(|stop| match stop {
        Stop::Refuse(failure) if failure.changes[0].after.is_none() => refuse(failure.errno, dir),
        other => other,
    })
}

/// The inode that `name` names in `dir`.
pub fn find_ino(tx: &mut Tx<'_>, dir: Node, name: &[u8]) -> Step<Option<Ino>> {
    let volume = tx.volume(dir.volume)?;
    let key = Key::entry_hash(dir.volume, dir.ino, name_hash(&volume.record.name_secret, name));
    let fresh = tx.is_fresh_from(Position(dir.generation));
    Ok(tx.value_of(&key, fresh, |bytes| Bucket::ino_of(bytes, name))?.flatten())
}

/// The cookie of a directory's next entry. Every lineage since its last one may have shown entries that are lost, so
/// each counts.
fn next_cookie(inode: &Inode, lineage: u32) -> u64 {
    let lineages = u64::from(lineage.saturating_sub(inode.cookie_lineage));
    inode.next_cookie.saturating_add(lineages.saturating_mul(COOKIES_SKIPPED))
}

/// A new inode with these attributes, charged to the volume.
pub fn new_inode(tx: &mut Tx<'_>, dir: &Directory, attr: &Attr) -> Step<(Ino, Inode)> {
    let ino = tx.core.numbers.inode()?;
    let directory = attr.kind == FileType::Directory;
    let inode = Inode {
        born: dir.volume.record.epoch,
        change: Inode::PENDING,
        generation: Inode::PENDING,
        kind: attr.kind,
        mode: attr.mode,
        links: attr.links,
        uid: attr.uid,
        gid: attr.gid,
        size: if directory { 0 } else { attr.size },
        records: 0,
        record_bits: dir.volume.record_bits(),
        device: attr.device,
        atime: attr.atime,
        mtime: attr.mtime,
        ctime: attr.ctime,
        btime: attr.btime,
        parent: if directory { dir.ino } else { Ino(0) },
        next_cookie: if directory { tarn_vfs::COOKIE_FIRST } else { 0 },
        cookie_lineage: if directory { tx.core.identity.lineage } else { 0 },
        map_generation: 0,
        has_cuts: false,
        distinct: directory,
        verifier: None,
        domain: dir.inode.domain,
        target: Bytes::new(),
    };
    tx.charge(dir.volume.id, 0, 1);
    Ok((ino, inode))
}

/// What making `ino` in `dir` did.
pub fn made(dir: Change, volume: &Volume, ino: Ino, inode: &Inode) -> Effect {
    Effect { attr: Some(inode.attr(volume.id, ino)), changes: [dir, Change::default()], ..Effect::default() }
}

/// An object lost a name: it goes with its last one. Gives its attributes after.
pub fn drop_name(tx: &mut Tx<'_>, volume: &Volume, ino: Ino, inode: &mut Inode) -> Step<Attr> {
    let mut attr = inode.attr(volume.id, ino);
    tarn_vfs::posix::unlinked(&mut attr, tx.now());
    inode.adopt(&attr);
    inode.links = attr.links;
    if inode.links > 0 {
        tx.put_inode(volume.id, ino, inode);
        return Ok(inode.attr(volume.id, ino));
    }
    data::release_all(tx, volume, ino, inode)?;
    tx.remove(Key::inode(volume.id, ino));
    tx.charge(volume.id, 0, -1);
    let node = Node { volume: volume.id, epoch: 0, ino, generation: inode.generation.0 };
    let decision = tx.table().decide_node_gone(node);
    tx.decide(decision);
    Ok(attr)
}
