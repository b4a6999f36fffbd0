//! Workloads: documented data files over one engine of load.
//!
//! - [`definition`]: what a workload's file says. [`library`]: those that come with the program.
//! - [`files`]: the files it works on. [`process`]: who does what when. [`place`]: an export or a local directory.
//! - [`generator`]: one generator's part of a run. [`site`]: a target that is open. [`run`]: cell after cell. [`judge`]: what counts. [`steady`]: checkpoints at set moments. [`result`]: what was seen.
//! - [`agent`]: several hosts that make one load.
//! - [`admin`]: what a Tarn says of itself; [`bill`]: what its requests cost; [`progress`]: how far the run is.
//! - [`cli`]: the command. [`record`]: latencies while the load runs. [`table`]: the result on the terminal; [`page`]: as one HTML page; [`kept`]: files, and what is taken over from them.

pub mod admin;
pub mod agent;
pub mod bill;
pub mod cli;
pub mod definition;
pub mod files;
pub mod generator;
pub mod judge;
pub mod kept;
pub mod library;
pub mod page;
pub mod place;
pub mod process;
pub mod progress;
pub mod record;
pub mod result;
pub mod run;
pub mod site;
pub mod steady;
pub mod table;
