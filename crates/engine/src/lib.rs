//! The file system: operations over keys in RAM, a log that makes them durable, checkpoints that move them to the
//! object store. How it all fits is in `ARCHITECTURE.md`, its rules in `docs/internals/engine.md`.

mod admin;
mod admission;
mod awake;
mod beats;
mod bounded;
mod brake;
mod bypass;
mod cache;
mod checkpoint;
pub mod config;
#[cfg(test)]
mod conformance;
mod core;
mod decoded;
#[doc(hidden)]
pub mod decoders;
mod dedupe;
mod engine;
mod entry;
mod error;
#[doc(hidden)]
pub mod extents;
mod fetch;
mod filesystem;
mod fsck;
mod hash;
mod hold;
mod image;
mod judge;
mod key;
mod listings;
mod missing;
mod names;
mod neighbours;
mod objects;
mod once;
mod open;
mod ops;
mod orphans;
mod overlay;
mod owner;
mod pages;
mod prefetch;
mod pulse;
mod readahead;
mod reclaim;
mod records;
mod recovery;
mod resent;
mod room;
mod run;
mod scrub;
mod segments;
mod session;
mod status;
mod streams;
mod stripes;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(test)]
mod tests;
mod tx;
mod value;
mod volumes;

pub use admin::{AdminError, VolumeSpec, VolumeStatus};
pub use checkpoint::{CheckpointError, Done, Stages};
pub use config::{Bypass, Config, CrashPoints, OVERLAY_LEAST};
pub use dedupe::DedupeTotals;
pub use engine::Engine;
pub use error::OpenError;
pub use fsck::{FsckCounts, FsckError, FsckReport};
pub use judge::{OWNER_RECORD, judge_without_log, remains};
pub use missing::LostData;
pub use open::{MetaFactory, OpenOptions, Parts, RecoveryReport, slate};
pub use reclaim::{FamilyTotals, ReclaimError, Reclaimed, SegmentTotals};
pub use scrub::{ScrubProgress, ScrubReport};
pub use status::{CacheStatus, GenerationStatus, Status};
