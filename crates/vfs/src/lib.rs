//! The contract between front ends and the file system.
//!
//! Front ends translate a protocol into calls of [`FileSystem`]; the engine and the in-memory [`model`]
//! implement it. Everything that must mean the same to every front end lives here: types, permissions,
//! names, file handles, locks.

pub mod answer;
pub mod contract;
pub mod error;
pub mod handle;
pub mod locks;
pub mod model;
pub mod name;
pub mod op;
pub mod posix;
pub mod suite;
pub mod types;
pub mod walk;

pub use answer::{Answer, Done, Reply};
pub use contract::{EventSink, FileSystem};
pub use error::{Changes, Errno, Failure};
pub use handle::{Handle, HandleKey};
pub use types::*;
