//! Objects of which each follows the one before it, by number: the manifests of the metadata engine.
//!
//! - The newest one says all that holds. Whoever finds the one before it instead goes on from an earlier state, and writes
//!   over the place of what was taken away, so that putting it back helps no more.
//! - The highest number that was ever seen is remembered. While nothing lies there under it or above, a listing, a look
//!   at it and a put under it or below all end with [`Missed`]. Older ones are garbage, and their places stay taken.

use std::sync::atomic::{AtomicU64, Ordering};

/// Digits of a number in a name.
const DIGITS: usize = 20;

/// How the numbered objects of the metadata engine end.
const ENDS: [&str; 2] = [".manifest", ".compactions"];

/// Whether an object is named as those are, but by fewer or more digits: the metadata engine itself takes any.
pub fn is_foreign(name: &str) -> bool {
    let name = name.rsplit('/').next().unwrap_or(name);
    let number = ENDS.iter().find_map(|end| name.strip_suffix(end));
    number.is_some_and(|number| number.len() != DIGITS || !number.bytes().all(|digit| digit.is_ascii_digit()))
}

/// The newest object of a sequence was taken away.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the object {0}, which was there")]
pub struct Missed(pub String);

/// The objects named by a beginning, twenty digits and an end, and the highest number among them that was seen.
#[derive(Debug)]
pub struct Sequence {
    before: String,
    after: &'static str,
    seen: AtomicU64,
}

impl Sequence {
    /// Nothing of it was seen yet.
    pub fn new(before: String, after: &'static str) -> Sequence {
        Sequence { before, after, seen: AtomicU64::new(0) }
    }

    /// The number of the object `name`, from 1, if it is one of these.
    pub fn number(&self, name: &str) -> Option<u64> {
        let digits = name.strip_prefix(&self.before)?.strip_suffix(self.after)?;
        let is_number = digits.len() == DIGITS && digits.bytes().all(|digit| digit.is_ascii_digit());
        is_number.then(|| digits.parse().ok())?.filter(|number| *number > 0)
    }

    pub fn name(&self, number: u64) -> String {
        format!("{}{number:0DIGITS$}{}", self.before, self.after)
    }

    /// What the names of all of them begin with.
    pub fn prefix(&self) -> &str {
        &self.before
    }

    /// The highest number that was seen; 0 before the first.
    pub fn seen(&self) -> u64 {
        self.seen.load(Ordering::SeqCst)
    }

    /// The object of that number is, or was, there.
    pub fn see(&self, number: u64) {
        self.seen.fetch_max(number, Ordering::SeqCst);
    }

    /// The highest number among `names`; 0 if there is none.
    pub fn newest<'a>(&self, names: impl IntoIterator<Item = &'a str>) -> u64 {
        names.into_iter().filter_map(|name| self.number(name)).max().unwrap_or(0)
    }

    /// Whether what begins with `prefix` holds the whole sequence.
    pub fn lies_below(&self, prefix: &str) -> bool {
        self.before.starts_with(prefix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_its_own_names_have_numbers() {
        let sequence = Sequence::new("meta/manifest/".to_owned(), ".manifest");
        assert_eq!(sequence.number(&sequence.name(17)), Some(17));
        assert_eq!(sequence.number("meta/manifest/00000000000000000017.manifest.bak"), None);
        assert_eq!(sequence.number("meta/manifest/+0000000000000000017.manifest"), None);
        assert_eq!(sequence.number("meta/manifest/99.manifest"), None);
        assert_eq!(sequence.number("meta/manifest/.manifest"), None);
        assert!(
            is_foreign("meta/manifest/99.manifest") && is_foreign("meta/compactions/+0000000000000000017.compactions")
        );
        assert!(!is_foreign(&sequence.name(17)) && !is_foreign("meta/compacted/01.sst") && !is_foreign("meta/gc/99"));
        assert_eq!(sequence.number(&sequence.name(0)), None);
        assert_eq!(sequence.number("meta/compacted/00000000000000000017.manifest"), None);
    }
}
