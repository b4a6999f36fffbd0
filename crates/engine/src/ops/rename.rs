//! Renaming over all that POSIX says may be replaced.
//!
//! - A directory that gets another parent moves under one lock of the volume, so that no two moves can make a
//!   loop between them.
//! - Everything that changes is in one entry: both directories, the object, what it replaces.

use bytes::Bytes;
use tarn_base::ids::Ino;
use tarn_vfs::name::{self, Use};
use tarn_vfs::posix::check_rename;
use tarn_vfs::{Caller, Change, Effect, Errno, FileType, Node};

use super::directory::{Directory, drop_name};
use crate::run::{Operation, refuse};
use crate::stripes::LockSet;
use crate::tx::{Step, Stop, Tx};
use crate::value::{HashEntry, Inode};

/// Locked exclusively while a directory gets another parent. No inode has this number.
const MOVES: Ino = Ino(u64::MAX);

/// Deepest path that is climbed; deeper trees exist only through damage.
const DEPTH_MAX: usize = 1 << 16;

pub struct Rename {
    pub caller: Caller,
    pub from: Node,
    pub name: Bytes,
    pub to: Node,
    pub new_name: Bytes,
}

/// Both directories; the second only if it is another one.
struct Pair {
    from: Directory,
    to: Option<Directory>,
}

impl Pair {
    fn to(&self) -> &Directory {
        self.to.as_ref().unwrap_or(&self.from)
    }

    fn to_mut(&mut self) -> &mut Directory {
        self.to.as_mut().unwrap_or(&mut self.from)
    }
}

impl Operation for Rename {
    type Out = Effect;

    fn locks(&self) -> LockSet {
        let mut locks = LockSet::exclusive(self.from.volume, self.from.ino.0);
        locks.add(self.to.volume, self.to.ino.0, true);
        locks
    }

    fn run(&self, tx: &mut Tx<'_>) -> Step<Effect> {
        let from = Directory::open(tx, self.from, true)?;
        let to = if self.from == self.to {
            None
        } else {
            let opened = Directory::open(tx, self.to, true);
            Some(opened.map_err(|stop| self.explain(stop, from.unchanged(), None))?)
        };
        let unchanged = [from.unchanged(), to.as_ref().unwrap_or(&from).unchanged()];
        let result = self.between(tx, Pair { from, to });
        let [first, second] = unchanged;
        result.map_err(|stop| self.explain(stop, first, Some(second)))
    }
}

impl Rename {
    /// A refusal shows both directories as they were.
    fn explain(&self, stop: Stop, from: Change, to: Option<Change>) -> Stop {
        match stop {
            Stop::Refuse(failure) => {
                let [first, second] = failure.changes.into_inner();
                refuse(failure.errno, [from, to.unwrap_or(if second.after.is_some() { second } else { first })])
            }
            other => other,
        }
    }

    fn between(&self, tx: &mut Tx<'_>, mut dirs: Pair) -> Step<Effect> {
        name::check(&self.name, Use::Rename)?;
        name::check(&self.new_name, Use::Rename)?;
        if self.from.volume != self.to.volume {
            return Err(Errno::CrossVolume.into());
        }
        dirs.from.search(&self.caller)?;
        dirs.to().search(&self.caller)?;
        let source = dirs.from.place(tx, &self.name)?.entry().cloned().ok_or(Errno::NotFound)?;
        let target = dirs.to().place(tx, &self.new_name)?.entry().cloned();
        let volume = self.from.volume;
        tx.lock(volume, source.ino, true)?;
        if let Some(target) = &target {
            tx.lock(volume, target.ino, true)?;
        }
        self.check_ancestors(tx, &source, target.as_ref())?;
        if target.as_ref().is_some_and(|target| target.ino == source.ino) {
            return Ok(Effect { changes: [dirs.from.unchanged(), dirs.to().unchanged()], ..Effect::default() });
        }
        let mut moved = tx.inode(volume, source.ino)?;
        let mut over = match &target {
            Some(target) => Some((target.clone(), tx.inode(volume, target.ino)?)),
            None => None,
        };
        self.check(&dirs, &source, &moved, over.as_ref())?;
        let subdirectory = i32::from(moved.kind == FileType::Directory);
        let replaced = match &mut over {
            Some((entry, inode)) => {
                let place = dirs.to().place(tx, &self.new_name)?;
                dirs.to_mut().take(tx, place);
                let volume = dirs.from.volume.clone();
                let directory = inode.kind == FileType::Directory;
                drop_name(tx, &volume, entry.ino, inode)?;
                i32::from(directory)
            }
            None => 0,
        };
        // Each place as the change before has left it: both names may stand under one hash.
        let place = dirs.from.place(tx, &self.name)?;
        dirs.from.take(tx, place);
        let place = dirs.to().place(tx, &self.new_name)?;
        dirs.to_mut().add(tx, place, &self.new_name, source.ino, moved.kind)?;
        if subdirectory == 1 {
            moved.parent = self.to.ino;
        }
        moved.ctime = tx.now();
        tx.put_inode(volume, source.ino, &mut moved);
        Ok(self.finish(tx, dirs, subdirectory, replaced))
    }

    fn check(&self, dirs: &Pair, source: &HashEntry, moved: &Inode, over: Option<&(HashEntry, Inode)>) -> Step<()> {
        let volume = self.from.volume;
        let moved_attr = moved.attr(volume, source.ino);
        let over_attr = over.map(|(entry, inode)| (inode.attr(volume, entry.ino), inode.size == 0));
        let target = over_attr.as_ref().map(|(attr, empty)| (attr, *empty));
        Ok(check_rename(&dirs.from.before, &moved_attr, &dirs.to().before, target, &self.caller)?)
    }

    /// The target directory is not the source or below it; the target is not the source directory or above it.
    fn check_ancestors(&self, tx: &mut Tx<'_>, source: &HashEntry, target: Option<&HashEntry>) -> Step<()> {
        if self.from == self.to {
            return Ok(());
        }
        let target = target.filter(|target| target.kind == FileType::Directory);
        if source.kind == FileType::Directory {
            tx.lock(self.from.volume, MOVES, true)?;
            if self.is_within(tx, self.to.ino, source.ino)? {
                return Err(Errno::Invalid.into());
            }
        }
        match target {
            Some(target) if self.is_within(tx, self.from.ino, target.ino)? => Err(Errno::NotEmpty.into()),
            _ => Ok(()),
        }
    }

    /// Whether directory `ino` is `above` or below it.
    fn is_within(&self, tx: &mut Tx<'_>, mut ino: Ino, above: Ino) -> Step<bool> {
        for _ in 0..DEPTH_MAX {
            if ino == above {
                return Ok(true);
            }
            let parent = tx.inode(self.from.volume, ino)?.parent;
            if parent == ino {
                return Ok(false);
            }
            ino = parent;
        }
        Err(Errno::Io.into())
    }

    fn finish(&self, tx: &mut Tx<'_>, mut dirs: Pair, subdirectory: i32, replaced: i32) -> Effect {
        let changes = match &mut dirs.to {
            None => {
                let change = dirs.from.changed(tx, -replaced);
                [change.clone(), change]
            }
            Some(to) => {
                let second = to.changed(tx, subdirectory - replaced);
                [dirs.from.changed(tx, -subdirectory), second]
            }
        };
        Effect { changes, ..Effect::default() }
    }
}
