//! Share reservations (SHARE, UNSHARE): what a client that opened a file denies to others that ask the same way.
//!
//! - They stand against each other only; reads, writes and byte-range locks do not see them.
//! - They are kept in memory: a restart forgets them, and a client that holds no lock besides is not told. This is
//!   the one thing of this protocol that does not survive; `docs/protocols/nlm.md` says so.

use std::collections::BTreeMap;

use bytes::Bytes;
use parking_lot::{Mutex, MutexGuard};
use tarn_vfs::{LockOwner, Node};

use super::proto::Status;

/// Most reservations, of all clients together.
const SHARES_MAX: usize = 65_536;

/// What is wanted and what is denied to others: 1 reading, 2 writing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mode {
    pub access: u32,
    pub deny: u32,
}

#[derive(Default)]
pub struct Held {
    held: BTreeMap<Node, Vec<(LockOwner, Mode)>>,
    count: usize,
}

#[derive(Default)]
pub struct Shares {
    inner: Mutex<Held>,
}

impl Shares {
    pub fn held(&self) -> MutexGuard<'_, Held> {
        self.inner.lock()
    }

    /// The client is gone.
    pub fn forget_client(&self, client: &[u8]) {
        self.held().retain(|_, owner| owner.client != client);
    }

    /// Names of clients that hold any.
    pub fn clients(&self) -> Vec<Bytes> {
        self.held().held.values().flatten().map(|(owner, _)| owner.client.clone()).collect()
    }
}

impl Held {
    /// What the owner has reserved.
    pub fn mode(&self, node: Node, owner: &LockOwner) -> Option<Mode> {
        self.held.get(&node)?.iter().find(|(other, _)| other == owner).map(|(_, mode)| *mode)
    }

    /// Reserves, or changes what the owner has reserved.
    pub fn share(&mut self, node: Node, owner: LockOwner, mode: Mode) -> Status {
        let full = self.count >= SHARES_MAX;
        let held = self.held.entry(node).or_default();
        let conflict = held
            .iter()
            .any(|(other, theirs)| *other != owner && (mode.access & theirs.deny | theirs.access & mode.deny) != 0);
        if conflict {
            return Status::Denied;
        }
        if let Some((_, ours)) = held.iter_mut().find(|(other, _)| *other == owner) {
            *ours = mode;
        } else if full {
            if held.is_empty() {
                self.held.remove(&node);
            }
            return Status::DeniedNoLocks;
        } else {
            held.push((owner, mode));
            self.count += 1;
        }
        Status::Granted
    }

    /// Gives up what the owner has reserved; nothing is not an error.
    pub fn unshare(&mut self, node: Node, owner: &LockOwner) {
        self.retain(|at, other| *at != node || other != owner);
    }

    fn retain(&mut self, keep: impl Fn(&Node, &LockOwner) -> bool) {
        self.held.retain(|node, held| {
            held.retain(|(owner, _)| keep(node, owner));
            !held.is_empty()
        });
        self.count = self.held.values().map(Vec::len).sum();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const READ: u32 = 1;
    const WRITE: u32 = 2;

    fn owner(client: &'static str) -> LockOwner {
        LockOwner { client: client.into(), owner: Bytes::new(), process: 0 }
    }

    #[test]
    fn a_share_denies_what_it_says_and_nothing_else() {
        let shares = Shares::default();
        let node = Node::default();
        let ask = |client, access, deny| shares.held().share(node, owner(client), Mode { access, deny });
        assert_eq!(ask("a", READ, WRITE), Status::Granted);
        assert_eq!(ask("b", READ, 0), Status::Granted);
        assert_eq!(ask("c", WRITE, 0), Status::Denied, "a denies writing");
        assert_eq!(ask("c", 0, READ), Status::Denied, "a and b read");
        assert_eq!(ask("a", READ, 0), Status::Granted, "an owner changes its mind");
        assert_eq!(ask("c", WRITE, 0), Status::Granted);
        assert_eq!(ask("a", READ, WRITE), Status::Denied, "c writes");
        shares.held().unshare(node, &owner("c"));
        assert_eq!(ask("a", READ, WRITE), Status::Granted);
        assert_eq!(shares.clients(), ["a", "b"]);
        shares.forget_client(b"a");
        shares.forget_client(b"b");
        let inner = shares.held();
        assert!(inner.held.is_empty() && inner.count == 0);
    }
}
