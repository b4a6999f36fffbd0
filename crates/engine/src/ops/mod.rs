//! The operations, one file each: pure functions over what is in RAM ([`crate::run::Operation`]).

pub mod access;
pub mod commit;
pub mod create;
mod data;
mod directory;
pub mod getattr;
pub mod link;
pub mod list;
pub mod lock;
pub mod lookup;
pub mod make;
pub mod read;
pub mod readlink;
pub mod remove;
pub mod rename;
pub mod setattr;
pub mod settle;
pub mod statfs;
pub mod write;
