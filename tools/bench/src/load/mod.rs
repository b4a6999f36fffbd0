//! The load generator: one thread, a closed or an open loop over several connections.
//!
//! - [`run`]: the loop. [`latencies`]: how long its calls took. [`wire`]: calls and replies as bytes. [`jobs`]: what is called and
//!   how a reply is judged.
//! - [`site`]: the directory on a server that a measurement works in, made and removed by it.

pub mod jobs;
pub mod latencies;
pub mod run;
pub mod site;
pub mod wire;

pub use jobs::Operation;
pub use run::{Length, Plan, Run, not_negative, positive, shape};
pub use site::Site;
