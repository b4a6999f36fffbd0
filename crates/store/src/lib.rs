//! Moves bytes: the contract of an object store, its implementations and decorators.

pub mod contract;

pub use contract::{ObjectInfo, PutMode, Store, StoreError, StoreResult, Version};
