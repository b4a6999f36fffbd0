//! This generator against fio: the same shape of load on the same directory, in turns.
//!
//! - fio's job is made from the workload's own file, so that both do the same: sizes, shares, depth, files, O_DIRECT,
//!   io_uring, one thread. fio's latency is that from submission to completion as well (`lat`, not `clat`).
//! - A pair is one run of each, the order changing from pair to pair; the figure is the median of the pairs' ratios.
//! - Both work on the same files, written before (`overwrite`): where files lie makes a few per cent, and fio's writes
//!   would also make theirs.
//! - Both move bytes in huge pages: memory that is one piece takes one descriptor of the disk instead of one a page, and a
//!   disk whose ring holds fewer operations than are outstanding is twice as fast with it.
//! - Neither makes or compares bytes: fio writes what is there, slightly scrambled, and reads nothing it could compare.
//!   `--verify` has this generator do both, on files of its own, and shows what that costs.

use crate::Outcome;
use crate::drive::connection::Trouble;
use crate::drive::reactor::Reactor;
use crate::measure::{Meter, cpu};
use crate::workload::definition::{Component, Definition, Kind};
use crate::workload::generator::{Generator, Step, Window};
use crate::workload::library::find;
use crate::workload::result::Latency;
use crate::workload::site::{Opening, Site};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::rc::Rc;
use std::time::{Duration, Instant};

#[derive(clap::Args)]
pub struct Arguments {
    /// Workloads of one component in a closed loop
    #[arg(long, value_delimiter = ',', default_value = "oltp,stream-read,stream-write")]
    pub workload: Vec<String>,
    /// A directory on the disk that both use; it must know O_DIRECT
    #[arg(long, default_value = "/var/tmp")]
    pub directory: PathBuf,
    #[arg(long, default_value_t = 5)]
    pub pairs: usize,
    #[arg(long, default_value_t = 5.0)]
    pub seconds: f64,
    #[arg(long, default_value_t = 1.0)]
    pub warm_up: f64,
    /// Size of the data, as a share of what the workload says
    #[arg(long, default_value_t = 0.25)]
    pub scale: f64,
    /// The core of both
    #[arg(long)]
    pub pin: Option<usize>,
    /// Make and compare every byte all the same, as each run of a workload does: shows what that costs
    #[arg(long)]
    pub verify: bool,
}

/// Huge pages that the deepest of the workloads fills, and a few.
const HUGE_PAGES_MIN: u64 = 8;
/// Per cent that the medians may be apart.
const P50_OFF_MAX: f64 = 5.0;
const P99_OFF_MAX: f64 = 20.0;

/// Of one direction in one run.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    rate: f64,
    p50_ms: f64,
    p99_ms: f64,
    /// Share of the time that the thread was on a core.
    busy: f64,
}

/// What one run saw, by direction: "read", "write".
type Run = BTreeMap<&'static str, Seen>;

/// Measures and prints; an error if a median is beyond its bound.
pub fn run(arguments: &Arguments) -> Outcome<()> {
    huge_pages_are_there(&std::fs::read_to_string("/proc/meminfo").unwrap_or_default())?;
    if let Some(core) = arguments.pin {
        cpu::pin(core)?;
    }
    let directory = arguments.directory.join(format!("tarn-bench-fio-{}", std::process::id()));
    std::fs::create_dir(&directory).map_err(|error| format!("{}: {error}", directory.display()))?;
    let measured =
        arguments.workload.iter().try_fold(true, |good, name| Ok(workload(arguments, &directory, name)? && good));
    std::fs::remove_dir_all(&directory).map_err(|error| format!("{}: {error}", directory.display()))?;
    match measured {
        Ok(true) => Ok(()),
        Ok(false) => Err(format!("p50 within {P50_OFF_MAX} % and p99 within {P99_OFF_MAX} % of fio's")),
        Err(error) => Err(error),
    }
}

fn workload(arguments: &Arguments, directory: &Path, name: &str) -> Outcome<bool> {
    let (name, definition) = find(name)?;
    let mut pairs: Vec<(Run, Run)> = Vec::new();
    let reactor = Reactor::new()?;
    let trouble = Rc::new(Trouble::default());
    let (url, patience) = (format!("file://{}", directory.display()), Duration::from_secs(10));
    let site = Site::open(&reactor, &Opening { url, connections: 1, patience, pid: None, core: None }, &trouble)?;
    let mut generator = Generator::new(&reactor, &site.place, &trouble, &definition);
    generator.raw = true;
    generator.make(1.0, arguments.scale)?;
    // What fio writes is not what this generator would look for.
    let shared = if arguments.verify { Vec::new() } else { generator.paths() };
    let job = job(&definition, arguments, directory, &shared).map_err(|error| format!("{name}: {error}"))?;
    if arguments.verify {
        fio(&job, true)?;
    } else {
        generator.blind();
    }
    settle(directory);
    for pair in 0..arguments.pairs.max(1) {
        let first = if pair % 2 == 1 { Some(fio(&job, false)?) } else { None };
        let own = own(arguments, &generator)?;
        let other = first.map_or_else(|| fio(&job, false), Ok)?;
        pairs.push((own, other));
    }
    drop(generator);
    site.remove()?;
    for entry in std::fs::read_dir(directory).map_err(|error| error.to_string())?.flatten() {
        std::fs::remove_file(entry.path()).map_err(|error| error.to_string())?;
    }
    Ok(tell(&name, &pairs))
}

/// One line a direction; whether both are within their bounds.
fn tell(name: &str, pairs: &[(Run, Run)]) -> bool {
    let mut good = true;
    for direction in ["read", "write"] {
        let both: Vec<(Seen, Seen)> =
            pairs.iter().filter_map(|(own, other)| Some((*own.get(direction)?, *other.get(direction)?))).collect();
        if both.is_empty() {
            continue;
        }
        let of =
            |side: fn(&(Seen, Seen)) -> Seen, value: fn(Seen) -> f64| median(both.iter().map(|pair| value(side(pair))));
        let ratio = |value: fn(Seen) -> f64| median(both.iter().map(|(own, other)| value(*own) / value(*other)));
        let (p50, p99) = (ratio(|seen| seen.p50_ms), ratio(|seen| seen.p99_ms));
        let within = (p50 - 1.0).abs() * 100.0 <= P50_OFF_MAX && (p99 - 1.0).abs() * 100.0 <= P99_OFF_MAX;
        println!(
            "{name:<13} {direction:<5} op/s {:>8.0} fio {:>8.0}   p50 {:>7.3} ms fio {:>7.3} ratio {p50:.3}   \
             p99 {:>7.3} ms fio {:>7.3} ratio {p99:.3}   busy {:.0} % fio {:.0} %   {}",
            of(|pair| pair.0, |seen| seen.rate),
            of(|pair| pair.1, |seen| seen.rate),
            of(|pair| pair.0, |seen| seen.p50_ms),
            of(|pair| pair.1, |seen| seen.p50_ms),
            of(|pair| pair.0, |seen| seen.p99_ms),
            of(|pair| pair.1, |seen| seen.p99_ms),
            of(|pair| pair.0, |seen| seen.busy) * 100.0,
            of(|pair| pair.1, |seen| seen.busy) * 100.0,
            if within { "within" } else { "BEYOND" }
        );
        good &= within;
    }
    good
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => f64::NAN,
        count if count % 2 == 1 => values[count / 2],
        count => f64::midpoint(values[count / 2 - 1], values[count / 2]),
    }
}

/// fio's arguments for the same load.
fn job(definition: &Definition, arguments: &Arguments, directory: &Path, shared: &[PathBuf]) -> Outcome<Vec<String>> {
    let ([component], [set], [_]) = (&definition.component[..], &definition.fileset[..], &definition.cell[..]) else {
        return Err("fio's shape is one component, one file set, one cell".to_owned());
    };
    let (reads, block) = share_of_reads(component)?;
    let random = component.operation.iter().all(|operation| matches!(operation.op, Kind::Read | Kind::Write));
    let way = match (random, reads) {
        (true, _) => format!("--rw=randrw --rwmixread={reads:.0}"),
        (false, 100.0) => "--rw=read".to_owned(),
        (false, _) => "--rw=write".to_owned(),
    };
    let files = ((set.files as f64 * arguments.scale).round() as u64).max(1);
    let next = if random { "random" } else { "sequential" };
    let shared: Vec<String> = shared.iter().map(|path| path.display().to_string()).collect();
    let where_ = match shared.is_empty() {
        true => format!("--directory={}", directory.display()),
        false => format!("--filename={}", shared.join(":")),
    };
    let text = format!(
        "--name=pair {where_} --ioengine=io_uring --direct=1 {way} --bs={block} --iodepth={} --nrfiles={files} \
         --filesize={} --overwrite=1 --file_service_type={next} --norandommap --iomem=mmaphuge --time_based --runtime={} --ramp_time={} \
         --lat_percentiles=1 --clat_percentiles=0 --thread --numjobs=1 --fallocate=none --output-format=json",
        component.outstanding * component.processes,
        set.sizes[0].0,
        arguments.seconds,
        arguments.warm_up
    );
    Ok(text.split_ascii_whitespace().map(str::to_owned).collect())
}

/// Per cent of reads, and the bytes of each operation.
fn share_of_reads(component: &Component) -> Outcome<(f64, u64)> {
    let all: f64 = component.operation.iter().map(|operation| operation.share).sum();
    let reads: f64 = component.operation.iter().filter(|of| of.op.reads()).map(|of| of.share).sum();
    let block = component.operation.first().and_then(|operation| operation.sizes.first());
    match block {
        Some((block, _)) if component.rate_per_unit == 0.0 && all > 0.0 => Ok((reads * 100.0 / all, *block)),
        _ => Err("fio's shape is a closed loop of reads and writes of one size".to_owned()),
    }
}

/// Runs fio; with `only_files` it makes what it will work on.
fn fio(job: &[String], only_files: bool) -> Outcome<Run> {
    let mut command = Command::new("fio");
    command.args(job).args(only_files.then_some("--create_only=1"));
    let output = command.output().map_err(|error| format!("fio: {error}; install the package fio"))?;
    let said = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() {
        return Err(format!("fio: {}", String::from_utf8_lossy(&output.stderr).trim()));
    }
    // Notes may stand before the JSON.
    let text = said.find('{').map_or("", |from| &said[from..]);
    if only_files {
        return Ok(Run::new());
    }
    let json: serde_json::Value = serde_json::from_str(text).map_err(|error| format!("fio's output: {error}"))?;
    let mut run = Run::new();
    let spent = |name: &str| json["jobs"][0][name].as_f64().unwrap_or(0.0) / 100.0;
    let busy = spent("usr_cpu") + spent("sys_cpu");
    for direction in ["read", "write"] {
        let of = &json["jobs"][0][direction];
        let rate = of["iops"].as_f64().unwrap_or(0.0);
        let percentile = |name: &str| of["lat_ns"]["percentile"][name].as_f64().map(|nanoseconds| nanoseconds / 1e6);
        if let (Some(p50_ms), Some(p99_ms)) = (percentile("50.000000"), percentile("99.000000")) {
            run.insert(direction, Seen { rate, p50_ms, p99_ms, busy });
        }
    }
    if run.is_empty() { Err("fio told no percentiles".to_owned()) } else { Ok(run) }
}

/// fio takes huge pages only where some were set aside.
fn huge_pages_are_there(memory: &str) -> Outcome<()> {
    let free = memory.lines().find_map(|line| line.strip_prefix("HugePages_Free:")?.trim().parse::<u64>().ok());
    match free {
        Some(free) if free >= HUGE_PAGES_MIN => Ok(()),
        _ => Err(format!(
            "fio needs {HUGE_PAGES_MIN} huge pages of 2 MiB: set them aside (sysctl vm.nr_hugepages={HUGE_PAGES_MIN}) and give \
             them back afterwards"
        )),
    }
}

/// Waits until the disk has what was prepared.
fn settle(directory: &Path) {
    if let Ok(directory) = std::fs::File::open(directory) {
        let _ = rustix::fs::syncfs(&directory);
    }
    std::thread::sleep(Duration::from_secs(1));
}

/// One cell of the workload, by its own files.
fn own(arguments: &Arguments, generator: &Generator) -> Outcome<Run> {
    let cell = generator.definition.cell.first().ok_or("no cell")?;
    let step = Step { name: cell.name.clone(), load: cell.load, cell: Some(cell.name.clone()), closed: false };
    let begin = Instant::now() + Duration::from_millis(20);
    let window = Window { begin, warm_up: arguments.warm_up, seconds: arguments.seconds };
    let tally = generator.measure(&step, window, Meter::default())?;
    if let Some(off) = tally.histogram_off.filter(|off| *off > 1.0) {
        return Err(format!("a percentile is off by {off:.2} % from the sorted latencies"));
    }
    let mut run = Run::new();
    let busy = tally.generator_cpu_s / tally.seconds;
    for ((_, kind), seen) in &tally.seen {
        let latency = Latency::of(&seen.latency);
        let rate = seen.latency.len() as f64 / tally.seconds;
        let direction = if kind.reads() { "read" } else { "write" };
        run.insert(direction, Seen { rate, p50_ms: latency.p50, p99_ms: latency.p99, busy });
    }
    Ok(run)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments() -> Arguments {
        Arguments {
            workload: Vec::new(),
            directory: PathBuf::from("/d"),
            pairs: 1,
            seconds: 5.0,
            warm_up: 1.0,
            scale: 0.25,
            pin: None,
            verify: false,
        }
    }

    #[test]
    fn the_job_is_the_workload() {
        let words =
            |name: &str| job(&find(name).unwrap().1, &arguments(), Path::new("/d"), &[]).map(|words| words.join(" "));
        let oltp = words("oltp").unwrap();
        for part in
            ["--rw=randrw --rwmixread=70 --bs=8192 --iodepth=128 --nrfiles=4 --filesize=268435456", "--direct=1"]
        {
            assert!(oltp.contains(part), "{oltp}");
        }
        assert!(words("stream-write").unwrap().contains("--rw=write --bs=65536 --iodepth=32"));
        assert!(words("sfs2008-like").is_err());
    }

    #[test]
    fn fio_works_on_the_files_that_are_there() {
        let definition = find("oltp").unwrap().1;
        let paths = [PathBuf::from("/d/a"), PathBuf::from("/d/b")];
        let words = job(&definition, &arguments(), Path::new("/d"), &paths).unwrap().join(" ");
        assert!(words.contains("--filename=/d/a:/d/b --") && !words.contains("--directory"), "{words}");
    }

    #[test]
    fn without_huge_pages_it_says_what_to_do() {
        assert!(huge_pages_are_there("HugePages_Total:       8\nHugePages_Free:        8\n").is_ok());
        for memory in ["HugePages_Free:        7\n", ""] {
            assert!(huge_pages_are_there(memory).unwrap_err().contains("sysctl"));
        }
    }

    #[test]
    fn a_median_beyond_its_bound_is_told() {
        let seen = |p50_ms| Run::from([("read", Seen { rate: 1.0, p50_ms, p99_ms: 2.0, busy: 1.0 })]);
        assert!(tell("t", &[(seen(1.0), seen(1.0)), (seen(1.04), seen(1.0)), (seen(9.0), seen(1.0))]));
        assert!(!tell("t", &[(seen(1.0), seen(1.0)), (seen(1.06), seen(1.0)), (seen(9.0), seen(1.0))]));
    }
}
