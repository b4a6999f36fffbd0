//! What an engine is made of: the store, the key and the log's file, found and judged before anything is made.

use std::ffi::OsString;
use std::io::{ErrorKind, Write};
use std::path::PathBuf;
use std::sync::Arc;

use tarn_base::world::World;
use tarn_store::meter::{Meter, MeterStore};
use tarn_store::retry::{RetryPolicy, RetryStore};
use tarn_store::shape::ShapeStore;
use tarn_store::url::StoreUrl;
use tarn_store::{Store, StoreError};
use tarn_wal::FileDevice;

use crate::config::Settings;
use crate::exit::{Outcome, Stop, path_stop};
use crate::keys::{Hint, StoreState};
use crate::place::{LOG_FILE, log_size};
use crate::sizes::show_size;

/// What a store in a directory keeps beside the objects.
const STORES_OWN: &str = ".tarn";
/// The last of that to be made.
const STORES_LOCK: &str = "lock";

/// What an error of the store means to the operator.
pub fn store_stop(settings: &Settings, error: &StoreError) -> Stop {
    Stop::StoreFailed { url: settings.store.show(), reason: error.to_string() }
}

/// A store as the engine uses it, and its counters.
#[derive(Clone)]
pub struct Metered {
    pub store: Arc<dyn Store>,
    pub meter: Arc<Meter>,
}

/// The store if it is there, without making or changing anything; a cloud's is taken to be there.
pub fn existing_store(settings: &Settings, world: &World) -> Outcome<Option<Metered>> {
    let StoreUrl::Local(dir) = &settings.store.url else { return open_store(settings, world, false).map(Some) };
    let names = std::fs::read_dir(dir).and_then(|names| names.map(|name| Ok(name?.file_name())).collect());
    let names: Vec<OsString> = match names {
        Ok(names) => names,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(path_stop(dir, "--store", &error)),
    };
    // Without its lock nothing was ever put into it: its making was interrupted.
    let no_object = names.iter().all(|name| name == STORES_OWN);
    if no_object && !dir.join(STORES_OWN).join(STORES_LOCK).exists() {
        return Ok(None);
    }
    if dir.join(STORES_OWN).exists() {
        return open_store(settings, world, false).map(Some);
    }
    // Objects that were copied here from another store: only what the directory keeps for itself is missing.
    if dir.join(tarn_engine::OWNER_RECORD).exists() {
        return open_store(settings, world, true).map(Some);
    }
    let reason = "the directory holds something that is not Tarn's; choose an empty one with --store".to_owned();
    Err(Stop::StoreFailed { url: settings.store.show(), reason })
}

/// The store, made if it is a directory that is not there. What may be asked again is.
pub fn open_store(settings: &Settings, world: &World, create: bool) -> Outcome<Metered> {
    let mut inner = settings.store.url.open(create, world).map_err(|error| store_stop(settings, &error))?;
    if let Some(profile) = settings.store_shape {
        inner = Arc::new(ShapeStore::new(inner, world.clock.clone(), profile.shape()));
    }
    // Below the retries: every request that a provider charges for is counted.
    let metered = MeterStore::timed(inner, world.clock.clone());
    let meter = metered.meter();
    let store: Arc<dyn Store> = match settings.store.url {
        StoreUrl::Local(_) | StoreUrl::Memory => Arc::new(metered),
        _ => Arc::new(RetryStore::new(Arc::new(metered), world.clone(), RetryPolicy::default())),
    };
    Ok(Metered { store, meter })
}

/// What is known of a store before a key is.
pub async fn store_state(settings: &Settings, store: Option<&Metered>) -> Outcome<StoreState> {
    let Some(Metered { store, .. }) = store else { return Ok(StoreState { hint: None, holds_data: false }) };
    let hint = Hint::read(&**store, &settings.store.show()).await?;
    let holds_data = match store.head(tarn_engine::OWNER_RECORD).await {
        Ok(_) => true,
        Err(StoreError::NotFound(_)) => false,
        Err(error) => return Err(store_stop(settings, &error)),
    };
    Ok(StoreState { hint, holds_data })
}

/// The path of the log's file.
pub fn log_path(settings: &Settings) -> PathBuf {
    settings.log_dir.join(LOG_FILE)
}

/// The log's file, filled with zeros if it is new; says how far that is on standard error.
pub fn open_log(settings: &Settings) -> Outcome<FileDevice> {
    let path = log_path(settings);
    match FileDevice::open(&path) {
        Ok(device) => return Ok(device),
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) if error.kind() == ErrorKind::WouldBlock => {
            return Err(Stop::SecondServer { path, pid: "unknown".to_owned() });
        }
        Err(error) => return Err(path_stop(&path, "--log", &error)),
    }
    let size = log_size(settings)?;
    let mut shown = 0;
    let device = FileDevice::create(&path, size, |done| {
        let percent = done * 100 / size;
        if size >= 1 << 30 && percent >= shown + 5 {
            shown = percent;
            // Nobody needs to read it.
            let _ = write!(std::io::stderr(), "\rfilling the log of {} once: {percent} %", show_size(size));
            let _ = std::io::stderr().flush();
        }
    });
    if shown > 0 {
        let _ = writeln!(std::io::stderr());
    }
    device.map_err(|error| path_stop(&path, "--log", &error))
}
