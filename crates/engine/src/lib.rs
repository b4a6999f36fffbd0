//! The file system: operations over keys in RAM, a log that makes them durable, checkpoints that move them to the
//! object store. How it all fits is in `ARCHITECTURE.md`, its rules in `docs/internals/engine.md`.

mod admin;
mod cache;
pub mod config;
mod core;
mod engine;
mod entry;
mod fetch;
mod filesystem;
mod hash;
mod key;
mod once;
mod ops;
mod overlay;
mod readahead;
mod run;
mod segments;
mod session;
mod stripes;
mod tx;
mod value;
mod volumes;

pub use admin::{AdminError, VolumeSpec, VolumeStatus};
pub use config::Config;
pub use engine::Engine;
