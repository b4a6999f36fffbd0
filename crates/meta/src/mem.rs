//! The ordered key-value contract in memory: the model of a metadata store, for tests and simulation.
//!
//! - [`MemDisk`] is the durable state. It outlives every [`MetaStore`] opened on it, as a disk outlives a crash; dropping a
//!   store loses nothing that was committed.
//! - Opening fences the store opened before: its commits fail and change nothing.
//! - Each committed batch has a number. A view reads as of a number; what no view can see any more is dropped.
//! - What a commit does, besides working, is decided by a [hook](MemDisk::set_commit_hook) before it is applied.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::Mutex;
use tarn_base::world::BoxFuture;

use crate::contract::{Batch, MetaError, MetaLook, MetaOpener, MetaResult, MetaStore, MetaView, Page};

/// What becomes of a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommitFate {
    /// It is done.
    Done,
    /// [`MetaError::Unknown`], and it was not done.
    FailBefore,
    /// [`MetaError::Unknown`], although it was done.
    FailAfter,
}

/// Decides about a commit of so many changes; may take its time, in which a crash drops the commit undone.
pub type CommitHook = Arc<dyn Fn(usize) -> BoxFuture<CommitFate> + Send + Sync>;

/// Versions of one key, oldest first, each with the number of its batch.
type Versions = Vec<(u64, Option<Bytes>)>;

#[derive(Default)]
struct State {
    entries: BTreeMap<Bytes, Versions>,
    /// Number of the last batch.
    batch: u64,
    /// Counts openings.
    epoch: u64,
    /// The last opening that has ended by itself.
    ended: u64,
    /// Batch numbers that views read at, and how many views each.
    read: BTreeMap<u64, usize>,
    /// Keys that have something to drop once no view is older than the batch they stand under.
    stale: BTreeMap<u64, Vec<Bytes>>,
    hook: Option<CommitHook>,
    /// When the oldest living checkpoint was made.
    checkpoint: Option<i64>,
    /// How often a range was read.
    scans: u64,
    refuses: Refuses,
}

/// Whom the store refuses, as one that is full or takes no more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Refuses {
    #[default]
    Nobody,
    /// [`MetaOpener::open`].
    Writers,
    /// [`MetaOpener::look`] too.
    Everybody,
}

/// The durable state; its clones are the same disk.
#[derive(Clone, Default)]
pub struct MemDisk(Arc<Mutex<State>>);

impl fmt::Debug for MemDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MemDisk")
    }
}

impl MemDisk {
    pub fn new() -> MemDisk {
        MemDisk::default()
    }

    /// Lets `hook` decide about every commit from now on; `None` lets all succeed.
    pub fn set_commit_hook(&self, hook: Option<CommitHook>) {
        self.0.lock().hook = hook;
    }

    /// From now on a checkpoint made at this time lives, milliseconds since 1970; or none.
    pub fn hold_checkpoint(&self, made: Option<i64>) {
        self.0.lock().checkpoint = made;
    }

    /// The store that is open ends by itself, as one whose background work failed does.
    pub fn end_opened(&self) {
        let mut state = self.0.lock();
        state.ended = state.epoch;
    }

    /// From now on these are told that it is full.
    pub fn refuse(&self, refuses: Refuses) {
        self.0.lock().refuses = refuses;
    }

    fn refused(&self, least: Refuses) -> MetaResult<()> {
        let refuses = self.0.lock().refuses;
        if refuses < least { Ok(()) } else { Err(MetaError::Full("it was told to refuse".to_owned())) }
    }

    /// How often a range was read.
    pub fn scans(&self) -> u64 {
        self.0.lock().scans
    }

    /// Everything committed, in order of key; for checkers.
    pub fn contents(&self) -> Vec<(Bytes, Bytes)> {
        let state = self.0.lock();
        let last = |versions: &Versions| versions.last().and_then(|(_, value)| value.clone());
        state.entries.iter().filter_map(|(key, versions)| Some((key.clone(), last(versions)?))).collect()
    }

    fn view(&self, epoch: u64) -> Arc<MemView> {
        let mut state = self.0.lock();
        let batch = state.batch;
        *state.read.entry(batch).or_insert(0) += 1;
        Arc::new(MemView { disk: self.clone(), epoch, batch, over: AtomicBool::new(false) })
    }
}

impl State {
    /// An error once the store of this opening has ended by itself.
    fn alive(&self, epoch: u64) -> MetaResult<()> {
        if self.ended < epoch { Ok(()) } else { Err(MetaError::Unavailable("this store has ended".to_owned())) }
    }

    fn apply(&mut self, batch: Batch) {
        self.batch += 1;
        let mut keys = Vec::with_capacity(batch.changes.len());
        for (key, value) in batch.changes {
            keys.push(key.clone());
            self.entries.entry(key).or_default().push((self.batch, value));
        }
        self.stale.insert(self.batch, keys);
        self.drop_unseen();
    }

    /// Drops what the oldest view does not see.
    fn drop_unseen(&mut self) {
        let oldest = self.read.first_key_value().map_or(self.batch, |(batch, _)| *batch);
        while let Some(entry) = self.stale.first_entry() {
            if *entry.key() > oldest {
                return;
            }
            for key in entry.remove() {
                let Some(versions) = self.entries.get_mut(&key) else {
                    continue;
                };
                let seen = versions.partition_point(|(batch, _)| *batch <= oldest);
                versions.drain(..seen.saturating_sub(1));
                if let [(_, None)] = versions[..] {
                    self.entries.remove(&key);
                }
            }
        }
    }
}

fn at(versions: &Versions, batch: u64) -> Option<Bytes> {
    let seen = versions.partition_point(|(number, _)| *number <= batch);
    versions.get(seen.checked_sub(1)?)?.1.clone()
}

/// Opens a [`MemDisk`].
#[derive(Clone, Debug)]
pub struct MemOpener {
    disk: MemDisk,
}

impl MemOpener {
    pub fn new(disk: MemDisk) -> MemOpener {
        MemOpener { disk }
    }
}

#[async_trait]
impl MetaOpener for MemOpener {
    async fn inspect(&self) -> MetaResult<bool> {
        Ok(!self.disk.0.lock().entries.is_empty())
    }

    async fn look(&self) -> MetaResult<Option<Box<dyn MetaLook>>> {
        self.disk.refused(Refuses::Everybody)?;
        // Of no opening: it does not end with any.
        Ok(self.inspect().await?.then(|| Box::new(MemLook(self.disk.view(u64::MAX))) as Box<dyn MetaLook>))
    }

    async fn open(&self) -> MetaResult<Arc<dyn MetaStore>> {
        self.disk.refused(Refuses::Writers)?;
        let mut state = self.disk.0.lock();
        state.epoch += 1;
        let epoch = state.epoch;
        Ok(Arc::new(MemStore { disk: self.disk.clone(), epoch, ended: AtomicBool::new(false) }))
    }
}

#[derive(Debug)]
struct MemLook(Arc<MemView>);

#[async_trait]
impl MetaLook for MemLook {
    fn view(&self) -> Arc<dyn MetaView> {
        self.0.clone()
    }

    async fn close(&self) -> MetaResult<()> {
        self.0.over.store(true, Ordering::SeqCst);
        Ok(())
    }
}

struct MemStore {
    disk: MemDisk,
    epoch: u64,
    /// Closed, or a commit has failed.
    ended: AtomicBool,
}

impl fmt::Debug for MemStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MemStore(epoch {})", self.epoch)
    }
}

impl MemStore {
    fn fenced(&self, state: &State) -> MetaResult<()> {
        if state.epoch == self.epoch {
            return Ok(());
        }
        Err(MetaError::Fenced(format!("epoch {} was followed by {}", self.epoch, state.epoch)))
    }
}

#[async_trait]
impl MetaStore for MemStore {
    fn view(&self) -> Arc<dyn MetaView> {
        self.disk.view(self.epoch)
    }

    async fn commit(&self, batch: Batch) -> MetaResult<()> {
        if self.ended.load(Ordering::SeqCst) {
            return Err(MetaError::Unavailable("this store was closed, or a commit failed".to_owned()));
        }
        let hook = self.disk.0.lock().hook.clone();
        let fate = match hook {
            Some(hook) => hook(batch.changes.len()).await,
            None => CommitFate::Done,
        };
        let mut state = self.disk.0.lock();
        if let Err(error) = state.alive(self.epoch).and_then(|()| self.fenced(&state)) {
            self.ended.store(true, Ordering::SeqCst);
            return Err(error);
        }
        if fate != CommitFate::FailBefore {
            state.apply(batch);
        }
        if fate != CommitFate::Done {
            self.ended.store(true, Ordering::SeqCst);
            return Err(MetaError::Unknown("an error was injected".to_owned()));
        }
        Ok(())
    }

    async fn glance(&self) -> MetaResult<()> {
        if self.disk.0.lock().entries.is_empty() { Err(gone()) } else { Ok(()) }
    }

    async fn verify(&self) -> MetaResult<()> {
        self.glance().await
    }

    async fn oldest_checkpoint(&self) -> MetaResult<Option<i64>> {
        Ok(self.disk.0.lock().checkpoint)
    }

    fn ended(&self) -> Option<MetaError> {
        self.disk.0.lock().alive(self.epoch).err()
    }

    async fn close(&self) -> MetaResult<()> {
        self.ended.store(true, Ordering::SeqCst);
        Ok(())
    }
}

fn gone() -> MetaError {
    MetaError::Gone("nothing is on this disk any more".to_owned())
}

struct MemView {
    disk: MemDisk,
    /// The opening it is of.
    epoch: u64,
    batch: u64,
    /// Its look has been closed.
    over: AtomicBool,
}

impl MemView {
    fn alive(&self, state: &State) -> MetaResult<()> {
        match self.over.load(Ordering::SeqCst) {
            true => Err(MetaError::Unavailable("this look is over".to_owned())),
            false => state.alive(self.epoch),
        }
    }
}

impl fmt::Debug for MemView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MemView(batch {})", self.batch)
    }
}

impl Drop for MemView {
    fn drop(&mut self) {
        let mut state = self.disk.0.lock();
        if let Some(count) = state.read.get_mut(&self.batch) {
            *count -= 1;
            if *count == 0 {
                state.read.remove(&self.batch);
                state.drop_unseen();
            }
        }
    }
}

#[async_trait]
impl MetaView for MemView {
    async fn get(&self, key: &[u8]) -> MetaResult<Option<Bytes>> {
        let state = self.disk.0.lock();
        self.alive(&state)?;
        Ok(state.entries.get(key).and_then(|versions| at(versions, self.batch)))
    }

    async fn scan(&self, from: &[u8], to: &[u8], limit: usize) -> MetaResult<Page> {
        let mut page = Page { entries: Vec::new(), complete: true };
        if from >= to {
            return Ok(page);
        }
        let mut state = self.disk.0.lock();
        self.alive(&state)?;
        state.scans += 1;
        let bounds = (std::ops::Bound::Included(from), std::ops::Bound::Excluded(to));
        for (key, versions) in state.entries.range::<[u8], _>(bounds) {
            let Some(value) = at(versions, self.batch) else {
                continue;
            };
            if page.entries.len() == limit {
                page.complete = false;
                break;
            }
            page.entries.push((key.clone(), value));
        }
        Ok(page)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_view_sees_is_dropped() {
        let disk = MemDisk::new();
        let batch = |value: Option<&'static str>| Batch { changes: vec![(Bytes::from("k"), value.map(Bytes::from))] };
        disk.0.lock().apply(batch(Some("1")));
        let old = disk.view(1);
        for value in ["2", "3", "4"] {
            disk.0.lock().apply(batch(Some(value)));
        }
        let count = |disk: &MemDisk| disk.0.lock().entries.get(&b"k"[..]).map_or(0, Vec::len);
        assert_eq!(count(&disk), 4);
        drop(old);
        assert_eq!(count(&disk), 1);
        disk.0.lock().apply(batch(None));
        assert_eq!(count(&disk), 0);
        assert!(disk.0.lock().stale.is_empty());
    }
}
