//! What a status of NFSv3 means (RFC 1813 section 2.6), as a client knows it: a table of its own, so that a mistake in
//! the front end's is seen.

use tarn_vfs::Errno;

/// The refusal that a status stands for; of those that share one, the first.
pub fn errno(status: u32) -> Option<Errno> {
    Some(match status {
        1 => Errno::NotPermitted,
        2 => Errno::NotFound,
        5 => Errno::Io,
        13 => Errno::Access,
        17 => Errno::Exists,
        18 => Errno::CrossVolume,
        20 => Errno::NotDirectory,
        21 => Errno::IsDirectory,
        22 => Errno::Invalid,
        27 => Errno::FileTooBig,
        28 => Errno::NoSpace,
        30 => Errno::ReadOnly,
        31 => Errno::TooManyLinks,
        63 => Errno::NameTooLong,
        66 => Errno::NotEmpty,
        69 => Errno::Quota,
        70 => Errno::Stale,
        10_001 => Errno::BadHandle,
        10_002 => Errno::GuardFailed,
        10_004 => Errno::NotSupported,
        10_008 => Errno::TryLater,
        _ => return None,
    })
}

/// What a client can tell of a refusal.
pub fn told(errno: Errno) -> Errno {
    match errno {
        Errno::WrongType => Errno::Invalid,
        Errno::Grace => Errno::TryLater,
        other => other,
    }
}
