//! The MOUNT protocol, version 3 (RFC 1813 appendix I): from a path to the first handle.
//!
//! - [`program`]: the six procedures.
//! - [`path`]: what a path means.
//! - [`list`]: who has mounted what, as far as clients say; lost by a restart, as RFC 1813 allows.

pub mod list;
pub mod path;
mod program;

pub use list::{Mounted, Mounts};
pub use program::Mount;
