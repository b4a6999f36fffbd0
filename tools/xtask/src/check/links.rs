//! Links in documents are alive: relative links, anchors, and paths of code in backticks.
//!
//! - Links to other hosts are not followed.
//! - Inside fenced blocks nothing is a link.

use super::{Finding, Tree};

/// A word in backticks that begins so is a path of the checkout.
const PATHS: &[&str] = &["crates/", "tools/", "tests/", "docs/", ".ci/"];

pub fn check(tree: &Tree) -> Result<Vec<Finding>, String> {
    let documents: Vec<(&str, String)> = tree
        .files
        .iter()
        .filter(|file| file.path.ends_with(".md"))
        .map(|file| (file.path.as_str(), String::from_utf8_lossy(&file.bytes).into_owned()))
        .collect();
    let anchors = |path: &str, anchor: &str| {
        documents.iter().any(|(known, text)| *known == path && headings(text).any(|heading| heading == anchor))
    };
    let mut found = Vec::new();
    for (path, text) in &documents {
        found.extend(findings(path, text, &|path| tree.has(path), &anchors));
    }
    Ok(found)
}

fn findings(
    path: &str,
    text: &str,
    exists: &dyn Fn(&str) -> bool,
    has_anchor: &dyn Fn(&str, &str) -> bool,
) -> Vec<Finding> {
    let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
    let mut found = Vec::new();
    let mut fenced = false;
    for (line, text) in text.lines().enumerate() {
        if text.trim_start().starts_with("```") {
            fenced = !fenced;
        }
        if fenced {
            continue;
        }
        for target in links(text) {
            let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
            let full = if file.is_empty() { path.to_owned() } else { join(folder, file) };
            if !exists(&full) {
                found.push(Finding::new(path, line + 1, format!("dead link: {target}")));
            } else if !anchor.is_empty() && full.ends_with(".md") && !has_anchor(&full, anchor) {
                found.push(Finding::new(path, line + 1, format!("no heading for link: {target}")));
            }
        }
        for code in text.split('`').skip(1).step_by(2).filter(|code| is_path(code)) {
            let named = code.split([':', '#']).next().unwrap_or(code).trim_end_matches('/');
            if !exists(named) {
                found.push(Finding::new(path, line + 1, format!("no such path: {code}")));
            }
        }
    }
    found
}

/// Targets of `[text](target)` inside the checkout.
fn links(line: &str) -> impl Iterator<Item = &str> {
    line.match_indices("](")
        .filter_map(|(at, _)| line[at + 2..].split_once(')'))
        .map(|(target, _)| target.split(' ').next().unwrap_or(target))
        .filter(|target| !target.contains("://") && !target.starts_with("mailto:"))
}

fn is_path(code: &str) -> bool {
    PATHS.iter().any(|prefix| code.starts_with(prefix)) && !code.contains([' ', '*', '{', '<', '$', '|', '('])
}

fn join(folder: &str, relative: &str) -> String {
    let mut parts: Vec<&str> = folder.split('/').filter(|part| !part.is_empty()).collect();
    for part in relative.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    parts.join("/")
}

/// Headings as anchors, the way forges make them.
fn headings(text: &str) -> impl Iterator<Item = String> {
    text.lines().filter(|line| line.starts_with('#')).map(|line| {
        let title = line.trim_start_matches('#').trim().to_lowercase();
        let kept = title.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
        kept.map(|character| if character == ' ' { '-' } else { character }).collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> usize {
        let exists = |path: &str| ["docs/a.md", "docs/format/b.md", "crates/wal"].contains(&path);
        let anchors = |path: &str, anchor: &str| path == "docs/a.md" && anchor == "the-frame";
        findings("docs/a.md", text, &exists, &anchors).len()
    }

    #[test]
    fn dead_links_anchors_and_paths_are_found() {
        assert_eq!(found("see [b](format/c.md)"), 1);
        assert_eq!(found("see [b](#no-such)"), 1);
        assert_eq!(found("see `crates/nowhere/src/lib.rs`"), 1);
    }

    #[test]
    fn live_ones_are_not() {
        assert_eq!(found("[b](format/b.md) [c](../docs/a.md#the-frame) [d](https://example.com/x) `crates/wal/`"), 0);
        assert_eq!(found("`crates/*/src` `docs/<name>`\n```\n[x](y)\n```"), 0);
        assert_eq!(headings("## The Frame!").collect::<Vec<_>>(), ["the-frame"]);
    }
}
