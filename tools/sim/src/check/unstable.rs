//! What a client does with UNSTABLE writes is right: if the verifier is still that of the write, COMMIT has made it
//! durable; else the client writes again.

use std::collections::BTreeMap;

use tarn_base::ids::Position;
use tarn_vfs::Node;
use tarn_vfs::op::Op;

use crate::failure::{Checked, Failure};
use crate::legible;

/// A write that its client keeps until it is committed.
#[derive(Clone, Debug)]
struct Kept {
    op: Op,
    at: Position,
    verifier: [u8; 8],
    /// A crash has taken it.
    lost: bool,
}

/// What all clients keep.
#[derive(Clone, Debug, Default)]
pub struct Unstable(BTreeMap<(u64, Node), Vec<Kept>>);

impl Unstable {
    /// A write of `client` was answered, which may be lost.
    pub fn written(&mut self, client: u64, node: Node, op: Op, at: Position, verifier: [u8; 8]) {
        self.0.entry((client, node)).or_default().push(Kept { op, at, verifier, lost: false });
    }

    /// Nothing after `recovered` is there; of `gone` nothing is.
    pub fn recovered(&mut self, recovered: Position, gone: &[Node]) {
        self.0.retain(|(_, node), _| !gone.contains(node));
        for kept in self.0.values_mut().flatten() {
            kept.lost |= kept.at > recovered;
        }
    }

    /// A COMMIT of `client` that ran at `at` was answered with `verifier`, when everything up to `durable` was on the
    /// medium. Gives what must be written again. A write that ran after it, though its answer came first, is kept.
    pub fn committed(
        &mut self,
        client: u64,
        node: Node,
        at: Position,
        (verifier, durable): ([u8; 8], Position),
    ) -> Result<Vec<Op>, Failure> {
        let mut again = Vec::new();
        let kept = self.0.remove(&(client, node)).unwrap_or_default();
        let (covered, later): (Vec<Kept>, Vec<Kept>) = kept.into_iter().partition(|kept| kept.at <= at);
        if !later.is_empty() {
            self.0.insert((client, node), later);
        }
        for kept in covered {
            if kept.verifier != verifier {
                again.push(kept.op);
            } else {
                safe(&kept, durable)?;
            }
        }
        Ok(again)
    }
}

fn safe(kept: &Kept, durable: Position) -> Checked {
    if !kept.lost && kept.at <= durable {
        return Ok(());
    }
    let expected = format!("{} at {}, committed under one verifier, is durable", legible::op(&kept.op), kept.at);
    let found = if kept.lost { "a crash has taken it".to_owned() } else { format!("{durable} is durable") };
    Err(Failure::new("unstable", expected, found))
}
