//! Administration: the Unix socket for commands, the HTTP port for watching.

pub mod client;
pub mod http;
mod metrics;
pub mod service;
pub mod socket;
