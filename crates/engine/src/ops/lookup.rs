//! The object that a name names.

use smallvec::SmallVec;
use tarn_base::ids::Ino;
use tarn_vfs::name::{self, Name, Use};
use tarn_vfs::posix::may_search;
use tarn_vfs::{Attr, Caller, Errno, FileType, Node};

use super::directory;
use crate::run::Operation;
use crate::stripes::LockSet;
use crate::tx::{Step, Tx};

pub struct Lookup {
    pub caller: Caller,
    pub dir: Node,
    /// Most names fit without an allocation.
    pub name: SmallVec<[u8; 40]>,
}

impl Operation for Lookup {
    type Out = (Attr, Attr);

    fn locks(&self) -> LockSet {
        LockSet::shared(self.dir.volume, self.dir.ino.0)
    }

    fn run(&self, tx: &mut Tx<'_>) -> Step<(Attr, Attr)> {
        let (volume, ino) = (self.dir.volume, self.dir.ino);
        tx.lock(volume, ino, false)?;
        // Of two inodes only this is needed, and everything else would be moved with them.
        let (dir, parent) = tx.node_as(self.dir, |inode| (inode.attr(volume, ino), inode.parent))?;
        let found = self.find(tx, &dir, parent);
        Ok((directory::explain(found, &dir)?, dir))
    }
}

impl Lookup {
    fn find(&self, tx: &mut Tx<'_>, dir: &Attr, parent: Ino) -> Step<Attr> {
        if dir.kind != FileType::Directory {
            return Err(Errno::NotDirectory.into());
        }
        let name = name::check(&self.name, Use::Lookup)?;
        may_search(dir, &self.caller)?;
        let volume = self.dir.volume;
        let ino = match name {
            Name::Dot => return Ok(dir.clone()),
            Name::DotDot => parent,
            Name::Ordinary(name) => directory::find_ino(tx, dir.node, name)?.ok_or(Errno::NotFound)?,
        };
        tx.inode_as(volume, ino, |inode| inode.attr(volume, ino))
    }
}
