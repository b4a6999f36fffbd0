//! The object that a name names.

use smallvec::SmallVec;
use tarn_vfs::name::{self, Name, Use};
use tarn_vfs::{Attr, Caller, Errno, Node};

use super::directory::Directory;
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
        let dir = Directory::open(tx, self.dir, false)?;
        let found = self.find(tx, &dir);
        Ok((dir.explain(found)?, dir.before))
    }
}

impl Lookup {
    fn find(&self, tx: &mut Tx<'_>, dir: &Directory) -> Step<Attr> {
        let name = name::check(&self.name, Use::Lookup)?;
        dir.search(&self.caller)?;
        let volume = self.dir.volume;
        let ino = match name {
            Name::Dot => return Ok(dir.before.clone()),
            Name::DotDot => dir.inode.parent,
            Name::Ordinary(name) => dir.find_ino(tx, name)?.ok_or(Errno::NotFound)?,
        };
        Ok(tx.inode(volume, ino)?.attr(volume, ino))
    }
}
