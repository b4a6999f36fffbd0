//! The engine's side of the server: the only module that knows it.

use std::sync::Arc;

use tarn_base::crypto::Key;
use tarn_base::world::World;
use tarn_vfs::FileSystem;
use tarn_wal::{Log, Wake};
use zeroize::Zeroizing;

use crate::config::Settings;
use crate::exit::{Outcome, Stop};
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
pub struct Node {}

fn absent<T>() -> Outcome<T> {
    Err(Stop::Internal("no engine".to_owned()))
}

impl Node {
    pub async fn open(_: &Settings, _: Judged, _: &World, _: Wake) -> Outcome<(Node, Opening)> {
        absent()
    }
    pub fn log(&self) -> Arc<Log> {
        unreachable!()
    }
    pub fn files(&self) -> Arc<dyn FileSystem> {
        unreachable!()
    }
    pub async fn close(&self) -> Outcome<()> {
        absent()
    }
    pub fn fill(&self, _status: &mut StatusView) {}
    pub fn locks(&self) -> Vec<LockView> {
        Vec::new()
    }
    pub async fn break_locks(&self, _client: &str) -> Result<u64, String> {
        Ok(0)
    }
    pub fn volumes(&self) -> Vec<VolumeView> {
        Vec::new()
    }
    pub async fn create_volume(&self, _: &str, _: &VolumeChange, _uid: u32, _gid: u32) -> Result<VolumeView, String> {
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

pub fn key_under(_settings: &Settings, _passphrase: &str) -> Outcome<Key> {
    absent()
}

pub fn fsck_offline(_settings: &Settings, _tell: &dyn Fn(Progress)) -> Outcome<WalkView> {
    absent()
}

pub fn verify_log(_settings: &Settings) -> Outcome<String> {
    absent()
}
