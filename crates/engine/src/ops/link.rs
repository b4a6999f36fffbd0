//! Another name for an object.

use bytes::Bytes;
use tarn_vfs::name::{self, Use};
use tarn_vfs::posix::{check_link, linked};
use tarn_vfs::{Before, Caller, Change, Effect, Errno, Node};

use super::directory::{Directory, made};
use crate::run::{Operation, refuse};
use crate::stripes::LockSet;
use crate::tx::{Step, Tx};

pub struct Link {
    pub caller: Caller,
    pub node: Node,
    pub dir: Node,
    pub name: Bytes,
}

impl Operation for Link {
    type Out = Effect;

    fn locks(&self) -> LockSet {
        let mut locks = LockSet::exclusive(self.dir.volume, self.dir.ino.0);
        locks.add(self.node.volume, self.node.ino.0, true);
        locks
    }

    fn run(&self, tx: &mut Tx<'_>) -> Step<Effect> {
        let object = tx.node(self.node)?.attr(self.node.volume, self.node.ino);
        let mut dir = Directory::open(tx, self.dir, true)?;
        let result = self.in_directory(tx, &mut dir);
        // A refusal shows the object as well.
        dir.explain(result).map_err(|stop| match stop {
            crate::tx::Stop::Refuse(failure) => {
                let object = Change { before: Some(Before::from(&object)), after: Some(object) };
                refuse(failure.errno, [failure.changes[0].clone(), object])
            }
            other => other,
        })
    }
}

impl Link {
    fn in_directory(&self, tx: &mut Tx<'_>, dir: &mut Directory) -> Step<Effect> {
        name::check(&self.name, Use::Make)?;
        if self.node.volume != self.dir.volume {
            return Err(Errno::CrossVolume.into());
        }
        dir.search(&self.caller)?;
        let place = dir.place(tx, &self.name)?;
        let there = place.entry().is_some();
        let mut inode = tx.node(self.node)?;
        let mut attr = inode.attr(self.node.volume, self.node.ino);
        check_link(&attr, &dir.before, there, &self.caller)?;
        linked(&mut attr, tx.now());
        inode.adopt(&attr);
        inode.links = attr.links;
        dir.add(tx, place, &self.name, self.node.ino, inode.kind)?;
        tx.put_inode(self.node.volume, self.node.ino, &mut inode);
        tx.grows = true;
        let change = dir.changed(tx, 0);
        Ok(made(change, &dir.volume, self.node.ino, &inode))
    }
}
