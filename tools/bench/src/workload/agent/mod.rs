//! Several hosts that make one load: agents that wait, and a controller that deals out, starts together and adds up.
//!
//! - [`serve`]: the agent. [`control`]: the controller's side of all agents of a run.
//! - [`link`]: frames over TCP, and whether the other side lives. [`message`]: what is said. [`token`]: who may.
//! - An agent loads what its controller names: it obeys nobody who does not know its token.
//! - An agent that dies, stalls or fails ends the run with its name: a part of a load is no load.

pub mod control;
pub mod link;
pub mod message;
pub mod serve;
pub mod token;
