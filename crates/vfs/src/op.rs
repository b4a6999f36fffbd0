//! An operation as a value, to be run against any file system and compared.
//!
//! - Objects are named by [`Slot`]s, because two file systems number objects differently; each file system has
//!   its own [`Slots`], in which what an operation finds or makes is noted.
//! - A [`Seen`] holds only what two right file systems must agree on: no numbers, positions, cookies or times.
//!   `Debug` of both types is what a trace prints.

use std::collections::BTreeMap;

use bytes::Bytes;
use tarn_base::ids::{Position, VolumeId};

use crate::answer::{Answer, Reply};
use crate::contract::FileSystem;
use crate::error::Errno;
use crate::types::*;
use crate::walk::{Facts, hash};

/// Stands for an object in both file systems.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot(pub u32);

/// What each slot stands for in one file system.
pub type Slots = BTreeMap<Slot, Node>;

/// An operation of the contract. `into` is the slot for what is found or made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    Getattr {
        node: Slot,
    },
    Setattr {
        node: Slot,
        set: SetAttr,
    },
    Access {
        node: Slot,
        want: Access,
    },
    Readlink {
        node: Slot,
    },
    Read {
        node: Slot,
        offset: u64,
        count: u32,
    },
    Write {
        node: Slot,
        offset: u64,
        data: Data,
        stability: Stability,
    },
    Commit {
        node: Slot,
    },
    Lookup {
        dir: Slot,
        name: Bytes,
        into: Slot,
    },
    /// All pages, `page` entries each.
    List {
        dir: Slot,
        page: u32,
    },
    Create {
        dir: Slot,
        name: Bytes,
        mode: CreateMode,
        set: SetAttr,
        into: Slot,
    },
    Mkdir {
        dir: Slot,
        name: Bytes,
        set: SetAttr,
        into: Slot,
    },
    Make {
        dir: Slot,
        name: Bytes,
        what: Special,
        set: SetAttr,
        into: Slot,
    },
    Link {
        node: Slot,
        dir: Slot,
        name: Bytes,
    },
    Remove {
        dir: Slot,
        name: Bytes,
    },
    Rmdir {
        dir: Slot,
        name: Bytes,
    },
    Rename {
        from: Slot,
        name: Bytes,
        to: Slot,
        new_name: Bytes,
    },
    Statfs {
        node: Slot,
    },
    Lock {
        node: Slot,
        owner: LockOwner,
        kind: LockKind,
        range: LockRange,
        wait: bool,
    },
    Unlock {
        node: Slot,
        owner: LockOwner,
        range: LockRange,
    },
    ReleaseClient {
        client: Bytes,
    },
}

/// Bytes to write that print as what made them: `count` bytes that `seed` decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Data {
    pub seed: u64,
    pub count: u32,
}

impl Data {
    pub fn bytes(self) -> Bytes {
        let mut state = self.seed | 1;
        let bytes = (0..self.count).map(|_| {
            // xorshift64: no two seeds give the same bytes, and none gives zeros only.
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state as u8
        });
        bytes.collect::<Vec<u8>>().into()
    }
}

/// What an operation showed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Seen {
    Refused(Errno),
    Object(Facts),
    Rights(u8, Facts),
    Target(Bytes, Facts),
    /// Length and [`crate::walk::hash`] of the bytes, and whether the end was reached.
    Bytes {
        count: usize,
        hash: u64,
        eof: bool,
        facts: Facts,
    },
    /// The object if one was made, bytes written, and the objects or directories changed.
    Changed {
        object: Option<Facts>,
        count: u32,
        after: [Option<Facts>; 2],
    },
    /// Sorted by name; "." and ".." included.
    Entries(Vec<(Bytes, FileType)>),
    Locked(&'static str),
    Nothing,
}

/// The outcome of an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    pub seen: Seen,
    /// What the operation found or made; goes into the slot.
    pub node: Option<Node>,
    /// What must be durable before `seen` may be shown.
    pub position: Position,
}

impl Op {
    /// Runs the operation. A slot that stands for nothing gives `Stale`, as an object that is gone does.
    // long: dispatch table
    pub async fn run(&self, fs: &dyn FileSystem, caller: &Caller, slots: &Slots) -> Outcome {
        let node = |slot: &Slot| slots.get(slot).copied().unwrap_or(NOWHERE);
        match self {
            Op::Getattr { node: of } => finish(fs.getattr(caller, node(of)), seen_object).await,
            Op::Setattr { node: of, set } => finish(fs.setattr(caller, node(of), *set), seen_effect).await,
            Op::Access { node: of, want } => {
                let seen = |(has, attr): (Access, Attr)| (Seen::Rights(has.0, Facts::from(&attr)), None);
                finish(fs.access(caller, node(of), *want), seen).await
            }
            Op::Readlink { node: of } => {
                let seen = |(target, attr): (Bytes, Attr)| (Seen::Target(target, Facts::from(&attr)), None);
                finish(fs.readlink(caller, node(of)), seen).await
            }
            Op::Read { node: of, offset, count } => finish(fs.read(caller, node(of), *offset, *count), seen_read).await,
            Op::Write { node: of, offset, data, stability } => {
                finish(fs.write(caller, node(of), *offset, data.bytes(), *stability), seen_effect).await
            }
            Op::Commit { node: of } => finish(fs.commit(caller, node(of)), seen_effect).await,
            Op::Lookup { dir, name, .. } => {
                finish(fs.lookup(caller, node(dir), name), |(attr, _)| seen_object(attr)).await
            }
            Op::List { dir, page } => list(fs, caller, node(dir), *page).await,
            Op::Create { dir, name, mode, set, .. } => {
                finish(fs.create(caller, node(dir), name, *mode, *set), seen_effect).await
            }
            Op::Mkdir { dir, name, set, .. } => finish(fs.mkdir(caller, node(dir), name, *set), seen_effect).await,
            Op::Make { dir, name, what, set, .. } => {
                finish(fs.make(caller, node(dir), name, what.clone(), *set), seen_effect).await
            }
            Op::Link { node: of, dir, name } => finish(fs.link(caller, node(of), node(dir), name), seen_effect).await,
            Op::Remove { dir, name } => finish(fs.remove(caller, node(dir), name), seen_effect).await,
            Op::Rmdir { dir, name } => finish(fs.rmdir(caller, node(dir), name), seen_effect).await,
            Op::Rename { from, name, to, new_name } => {
                finish(fs.rename(caller, node(from), name, node(to), new_name), seen_effect).await
            }
            Op::Statfs { node: of } => finish(fs.statfs(caller, node(of).volume), |_| (Seen::Nothing, None)).await,
            Op::Lock { node: of, owner, kind, range, wait } => {
                let lock = Lock { node: node(of), owner: owner.clone(), kind: *kind, range: *range };
                let request = LockRequest { lock, wait: *wait, reclaim: false, callback: Bytes::new() };
                finish(fs.lock(caller, request), seen_lock).await
            }
            Op::Unlock { node: of, owner, range } => {
                finish(fs.unlock(caller, node(of), owner.clone(), *range), |()| (Seen::Nothing, None)).await
            }
            Op::ReleaseClient { client } => finish(fs.release_client(client), |()| (Seen::Nothing, None)).await,
        }
    }

    /// The slot that the operation's find or product goes into.
    pub fn target(&self) -> Option<Slot> {
        match self {
            Op::Lookup { into, .. } | Op::Create { into, .. } | Op::Mkdir { into, .. } | Op::Make { into, .. } => {
                Some(*into)
            }
            _ => None,
        }
    }

    /// Notes what the operation found or made.
    pub fn note(&self, outcome: &Outcome, slots: &mut Slots) {
        if let (Some(slot), Some(node)) = (self.target(), outcome.node) {
            slots.insert(slot, node);
        }
    }
}

/// In no volume, so it names nothing.
const NOWHERE: Node = Node { volume: VolumeId(u32::MAX), epoch: 0, ino: tarn_base::ids::Ino(0), generation: 0 };

async fn finish<T: Unpin>(answer: Answer<T>, seen: impl FnOnce(T) -> (Seen, Option<Node>)) -> Outcome {
    outcome(answer.await, seen)
}

fn outcome<T>(reply: Reply<T>, seen: impl FnOnce(T) -> (Seen, Option<Node>)) -> Outcome {
    match reply {
        Ok(done) => {
            let (seen, node) = seen(done.value);
            Outcome { seen, node, position: done.position }
        }
        Err(done) => Outcome { seen: Seen::Refused(done.value.errno), node: None, position: done.position },
    }
}

fn seen_object(attr: Attr) -> (Seen, Option<Node>) {
    (Seen::Object(Facts::from(&attr)), Some(attr.node))
}

fn seen_effect(effect: Effect) -> (Seen, Option<Node>) {
    let facts = |change: &Change| change.after.as_ref().map(Facts::from);
    let after = [facts(&effect.changes[0]), facts(&effect.changes[1])];
    let object = effect.attr.as_ref().map(Facts::from);
    (Seen::Changed { object, count: effect.count, after }, effect.attr.map(|attr| attr.node))
}

fn seen_read(reply: ReadReply) -> (Seen, Option<Node>) {
    let hash = hash(reply.data.iter().map(|piece| &piece[..]));
    (Seen::Bytes { count: reply.len(), hash, eof: reply.eof, facts: Facts::from(&reply.attr) }, None)
}

fn seen_lock(outcome: LockOutcome) -> (Seen, Option<Node>) {
    let seen = match outcome {
        LockOutcome::Granted => "granted",
        LockOutcome::Denied(_) => "denied",
        LockOutcome::Waiting => "waiting",
    };
    (Seen::Locked(seen), None)
}

async fn list(fs: &dyn FileSystem, caller: &Caller, dir: Node, page: u32) -> Outcome {
    let (mut entries, mut position, mut after) = (Vec::new(), Position::ZERO, 0);
    loop {
        let request =
            ListRequest { after, entries_max: page.max(1), bytes_max: u32::MAX, entry_overhead: 0, attrs: false };
        match fs.list(caller, dir, request).await {
            Ok(done) => {
                position = position.max(done.position);
                after = done.value.entries.last().map_or(after, |entry| entry.cookie);
                let stuck = done.value.entries.is_empty();
                entries.extend(done.value.entries.into_iter().map(|entry| (entry.name, entry.kind)));
                if done.value.eof || stuck {
                    entries.sort();
                    return Outcome { seen: Seen::Entries(entries), node: None, position };
                }
            }
            Err(done) => return outcome::<()>(Err(done), |()| (Seen::Nothing, None)),
        }
    }
}
