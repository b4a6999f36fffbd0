//! No binaries and no large files are committed.
//!
//! - Fixtures of formats are binary by nature: allowed below a `fixtures` folder, and small there too.

use super::{File, Finding, Tree};

const BYTES_MAX: usize = 256 * 1024;

pub fn check(tree: &Tree) -> Result<Vec<Finding>, String> {
    Ok(tree.files.iter().flat_map(findings).collect())
}

fn findings(file: &File) -> Vec<Finding> {
    let mut found = Vec::new();
    if file.bytes.len() > BYTES_MAX {
        let what = format!("has {} KiB, more than {}; generate it", file.bytes.len() / 1024, BYTES_MAX / 1024);
        found.push(Finding::new(&file.path, 0, what));
    }
    let binary = file.bytes.iter().take(8192).any(|byte| *byte == 0);
    if binary && !file.path.contains("/fixtures/") {
        found.push(Finding::new(&file.path, 0, "is binary; only fixtures of formats may be"));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, bytes: Vec<u8>) -> usize {
        findings(&File { path: path.to_owned(), bytes }).len()
    }

    #[test]
    fn binaries_and_large_files_are_found() {
        assert_eq!(found("tool", b"\x7fELF\0".to_vec()), 1);
        assert_eq!(found("notes.md", vec![b'a'; BYTES_MAX + 1]), 1);
        assert_eq!(found("crates/wal/tests/fixtures/v1", vec![0; 64]), 0);
        assert_eq!(found("notes.md", vec![b'a'; 64]), 0);
    }
}
