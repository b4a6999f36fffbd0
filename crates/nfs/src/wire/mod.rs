//! Bytes to types and back, without knowledge of files.
//!
//! - Decoders are `fn(&[u8]) -> Result`: they judge, borrow, and never panic.
//! - Encoders append to a [`xdr::Writer`] and cannot fail.

pub mod mount3;
pub mod nfs3;
pub mod rpc;
pub mod xdr;
