//! The target of a symbolic link.

use bytes::Bytes;
use tarn_vfs::{Attr, Change, Errno, FileType, Node};

use super::data::touch;
use crate::run::{Operation, refuse};
use crate::stripes::LockSet;
use crate::tx::{Step, Tx};

pub struct ReadLink {
    pub node: Node,
}

impl Operation for ReadLink {
    type Out = (Bytes, Attr);

    fn locks(&self) -> LockSet {
        LockSet::default()
    }

    fn run(&self, tx: &mut Tx<'_>) -> Step<(Bytes, Attr)> {
        let inode = tx.node(self.node)?;
        let mut attr = inode.attr(self.node.volume, self.node.ino);
        if inode.kind != FileType::Symlink {
            return Err(refuse(Errno::Invalid, [Change { before: None, after: Some(attr) }, Change::default()]));
        }
        touch(tx, self.node, &mut attr)?;
        Ok((inode.target, attr))
    }
}
