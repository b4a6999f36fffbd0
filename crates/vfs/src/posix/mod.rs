//! What POSIX, as Linux understands it, says of permissions and attributes. Pure functions; the engine and the
//! model both ask here, so they cannot differ.
//!
//! - Nothing here changes what it is given: a function answers, or returns the new attributes.
//! - [`Attr::change`] is never touched: whoever logs the change sets it.
//! - Order of checks in every operation, so that the first error is always the same one: the handle (`Stale`),
//!   the type of the directory (`NotDirectory`), the name ([`crate::name`]), search permission (`Access`),
//!   whether the name is there (`NotFound`, `Exists`), write permission (`Access`), the sticky bit
//!   (`NotPermitted`), the type of the object (`IsDirectory`, `NotDirectory`), then the rest (`NotEmpty`,
//!   `TooManyLinks`, `NoSpace`).

mod access;
mod attributes;
mod names;

pub use access::{Rights, access, may_read, may_search, may_write, permits};
pub use attributes::{DIRECTORY_SIZE, after_write, apply_setattr, atime_due, check_read, check_write, new_attr};
pub use names::{
    check_link, check_make, check_remove, check_rename, check_rmdir, check_symlink, entry_changed, linked, unlinked,
};

/// Run as the file's owner.
pub const SET_UID: u16 = 0o4000;
/// Run as the file's group; on a directory: what is made in it gets its group.
pub const SET_GID: u16 = 0o2000;
/// On a directory: only owners remove entries.
pub const STICKY: u16 = 0o1000;
/// Every bit that a mode may have.
pub const MODE_BITS: u16 = 0o7777;
/// The group's execute bit.
pub(crate) const GROUP_EXECUTE: u16 = 0o010;
