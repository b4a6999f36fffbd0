//! Gives bytes meaning: records, their reduction, and the segments that hold them.
//!
//! - `pointer`: how metadata names a record and knows its bytes. `codec`: compression. `lost`: what a
//!   record says is lost of it.
//! - `keys`: family keys and the keys of segments. `format`: every bit of a segment object.
//! - `builder`, `directory`: segments written and read; `memory`: what they are made in. `live`, `segment_value`, `forwarding`: what metadata keeps
//!   of a segment. See `docs/format/segment.md`.

mod builder;
mod codec;
pub mod decoders;
mod directory;
mod error;
mod format;
mod forwarding;
mod keys;
mod live;
mod lost;
mod memory;
mod name;
mod pointer;
mod segment_value;

pub use builder::{Placed, SegmentBuilder, SegmentObject, TARGET_SIZE_DEFAULT, TARGET_SIZE_MAX, TARGET_SIZE_MIN};
pub use codec::{Codec, Compression, Compressor};
pub use directory::{Directory, DirectoryRecord, Origin};
pub use error::DamageError;
pub use format::{FOOTER_SIZE, Footer, HEADER_SIZE, PLAIN_SIZE_MAX, RECORD_SIZE_MAX, RECORDS_MAX, SegmentHeader};
pub use forwarding::{Forward, Forwarding};
pub use keys::{FamilyKey, RecordHash, Salt, SegmentKey, SegmentKeyCache, open_record};
pub use live::LiveSet;
pub use lost::LostBytes;
pub use memory::SegmentMemory;
pub use name::{object_name, parse_object_name};
pub use pointer::RecordPointer;
pub use segment_value::{Heat, SegmentState, SegmentValue};
