//! Whether the store that a checkpoint relies on still is all there, and still is ours.
//!
//! - Nothing is written into a place that the store was taken away from: a look comes before every batch.
//! - The log is trimmed only after every object that the metadata names was listed, after the batch: what the log gives
//!   up is in a store that is whole.
//! - What is gone may be put back: it is looked for again with every try, and a store that is whole again is opened
//!   anew, for what it holds is decided by what is there and not by what was in memory.

use std::sync::atomic::Ordering;
use std::time::Duration;

use tarn_meta::{MetaError, MetaStore};
use tarn_store::StoreError;

use super::{CheckpointError, Keeper, Turn};
use crate::owner::Standing;
use crate::owner::record::NAME;

/// Tries of a look that the store does not answer.
const TRIES: u32 = 4;
const PAUSE: Duration = Duration::from_millis(100);

impl Keeper {
    /// Whether the shard is ours, as far as can be told.
    pub(super) async fn ours(&self, turn: &Turn) -> Result<(), CheckpointError> {
        // Whoever fenced us may be the owner by now: only the record says that it is nobody.
        if turn.fenced {
            self.surely_ours().await?;
            self.core.health.fenced.store(false, Ordering::Relaxed);
            return Ok(());
        }
        match self.tenure.check().await {
            Standing::Unknown => Ok(()),
            known => stands(known),
        }
    }

    /// The metadata store said that another has opened it.
    pub(super) fn note_fence(&self, turn: &mut Turn, error: &MetaError) {
        if let MetaError::Fenced(_) = error {
            turn.fenced = true;
            self.core.health.fenced.store(true, Ordering::Relaxed);
        }
    }

    /// Whether the owner record was read just now and says that the shard is ours.
    pub(super) async fn surely_ours(&self) -> Result<(), CheckpointError> {
        stands(self.tenure.check().await)
    }

    /// Before a batch: one look at where it goes on from.
    pub(super) async fn glance(&self, turn: &mut Turn, meta: &dyn MetaStore) -> Result<(), CheckpointError> {
        match meta.glance().await {
            Err(MetaError::Gone(_)) => self.doubt(turn).await,
            // The batch itself will say.
            _ => Ok(()),
        }
    }

    /// Something that the metadata needs was not found. What is open may not have heard of a compaction of its own yet,
    /// whose garbage is gone already: the store is asked itself, and opened again if it is whole.
    async fn doubt(&self, turn: &mut Turn) -> Result<(), CheckpointError> {
        turn.doubtful = true;
        self.reconsider(turn).await?;
        Err(CheckpointError::Again("it has gone on in the background".to_owned()))
    }

    /// Before a trim: whether owner record and metadata are all there.
    pub(super) async fn verify(&self, turn: &mut Turn) -> Result<(), CheckpointError> {
        let mut tries = 1;
        loop {
            self.ours(turn).await?;
            let meta = self.ready(turn).await?;
            match meta.verify().await {
                Ok(()) => return Ok(()),
                Err(MetaError::Unavailable(_) | MetaError::Unknown(_)) if tries < TRIES => {}
                Err(MetaError::Gone(_)) => return self.doubt(turn).await,
                Err(error) => return Err(error.into()),
            }
            self.core.world.clock.sleep(PAUSE * tries).await;
            tries += 1;
        }
    }

    /// Why an attempt failed that could not read old content: an owner record or metadata that is gone too says that more was
    /// taken away, and then nothing of it is suspected to be lost.
    pub(super) async fn unless_gone(&self, turn: &mut Turn, error: CheckpointError) -> CheckpointError {
        if !matches!(error, CheckpointError::Read(_)) {
            return error;
        }
        match self.verify(turn).await {
            Err(gone @ CheckpointError::Gone(_)) => gone,
            _ => error,
        }
    }

    /// Looks again at a store of which part was gone. While it is, what is open stays so: what it has in memory still
    /// answers readers.
    pub(super) async fn reconsider(&self, turn: &mut Turn) -> Result<(), CheckpointError> {
        if !turn.doubtful {
            return Ok(());
        }
        self.ours(turn).await?;
        if !self.opener.inspect().await? {
            return Err(CheckpointError::Gone("every object of its metadata, below meta/".into()));
        }
        turn.doubtful = false;
        if let Some(meta) = turn.meta.take()
            && let Err(error) = meta.close().await
        {
            tracing::debug!(%error, "closing the metadata store that part of was gone");
        }
        Ok(())
    }

    /// Says what is gone, once, and again what is when that changes.
    pub(super) fn note_gone(&self, error: Option<&CheckpointError>) {
        let now = match error {
            Some(CheckpointError::Gone(what)) => Some(what.clone()),
            // It says nothing of that.
            Some(_) => return,
            None => None,
        };
        let mut gone = self.core.health.gone.write();
        if *gone != now {
            match &now {
                Some(what) => tracing::error!(%what, "part of the object store is gone: put it back as it was"),
                None => tracing::warn!("the object store is whole again"),
            }
            *gone = now;
        }
    }

    /// Shows a failure while the attempt goes on.
    pub(super) fn note_failure(&self, error: &CheckpointError) {
        self.note_gone(Some(error));
        if matches!(error, CheckpointError::Full(_)) {
            self.core.health.store_full.store(true, Ordering::Relaxed);
        }
        self.last.lock().0 = Some(error.to_string());
    }
}

fn stands(standing: Standing) -> Result<(), CheckpointError> {
    match standing {
        Standing::Ours => Ok(()),
        Standing::Unknown => Err(StoreError::Unavailable("the owner record could not be read".to_owned()).into()),
        Standing::Missing => Err(CheckpointError::Gone(format!("its owner record, the object {NAME}"))),
        Standing::Deposed => Err(CheckpointError::Deposed),
    }
}
