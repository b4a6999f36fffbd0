//! The engine's side of the server: the only module that knows it.

mod parts;
mod views;

use std::fs::File;
use std::sync::Arc;

use tarn_base::crypto::Key;
use tarn_base::world::World;
use tarn_vfs::{Caller, FileSystem, VolumeSettings};
use tarn_wal::{Log, Wake};
use zeroize::Zeroizing;

use crate::config::Settings;
use crate::exit::{Outcome, Stop};
use crate::keys::{self, Secrets, code};
use crate::place::Judged;
use crate::protocol::{LockView, Progress, StatusView, VolumeChange, VolumeView, WalkView};

/// What an opening did, for whoever started the server.
pub struct Opening {
    /// One sentence: what was created or recovered.
    pub words: String,
    /// Set when the key was made just now.
    pub recovery_code: Option<Zeroizing<String>>,
    pub key_source: String,
    pub log_bytes: u64,
    /// Paths that can be mounted.
    pub exports: Vec<String>,
}

/// An open engine.
pub struct Node {
    files: Arc<tarn_vfs::model::Model>,
    /// Held as long as the node lives.
    _lock: File,
}

impl Node {
    /// Finds the key, makes what is missing, and opens or creates the engine.
    pub async fn open(settings: &Settings, judged: Judged, world: &World, _wake: Wake) -> Outcome<(Node, Opening)> {
        let store = parts::existing_store(settings, world)?;
        let state = parts::store_state(settings, store.as_ref()).await?;
        let found = keys::find(settings, &Secrets::from_environment(), &state, &*world.random)?;
        let shown = settings.store.show();
        // From here on things are made.
        let lock = judged.make(settings)?;
        let store = parts::open_store(settings, world, true)?;
        found.settle(&*store, &shown).await?;
        let device = parts::open_log(settings)?;
        let log_bytes = tarn_wal::LogDevice::size(&device);
        let files = Arc::new(tarn_vfs::model::Model::new(world.clock.clone()));
        let owner = Caller::user(rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
        files.add_volume("vol", VolumeSettings::default(), &owner);
        let opening = Opening {
            words: "created".to_owned(),
            recovery_code: found.made.then(|| Zeroizing::new(code::encode(&found.key))),
            key_source: found.source,
            log_bytes,
            exports: vec!["/vol".to_owned()],
        };
        Ok((Node { files, _lock: lock }, opening))
    }
    pub fn log(&self) -> Option<Arc<Log>> {
        None
    }
    pub fn files(&self) -> Arc<dyn FileSystem> {
        self.files.clone()
    }
    pub async fn close(&self) -> Outcome<()> {
        Ok(())
    }
    pub fn fill(&self, status: &mut StatusView) {
        status.volumes = self.volumes();
    }
    pub fn locks(&self) -> Vec<LockView> {
        self.files.locks().iter().map(|info| views::lock(info, "vol")).collect()
    }
    pub async fn break_locks(&self, _client: &str) -> Result<u64, String> {
        Ok(0)
    }
    pub fn volumes(&self) -> Vec<VolumeView> {
        self.files.volumes().iter().map(|info| views::volume(info, 0, 0, None)).collect()
    }
    pub async fn create_volume(&self, name: &str, change: &VolumeChange, _: u32, _: u32) -> Result<VolumeView, String> {
        views::check_name(name)?;
        views::apply(change, &VolumeSettings::default())?;
        Err(String::new())
    }
    pub async fn set_volume(&self, _: &str, _: &VolumeChange) -> Result<VolumeView, String> {
        Err(String::new())
    }
    pub async fn delete_volume(&self, _: &str) -> Result<(), String> {
        Err(String::new())
    }
    pub async fn undelete_volume(&self, _: &str) -> Result<VolumeView, String> {
        Err(String::new())
    }
    pub async fn checkpoint(&self) -> Result<String, String> {
        Err(String::new())
    }
    pub async fn fsck(&self, _tell: &(dyn Fn(Progress) + Sync)) -> Result<WalkView, String> {
        Err(String::new())
    }
    pub async fn scrub(&self, _tell: &(dyn Fn(Progress) + Sync)) -> Result<WalkView, String> {
        Err(String::new())
    }
}

fn absent<T>() -> Outcome<T> {
    Err(Stop::Internal("no engine".to_owned()))
}

pub fn key_under(_settings: &Settings, _passphrase: &str) -> Outcome<Key> {
    absent()
}

pub fn fsck_offline(_settings: &Settings, _tell: &dyn Fn(Progress)) -> Outcome<WalkView> {
    absent()
}

pub fn verify_log(_settings: &Settings) -> Outcome<String> {
    absent()
}
