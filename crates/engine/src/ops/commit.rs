//! Making what was written UNSTABLE durable.

use tarn_base::mutant;
use tarn_vfs::{Before, Change, Effect, Errno, FileType, Node, Stability};

use crate::run::{Operation, refuse};
use crate::stripes::LockSet;
use crate::tx::{Step, Tx};

pub struct Commit {
    pub node: Node,
}

impl Operation for Commit {
    type Out = Effect;

    fn locks(&self) -> LockSet {
        LockSet::shared(self.node.volume, self.node.ino.0)
    }

    fn run(&self, tx: &mut Tx<'_>) -> Step<Effect> {
        let inode = tx.node(self.node)?;
        let attr = inode.attr(self.node.volume, self.node.ino);
        if inode.kind != FileType::Regular {
            let errno = if inode.kind == FileType::Directory { Errno::IsDirectory } else { Errno::Invalid };
            let change = Change { before: Some(Before::from(&attr)), after: Some(attr) };
            return Err(refuse(errno, [change, Change::default()]));
        }
        if !mutant::on(mutant::COMMIT_LEAVES_UNLOGGED) {
            tx.settle(self.node.volume, self.node.ino)?;
        }
        tx.core.streams.ends(self.node.volume, self.node.ino);
        // Every write changes the inode, so its last change covers them all.
        tx.seen = tx.seen.max(inode.change);
        let change = Change { before: Some(Before::from(&attr)), after: Some(attr) };
        Ok(Effect { changes: [change, Change::default()], reached: Stability::File, ..Effect::default() })
    }
}
