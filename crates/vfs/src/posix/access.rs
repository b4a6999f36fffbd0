//! Who may read, write, execute.

use crate::error::Errno;
use crate::types::{Access, Attr, Caller, FileType};

/// Rights as one digit of a mode has them: read 4, write 2, execute or search 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rights(pub u16);

impl Rights {
    pub const READ: Rights = Rights(4);
    pub const WRITE: Rights = Rights(2);
    pub const EXECUTE: Rights = Rights(1);
    /// What adding or removing an entry takes.
    pub const CHANGE_ENTRIES: Rights = Rights(3);
}

/// Whether the mode gives `caller` all of `want`: by the owner's digit for the owner, the group's for members,
/// the last for all others - the first that fits decides, even if a later one would give more.
///
/// The superuser reads and writes everything, searches every directory, and executes a file if anybody may.
pub fn permits(attr: &Attr, caller: &Caller, want: Rights) -> bool {
    if caller.is_superuser() {
        return want.0 & Rights::EXECUTE.0 == 0 || attr.kind == FileType::Directory || attr.mode & 0o111 != 0;
    }
    let shift = if caller.uid == attr.uid {
        6
    } else if caller.in_group(attr.gid) {
        3
    } else {
        0
    };
    (attr.mode >> shift) & want.0 == want.0
}

fn demand(attr: &Attr, caller: &Caller, want: Rights) -> Result<(), Errno> {
    if permits(attr, caller, want) { Ok(()) } else { Err(Errno::Access) }
}

/// Whether names may be looked up in `dir`. Errors: `NotDirectory`, `Access`.
pub fn may_search(dir: &Attr, caller: &Caller) -> Result<(), Errno> {
    if dir.kind != FileType::Directory {
        return Err(Errno::NotDirectory);
    }
    demand(dir, caller, Rights::EXECUTE)
}

/// Whether entries may be added to or taken from `dir`, which is a directory. Errors: `Access`.
pub(super) fn may_change_entries(dir: &Attr, caller: &Caller) -> Result<(), Errno> {
    demand(dir, caller, Rights::CHANGE_ENTRIES)
}

/// Whether the object's bytes (or a directory's entries) may be read. Errors: `Access`.
///
/// With [`Caller::owner_override`] the owner of a regular file may whatever its mode says, and so may who may
/// execute it, because a client's kernel reads a program in order to run it (RFC 1813 section 4.4).
pub fn may_read(attr: &Attr, caller: &Caller) -> Result<(), Errno> {
    let lenient = caller.owner_override
        && attr.kind == FileType::Regular
        && (caller.uid == attr.uid || permits(attr, caller, Rights::EXECUTE));
    if lenient { Ok(()) } else { demand(attr, caller, Rights::READ) }
}

/// Whether the object's bytes may be changed; [`Caller::owner_override`] as in [`may_read`]. Errors: `Access`.
pub fn may_write(attr: &Attr, caller: &Caller) -> Result<(), Errno> {
    let lenient = caller.owner_override && attr.kind == FileType::Regular && caller.uid == attr.uid;
    if lenient { Ok(()) } else { demand(attr, caller, Rights::WRITE) }
}

/// Which of `want` the mode gives. [`Caller::owner_override`] is not looked at: this answers a client that is
/// about to check an open. `LOOKUP` and `DELETE` mean something for directories only, `EXECUTE` for the rest.
pub fn access(attr: &Attr, caller: &Caller, want: Access) -> Access {
    let mut has = Access::default();
    if permits(attr, caller, Rights::READ) {
        has = has | Access::READ;
    }
    if permits(attr, caller, Rights::WRITE) {
        has = has | Access::MODIFY | Access::EXTEND;
        if attr.kind == FileType::Directory {
            has = has | Access::DELETE;
        }
    }
    if permits(attr, caller, Rights::EXECUTE) {
        has = has | if attr.kind == FileType::Directory { Access::LOOKUP } else { Access::EXECUTE };
    }
    Access(has.0 & want.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(mode: u16) -> Attr {
        Attr { mode, uid: 10, gid: 20, ..Attr::default() }
    }

    #[test]
    fn the_first_digit_that_fits_decides() {
        let member = Caller { groups: [20].into_iter().collect(), ..Caller::user(11, 99) };
        assert!(!permits(&file(0o077), &Caller::user(10, 20), Rights::READ));
        assert!(!permits(&file(0o707), &member, Rights::READ));
        assert!(permits(&file(0o040), &member, Rights::READ));
        assert!(permits(&file(0o004), &Caller::user(11, 21), Rights::READ));
    }

    #[test]
    fn the_superuser_executes_only_what_somebody_may() {
        let root = Caller::root();
        assert!(permits(&file(0), &root, Rights::READ));
        assert!(!permits(&file(0o666), &root, Rights::EXECUTE));
        assert!(permits(&file(0o001), &root, Rights::EXECUTE));
        assert!(permits(&Attr { kind: FileType::Directory, ..file(0) }, &root, Rights::EXECUTE));
    }

    #[test]
    fn an_owner_who_opened_a_file_keeps_reading_and_writing() {
        let owner = Caller { owner_override: true, ..Caller::user(10, 20) };
        assert_eq!(may_write(&file(0), &owner), Ok(()));
        assert_eq!(may_write(&file(0), &Caller::user(10, 20)), Err(Errno::Access));
        let runner = Caller { owner_override: true, ..Caller::user(11, 21) };
        assert_eq!(may_read(&file(0o711), &runner), Ok(()));
        assert_eq!(may_write(&file(0o711), &runner), Err(Errno::Access));
        assert_eq!(access(&file(0), &owner, Access(63)), Access(0));
    }
}
