//! Making directories, symbolic links and special files.

use bytes::Bytes;
use tarn_vfs::name::{self, Use};
use tarn_vfs::posix::{self, check_make, check_symlink};
use tarn_vfs::{Caller, Effect, FileType, Node, SetAttr, Special};

use super::directory::{Directory, made, new_inode};
use crate::run::Operation;
use crate::stripes::LockSet;
use crate::tx::{Step, Tx};

pub struct Make {
    pub caller: Caller,
    pub dir: Node,
    pub name: Bytes,
    /// `None`: a directory.
    pub special: Option<Special>,
    pub set: SetAttr,
}

impl Operation for Make {
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

impl Make {
    fn in_directory(&self, tx: &mut Tx<'_>, dir: &mut Directory) -> Step<Effect> {
        name::check(&self.name, Use::Make)?;
        dir.search(&self.caller)?;
        let place = dir.place(tx, &self.name)?;
        let there = place.entry().is_some();
        check_make(&dir.before, there, &self.caller)?;
        let kind = self.kind()?;
        let directory = kind == FileType::Directory;
        let attr = posix::new_attr(kind, Node::default(), &dir.before, &self.set, &self.caller, tx.now())?;
        let (ino, mut inode) = new_inode(tx, dir, &attr)?;
        match &self.special {
            Some(Special::Symlink(target)) => inode.target = Bytes::copy_from_slice(target),
            Some(Special::Block { major, minor } | Special::Character { major, minor }) => {
                inode.device = (*major, *minor);
            }
            Some(Special::Socket | Special::Fifo) | None => {}
        }
        dir.add(tx, place, &self.name, ino, kind)?;
        tx.put_inode(dir.volume.id, ino, &mut inode);
        let change = dir.changed(tx, i32::from(directory));
        Ok(made(change, &dir.volume, ino, &inode))
    }

    fn kind(&self) -> Step<FileType> {
        Ok(match &self.special {
            None => FileType::Directory,
            Some(Special::Symlink(target)) => {
                check_symlink(target)?;
                FileType::Symlink
            }
            Some(Special::Block { .. }) => FileType::Block,
            Some(Special::Character { .. }) => FileType::Character,
            Some(Special::Socket) => FileType::Socket,
            Some(Special::Fifo) => FileType::Fifo,
        })
    }
}
