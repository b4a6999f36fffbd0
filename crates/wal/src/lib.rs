//! Orders bytes: the durable write log.

pub mod contract;

pub use contract::{Appended, Entry, LogError, LogPlace};
