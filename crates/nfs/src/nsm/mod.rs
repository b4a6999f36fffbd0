//! The Network Status Monitor, version 1 (X/Open XNFS chapter 11): who has restarted.
//!
//! How it is started, once the file system is open and [`crate::nlm::Nlm`] exists:
//! 1. `let nsm = Arc::new(Nsm::new(fs, nlm))`.
//! 2. Add `nsm` to the programs of port 111, TCP and UDP (see [`crate::portmap`]), and register it as [`PROGRAM`],
//!    version [`VERSION`].
//! 3. Run [`notify_clients`]`(fs, outbound, world, names)` once on the background runtime, after the port mapper and
//!    the NFS port serve: clients come back at once to reclaim. `names` are the names by which clients mount from
//!    here, the host name at least.

mod notify;
pub mod proto;
mod server;

#[cfg(test)]
mod tests;

pub use notify::notify_clients;
pub use proto::{PROGRAM, VERSION};
pub use server::{Nsm, state_number};
