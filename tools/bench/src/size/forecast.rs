//! The model: what so many units of a load need, from what few of them cost.
//!
//! - Processor time grows in a straight line; it is that of the machine that was measured, no other is known.
//! - What memory does not hold is read from the object store; the log takes what is written.
//! - Nodes are as many as the scarcest of cores, memory and network needs. Every assumption is printed.

use super::figures::Measured;
use crate::Outcome;
use crate::workload::bill;
use crate::workload::definition::{Definition, mean};
use std::fmt::Write;

/// A node that can be had.
#[derive(clap::Args, Clone, Copy, Debug)]
pub struct Node {
    /// Cores of a node
    #[arg(long = "node-cores", default_value_t = 16.0)]
    pub cores: f64,
    /// Its memory, GiB
    #[arg(long = "node-memory", default_value_t = 128.0)]
    pub memory: f64,
    /// Its network, Gb/s each way
    #[arg(long = "node-network", default_value_t = 12.5)]
    pub network: f64,
    /// What an hour of it costs, USD
    #[arg(long = "node-price", default_value_t = 1.0)]
    pub price: f64,
    /// Share of its cores and network that the load may use
    #[arg(long = "busy", default_value_t = 0.6)]
    pub busy: f64,
}

/// What is asked for.
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    pub units: f64,
    pub rtt_ms: f64,
    pub cached: f64,
    pub store_ms: f64,
    pub duty: f64,
    pub absorb: f64,
    pub node: Node,
}

impl Wanted {
    pub fn check(&self) -> Outcome<()> {
        let node = self.node;
        for (name, value, least, most) in [
            ("units", self.units, 1e-6, 1e12),
            ("rtt", self.rtt_ms, 0.0, 60_000.0),
            ("cached", self.cached, 0.0, 1.0),
            ("store-ms", self.store_ms, 0.0, 60_000.0),
            ("duty", self.duty, 0.0, 1.0),
            ("absorb", self.absorb, 1.0, 1e6),
            ("node-cores", node.cores, 1.0, 1e4),
            ("node-memory", node.memory, 1.0, 1e6),
            ("node-network", node.network, 0.01, 1e5),
            ("node-price", node.price, 0.0, 1e6),
            ("busy", node.busy, 0.05, 1.0),
        ] {
            if !(least..=most).contains(&value) {
                return Err(format!("--{name} is from {least} to {most}"));
            }
        }
        Ok(())
    }
}

/// Bytes of a name, inode and pointers in memory for a file, and of its further records.
const FILE_IN_MEMORY: f64 = 1024.0;
/// What changes may take on a node: the default of `checkpoint.memory` on a large one.
const CHANGES_GIB: f64 = 4.0;
/// Share of a node's memory that caches and changes may take; the rest is the kernel's and the store's client's.
const MEMORY_BUSY: f64 = 0.75;
/// Fill of the log at which a checkpoint begins: the default of `checkpoint.log_fill_percent`.
const LOG_FILL: f64 = 0.4;
/// Bytes in the log for each byte written: entries, tags, padding.
const LOG_SHARE: f64 = 1.1;
/// A record, the unit in which data is fetched.
const RECORD: f64 = 65_536.0;
/// USD for a GB and month of the object store.
const STORE_PRICE: f64 = 0.023;
const HOURS: f64 = 730.0;

pub struct Forecast {
    operations: f64,
    read_mb: f64,
    write_mb: f64,
    files: f64,
    data_gb: f64,
    used_gb: f64,
    pub cores: f64,
    memory_gib: f64,
    log_mb: f64,
    log_gib: f64,
    misses: f64,
    response_ms: f64,
    pub nodes: f64,
    scarce: &'static str,
    usd_nodes: f64,
    usd_data: f64,
    usd_requests: f64,
    pub usd: f64,
}

/// Files, their bytes and the bytes that are used, of so many units.
fn data(definition: &Definition, units: f64) -> (f64, f64, f64) {
    let (mut files, mut bytes, mut used) = (0.0, 0.0, 0.0);
    for set in &definition.fileset {
        let size = mean(&set.sizes);
        let count = match (set.files, set.files_per_unit > 0.0) {
            (0, true) => set.files_per_unit * units,
            (0, false) => set.bytes_per_unit * units / size,
            (files, _) => files as f64,
        };
        files += count;
        bytes += count * size;
        used += count * size * set.touched;
    }
    (files, bytes, used)
}

pub fn forecast(measured: &Measured, definition: &Definition, wanted: &Wanted) -> Outcome<Forecast> {
    let (units, node) = (wanted.units, wanted.node);
    let (operations, cores) = (measured.operations * units, measured.cores(units));
    let (read_mb, write_mb) = (measured.read_mb * units, measured.write_mb * units);
    let (files, bytes, used) = data(definition, units);
    let memory_gib = (used * wanted.cached + files * FILE_IN_MEMORY) / f64::from(1 << 30);
    // Reads that memory does not answer, in records.
    let misses = read_mb * 1e6 / RECORD * (1.0 - wanted.cached);
    let log_mb = write_mb * LOG_SHARE;
    let for_cores = cores / (node.cores * node.busy);
    let for_network = read_mb.max(write_mb) * 8.0 / 1000.0 / (node.network * node.busy);
    let for_memory = memory_gib / (node.memory * MEMORY_BUSY - CHANGES_GIB).max(1.0);
    let ways = [("cores", for_cores), ("network", for_network), ("memory", for_memory)];
    let (scarce, most) = ways.into_iter().max_by(|one, other| one.1.total_cmp(&other.1)).ok_or("no way")?;
    let nodes = most.ceil().max(1.0);
    // As busy as its cores will be, on the curve that was measured; and what a miss adds to the reads among the calls.
    let of_reads = (misses / operations).min(1.0);
    let base = measured.response_ms(cores / nodes / node.cores) - measured.rtt_ms;
    let response_ms = base.max(0.0) + wanted.rtt_ms + of_reads * wanted.store_ms;
    let a_month = wanted.duty * HOURS * 3600.0;
    // Each node looks after its own store, load or not.
    let of_kind = |idle: f64, of_unit: f64| idle * nodes * HOURS * 3600.0 + of_unit * units * a_month;
    let of_operations: f64 =
        measured.requests.iter().map(|row| of_kind(row.idle, row.of_unit) * bill::price(&row.kind) / 1e6).sum();
    let of_misses = misses * a_month * bill::price("get_range") / 1e6;
    let usd_nodes = nodes * node.price * HOURS;
    let (usd_data, usd_requests) = (bytes / 1e9 * STORE_PRICE, of_operations + of_misses);
    Ok(Forecast {
        operations,
        read_mb,
        write_mb,
        files,
        data_gb: bytes / 1e9,
        used_gb: used / 1e9,
        cores,
        memory_gib,
        log_mb,
        log_gib: log_mb * 1e6 * wanted.absorb / LOG_FILL / f64::from(1 << 30),
        misses,
        response_ms,
        nodes,
        scarce,
        usd_nodes,
        usd_data,
        usd_requests,
        usd: usd_nodes + usd_data + usd_requests,
    })
}

impl Forecast {
    pub fn text(&self, measured: &Measured, wanted: &Wanted) -> String {
        let node = wanted.node;
        let each = |value: f64| value / self.nodes;
        let mut text = format!(
            "{} at {} {}: a forecast, not a measurement and not a SPEC result\n\n",
            measured.workload, wanted.units, measured.unit
        );
        let mut row = |name: &str, value: String| {
            let _ = writeln!(text, "  {name:<22} {value}");
        };
        row("operations", format!("{:.0} a second", self.operations));
        row("moved", format!("{:.0} MB/s read, {:.0} MB/s written", self.read_mb, self.write_mb));
        row(
            "data",
            format!("{:.0} files, {:.1} GB, of which {:.1} GB are used", self.files, self.data_gb, self.used_gb),
        );
        row("cores", format!("{:.1} used; {:.1} a node", self.cores, each(self.cores)));
        row("memory", format!("{:.1} GiB a node for caches of data and names", each(self.memory_gib)));
        row("write log", format!("{:.0} MB/s and {:.1} GiB a node", each(self.log_mb), each(self.log_gib)));
        row("NVMe", "the write log alone: this version keeps no read cache there".to_owned());
        row("read from the store", format!("{:.0} records a second", self.misses));
        row("mean response", format!("{:.2} ms", self.response_ms));
        row("nodes", format!("{:.0}, as many as its {} need", self.nodes, self.scarce));
        let (nodes, data, requests) = (self.usd_nodes, self.usd_data, self.usd_requests);
        row("a month", format!("{:.0} USD: nodes {nodes:.0}, data {data:.0}, requests {requests:.0}", self.usd));
        self.assumptions(&mut text, measured, wanted);
        if self.nodes > 1.0 {
            let _ = writeln!(text, "- One node serves a volume: more than one node means volumes dealt out by hand.");
        }
        let points = measured.points.last().map_or(0.0, |point| point.units);
        if wanted.units > 10.0 * points {
            let _ = writeln!(
                text,
                "- {} {} were measured at most: {:.0} times as many are a long way from there.",
                points,
                measured.unit,
                wanted.units / points
            );
        }
        let _ = writeln!(text, "- A node: {} cores, {} GiB, {} Gb/s.", node.cores, node.memory, node.network);
        text
    }

    fn assumptions(&self, text: &mut String, measured: &Measured, wanted: &Wanted) {
        let node = wanted.node;
        let _ = write!(
            text,
            "\nmeasured: {} over {}; {}\n\nassumed:\n\
             - A core is one of the measured machine; processor time grows in a straight line.\n\
             - Cores and network are used to {:.0} %, memory to {:.0} %, of which {CHANGES_GIB} GiB are for changes.\n\
             - Memory holds {:.0} % of the data in use and {FILE_IN_MEMORY} bytes of each file; what it does not hold is read \
             in records of 64 KiB, {} ms each.\n\
             - The log takes {:.0} s of writes before it is {:.0} % full, {LOG_SHARE} bytes for each written.\n\
             - Clients are {} ms away. The load is there {:.0} % of the month.\n\
             - {} USD an hour and node, {STORE_PRICE} USD a GB and month; {}.\n",
            measured.server,
            measured.store,
            measured.machine,
            node.busy * 100.0,
            MEMORY_BUSY * 100.0,
            wanted.cached * 100.0,
            wanted.store_ms,
            wanted.absorb,
            LOG_FILL * 100.0,
            wanted.rtt_ms,
            wanted.duty * 100.0,
            node.price,
            bill::ASSUMPTION.trim_start_matches("assumed: "),
        );
    }
}
