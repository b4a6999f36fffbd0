//! Who may mount what, and as whom.
//!
//! - [`rules`]: the text of an export list and what it means; no clock, no network.
//! - [`names`]: host names in rules, resolved by whoever is handed in.
//! - [`table`]: the lists of all volumes, kept up to date.

pub mod names;
pub mod rules;
pub mod table;

pub use names::{Names, Resolver};
pub use rules::{Grant, LOOPBACK_DEFAULT, Rule, RuleError, RuleSet, Squash};
pub use table::{Export, Exports, Table};
