//! The secret that a controller and its agents share.
//!
//! - From a file that both have, or drawn by the agent when it starts and printed.
//! - It crosses the network as it is: between agents and controller lies a network that is trusted, or a tunnel.

use crate::Outcome;
use std::fmt::Write;
use std::io::Read;
use std::path::Path;

/// Shortest and longest that is taken.
const LENGTH_MIN: usize = 16;
const LENGTH_MAX: usize = 1024;
/// Random bytes of one that is drawn.
const DRAWN: usize = 16;

/// Not shown by `{:?}`.
#[derive(Clone)]
pub struct Token(String);

impl Token {
    /// The first line of a file.
    pub fn read(path: &Path) -> Outcome<Token> {
        let failed = |what: &str| format!("{}: {what}", path.display());
        let mut text = String::new();
        let file = std::fs::File::open(path).map_err(|error| failed(&error.to_string()))?;
        file.take(LENGTH_MAX as u64 + 2).read_to_string(&mut text).map_err(|error| failed(&error.to_string()))?;
        let line = text.lines().next().unwrap_or_default().trim();
        if !(LENGTH_MIN..=LENGTH_MAX).contains(&line.len()) {
            return Err(failed(&format!("a token is a line of {LENGTH_MIN} to {LENGTH_MAX} bytes")));
        }
        Ok(Token(line.to_owned()))
    }

    /// A new one, of the system's random numbers.
    pub fn draw() -> Outcome<Token> {
        let mut bytes = [0; DRAWN];
        let random = std::fs::File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut bytes));
        random.map_err(|error| format!("/dev/urandom: {error}"))?;
        let hex = bytes.iter().fold(String::new(), |mut text, byte| {
            let _ = write!(text, "{byte:02x}");
            text
        });
        Ok(Token(hex))
    }

    /// As it is said and printed.
    pub fn text(&self) -> &str {
        &self.0
    }

    /// Whether it is what was said. How long that takes tells the length at most.
    pub fn is(&self, said: &str) -> bool {
        let (own, said) = (self.0.as_bytes(), said.as_bytes());
        let differ = own.iter().zip(said).fold(0, |differ, (own, said)| std::hint::black_box(differ | (own ^ said)));
        own.len() == said.len() && differ == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_whole_token_is_it() {
        let token = Token::draw().unwrap();
        let text = token.text().to_owned();
        assert_eq!(text.len(), 32);
        assert!(token.is(&text));
        for wrong in ["", &text[..31], &format!("{text}0"), &text.replacen(&text[31..], "x", 1)] {
            assert!(!token.is(wrong), "{wrong}");
        }
        assert_ne!(text, Token::draw().unwrap().text());
    }

    #[test]
    fn a_file_holds_one_line_of_some_length() {
        let path = std::env::temp_dir().join(format!("tarn-bench-token-{}", std::process::id()));
        for (text, right) in [("0123456789abcdef\n", true), ("short\n", false), ("", false)] {
            std::fs::write(&path, text).unwrap();
            assert_eq!(Token::read(&path).is_ok(), right, "{text:?}");
        }
        std::fs::write(&path, vec![b'a'; 4096]).unwrap();
        assert!(Token::read(&path).is_err());
        std::fs::remove_file(&path).unwrap();
        assert!(Token::read(&path).is_err());
    }
}
