//! The ordered key-value contract that carries every file-system structure at rest.
//!
//! - [`MetaStore::commit`] is atomic and durable when it returns: all of the batch or nothing, also after a crash.
//! - A [`MetaView`] never changes: it shows exactly the batches committed before it was taken.
//! - After an error of `commit` the store is not used again; it is opened anew and asked which state it holds
//!   (engine rule 15).

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;

/// Why the metadata store did not do as asked.
#[derive(Clone, Debug, thiserror::Error)]
pub enum MetaError {
    /// Another owner has opened the store: this one must stop.
    #[error("another owner has opened this metadata store: {0}")]
    Fenced(String),
    #[error("the metadata store is damaged: {0}")]
    Damaged(String),
    #[error("the metadata store is not available: {0}")]
    Unavailable(String),
    /// Objects that the store needs are not there any more: removed, or never in the place it was moved to.
    #[error("part of the metadata store is gone: {0}")]
    Gone(String),
    /// What was to be written does not fit; a batch may or may not be there after the next opening, as after `Unknown`.
    #[error("the metadata store has no room: {0}")]
    Full(String),
    /// The batch may or may not be there after the next opening.
    #[error("the metadata store did not say whether it committed: {0}")]
    Unknown(String),
}

pub type MetaResult<T> = Result<T, MetaError>;

/// One atomic change: each key set to a value, or removed. A key stands in it once.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    /// In order of key.
    pub changes: Vec<(Bytes, Option<Bytes>)>,
}

/// One page of a scan, in order of key.
#[derive(Clone, Debug, Default)]
pub struct Page {
    pub entries: Vec<(Bytes, Bytes)>,
    /// Whether nothing in the range follows the last entry.
    pub complete: bool,
}

/// The store as it was at one moment.
#[async_trait]
pub trait MetaView: Send + Sync + fmt::Debug {
    async fn get(&self, key: &[u8]) -> MetaResult<Option<Bytes>>;

    /// The first `limit` entries with `from <= key < to`.
    async fn scan(&self, from: &[u8], to: &[u8], limit: usize) -> MetaResult<Page>;

    /// Values of `keys`, which are sorted, in their order; reads each block once where the engine can.
    async fn get_sorted(&self, keys: &[Bytes]) -> MetaResult<Vec<Option<Bytes>>> {
        let mut out = Vec::with_capacity(keys.len());
        for key in keys {
            out.push(self.get(key).await?);
        }
        Ok(out)
    }
}

/// An ordered key-value store with one writer.
#[async_trait]
pub trait MetaStore: Send + Sync + fmt::Debug {
    /// The state after the last commit.
    fn view(&self) -> Arc<dyn MetaView>;

    /// Makes the whole batch durable and visible, or nothing of it.
    async fn commit(&self, batch: Batch) -> MetaResult<()>;

    /// Whether the state that the next batch goes on from is there: one look, before anything is written.
    /// [`MetaError::Gone`] if not; from then on nothing is written any more, and the store is to be opened anew.
    async fn glance(&self) -> MetaResult<()>;

    /// Whether every object that the present state needs is there. [`MetaError::Gone`] if not, as in
    /// [`MetaStore::glance`].
    async fn verify(&self) -> MetaResult<()>;

    /// When the oldest checkpoint that still lives was made, milliseconds since 1970; `None` if none lives.
    ///
    /// Followers, copies and backups hold such a checkpoint, with an expiry, and read what was there when it was made.
    async fn oldest_checkpoint(&self) -> MetaResult<Option<i64>>;

    /// Why it has ended by itself, if it has: it reads and commits nothing any more until it is opened anew.
    fn ended(&self) -> Option<MetaError>;

    /// Ends use of the store. Nothing committed is lost without it.
    async fn close(&self) -> MetaResult<()>;
}

/// A store that is read without having been opened.
#[async_trait]
pub trait MetaLook: Send + Sync + fmt::Debug {
    /// The state it was found in.
    fn view(&self) -> Arc<dyn MetaView>;

    /// Ends the look; its views read nothing any more.
    async fn close(&self) -> MetaResult<()>;
}

/// Opens the metadata store of a shard for writing, and opens it again after an error.
#[async_trait]
pub trait MetaOpener: Send + Sync + fmt::Debug {
    /// Whether there is a store; [`MetaError::Gone`] if only part of it is there, or an earlier state
    /// than one that was found whole, by this opener or what it opened. Writes nothing.
    async fn inspect(&self) -> MetaResult<bool>;

    /// The newest state as it is, or `None` if there is no store; errors as [`MetaOpener::inspect`]. Writes nothing and
    /// fences nobody.
    async fn look(&self) -> MetaResult<Option<Box<dyn MetaLook>>>;

    /// Opens for writing, fencing any other writer; creates the store if there is none.
    async fn open(&self) -> MetaResult<Arc<dyn MetaStore>>;
}
