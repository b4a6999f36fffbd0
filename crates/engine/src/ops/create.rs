//! Making a regular file, or taking the one that is there.

use bytes::Bytes;
use tarn_vfs::name::{self, Use};
use tarn_vfs::posix::{self, check_make};
use tarn_vfs::{Caller, Change, CreateMode, Effect, Errno, FileType, Node, SetAttr};

use super::data;
use super::directory::{Directory, Place, made, new_inode};
use crate::run::Operation;
use crate::stripes::LockSet;
use crate::tx::{Step, Tx};
use crate::value::HashEntry;

pub struct Create {
    pub caller: Caller,
    pub dir: Node,
    pub name: Bytes,
    pub mode: CreateMode,
    pub set: SetAttr,
}

impl Operation for Create {
    type Out = Effect;

    fn locks(&self) -> LockSet {
        LockSet::exclusive(self.dir.volume, self.dir.ino.0)
    }

    fn run(&self, tx: &mut Tx<'_>) -> Step<Effect> {
        let mut dir = Directory::open(tx, self.dir, true)?;
        let result = self.in_directory(tx, &mut dir);
        dir.explain(result)
    }
}

impl Create {
    fn in_directory(&self, tx: &mut Tx<'_>, dir: &mut Directory) -> Step<Effect> {
        name::check(&self.name, Use::Make)?;
        dir.search(&self.caller)?;
        let place = dir.place(tx, &self.name)?;
        match place.entry() {
            Some(entry) => self.take(tx, dir, entry),
            None => self.make(tx, dir, place),
        }
    }

    fn make(&self, tx: &mut Tx<'_>, dir: &mut Directory, place: Place) -> Step<Effect> {
        check_make(&dir.before, false, &self.caller)?;
        let set = match self.mode {
            CreateMode::Exclusive(_) => SetAttr::default(),
            CreateMode::Unchecked | CreateMode::Guarded => self.set,
        };
        let attr = posix::new_attr(FileType::Regular, Node::default(), &dir.before, &set, &self.caller, tx.now())?;
        let (ino, mut inode) = new_inode(tx, dir, &attr)?;
        if let CreateMode::Exclusive(verifier) = self.mode {
            inode.verifier = Some(verifier);
        }
        dir.add(tx, place, &self.name, ino, FileType::Regular)?;
        tx.put_inode(dir.volume.id, ino, &mut inode);
        let change = dir.changed(tx, 0);
        Ok(made(change, &dir.volume, ino, &inode))
    }

    /// The name is there.
    fn take(&self, tx: &mut Tx<'_>, dir: &Directory, entry: &HashEntry) -> Step<Effect> {
        let volume = dir.volume.id;
        match self.mode {
            CreateMode::Guarded => return Err(Errno::Exists.into()),
            CreateMode::Exclusive(verifier) => {
                let inode = tx.inode(volume, entry.ino)?;
                if inode.kind != FileType::Regular || inode.verifier != Some(verifier) {
                    return Err(Errno::Exists.into());
                }
                return Ok(made(dir.unchanged(), &dir.volume, entry.ino, &inode));
            }
            CreateMode::Unchecked => {}
        }
        tx.lock(volume, entry.ino, true)?;
        let mut inode = tx.inode(volume, entry.ino)?;
        if inode.kind != FileType::Regular {
            return Err(Errno::Exists.into());
        }
        if let Some(size) = self.set.size {
            let set = SetAttr { size: Some(size), ..SetAttr::default() };
            let attr = posix::apply_setattr(&inode.attr(volume, entry.ino), &set, &self.caller, tx.now())?;
            data::set_size(tx, &dir.volume, entry.ino, &mut inode, size)?;
            inode.adopt(&attr);
            tx.put_inode(volume, entry.ino, &mut inode);
        }
        let effect = made(dir.unchanged(), &dir.volume, entry.ino, &inode);
        Ok(Effect { changes: [dir.unchanged(), Change::default()], ..effect })
    }
}
