//! What one greedy client, and the server's own background work, leave of others' latency.
//!
//! - Two probes, each an open loop of few calls: GETATTR, and 4 KiB FILE_SYNC WRITE. Their latency counts from when a
//!   call was due, so waiting behind a stalled one is not forgotten.
//! - Beside them streams of 1 MiB reads and writes as fast as the server takes them, checkpoints one after another,
//!   scrubs one after another, or the collection that follows a restart over half-dead segments.
//! - A write that is told to try later is counted, not wrong: that is how a full log slows a greedy client down.
//! - The probes' threads go before the streams' on the generator's core, or the generator itself would be measured.
//! - A third probe writes to a file of its own on the server's disk, past the server: a disk that stands still for a third
//!   of a second makes the slowest hundredth of fifteen seconds, whoever serves. Hence also rounds, all of whose calls are
//!   judged together.

pub mod report;

use crate::Outcome;
use crate::load::{Length, Operation, Plan, Run, Site};
use crate::measure::{RealTime, disk};
use crate::servers::{Place, Server, tarn};
use crate::target::Target;
use hdrhistogram::Histogram;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

pub const GETATTR_P99_MAX: Duration = Duration::from_millis(5);
pub const WRITE_P99_MAX: Duration = Duration::from_millis(20);

/// Calls a second of each probe: enough for a 99th percentile, too few to be a load.
const PROBE_PACE: f64 = 100.0;
/// The streams run alone before the probes count.
const LEAD: Duration = Duration::from_secs(2);
/// What is mostly overwritten before a collection: more than is collected before the row begins.
const GARBAGE_BYTES: u64 = 1536 << 20;
/// How long the row of collection is at least: it begins each new object between two checkpoints, and one of a full log
/// takes longer than the other rows do.
const COLLECTION_MIN: Duration = Duration::from_secs(30);
/// Connections of each stream.
const STREAM_CONNECTIONS: usize = 2;
/// A probe is served before a stream on the generator's core.
const FIRST: i32 = -20;

/// What goes on beside the probes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Beside {
    Nothing,
    Reads,
    Writes,
    Both,
    /// Checkpoints one after another, with reads and writes.
    Checkpoint,
    /// Scrubs one after another, with reads and writes.
    Scrub,
    /// The collection of half-dead segments, with reads and writes.
    Collection,
}

impl Beside {
    pub const ALL: [Beside; 7] = [
        Beside::Nothing,
        Beside::Reads,
        Beside::Writes,
        Beside::Both,
        Beside::Checkpoint,
        Beside::Scrub,
        Beside::Collection,
    ];

    fn name(self) -> String {
        format!("{self:?}").to_lowercase()
    }

    fn reads(self) -> bool {
        !matches!(self, Beside::Nothing | Beside::Writes)
    }

    fn writes(self) -> bool {
        !matches!(self, Beside::Nothing | Beside::Reads)
    }

    fn has_background(self) -> bool {
        matches!(self, Beside::Checkpoint | Beside::Scrub | Beside::Collection)
    }

    /// The command that is repeated, and how long it pauses.
    fn command(self) -> Option<(&'static str, Duration)> {
        match self {
            Beside::Checkpoint => Some(("checkpoint", Duration::from_millis(200))),
            Beside::Scrub => Some(("scrub", Duration::from_millis(200))),
            _ => None,
        }
    }
}

/// What was seen beside one load.
pub struct Seen {
    pub beside: Beside,
    pub getattr: Run,
    pub write: Run,
    /// Nanoseconds of a durable 4 KiB write to the same disk, past the server.
    pub disk: Histogram<u64>,
    /// Bytes a second of the streams.
    pub read_rate: f64,
    pub write_rate: f64,
    /// Writes that were told to try later.
    pub busy: u64,
    /// Bytes of segments that checkpoints wrote, that scrubs read or that collection emptied meanwhile.
    pub background: u64,
}

impl Seen {
    /// Whether what was to go on beside the probes did go on.
    pub fn worked(&self) -> bool {
        self.background > 0 || !self.beside.has_background()
    }

    /// 99th percentiles, milliseconds: GETATTR, WRITE, the disk alone.
    pub fn slowest_hundredth(&self) -> [f64; 3] {
        [&self.getattr.latency, &self.write.latency, &self.disk].map(|of| of.value_at_quantile(0.99) as f64 / 1e6)
    }
}

/// A running Tarn, its probes and streams.
pub struct Stand {
    place: Place,
    binary: PathBuf,
    port: u16,
    sites: Vec<Site>,
    server: Option<Server>,
}

impl Stand {
    pub fn start(place: Place, binary: &Path, port: u16) -> Outcome<Stand> {
        let mut stand = Stand { place, binary: binary.to_owned(), port, sites: Vec::new(), server: None };
        stand.open()?;
        Ok(stand)
    }

    fn open(&mut self) -> Outcome<()> {
        let server = tarn::start(&self.place, &self.binary, self.port)?;
        let target: Target = server.target.clone().ok_or("the server has no target")?;
        self.server = Some(server);
        self.sites = (0..4).map(|_| Site::prepare(target.clone())).collect::<Outcome<_>>()?;
        Ok(())
    }

    fn tarn(&self, words: &[&str]) -> Outcome<String> {
        tarn::command(&self.place, &self.binary, words)
    }

    /// How far the work beside the probes has come, bytes.
    fn background(&self, beside: Beside) -> Outcome<u64> {
        let status: serde_json::Value =
            serde_json::from_str(&self.tarn(&["status", "--json"])?).map_err(|error| error.to_string())?;
        let (part, field) = match beside {
            Beside::Checkpoint => ("checkpoint", "bytes"),
            Beside::Scrub => ("segments", "scrubbed_bytes"),
            Beside::Collection => ("segments", "collected_bytes"),
            _ => return Ok(0),
        };
        status[part][field].as_u64().ok_or_else(|| format!("tarn status has no {part}.{field}"))
    }

    /// Measures for `length` beside one load.
    pub fn measure(&mut self, beside: Beside, length: Duration) -> Outcome<Seen> {
        if beside == Beside::Collection {
            // A server looks for half-dead segments soon after it has started.
            self.sites[3].make_garbage(GARBAGE_BYTES)?;
            self.tarn(&["checkpoint"])?;
            self.server = None;
            self.open()?;
        }
        self.warm(beside)?;
        let length = if beside == Beside::Collection { length.max(COLLECTION_MIN) } else { length };
        let before = self.background(beside)?;
        let mut seen = self.run(beside, length)?;
        seen.background = self.background(beside)?.saturating_sub(before);
        Ok(seen)
    }

    /// Makes what probes and streams work on.
    fn warm(&mut self, beside: Beside) -> Outcome<()> {
        let [attributes, small, reader, writer] = &mut self.sites[..] else { return Err("sites are missing".into()) };
        attributes.warm(Operation::Getattr, 1)?;
        small.warm(Operation::Write4kFilesync, 1)?;
        if beside.reads() {
            reader.warm(Operation::Read1m, STREAM_CONNECTIONS)?;
        }
        if beside.writes() {
            writer.warm(Operation::Write1m, STREAM_CONNECTIONS)?;
        }
        Ok(())
    }

    fn run(&mut self, beside: Beside, length: Duration) -> Outcome<Seen> {
        let whole = LEAD + length + Duration::from_millis(200);
        let probe =
            Plan { connections: 1, depth: 16, warm_up: LEAD, length: Length::Time(length), pace: Some(PROBE_PACE) };
        let stream = Plan {
            connections: STREAM_CONNECTIONS,
            depth: 8,
            warm_up: Duration::ZERO,
            length: Length::Time(whole),
            pace: None,
        };
        let disk = disk::Probe::prepare(&self.place.directory)?;
        let disk = &disk;
        let (place, binary) = (&self.place, &self.binary);
        let [attributes, small, reader, writer] = &mut self.sites[..] else { return Err("sites are missing".into()) };
        std::thread::scope(|scope| {
            let streaming = |site: &'static str| format!("the {site} thread failed");
            let reads = beside.reads().then(move || scope.spawn(move || reader.stream(Operation::Read1m, stream)));
            let writes = beside.writes().then(move || scope.spawn(move || writer.stream(Operation::Write1m, stream)));
            let commands = beside.command().map(|(command, pause)| {
                scope.spawn(move || repeat(place, binary, command, pause, Instant::now() + whole))
            });
            let disk = scope.spawn(move || first(|| disk.run(PROBE_PACE, LEAD, length)));
            let getattr = scope.spawn(move || first(|| attributes.measure(Operation::Getattr, probe, 0)));
            let write = scope.spawn(move || first(|| small.measure(Operation::Write4kFilesync, probe, 0)));
            let ended = |name, thread: Option<std::thread::ScopedJoinHandle<'_, Outcome<(Run, u64)>>>| match thread {
                Some(thread) => thread.join().map_err(|_| streaming(name))?.map(Some),
                None => Ok(None),
            };
            let rate = |run: &Option<(Run, u64)>| {
                run.as_ref().map_or(0.0, |(run, busy)| {
                    (run.calls - busy.min(&run.calls)) as f64 * (1 << 20) as f64 / run.elapsed.as_secs_f64()
                })
            };
            let getattr = getattr.join().map_err(|_| streaming("GETATTR"))??;
            let write = write.join().map_err(|_| streaming("FILE_SYNC"))??;
            let disk = disk.join().map_err(|_| streaming("disk's"))??;
            let (reads, writes) = (ended("reading", reads)?, ended("writing", writes)?);
            if let Some(thread) = commands {
                thread.join().map_err(|_| streaming("commands'"))??;
            }
            let busy = writes.as_ref().map_or(0, |(_, busy)| *busy);
            let (read_rate, write_rate) = (rate(&reads), rate(&writes));
            Ok(Seen { beside, getattr, write, disk, read_rate, write_rate, busy, background: 0 })
        })
    }

    /// Takes everything away again.
    pub fn end(self) {
        drop(self.server);
    }
}

/// Runs `work` before everything else on its core.
fn first<T>(work: impl FnOnce() -> Outcome<T>) -> Outcome<T> {
    rustix::process::setpriority_process(None, FIRST).map_err(|error| format!("a probe's priority: {error}"))?;
    let _real_time = RealTime::take();
    work()
}

/// Repeats a command until it is time.
fn repeat(place: &Place, binary: &Path, command: &str, pause: Duration, until: Instant) -> Outcome<()> {
    while Instant::now() < until {
        tarn::command(place, binary, &[command])?;
        std::thread::sleep(pause);
    }
    Ok(())
}
