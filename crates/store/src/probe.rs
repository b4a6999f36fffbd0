//! Whether a store really decides about conditions, asked with objects of our own.
//!
//! - Only a condition that was wrongly met is a proof against the store; whatever else goes wrong is an error like any
//!   other, and is tried again.
//! - The objects lie below `probe/`, each under a name of chance. What an interrupted probe left behind goes with a
//!   later one.

use std::time::Duration;

use bytes::Bytes;
use tarn_base::world::World;

use crate::contract::{PutMode, Store, StoreError, StoreResult, Version};

/// Where probes lie.
const BELOW: &str = "probe/";
/// Left behind by somebody who is not at it any more, milliseconds.
const STALE_MS: i64 = 3_600_000;
/// Probes before a store counts as away.
const TRIES: u32 = 4;
const PAUSE: Duration = Duration::from_millis(200);

/// Why a store cannot be relied on, or could not be asked.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ProbeError {
    /// It does what was not to be done.
    #[error("it {0}")]
    Ignores(&'static str),
    #[error("{0}")]
    Store(#[from] StoreError),
}

/// Proves that create-if-absent and compare-and-swap are refused where they must be. Seven requests.
pub async fn conditions(store: &dyn Store, world: &World) -> Result<(), ProbeError> {
    let mut tries = 1;
    loop {
        match once(store, world).await {
            Err(ProbeError::Store(StoreError::Unavailable(_) | StoreError::Unknown(_))) if tries < TRIES => {}
            outcome => return outcome,
        }
        world.clock.sleep(PAUSE * tries).await;
        tries += 1;
    }
}

async fn once(store: &dyn Store, world: &World) -> Result<(), ProbeError> {
    let name = format!("{BELOW}{:016x}", world.random_u64());
    let proved = prove(store, &name).await;
    // What cannot be removed now is removed by a later probe.
    let removed = store.delete(&name).await;
    proved?;
    removed?;
    let now_ms = world.clock.now().as_millis();
    for left in store.list(BELOW).await? {
        if left.modified_ms.saturating_add(STALE_MS) < now_ms {
            store.delete(&left.name).await?;
        }
    }
    Ok(())
}

async fn prove(store: &dyn Store, name: &str) -> Result<(), ProbeError> {
    let first = written(store, name, b"first", PutMode::Create).await?;
    match store.put(name, Bytes::from_static(b"second"), PutMode::Create).await {
        Ok(_) => return Err(ProbeError::Ignores("overwrites an object that was only to be created (If-None-Match)")),
        Err(StoreError::Exists(_)) => {}
        Err(error) => return Err(error.into()),
    }
    let second = written(store, name, b"second", PutMode::Replace(first.clone())).await?;
    if second == first {
        return Err(ProbeError::Ignores("gives two contents of an object the same version (ETag)"));
    }
    match store.put(name, Bytes::from_static(b"third"), PutMode::Replace(first)).await {
        Ok(_) => return Err(ProbeError::Ignores("replaces an object that had changed meanwhile (If-Match)")),
        Err(StoreError::Changed(_)) => {}
        Err(error) => return Err(error.into()),
    }
    Ok(())
}

/// Writes; where the answer was lost, or a second try met the first, the object says whether it was written.
async fn written(store: &dyn Store, name: &str, bytes: &'static [u8], mode: PutMode) -> StoreResult<Version> {
    match store.put(name, Bytes::from_static(bytes), mode).await {
        Err(error @ (StoreError::Unknown(_) | StoreError::Exists(_) | StoreError::Changed(_))) => {
            match store.get(name).await {
                Ok((found, version)) if found == bytes => Ok(version),
                Ok(_) | Err(StoreError::NotFound(_)) => Err(StoreError::Unavailable(error.to_string())),
                Err(unread) => Err(unread),
            }
        }
        outcome => outcome,
    }
}
