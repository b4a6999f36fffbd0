//! Which rights a caller has.

use tarn_vfs::{Access, Attr, Caller, Node, posix};

use crate::run::Operation;
use crate::stripes::LockSet;
use crate::tx::{Step, Tx};

pub struct AccessCheck {
    pub caller: Caller,
    pub node: Node,
    pub want: Access,
}

impl Operation for AccessCheck {
    type Out = (Access, Attr);

    fn locks(&self) -> LockSet {
        LockSet::default()
    }

    fn run(&self, tx: &mut Tx<'_>) -> Step<(Access, Attr)> {
        let attr = tx.node_as(self.node, |inode| inode.attr(self.node.volume, self.node.ino))?;
        Ok((posix::access(&attr, &self.caller, self.want), attr))
    }
}
