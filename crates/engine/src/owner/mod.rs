//! Who may write: the owner record, replaced by compare-and-swap (engine rule 31).
//!
//! - Whoever replaced the record last owns the shard; a replacement that was not answered is read back before it
//!   is believed or denied.
//! - The owner looks at the record every heartbeat and before every commit; a claim, or another owner, deposes it.
//! - A store that cannot be reached deposes nobody.

pub mod record;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use parking_lot::Mutex;
use tarn_base::crypto::Key;
use tarn_base::ids::Position;
use tarn_base::mutant;
use tarn_base::world::World;
use tarn_store::{PutMode, Store, StoreError, Version};

pub use record::{Claim, Owner, OwnerState, RecordError, Secrets, is_log_of, log_id};

use record::NAME;

/// Why the record could not be read or replaced.
#[derive(Clone, Debug, thiserror::Error)]
pub enum OwnerError {
    #[error("{0}")]
    Store(#[from] StoreError),
    #[error("{0}")]
    Record(#[from] RecordError),
    /// Another owner replaced it first.
    #[error("another node has taken this store")]
    Lost,
}

/// The record as it was last read or written.
#[derive(Clone, Debug)]
pub struct Held {
    pub owner: Owner,
    pub secrets: Secrets,
    version: Version,
}

/// Reads and replaces the record of one shard.
#[derive(Clone)]
pub struct Register {
    store: Arc<dyn Store>,
    master: Key,
    world: World,
}

impl std::fmt::Debug for Register {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Register({:?})", self.store)
    }
}

impl Register {
    pub fn new(store: Arc<dyn Store>, master: Key, world: World) -> Register {
        Register { store, master, world }
    }

    /// The present record; `None` if there is none.
    ///
    /// A record that is not understood is read again before that is believed: the copy on the way may be bad.
    pub async fn read(&self) -> Result<Option<Held>, OwnerError> {
        match self.read_once().await {
            Err(OwnerError::Record(_)) => self.read_once().await,
            result => result,
        }
    }

    async fn read_once(&self) -> Result<Option<Held>, OwnerError> {
        match self.store.get(NAME).await {
            Ok((bytes, version)) => {
                let (owner, secrets) = Owner::decode(&bytes, &self.master)?;
                Ok(Some(Held { owner, secrets, version }))
            }
            Err(StoreError::NotFound(_)) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Writes the first record. If somebody else was first, theirs is given.
    pub async fn create(&self, owner: Owner, secrets: Secrets) -> Result<Held, OwnerError> {
        match self.write(&owner, &secrets, PutMode::Create).await {
            Ok(version) => Ok(Held { owner, secrets, version }),
            Err(StoreError::Exists(_) | StoreError::Unknown(_)) => {
                self.read().await?.ok_or_else(|| StoreError::Unavailable("no owner record was written".into()).into())
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Replaces the record as it was `held`; [`OwnerError::Lost`] if somebody else did before.
    pub async fn replace(&self, held: &Held, owner: Owner) -> Result<Held, OwnerError> {
        let mode = PutMode::Replace(held.version.clone());
        let secrets = held.secrets.clone();
        match self.write(&owner, &secrets, mode).await {
            Ok(version) => Ok(Held { owner, secrets, version }),
            // Perhaps it was our own, its answer lost, that made the next try fail.
            Err(StoreError::Changed(_) | StoreError::Unknown(_)) => match self.read().await? {
                Some(found) if found.owner == owner => Ok(found),
                Some(found) if found.version == held.version => {
                    Err(StoreError::Unavailable("the owner record could not be replaced".into()).into())
                }
                _ => Err(OwnerError::Lost),
            },
            Err(error) => Err(error.into()),
        }
    }

    async fn write(&self, owner: &Owner, secrets: &Secrets, mode: PutMode) -> Result<Version, StoreError> {
        let bytes = owner.encode(&self.master, secrets, self.world.random_bytes());
        self.store.put(NAME, Bytes::from(bytes), mode).await
    }
}

/// Whose the shard is, as far as a look at the record says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    Ours,
    /// The store did not answer, or not with a record: that deposes nobody.
    Unknown,
    /// The store answers, but has no record of any owner: it is not there, or not all of it.
    Missing,
    /// Somebody else's.
    Deposed,
}

/// The record of the owner at work.
#[derive(Debug)]
pub struct Tenure {
    register: Register,
    held: Mutex<Held>,
    deposed: AtomicBool,
    /// The last look that was answered found no record.
    missing: AtomicBool,
    ended: AtomicBool,
}

impl Tenure {
    pub fn new(register: Register, held: Held) -> Tenure {
        let (deposed, missing, ended) = Default::default();
        Tenure { register, held: Mutex::new(held), deposed, missing, ended }
    }

    /// Looks at the record: whether the shard is still ours.
    pub async fn check(&self) -> Standing {
        if self.deposed.load(Ordering::Acquire) {
            return Standing::Deposed;
        }
        match self.register.read().await {
            Ok(Some(found)) => {
                let held = self.held.lock().owner.clone();
                let ours =
                    found.owner.claim.is_none() && found.owner.epoch == held.epoch && found.owner.node == held.node;
                self.missing.store(false, Ordering::Release);
                if ours || mutant::on(mutant::CLAIM_IGNORED) {
                    return Standing::Ours;
                } else if !self.ended.load(Ordering::Acquire) {
                    self.deposed.store(true, Ordering::Release);
                    tracing::error!(
                        epoch = found.owner.epoch,
                        claim = ?found.owner.claim.map(|claim| claim.node),
                        "another node has claimed this store: nothing is answered any more; keep the log"
                    );
                }
            }
            Ok(None) => {
                if !self.missing.swap(true, Ordering::AcqRel) {
                    tracing::error!("the owner record is missing from the store: put the store back as it was");
                }
                return Standing::Missing;
            }
            Err(OwnerError::Record(error)) => tracing::error!(%error, "the owner record cannot be read"),
            Err(error) => tracing::debug!(%error, "the owner record could not be looked at"),
        }
        if self.deposed.load(Ordering::Acquire) { Standing::Deposed } else { Standing::Unknown }
    }

    /// Whether the owner has given the record up.
    pub fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    /// Writes that the creation has come to its end.
    pub async fn created(&self) -> Result<(), OwnerError> {
        let held = self.held.lock().clone();
        let owner = Owner { state: OwnerState::Open, ..held.owner.clone() };
        let held = self.register.replace(&held, owner).await?;
        *self.held.lock() = held;
        Ok(())
    }

    /// Writes that everything up to `closed`, the last position given out, is in the store, whose P is `stored`.
    pub async fn close(&self, closed: Position, stored: Position) -> Result<(), OwnerError> {
        let held = self.held.lock().clone();
        let owner = Owner { state: OwnerState::Closed, closed, stored, ..held.owner.clone() };
        self.end();
        let held = self.register.replace(&held, owner).await?;
        *self.held.lock() = held;
        Ok(())
    }

    /// Ends every look at it.
    pub fn end(&self) {
        self.ended.store(true, Ordering::Release);
    }
}
