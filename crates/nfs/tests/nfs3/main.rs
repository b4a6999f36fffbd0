//! The NFS front end over the model: bytes in, bytes out.

mod client;
mod connection;
mod exports;
mod garbage;
mod gated;
mod golden;
mod listing;
mod mount;
mod procedures;
mod released;
mod repeats;
mod turns;
