//! A deterministic world in which the node - its NFS front end included, its sockets not - is crashed and compared with the model.
//!
//! - One seed is one history: `tarn-sim run --seed N --trace` replays it exactly, and prints it.
//! - The seed decides the workload, the speeds, the faults of disk and store, where the power goes, how each life ends.
//! - What must hold is in [`check`], one property a file.

pub mod administrator;
pub mod chance;
pub mod chaos;
pub mod check;
pub mod client;
pub mod coverage;
pub mod demand;
pub mod failure;
pub mod flips;
pub mod front;
pub mod late;
pub mod legible;
pub mod machine;
pub mod pairs;
pub mod plan;
pub mod story;
pub mod trace;
pub mod tracker;
pub mod workload;
pub mod world;
