//! Function length: 70 lines from `fn` to its closing brace. File length: 700 lines, and a header.
//!
//! - A dispatch table or an exhaustive map may be longer: `// long: reason` among the lines right above the function.
//! - Every file begins with `//!`: what it is for. Modules of unit tests are explained by what they test.

use super::{Finding, Tree};
use crate::source::{Source, braces_end, is_word, line_of};

const FUNCTION_LINES_MAX: usize = 70;
const FILE_LINES_MAX: usize = 700;

pub fn check(tree: &Tree) -> Result<Vec<Finding>, String> {
    Ok(tree.sources.iter().flat_map(findings).collect())
}

fn findings(source: &Source) -> Vec<Finding> {
    let mut found = functions(source);
    let lines = source.text.lines().count();
    if lines > FILE_LINES_MAX {
        let what = format!("has {lines} lines, more than {FILE_LINES_MAX}; split it by meaning");
        found.push(Finding::new(&source.path, 0, what));
    }
    let first = source.text.lines().find(|line| !line.trim().is_empty() && !line.starts_with("#!["));
    let explained = source.is_all_test() && source.path.contains("/src/");
    if !explained && first.is_some_and(|line| !line.starts_with("//!")) {
        found.push(Finding::new(&source.path, 1, "has no header; begin with `//!`, its purpose and its invariants"));
    }
    found
}

fn functions(source: &Source) -> Vec<Finding> {
    let code = &source.code;
    let mut found = Vec::new();
    for (at, _) in code.match_indices("fn ") {
        if at > 0 && is_word(code.as_bytes()[at - 1]) {
            continue;
        }
        let Some(body) = body(&code[at..]) else { continue };
        let first = line_of(code, at);
        let lines = line_of(code, at + body + braces_end(&code[at + body..])) - first + 1;
        if lines > FUNCTION_LINES_MAX && !excused(source, first) {
            let name: String = code[at + 3..].chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
            let what = format!(
                "{name} has {lines} lines, more than {FUNCTION_LINES_MAX}; divide it, or say `// long: reason` above"
            );
            found.push(Finding::new(&source.path, first + 1, what));
        }
    }
    found
}

/// Offset of the opening brace; none for a declaration or a function type.
fn body(from: &str) -> Option<usize> {
    // Array types hold a `;` between brackets.
    let mut depth = 0;
    for (at, byte) in from.bytes().enumerate() {
        match byte {
            b'[' | b'(' => depth += 1,
            b']' | b')' => depth -= 1,
            b'{' if depth == 0 => return Some(at),
            b';' if depth == 0 => return None,
            _ => {}
        }
        if depth < 0 {
            return None;
        }
    }
    None
}

/// Is there a `// long: reason` among the comments and attributes right above?
fn excused(source: &Source, first: usize) -> bool {
    let lines: Vec<&str> = source.text.lines().collect();
    lines[..first]
        .iter()
        .rev()
        .map(|line| line.trim())
        .take_while(|line| line.starts_with("//") || line.starts_with("#["))
        .any(|line| line.strip_prefix("// long: ").is_some_and(|reason| !reason.is_empty()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn function(lines: usize, above: &str) -> Vec<Finding> {
        let body = "    call();\n".repeat(lines - 2);
        let text = format!("//! Header.\n{above}pub fn long<T>(a: [u8; 4]) -> T\n{{\n{}}}\n", &body[12..]);
        findings(&Source::new("crates/a/src/b.rs", &text))
    }

    #[test]
    fn a_function_of_71_lines_is_found_and_one_of_70_is_not() {
        assert_eq!(function(71, "").len(), 1);
        assert!(function(70, "").is_empty());
    }

    #[test]
    fn a_reason_excuses() {
        assert!(function(100, "// long: dispatch table\n#[inline]\n").is_empty());
        assert_eq!(function(100, "// long: \n").len(), 1);
    }

    #[test]
    fn a_long_file_and_a_missing_header_are_found() {
        let long = format!("//! Header.\n{}", "\n".repeat(700));
        assert_eq!(findings(&Source::new("crates/a/src/b.rs", &long)).len(), 1);
        assert_eq!(findings(&Source::new("crates/a/src/b.rs", "use a;\n")).len(), 1);
    }
}
