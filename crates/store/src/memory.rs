//! Objects in memory: the model of a store, for tests, simulation and `mem://`.
//!
//! - Every call takes effect at one moment, under one lock; none waits.
//! - A version is a number that no object of this store ever had before.
//! - "Durable" means: as long as the value lives. A simulated crash keeps the store and drops its users.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::Mutex;
use tarn_base::world::Clock;

use crate::contract::{ObjectInfo, PutMode, Store, StoreError, StoreResult, Version};
use crate::name;

struct Object {
    bytes: Bytes,
    version: u64,
    modified_ms: i64,
}

#[derive(Default)]
struct State {
    objects: BTreeMap<String, Object>,
    versions: u64,
}

/// A store in memory; share it in an `Arc`.
pub struct MemoryStore {
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
}

impl fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MemoryStore")
    }
}

impl MemoryStore {
    /// An empty store that takes the time of its objects from `clock`.
    pub fn new(clock: Arc<dyn Clock>) -> MemoryStore {
        MemoryStore { clock, state: Mutex::default() }
    }

    /// Everything that is there, in order of name; for checkers.
    pub fn contents(&self) -> Vec<(String, Bytes)> {
        self.state.lock().objects.iter().map(|(name, object)| (name.clone(), object.bytes.clone())).collect()
    }

    /// Changes the bytes of an object behind everybody's back, its version with them; for tests of damage.
    /// Says whether the object is there.
    pub fn tamper(&self, name: &str, change: impl FnOnce(&mut Vec<u8>)) -> bool {
        let mut state = self.state.lock();
        state.versions += 1;
        let version = state.versions;
        let Some(object) = state.objects.get_mut(name) else {
            return false;
        };
        let mut bytes = object.bytes.to_vec();
        change(&mut bytes);
        object.bytes = Bytes::from(bytes);
        object.version = version;
        true
    }
}

fn version(number: u64) -> Version {
    Version(format!("v{number}"))
}

#[async_trait]
impl Store for MemoryStore {
    async fn put(&self, name: &str, bytes: Bytes, mode: PutMode) -> StoreResult<Version> {
        name::check(name)?;
        let modified_ms = self.clock.now().as_millis();
        let mut state = self.state.lock();
        let present = state.objects.get(name).map(|object| version(object.version));
        match mode {
            PutMode::Overwrite => {}
            PutMode::Create if present.is_some() => return Err(StoreError::Exists(name.to_owned())),
            PutMode::Create => {}
            PutMode::Replace(expected) if present == Some(expected.clone()) => {}
            PutMode::Replace(_) => return Err(StoreError::Changed(name.to_owned())),
        }
        state.versions += 1;
        let number = state.versions;
        state.objects.insert(name.to_owned(), Object { bytes, version: number, modified_ms });
        Ok(version(number))
    }

    async fn get(&self, name: &str) -> StoreResult<(Bytes, Version)> {
        let state = self.state.lock();
        let object = state.objects.get(name).ok_or_else(|| StoreError::NotFound(name.to_owned()))?;
        Ok((object.bytes.clone(), version(object.version)))
    }

    async fn get_range(&self, name: &str, range: Range<u64>) -> StoreResult<Bytes> {
        let state = self.state.lock();
        let object = state.objects.get(name).ok_or_else(|| StoreError::NotFound(name.to_owned()))?;
        if range.start > range.end || range.end > object.bytes.len() as u64 {
            return Err(StoreError::Range(name.to_owned(), range));
        }
        Ok(object.bytes.slice(range.start as usize..range.end as usize))
    }

    async fn head(&self, name: &str) -> StoreResult<ObjectInfo> {
        let state = self.state.lock();
        let object = state.objects.get(name).ok_or_else(|| StoreError::NotFound(name.to_owned()))?;
        Ok(info(name, object))
    }

    async fn delete(&self, name: &str) -> StoreResult<()> {
        name::check(name)?;
        self.state.lock().objects.remove(name);
        Ok(())
    }

    async fn list(&self, prefix: &str) -> StoreResult<Vec<ObjectInfo>> {
        name::check_prefix(prefix)?;
        let state = self.state.lock();
        let from = state.objects.range(prefix.to_owned()..);
        Ok(from.take_while(|(name, _)| name.starts_with(prefix)).map(|(name, object)| info(name, object)).collect())
    }
}

fn info(name: &str, object: &Object) -> ObjectInfo {
    ObjectInfo { name: name.to_owned(), size: object.bytes.len() as u64, modified_ms: object.modified_ms }
}
