//! The section "Workloads" of `docs/performance.md`: what the systems that Tarn follows claim, beside what is measured here.
//!
//! - Tarn over a store in memory and over one slowed down to `blob`, and NFS-Ganesha over a local directory, in turns.
//! - Each server has one core, the generator another. Results are kept as the reports' JSON, one file a workload, so that
//!   a document can be written of what was measured in several goes.
//! - A run that does not count is shown as such with its reason, and its figure in brackets.

use crate::drive::connection::Trouble;
use crate::drive::reactor::Reactor;
use crate::measure::{cpu, machine};
use crate::servers::{Place, Server, ganesha, space, tarn};
use crate::target::Target;
use crate::workload::library::find;
use crate::workload::result::{Cell, Report};
use crate::workload::run::{Options, run as run_workload};
use crate::workload::site::{Opening, Site};
use crate::{Outcome, report};
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

#[derive(clap::Args)]
pub struct Arguments {
    /// Tarn's binary; without it nothing is measured and the document is written of the results there are
    #[arg(long, value_name = "BINARY")]
    pub tarn: Option<PathBuf>,
    /// Where results are kept
    #[arg(long)]
    pub results: PathBuf,
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "sfs2008-like,ai-image-like,oltp,stream-read,stream-write,analytics"
    )]
    pub workload: Vec<String>,
    /// Also NFS-Ganesha (root; in a network of its own)
    #[arg(long)]
    pub ganesha: bool,
    /// A disk for logs and directories
    #[arg(long, default_value = "/var/tmp")]
    pub directory: PathBuf,
    #[arg(long, default_value_t = 1.0)]
    pub warm_up: f64,
    #[arg(long, default_value_t = 3.0)]
    pub seconds: f64,
    /// Operations a second at the peak of sfs2008-like, the same for all [default: found for each]
    #[arg(long, default_value_t = 0.0)]
    pub peak: f64,
    /// The document that the section is written into, between its markers
    #[arg(long, value_name = "FILE")]
    pub document: Option<PathBuf>,
}

/// A claim: the workload, what is compared, the seed's figure in words, and how ours is taken.
struct Claim {
    workload: &'static str,
    what: &'static str,
    seed: &'static str,
    aim: &'static str,
    figure: fn(&Report) -> Option<f64>,
}

fn peak(report: &Report) -> Option<&Cell> {
    report.cells.last()
}

/// Operations a second of processor time of the server, at the last point.
fn per_cpu_second(report: &Report) -> Option<f64> {
    let cell = peak(report)?;
    Some(cell.achieved * cell.seconds / cell.server_cpu_s.filter(|seconds| *seconds > 0.0)?)
}

fn moved(report: &Report) -> Option<f64> {
    peak(report).map(|cell| cell.read_mb_s + cell.write_mb_s)
}

const CLAIMS: &[Claim] = &[
    Claim {
        workload: "sfs2008-like",
        what: "op/s on one core",
        seed: "Avere: 5,006 a core",
        aim: "30,000",
        figure: |report| peak(report).map(|cell| cell.achieved),
    },
    Claim {
        workload: "sfs2008-like",
        what: "operations per CPU-second",
        seed: "-",
        aim: "1.5 x Ganesha",
        figure: per_cpu_second,
    },
    Claim {
        workload: "sfs2008-like",
        what: "ORT, ms",
        seed: "Avere: 0.95",
        aim: "0.95",
        figure: |report| report.ort_ms,
    },
    Claim {
        workload: "sfs2008-like",
        what: "response at peak, ms",
        seed: "Avere: 3.0",
        aim: "20",
        figure: |report| peak(report).map(|cell| cell.latency_ms.mean),
    },
    Claim {
        workload: "ai-image-like",
        what: "ORT, ms",
        seed: "Qumulo: 0.84",
        aim: "0.84",
        figure: |report| report.ort_ms,
    },
    Claim {
        workload: "ai-image-like",
        what: "greatest mean latency of a point over least",
        seed: "Qumulo: 1.26",
        aim: "1.27",
        figure: |report| {
            let of = || report.cells.iter().map(|cell| cell.latency_ms.mean);
            (!report.cells.is_empty()).then(|| of().fold(0.0, f64::max) / of().fold(f64::INFINITY, f64::min))
        },
    },
    Claim {
        workload: "ai-image-like",
        what: "MB per CPU-second",
        seed: "SoftNAS sizing: 32 MB/s a core",
        aim: "32",
        figure: |report| {
            let cell = peak(report)?;
            Some(moved(report)? * cell.seconds / cell.server_cpu_s.filter(|seconds| *seconds > 0.0)?)
        },
    },
    Claim {
        workload: "oltp",
        what: "IOPS on one core, 128 outstanding",
        seed: "ONTAP: 3,939 a vCPU",
        aim: "15,000",
        figure: |report| peak(report).map(|cell| cell.achieved),
    },
    Claim {
        workload: "oltp",
        what: "mean latency, ms",
        seed: "ONTAP: 7 to 9",
        aim: "8",
        figure: |report| peak(report).map(|cell| cell.latency_ms.mean),
    },
    Claim { workload: "stream-read", what: "MB/s on one core", seed: "ONTAP: 85 a vCPU", aim: "85", figure: moved },
    Claim {
        workload: "stream-write",
        what: "MB/s on one core, durable",
        seed: "ONTAP: 32 a vCPU",
        aim: "32",
        figure: moved,
    },
    Claim { workload: "analytics", what: "MB/s on one core", seed: "ONTAP: 22.5 a vCPU", aim: "22.5", figure: moved },
];

/// In the order of the columns.
const SERVERS: [&str; 3] = ["Tarn over ram", "Tarn over blob", "Ganesha"];

/// Measures what was asked for, and writes the section.
pub fn run(arguments: &Arguments) -> Outcome<()> {
    if let Some(binary) = &arguments.tarn {
        measure(arguments, binary)?;
    }
    let text = text(&arguments.results)?;
    println!("{text}");
    if let Some(path) = &arguments.document {
        let failed = |error| format!("{}: {error}", path.display());
        let old = std::fs::read_to_string(path).map_err(failed)?;
        std::fs::write(path, report::replace_between(&old, "workloads", &text)?).map_err(failed)?;
    }
    Ok(())
}

/// Servers, and what goes with them.
struct Stand {
    servers: Vec<Server>,
    directories: [PathBuf; 2],
}

impl Drop for Stand {
    fn drop(&mut self) {
        self.servers.clear();
        for directory in &self.directories {
            let _ = std::fs::remove_dir_all(directory);
        }
    }
}

impl Stand {
    fn start(arguments: &Arguments, binary: &Path) -> Outcome<Stand> {
        if arguments.ganesha {
            space::enter()?;
        }
        let name = format!("tarn-bench-{}", std::process::id());
        let directories = [arguments.directory.join(&name), Path::new("/dev/shm").join(&name)];
        for directory in &directories {
            std::fs::create_dir(directory).map_err(|error| format!("{}: {error}", directory.display()))?;
        }
        let mut stand = Stand { servers: Vec::new(), directories };
        for (index, shape) in ["ram", "blob"].into_iter().enumerate() {
            let directory = stand.directories[0].join(shape);
            std::fs::create_dir(&directory).map_err(|error| format!("{}: {error}", directory.display()))?;
            let place = Place { directory, core: Some(0), memory: 0 };
            let store =
                tarn::Store { shape, directory: stand.directories[1].join(shape), admin: 21_120 + index as u16 };
            stand.servers.push(tarn::start_over(&place, binary, 21_049 + 100 * index as u16, &store)?);
        }
        if arguments.ganesha {
            let place = Place { directory: stand.directories[0].clone(), core: Some(0), memory: 0 };
            stand.servers.push(ganesha::port_mapper(&place)?);
            stand.servers.push(ganesha::start(&place, ganesha::Variant::Stock, 22_049)?);
        }
        cpu::pin(1)?;
        Ok(stand)
    }
}

fn measure(arguments: &Arguments, binary: &Path) -> Outcome<()> {
    // A signal ends the load, not this process: servers and directories must go.
    let interrupted = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register(signal, interrupted.clone()).map_err(|error| error.to_string())?;
    }
    let stand = Stand::start(arguments, binary)?;
    std::fs::create_dir_all(&arguments.results).map_err(|error| format!("{}: {error}", arguments.results.display()))?;
    let targets: Vec<&Target> = stand.servers.iter().filter_map(|server| server.target.as_ref()).collect();
    for name in &arguments.workload {
        let mut reports = Vec::new();
        for (target, server) in targets.iter().zip(SERVERS) {
            let mut report = one(arguments, name, target, &interrupted)?;
            if interrupted.load(Ordering::Relaxed) {
                return Err("stopped by a signal".to_owned());
            }
            server.clone_into(&mut report.target);
            let _ = write!(report.machine, "; load average {:.1}", machine::load_average());
            eprintln!(
                "{name}, {server}: {}",
                if report.valid { "valid".to_owned() } else { report.reasons.join("; ") }
            );
            reports.push(report);
        }
        let path = arguments.results.join(format!("{name}.json"));
        let text = serde_json::to_string_pretty(&reports).map_err(|error| error.to_string())?;
        std::fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    Ok(())
}

fn one(arguments: &Arguments, name: &str, target: &Target, interrupted: &Arc<AtomicBool>) -> Outcome<Report> {
    let (name, definition) = find(name)?;
    let reactor = Reactor::new()?;
    reactor.stop_by(interrupted.clone());
    let trouble = Rc::new(Trouble::default());
    let patience = Duration::from_secs(10);
    let url = target.url();
    let site = Site::open(&reactor, &Opening { url, connections: 8, patience, pid: target.pid, core: None }, &trouble)?;
    // About a gigabyte of data each.
    let scale = match name.as_str() {
        // 2,000 op/s are taken where the peak is found.
        "sfs2008-like" if arguments.peak > 0.0 => 8.0 / arguments.peak,
        "sfs2008-like" => 0.004,
        "ai-image-like" => 0.25,
        _ => 0.125,
    };
    let options = Options {
        quick: false,
        peak: match name.as_str() {
            "ai-image-like" => 2.0,
            "sfs2008-like" => arguments.peak,
            _ => 0.0,
        },
        scale,
        points: 0,
        warm_up: Some(arguments.warm_up),
        seconds: Some(arguments.seconds),
        connections: 8,
        seed: 1,
        patience,
        raw: false,
        before: Vec::new(),
    };
    let report = run_workload(&reactor, &site, &trouble, (&name, &definition), &options, &mut |_, _| ());
    site.remove()?;
    Ok(report)
}

fn text(results: &Path) -> Outcome<String> {
    let mut out = String::new();
    let mut how = Vec::new();
    let mut notes = Vec::new();
    let _ = writeln!(out, "| workload | figure | seed | aim | {} |", SERVERS.join(" | "));
    let _ = writeln!(out, "|---|---|---|---:|---:|---:|---:|");
    for claim in CLAIMS {
        let path = results.join(format!("{}.json", claim.workload));
        let Ok(text) = std::fs::read_to_string(&path) else { continue };
        let reports: Vec<Report> =
            serde_json::from_str(&text).map_err(|error| format!("{}: {error}", path.display()))?;
        let cell = |server: &&str| {
            let report = reports.iter().find(|report| report.target == **server);
            let figure = report.and_then(|report| Some((report.valid, (claim.figure)(report)?)));
            match figure {
                Some((true, figure)) => show(figure),
                Some((false, figure)) => format!("({})", show(figure)),
                None => "-".to_owned(),
            }
        };
        let cells: Vec<String> = SERVERS.iter().map(cell).collect();
        let _ = writeln!(
            out,
            "| {} | {} | {} | {} | {} |",
            claim.workload,
            claim.what,
            claim.seed,
            claim.aim,
            cells.join(" | ")
        );
        for report in reports.iter().filter(|report| !report.valid) {
            let reason = report.reasons.first().map_or("", String::as_str);
            let more = report.reasons.len().saturating_sub(1);
            let and = if more > 0 { format!(" (and {more} more)") } else { String::new() };
            let note = format!("- {}, {}: {reason}{and}", report.workload, report.target);
            if !notes.contains(&note) {
                notes.push(note);
            }
        }
        for report in &reports {
            let seconds = report.cells.first().map_or(0.0, |cell| cell.seconds);
            let (machine, load) =
                report.machine.split_once("; load average ").unwrap_or((&report.machine, "not known"));
            how.push((machine.to_owned(), seconds, load.to_owned()));
        }
    }
    let (machine, seconds, _) = how.first().ok_or("no results; give --tarn BINARY to measure")?;
    let loads = || how.iter().filter_map(|(_, _, load)| load.parse::<f64>().ok());
    let (least, most) = (loads().fold(f64::INFINITY, f64::min), loads().fold(0.0, f64::max));
    let _ = writeln!(
        out,
        "\nMachine: {machine}. {seconds:.0} s a point, once. Server on one core, generator on the other. Load average {least:.1} \
         to {most:.1}, of which the measurement itself is some 2: what is above was other work on the same cores, and \
         figures by wall clock carry it."
    );
    if !notes.is_empty() {
        let _ = writeln!(out, "\nFigures in brackets are of runs that do not count, because:\n\n{}", notes.join("\n"));
    }
    Ok(out)
}

fn show(figure: f64) -> String {
    match figure {
        large if large >= 1000.0 => {
            let thousands = (large.round() as u64) / 1000;
            format!("{thousands},{:03}", large.round() as u64 % 1000)
        }
        middle if middle >= 100.0 => format!("{middle:.0}"),
        small => format!("{small:.2}"),
    }
}
