//! Opening an engine: found and judged first, made and recovered afterwards.

use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use tarn_base::world::World;
use tarn_engine::config::Space;
use tarn_engine::{Bypass, Config, Engine, OpenError, OpenOptions, Parts, RecoveryReport, VolumeSpec};
use tarn_meta::slate::SlateOptions;
use tarn_store::meter::Meter;
use tarn_store::url::StoreUrl;
use tarn_vfs::{FileSystem, VolumeSettings};
use tarn_wal::{FileDevice, Log, LogDevice, LogError, Wake};
use tokio::runtime::Handle;
use zeroize::Zeroizing;

use super::parts::{self, Metered};
use super::{Node, offline};
use crate::config::Settings;
use crate::exit::{Outcome, Stop, path_stop};
use crate::keys::{self, Found, Secrets, code};
use crate::place::{self, Judged};
use crate::sizes::show_size;

/// The volume that a new store begins with.
const FIRST_VOLUME: &str = "vol";

/// What an opening did, for whoever started the server.
pub struct Opening {
    /// One sentence: what was created or recovered.
    pub words: String,
    /// Set when the store was created just now.
    pub recovery_code: Option<Zeroizing<String>>,
    pub key_source: String,
    pub log_bytes: u64,
    /// Paths that can be mounted.
    pub exports: Vec<String>,
}

/// Finds the key, makes what is missing, and opens or creates the engine.
///
/// `merging` merges the metadata's tables; `None`: bulk work. `wake` is called when the log is to be flushed.
pub async fn open(
    settings: &Settings,
    judged: Judged,
    (world, merging): (&World, Option<&Handle>),
    wake: Wake,
) -> Outcome<(Node, Opening)> {
    let store = parts::existing_store(settings, world)?;
    let state = parts::store_state(settings, store.as_ref()).await?;
    let found = keys::find(settings, &Secrets::from_environment(), &state, &*world.random)?;
    if !state.holds_data {
        judge_nothing(settings, store.as_ref(), &found).await?;
    }
    if let Some(Metered { store, .. }) = &store {
        judge_owner(settings, store.clone(), &found, world).await?;
    }
    // From here on things are made.
    let lock = judged.make(settings)?;
    let Metered { store, meter } = parts::open_store(settings, world, true)?;
    found.settle(&*store, &settings.store.show()).await?;
    let device = parts::open_log(settings)?;
    let log_bytes = device.size();
    let engine_parts = Parts {
        world: world.clone(),
        store,
        meta: tarn_engine::slate(world.clone(), slate_options(settings, merging)),
        log: Arc::new(device),
        master: found.key.clone(),
        config: config(settings),
    };
    let stop = |error: OpenError| stop(settings, &found, &error);
    let (engine, report, created) = match state.holds_data {
        true => {
            let options = OpenOptions { take: settings.take, accept_loss: settings.accept_loss, wake: wake.clone() };
            match Engine::open(engine_parts.clone(), options).await {
                // Its creation was interrupted: it goes on.
                Err(OpenError::NotCreated) => create(engine_parts, wake).await.map_err(stop)?,
                opened => opened.map(|(engine, report)| (engine, report, false)).map_err(stop)?,
            }
        }
        false => create(engine_parts, wake).await.map_err(stop)?,
    };
    place::note_store(settings)?;
    let opening = Opening {
        words: words(&report, created),
        recovery_code: created.then(|| Zeroizing::new(code::encode(&found.key))),
        key_source: found.source.clone(),
        log_bytes,
        exports: engine.volumes().iter().map(|volume| format!("/{}", volume.name)).collect(),
    };
    Ok((node(engine, meter, lock), opening))
}

fn node(engine: Arc<Engine>, meter: Arc<Meter>, lock: File) -> Node {
    Node { engine, meter, scrubbed: AtomicU64::new(0), _lock: lock }
}

async fn create(parts: Parts, wake: Wake) -> Result<(Arc<Engine>, RecoveryReport, bool), OpenError> {
    // The root belongs to whoever started the server, so that the first touch works.
    let first = VolumeSpec {
        name: FIRST_VOLUME.to_owned(),
        settings: VolumeSettings::default(),
        uid: rustix::process::getuid().as_raw(),
        gid: rustix::process::getgid().as_raw(),
        mode: 0o755,
    };
    Engine::create(parts, first, wake).await.map(|(engine, report)| (engine, report, true))
}

/// The engine's settings.
pub fn config(settings: &Settings) -> Config {
    let capacity = match &settings.store.url {
        StoreUrl::Local(dir) => {
            let dir = dir.clone();
            let space = |disk: place::Disk| Space { total: disk.total, free: disk.free, files: disk.files };
            let ask = move || place::disk(&dir).ok().map(space);
            Some(Arc::new(ask) as tarn_engine::config::Capacity)
        }
        _ => None,
    };
    let mut bypass = Bypass::default();
    // One that is slowed down to a store far away stands for that.
    if let (StoreUrl::Local(dir), None) = (&settings.store.url, &settings.store_shape)
        && place::on_one_disk(dir, &settings.log_dir)
    {
        bypass.speed_min = Bypass::SPEED_MIN_ON_ONE_DISK;
    }
    Config {
        capacity,
        bypass,
        key_cache_bytes: settings.cache_names - slate_cache(settings),
        record_cache_bytes: settings.cache_data,
        dedupe_bytes: settings.cache_dedupe,
        overlay_bytes: settings.checkpoint_memory,
        log_fill_percent: settings.log_fill_percent,
        ..Config::default()
    }
}

/// A quarter of the names' memory holds them as the store has them: packed, so more of them.
fn slate_cache(settings: &Settings) -> u64 {
    settings.cache_names / 4
}

fn slate_options(settings: &Settings, merging: Option<&Handle>) -> SlateOptions {
    SlateOptions { cache_bytes: slate_cache(settings), merging: merging.cloned(), ..SlateOptions::default() }
}

/// What an error of the engine means to the operator.
pub fn stop(settings: &Settings, found: &Found, error: &OpenError) -> Stop {
    let reason = error.to_string();
    match error {
        OpenError::WrongKey => Stop::KeyWrong { source_of_key: found.source.clone() },
        OpenError::Newer(version) => {
            Stop::NewerFormat { path: settings.store.show().into(), found: version.to_string() }
        }
        OpenError::Elsewhere { .. } | OpenError::Taken => Stop::OwnedElsewhere { reason },
        OpenError::ForeignLog | OpenError::StaleLog | OpenError::LogOlder { .. } | OpenError::LogReplaced { .. } => {
            Stop::LogForeign { path: parts::log_path(settings), reason }
        }
        OpenError::LogDamaged(_) => Stop::LogDamaged { path: parts::log_path(settings), reason },
        OpenError::Log(error) => offline::log_stop(settings, error),
        OpenError::Store(error) => parts::store_stop(settings, error),
        OpenError::Unconditional(what) => {
            let reason =
                format!("it {what}, so two nodes could own it at once; use a store that honours conditional requests");
            Stop::StoreFailed { url: settings.store.show(), reason }
        }
        _ => Stop::OpenFailed(reason),
    }
}

/// Reads the owner record before anything is made: a store that cannot be opened, or that needs a log which is not
/// here, is refused untouched.
async fn judge_owner(
    settings: &Settings,
    store: Arc<dyn tarn_store::Store>,
    found: &Found,
    world: &World,
) -> Outcome<()> {
    let may_go_on = settings.take || settings.accept_loss || parts::log_path(settings).exists();
    match tarn_engine::judge_without_log(store, &found.key, world).await {
        Err(OpenError::Elsewhere { .. }) if may_go_on => Ok(()),
        judged => judged.map_err(|error| stop(settings, found, &error)),
    }
}

/// A store without an owner record is new only if nothing says otherwise. Whatever does means that the store is not there,
/// for example because its disk is not mounted, or not all of it: nothing is made in its place.
async fn judge_nothing(settings: &Settings, store: Option<&Metered>, found: &Found) -> Outcome<()> {
    let url = settings.store.show();
    if let Some(Metered { store, .. }) = store {
        let remains = tarn_engine::remains(&**store).await.map_err(|error| parts::store_stop(settings, &error))?;
        if remains > 0 {
            let reason = format!(
                "{remains} objects of a store are there, but not its owner record; put the object {} back",
                tarn_engine::OWNER_RECORD
            );
            return Err(Stop::StoreGone { url, reason });
        }
    }
    judge_log_of_nothing(settings, found)?;
    match place::noted_store(settings)? {
        Some(path) => {
            let reason = format!(
                "it holds nothing, and {} says that it was served from here; bring it back (is the disk mounted?), or \
                 begin a new one in another directory with --data",
                path.display()
            );
            Err(Stop::StoreGone { url, reason })
        }
        None => Ok(()),
    }
}

/// A store that is new has a new log.
fn judge_log_of_nothing(settings: &Settings, found: &Found) -> Outcome<()> {
    let path = parts::log_path(settings);
    let device = match FileDevice::open_read_only(&path) {
        Ok(device) => device,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(path_stop(&path, "--log", &error)),
    };
    match Log::open(Arc::new(device), &found.key) {
        Err(LogError::Blank { .. }) => Ok(()),
        Ok(_) | Err(LogError::WrongKey { .. }) => {
            let store = settings.store.show();
            let reason = format!(
                "it is in use for a store, and {store} holds none; bring that store back (is the disk mounted?), or \
                 choose another place for the log with --log"
            );
            Err(Stop::LogForeign { path, reason })
        }
        Err(error) => Err(offline::log_stop(settings, &error)),
    }
}

fn words(report: &RecoveryReport, created: bool) -> String {
    if created {
        return format!("created a new store with the volume {FIRST_VOLUME}");
    }
    if report.taken {
        return format!("took the store over as it was at {}", report.position);
    }
    if report.clean && report.entries == 0 {
        return format!("recovered after a clean stop: the store holds everything, up to {}", report.last);
    }
    let how = if report.clean { "a clean stop" } else { "an unclean end" };
    let lost: u64 = report.lost.iter().map(|lost| lost.len).sum();
    let lost = match lost {
        0 => String::new(),
        bytes => format!("; {} of UNSTABLE data are not there, for their clients to write again", show_size(bytes)),
    };
    format!(
        "recovered after {how}: {} changes ({}) came from the log, the last at {}{lost}",
        report.entries,
        show_size(report.bytes),
        report.last
    )
}
