//! Calls to clients: a grant to a lock daemon, a notice of a restart to a status monitor.
//!
//! How it is started: implement [`Dialer`] over real sockets (a connected [`tokio::net::UdpSocket`] or
//! [`tokio::net::TcpStream`] is a [`Conversation`] once wrapped in [`Datagrams`] or [`Records`]), make one
//! [`Outbound`] of it and the [`tarn_base::world::World`], and hand that to the lock and the status service.
//! Futures run on the background runtime, which therefore needs IO enabled.

mod call;
mod contact;
mod dial;
#[cfg(test)]
pub(crate) mod fake;

pub use call::{Attempt, CallFailed, Outbound, Question};
pub use contact::Contact;
pub use dial::{Conversation, Datagrams, Dialer, Records, Step};
