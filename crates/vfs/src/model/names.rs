//! Operations on names.

use bytes::Bytes;
use tarn_base::ids::{Ino, Position};
use tarn_base::time::Time;

use super::content::Records;
use super::objects::refuse;
use super::state::{Content, Directory, Object, Outcome, State};
use crate::error::{Errno, Failure};
use crate::name::{self, Name, Use};
use crate::posix;
use crate::types::*;

/// What is to be made.
pub(super) enum Make<'a> {
    File(Option<u64>),
    Directory,
    Special(&'a Special),
}

impl Make<'_> {
    fn kind(&self) -> FileType {
        match self {
            Make::File(_) => FileType::Regular,
            Make::Directory => FileType::Directory,
            Make::Special(Special::Symlink(_)) => FileType::Symlink,
            Make::Special(Special::Block { .. }) => FileType::Block,
            Make::Special(Special::Character { .. }) => FileType::Character,
            Make::Special(Special::Socket) => FileType::Socket,
            Make::Special(Special::Fifo) => FileType::Fifo,
        }
    }
}

/// A directory that may be searched, and what a name in it names.
struct Found<'a> {
    dir: &'a Object,
    object: Option<&'a Object>,
}

impl State {
    /// Handle, type, name, search permission: what every operation on a name begins with.
    fn find(&self, caller: &Caller, dir: Node, name: &[u8], usage: Use) -> Outcome<Found<'_>> {
        let object = self.get(dir)?;
        let check = || -> Result<Option<Ino>, Errno> {
            let directory = object.directory()?;
            let name = name::check(name, usage)?;
            posix::may_search(&object.attr, caller)?;
            Ok(match name {
                Name::Dot => Some(dir.ino),
                Name::DotDot => Some(directory.parent),
                Name::Ordinary(name) => directory.find(name),
            })
        };
        let ino = check().map_err(|errno| refuse(object, errno))?;
        let found = ino.map(|ino| self.named(dir.volume, ino)).transpose()?;
        Ok(Found { dir: object, object: found })
    }

    pub(super) fn lookup(&self, caller: &Caller, dir: Node, name: &[u8]) -> Outcome<(Attr, Attr)> {
        let found = self.find(caller, dir, name, Use::Lookup)?;
        let object = found.object.ok_or_else(|| refuse(found.dir, Errno::NotFound))?;
        Ok((object.attr.clone(), found.dir.attr.clone()))
    }

    pub(super) fn list(&mut self, caller: &Caller, dir: Node, request: ListRequest, now: Time) -> Outcome<ListReply> {
        let object = self.get(dir)?;
        let directory = object.directory().map_err(|errno| refuse(object, errno))?;
        posix::may_read(&object.attr, caller).map_err(|errno| refuse(object, errno))?;
        let dots = [(1, Bytes::from_static(b"."), dir.ino), (2, Bytes::from_static(b".."), directory.parent)];
        let ordinary = directory.entries.range(request.after.saturating_add(1)..);
        let ordinary = ordinary.map(|(cookie, entry)| (*cookie, entry.name.clone(), entry.ino));
        let after = dots.into_iter().filter(|(cookie, ..)| *cookie > request.after).chain(ordinary);
        let (mut entries, mut bytes, mut eof) = (Vec::new(), 0u64, true);
        for (cookie, name, ino) in after {
            bytes += name.len() as u64 + u64::from(request.entry_overhead);
            if entries.len() as u64 == u64::from(request.entries_max) || bytes > u64::from(request.bytes_max) {
                eof = false;
                break;
            }
            let named = self.named(dir.volume, ino)?;
            let attr = request.attrs.then(|| named.attr.clone());
            entries.push(DirEntry { name, ino, kind: named.attr.kind, cookie, attr });
        }
        Ok(ListReply { entries, eof, dir: self.accessed(dir, now)? })
    }

    pub(super) fn create(
        &mut self,
        caller: &Caller,
        dir: Node,
        name: &[u8],
        mode: CreateMode,
        set: &SetAttr,
        now: Time,
    ) -> Outcome<Effect> {
        let found = self.find(caller, dir, name, Use::Make)?;
        let (parent, Some(object)) = (found.dir, found.object) else {
            let verifier = if let CreateMode::Exclusive(verifier) = mode { Some(verifier) } else { None };
            return self.make(caller, dir, name, Make::File(verifier), set, now);
        };
        let (node, unchanged) = (object.attr.node, parent.unchanged());
        let taken = object.attr.kind == FileType::Regular
            && match mode {
                CreateMode::Unchecked => true,
                CreateMode::Guarded => false,
                CreateMode::Exclusive(verifier) => object.verifier == Some(verifier),
            };
        if !taken {
            return Err(refuse(parent, Errno::Exists));
        }
        if let (CreateMode::Unchecked, Some(size)) = (mode, set.size) {
            let set = SetAttr { size: Some(size), ..SetAttr::default() };
            self.setattr(caller, node, &set, now)
                .map_err(|failure| Failure { changes: [unchanged.clone(), Change::default()].into(), ..failure })?;
        }
        let attr = Some(self.get(node)?.attr.clone());
        Ok(Effect { attr, changes: [unchanged, Change::default()], ..Effect::default() })
    }

    pub(super) fn make(
        &mut self,
        caller: &Caller,
        dir: Node,
        name: &[u8],
        what: Make<'_>,
        set: &SetAttr,
        now: Time,
    ) -> Outcome<Effect> {
        let found = self.find(caller, dir, name, Use::Make)?;
        let (parent, before) = (found.dir, Before::from(&found.dir.attr));
        let check = || -> Result<Attr, Errno> {
            posix::check_make(&parent.attr, found.object.is_some(), caller)?;
            if let Make::Special(Special::Symlink(target)) = &what {
                posix::check_symlink(target)?;
            }
            posix::new_attr(what.kind(), Node::default(), &parent.attr, set, caller, now)
        };
        let mut attr = check().map_err(|errno| refuse(parent, errno))?;
        let record_size = self.volume(dir.volume)?.info.settings.record_size;
        let position = self.next_position();
        attr.node = self.new_node(dir.volume, position)?;
        attr.change = position;
        let mut verifier = None;
        let content = match what {
            Make::File(exclusive) => {
                verifier = exclusive;
                Content::File(Records::new(record_size))
            }
            Make::Directory => Content::Directory(Directory::new(dir.ino)),
            Make::Special(Special::Symlink(target)) => {
                attr.size = target.len() as u64;
                Content::Symlink(target.clone())
            }
            Make::Special(Special::Block { major, minor } | Special::Character { major, minor }) => {
                attr.device = (*major, *minor);
                Content::Nothing
            }
            Make::Special(Special::Socket | Special::Fifo) => Content::Nothing,
        };
        let object = Object { attr: attr.clone(), content, verifier };
        self.volume_mut(dir.volume)?.objects.insert(attr.node.ino, object.into());
        let subdirectories = i32::from(attr.kind == FileType::Directory);
        let after = self.change_entries(dir, subdirectories, position, now, |entries| {
            entries.add(name, attr.node.ino);
        })?;
        let change = Change { before: Some(before), after: Some(after) };
        Ok(Effect { attr: Some(attr), changes: [change, Change::default()], ..Effect::default() })
    }

    pub(super) fn link(&mut self, caller: &Caller, node: Node, dir: Node, name: &[u8], now: Time) -> Outcome<Effect> {
        let object = self.get(node)?.clone();
        let found = self.find(caller, dir, name, Use::Make).map_err(|failure| {
            let [change, _] = failure.changes.into_inner();
            Failure { errno: failure.errno, changes: [change, object.unchanged()].into() }
        })?;
        let (parent, before) = (found.dir, Before::from(&found.dir.attr));
        posix::check_link(&object.attr, &parent.attr, found.object.is_some(), caller)
            .map_err(|errno| Failure { errno, changes: [parent.unchanged(), object.unchanged()].into() })?;
        let position = self.next_position();
        let after = self.change_entries(dir, 0, position, now, |entries| entries.add(name, node.ino))?;
        let object = self.edit(node)?;
        posix::linked(&mut object.attr, now);
        object.attr.change = position;
        let attr = Some(object.attr.clone());
        let change = Change { before: Some(before), after: Some(after) };
        Ok(Effect { attr, changes: [change, Change::default()], ..Effect::default() })
    }

    /// Removes a name; `directory` says of what.
    pub(super) fn remove(
        &mut self,
        caller: &Caller,
        dir: Node,
        name: &[u8],
        directory: bool,
        now: Time,
    ) -> Outcome<Effect> {
        let usage = if directory { Use::RemoveDirectory } else { Use::Remove };
        let found = self.find(caller, dir, name, usage)?;
        let parent = found.dir;
        let victim = found.object.ok_or_else(|| refuse(parent, Errno::NotFound))?;
        let checked = if directory {
            let empty = victim.directory().is_ok_and(|directory| directory.entries.is_empty());
            posix::check_rmdir(&parent.attr, &victim.attr, empty, caller)
        } else {
            posix::check_remove(&parent.attr, &victim.attr, caller)
        };
        checked.map_err(|errno| refuse(parent, errno))?;
        let (before, victim) = (Before::from(&parent.attr), victim.attr.node);
        let position = self.next_position();
        let after = self.change_entries(dir, -i32::from(directory), position, now, |entries| entries.take(name))?;
        self.unlink(victim, position, now)?;
        let change = Change { before: Some(before), after: Some(after) };
        Ok(Effect { changes: [change, Change::default()], ..Effect::default() })
    }

    pub(super) fn rename(
        &mut self,
        caller: &Caller,
        from: Node,
        name: &[u8],
        to: Node,
        new_name: &[u8],
        now: Time,
    ) -> Outcome<Effect> {
        let (source_dir, target_dir) = (self.get(from)?, self.get(to)?);
        let unchanged = [source_dir.unchanged(), target_dir.unchanged()];
        let refused = |errno| Failure { errno, changes: unchanged.clone().into() };
        if from.volume != to.volume {
            return Err(refused(Errno::CrossVolume));
        }
        let find = |dir, name| self.find(caller, dir, name, Use::Rename).map_err(|failure| refused(failure.errno));
        let (source, target) = (find(from, name)?.object, find(to, new_name)?.object);
        let source = source.ok_or_else(|| refused(Errno::NotFound))?;
        if self.is_within(to, source.attr.node.ino)? {
            return Err(refused(Errno::Invalid));
        }
        if let Some(target) = target {
            if target.attr.kind == FileType::Directory && self.is_within(from, target.attr.node.ino)? {
                return Err(refused(Errno::NotEmpty));
            }
            if target.attr.node == source.attr.node {
                return Ok(Effect { changes: unchanged, ..Effect::default() });
            }
        }
        let empty = |object: &Object| object.directory().is_ok_and(|directory| directory.entries.is_empty());
        let over = target.map(|target| (&target.attr, empty(target)));
        posix::check_rename(&source_dir.attr, &source.attr, &target_dir.attr, over, caller).map_err(refused)?;
        let victim = target.map(|target| target.attr.node);
        let moved = Moved { from, name, to, new_name, node: source.attr.node, kind: source.attr.kind, victim };
        let after = self.move_entry(moved, now)?;
        let [source, target] = unchanged;
        let [source_after, target_after] = after;
        let changes = [
            Change { before: source.before, after: Some(source_after) },
            Change { before: target.before, after: Some(target_after) },
        ];
        Ok(Effect { changes, ..Effect::default() })
    }

    /// A rename that nothing is in the way of; gives both directories.
    fn move_entry(&mut self, moved: Moved<'_>, now: Time) -> Result<[Attr; 2], Errno> {
        let Moved { from, name, to, new_name, node, kind, victim } = moved;
        let position = self.next_position();
        let one = i32::from(kind == FileType::Directory);
        self.change_entries(from, -one, position, now, |entries| entries.take(name))?;
        let replaced = if victim.is_some() { one } else { 0 };
        self.change_entries(to, one - replaced, position, now, |entries| {
            entries.take(new_name);
            entries.add(new_name, node.ino);
        })?;
        if let Some(victim) = victim {
            self.unlink(victim, position, now)?;
        }
        let object = self.edit(node)?;
        object.attr.ctime = now;
        object.attr.change = position;
        if let Content::Directory(directory) = &mut object.content {
            directory.parent = to.ino;
        }
        Ok([self.get(from)?.attr.clone(), self.get(to)?.attr.clone()])
    }

    /// Changes a directory's entries, and its attributes with them; gives the attributes.
    fn change_entries(
        &mut self,
        dir: Node,
        subdirectories: i32,
        position: Position,
        now: Time,
        with: impl FnOnce(&mut Directory),
    ) -> Result<Attr, Errno> {
        let object = self.edit(dir)?;
        with(object.directory_mut()?);
        posix::entry_changed(&mut object.attr, subdirectories, now);
        object.attr.change = position;
        Ok(object.attr.clone())
    }

    /// The object lost a name; with the last one it is gone.
    fn unlink(&mut self, node: Node, position: Position, now: Time) -> Result<(), Errno> {
        let object = self.edit(node)?;
        posix::unlinked(&mut object.attr, now);
        object.attr.change = position;
        if object.attr.links == 0 { self.drop_object(node) } else { Ok(()) }
    }

    /// Whether `dir` is `top` or below it.
    fn is_within(&self, dir: Node, top: Ino) -> Result<bool, Errno> {
        let mut at = dir.ino;
        loop {
            if at == top {
                return Ok(true);
            }
            let parent = self.named(dir.volume, at)?.directory()?.parent;
            if parent == at {
                return Ok(false);
            }
            at = parent;
        }
    }
}

struct Moved<'a> {
    from: Node,
    name: &'a [u8],
    to: Node,
    new_name: &'a [u8],
    node: Node,
    kind: FileType,
    /// What is replaced.
    victim: Option<Node>,
}
