//! The engine's side of the server: the only module that knows it.
//!
//! - [`Node`] is an open engine; what it is asked comes from an administrator, and its refusals are sentences.
//! - `opening` makes one, `parts` finds what it is made of, `offline` works without one, `views` translates.

mod offline;
mod opening;
mod parts;
mod views;

use std::fs::File;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tarn_engine::{AdminError, CheckpointError, Engine, FsckCounts, ScrubProgress, VolumeSpec, VolumeStatus};
use tarn_store::meter::{Meter, Trouble};
use tarn_store::operation::Kind;
use tarn_vfs::{FileSystem, VolumeSettings};
use tarn_wal::Log;

pub use offline::{fsck_offline, key, verify_log};
pub use opening::{Opening, open};

use crate::config::Settings;
use crate::exit::{Outcome, Stop};
use crate::protocol::{
    CheckpointStatus, DedupeStatus, LockView, LogStatus, OverlayStatus, Progress, RequestStatus, StatusView,
    VolumeChange, VolumeView, WalkView,
};

/// An open engine.
pub struct Node {
    engine: Arc<Engine>,
    meter: Arc<Meter>,
    /// Bytes of objects that scrubs have passed.
    scrubbed: AtomicU64,
    /// Held as long as the node lives.
    _lock: File,
}

impl Node {
    /// The write log, for the thread that flushes it.
    pub fn log(&self) -> Arc<Log> {
        self.engine.log().clone()
    }

    /// What says whether small changes were held back since it was last asked.
    pub fn were_held(&self) -> impl Fn() -> bool + Send + 'static {
        let engine = self.engine.clone();
        move || engine.were_held()
    }

    pub fn files(&self) -> Arc<dyn FileSystem> {
        self.engine.clone()
    }

    /// Brings everything to the store and closes it. Front ends have stopped; the log's thread still runs.
    pub async fn close(&self, settings: &Settings) -> Outcome<()> {
        self.engine.close().await.map_err(|error| {
            let rest = match error {
                CheckpointError::Lost { .. } => {
                    "the log has all else that was promised, and clients are told to send that again"
                }
                CheckpointError::Log(_) => "what was promised before is in the log",
                _ => "nothing is lost, the log has it",
            };
            let reason = format!("the last checkpoint failed: {error}; {rest}: start again here");
            Stop::StoreFailed { url: settings.store.show(), reason }
        })
    }

    /// Adds what the engine knows of itself.
    pub fn fill(&self, status: &mut StatusView) {
        let (log, now) = (self.engine.log(), self.engine.status());
        status.incarnation = now.incarnation;
        status.in_grace = self.engine.in_grace();
        status.locks = self.engine.locks().len() as u64;
        status.read_only = now.read_only;
        status.deposed = now.deposed;
        status.store_full = now.store_full;
        status.damage = now.damage;
        status.log = LogStatus {
            path: log.name(),
            capacity_bytes: now.log_capacity,
            used_bytes: now.log_used,
            unlogged_bytes: now.unlogged_bytes,
            durable: now.durable.to_string(),
            appended: now.appended.to_string(),
            poisoned: log.poisoned().map(|error| error.to_string()),
        };
        status.overlay = OverlayStatus {
            bytes: now.generations.iter().map(|generation| generation.ram_bytes).sum(),
            kept_log_bytes: now.kept_log_bytes,
            keys: now.generations.iter().map(|generation| generation.keys).sum(),
            generations: now.generations.len() as u64,
        };
        let last = now.last_checkpoint;
        status.checkpoint = CheckpointStatus {
            failing: now.checkpoint_error,
            position: now.stored.to_string(),
            count: now.checkpoints.count,
            failures: now.checkpoints.failures,
            microseconds: now.checkpoints.took.as_micros() as u64,
            bytes: now.checkpoints.bytes,
            last_microseconds: last.took.as_micros() as u64,
            last_keys: last.keys,
            last_records: last.records,
            last_segments: last.segments,
            last_bytes: last.bytes,
            stages: views::stages(&now.checkpoints.stages, &last.stages),
        };
        status.caches = vec![
            views::cache("data", &now.record_cache),
            views::cache("names", &now.key_cache),
            views::cache("dedupe", &now.dedupe_index),
        ];
        status.dedupe = DedupeStatus { hits: now.dedupe.hits, hit_bytes: now.dedupe.hit_bytes };
        status.segments = now.segments.map(|totals| views::segments(&totals)).unwrap_or_default();
        status.segments.collected_bytes = now.collected_bytes;
        status.segments.scrubbed_bytes = self.scrubbed.load(Ordering::Relaxed);
        status.volumes = self.volumes();
        status.store_requests = Kind::ALL.iter().map(|kind| self.requests(*kind)).collect();
    }

    fn requests(&self, kind: Kind) -> RequestStatus {
        let counts = self.meter.counts(kind);
        RequestStatus {
            kind: kind.label().to_owned(),
            count: counts.calls,
            errors: counts.errors(),
            troubles: Trouble::ALL
                .iter()
                .map(|trouble| (trouble.label().to_owned(), counts.of(*trouble)))
                .filter(|(_, count)| *count > 0)
                .collect(),
            bytes: counts.bytes,
            microseconds: counts.microseconds,
        }
    }

    pub fn locks(&self) -> Vec<LockView> {
        let volumes = self.engine.volumes();
        let name = |id| volumes.iter().find(|volume| volume.id == id).map_or("?", |volume| volume.name.as_str());
        self.engine.locks().iter().map(|info| views::lock(info, name(info.lock.node.volume))).collect()
    }

    /// Releases everything that the client of this name holds or waits for; how much that was.
    pub async fn break_locks(&self, client: &str) -> Result<u64, String> {
        let names = self.locks_of(client);
        let Some(name) = names.first() else {
            return Err(format!("no lock is of a client {client}; `tarn locks list` shows their names"));
        };
        let done = self.engine.release_client(name).await.map_err(|refused| refused.value.errno.to_string())?;
        self.engine.durable(done.position).await.map_err(|refused| refused.value.errno.to_string())?;
        Ok(names.len() as u64)
    }

    /// The client's name as it gave it, once for each of its locks.
    fn locks_of(&self, client: &str) -> Vec<bytes::Bytes> {
        let names = self.engine.locks().into_iter().map(|info| info.lock.owner.client);
        names.filter(|name| views::client_name(name) == client).collect()
    }

    pub fn volumes(&self) -> Vec<VolumeView> {
        self.engine.volume_list().iter().map(views::volume).collect()
    }

    fn volume(&self, wanted: impl Fn(&VolumeStatus) -> bool) -> Result<VolumeView, String> {
        let found = self.engine.volume_list().into_iter().find(wanted);
        found.as_ref().map(views::volume).ok_or_else(|| "the volume is gone already".to_owned())
    }

    pub async fn create_volume(
        &self,
        name: &str,
        change: &VolumeChange,
        uid: u32,
        gid: u32,
    ) -> Result<VolumeView, String> {
        let settings = views::apply(change, &VolumeSettings::default())?;
        let spec = VolumeSpec { name: name.to_owned(), settings, uid, gid, mode: 0o755 };
        let id = self.engine.create_volume(spec).await.map_err(|error| error.to_string())?;
        self.volume(|volume| volume.id == id)
    }

    pub async fn set_volume(&self, name: &str, change: &VolumeChange) -> Result<VolumeView, String> {
        let present = |volume: &VolumeStatus| volume.name == name && volume.deleted.is_none();
        let found = self.engine.volume_list().into_iter().find(present);
        let old = found.map(|volume| volume.settings).unwrap_or_default();
        let settings = views::apply(change, &old)?;
        self.engine.set_volume(name, settings).await.map_err(|error| error.to_string())?;
        self.volume(present)
    }

    pub async fn delete_volume(&self, name: &str) -> Result<(), String> {
        self.engine.delete_volume(name).await.map_err(|error| error.to_string())
    }

    /// Brings the volume back that had this name and was deleted last, under `new_name`.
    pub async fn undelete_volume(&self, name: &str, new_name: &str) -> Result<VolumeView, String> {
        self.engine.undelete_volume_as(name, new_name).await.map_err(|error| match error {
            AdminError::Exists(taken) => {
                format!("a volume named {taken} is there; give the one that comes back another name with --as NAME")
            }
            AdminError::NoVolume(name) => {
                format!("no deleted volume was named {name}; `tarn volume list` shows those that can be brought back")
            }
            other => other.to_string(),
        })?;
        self.volume(|volume| volume.name == new_name && volume.deleted.is_none())
    }

    /// Brings everything answered so far to the store; up to where that is now complete.
    pub async fn checkpoint(&self) -> Result<String, String> {
        let done = self.engine.checkpoint().await.map_err(|error| error.to_string())?;
        Ok(done.position.to_string())
    }

    /// Holds everything the metadata says against itself; `deep` also reads and verifies every record.
    pub async fn fsck(&self, deep: bool, tell: &(dyn Fn(Progress) + Sync)) -> Result<WalkView, String> {
        let progress = |counts: &FsckCounts| {
            tell(Progress { done: counts.keys, total: 0, unit: "keys".to_owned() });
        };
        let report = self.engine.fsck(deep, progress).await.map_err(|error| error.to_string())?;
        Ok(views::fsck(report))
    }

    /// Reads and verifies every stored byte that counts.
    pub async fn scrub(&self, tell: &(dyn Fn(Progress) + Sync)) -> Result<WalkView, String> {
        let mut passed = 0;
        let progress = |at: ScrubProgress| {
            self.scrubbed.fetch_add(at.done - passed, Ordering::Relaxed);
            passed = at.done;
            tell(Progress { done: at.done, total: at.total, unit: "bytes".to_owned() });
            ControlFlow::Continue(())
        };
        let report = self.engine.scrub(progress).await.map_err(|error| error.to_string())?;
        Ok(views::scrub(report))
    }
}
