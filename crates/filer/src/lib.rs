//! Wires Tarn together: configuration, command line, service.
//!
//! - The only crate, beside the simulator, that makes clocks, randomness, sockets, files and threads.
//! - [`node`] is the only module that knows the engine, [`front`] the only one that knows the protocols.

// What is banned elsewhere is made here and handed down.
#![allow(clippy::disallowed_methods)]

mod admin;
pub mod cli;
pub mod config;
#[doc(hidden)]
pub mod decoders;
pub mod exit;
mod flush;
mod front;
pub mod keys;
mod memory;
mod net;
mod node;
mod place;
mod protocol;
mod report;
mod serve;
pub mod sizes;
mod slice;
mod socket;
mod world;
