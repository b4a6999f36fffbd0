//! NFS version 3 (RFC 1813): what travels in arguments and results.

pub mod args;
pub mod types;

pub use args::*;
pub use types::*;
