//! Removing a name: of a directory, or of anything else.

use bytes::Bytes;
use tarn_vfs::name::{self, Use};
use tarn_vfs::posix::{check_remove, check_rmdir};
use tarn_vfs::{Caller, Change, Effect, Errno, FileType, Node};

use super::directory::{Directory, drop_name};
use crate::run::Operation;
use crate::stripes::LockSet;
use crate::tx::{Step, Tx};

pub struct Remove {
    pub caller: Caller,
    pub dir: Node,
    pub name: Bytes,
    /// Only a directory, or only what is none.
    pub directory: bool,
}

impl Operation for Remove {
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

impl Remove {
    fn in_directory(&self, tx: &mut Tx<'_>, dir: &mut Directory) -> Step<Effect> {
        name::check(&self.name, if self.directory { Use::RemoveDirectory } else { Use::Remove })?;
        dir.search(&self.caller)?;
        let place = dir.place(tx, &self.name)?;
        let ino = place.entry().ok_or(Errno::NotFound)?.ino;
        let volume = dir.volume.clone();
        tx.lock(volume.id, ino, true)?;
        let mut inode = tx.inode(volume.id, ino)?;
        let victim = inode.attr(volume.id, ino);
        if self.directory {
            check_rmdir(&dir.before, &victim, inode.size == 0, &self.caller)?;
        } else {
            check_remove(&dir.before, &victim, &self.caller)?;
        }
        dir.take(tx, place);
        let gone = drop_name(tx, &volume, ino, &mut inode)?;
        let change = dir.changed(tx, if victim.kind == FileType::Directory { -1 } else { 0 });
        Ok(Effect { attr: Some(gone), changes: [change, Change::default()], ..Effect::default() })
    }
}
