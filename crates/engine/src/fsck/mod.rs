//! The full walk: every key of the store is read once and held against all others.
//!
//! - It walks one view. Online a checkpoint goes first, so that everything answered so far is in it.
//! - Nothing is repaired, nothing is changed.
//! - Every rule is judged from the keys alone: what an operation would do about them does not matter here.
//! - RAM: about 200 bytes for each inode of the largest volume, the live sets of all segments, and about as
//!   many for each record that more than one pointer names.

mod shard;
mod tree;

use std::sync::Arc;

use bytes::Bytes;
use tarn_base::ids::VolumeId;
use tarn_data::RecordPointer;
use tarn_meta::{MetaError, MetaView};
use tarn_store::Store;
use tarn_vfs::Errno;

use crate::checkpoint::CheckpointError;
use crate::core::Core;
use crate::key::{Key, Kind, words as name};
use crate::pages::Pages;

use shard::Shard;
use tree::Tree;

/// Findings kept in words; beyond that they are counted.
const FINDINGS_MAX: usize = 1000;
/// Records read at once by a deep walk.
const RECORDS_AT_ONCE: usize = 64;

/// Why a walk did not come to its end.
#[derive(Clone, Debug, thiserror::Error)]
pub enum FsckError {
    #[error("{0}")]
    Checkpoint(#[from] CheckpointError),
    #[error("the metadata store could not be read: {0}")]
    Meta(#[from] MetaError),
}

/// What has been walked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FsckCounts {
    pub keys: u64,
    pub volumes: u64,
    pub inodes: u64,
    pub directories: u64,
    pub entries: u64,
    pub pointers: u64,
    /// Maps with cuts that wait, or of files that are gone.
    pub maps: u64,
    pub segments: u64,
    /// Objects looked at.
    pub objects: u64,
    /// Records read and verified.
    pub records: u64,
}

/// What a walk found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FsckReport {
    pub counts: FsckCounts,
    /// What is wrong, in words: the first thousand.
    pub findings: Vec<String>,
    /// Findings beyond those.
    pub more: u64,
}

impl FsckReport {
    pub fn is_clean(&self) -> bool {
        self.findings.is_empty()
    }

    fn find(&mut self, finding: String) {
        if self.findings.len() < FINDINGS_MAX {
            self.findings.push(finding);
        } else {
            self.more += 1;
        }
    }
}

/// One walk under way.
struct Walk<'a> {
    view: Arc<dyn MetaView>,
    store: Arc<dyn Store>,
    /// The engine, if it runs: to look again at what it changes meanwhile.
    core: Option<&'a Core>,
    /// Every record that counts is read.
    deep: bool,
    report: FsckReport,
    shard: Shard,
    tree: Option<Tree>,
}

/// Walks everything in `view`; `core` is that of the engine that runs on it, if one does. `deep` needs one.
pub(crate) async fn walk(
    view: Arc<dyn MetaView>,
    store: Arc<dyn Store>,
    core: Option<&Core>,
    deep: bool,
    progress: &mut (dyn FnMut(&FsckCounts) + Send),
) -> Result<FsckReport, MetaError> {
    let mut pages = Pages::all(view.clone());
    let (report, shard) = (FsckReport::default(), Shard::default());
    let mut walk = Walk { view, store, core, deep, report, shard, tree: None };
    while let Some(entries) = pages.next().await? {
        let mut records = Vec::new();
        for (bytes, value) in entries {
            walk.report.counts.keys += 1;
            match Key::decode(&bytes) {
                Some(key) => walk.key(key, &value, &mut records).await?,
                None => walk.report.find(format!("key {bytes:x?} is none of ours")),
            }
        }
        walk.read(records).await;
        progress(&walk.report.counts);
    }
    walk.leave_volume().await?;
    walk.shard.finish(&mut walk.report);
    walk.look_at_objects(progress).await?;
    Ok(walk.report)
}

impl Walk<'_> {
    /// Takes one key; pointers whose records are to be read go to `records`.
    async fn key(&mut self, key: Key, value: &Bytes, records: &mut Vec<(Key, RecordPointer)>) -> Result<(), MetaError> {
        if key.volume == VolumeId(0) {
            self.shard.key(&key, value, &mut self.report);
            return Ok(());
        }
        if self.tree.as_ref().is_none_or(|tree| tree.id != key.volume) {
            self.leave_volume().await?;
            self.tree = Some(Tree::enter(key.volume, &self.shard, &mut self.report));
        }
        let Some(tree) = &mut self.tree else { return Ok(()) };
        let report = &mut self.report;
        match key.kind {
            Kind::Inode => tree.inode(&key, value, &self.shard, report),
            Kind::EntryHash => tree.entry_hash(&key, value, report),
            Kind::EntryCookie => tree.entry_cookie(&key, value, report),
            Kind::Map => tree.map(&key, value, report),
            Kind::Pointer => {
                let Some(pointer) = tree.pointer(&key, value, report) else { return Ok(()) };
                self.shard.pointer(&key, &pointer, report);
                if self.deep && tree.counts(&key, &pointer) {
                    records.push((key, pointer));
                }
            }
            _ => report.find(format!("{}: a key of this kind does not belong into a volume", name(&key))),
        }
        Ok(())
    }

    async fn leave_volume(&mut self) -> Result<(), MetaError> {
        let Some(mut tree) = self.tree.take() else { return Ok(()) };
        tree.finish(&mut self.shard, &mut self.report);
        for dir in tree.unequal_directories() {
            tree.compare(&self.view, dir, &mut self.report).await?;
        }
        Ok(())
    }

    /// Reads and verifies records.
    async fn read(&mut self, records: Vec<(Key, RecordPointer)>) {
        let Some(core) = self.core else { return };
        for part in records.chunks(RECORDS_AT_ONCE) {
            self.report.counts.records += part.len() as u64;
            if let Ok(plains) = core.read_records(part).await {
                let untrue = |pointer: &RecordPointer, plain: &[u8]| {
                    plain.iter().take(pointer.zeros as usize).any(|byte| *byte != 0)
                };
                let untrue = part.iter().zip(&plains).filter(|((_, pointer), plain)| untrue(pointer, plain));
                for ((key, pointer), _) in untrue {
                    self.report.find(format!("{}: its first {} bytes are not all zeros", name(key), pointer.zeros));
                }
                continue;
            }
            for (key, pointer) in part {
                match core.read_records(&[(*key, *pointer)]).await {
                    Ok(_) => {}
                    Err(Errno::Io) => self.report.find(format!(
                        "{}: its record, {} of segment {}, is damaged, in {}",
                        name(key),
                        pointer.index,
                        pointer.segment,
                        core.record_object(pointer)
                    )),
                    Err(error) => self.report.find(format!("{}: its record could not be read: {error}", name(key))),
                }
            }
        }
    }
}
