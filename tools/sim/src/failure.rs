//! What is wrong with a history.

use std::fmt;

/// A property that does not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The check, by the name of its file.
    pub property: &'static str,
    pub expected: String,
    pub found: String,
}

pub type Checked = Result<(), Failure>;

impl Failure {
    pub fn new(property: &'static str, expected: impl Into<String>, found: impl Into<String>) -> Failure {
        Failure { property, expected: expected.into(), found: found.into() }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "property: {}", self.property)?;
        writeln!(f, "expected: {}", self.expected)?;
        write!(f, "found:    {}", self.found)
    }
}
