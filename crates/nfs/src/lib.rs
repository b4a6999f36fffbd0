//! Speaks NFSv3 (RFC 1813) with all that belongs to it, over the file system that `vfs` describes.
//!
//! - [`wire`]: bytes to types.
//! - [`service`]: programs that share a port.

pub mod service;
pub mod wire;
