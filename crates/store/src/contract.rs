//! What Tarn asks of a place for objects.
//!
//! - A `put` that returned is durable and is seen by every later `get` and `list` (read-after-write).
//! - An object is there whole or not at all.
//! - `PutMode::Create` and `PutMode::Replace` decide atomically between competing writers.
//! - After [`StoreError::Unknown`] the object may or may not have been written; the caller reads before it decides.

use std::fmt;
use std::ops::Range;

use async_trait::async_trait;
use bytes::Bytes;

/// What a store calls the present content of an object (an ETag, a generation); opaque.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Version(pub String);

/// When a `put` may go ahead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PutMode {
    /// Whatever is there is replaced.
    Overwrite,
    /// Only if nothing is there.
    Create,
    /// Only if this is what is there.
    Replace(Version),
}

/// An object as a listing shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectInfo {
    pub name: String,
    /// Bytes.
    pub size: u64,
    /// When it was written, milliseconds since 1970, as the store says.
    pub modified_ms: i64,
}

/// Why a store did not do as asked. Each says whose turn it is.
#[derive(Clone, Debug, thiserror::Error)]
pub enum StoreError {
    #[error("no object named {0}")]
    NotFound(String),
    #[error("an object named {0} exists already")]
    Exists(String),
    #[error("object {0} was changed by another writer")]
    Changed(String),
    #[error("range {1:?} is outside object {0}")]
    Range(String, Range<u64>),
    #[error("object {0} is damaged: {1}")]
    Damaged(String, String),
    #[error("the object store refuses us: {0}; check the credentials and the permissions")]
    Denied(String),
    #[error("the object store has no space left: {0}")]
    Full(String),
    /// Definitely not done; worth another try.
    #[error("the object store is not available: {0}")]
    Unavailable(String),
    /// Perhaps done, perhaps not (a timeout, a lost reply).
    #[error("the object store did not say whether it did it: {0}")]
    Unknown(String),
}

pub type StoreResult<T> = Result<T, StoreError>;

/// A place for objects. Names are `/`-separated, without leading slash, of `[A-Za-z0-9._=-]` parts.
#[async_trait]
pub trait Store: Send + Sync + fmt::Debug + 'static {
    /// Writes a whole object, durably, and gives its version.
    async fn put(&self, name: &str, bytes: Bytes, mode: PutMode) -> StoreResult<Version>;

    /// As [`Store::put`] with [`PutMode::Create`], for whoever has no use for the version: telling it may cost reading all of
    /// `bytes` once more.
    async fn create(&self, name: &str, bytes: Bytes) -> StoreResult<()> {
        self.put(name, bytes, PutMode::Create).await.map(|_| ())
    }

    /// A whole object and its version.
    async fn get(&self, name: &str) -> StoreResult<(Bytes, Version)>;

    /// Exactly the bytes of `range`; [`StoreError::Range`] if the object is shorter.
    async fn get_range(&self, name: &str, range: Range<u64>) -> StoreResult<Bytes>;

    /// Size and time of an object.
    async fn head(&self, name: &str) -> StoreResult<ObjectInfo>;

    /// Removes an object, durably; removing what is not there succeeds.
    async fn delete(&self, name: &str) -> StoreResult<()>;

    /// Every object whose name begins with `prefix` (at a `/` or in the middle of a part), in order of name.
    async fn list(&self, prefix: &str) -> StoreResult<Vec<ObjectInfo>>;
}
