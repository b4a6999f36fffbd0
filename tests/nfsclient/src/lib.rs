//! A raw NFSv3 client for tests and measurements: no cache, no retries but those asked for, every reply seen.
//!
//! - [`xdr`]: bytes to words. [`rpc`]: one connection, records and replies. [`client`]: the procedures of RFC 1813.
//! - Blocking; it shares no code with the server it tests.

pub mod client;
pub mod dial;
pub mod error;
pub mod rpc;
pub mod types;
pub mod xdr;

pub use client::Client;
pub use error::{Error, Result, Status};
pub use rpc::{Connection, Credentials};
pub use types::{Attributes, Entry, Handle, Kind, Stable};
