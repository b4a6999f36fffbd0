//! No value that a client has seen is given out twice with another meaning: positions, inode numbers.

use std::collections::BTreeMap;

use tarn_base::ids::{Ino, Position, VolumeId};
use tarn_vfs::Node;

use crate::failure::{Checked, Failure};

const NAME: &str = "numbers";

/// What clients have seen.
#[derive(Clone, Debug, Default)]
pub struct Numbers {
    last: Position,
    /// The last that was seen before this life.
    before: Position,
    objects: BTreeMap<(VolumeId, Ino), u64>,
}

impl Numbers {
    /// Another life begins: every position that it gives out is later than any that was seen before.
    pub fn begin_life(&mut self) {
        self.before = self.last;
    }

    /// An operation has been given `position`.
    pub fn taken(&self, position: Position) -> Checked {
        if position <= self.before {
            let expected = format!("a position after {}, which was seen in an earlier life", self.before);
            return Err(Failure::new(NAME, expected, position.to_string()));
        }
        Ok(())
    }

    /// A client has seen a change at `position`.
    pub fn seen(&mut self, position: Position) {
        self.last = self.last.max(position);
    }

    /// A client has seen an object; its number stands for it alone.
    pub fn object(&mut self, node: Node) -> Checked {
        let first = *self.objects.entry((node.volume, node.ino)).or_insert(node.generation);
        if first == node.generation {
            return Ok(());
        }
        let expected = format!("inode {:x} of generation {first:x} only", node.ino.0);
        Err(Failure::new(NAME, expected, format!("{node:?}")))
    }
}
