//! rustfmt and clippy, with every warning an error.

use super::{Finding, Tree};

pub fn fmt(tree: &Tree) -> Result<Vec<Finding>, String> {
    run(tree, &["fmt", "--all", "--", "--check", "-l"], "cargo fmt --all")
}

pub fn clippy(tree: &Tree) -> Result<Vec<Finding>, String> {
    let arguments =
        ["clippy", "--quiet", "--workspace", "--all-targets", "--message-format=short", "--", "-D", "warnings"];
    run(tree, &arguments, "cargo clippy --workspace --all-targets")
}

/// One finding a line of output that names a place.
fn run(tree: &Tree, arguments: &[&str], again: &str) -> Result<Vec<Finding>, String> {
    let output = tree.workspace.cargo().args(arguments).output().map_err(|error| format!("{again}: {error}"))?;
    if output.status.success() {
        return Ok(Vec::new());
    }
    let printed = [output.stdout, output.stderr].concat();
    Ok(findings(&String::from_utf8_lossy(&printed), &format!("{}/", tree.workspace.root.display()), again))
}

/// What a failed tool printed, as findings; never none.
fn findings(printed: &str, root: &str, again: &str) -> Vec<Finding> {
    let mut found: Vec<Finding> = printed
        .lines()
        .map(|line| line.strip_prefix(root).unwrap_or(line))
        .filter(|line| line.contains(".rs"))
        .map(|line| match line.split_once(": ") {
            Some((place, what)) => Finding::new(place, 0, what),
            None => Finding::new(line, 0, format!("run `{again}`")),
        })
        .collect();
    if found.is_empty() {
        found.push(Finding::new("Cargo.toml", 0, format!("`{again}` failed: {}", printed.trim())));
    }
    found.dedup();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_tool_leaves_at_least_one_finding() {
        assert_eq!(findings("", "/r/", "cargo fmt").len(), 1);
        assert_eq!(findings("/r/crates/a.rs\n", "/r/", "cargo fmt")[0].path, "crates/a.rs");
        let clippy = findings("crates/a.rs:1:2: warning: unused\nwarning: 1 warning\n", "/r/", "cargo clippy");
        assert_eq!(clippy, [Finding::new("crates/a.rs:1:2", 0, "warning: unused")]);
    }
}
