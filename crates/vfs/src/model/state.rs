//! What the model knows: volumes, objects, locks, outcomes.
//!
//! - Every object in a volume's map has a name or is the root; one that loses its last name is gone at once.
//! - A directory's `names` and `entries` say the same, by name and by cookie.
//! - Positions grow by one with each changing operation; all that it touches carry the same.
//! - A copy shares objects with the original until one of them changes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use tarn_base::ids::{Ino, Position, VolumeId};
use tarn_base::time::Time;

use super::content::Records;
use super::once::Outcomes;
use crate::error::{Errno, Failure};
use crate::locks::{Decision, LockTable};
use crate::posix;
use crate::types::*;

#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub name: Bytes,
    pub ino: Ino,
}

#[derive(Clone, Debug)]
pub(super) struct Directory {
    pub parent: Ino,
    pub names: BTreeMap<Bytes, u64>,
    pub entries: BTreeMap<u64, Entry>,
    pub next_cookie: u64,
}

impl Directory {
    pub fn new(parent: Ino) -> Directory {
        Directory { parent, names: BTreeMap::new(), entries: BTreeMap::new(), next_cookie: COOKIE_FIRST }
    }

    pub fn find(&self, name: &[u8]) -> Option<Ino> {
        let cookie = self.names.get(name)?;
        self.entries.get(cookie).map(|entry| entry.ino)
    }

    /// Adds a name that is not there, at the end.
    pub fn add(&mut self, name: &[u8], ino: Ino) {
        let name = Bytes::copy_from_slice(name);
        self.names.insert(name.clone(), self.next_cookie);
        self.entries.insert(self.next_cookie, Entry { name, ino });
        self.next_cookie += 1;
    }

    pub fn take(&mut self, name: &[u8]) {
        if let Some(cookie) = self.names.remove(name) {
            self.entries.remove(&cookie);
        }
    }
}

#[derive(Clone, Debug)]
pub(super) enum Content {
    File(Records),
    Directory(Directory),
    Symlink(Bytes),
    Nothing,
}

#[derive(Clone, Debug)]
pub(super) struct Object {
    pub attr: Attr,
    pub content: Content,
    /// Of the exclusive create that made it.
    pub verifier: Option<u64>,
}

impl Object {
    pub fn directory(&self) -> Result<&Directory, Errno> {
        match &self.content {
            Content::Directory(directory) => Ok(directory),
            _ => Err(Errno::NotDirectory),
        }
    }

    pub fn directory_mut(&mut self) -> Result<&mut Directory, Errno> {
        match &mut self.content {
            Content::Directory(directory) => Ok(directory),
            _ => Err(Errno::NotDirectory),
        }
    }

    /// As it is, for both sides of a change.
    pub fn unchanged(&self) -> Change {
        Change { before: Some(Before::from(&self.attr)), after: Some(self.attr.clone()) }
    }
}

#[derive(Clone, Debug)]
pub(super) struct Volume {
    pub info: VolumeInfo,
    pub objects: BTreeMap<Ino, Arc<Object>>,
    pub next_number: u64,
}

impl Volume {
    /// Bytes charged to the volume.
    pub fn used(&self) -> u64 {
        self.objects.values().map(|object| object.attr.used).sum()
    }

    /// Whether `cost` more bytes fit.
    pub fn room(&self, cost: u64) -> Result<(), Errno> {
        match self.info.settings.size_limit {
            Some(limit) if cost > 0 && self.used().saturating_add(cost) > limit => Err(Errno::NoSpace),
            _ => Ok(()),
        }
    }
}

#[derive(Clone, Debug)]
pub(super) struct State {
    pub volumes: BTreeMap<VolumeId, Volume>,
    pub locks: LockTable,
    pub in_grace: bool,
    pub outcomes: Outcomes,
    /// Calls that the front end answered by itself.
    pub answered: BTreeSet<(ClientId, u64)>,
    pub position: Position,
    /// Granted by the operation under way.
    pub events: Vec<Event>,
}

/// What an operation inside the model comes to: a failure names an errno, and shows what it saw if it can.
pub(super) type Outcome<T> = Result<T, Failure>;

impl State {
    pub fn new() -> State {
        State {
            volumes: BTreeMap::new(),
            locks: LockTable::new(),
            in_grace: false,
            outcomes: Outcomes::default(),
            answered: BTreeSet::new(),
            position: Position::new(1, 0),
            events: Vec::new(),
        }
    }

    pub fn next_position(&mut self) -> Position {
        self.position = self.position.next();
        self.position
    }

    /// A new volume with an empty root directory.
    pub fn add_volume(&mut self, name: &str, settings: VolumeSettings, owner: &Caller, now: Time) -> VolumeInfo {
        let id = VolumeId(self.volumes.keys().last().map_or(1, |last| last.0 + 1));
        let generation = self.next_position();
        let root = Node { volume: id, epoch: 0, ino: Ino::new(0, 1), generation: generation.0 };
        let attr = Attr {
            node: root,
            kind: FileType::Directory,
            mode: 0o755,
            links: 2,
            uid: owner.uid,
            gid: owner.gid,
            size: posix::DIRECTORY_SIZE,
            atime: now,
            mtime: now,
            ctime: now,
            btime: now,
            change: generation,
            ..Attr::default()
        };
        let info = VolumeInfo { id, name: name.to_owned(), root, fsid: u64::from(id.0), settings };
        let content = Content::Directory(Directory::new(root.ino));
        let object = Arc::new(Object { attr, content, verifier: None });
        let volume = Volume { info: info.clone(), objects: [(root.ino, object)].into(), next_number: 2 };
        self.volumes.insert(id, volume);
        info
    }

    pub fn volume(&self, id: VolumeId) -> Result<&Volume, Errno> {
        self.volumes.get(&id).ok_or(Errno::Stale)
    }

    pub fn volume_mut(&mut self, id: VolumeId) -> Result<&mut Volume, Errno> {
        self.volumes.get_mut(&id).ok_or(Errno::Stale)
    }

    /// The object that a node names, if it is still there.
    pub fn get(&self, node: Node) -> Result<&Object, Errno> {
        let object = self.volume(node.volume)?.objects.get(&node.ino).ok_or(Errno::Stale)?;
        if object.attr.node == node { Ok(object) } else { Err(Errno::Stale) }
    }

    /// The object `ino`, which a directory of the volume names.
    pub fn named(&self, volume: VolumeId, ino: Ino) -> Result<&Object, Errno> {
        // A name without an object is a fault of the model; it shows as damage, as in the engine.
        self.volume(volume)?.objects.get(&ino).map(|object| &**object).ok_or(Errno::Io)
    }

    /// The object for changing it.
    pub fn edit(&mut self, node: Node) -> Result<&mut Object, Errno> {
        let object = self.volume_mut(node.volume)?.objects.get_mut(&node.ino).ok_or(Errno::Stale)?;
        Ok(Arc::make_mut(object))
    }

    /// A number for a new object.
    pub fn new_node(&mut self, volume: VolumeId, position: Position) -> Result<Node, Errno> {
        let volume = self.volume_mut(volume)?;
        let ino = Ino::new(0, volume.next_number);
        volume.next_number += 1;
        Ok(Node { volume: volume.info.id, epoch: 0, ino, generation: position.0 })
    }

    /// The object is gone: its bytes, its number and its locks.
    pub fn drop_object(&mut self, node: Node) -> Result<(), Errno> {
        self.volume_mut(node.volume)?.objects.remove(&node.ino);
        let decision = self.locks.decide_node_gone(node);
        self.take(decision);
        Ok(())
    }

    /// Makes a decision about locks true, and gives what is to be answered.
    pub fn take<T>(&mut self, decision: Decision<T>) -> T {
        self.locks.apply_all(&decision.transitions);
        self.events.extend(decision.granted.into_iter().map(Event::LockGranted));
        decision.value
    }
}
