//! Every format has its document, and every document its code.
//!
//! - A file `format.rs` is named by some document below `docs/format/`, in full or by crate and file; each such document
//!   names code.

use super::{Finding, Tree};

pub fn check(tree: &Tree) -> Result<Vec<Finding>, String> {
    let codes: Vec<&str> = tree.files.iter().map(|file| file.path.as_str()).filter(|path| is_format(path)).collect();
    let documents: Vec<(&str, String)> = tree
        .files
        .iter()
        .filter(|file| file.path.starts_with("docs/format/") && file.path.ends_with(".md"))
        .map(|file| (file.path.as_str(), String::from_utf8_lossy(&file.bytes).into_owned()))
        .collect();
    Ok(findings(&codes, &documents))
}

fn is_format(path: &str) -> bool {
    path.starts_with("crates/") && (path.ends_with("/format.rs") || path.contains("/src/format/"))
}

fn findings(codes: &[&str], documents: &[(&str, String)]) -> Vec<Finding> {
    let undocumented = codes
        .iter()
        .filter(|code| !documents.iter().any(|(_, text)| names(text, code)))
        .map(|code| Finding::new(code, 0, "no document below docs/format/ names this format"));
    let unbound = documents
        .iter()
        .filter(|(path, text)| !path.ends_with("README.md") && !text.contains("crates/"))
        .map(|(path, _)| Finding::new(path, 0, "names no file of code; say which file encodes this"));
    undocumented.chain(unbound).collect()
}

fn names(text: &str, code: &str) -> bool {
    let mut parts = code.split("/src/");
    let (package, file) = (parts.next().unwrap_or(code), parts.next().unwrap_or(code));
    text.contains(code) || text.contains(&format!("`{package}`")) && text.contains(&format!("`{file}`"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_format_without_a_document_is_found() {
        let documents = [("docs/format/log.md", "`crates/wal/src/format.rs`".to_owned())];
        assert!(findings(&["crates/wal/src/format.rs"], &documents).is_empty());
        assert_eq!(findings(&["crates/data/src/segment/format.rs"], &documents).len(), 1);
        let by_crate = [("docs/format/log.md", "the code is `crates/wal`: `format.rs` holds".to_owned())];
        assert!(findings(&["crates/wal/src/format.rs"], &by_crate).is_empty());
        assert_eq!(findings(&["crates/data/src/format.rs"], &by_crate).len(), 1);
        assert_eq!(findings(&[], &[("docs/format/log.md", "bits".to_owned())]).len(), 1);
    }
}
