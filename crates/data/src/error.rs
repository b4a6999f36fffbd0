//! What is wrong with bytes that came back from a store.

use tarn_base::codec::DecodeError;
use tarn_base::crypto::OpenError;

/// A record or a segment is not what was written. The medium is to blame: try another copy, or report it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DamageError {
    #[error("sealed bytes do not open: damaged, or of another place")]
    Sealed,
    #[error("the bytes are {found} long, not {expected}")]
    Length { expected: usize, found: usize },
    #[error("what was compressed does not expand to what was written")]
    Expand,
    #[error("a segment's bytes are not understood: {0}")]
    Format(#[from] DecodeError),
    #[error("the object is segment {found}, not {expected}")]
    OtherSegment { expected: tarn_base::ids::SegmentId, found: tarn_base::ids::SegmentId },
}

impl From<OpenError> for DamageError {
    fn from(_: OpenError) -> DamageError {
        DamageError::Sealed
    }
}
