//! Orders bytes: the durable write log.
//!
//! - `device`, `file`, `faulty`: where the bytes lie - memory, a real file, a simulated disk that loses power.
//! - `format`: every bit of header and frame.
//! - `log`, `append`, `flush`, `wait`, `trim`, `read`: the log at work.
//! - `recovery`: opening, reading back, starting.

mod aligned;
mod append;
mod cache;
mod contract;
pub mod decoders;
mod device;
mod faulty_disk;
mod file;
mod flush;
mod format;
mod frame;
mod log;
mod pool;
mod read;
mod recovery;
mod ring;
mod trim;
mod wait;

pub use append::ENTRY_SIZE_MAX;
pub use contract::{Appended, Entry, LogError, LogPlace};
pub use device::{LogDevice, MemDevice};
pub use file::{FileDevice, Medium, medium};
pub use flush::{Beside, FlushJob};
pub use log::{Log, LogOptions, Wake};
pub use recovery::{CreateOptions, Recovery, Replayed};
pub use wait::{Wait, WaitForRoom};

/// A simulated disk: seeded, deterministic, loses and tears what was not flushed.
pub mod faulty {
    pub use crate::faulty_disk::{FaultyDisk, SECTOR_SIZE};
}
