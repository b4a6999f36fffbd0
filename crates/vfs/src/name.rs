//! Which names are names, and what "." and ".." are worth to each operation.
//!
//! - A name is 1 to [`NAME_MAX`] bytes, any bytes but `/` and NUL; no character set is assumed.
//! - The check comes after the directory's handle and type have been checked and before its permissions.

use crate::error::Errno;
use crate::types::NAME_MAX;

/// What a name is to be used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// Found: "." and ".." are understood.
    Lookup,
    /// Made: create, mkdir, make, and the new name of link.
    Make,
    /// Removed as what is not a directory.
    Remove,
    /// Removed as a directory.
    RemoveDirectory,
    /// Either name of a rename.
    Rename,
}

/// A name that may be looked up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Name<'a> {
    /// ".": the directory itself.
    Dot,
    /// "..": the directory above; of a volume's root the root.
    DotDot,
    Ordinary(&'a [u8]),
}

/// Whether `name` may be used so; [`Name::Dot`] and [`Name::DotDot`] come out for [`Use::Lookup`] only.
///
/// Errors: `Invalid` for an empty name and for `/` or NUL, `NameTooLong`, and for "." and "..":
///
/// | use | "." | ".." | by |
/// |---|---|---|---|
/// | make | `Exists` | `Exists` | POSIX mkdir, link: the name is there |
/// | remove | `IsDirectory` | `IsDirectory` | what Linux says of unlink |
/// | remove a directory | `Invalid` | `NotEmpty` | POSIX rmdir; RFC 1813 3.3.13 says INVAL too |
/// | rename | `Invalid` | `Invalid` | POSIX rename; RFC 1813 3.3.14 |
pub fn check(name: &[u8], usage: Use) -> Result<Name<'_>, Errno> {
    if name.is_empty() {
        return Err(Errno::Invalid);
    }
    if name.len() > NAME_MAX {
        return Err(Errno::NameTooLong);
    }
    if name.iter().any(|&byte| byte == b'/' || byte == 0) {
        return Err(Errno::Invalid);
    }
    let dots = match name {
        b"." => Name::Dot,
        b".." => Name::DotDot,
        ordinary => return Ok(Name::Ordinary(ordinary)),
    };
    match (usage, dots) {
        (Use::Lookup, dots) => Ok(dots),
        (Use::Make, _) => Err(Errno::Exists),
        (Use::Remove, _) => Err(Errno::IsDirectory),
        (Use::RemoveDirectory, Name::Dot) => Err(Errno::Invalid),
        (Use::RemoveDirectory, _) => Err(Errno::NotEmpty),
        (Use::Rename, _) => Err(Errno::Invalid),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_bytes_but_slash_and_nul_make_a_name() {
        let longest = [0xffu8; NAME_MAX];
        assert_eq!(check(&longest, Use::Make), Ok(Name::Ordinary(&longest)));
        assert_eq!(check(b"...", Use::Make), Ok(Name::Ordinary(b"...")));
        assert_eq!(check(&[b'a'; NAME_MAX + 1], Use::Lookup), Err(Errno::NameTooLong));
        for bad in [&b""[..], b"a/b", b"/", b"a\0"] {
            assert_eq!(check(bad, Use::Lookup), Err(Errno::Invalid));
        }
    }

    #[test]
    fn dots_are_found_but_neither_made_nor_removed() {
        assert_eq!(check(b".", Use::Lookup), Ok(Name::Dot));
        assert_eq!(check(b"..", Use::Lookup), Ok(Name::DotDot));
        assert_eq!(check(b"..", Use::Make), Err(Errno::Exists));
        assert_eq!(check(b".", Use::RemoveDirectory), Err(Errno::Invalid));
        assert_eq!(check(b"..", Use::RemoveDirectory), Err(Errno::NotEmpty));
        assert_eq!(check(b".", Use::Rename), Err(Errno::Invalid));
        assert_eq!(check(b".", Use::Remove), Err(Errno::IsDirectory));
    }
}
