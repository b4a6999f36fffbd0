//! The port mapper (RFC 1833): tells clients on which port a program listens, and serves programs over UDP.
//!
//! How it is started:
//! 1. Bind TCP and UDP on port 111 (`[::]:111`, or the address of the other listeners).
//! 2. Fill a [`Table`]: one [`Table::register`] for each program, transport and listening address - NFS, MOUNT
//!    and NLM (version 4) over TCP on the NFS port, this program ([`PROGRAM`], versions 2 to 4) and
//!    the status monitor over TCP and UDP on port 111. Register what is served, nothing else.
//! 3. `let shared = Shared::new(fs, vec![Arc::new(Portmap::new(table, world)), nsm], world, settings)`, and
//!    - TCP: [`crate::server::serve_connection`] for each accepted connection, on any core or in the background;
//!    - UDP: run [`serve_udp`]`(socket, shared, world)` on the background runtime.

mod datagrams;
pub mod proto;
mod server;
#[cfg(test)]
mod tests;

pub use datagrams::serve_udp;
pub use proto::{PORT, PROGRAM};
pub use server::{Portmap, Registration, Table};
