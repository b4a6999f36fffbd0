//! What clients ask for.
//!
//! - Slots stand for objects; the first are the volumes' roots. A slot may well stand for what is gone.
//! - Some files are written in streams: large UNSTABLE writes one after another, over old data too, with a COMMIT or without.
//! - Names come from a small pool, so that they collide; so do ranges of bytes and of locks.

use std::collections::BTreeMap;

use bytes::Bytes;
use tarn_base::time::Time;
use tarn_vfs::op::{Data, Op, Slot};
use tarn_vfs::*;

use crate::chance::Chance;

/// Slots that are filled one after another and then again.
const SLOTS: u32 = 48;
/// The largest number of a record that is written, unless files are huge.
const NEAR: u64 = 96 << 10;

/// Of a hundred writes, those with which a stream begins.
const STREAMS: u32 = 15;

/// A file that a client writes in one go.
#[derive(Clone, Copy, Debug)]
struct Stream {
    node: Slot,
    /// Where it goes on.
    offset: u64,
    /// Writes to come.
    left: u64,
    commits: bool,
}

/// Kinds of operations and how often each comes, by the seed's mixes.
const KINDS: [(&str, [u32; 5]); 21] = [
    // (kind, [small files, big files, names, locks, all alike])
    ("create", [12, 3, 12, 3, 5]),
    ("mkdir", [3, 1, 8, 1, 5]),
    ("symlink", [2, 0, 5, 0, 5]),
    ("special", [1, 0, 3, 0, 5]),
    ("link", [2, 1, 8, 0, 5]),
    ("remove", [6, 2, 10, 1, 5]),
    ("rmdir", [1, 0, 5, 0, 5]),
    ("rename", [4, 1, 14, 0, 5]),
    ("lookup", [6, 2, 10, 2, 5]),
    ("list", [2, 0, 6, 0, 5]),
    ("write", [24, 40, 4, 6, 5]),
    ("append", [6, 6, 0, 0, 5]),
    ("read", [10, 16, 2, 4, 5]),
    ("truncate", [5, 12, 1, 1, 5]),
    ("setattr", [4, 1, 4, 0, 5]),
    ("commit", [4, 6, 0, 1, 5]),
    ("getattr", [4, 2, 4, 2, 5]),
    ("access", [1, 0, 2, 0, 5]),
    ("readlink", [1, 0, 2, 0, 5]),
    ("lock", [1, 1, 0, 24, 5]),
    ("unlock", [1, 1, 0, 14, 5]),
];

/// Every kind of operation that clients ask for.
pub fn kinds() -> Vec<&'static str> {
    KINDS
        .iter()
        .map(|(kind, _)| *kind)
        .chain(["write again", "volume create", "volume set", "volume delete", "volume undelete"])
        .collect()
}

/// The clients' wishes, one after another.
pub struct Workload {
    chance: Chance,
    weights: Vec<u32>,
    names: Vec<Bytes>,
    roots: Vec<Slot>,
    kinds: BTreeMap<Slot, FileType>,
    sizes: BTreeMap<Slot, u64>,
    next: u32,
    huge: bool,
    /// Whether most writes have content that others have too, at whole records.
    alike: bool,
    unprivileged: u32,
    /// Of each client that is amid one.
    streams: BTreeMap<u64, Stream>,
    stream_chance: Chance,
    tokens: u64,
    /// Clients speak NFSv3, which does not know times before 1970.
    wire: bool,
}

impl Workload {
    /// `streams`: the chance that decides about them.
    pub fn new(mut chance: Chance, streams: Chance, volumes: usize, wire: bool) -> Workload {
        let mix = chance.below(5) as usize;
        let count = chance.range(6, 40);
        let names = (0..count).map(|number| name(&mut chance, number)).collect();
        let roots: Vec<Slot> = (0..volumes as u32).map(Slot).collect();
        Workload {
            weights: KINDS.iter().map(|(_, weights)| weights[mix]).collect(),
            names,
            kinds: roots.iter().map(|root| (*root, FileType::Directory)).collect(),
            sizes: BTreeMap::new(),
            next: volumes as u32,
            huge: chance.percent(8),
            alike: chance.percent(50),
            unprivileged: *chance.pick(&[0, 5, 30]),
            streams: BTreeMap::new(),
            stream_chance: streams,
            tokens: 0,
            wire,
            roots,
            chance,
        }
    }

    /// The next operation and who asks for it.
    pub fn next(&mut self, client: u64) -> (&'static str, Op, Caller) {
        if let Some((kind, op)) = self.stream_on(client) {
            return (kind, op, Caller { client: ClientId(u128::from(client)), ..Caller::root() });
        }
        let kind = KINDS[self.chance.weighted(&self.weights)].0;
        let op = self.op(kind, client);
        if let Op::Write { node, offset, .. } = &op
            && self.stream_chance.percent(STREAMS)
        {
            self.begin_stream(client, *node, *offset);
        }
        (kind, op, self.caller(client))
    }

    /// The client writes on where its last write begins, or from the file's start.
    fn begin_stream(&mut self, client: u64, node: Slot, offset: u64) {
        let chance = &mut self.stream_chance;
        let offset = if chance.percent(40) { 0 } else { offset.min(NEAR) };
        let stream = Stream { node, offset, left: chance.range(2, 5), commits: chance.percent(40) };
        self.streams.insert(client, stream);
    }

    /// What comes next of the client's stream.
    fn stream_on(&mut self, client: u64) -> Option<(&'static str, Op)> {
        let mut stream = self.streams.remove(&client)?;
        let node = stream.node;
        if self.kinds.get(&node) != Some(&FileType::Regular) {
            return None;
        }
        if stream.left == 0 {
            return stream.commits.then_some(("commit", Op::Commit { node }));
        }
        let chance = &mut self.stream_chance;
        let seed = if self.alike && chance.percent(50) { chance.range(1, 3) } else { chance.next() };
        let data = Data { seed, count: 4096 * chance.range(1, 4) as u32 };
        let offset = stream.offset;
        // Some begin again amid the write before.
        let step = if chance.percent(25) { u64::from(data.count) / 2 } else { u64::from(data.count) };
        stream.offset += step;
        stream.left -= 1;
        self.streams.insert(client, stream);
        Some(("write", Op::Write { node, offset, data, stability: Stability::Unstable }))
    }

    /// Takes note of what came of an operation.
    pub fn note(&mut self, op: &Op, made: Option<FileType>) {
        if let (Some(slot), Some(kind)) = (op.target(), made) {
            self.kinds.insert(slot, kind);
            self.sizes.remove(&slot);
        }
        if let Op::Write { node, offset, data, .. } = op {
            let end = offset + u64::from(data.count);
            let size = self.sizes.entry(*node).or_insert(0);
            *size = (*size).max(end);
        }
    }

    /// Slots that stand for directories other than roots, as far as is known.
    pub fn directories(&self) -> Vec<Slot> {
        let all = self.kinds.iter().filter(|(slot, kind)| **kind == FileType::Directory && !self.roots.contains(slot));
        all.map(|(slot, _)| *slot).collect()
    }

    /// Slots that stand for nothing any more.
    pub fn forget(&mut self, slots: &[Slot]) {
        for slot in slots.iter().filter(|slot| !self.roots.contains(slot)) {
            self.kinds.remove(slot);
            self.sizes.remove(slot);
        }
    }

    fn caller(&mut self, client: u64) -> Caller {
        let unprivileged = self.unprivileged;
        let mut caller = if self.chance.percent(unprivileged) {
            let uid = 1000 + self.chance.below(3) as u32;
            Caller { groups: [2001].into_iter().collect(), ..Caller::user(uid, 2000) }
        } else {
            Caller::root()
        };
        caller.client = ClientId(u128::from(client));
        caller.owner_override = self.chance.percent(50);
        if self.chance.percent(40) {
            self.tokens += 1;
            caller.once = Some(OnceToken { client: caller.client, number: self.tokens, digest: self.chance.next() });
        }
        caller
    }

    // long: dispatch table
    fn op(&mut self, kind: &str, client: u64) -> Op {
        match kind {
            "create" => self.create(),
            "mkdir" => Op::Mkdir { dir: self.dir(), name: self.name(), set: self.making(), into: self.slot() },
            "symlink" => {
                let target = self.name();
                self.make(Special::Symlink(target))
            }
            "special" => {
                let (major, minor) = (self.chance.below(9) as u32, self.chance.next() as u32);
                let all = [
                    Special::Fifo,
                    Special::Socket,
                    Special::Block { major, minor },
                    Special::Character { major, minor },
                ];
                let what = self.chance.pick(&all).clone();
                self.make(what)
            }
            "link" => Op::Link { node: self.file(), dir: self.dir(), name: self.name() },
            "remove" => Op::Remove { dir: self.dir(), name: self.name() },
            "rmdir" => Op::Rmdir { dir: self.dir(), name: self.name() },
            "rename" => {
                let from = self.dir();
                let to = if self.chance.percent(50) { from } else { self.dir() };
                Op::Rename { from, name: self.name(), to, new_name: self.name() }
            }
            "lookup" => self.lookup(),
            "list" => Op::List { dir: self.dir(), page: *self.chance.pick(&[1, 3, 10, 100]) },
            "write" => self.write(),
            "append" => self.append(),
            "read" => {
                let node = self.file();
                let (offset, count) = (self.offset(), self.chance.range(0, 40_000) as u32);
                Op::Read { node, offset, count }
            }
            "truncate" => {
                let node = self.file();
                let size = self.size(node);
                Op::Setattr { node, set: SetAttr { size: Some(size), ..SetAttr::default() } }
            }
            "setattr" => Op::Setattr { node: self.any(), set: self.setting() },
            "commit" => Op::Commit { node: self.file() },
            "getattr" => Op::Getattr { node: self.any() },
            "access" => Op::Access { node: self.any(), want: Access(self.chance.below(64) as u8) },
            "readlink" => Op::Readlink { node: self.of_kind(FileType::Symlink) },
            "lock" => self.lock(client),
            _ if self.chance.percent(4) => Op::ReleaseClient { client: client_name(client) },
            _ => Op::Unlock { node: self.file(), owner: self.owner(client), range: self.range() },
        }
    }

    fn create(&mut self) -> Op {
        let mode = match self.chance.below(4) {
            0 => CreateMode::Guarded,
            1 => CreateMode::Exclusive(self.chance.below(3)),
            _ => CreateMode::Unchecked,
        };
        let mut set = self.making();
        if self.chance.percent(15) {
            set.size = Some(self.chance.range(0, 10_000));
        }
        if matches!(mode, CreateMode::Exclusive(_)) {
            // The verifier takes the place of attributes.
            set = SetAttr::default();
        }
        Op::Create { dir: self.dir(), name: self.name(), mode, set, into: self.slot() }
    }

    fn make(&mut self, what: Special) -> Op {
        Op::Make { dir: self.dir(), name: self.name(), what, set: self.making(), into: self.slot() }
    }

    fn lookup(&mut self) -> Op {
        let name = match self.chance.below(12) {
            0 => Bytes::from_static(b"."),
            1 => Bytes::from_static(b".."),
            _ => self.name(),
        };
        Op::Lookup { dir: self.dir(), name, into: self.slot() }
    }

    fn write(&mut self) -> Op {
        let node = self.file();
        let offset = self.offset();
        self.write_at(node, offset)
    }

    fn append(&mut self) -> Op {
        let node = self.file();
        let offset = self.sizes.get(&node).copied().unwrap_or(0);
        self.write_at(node, offset)
    }

    fn write_at(&mut self, node: Slot, offset: u64) -> Op {
        if self.alike && self.chance.percent(60) {
            return self.write_alike(node, offset);
        }
        let count = match self.chance.below(4) {
            0 => self.chance.range(0, 200),
            1 => self.chance.range(1, 6) * 4096,
            2 => self.chance.range(1, 5000),
            _ => self.chance.range(1, 30_000),
        };
        let data = Data { seed: self.chance.next(), count: count as u32 };
        let stability =
            *self.chance.pick(&[Stability::Unstable, Stability::Unstable, Stability::Data, Stability::File]);
        Op::Write { node, offset, data, stability }
    }

    /// One of few contents, where a record begins.
    fn write_alike(&mut self, node: Slot, offset: u64) -> Op {
        let data = Data { seed: self.chance.range(1, 3), count: 4096 * self.chance.range(1, 6) as u32 };
        Op::Write { node, offset: offset / 8192 * 8192, data, stability: Stability::Unstable }
    }

    fn lock(&mut self, client: u64) -> Op {
        let kind = *self.chance.pick(&[LockKind::Shared, LockKind::Exclusive]);
        let wait = self.chance.percent(30);
        Op::Lock { node: self.file(), owner: self.owner(client), kind, range: self.range(), wait }
    }

    fn owner(&mut self, client: u64) -> LockOwner {
        let owner = self.chance.below(2) as u32;
        LockOwner { client: client_name(client), owner: format!("owner {owner}").into(), process: owner }
    }

    fn range(&mut self) -> LockRange {
        let start = self.chance.below(6) * 10;
        let end = if self.chance.percent(15) { u64::MAX } else { start + self.chance.range(1, 4) * 10 };
        LockRange { start, end }
    }

    fn offset(&mut self) -> u64 {
        if self.huge && self.chance.percent(10) {
            return *self.chance.pick(&[1 << 24, 1 << 40, FILE_SIZE_MAX - 5000, FILE_SIZE_MAX]);
        }
        match self.chance.below(3) {
            0 => self.chance.below(6) * 4096,
            1 => self.chance.below(8192),
            _ => self.chance.below(NEAR),
        }
    }

    fn size(&mut self, node: Slot) -> u64 {
        let size = self.sizes.get(&node).copied().unwrap_or(0);
        match self.chance.below(5) {
            0 => 0,
            1 => self.chance.below(NEAR),
            2 => self.chance.below(24) * 4096,
            3 => self.chance.range(0, size),
            _ => self.offset(),
        }
    }

    /// Attributes of something new.
    fn making(&mut self) -> SetAttr {
        let mode = *self.chance.pick(&[0o755, 0o777, 0o1777, 0o2775, 0o644, 0o600]);
        SetAttr { mode: Some(mode), ..SetAttr::default() }
    }

    /// Attributes to be changed.
    fn setting(&mut self) -> SetAttr {
        let mut set = SetAttr::default();
        match self.chance.below(6) {
            0 => set.mode = Some(self.chance.below(0o10000) as u16),
            1 => set.uid = Some(1000 + self.chance.below(3) as u32),
            2 => set.gid = Some(2000 + self.chance.below(3) as u32),
            3 => set.mtime = Some(SetTime::Now),
            4 => {
                let mut seconds = self.chance.next() as i32;
                if self.wire {
                    seconds &= i32::MAX;
                }
                set.mtime = Some(SetTime::To(Time { seconds: i64::from(seconds), nanos: 7 }));
                set.atime = set.mtime;
            }
            _ => {}
        }
        set
    }

    fn slot(&mut self) -> Slot {
        let slot = Slot(self.next);
        let first = self.roots.len() as u32;
        self.next = if self.next + 1 >= first + SLOTS { first } else { self.next + 1 };
        slot
    }

    fn name(&mut self) -> Bytes {
        self.chance.pick(&self.names).clone()
    }

    fn dir(&mut self) -> Slot {
        if self.chance.percent(40) {
            return *self.chance.pick(&self.roots);
        }
        self.of_kind(FileType::Directory)
    }

    fn file(&mut self) -> Slot {
        if self.chance.percent(3) {
            return self.any();
        }
        self.of_kind(FileType::Regular)
    }

    fn of_kind(&mut self, kind: FileType) -> Slot {
        let all: Vec<Slot> = self.kinds.iter().filter(|(_, of)| **of == kind).map(|(slot, _)| *slot).collect();
        if all.is_empty() { self.any() } else { *self.chance.pick(&all) }
    }

    fn any(&mut self) -> Slot {
        let all: Vec<Slot> = self.kinds.keys().copied().collect();
        *self.chance.pick(&all)
    }
}

/// The name that a client gives itself for locks.
pub fn client_name(client: u64) -> Bytes {
    format!("client {client}").into()
}

fn name(chance: &mut Chance, number: u64) -> Bytes {
    match chance.below(12) {
        // The same but for case: one hash, two names.
        0 => Bytes::from_static(b"Case"),
        1 => Bytes::from_static(b"cASE"),
        2 => vec![b'n'; NAME_MAX].into(),
        3 => Bytes::from_static(b"\xff\xfe not UTF-8"),
        4 => "\u{e9}t\u{e9}".to_owned().into(),
        5 => "e\u{301}te\u{301}".to_owned().into(),
        _ => format!("n{number}").into(),
    }
}
