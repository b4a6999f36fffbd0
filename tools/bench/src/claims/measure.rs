//! The measurement behind the claims: servers in turns, round after round, each result kept as soon as it is there.
//!
//! - Tarn over a store in memory and over one slowed down to `blob`, and NFS-Ganesha over a local directory.
//! - Each server has one core, the generator another; who is first changes from round to round.
//! - What a round leaves to a Tarn's checkpoints is done before the next begins: it is nobody else's.
//! - What was measured by the same program in the same way is not measured again.

use super::{Arguments, SERVERS};
use crate::Outcome;
use crate::content::fold;
use crate::drive::connection::Trouble;
use crate::drive::reactor::Reactor;
use crate::measure::{cpu, machine};
use crate::servers::{Place, Server, ganesha, space, tarn};
use crate::target::Target;
use crate::workload::library::find;
use crate::workload::result::Report;
use crate::workload::run::{Options, run as run_workload};
use crate::workload::site::{Opening, Site};
use crate::workload::steady::Steady;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How a workload is measured here: short forms, whose data fit the disk and whose time an hour's patience.
pub struct Plan {
    /// What its results are called.
    pub name: &'static str,
    workload: &'static str,
    rounds: usize,
    /// Size of the data, as a share of what the workload says.
    scale: f64,
    /// Units at the peak; 0: the workload's, or found for each server.
    peak: f64,
    /// Load points; 0: the workload's.
    points: u32,
    warm_up: f64,
    seconds: f64,
    /// One checkpoint in each cell of a Tarn, at the same place, of as much change as the cell makes.
    steady: bool,
    /// The cache of data of a Tarn, of its settings; none: what it takes by itself.
    cache: &'static str,
    /// Rounds before the first that counts: a server that has just begun takes new memory, which costs more than what it has.
    settling: usize,
}

/// One round of a workload as it is, with data of half a gigabyte.
const SHORT: Plan = Plan {
    name: "",
    workload: "",
    rounds: 1,
    scale: 0.125,
    peak: 0.0,
    points: 0,
    warm_up: 0.5,
    seconds: 2.0,
    steady: false,
    cache: "",
    settling: 0,
};

pub const PLANS: &[Plan] = &[
    // Data are made for 2,000 op/s before the peak is found: 2.6 GB, which is 0.87 times a cache of 3 GB.
    Plan { name: "sfs2008-like", workload: "sfs2008-like", scale: 0.011, warm_up: 1.0, seconds: 3.0, ..SHORT },
    // The same load for all three, so that processor time can be compared and its variation be told.
    Plan {
        name: "sfs2008-like-fixed",
        workload: "sfs2008-like",
        rounds: 5,
        scale: 0.0008,
        peak: 10_000.0,
        points: 1,
        // So long before its end the checkpoint of a round is asked for.
        warm_up: 4.5,
        seconds: 15.0,
        steady: true,
        // 0.87 times of it are the data, as in sfs2008-like.
        cache: "[cache]\ndata = \"1100MiB\"\n",
        settling: 2,
    },
    Plan {
        name: "ai-image-like",
        workload: "ai-image-like",
        scale: 0.25,
        peak: 2.0,
        // In shorter points one process that begins beside it makes the generator late.
        warm_up: 3.0,
        seconds: 9.0,
        ..SHORT
    },
    // On one file.
    Plan { name: "oltp", workload: "oltp", scale: 0.0625, rounds: 5, ..SHORT },
    Plan { name: "stream-read", workload: "stream-read", rounds: 5, ..SHORT },
    Plan { name: "stream-write", workload: "stream-write", rounds: 5, ..SHORT },
    Plan { name: "analytics", workload: "analytics", rounds: 5, ..SHORT },
    Plan { name: "vdbench-grid", workload: "vdbench-grid", scale: 0.25, warm_up: 0.2, seconds: 1.5, ..SHORT },
    Plan { name: "small-files", workload: "small-files", scale: 0.3, ..SHORT },
    Plan { name: "softnas-matrix", workload: "softnas-matrix", scale: 0.025, warm_up: 0.3, seconds: 1.5, ..SHORT },
    Plan { name: "render", workload: "render", scale: 0.5, ..SHORT },
    Plan { name: "bowtie", workload: "bowtie", scale: 0.25, warm_up: 0.5, seconds: 2.5, ..SHORT },
];

impl Plan {
    pub fn find(name: &str) -> Outcome<&'static Plan> {
        let names = || PLANS.iter().map(|plan| plan.name).collect::<Vec<_>>().join(", ");
        PLANS.iter().find(|plan| plan.name == name).ok_or_else(|| format!("{name} is none of {}", names()))
    }

    fn rounds(&self, share: f64) -> usize {
        ((self.rounds as f64 * share.min(1.0)).round() as usize).max(1)
    }
}

/// The shapes of Tarn's store, in the order of the servers.
const SHAPES: [&str; 2] = ["ram", "blob"];

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
    fn start(arguments: &Arguments, plan: &Plan, binary: &Path) -> Outcome<Stand> {
        let name = format!("tarn-bench-{}", std::process::id());
        let directories = [arguments.directory.join(&name), Path::new("/dev/shm").join(&name)];
        for directory in &directories {
            std::fs::create_dir(directory).map_err(|error| format!("{}: {error}", directory.display()))?;
        }
        let mut stand = Stand { servers: Vec::new(), directories };
        for (index, shape) in SHAPES.into_iter().enumerate() {
            let directory = stand.directories[0].join(shape);
            std::fs::create_dir(&directory).map_err(|error| format!("{}: {error}", directory.display()))?;
            let place = Place { directory, core: Some(0), memory: 0 };
            let store = tarn::Store {
                shape,
                directory: stand.directories[1].join(shape),
                admin: 21_120 + index as u16,
                cache: plan.cache,
            };
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

impl Stand {
    /// How the server is asked for a checkpoint, if it is a Tarn.
    fn steady(&self, index: usize, binary: &Path) -> Option<Steady> {
        let data = tarn::data(&self.directories[0].join(SHAPES.get(index)?));
        Some(Steady { program: binary.to_owned(), data, core: 0 })
    }
}

/// What results are of: another program's or another measurement's do not count.
fn fingerprint(arguments: &Arguments, binary: &Path) -> Outcome<String> {
    let bytes = std::fs::read(binary).map_err(|error| format!("{}: {error}", binary.display()))?;
    Ok(format!("tarn {:016x}, share {}, Ganesha {}", fold(&bytes), arguments.share, arguments.ganesha))
}

/// Forgets results that are of something else.
fn prepare(arguments: &Arguments, binary: &Path) -> Outcome<()> {
    let failed = |error: std::io::Error| format!("{}: {error}", arguments.results.display());
    std::fs::create_dir_all(&arguments.results).map_err(failed)?;
    let (path, own) = (arguments.results.join("of.txt"), fingerprint(arguments, binary)?);
    if std::fs::read_to_string(&path).is_ok_and(|of| of == own) {
        return Ok(());
    }
    for plan in PLANS {
        let old = arguments.results.join(format!("{}.json", plan.name));
        if old.exists() {
            eprintln!("{} is of another program or another measurement: forgotten", old.display());
            std::fs::remove_file(&old).map_err(failed)?;
        }
    }
    std::fs::write(&path, own).map_err(failed)
}

/// Measures what was asked for and is not there.
pub fn measure(arguments: &Arguments, binary: &Path) -> Outcome<()> {
    if arguments.ganesha {
        space::enter()?;
    }
    prepare(arguments, binary)?;
    // A signal ends the load, not this process: servers and directories must go.
    let interrupted = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register(signal, interrupted.clone()).map_err(|error| error.to_string())?;
    }
    let chosen: Vec<&Plan> = match arguments.workload.is_empty() {
        true => PLANS.iter().collect(),
        false => arguments.workload.iter().map(|name| Plan::find(name)).collect::<Outcome<_>>()?,
    };
    let mut failed = Vec::new();
    for plan in chosen {
        let ended = rounds(arguments, plan, binary, &interrupted);
        if interrupted.load(Ordering::Relaxed) {
            return Err("stopped by a signal; the same command goes on from here".to_owned());
        }
        // The others are worth having all the same.
        failed.extend(ended.err().map(|error| format!("{}: {error}", plan.name)));
    }
    if failed.is_empty() { Ok(()) } else { Err(format!("not measured: {}", failed.join("; "))) }
}

/// All rounds of a plan that are not there yet.
fn rounds(arguments: &Arguments, plan: &Plan, binary: &Path, interrupted: &Arc<AtomicBool>) -> Outcome<()> {
    let servers = if arguments.ganesha { 3 } else { 2 };
    let path = arguments.results.join(format!("{}.json", plan.name));
    let mut reports = read(&path)?.unwrap_or_default();
    let done = |reports: &[Report], of: &str| reports.iter().filter(|report| report.target == of).count();
    let rounds = plan.rounds(arguments.share);
    if SERVERS[..servers].iter().all(|of| done(&reports, of) >= rounds) {
        eprintln!("{}: measured already", plan.name);
        return Ok(());
    }
    // New ones for each plan: none finds what another has left. Where each has one turn only, new ones for each turn: what a
    // store in memory holds until its garbage may go would be missed by those after it.
    let mut stand = None;
    for round in 0..rounds {
        for turn in 0..servers {
            let index = (round + turn) % servers;
            let server = SERVERS[index];
            if done(&reports, server) > round {
                continue;
            }
            if rounds == 1 {
                drop(stand.take());
            }
            let stand = match &mut stand {
                Some(stand) => stand,
                none => {
                    let stand = none.insert(Stand::start(arguments, plan, binary)?);
                    settle(arguments, plan, (&*stand, &SERVERS[..servers]), binary, interrupted)?;
                    stand
                }
            };
            let report = turn_of(arguments, plan, (stand, index), binary, interrupted)?;
            if interrupted.load(Ordering::Relaxed) {
                return Ok(());
            }
            reports.push(report);
            let text = serde_json::to_string_pretty(&reports).map_err(|error| error.to_string())?;
            std::fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))?;
        }
    }
    Ok(())
}

/// The rounds of servers just started that do not count.
fn settle(
    arguments: &Arguments,
    plan: &Plan,
    (stand, servers): (&Stand, &[&str]),
    binary: &Path,
    interrupted: &Arc<AtomicBool>,
) -> Outcome<()> {
    for turn in 0..plan.settling * servers.len() {
        if !interrupted.load(Ordering::Relaxed) {
            eprint!("does not count yet: ");
            turn_of(arguments, plan, (stand, turn % servers.len()), binary, interrupted)?;
        }
    }
    Ok(())
}

/// One server's turn; what it leaves to a checkpoint is done at its end.
fn turn_of(
    arguments: &Arguments,
    plan: &Plan,
    (stand, index): (&Stand, usize),
    binary: &Path,
    interrupted: &Arc<AtomicBool>,
) -> Outcome<Report> {
    let target = stand.servers.iter().filter_map(|server| server.target.as_ref()).nth(index);
    let target = target.ok_or_else(|| format!("{} was not started", SERVERS[index]))?;
    let steady = stand.steady(index, binary);
    let report = one(arguments, plan, (SERVERS[index], target, steady.clone()), interrupted)?;
    steady.map_or(Ok(()), |steady| steady.checkpoint())?;
    Ok(report)
}

/// The results of a plan, if there are any.
pub fn read(path: &Path) -> Outcome<Option<Vec<Report>>> {
    let Ok(text) = std::fs::read_to_string(path) else { return Ok(None) };
    serde_json::from_str(&text).map(Some).map_err(|error| format!("{}: {error}", path.display()))
}

fn one(
    arguments: &Arguments,
    plan: &Plan,
    (server, target, steady): (&str, &Target, Option<Steady>),
    interrupted: &Arc<AtomicBool>,
) -> Outcome<Report> {
    let load_average = machine::load_average();
    let (name, definition) = find(plan.workload)?;
    let reactor = Reactor::new()?;
    reactor.stop_by(interrupted.clone());
    let trouble = Rc::new(Trouble::default());
    let patience = Duration::from_secs(10);
    let url = target.url();
    let site = Site::open(&reactor, &Opening { url, connections: 8, patience, pid: target.pid, core: None }, &trouble)?;
    let options = Options {
        quick: false,
        peak: plan.peak,
        scale: plan.scale,
        points: plan.points,
        warm_up: Some(plan.warm_up * arguments.share),
        seconds: Some((plan.seconds * arguments.share).max(0.2)),
        connections: 8,
        seed: 1,
        patience,
        raw: false,
        asked: String::new(),
        before: None,
        steady: steady.filter(|_| plan.steady),
    };
    let mut report = run_workload(&reactor, &site, &trouble, (&name, &definition), &options, &mut |_, _| ());
    site.remove()?;
    server.clone_into(&mut report.target);
    report.load_average = Some(load_average).filter(|load| load.is_finite());
    let counts = if report.valid { "valid".to_owned() } else { report.reasons.join("; ") };
    eprintln!("{}, {server}: {counts}", plan.name);
    Ok(report)
}
