//! Attributes of an object.

use tarn_vfs::{Attr, Node};

use crate::run::Operation;
use crate::stripes::LockSet;
use crate::tx::{Step, Tx};

pub struct GetAttr {
    pub node: Node,
}

impl Operation for GetAttr {
    type Out = Attr;

    fn locks(&self) -> LockSet {
        // One key is read, so there is nothing to keep together.
        LockSet::default()
    }

    fn run(&self, tx: &mut Tx<'_>) -> Step<Attr> {
        tx.node_as(self.node, |inode| inode.attr(self.node.volume, self.node.ino))
    }
}
