//! What is measured beside the calls: processor time, cores, how soon they wake and what pauses them, the disk alone, the machine.

pub mod cpu;
pub mod disk;
pub mod interrupts;
pub mod machine;
pub mod pauses;
pub mod real_time;
pub mod sleeper;

pub use cpu::{Meter, Sample};
pub use real_time::RealTime;
