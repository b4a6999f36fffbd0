//! Decoders that see only what a key has opened, and valid bytes to begin from, for fuzzing.
//!
//! - A judge says whether it takes the bytes for valid; it never panics but when what it took does not survive
//!   encoding.

use tarn_base::ids::SegmentId;

use crate::codec::Codec;
use crate::directory::{Directory, DirectoryRecord, Origin};

const SEGMENT: SegmentId = SegmentId { epoch: 1, counter: 2 };

/// Judges the plaintext of a directory.
pub fn directory(plain: &[u8]) -> bool {
    let Ok(directory) = Directory::decode(SEGMENT, u32::MAX, plain) else { return false };
    let again = Directory::decode(SEGMENT, u32::MAX, &directory.encode());
    // Salts are kept once an epoch, so what two origins of one epoch say of it is one thing.
    assert_eq!(again.as_ref(), Ok(&directory), "a directory does not survive encoding");
    true
}

/// Valid plaintexts of directories.
pub fn directory_samples() -> Vec<Vec<u8>> {
    let record = |offset, epoch: Option<u32>| DirectoryRecord {
        offset,
        stored: 100,
        plain: 400,
        codec: Codec::Lz4,
        tag: [4; 16],
        hash: Some([5; 32]),
        origin: epoch.map(|epoch| Origin {
            segment: SegmentId { epoch, counter: 8 },
            index: 9,
            salt: [epoch as u8; 16],
        }),
    };
    let mut directory = Directory::new(SEGMENT);
    let empty = directory.encode();
    directory.records = vec![record(56, None), record(156, None)];
    let own = directory.encode();
    directory.records.extend([record(256, Some(7)), record(356, Some(6)), record(456, Some(7))]);
    vec![empty, own, directory.encode()]
}

/// Expands what stands for `plain` bytes, at most [`crate::PLAIN_SIZE_MAX`], packed by the codec of this number.
pub fn expand(codec: u8, plain: u32, packed: &[u8]) -> bool {
    Codec::from_code(codec).is_ok_and(|codec| codec.expand(packed, &mut vec![0; plain as usize]).is_ok())
}
