//! Measures NFSv3 servers beside each other.
//!
//! - [`load`]: a closed or open loop of calls over several connections, every reply checked; one wrong reply voids a run.
//! - [`null`]: a server that only frames and answers, with or without a log: the floor beside every figure.
//! - [`measure`]: processor time of a server, cores, the disk alone, the machine.
//! - [`servers`]: starts Tarn, the null server and NFS-Ganesha, each pinned, and ends them.
//! - [`compare`]: several servers in turns, medians, and medians of paired ratios.
//! - [`scale`]: very many files, a very large directory, a very large file.
//! - [`fairness`]: what a greedy client and background work leave of others' latency.
//! - [`figures`]: the table of `docs/performance.md`.
//! - [`workload`]: documented loads, each answer checked; [`drive`]: the machinery they run on; [`ort`]: overall response time.
//! - [`against_fio`]: this generator beside fio, which measures the generator.
//! - [`claims`]: what the systems that Tarn follows claim, beside what is measured.
//! - [`size`]: what a load needs, forecast from what was measured.
//! - [`bend`]: a server that lies, which a run must find out.
//! - It shares no code with the server it measures.

pub mod against_fio;
pub mod bend;
pub mod claims;
pub mod compare;
pub mod content;
pub mod drive;
pub mod fairness;
pub mod figures;
pub mod load;
pub mod measure;
pub mod null;
pub mod ort;
pub mod report;
pub mod scale;
pub mod servers;
pub mod size;
pub mod stream;
pub mod target;
pub mod workload;

/// Whatever fails ends the measurement with its text: a figure beside a failure is worth nothing.
pub type Outcome<T> = Result<T, String>;
