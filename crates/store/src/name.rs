//! Which names an object may have.
//!
//! - A name is one or more non-empty parts of `[A-Za-z0-9._=-]` joined by `/`; no part is `.` or `..`.
//! - What passes here is the same string in every store: a path, a key of S3, a blob of Azure.

use crate::contract::{StoreError, StoreResult};

/// Longest name, bytes; S3 and Azure take 1,024, and a decorator may put a prefix before it.
pub const NAME_MAX: usize = 900;

/// Refuses a name that not every store could hold.
pub fn check(name: &str) -> StoreResult<()> {
    if !name.is_empty() && name.len() <= NAME_MAX && name.split('/').all(is_part) {
        return Ok(());
    }
    Err(StoreError::Denied(format!("an object cannot be named {name:?}")))
}

/// Refuses a prefix that no name could begin with.
pub fn check_prefix(prefix: &str) -> StoreResult<()> {
    if prefix.len() <= NAME_MAX && prefix.bytes().all(|byte| byte == b'/' || is_allowed(byte)) {
        return Ok(());
    }
    Err(StoreError::Denied(format!("no object's name begins with {prefix:?}")))
}

fn is_part(part: &str) -> bool {
    !part.is_empty() && part.len() <= 200 && part != "." && part != ".." && part.bytes().all(is_allowed)
}

fn is_allowed(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'=' | b'-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_never_leaves_its_directory() {
        for good in ["a", "a/b", "manifest/00000000000000000001.manifest", "a=b/.hidden", "..a"] {
            assert!(check(good).is_ok(), "{good}");
        }
        for bad in ["", "/a", "a/", "a//b", "..", "a/../b", ".", "a b", "a\\b", "ä", "a\0"] {
            assert!(check(bad).is_err(), "{bad:?}");
        }
        assert!(check(&"a".repeat(NAME_MAX + 1)).is_err());
        assert!(check_prefix("a/b").is_ok() && check_prefix("").is_ok() && check_prefix("a/").is_ok());
        assert!(check_prefix("a b").is_err());
    }
}
