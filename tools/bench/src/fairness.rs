//! What one greedy client, and the server's own background work, leave of others' latency.
//!
//! - Two probes, each an open loop of few calls: GETATTR, and 4 KiB FILE_SYNC WRITE. Their latency counts from when a
//!   call was due, so waiting behind a stalled one is not forgotten.
//! - Beside them streams of 1 MiB reads and writes as fast as the server takes them, checkpoints one after another,
//!   scrubs one after another, or the collection that follows a restart over half-dead segments.
//! - A write that is told to try later is counted, not wrong: that is how a full log slows a greedy client down.
//! - The probes' threads go before the streams' on the generator's core, or the generator itself would be measured.

use crate::Outcome;
use crate::load::{Length, Operation, Plan, Run, Site};
use crate::servers::{Place, Server, tarn};
use crate::target::Target;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

pub const GETATTR_P99_MAX: Duration = Duration::from_millis(5);
pub const WRITE_P99_MAX: Duration = Duration::from_millis(20);

/// Calls a second of each probe: enough for a 99th percentile, too few to be a load.
const PROBE_PACE: f64 = 100.0;
/// The streams run alone before the probes count.
const LEAD: Duration = Duration::from_secs(2);
/// What is half overwritten before a collection.
const GARBAGE_BYTES: u64 = 768 << 20;
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
    /// The collection of half-dead segments, with reads and writes. It gives way to writes that fill the log.
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

    fn reads(self) -> bool {
        !matches!(self, Beside::Nothing | Beside::Writes)
    }

    fn writes(self) -> bool {
        !matches!(self, Beside::Nothing | Beside::Reads)
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
    /// Bytes a second of the streams.
    pub read_rate: f64,
    pub write_rate: f64,
    /// Writes that were told to try later.
    pub busy: u64,
    /// Commands that came to their end, or bytes of segments that collection did away with.
    pub background: u64,
}

impl Seen {
    pub fn within(&self) -> bool {
        let below = |run: &Run, most: Duration| run.latency.value_at_quantile(0.99) <= most.as_nanos() as u64;
        below(&self.getattr, GETATTR_P99_MAX) && below(&self.write, WRITE_P99_MAX)
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

    fn live_object_bytes(&self) -> Outcome<u64> {
        let status: serde_json::Value =
            serde_json::from_str(&self.tarn(&["status", "--json"])?).map_err(|error| error.to_string())?;
        status["segments"]["live_object_bytes"].as_u64().ok_or_else(|| "tarn status has no segments".to_owned())
    }

    /// Measures for `length` beside one load.
    pub fn measure(&mut self, beside: Beside, length: Duration) -> Outcome<Seen> {
        let mut live = 0;
        if beside == Beside::Collection {
            // A server looks for half-dead segments soon after it has started.
            self.sites[3].make_garbage(GARBAGE_BYTES)?;
            self.tarn(&["checkpoint"])?;
            live = self.live_object_bytes()?;
            self.server = None;
            self.open()?;
        }
        let mut seen = self.run(beside, length)?;
        if beside == Beside::Collection {
            seen.background = live.saturating_sub(self.live_object_bytes()?);
        }
        Ok(seen)
    }

    fn run(&mut self, beside: Beside, length: Duration) -> Outcome<Seen> {
        let whole = LEAD + length + Duration::from_millis(200);
        let probe =
            Plan { connections: 1, depth: 16, warm_up: LEAD, length: Length::Time(length), pace: Some(PROBE_PACE) };
        let stream =
            Plan { connections: 2, depth: 8, warm_up: Duration::ZERO, length: Length::Time(whole), pace: None };
        let (place, binary) = (&self.place, &self.binary);
        let [attributes, small, reader, writer] = &mut self.sites[..] else { return Err("sites are missing".into()) };
        for (site, operation) in [(&mut *attributes, Operation::Getattr), (&mut *small, Operation::Write4kFilesync)] {
            site.warm(operation, 1)?;
        }
        for (site, operation, wanted) in
            [(&mut *reader, Operation::Read1m, beside.reads()), (&mut *writer, Operation::Write1m, beside.writes())]
        {
            if wanted {
                site.warm(operation, stream.connections)?;
            }
        }
        std::thread::scope(|scope| {
            let streaming = |site: &'static str| format!("the {site} thread failed");
            let reads = beside.reads().then(move || scope.spawn(move || reader.stream(Operation::Read1m, stream)));
            let writes = beside.writes().then(move || scope.spawn(move || writer.stream(Operation::Write1m, stream)));
            let commands = beside.command().map(|(command, pause)| {
                scope.spawn(move || repeat(place, binary, command, pause, Instant::now() + whole))
            });
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
            let (reads, writes) = (ended("reading", reads)?, ended("writing", writes)?);
            let background = match commands {
                Some(thread) => thread.join().map_err(|_| streaming("commands'"))??,
                None => 0,
            };
            let busy = writes.as_ref().map_or(0, |(_, busy)| *busy);
            let (read_rate, write_rate) = (rate(&reads), rate(&writes));
            Ok(Seen { beside, getattr, write, read_rate, write_rate, busy, background })
        })
    }

    /// Takes everything away again.
    pub fn end(self) {
        drop(self.server);
    }
}

/// Runs `work` before everything else on its core: as soon as it wakes, where threads of real time are allowed, and else at
/// the end of what runs, which may be some milliseconds.
fn first(work: impl FnOnce() -> Outcome<Run>) -> Outcome<Run> {
    rustix::process::setpriority_process(None, FIRST).map_err(|error| format!("a probe's priority: {error}"))?;
    let lowest = libc::sched_param { sched_priority: 1 };
    // SAFETY: the parameter lives through the call, which only reads it.
    if unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const lowest) } != 0 {
        eprintln!("fairness: a probe has no real-time priority: {}", std::io::Error::last_os_error());
    }
    work()
}

/// Repeats a command until it is time; how often it came to its end.
fn repeat(place: &Place, binary: &Path, command: &str, pause: Duration, until: Instant) -> Outcome<u64> {
    let mut count = 0;
    while Instant::now() < until {
        tarn::command(place, binary, &[command])?;
        count += 1;
        std::thread::sleep(pause);
    }
    Ok(count)
}

/// A line for each load, and whether all are within the limits.
pub fn report(all: &[Seen]) -> (String, bool) {
    let mut text = format!(
        "{:<12} {:>8} {:>8} {:>8}   {:>8} {:>8} {:>8}   {:>9} {:>9} {:>6} {:>10}\n",
        "beside", "GETATTR", "p99 ms", "max", "WRITE", "p99 ms", "max", "read MiB", "write MiB", "busy", "background"
    );
    for seen in all {
        let at = |run: &Run, quantile| run.latency.value_at_quantile(quantile) as f64 / 1e6;
        let background = match seen.beside {
            Beside::Collection => format!("{} MiB", seen.background >> 20),
            _ => seen.background.to_string(),
        };
        text += &format!(
            "{:<12} {:>8.3} {:>8.3} {:>8.3}   {:>8.3} {:>8.3} {:>8.3}   {:>9.0} {:>9.0} {:>6} {:>10}{}\n",
            format!("{:?}", seen.beside).to_lowercase(),
            at(&seen.getattr, 0.5),
            at(&seen.getattr, 0.99),
            at(&seen.getattr, 1.0),
            at(&seen.write, 0.5),
            at(&seen.write, 0.99),
            at(&seen.write, 1.0),
            seen.read_rate / (1 << 20) as f64,
            seen.write_rate / (1 << 20) as f64,
            seen.busy,
            background,
            if seen.within() { "" } else { "  beyond the limit" },
        );
    }
    (text, all.iter().all(Seen::within))
}
