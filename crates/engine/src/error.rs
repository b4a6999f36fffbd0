//! Why the engine does not open: who is to blame, and what to do.

use tarn_base::ids::{Position, Uuid};
use tarn_meta::MetaError;
use tarn_store::StoreError;
use tarn_store::probe::ProbeError;
use tarn_wal::LogError;

use crate::owner::{OwnerError, RecordError};

/// Why a store could not be created or opened. Nothing was changed, unless it says so.
#[derive(Clone, Debug, thiserror::Error)]
pub enum OpenError {
    #[error("there is no Tarn store here, or its creation was interrupted; create it first")]
    NotCreated,
    #[error("there is a Tarn store here already; open it, or choose another place")]
    Exists,
    #[error("the master key does not open this store; give the key it was created with")]
    WrongKey,
    #[error("this store has format version {0}, which is newer than this program; use a newer tarn")]
    Newer(u32),
    #[error("this store has format version {0}, which this program does not read any more; use the tarn that made it")]
    Older(u32),
    #[error(
        "this store is open on another node, whose log is {owner}; start there, or bring that log here, or take the \
         store over without it (--take): what only that log holds is then lost"
    )]
    Elsewhere { owner: Uuid },
    #[error("another node opened or took this store at the same time; if it is meant to run here, stop that one first")]
    Taken,
    #[error("the log here belongs to another store; give this store an empty place for its log")]
    ForeignLog,
    #[error(
        "the log here holds changes that never reached this store, which was taken over since; keep it for salvage, and \
         give this store an empty place for its log"
    )]
    StaleLog,
    #[error(
        "the store was put back to an earlier state: its metadata goes to position {held}, and had come to {known}; put \
         everything below meta/ back as it was and start again (manifests that a start did without, put back since, must go \
         again); nothing was changed here, and the log keeps what it holds \
         (only if the earlier state is what you want: move the log away and open with --accept-loss)"
    )]
    StoreOlder { held: Position, known: Position },
    #[error(
        "the log was put back to an earlier state: it ends at position {last}, and the store has come to {held}; put the \
         newest log back and start again; nothing was changed here (only if there is no newer one: move this one away and \
         open with --accept-loss)"
    )]
    LogOlder { last: Position, held: Position },
    #[error(
        "the log was put back to an earlier state: it was opened {held} times, and had been {known} times when the store was \
         last served; put the newest log back and start again; nothing was changed here (only if there is no newer one: move \
         this one away and open with --accept-loss)"
    )]
    LogReplaced { held: u32, known: u32 },
    #[error(
        "the owner record was put back to an earlier state: it is of opening {held}, and the metadata of opening {known}; put \
         the newest version of the object `owner` back and start again; nothing was changed here"
    )]
    OwnerOlder { held: u32, known: u32 },
    #[error("{0}; move the log away and open with --accept-loss to go on without what only it holds")]
    LogDamaged(LogError),
    #[error("{0}")]
    Log(LogError),
    #[error("the store is damaged: {0}; put that back from a backup, or from an older version of the object")]
    Damaged(String),
    #[error("the owner record is damaged: {0}; put its newest version back, none from before the last start")]
    OwnerDamaged(String),
    #[error(
        "part of the store is gone: {0}; put it back as it was, from where it was moved to or from a backup, and start \
         again; nothing was changed here, and the log keeps what it holds"
    )]
    Gone(String),
    #[error(
        "the store {0}: two nodes could own it at once; use one that honours conditional requests (create if absent, \
         compare and swap)"
    )]
    Unconditional(&'static str),
    #[error("the store could not be reached: {0}")]
    Store(StoreError),
    #[error("the store could not be reached: {0}")]
    Meta(MetaError),
    #[error("the first volume could not be made: {0}")]
    Volume(String),
    #[error("the numbers of owner epochs or incarnations are used up")]
    UsedUp,
}

impl From<OwnerError> for OpenError {
    fn from(error: OwnerError) -> OpenError {
        match error {
            OwnerError::Store(error) => OpenError::Store(error),
            OwnerError::Record(RecordError::Newer(version)) => OpenError::Newer(version),
            OwnerError::Record(RecordError::Older(version)) => OpenError::Older(version),
            OwnerError::Record(RecordError::WrongKey) => OpenError::WrongKey,
            OwnerError::Record(RecordError::Damaged(error)) => OpenError::OwnerDamaged(error.to_string()),
            OwnerError::Lost => OpenError::Taken,
        }
    }
}

impl From<ProbeError> for OpenError {
    fn from(error: ProbeError) -> OpenError {
        match error {
            ProbeError::Ignores(what) => OpenError::Unconditional(what),
            ProbeError::Store(error) => OpenError::Store(error),
        }
    }
}

impl From<LogError> for OpenError {
    fn from(error: LogError) -> OpenError {
        match error {
            LogError::Damaged { .. } => OpenError::LogDamaged(error),
            LogError::WrongKey { .. } => OpenError::WrongKey,
            other => OpenError::Log(other),
        }
    }
}

impl From<MetaError> for OpenError {
    fn from(error: MetaError) -> OpenError {
        match error {
            MetaError::Fenced(_) => OpenError::Taken,
            MetaError::Damaged(what) => OpenError::Damaged(what),
            MetaError::Gone(what) => OpenError::Gone(format!("of its metadata, {what}")),
            other => OpenError::Meta(other),
        }
    }
}
