//! The log as the engine sees it. See `docs/format/log.md` for the bits.
//!
//! - [`Log::append`](crate::Log::append) gives positions in order; the order in the log is the order of positions.
//! - A position is durable once [`Log::durable`](crate::Log::durable) has reached it: its frame and every earlier
//!   one are on the medium.
//! - Reading a log back gives a prefix of what was appended, at least up to what was ever durable.
//! - After one failed flush the log is poisoned: nothing more becomes durable, and it says why.

use tarn_base::ids::Position;

/// Where an entry's bytes lie in the log, to read them back later.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LogPlace {
    /// Log offset of the frame that holds the entry, bytes, never wrapping.
    pub frame: u64,
    /// Where the entry's payload begins in the frame's plaintext.
    pub start: u32,
    /// Length of the payload.
    pub len: u32,
}

/// What [`Log::append`](crate::Log::append) gave an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Appended {
    pub position: Position,
    pub place: LogPlace,
}

/// One entry read back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub position: Position,
    pub place: LogPlace,
    pub payload: bytes::Bytes,
}

/// Why the log refuses.
#[derive(Clone, Debug, thiserror::Error)]
pub enum LogError {
    /// There is no room until a checkpoint has trimmed; not an error of anybody.
    #[error("the log is full until a checkpoint has trimmed it")]
    Full,
    /// So much waits to be written that no more is taken into memory; goes away with the next write.
    #[error("the log's memory is full until its device has caught up")]
    Busy,
    #[error("the log device {device} failed and nothing later is durable: {reason}; start again on a good device")]
    Poisoned { device: String, reason: String },
    #[error("the log is damaged at offset {offset}: {reason}")]
    Damaged { offset: u64, reason: String },
    /// Nothing has been written to this device yet: making the log was interrupted, and may be done again.
    #[error("{device} holds no log yet: its creation was interrupted")]
    Blank { device: String },
    #[error("the log {device} has format version {version}, which is newer than this program; use a newer tarn")]
    Newer { device: String, version: u32 },
    #[error("the master key does not open the log {device}: it belongs to another store")]
    WrongKey { device: String },
    /// The device could not be read while opening or reading back; nothing was changed.
    #[error("the log device {device} could not be read: {reason}")]
    Device { device: String, reason: String },
    #[error("{0}")]
    Refused(String),
}
