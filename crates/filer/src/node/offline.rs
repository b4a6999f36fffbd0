//! What is done to data without a server.

use std::sync::Arc;

use tarn_base::crypto::Key;
use tarn_base::world::World;
use tarn_wal::{FileDevice, Log, LogError};
use tokio::runtime::Runtime;

use super::parts;
use crate::config::Settings;
use crate::exit::{Outcome, Stop, path_stop};
use crate::flush::{Flusher, Waker};
use crate::keys::{self, Secrets};
use crate::protocol::{Progress, WalkView};
use crate::sizes::show_size;
use crate::{place, world};

/// A runtime for one command, and the world on it.
pub fn alone() -> Outcome<(Runtime, World)> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(|error| Stop::Internal(error.to_string()))?;
    let world = world::real(runtime.handle().clone(), runtime.handle().clone());
    Ok((runtime, world))
}

/// The key of the settings' store, as a server would find it. Makes nothing.
pub fn key(settings: &Settings) -> Outcome<Key> {
    let path = settings.key_path();
    let secrets = Secrets::from_environment();
    if let Some(passphrase) = &secrets.passphrase {
        let (runtime, world) = alone()?;
        let hint = runtime.block_on(async {
            let store = parts::existing_store(settings, &world)?;
            parts::store_state(settings, store.as_ref()).await.map(|state| state.hint)
        })?;
        return hint.ok_or(Stop::PassphraseUnknown)?.unwrap(passphrase);
    }
    match keys::file::read(&path)? {
        Some(key) => Ok(key),
        None => Err(Stop::KeyUnreadable { path, reason: "it does not exist".to_owned() }),
    }
}

/// Reads the log from end to end and says in one sentence what is in it. Changes nothing.
pub fn verify_log(settings: &Settings) -> Outcome<String> {
    let path = parts::log_path(settings);
    let key = key(settings)?;
    let device = FileDevice::open_read_only(&path).map_err(|error| path_stop(&path, "--log", &error))?;
    let found = Log::verify(Arc::new(device), &key).map_err(|error| log_stop(settings, &error))?;
    Ok(format!(
        "the log {} is whole: {} changes with {} in {} frames, the last at {}",
        path.display(),
        found.entries,
        show_size(found.bytes),
        found.frames,
        found.last
    ))
}

/// What an error of the log means to the operator.
pub fn log_stop(settings: &Settings, error: &LogError) -> Stop {
    let path = parts::log_path(settings);
    match error {
        LogError::WrongKey { .. } => Stop::KeyWrong { source_of_key: settings.key_path().display().to_string() },
        LogError::Newer { version, .. } => Stop::NewerFormat { path, found: version.to_string() },
        LogError::Damaged { .. } => Stop::LogDamaged { path, reason: error.to_string() },
        other => Stop::PathUnusable { path, reason: other.to_string() },
    }
}

/// Opens the store of `settings` as a server would, walks it, and closes it again.
pub fn fsck_offline(settings: &Settings, deep: bool, tell: &(dyn Fn(Progress) + Sync)) -> Outcome<WalkView> {
    let judged = place::judge(settings)?;
    let (runtime, world) = alone()?;
    runtime.block_on(async {
        let store = parts::existing_store(settings, &world)?;
        if !parts::store_state(settings, store.as_ref()).await?.holds_data {
            let reason = "it holds no data to check; name the place with --data or --store".to_owned();
            return Err(Stop::StoreFailed { url: settings.store.show(), reason });
        }
        let waker = Waker::default();
        let (node, _) = super::open(settings, judged, (&world, None), waker.hook()).await?;
        let flusher = Flusher::start(node.log(), &waker, node.were_held())?;
        let walked = node.fsck(deep, tell).await;
        let closed = node.close(settings).await;
        flusher.stop();
        let walked = walked.map_err(Stop::OpenFailed)?;
        closed.map(|()| walked)
    })
}
