//! Moves bytes: the contract of an object store, its implementations and decorators.
//!
//! Stores: [`memory`], [`local`] (a directory), [`cloud`] (S3, Azure), chosen by [`url`]. Decorators: [`prefix`],
//! [`sealed`] (encryption), [`retry`], [`shape`] (latency and rates), [`meter`], [`fault`]. [`suite`] is what each of
//! them must pass, [`probe`] what is asked of one before it is relied on; [`bridge`] shows a store to the metadata engine, and
//! [`sequence`] is what it misses.

pub mod bridge;
pub mod cloud;
pub mod contract;
pub mod fault;
pub mod local;
pub mod memory;
pub mod meter;
pub mod name;
pub mod operation;
pub mod prefix;
pub mod probe;
pub mod retry;
pub mod sealed;
pub mod sequence;
pub mod shape;
pub mod suite;
pub mod url;

pub use contract::{ObjectInfo, PutMode, Store, StoreError, StoreResult, Version};
