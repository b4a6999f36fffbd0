//! Law 2: nothing below the front ends knows a protocol's name or error code.
//!
//! - Names are looked for as words: split at `_`, at a change of case and at anything that is no letter or digit.
//! - Comments and documentation count: a core that explains itself in a protocol's words depends on it.

use super::{Finding, Tree};
use crate::source::Source;

const BELOW: &[&str] = &["base", "store", "wal", "meta", "data", "vfs", "engine"];

const BANNED: &[&str] = &[
    "nfs", "nfs3", "nfs4", "nfsv3", "nfsv4", "nlm", "nlmv4", "nsm", "rpc", "xdr", "mountd", "portmap", "rpcbind",
    "smb", "smb2", "smb3", "cifs", "iscsi", "scsi", "jukebox", "nfserr", "nfs3err", "nfs4err", "ntstatus", "samba",
];

/// Files that may say a word, and why.
const ALLOWED: &[(&str, &str, &str)] = &[
    ("crates/wal/src/file.rs", "nfs", "a kind of file system that a log must not lie on"),
    ("crates/wal/src/file.rs", "smb", "a kind of file system that a log must not lie on"),
    ("crates/wal/src/file.rs", "smb2", "a kind of file system that a log must not lie on"),
    ("crates/wal/src/file.rs", "cifs", "a kind of file system that a log must not lie on"),
];

pub fn check(tree: &Tree) -> Result<Vec<Finding>, String> {
    Ok(tree.sources.iter().flat_map(findings).collect())
}

fn findings(source: &Source) -> Vec<Finding> {
    let below = BELOW.iter().any(|name| source.package() == format!("crates/{name}"));
    if !below {
        return Vec::new();
    }
    let mut found = Vec::new();
    for (line, text) in source.text.lines().enumerate() {
        for word in words(text).filter(|word| BANNED.contains(&word.as_str())) {
            if ALLOWED.iter().any(|(path, allowed, _)| *path == source.path && *allowed == word) {
                continue;
            }
            let what = format!("names a protocol (\"{word}\"); say what the file system does, the front end maps it");
            found.push(Finding::new(&source.path, line + 1, what));
        }
    }
    found
}

/// The lower-case words of a line: `NfsStat3` gives `nfs`, `stat3`; `NFS3ERR_IO` gives `nfs3err`, `io`.
fn words(text: &str) -> impl Iterator<Item = String> {
    let mut words = Vec::new();
    let mut word = String::new();
    let characters: Vec<char> = text.chars().collect();
    for (at, character) in characters.iter().enumerate() {
        let before = at.checked_sub(1).map(|before| characters[before]);
        let hump = character.is_uppercase() && before.is_some_and(|before| !before.is_uppercase());
        // The last capital of a run begins the next word: `NFSStat` is `nfs`, `stat`.
        let tail = character.is_uppercase()
            && before.is_some_and(char::is_uppercase)
            && characters.get(at + 1).is_some_and(|next| next.is_lowercase());
        let digit_then_capital = hump && before.is_some_and(|before| before.is_ascii_digit());
        if !character.is_alphanumeric() || ((hump || tail) && !digit_then_capital) {
            words.push(std::mem::take(&mut word));
        }
        if character.is_alphanumeric() {
            word.extend(character.to_lowercase());
        }
    }
    words.push(word);
    words.into_iter().filter(|word| !word.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_protocol_named_below_the_front_ends_is_found() {
        for bad in ["//! what nfs needs", "NFS3ERR_IO", "fn to_rpc()", "struct NfsHandle;", "NFSStatus", "sent by SMB2"]
        {
            let found = findings(&Source::new("crates/vfs/src/a.rs", bad));
            assert_eq!(found.len(), 1, "{bad}: {found:?}");
        }
    }

    #[test]
    fn other_words_and_front_ends_are_left_alone() {
        for good in ["transfer", "unfsck", "// the grpcs", "confs"] {
            assert!(findings(&Source::new("crates/vfs/src/a.rs", good)).is_empty(), "{good}");
        }
        assert!(findings(&Source::new("crates/nfs/src/a.rs", "nfs")).is_empty());
    }
}
