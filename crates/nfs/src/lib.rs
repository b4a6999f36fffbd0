//! Speaks NFSv3 (RFC 1813) with all that belongs to it, over the file system that `vfs` describes.
//!
//! - [`wire`]: bytes to types, without knowledge of files.
//! - [`session`]: framing and the recognition of repeats, without IO.
//! - [`service`]: programs that share a port.
//! - [`exports`], [`gate`]: who may, and as whom.
//! - [`ops`]: the procedures of NFS, one file each; [`map`]: the only file that knows both the file system's
//!   errors and the protocol's.
//! - [`mount`]: from a path to the first handle.
//! - [`server`]: connections and datagrams, counters, who is connected.
//! - [`nlm`], [`nsm`], [`portmap`]: locks, restarts of either side, and where to find the programs.
//! - [`peer`]: calls to clients.

pub mod exports;
pub mod gate;
pub mod map;
pub mod mount;
pub mod nlm;
pub mod nsm;
pub mod ops;
pub mod peer;
pub mod portmap;
pub mod server;
pub mod service;
pub mod session;
pub mod wire;
