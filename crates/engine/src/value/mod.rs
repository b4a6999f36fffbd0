//! Values of the metadata store: one file a value, `encode` and `decode` side by side.
//!
//! - Each begins with its version and the epoch of its birth (engine rule 27).
//! - Decoding judges: an error names what is wrong, nothing panics.

mod count;
mod directory;
mod inode;
mod map;
pub mod outcome;
mod shard;
pub(crate) mod volume;

pub use count::CountRecord;
pub use directory::{Bucket, CookieEntry, HashEntry};
pub use inode::{Inode, Layout};
pub use map::{Cut, MapState};
pub use shard::{NotifyRecord, SaltRecord, ShardState, Usage};
pub use volume::VolumeRecord;

use tarn_base::codec::{DecodeError, Decoded, Put, Take};

const VERSION: u8 = 1;

/// Version and birth.
fn put_head(out: &mut Vec<u8>, born: u32) {
    out.put_u8(VERSION);
    out.put_u32(born);
}

/// The epoch of birth, after the version has been judged.
fn take_head(take: &mut Take<'_>) -> Decoded<u32> {
    match take.u8()? {
        VERSION => take.u32(),
        version => Err(DecodeError::Version(u32::from(version))),
    }
}
