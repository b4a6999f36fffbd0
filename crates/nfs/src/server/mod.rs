//! Serves connections and datagrams that the program hands in.
//!
//! - [`connection`]: one TCP connection, from its first byte to its last.
//! - [`inbox`]: what has been received and not yet taken, in as little memory as that needs.
//! - [`outbox`]: replies that may leave, and replies that wait for the log.
//! - [`counters`], [`clients`]: what operators see of it.

pub mod clients;
pub mod connection;
pub mod counters;
mod inbox;
mod outbox;
mod shared;
mod thread;

pub use clients::{ClientInfo, Clients};
pub use connection::{Socket, serve_connection};
pub use counters::{Counters, ProcedureStats};
pub use shared::{Settings, Shared, answer_datagram, prepare};
