//! What a run has shown, as data: the JSON that reports are made of.

use crate::workload::admin::Requests;
use crate::workload::bill::Bill;
use serde::{Deserialize, Serialize};

/// A whole run against one target.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Report {
    /// Of this format.
    pub version: u32,
    pub workload: String,
    pub title: String,
    pub follows: String,
    pub notice: String,
    pub target: String,
    /// What load is counted in.
    pub unit: String,
    /// Seconds since 1970.
    pub began: u64,
    pub seed: u64,
    /// The data's size as a share of what the workload says.
    pub scale: f64,
    /// What was asked for beside workload and target: cells are taken over only by who asks for the same.
    #[serde(default)]
    pub asked: String,
    /// Units at the peak.
    pub peak: f64,
    pub files: u64,
    pub bytes: u64,
    pub directories: u64,
    pub connections: u64,
    /// Microseconds of a NULL call on an idle connection, the median; for a directory 0.
    pub rtt_us: f64,
    /// What is durable when a reply leaves, in words.
    pub stable_storage: String,
    /// What the server says of itself.
    pub configuration: serde_json::Value,
    pub machine: String,
    /// Of the last minute before the run; `None` where it was not looked at.
    #[serde(default)]
    pub load_average: Option<f64>,
    /// The agents that made the load; none where this program did it alone.
    #[serde(default)]
    pub generators: Vec<Generator>,
    pub cells: Vec<Cell>,
    /// Overall response time in ms, where the workload has one.
    pub ort_ms: Option<f64>,
    /// What the server asked of its object store, if it tells.
    #[serde(default)]
    pub bill: Option<Bill>,
    pub valid: bool,
    /// Why it is not.
    pub reasons: Vec<String>,
}

pub const VERSION: u32 = 1;

/// An agent that took part.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Generator {
    /// Where it listens.
    pub address: String,
    pub machine: String,
    /// Microseconds from this program to it and back, the least of several.
    pub rtt_us: f64,
    /// Microseconds of a NULL call from it to the target, the median.
    pub target_rtt_us: f64,
    pub connections: u64,
}

/// One measurement.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Cell {
    pub name: String,
    pub load: f64,
    pub seconds: f64,
    /// Operations a second; 0 for a closed loop.
    pub requested: f64,
    pub achieved: f64,
    pub latency_ms: Latency,
    pub read_mb_s: f64,
    pub write_mb_s: f64,
    pub operations: Vec<Operation>,
    /// Processor seconds of the server's process; `None` if it is not on this machine.
    pub server_cpu_s: Option<f64>,
    pub server_rss_mib: Option<f64>,
    pub generator_cpu_s: f64,
    /// Microseconds that an idle process began late, 99 of 100 times at most.
    pub lateness_us: f64,
    /// Per cent by which a percentile misses that of the sorted latencies, at most; `None` where those were not kept.
    #[serde(default)]
    pub histogram_off: Option<f64>,
    /// What the server asked of its object store meanwhile, warm-up included; `None` if it does not tell.
    #[serde(default)]
    pub requests: Option<Vec<Requests>>,
    pub reopened: u64,
    pub jukebox: u64,
    pub verifiers: u64,
    pub valid: bool,
    pub reasons: Vec<String>,
}

/// Milliseconds.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize)]
pub struct Latency {
    pub mean: f64,
    pub p50: f64,
    pub p90: f64,
    pub p99: f64,
    pub p999: f64,
    pub max: f64,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Operation {
    pub component: String,
    pub operation: String,
    pub count: u64,
    /// Per cent of all operations of the cell.
    pub share: f64,
    /// Per cent that the workload asks for; `None` for closed loops of several components.
    pub wanted: Option<f64>,
    pub latency_ms: Latency,
}

impl Latency {
    /// From nanoseconds.
    pub fn of(histogram: &hdrhistogram::Histogram<u64>) -> Latency {
        let ms = |nanoseconds: u64| nanoseconds as f64 / 1e6;
        let at = |quantile| ms(histogram.value_at_quantile(quantile));
        if histogram.is_empty() {
            return Latency::default();
        }
        Latency {
            mean: histogram.mean() / 1e6,
            p50: at(0.5),
            p90: at(0.9),
            p99: at(0.99),
            p999: at(0.999),
            max: ms(histogram.max()),
        }
    }
}

impl Cell {
    /// Microseconds of the server's processor an operation.
    pub fn cpu_us(&self) -> Option<f64> {
        let operations = self.achieved * self.seconds;
        self.server_cpu_s.filter(|_| operations > 0.0).map(|seconds| seconds * 1e6 / operations)
    }
}
