//! Names bytes: the ordered key-value contract and its engines.

pub mod contract;

pub use contract::{Batch, MetaError, MetaOpener, MetaResult, MetaStore, MetaView, Page};
