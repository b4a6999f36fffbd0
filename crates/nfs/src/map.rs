//! What the file system says, in NFSv3's words: the only file that knows both.

use tarn_base::time::Time;
use tarn_vfs::{Attr, Change, Errno, FileType, SetAttr, Stability};

use crate::gate::Refusal;
use crate::wire::nfs3::{Fattr, NfsTime, Sattr, SetTime, StableHow, Status, Type, WccAttr, WccData};

/// The status of a refusal by the file system.
pub fn status(errno: Errno) -> Status {
    match errno {
        Errno::NotFound => Status::NoEnt,
        Errno::Exists => Status::Exist,
        Errno::NotDirectory => Status::NotDir,
        Errno::IsDirectory => Status::IsDir,
        Errno::NotEmpty => Status::NotEmpty,
        Errno::Access => Status::Acces,
        Errno::NotPermitted => Status::Perm,
        Errno::NoSpace => Status::NoSpc,
        Errno::Quota => Status::DQuot,
        Errno::FileTooBig => Status::FBig,
        Errno::NameTooLong => Status::NameTooLong,
        Errno::Invalid => Status::Inval,
        Errno::ReadOnly => Status::Rofs,
        Errno::CrossVolume => Status::XDev,
        Errno::TooManyLinks => Status::MLink,
        Errno::Stale => Status::Stale,
        Errno::BadHandle => Status::BadHandle,
        Errno::TryLater | Errno::Grace => Status::Jukebox,
        Errno::Io => Status::Io,
        Errno::NotSupported => Status::NotSupp,
        // RFC 1813 has INVAL for reading or writing what is not a regular file.
        Errno::WrongType => Status::Inval,
        Errno::GuardFailed => Status::NotSync,
        // Locks do not travel in this protocol.
        Errno::NoLocks | Errno::Deadlock => Status::ServerFault,
    }
}

/// The status of a refusal at the gate.
pub fn refusal(refusal: Refusal) -> Status {
    match refusal {
        Refusal::BadHandle => Status::BadHandle,
        Refusal::Stale => Status::Stale,
        Refusal::Denied => Status::Acces,
        Refusal::ReadOnly => Status::Rofs,
        Refusal::TryLater => Status::Jukebox,
    }
}

/// Times outside 1970 to 2106 become the nearest that the protocol knows.
pub fn time(time: Time) -> NfsTime {
    match u32::try_from(time.seconds) {
        Ok(seconds) => NfsTime { seconds, nanos: time.nanos },
        Err(_) if time.seconds < 0 => NfsTime { seconds: 0, nanos: 0 },
        Err(_) => NfsTime { seconds: u32::MAX, nanos: 999_999_999 },
    }
}

/// The time that a client means.
pub fn from_time(time: NfsTime) -> Time {
    Time { seconds: i64::from(time.seconds), nanos: time.nanos }
}

pub fn file_type(kind: FileType) -> Type {
    match kind {
        FileType::Regular => Type::Regular,
        FileType::Directory => Type::Directory,
        FileType::Symlink => Type::Link,
        FileType::Block => Type::Block,
        FileType::Character => Type::Character,
        FileType::Socket => Type::Socket,
        FileType::Fifo => Type::Fifo,
    }
}

/// fattr3 of an object of the file system `fsid`.
pub fn attributes(attr: &Attr, fsid: u64) -> Fattr {
    Fattr {
        kind: file_type(attr.kind),
        mode: u32::from(attr.mode),
        links: attr.links,
        uid: attr.uid,
        gid: attr.gid,
        size: attr.size,
        used: attr.used,
        device: attr.device,
        fsid,
        fileid: attr.node.ino.0,
        atime: time(attr.atime),
        mtime: time(attr.mtime),
        ctime: time(attr.ctime),
    }
}

/// wcc_data of an object of the file system `fsid`.
pub fn weak_cache(change: &Change, fsid: u64) -> WccData {
    WccData {
        before: change.before.map(|before| WccAttr {
            size: before.size,
            mtime: time(before.mtime),
            ctime: time(before.ctime),
        }),
        after: change.after.as_ref().map(|attr| attributes(attr, fsid)),
    }
}

/// The attributes that a client wants set. Mode bits beyond the twelve that POSIX knows are dropped, as clients
/// send the file type in them.
pub fn set_attributes(sattr: &Sattr) -> SetAttr {
    let set_time = |time| match time {
        SetTime::DontChange => None,
        SetTime::ToServerTime => Some(tarn_vfs::SetTime::Now),
        SetTime::ToClientTime(time) => Some(tarn_vfs::SetTime::To(from_time(time))),
    };
    SetAttr {
        mode: sattr.mode.map(|mode| (mode & 0o7777) as u16),
        uid: sattr.uid,
        gid: sattr.gid,
        size: sattr.size,
        atime: set_time(sattr.atime),
        mtime: set_time(sattr.mtime),
        guard: None,
    }
}

pub fn stability(how: StableHow) -> Stability {
    match how {
        StableHow::Unstable => Stability::Unstable,
        StableHow::DataSync => Stability::Data,
        StableHow::FileSync => Stability::File,
    }
}

pub fn stable_how(stability: Stability) -> StableHow {
    match stability {
        Stability::Unstable => StableHow::Unstable,
        Stability::Data => StableHow::DataSync,
        Stability::File => StableHow::FileSync,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_beyond_the_protocol_are_clamped() {
        let at = |seconds| time(Time { seconds, nanos: 5 });
        assert_eq!(at(7), NfsTime { seconds: 7, nanos: 5 });
        assert_eq!(at(-1), NfsTime { seconds: 0, nanos: 0 });
        assert_eq!(at(1 << 32), NfsTime { seconds: u32::MAX, nanos: 999_999_999 });
        assert_eq!(from_time(at(u32::MAX.into())).seconds, i64::from(u32::MAX));
    }

    #[test]
    fn a_mode_is_twelve_bits() {
        let set = set_attributes(&Sattr { mode: Some(0o100_4755), ..Sattr::default() });
        assert_eq!(set.mode, Some(0o4755));
    }
}
