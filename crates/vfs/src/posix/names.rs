//! What adding, removing and renaming entries asks for, and what it does to attributes.
//!
//! Times: an entry added to or taken from a directory sets the directory's mtime and ctime; an object that gains
//! or loses a name, or is renamed, gets a new ctime. A subdirectory counts as one link of the directory above.

use tarn_base::time::Time;

use super::STICKY;
use super::access::{Rights, may_change_entries, permits};
use crate::error::Errno;
use crate::types::{Attr, Caller, FileType, LINK_MAX, SYMLINK_MAX};

/// Whether `caller` may add an entry to `dir`, which they may search. `there` says that the name is taken.
/// Errors: `Exists`, `Access`, `Stale` if the directory has been removed.
pub fn check_make(dir: &Attr, there: bool, caller: &Caller) -> Result<(), Errno> {
    if there {
        return Err(Errno::Exists);
    }
    if dir.links == 0 {
        return Err(Errno::Stale);
    }
    may_change_entries(dir, caller)
}

/// Whether a symbolic link may have this target. Errors: `Invalid` if it is empty or has a NUL, `NameTooLong`.
pub fn check_symlink(target: &[u8]) -> Result<(), Errno> {
    if target.is_empty() || target.contains(&0) {
        return Err(Errno::Invalid);
    }
    if target.len() > SYMLINK_MAX { Err(Errno::NameTooLong) } else { Ok(()) }
}

/// Whether `caller` may give `object` another name in `dir`. Errors: as [`check_make`], `CrossVolume`,
/// `NotPermitted` for a directory, `TooManyLinks`.
pub fn check_link(object: &Attr, dir: &Attr, there: bool, caller: &Caller) -> Result<(), Errno> {
    if object.node.volume != dir.node.volume {
        return Err(Errno::CrossVolume);
    }
    check_make(dir, there, caller)?;
    if object.kind == FileType::Directory {
        return Err(Errno::NotPermitted);
    }
    if object.links >= LINK_MAX { Err(Errno::TooManyLinks) } else { Ok(()) }
}

/// Whether `caller` may take the entry of `victim` from `dir`. Errors: `Access`; `NotPermitted` in a sticky
/// directory for who owns neither the directory nor the victim.
fn may_take(dir: &Attr, victim: &Attr, caller: &Caller) -> Result<(), Errno> {
    may_change_entries(dir, caller)?;
    let sticky = dir.mode & STICKY != 0;
    let owns = caller.is_superuser() || caller.uid == victim.uid || caller.uid == dir.uid;
    if sticky && !owns { Err(Errno::NotPermitted) } else { Ok(()) }
}

/// Whether `caller` may remove `victim`'s name. Errors: as POSIX unlink - `Access`, `NotPermitted`,
/// `IsDirectory`.
pub fn check_remove(dir: &Attr, victim: &Attr, caller: &Caller) -> Result<(), Errno> {
    may_take(dir, victim, caller)?;
    if victim.kind == FileType::Directory { Err(Errno::IsDirectory) } else { Ok(()) }
}

/// Whether `caller` may remove the directory `victim`. Errors: `Access`, `NotPermitted`, `NotDirectory`,
/// `NotEmpty`.
pub fn check_rmdir(dir: &Attr, victim: &Attr, empty: bool, caller: &Caller) -> Result<(), Errno> {
    may_take(dir, victim, caller)?;
    if victim.kind != FileType::Directory {
        return Err(Errno::NotDirectory);
    }
    if empty { Ok(()) } else { Err(Errno::NotEmpty) }
}

/// Whether `caller` may move `source` from `from` to `to`, over `target` if the new name is taken (with whether
/// it is an empty directory, asked only if it is a directory).
///
/// What comes before this, in this order, because it takes more than two generations: both directories are of
/// one volume (`CrossVolume`) and may be searched, the source is there (`NotFound`); the target directory is
/// neither the source nor below it (`Invalid`), the target is not the source directory or above it (`NotEmpty`);
/// source and target are not one object (nothing is done, successfully).
///
/// Errors: `Access`, `NotPermitted`; `NotDirectory` for a directory over something else, `IsDirectory` for the
/// reverse; `NotEmpty`; `Stale` if the target directory has been removed. A directory that gets another parent
/// must be writable itself, for its ".." changes.
pub fn check_rename(
    from: &Attr,
    source: &Attr,
    to: &Attr,
    target: Option<(&Attr, bool)>,
    caller: &Caller,
) -> Result<(), Errno> {
    may_take(from, source, caller)?;
    let directory = source.kind == FileType::Directory;
    match target {
        None => check_make(to, false, caller)?,
        Some((target, _)) => {
            may_take(to, target, caller)?;
            match (directory, target.kind == FileType::Directory) {
                (true, false) => return Err(Errno::NotDirectory),
                (false, true) => return Err(Errno::IsDirectory),
                _ => {}
            }
        }
    }
    if directory && from.node != to.node && !permits(source, caller, Rights::WRITE) {
        return Err(Errno::Access);
    }
    match target {
        Some((_, false)) if directory => Err(Errno::NotEmpty),
        _ => Ok(()),
    }
}

/// A directory after an entry came or went; `subdirectories` is what that did to their number.
pub fn entry_changed(dir: &mut Attr, subdirectories: i32, now: Time) {
    dir.links = dir.links.saturating_add_signed(subdirectories);
    dir.mtime = now;
    dir.ctime = now;
}

/// An object that gained a name.
pub fn linked(object: &mut Attr, now: Time) {
    object.links += 1;
    object.ctime = now;
}

/// An object that lost a name; a directory loses its own "." with it, so it has none left.
pub fn unlinked(object: &mut Attr, now: Time) {
    object.links = if object.kind == FileType::Directory { 0 } else { object.links.saturating_sub(1) };
    object.ctime = now;
}

#[cfg(test)]
mod tests {
    use tarn_base::ids::Ino;

    use super::*;
    use crate::types::Node;

    fn directory(ino: u64, mode: u16, uid: u32) -> Attr {
        let node = Node { ino: Ino(ino), ..Node::default() };
        Attr { node, kind: FileType::Directory, mode, uid, gid: uid, links: 2, ..Attr::default() }
    }

    fn file(uid: u32) -> Attr {
        Attr { mode: 0o644, uid, links: 1, ..Attr::default() }
    }

    #[test]
    fn in_a_sticky_directory_only_owners_remove() {
        let dir = directory(1, 0o1777, 10);
        assert_eq!(check_remove(&dir, &file(11), &Caller::user(12, 12)), Err(Errno::NotPermitted));
        for uid in [0, 10, 11] {
            assert_eq!(check_remove(&dir, &file(11), &Caller::user(uid, 99)), Ok(()));
        }
        assert_eq!(check_remove(&directory(1, 0o777, 10), &file(11), &Caller::user(12, 12)), Ok(()));
    }

    #[test]
    fn a_directory_replaces_only_an_empty_directory_and_a_file_never_one() {
        let (from, to, caller) = (directory(1, 0o755, 10), directory(2, 0o755, 10), Caller::user(10, 10));
        let (source, over) = (directory(3, 0o755, 10), directory(4, 0o755, 10));
        let plain = file(10);
        let check = |source: &Attr, target| check_rename(&from, source, &to, target, &caller);
        assert_eq!(check(&source, Some((&over, true))), Ok(()));
        assert_eq!(check(&source, Some((&over, false))), Err(Errno::NotEmpty));
        assert_eq!(check(&source, Some((&plain, false))), Err(Errno::NotDirectory));
        assert_eq!(check(&file(10), Some((&over, true))), Err(Errno::IsDirectory));
        assert_eq!(check(&plain, Some((&file(11), false))), Ok(()));
    }

    #[test]
    fn a_directory_that_moves_must_be_writable() {
        let (from, to, caller) = (directory(1, 0o777, 10), directory(2, 0o777, 10), Caller::user(11, 11));
        let source = directory(3, 0o755, 10);
        assert_eq!(check_rename(&from, &source, &to, None, &caller), Err(Errno::Access));
        assert_eq!(check_rename(&from, &source, &from, None, &caller), Ok(()));
    }

    #[test]
    fn directories_have_one_name() {
        let dir = directory(1, 0o755, 10);
        assert_eq!(check_link(&directory(2, 0o755, 10), &dir, false, &Caller::root()), Err(Errno::NotPermitted));
        let full = Attr { links: LINK_MAX, ..file(10) };
        assert_eq!(check_link(&full, &dir, false, &Caller::root()), Err(Errno::TooManyLinks));
    }
}
