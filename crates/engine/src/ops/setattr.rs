//! Setting attributes, the size among them.

use tarn_vfs::posix::apply_setattr;
use tarn_vfs::{Before, Caller, Change, Effect, Node, SetAttr};

use super::data;
use crate::run::{Operation, refuse};
use crate::stripes::LockSet;
use crate::tx::{Step, Stop, Tx};
use crate::value::Inode;

pub struct SetAttributes {
    pub caller: Caller,
    pub node: Node,
    pub set: SetAttr,
}

impl Operation for SetAttributes {
    type Out = Effect;

    fn locks(&self) -> LockSet {
        LockSet::exclusive(self.node.volume, self.node.ino.0)
    }

    fn run(&self, tx: &mut Tx<'_>) -> Step<Effect> {
        let mut inode = tx.node(self.node)?;
        let before = inode.attr(self.node.volume, self.node.ino);
        let result = self.apply(tx, &mut inode);
        result.map_err(|stop| match stop {
            Stop::Refuse(failure) => {
                let change = Change { before: Some(Before::from(&before)), after: Some(before.clone()) };
                refuse(failure.errno, [change, Change::default()])
            }
            other => other,
        })?;
        let attr = inode.attr(self.node.volume, self.node.ino);
        let change = Change { before: Some(Before::from(&before)), after: Some(attr.clone()) };
        Ok(Effect { attr: Some(attr), changes: [change, Change::default()], ..Effect::default() })
    }
}

impl SetAttributes {
    fn apply(&self, tx: &mut Tx<'_>, inode: &mut Inode) -> Step<()> {
        let volume = tx.volume(self.node.volume)?;
        let before = inode.attr(self.node.volume, self.node.ino);
        let after = apply_setattr(&before, &self.set, &self.caller, tx.now())?;
        if self.set.is_empty() {
            return Ok(());
        }
        if let Some(size) = self.set.size {
            data::set_size(tx, &volume, self.node.ino, inode, size)?;
        }
        inode.adopt(&after);
        tx.put_inode(self.node.volume, self.node.ino, inode);
        Ok(())
    }
}
