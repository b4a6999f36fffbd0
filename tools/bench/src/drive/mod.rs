//! The generator's machinery: many small programs of a load on one thread, without a runtime's noise.
//!
//! - [`reactor`]: runs futures, wakes them by reply or by the clock, to the microsecond.
//! - [`connection`]: calls over TCP as futures; a broken connection is opened again and its calls are sent again.
//! - [`ring`]: reads and writes of a file past the page cache, as futures.
//! - [`pattern`]: what files hold, and whether what came back is it.
//! - [`random`]: choices that a seed repeats.

pub mod connection;
pub mod pattern;
pub mod random;
pub mod reactor;
pub mod ring;
