//! A Rust source file as the checks see it.
//!
//! - `code` has as many bytes and lines as `text`, with comments and the insides of literals blanked, so that an
//!   offset or a line means the same in both.
//! - Lines of `#[cfg(test)]` items count as test lines; so do whole files below a `tests` folder, files that only a
//!   `#[cfg(test)] mod name;` brings in, and `testing.rs`, what a crate offers to other crates' tests.

/// One file. Paths are relative to the workspace's root, with `/`.
pub struct Source {
    pub path: String,
    pub text: String,
    pub code: String,
    test_lines: Vec<bool>,
}

impl Source {
    pub fn new(path: &str, text: &str) -> Source {
        let code = blank(text);
        let whole = path.contains("/tests/") || path.ends_with("/testing.rs");
        let test_lines = if whole { vec![true; text.lines().count() + 1] } else { test_lines(&code) };
        Source { path: path.to_owned(), text: text.to_owned(), code, test_lines }
    }

    /// Is this line (from 0) only compiled for tests?
    pub fn is_test(&self, line: usize) -> bool {
        self.test_lines.get(line).copied().unwrap_or(false)
    }

    /// Lines of code outside tests, with their number from 0.
    pub fn program_lines(&self) -> impl Iterator<Item = (usize, &str)> {
        self.code.lines().enumerate().filter(|(line, _)| !self.is_test(*line))
    }

    /// Is the whole file only compiled for tests?
    pub fn is_all_test(&self) -> bool {
        self.test_lines.iter().all(|test| *test)
    }

    pub fn mark_test(&mut self) {
        self.test_lines.fill(true);
    }

    /// The files, as they may be called, that a `#[cfg(test)] mod name;` of this one brings in.
    pub fn test_files(&self) -> Vec<String> {
        let (folder, file) = self.path.rsplit_once('/').unwrap_or(("", &self.path));
        let stem = file.trim_end_matches(".rs");
        let below = match stem {
            "lib" | "main" | "mod" => folder.to_owned(),
            stem => format!("{folder}/{stem}"),
        };
        let mut files = Vec::new();
        for (at, _) in self.code.match_indices("#[cfg(test)]") {
            let item = self.text[at + 12..].split(['{', ';']).next().unwrap_or_default();
            if let Some((_, path)) = item.split_once("#[path = \"") {
                files.extend(path.split('"').next().map(|path| format!("{folder}/{path}")));
            } else if let Some((_, name)) = item.split_once("mod ") {
                files.push(format!("{below}/{}.rs", name.trim()));
                files.push(format!("{below}/{}/mod.rs", name.trim()));
            }
        }
        files
    }

    /// Folder of the crate this file belongs to, such as `crates/wal`.
    pub fn package(&self) -> &str {
        let mut slashes = self.path.match_indices('/').map(|(at, _)| at);
        slashes.nth(1).map_or("", |at| &self.path[..at])
    }
}

/// Blanks comments and the insides of string and character literals; keeps line ends.
fn blank(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut code = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let end = match bytes[at] {
            b'/' if bytes.get(at + 1) == Some(&b'/') => find(bytes, at, |byte| byte == b'\n'),
            b'/' if bytes.get(at + 1) == Some(&b'*') => block_comment_end(bytes, at),
            b'"' => string_end(bytes, at),
            b'r' if !is_word_before(bytes, at) => raw_string_end(bytes, at).unwrap_or(at),
            b'\'' => character_end(bytes, at).unwrap_or(at),
            _ => at,
        };
        if end == at {
            code.push(bytes[at]);
            at += 1;
            continue;
        }
        // The two delimiters of a literal stay, so that `"" ` is still seen to be there.
        let literal = bytes[at] != b'/';
        for (offset, byte) in bytes[at..end].iter().enumerate() {
            let delimiter = literal && (offset == 0 || at + offset + 1 == end);
            code.push(if *byte == b'\n' || delimiter { *byte } else { b' ' });
        }
        at = end;
    }
    String::from_utf8_lossy(&code).into_owned()
}

fn find(bytes: &[u8], from: usize, wanted: impl Fn(u8) -> bool) -> usize {
    bytes[from..].iter().position(|byte| wanted(*byte)).map_or(bytes.len(), |offset| from + offset)
}

fn is_word_before(bytes: &[u8], at: usize) -> bool {
    // `br"..."` is a raw string too.
    let before = if at > 0 && bytes[at - 1] == b'b' { at.checked_sub(2) } else { at.checked_sub(1) };
    before.is_some_and(|before| is_word(bytes[before]))
}

pub fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

fn block_comment_end(bytes: &[u8], from: usize) -> usize {
    let mut depth = 0;
    let mut at = from;
    while at + 1 < bytes.len() {
        match &bytes[at..at + 2] {
            b"/*" => {
                depth += 1;
                at += 2;
            }
            b"*/" => {
                depth -= 1;
                at += 2;
                if depth == 0 {
                    return at;
                }
            }
            _ => at += 1,
        }
    }
    bytes.len()
}

fn string_end(bytes: &[u8], from: usize) -> usize {
    let mut at = from + 1;
    while at < bytes.len() {
        match bytes[at] {
            b'\\' => at += 2,
            b'"' => return at + 1,
            _ => at += 1,
        }
    }
    bytes.len()
}

fn raw_string_end(bytes: &[u8], from: usize) -> Option<usize> {
    let open = find(bytes, from + 1, |byte| byte != b'#');
    if bytes.get(open) != Some(&b'"') {
        return None;
    }
    let mut close = vec![b'"'];
    close.extend_from_slice(&bytes[from + 1..open]);
    let body = &bytes[open + 1..];
    let end = body.windows(close.len()).position(|window| window == close);
    Some(end.map_or(bytes.len(), |end| open + 1 + end + close.len()))
}

/// `'a'` and `'\n'` are characters, `'a` is a lifetime.
fn character_end(bytes: &[u8], from: usize) -> Option<usize> {
    let next = *bytes.get(from + 1)?;
    if next == b'\\' {
        return Some((find(bytes, from + 3, |byte| byte == b'\'') + 1).min(bytes.len()));
    }
    let width = match next {
        0..=0x7f => 1,
        0x80..=0xdf => 2,
        0xe0..=0xef => 3,
        _ => 4,
    };
    (bytes.get(from + 1 + width) == Some(&b'\'')).then_some(from + width + 2)
}

/// Marks the lines of every item under `#[cfg(test)]`.
fn test_lines(code: &str) -> Vec<bool> {
    let mut marked = vec![false; code.lines().count() + 1];
    for (at, _) in code.match_indices("#[cfg(test)]") {
        let rest = &code[at..];
        let end = match (rest.find('{'), rest.find(';')) {
            (Some(brace), semicolon) if semicolon.is_none_or(|semicolon| brace < semicolon) => {
                at + brace + braces_end(&rest[brace..])
            }
            (_, Some(semicolon)) => at + semicolon,
            _ => code.len(),
        };
        let (first, last) = (line_of(code, at), line_of(code, end));
        marked[first..=last].fill(true);
    }
    marked
}

/// The offset just behind the brace that closes the one at offset 0.
pub fn braces_end(code: &str) -> usize {
    let mut depth = 0;
    for (at, byte) in code.bytes().enumerate() {
        match byte {
            b'{' => depth += 1,
            b'}' => {
                depth -= 1;
                if depth == 0 {
                    return at + 1;
                }
            }
            _ => {}
        }
    }
    code.len()
}

/// The line (from 0) of an offset.
pub fn line_of(text: &str, at: usize) -> usize {
    text.as_bytes()[..at.min(text.len())].iter().filter(|byte| **byte == b'\n').count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_literals_are_blanked_and_lines_kept() {
        let source =
            Source::new("crates/a/src/b.rs", "let a = \"x // {\"; // c\nlet b = '{'; /* {\n */ fn f<'a>() {}\n");
        assert_eq!(source.code, "let a = \"      \";     \nlet b = ' ';     \n    fn f<'a>() {}\n");
    }

    #[test]
    fn files_of_test_modules_are_told() {
        let text = "#[cfg(test)]\nmod fake;\n#[cfg(test)]\n#[path = \"a_tests.rs\"]\nmod tests;\nmod real;";
        let source = Source::new("crates/a/src/b.rs", text);
        let files = source.test_files();
        assert_eq!(files, ["crates/a/src/b/fake.rs", "crates/a/src/b/fake/mod.rs", "crates/a/src/a_tests.rs"]);
        assert!(!source.is_all_test());
    }

    #[test]
    fn raw_strings_are_blanked() {
        let source = Source::new("crates/a/src/b.rs", "let a = br#\"fn \" {\"#; let r = 1;");
        assert!(!source.code.contains("fn"), "{}", source.code);
        assert!(source.code.ends_with("let r = 1;"), "{}", source.code);
    }

    #[test]
    fn test_modules_are_told_from_the_program() {
        let source =
            Source::new("crates/a/src/b.rs", "fn a() {}\n#[cfg(test)]\nmod tests {\n fn b() {}\n}\nfn c() {}\n");
        let lines: Vec<usize> = source.program_lines().map(|(line, _)| line).collect();
        assert_eq!(lines, [0, 5]);
        assert_eq!(source.package(), "crates/a");
    }
}
