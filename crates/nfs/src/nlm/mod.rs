//! The Network Lock Manager, version 4: byte-range locks for clients of NFSv3, with grants told by calling back.
//!
//! How it is started, once the file system is open and before it serves:
//! 1. `let outbound = Arc::new(peer::Outbound::new(dialer, world))`: see [`crate::peer`].
//! 2. `let nlm = Nlm::new(gate, outbound, world, address)`. `address` is the address the NFS listener is bound to,
//!    `None` if that is the wildcard.
//! 3. `fs.set_event_sink(nlm.clone())`, then `nlm.resume()`, which reads back who waits.
//! 4. Add `nlm` to the programs of the NFS port (TCP; also over UDP with [`crate::portmap::serve_udp`] if the port
//!    mapper is to offer that) and register it with the port mapper as [`PROGRAM`], version [`VERSION`].
//!
//! Deliveries are tasks of their own, started through the world.
//!
//! - What is held is the file system's to know; what is here is whom to tell ([`waiters`]).
//! - Whoever asks is judged by the export list of the volume, as for every other call.

pub mod clients;
mod deliver;
mod locks;
mod map;
pub mod proto;
mod release;
mod server;
mod shares;
mod turns;
mod waiters;

#[cfg(test)]
pub(crate) mod tests;
#[cfg(test)]
pub(crate) use tests::bench;

pub use proto::{PROGRAM, VERSION};
pub use server::Nlm;
