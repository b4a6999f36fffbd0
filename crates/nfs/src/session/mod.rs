//! What lies between a socket and a program, as state machines without IO.
//!
//! - [`record`]: record marks of RPC over TCP.
//! - [`once`]: how a call that was sent again is recognised.

pub mod once;
pub mod record;
