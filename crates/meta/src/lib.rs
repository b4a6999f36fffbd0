//! Names bytes: the ordered key-value contract and its engines.
//!
//! [`mem`] is the model, for tests and simulation; [`slate`] keeps its state in an object store. [`suite`] is what both
//! must pass.

pub mod contract;
pub mod mem;
pub mod slate;
pub mod suite;

pub use contract::{Batch, MetaError, MetaLook, MetaOpener, MetaResult, MetaStore, MetaView, Page};
