//! The checks that `docs/durability.md` says hold a promise exist.
//!
//! - In its tables a word in backticks names a check: `test NAME` a test function, `sim NAME` a property of the
//!   simulation, `prove NAME` a check of `cargo x prove`, `mutant NAME` a planted bug.
//! - A row of a table whose last column is "held by" names at least one.

use super::{File, Finding, Tree};

const DOCUMENT: &str = "docs/durability.md";
const COLUMN: &str = "held by";

pub fn check(tree: &Tree) -> Result<Vec<Finding>, String> {
    let Some(document) = tree.files.iter().find(|file| file.path == DOCUMENT) else {
        return Ok(vec![Finding::new(DOCUMENT, 0, "it is missing")]);
    };
    let exists = |kind: &str, name: &str| match kind {
        "test" => tree.files.iter().any(|file| has_test(file, name)),
        "sim" => tree.has(&format!("tools/sim/src/check/{name}.rs")),
        "prove" => tree.files.iter().any(|file| has_proof(file, name)),
        _ => tree.files.iter().any(|file| file.path.ends_with(".rs") && names_mutant(file, name)),
    };
    Ok(findings(&String::from_utf8_lossy(&document.bytes), &exists))
}

fn findings(text: &str, exists: &dyn Fn(&str, &str) -> bool) -> Vec<Finding> {
    let (mut found, mut held, mut tables) = (Vec::new(), false, 0);
    for (number, line) in (1..).zip(text.lines()) {
        if !line.starts_with('|') {
            held = false;
            continue;
        }
        if line.trim_end_matches(['|', ' ']).ends_with(COLUMN) {
            (held, tables) = (true, tables + 1);
            continue;
        }
        let names: Vec<(&str, &str)> = line.split('`').skip(1).step_by(2).filter_map(named).collect();
        if held && names.is_empty() && !line.contains("---") {
            found.push(Finding::new(DOCUMENT, number, "a promise that no check holds"));
        }
        for (kind, name) in names.into_iter().filter(|(kind, name)| !exists(kind, name)) {
            found.push(Finding::new(DOCUMENT, number, format!("there is no {kind} {name}")));
        }
    }
    if tables == 0 {
        found.push(Finding::new(DOCUMENT, 0, format!("no table has a column \"{COLUMN}\"")));
    }
    found
}

/// Kind and name, if that is what is in the backticks.
fn named(code: &str) -> Option<(&str, &str)> {
    let (kind, name) = code.split_once(' ')?;
    (matches!(kind, "test" | "sim" | "prove" | "mutant") && !name.contains(' ')).then_some((kind, name))
}

/// Whether a function of this name is a test: it has the attribute within the lines before it.
fn has_test(file: &File, name: &str) -> bool {
    if !file.path.ends_with(".rs") {
        return false;
    }
    let text = String::from_utf8_lossy(&file.bytes);
    let declared = format!("fn {name}(");
    let Some(at) = text.find(&declared) else { return false };
    text[..at].lines().rev().take(4).any(|line| line.contains("test") && line.trim_start().starts_with("#["))
}

/// Whether the list of proofs, or that of tests with real clients, has this one.
fn has_proof(file: &File, name: &str) -> bool {
    let row = match file.path.as_str() {
        "tools/xtask/src/prove.rs" => format!("(\"{name}\", "),
        "tools/xtask/src/test/rig.rs" => format!("name: \"{name}\","),
        _ => return false,
    };
    String::from_utf8_lossy(&file.bytes).contains(&row)
}

/// Whether a file of the mutants' list names this one.
fn names_mutant(file: &File, name: &str) -> bool {
    file.path.contains("mutant") && String::from_utf8_lossy(&file.bytes).contains(&format!("\"{name}\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> usize {
        findings(text, &|kind, name| (kind, name) == ("sim", "promise")).len()
    }

    #[test]
    fn a_promise_without_a_check_and_a_check_that_is_not_there_are_found() {
        assert_eq!(found("| promise | held by |\n|---|---|\n| a | `sim promise` |\n"), 0);
        assert_eq!(found("| promise | held by |\n|---|---|\n| a | nobody |\n"), 1);
        assert_eq!(found("| promise | held by |\n|---|---|\n| a | `sim promise`, `test gone` |\n"), 1);
        assert_eq!(found("no table\n"), 1);
    }

    #[test]
    fn a_test_is_known_by_its_attribute() {
        let file = |text: &str| File { path: "a.rs".into(), bytes: text.into() };
        assert!(has_test(&file("#[tokio::test]\nasync fn one() {"), "one"));
        assert!(!has_test(&file("fn one() {"), "one"));
    }
}
