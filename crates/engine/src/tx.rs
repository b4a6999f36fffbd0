//! One run of an operation: what it reads, and what it will change if it comes to its end.
//!
//! - Nothing here waits. A key that is not in RAM is noted in [`Need`] and ends the run; it is fetched and the
//!   operation runs again from the start (engine rule 7).
//! - A run that does not come to its end has changed nothing.
//! - What was read decides what must be durable before the reply is shown: [`Tx::seen`].

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::MutexGuard;
use tarn_base::codec::Decoded;
use tarn_base::ids::{Ino, Position, SegmentId, VolumeId};
use tarn_base::time::Time;
use tarn_data::RecordPointer;
use tarn_vfs::locks::{Decision, LockTable, Transition};
use tarn_vfs::{Errno, Failure, LockInfo, Node};
use tarn_wal::LogPlace;

use crate::core::Core;
use crate::entry::{DataChange, Entry};
use crate::key::{Key, Kind};
use crate::listings::{Listing, Part};
use crate::overlay::{Generation, OverlayValue, Stack};
use crate::session::note_decision;
use crate::stripes::LockSet;
use crate::value::{Inode, MapState};
use crate::volumes::Volume;

/// Why a run did not come to its end.
#[derive(Debug)]
pub enum Stop {
    /// The operation refuses; nothing changed.
    Refuse(Failure),
    /// A lock is missing: volume, inode, whether exclusively.
    Lock(VolumeId, u64, bool),
    /// Something is not in RAM: see [`Tx::need`].
    Need,
}

impl From<Errno> for Stop {
    fn from(errno: Errno) -> Stop {
        Stop::Refuse(errno.into())
    }
}

impl From<Failure> for Stop {
    fn from(failure: Failure) -> Stop {
        Stop::Refuse(failure)
    }
}

pub type Step<T> = Result<T, Stop>;

/// What is to be fetched before the next run.
#[derive(Debug, Default)]
pub struct Need {
    pub keys: BTreeSet<Key>,
    /// Ranges of keys, and at most how many of them.
    pub ranges: Vec<(Range<Key>, usize)>,
    /// Beside a range of a directory's entries: of so many at most the attributes are asked for as well.
    pub attrs: usize,
    /// Each with its pointer's key.
    pub records: Vec<(Key, RecordPointer)>,
    pub logged: Vec<LogPlace>,
    /// The log has no room, or the overlay: a checkpoint makes some.
    pub log_room: bool,
    /// A file's data that has passed the log by is to be durable.
    pub settled: Option<(VolumeId, Ino)>,
    /// What was pinned does not fit the present any more.
    pub stale: bool,
    /// Nothing: the generation it counted on has closed, so it runs again.
    pub again: bool,
    /// Version of the stack that the run saw.
    pub version: u64,
}

/// A range of a directory's entries as fetched.
#[derive(Debug)]
pub struct PinnedRange {
    pub range: Range<Key>,
    pub listing: Arc<Listing>,
}

impl PinnedRange {
    /// As [`Listing::part`], of a range that may begin within this one.
    fn part(&self, range: &Range<Key>, limit: usize) -> Option<Part<'_>> {
        let within = range.start >= self.range.start && range.end == self.range.end;
        self.listing.part(range, limit).filter(|_| within)
    }
}

/// What was fetched for an operation, with the moment it belongs to.
#[derive(Debug, Default)]
pub struct Pins {
    /// The stack at the first fetch: its generations lie over what was fetched.
    pub stack: Option<Arc<Stack>>,
    pub keys: BTreeMap<Key, Option<Bytes>>,
    pub ranges: Vec<PinnedRange>,
    pub records: BTreeMap<(SegmentId, u32), Bytes>,
    pub logged: BTreeMap<LogPlace, Bytes>,
    /// What had passed the log by when this was asked is in the log or the store.
    pub settled: bool,
}

impl Pins {
    /// Whether what was fetched, with the generations of its moment, still gives the present.
    ///
    /// It does while every generation that came after that moment is still in the present stack.
    ///
    /// Pointers are made by checkpoints, not by entries: with any of them the view must be the same.
    pub fn fits(&self, present: &Stack) -> bool {
        self.stack.as_ref().is_none_or(|then| {
            let pointers = self.keys.keys().any(|key| key.kind == Kind::Pointer);
            if pointers { present.version == then.version } else { present.oldest() <= then.open().number + 1 }
        })
    }
}

/// Most keys that are fetched at once to find what was not removed.
const FETCH_MAX: usize = 64 << 10;

/// Changed keys over stored ones, in order; `None` is a removal.
type Merged = Vec<(Key, Option<Bytes>)>;

/// What a run will change.
#[derive(Debug, Default)]
struct Made {
    /// Its keys are in order, and few.
    entry: Entry,
    transitions: Vec<Transition>,
    /// Waiting locks granted by this.
    granted: Vec<LockInfo>,
}

/// One run.
pub struct Tx<'a> {
    pub core: &'a Core,
    pub stack: Arc<Stack>,
    now: OnceCell<Time>,
    /// Apart, as what it changes: most runs need nothing and change nothing.
    need: Option<Box<Need>>,
    made: Option<Box<Made>>,
    /// What must be durable before anybody is shown what was read.
    pub seen: Position,
    /// The call was answered before: it may change nothing, unless it comes to the same.
    pub again: bool,
    /// The change is UNSTABLE data and its attributes: nobody needs to wait for it.
    pub unstable: bool,
    /// It only brings into the log what has passed it by.
    pub settles: bool,
    /// It takes room in the store, though usage says nothing of it.
    pub grows: bool,
    /// It is the engine's own, while that closes.
    pub closing: bool,
    /// The number of the generation that must still be open at the commit.
    pub on_open: Option<u64>,
    /// The table of locks, held from the decision to its application.
    table: Option<MutexGuard<'a, LockTable>>,
    pins: &'a Pins,
    locks: &'a LockSet,
}

impl<'a> Tx<'a> {
    pub fn new(core: &'a Core, stack: Arc<Stack>, pins: &'a Pins, locks: &'a LockSet) -> Tx<'a> {
        Tx {
            now: OnceCell::new(),
            core,
            stack,
            need: None,
            made: None,
            seen: Position::ZERO,
            again: false,
            unstable: false,
            settles: false,
            grows: false,
            closing: false,
            on_open: None,
            table: None,
            pins,
            locks,
        }
    }

    /// The time of the run. Most calls only read and never ask.
    pub fn now(&self) -> Time {
        *self.now.get_or_init(|| self.core.world.clock.now())
    }

    // --- locks ---

    /// Goes on only under the inode's lock.
    pub fn lock(&self, volume: VolumeId, ino: Ino, exclusive: bool) -> Step<()> {
        if self.locks.holds(volume, ino.0, exclusive) { Ok(()) } else { Err(Stop::Lock(volume, ino.0, exclusive)) }
    }

    // --- reading ---

    /// What is to be fetched before the next run.
    pub fn need(&mut self) -> &mut Need {
        self.need.get_or_insert_default()
    }

    /// The value of a key, if it is in RAM; else `Err` and it is noted.
    fn look(&mut self, key: &Key) -> Result<Option<Bytes>, ()> {
        if let Some(changed) = self.changed(key) {
            return Ok(changed.clone());
        }
        if let Some(held) = self.stack.get(key) {
            self.seen = self.seen.max(held.barrier);
            return Ok(held.value);
        }
        self.below(key)
    }

    /// The value of a key that neither this run nor what is not in the store's view yet has changed.
    fn below(&mut self, key: &Key) -> Result<Option<Bytes>, ()> {
        // Not pointers: what a generation has removed, its own checkpoint may have made again.
        if let Some(then) = self.pins.stack.as_ref().filter(|_| key.kind != Kind::Pointer) {
            let oldest = self.stack.oldest();
            let gone = then.generations.iter().filter(|generation| generation.number < oldest);
            if let Some(held) = gone.filter_map(|generation| generation.get(key)).next() {
                return Ok(held.value);
            }
        }
        let pinned = self.pins.keys.get(key);
        // What was pinned has just been touched, what is cached lies anywhere. A pointer may be newer there.
        if let Some(value) = pinned.filter(|_| key.kind != Kind::Pointer) {
            return Ok(value.clone());
        }
        if let Some(value) = self.core.caches.keys.get(key) {
            return Ok(value);
        }
        if let Some(value) = pinned {
            if self.replaced_since(key) {
                self.need().stale = true;
                return Err(());
            }
            return Ok(value.clone());
        }
        if self.core.caches.names.absent(key) {
            return Ok(None);
        }
        self.need().keys.insert(*key);
        Err(())
    }

    /// Whether `key` is a pointer that was pinned below dirty data which a checkpoint has stored since: the data is
    /// in the store's new view only, under a new pointer.
    fn replaced_since(&self, key: &Key) -> bool {
        let Some(then) = self.pins.stack.as_ref().filter(|_| key.kind == Kind::Pointer) else { return false };
        let oldest = self.stack.oldest();
        let mut gone = then.generations.iter().filter(|generation| generation.number < oldest);
        gone.any(|generation| generation.has_record(&(key.volume, Ino(key.a), key.b)))
    }

    /// Notes all of `keys` that are not in RAM, so that one fetch brings them.
    pub fn prefetch(&mut self, keys: impl IntoIterator<Item = Key>) -> Step<()> {
        let mut missing = false;
        for key in keys {
            missing |= self.look(&key).is_err();
        }
        if missing { Err(Stop::Need) } else { Ok(()) }
    }

    /// A decoded value; damage is told as such.
    #[inline]
    pub fn value<T>(&mut self, key: &Key, decode: impl Fn(&[u8]) -> Decoded<T>) -> Step<Option<T>> {
        self.value_of(key, false, decode)
    }

    /// As [`Tx::value`]; `fresh`: its owner was created after the store's view, which therefore holds none of its keys.
    // Inlined, with what is called here: values are large beside what is done with them, and each return would move them.
    #[inline(always)]
    pub fn value_of<T>(&mut self, key: &Key, fresh: bool, decode: impl Fn(&[u8]) -> Decoded<T>) -> Step<Option<T>> {
        let mut decoded = None;
        let mut barrier = Position::ZERO;
        let waits = |held: &OverlayValue| {
            barrier = held.barrier;
            decoded = held.value.as_deref().map(&decode);
        };
        if let Some(changed) = self.changed(key) {
            decoded = changed.as_deref().map(&decode);
        } else if self.stack.see(key, waits) {
            self.seen = self.seen.max(barrier);
        } else if !fresh || self.pins.stack.as_ref().is_some_and(|then| then.get(key).is_some()) {
            decoded = self.below(key).map_err(|()| Stop::Need)?.as_deref().map(&decode);
        }
        match decoded {
            None => Ok(None),
            Some(Ok(value)) => Ok(Some(value)),
            Some(Err(error)) => {
                self.core.damaged(key, &error.to_string());
                Err(Errno::Io.into())
            }
        }
    }

    /// Keys of one owner within `range` and their values in order, at most `limit`; and whether that is all.
    ///
    /// `fresh`: the owner was created after the store's view, which therefore holds none of its keys.
    pub fn scan(&mut self, range: Range<Key>, limit: usize, fresh: bool) -> Step<(Vec<(Key, Bytes)>, bool)> {
        let mut out = Vec::new();
        let mut from = range.start;
        let mut fetch = limit;
        loop {
            let (merged, until) = self.scan_part(from..range.end, limit, fetch, fresh)?;
            out.extend(merged.into_iter().filter_map(|(key, value)| Some((key, value?))));
            if out.len() > limit {
                out.truncate(limit);
                return Ok((out, false));
            }
            match until {
                None => return Ok((out, true)),
                Some(_) if out.len() == limit => return Ok((out, false)),
                // Much of it was removed: go on behind it, with more at once, or whoever removes may be faster.
                Some(until) => (from, fetch) = (until, (2 * fetch).min(FETCH_MAX.max(limit))),
            }
        }
    }

    /// The beginning of `range` with removals, and where it ends if that is before the range does. `fetch`: how many are
    /// asked of the store if it is to be asked.
    fn scan_part(&mut self, range: Range<Key>, limit: usize, fetch: usize, fresh: bool) -> Step<(Merged, Option<Key>)> {
        let (mut merged, mut until) = (Merged::new(), None);
        let kept;
        if !fresh {
            let pinned = self.pins.ranges.iter().find_map(|page| page.part(&range, limit + 1));
            let part = match pinned {
                None => {
                    kept = self.core.caches.listings.get(&range);
                    kept.as_ref().and_then(|kept| kept.part(&range, limit + 1))
                }
                pinned => pinned,
            };
            let Some((entries, end)) = part else {
                self.need().ranges.push((range, fetch));
                return Err(Stop::Need);
            };
            until = end;
            merged.extend(entries.iter().map(|(key, value)| (*key, Some(value.clone()))));
        }
        let stored = merged.len();
        let oldest = self.stack.oldest();
        let then = self.pins.stack.as_ref().map(|then| then.generations.as_slice()).unwrap_or_default();
        let gone = then.iter().filter(|generation| generation.number < oldest);
        for generation in gone.rev().chain(self.stack.generations.iter().rev()) {
            let (entries, cut_at) = generation.range(range.clone(), limit + 1);
            until = [until, cut_at].into_iter().flatten().min();
            for (key, held) in entries {
                self.seen = self.seen.max(held.barrier);
                merged.push((key, held.value));
            }
        }
        if merged.len() > stored {
            // The last of a key is its newest.
            merged.sort_by_key(|(key, _)| *key);
            merged.dedup_by(|later, kept| {
                later.0 == kept.0 && {
                    kept.1 = later.1.take();
                    true
                }
            });
        }
        if let Some(until) = until {
            merged.retain(|(key, _)| *key < until);
        }
        Ok((merged, until))
    }

    pub fn volume(&self, id: VolumeId) -> Step<Arc<Volume>> {
        self.core.volumes.get(id).ok_or(Stop::from(Errno::Stale))
    }

    #[inline]
    pub fn find_inode(&mut self, volume: VolumeId, ino: Ino) -> Step<Option<Inode>> {
        self.value(&Key::inode(volume, ino), Inode::decode)
    }

    /// An inode that an entry names: it must be there.
    #[inline]
    pub fn inode(&mut self, volume: VolumeId, ino: Ino) -> Step<Inode> {
        self.inode_as(volume, ino, |inode| inode)
    }

    /// As [`Tx::inode`]: what `take` takes of it, and no more of it is moved.
    #[inline(always)]
    pub fn inode_as<T>(&mut self, volume: VolumeId, ino: Ino, take: impl Fn(Inode) -> T) -> Step<T> {
        let key = Key::inode(volume, ino);
        match self.value(&key, |bytes| Inode::decode(bytes).map(&take))? {
            Some(taken) => Ok(taken),
            None => {
                self.core.damaged(&key, "an entry names an inode that is not there");
                Err(Errno::Io.into())
            }
        }
    }

    /// The inode a handle names, or [`Errno::Stale`].
    #[inline]
    pub fn node(&mut self, node: Node) -> Step<Inode> {
        self.node_as(node, |inode| inode)
    }

    /// As [`Tx::node`]: what `take` takes of it, and no more of it is moved.
    #[inline(always)]
    pub fn node_as<T>(&mut self, node: Node, take: impl Fn(Inode) -> T) -> Step<T> {
        if node.epoch != 0 || !self.core.volumes.has(node.volume) {
            return Err(Errno::Stale.into());
        }
        let is_it = |inode: &Inode| inode.generation.0 == node.generation;
        let taken = |bytes: &[u8]| Inode::decode(bytes).map(|inode| is_it(&inode).then(|| take(inode)));
        self.value(&Key::inode(node.volume, node.ino), taken)?.flatten().ok_or(Errno::Stale.into())
    }

    /// Whether the store's view cannot hold anything of this inode yet: neither the present one nor, for it is older,
    /// the one of what is pinned.
    pub fn is_fresh(&self, inode: &Inode) -> bool {
        self.is_fresh_from(inode.generation)
    }

    /// As [`Tx::is_fresh`], of an inode created at `generation`.
    pub fn is_fresh_from(&self, generation: Position) -> bool {
        let floor = self.stack.generations.last().map(|generation| generation.after);
        generation == Inode::PENDING || floor.is_some_and(|floor| generation > floor)
    }

    /// The open generation. The run counts only if it is still open at the commit.
    pub fn open_generation(&mut self) -> Arc<Generation> {
        let open = self.stack.open().clone();
        self.on_open = Some(open.number);
        open
    }

    /// Whether everything of this inode can only be in the open generation.
    pub fn is_open_only(&mut self, inode: &Inode) -> bool {
        let open = self.open_generation();
        inode.generation == Inode::PENDING || inode.generation > open.after
    }

    /// Which pointers of the inode's map count; `None`: all.
    pub fn cuts(&mut self, volume: VolumeId, ino: Ino, has_cuts: bool) -> Step<Option<MapState>> {
        if !has_cuts {
            return Ok(None);
        }
        let key = Key::map(volume, ino);
        let cuts = self.value(&key, MapState::decode)?;
        if cuts.is_none() {
            // Without them, bytes that were cut off would be shown again.
            self.core.damaged(&key, "an inode has cuts that are not there");
            return Err(Errno::Io.into());
        }
        Ok(cuts)
    }

    /// Goes on only once all data of a file that had passed the log by when this was first asked is in the log or the store.
    pub fn settle(&mut self, volume: VolumeId, ino: Ino) -> Step<()> {
        let from = self.core.streams.unsettled_from(volume, ino);
        let unsettled = |stack: &Stack| {
            let mut generations = stack.generations.iter().filter(|generation| generation.number >= from);
            generations.any(|generation| generation.has_unlogged(volume, ino))
        };
        if !self.pins.settled && unsettled(&self.stack) {
            self.need().settled = Some((volume, ino));
            return Err(Stop::Need);
        }
        // Another may have brought it there just now.
        self.seen = self.seen.max(Position(self.core.settled.load(std::sync::atomic::Ordering::Acquire)));
        Ok(())
    }

    /// A record's plaintext, from RAM.
    pub fn record(&mut self, key: Key, pointer: &RecordPointer) -> Step<Bytes> {
        let name = (pointer.segment, pointer.index);
        if let Some(bytes) = self.core.caches.records.get(&name) {
            return Ok(bytes);
        }
        if let Some(bytes) = self.pins.records.get(&name) {
            return Ok(bytes.clone());
        }
        self.need().records.push((key, *pointer));
        Err(Stop::Need)
    }

    /// Bytes that are only in the log.
    pub fn logged(&mut self, place: LogPlace) -> Step<Bytes> {
        match self.pins.logged.get(&place) {
            Some(bytes) => Ok(bytes.clone()),
            None => {
                self.need().logged.push(place);
                Err(Stop::Need)
            }
        }
    }

    // --- changing ---

    pub fn put(&mut self, key: Key, encode: impl FnOnce(&mut Vec<u8>)) {
        let mut out = Vec::with_capacity(160);
        encode(&mut out);
        self.change(key, Some(Bytes::copy_from_slice(&out)));
    }

    /// As [`Tx::put`], of a key that nothing shows: one that is removed before it is stored leaves nothing to store.
    pub fn put_new(&mut self, key: Key, encode: impl FnOnce(&mut Vec<u8>)) {
        // What the run itself has removed was there.
        if self.changed(&key).is_none() {
            self.entry_mut().new.push(key);
        }
        self.put(key, encode);
    }

    pub fn remove(&mut self, key: Key) {
        self.change(key, None);
    }

    /// What the run has made of a key, if it has changed it.
    #[inline]
    fn changed(&self, key: &Key) -> Option<&Option<Bytes>> {
        let keys = &self.made.as_ref()?.entry.keys;
        let at = keys.binary_search_by(|(held, _)| held.cmp(key)).ok()?;
        Some(&keys[at].1)
    }

    fn change(&mut self, key: Key, value: Option<Bytes>) {
        let keys = &mut self.entry_mut().keys;
        match keys.binary_search_by(|(held, _)| held.cmp(&key)) {
            Ok(at) => keys[at].1 = value,
            Err(at) => keys.insert(at, (key, value)),
        }
    }

    fn made_mut(&mut self) -> &mut Made {
        self.made.get_or_insert_default()
    }

    /// What the run will change.
    pub fn entry(&self) -> Option<&Entry> {
        self.made.as_ref().map(|made| &made.entry)
    }

    pub fn entry_mut(&mut self) -> &mut Entry {
        &mut self.made_mut().entry
    }

    /// Puts a changed inode; its change counter becomes the entry's position.
    pub fn put_inode(&mut self, volume: VolumeId, ino: Ino, inode: &mut Inode) {
        inode.change = Inode::PENDING;
        let key = Key::inode(volume, ino);
        // The number of one that is being made was never used before.
        match inode.generation == Inode::PENDING {
            true => self.put_new(key, |out| inode.encode(out)),
            false => self.put(key, |out| inode.encode(out)),
        }
    }

    /// Puts an inode whose change nobody is told of (its pointers were tidied).
    pub fn put_inode_silently(&mut self, volume: VolumeId, ino: Ino, inode: &Inode) {
        self.put(Key::inode(volume, ino), |out| inode.encode(out));
    }

    pub fn charge(&mut self, volume: VolumeId, bytes: i64, inodes: i64) {
        let usage = &mut self.entry_mut().usage;
        match usage.iter_mut().find(|held| held.0 == volume) {
            Some(held) => {
                held.1 += bytes;
                held.2 += inodes;
            }
            None => usage.push((volume, bytes, inodes)),
        }
    }

    pub fn write(&mut self, change: DataChange) {
        self.entry_mut().data.push(change);
    }

    /// The table of locks, held to the end of the run.
    pub fn table(&mut self) -> &mut LockTable {
        let core = self.core;
        let table = self.table.get_or_insert_with(|| core.session.table());
        self.seen = self.seen.max(core.session.changed());
        table
    }

    /// Makes a decision about locks part of the entry.
    pub fn decide<T>(&mut self, decision: Decision<T>) -> T {
        let made = self.made_mut();
        note_decision(&mut made.entry, &decision);
        made.transitions.extend(decision.transitions);
        made.granted.extend(decision.granted);
        decision.value
    }

    /// Whether the run changes anything.
    pub fn changes(&self) -> bool {
        self.entry().is_some_and(|entry| {
            !entry.keys.is_empty() || !entry.data.is_empty() || !entry.session.is_empty() || !entry.discards.is_empty()
        })
    }

    /// What a run that stopped is to be given: see [`Need`].
    pub fn into_need(self) -> Need {
        Need { version: self.stack.version, ..self.need.map(|need| *need).unwrap_or_default() }
    }

    /// The whole of what it changes, keys in order.
    pub fn into_parts(self) -> Parts<'a> {
        let Made { entry, transitions, granted } = self.made.map(|made| *made).unwrap_or_default();
        debug_assert!(entry.keys.iter().all(|(key, _)| key.kind != Kind::Shard));
        Parts {
            entry,
            seen: self.seen,
            unstable: self.unstable,
            on_open: self.on_open,
            table: self.table,
            transitions,
            granted,
        }
    }
}

/// What a run that came to its end leaves.
pub struct Parts<'a> {
    pub entry: Entry,
    pub seen: Position,
    pub unstable: bool,
    pub on_open: Option<u64>,
    pub table: Option<MutexGuard<'a, LockTable>>,
    pub transitions: Vec<Transition>,
    pub granted: Vec<LockInfo>,
}
