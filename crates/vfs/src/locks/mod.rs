//! Byte-range locks: one state machine for every front end.
//!
//! - Asking decides and changes nothing: a `decide_` function gives the outcome, the [`Transition`]s that make it
//!   true and the waiting requests that are granted by it. [`LockTable::apply`] is the only thing that changes
//!   the table; the live path logs a decision's transitions and applies them, recovery applies what it reads, so
//!   both end in the same state.
//! - A lock belongs to an owner: (client, owner). [`crate::LockOwner::process`] is shown, not compared; a
//!   front end whose owners differ by it puts it into `owner`.
//! - An owner never conflicts with itself: asking again replaces what it holds there, up or down, splitting and
//!   joining ranges as POSIX says.
//! - Whoever waits is queued per object, in order. What becomes free is given to the queue in that order, to
//!   everybody whom nothing held is in the way of. A waiting request holds up nobody else; a new request that
//!   nothing held is in the way of is granted at once, past the queue, as Linux does.
//! - Waiting for each other is left to clients: a queued request can be cancelled, and clients that wait for a
//!   lock ask again by themselves. [`crate::Errno::Deadlock`] is never given.
//! - During grace only reclaims are granted; outside it a reclaim is granted only of what is held already,
//!   because somebody else may have had the lock meanwhile.
//! - Locks of an object that is gone are gone.
//! - The same transitions in the same order give the same table, byte for byte of its image.

mod image;
mod ranges;
mod table;
mod transition;

pub use table::{Decision, LOCKS_PER_CLIENT_MAX, LockTable};
pub use transition::Transition;
