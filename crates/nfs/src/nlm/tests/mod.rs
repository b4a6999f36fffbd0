//! The lock manager over a whole file system in memory and clients that answer as they are told.

pub(crate) mod bench;
mod grants;
mod procedures;
mod races;
