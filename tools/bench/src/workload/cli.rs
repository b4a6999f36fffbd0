//! `tarn-bench run WORKLOAD --target URL`: targets one after the other, a table, JSON.
//!
//! - A run that is invalid ends with a failure; its report is written all the same and says why.
//! - With `--resume`, cells that the JSON already has are not measured again.

use crate::Outcome;
use crate::drive::connection::Trouble;
use crate::drive::reactor::Reactor;
use crate::measure::cpu;
use crate::workload::agent::control::{Agents, HERE};
use crate::workload::agent::message::Open;
use crate::workload::agent::token::Token;
use crate::workload::definition::Definition;
use crate::workload::kept;
use crate::workload::library::{LIBRARY, find, text};
use crate::workload::page::page;
use crate::workload::result::{Cell, Report};
use crate::workload::run::{Load, Options, run as run_workload, run_by};
use crate::workload::site::{Opening, Site};
use crate::workload::table;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

#[derive(clap::Args)]
pub struct Arguments {
    /// A workload of the library, or a .toml file; `list` names them
    pub workload: String,
    /// Where: nfs://HOST[:PORT]/PATH[?mountport=N] or file:///DIRECTORY; several are measured one after the other
    #[arg(long)]
    pub target: Vec<String>,
    /// A small form of a few seconds: a check, not a measurement
    #[arg(long)]
    pub quick: bool,
    /// Units of load at the peak [default: the workload's, or found]
    #[arg(long, default_value_t = 0.0)]
    pub peak: f64,
    /// Size of the data, as a share of what the workload says
    #[arg(long, default_value_t = 1.0)]
    pub scale: f64,
    /// Load points [default: the workload's]
    #[arg(long, default_value_t = 0)]
    pub points: u32,
    /// Seconds before a cell is measured [default: the workload's]
    #[arg(long)]
    pub warm_up: Option<f64>,
    /// Seconds that a cell is measured [default: the workload's]
    #[arg(long)]
    pub seconds: Option<f64>,
    /// TCP connections
    #[arg(long, default_value_t = 8)]
    pub connections: usize,
    /// Of all random choices
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Seconds that a server which is gone is waited for
    #[arg(long, default_value_t = 10.0)]
    pub patience: f64,
    /// The server's process, for its processor time [default: whoever listens there on this machine]
    #[arg(long)]
    pub server_pid: Option<u32>,
    /// The core of the generator
    #[arg(long)]
    pub pin_client: Option<usize>,
    /// Deal the load out to agents (`tarn-bench agent`) instead of making it here; `here` is one of this process
    #[arg(long, value_name = "HOST:PORT")]
    pub agent: Vec<String>,
    /// The token that the agents know, the first line of this file
    #[arg(long, value_name = "FILE", requires = "agent")]
    pub agent_token_file: Option<PathBuf>,
    /// Write the reports to this file, as a JSON list
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Write the reports to this file, as one HTML page that needs nothing else
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Keep every latency and compare the percentiles with them; a quick run always does
    #[arg(long)]
    pub raw: bool,
    /// Take over cells that the JSON file has
    #[arg(long, requires = "json")]
    pub resume: bool,
}

/// Runs what was asked for.
pub fn run(arguments: &Arguments) -> Outcome<()> {
    if arguments.workload == "list" {
        for (name, _) in LIBRARY {
            println!("{name:<16} {}", find(name)?.1.title);
        }
        return Ok(());
    }
    check(arguments)?;
    let (name, definition) = find(&arguments.workload)?;
    let (_, source) = text(&arguments.workload)?;
    if let Some(core) = arguments.pin_client {
        cpu::pin(core)?;
    }
    let interrupted = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register(signal, interrupted.clone()).map_err(|error| error.to_string())?;
    }
    let before = match (&arguments.json, arguments.resume) {
        (Some(path), true) => kept::read(path)?,
        _ => Vec::new(),
    };
    let mut reports = Vec::new();
    for target in &arguments.target {
        let mut options = options(arguments);
        options.asked = kept::asked(&options, arguments.agent.len(), &source);
        options.before = kept::earlier(&before, (&name, target), &options.asked)?;
        let report = one(arguments, (&name, &definition), target, &options, &interrupted, &mut |report| {
            let so_far = kept::unfinished(report);
            let all: Vec<&Report> = reports.iter().chain([&so_far]).collect();
            arguments.json.as_ref().map_or(Ok(()), |path| kept::write(path, &all))
        })?;
        println!("{}\n", table::tail(&report));
        reports.push(report);
    }
    if let Some(path) = &arguments.json {
        kept::write(path, &reports.iter().collect::<Vec<_>>())?;
    }
    if let Some(path) = &arguments.html {
        std::fs::write(path, page(&reports)).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    match reports.iter().filter(|report| !report.valid).count() {
        0 => Ok(()),
        invalid => Err(format!("{invalid} of {} runs invalid", reports.len())),
    }
}

fn check(arguments: &Arguments) -> Outcome<()> {
    if arguments.target.is_empty() {
        return Err("nothing to measure: give --target nfs://HOST:PORT/PATH or --target file:///DIRECTORY".to_owned());
    }
    let bounded = |name: &str, value: f64, least: f64, most: f64| {
        let right = (least..=most).contains(&value);
        if right { Ok(()) } else { Err(format!("--{name} is from {least} to {most}")) }
    };
    bounded("peak", arguments.peak, 0.0, 1e9)?;
    bounded("scale", arguments.scale, 1e-9, 1e6)?;
    bounded("warm-up", arguments.warm_up.unwrap_or(0.0), 0.0, 86_400.0)?;
    bounded("seconds", arguments.seconds.unwrap_or(1.0), 0.01, 86_400.0)?;
    bounded("patience", arguments.patience, 0.0, 86_400.0)?;
    bounded("connections", arguments.connections as f64, 1.0, 4096.0)?;
    arguments.json.iter().chain(&arguments.html).try_for_each(|path| kept::writable(path))
}

fn one(
    arguments: &Arguments,
    (name, definition): (&str, &Definition),
    target: &str,
    options: &Options,
    interrupted: &Arc<AtomicBool>,
    keep: &mut dyn FnMut(&Report) -> Outcome<()>,
) -> Outcome<Report> {
    let reactor = Reactor::new()?;
    reactor.stop_by(interrupted.clone());
    let trouble = Rc::new(Trouble::default());
    let patience = Duration::from_secs_f64(arguments.patience);
    let (url, pid) = (target.to_owned(), arguments.server_pid);
    let mut agents = agents(arguments, interrupted)?;
    // With agents only the directory is made from here.
    let connections = if agents.is_some() { 1 } else { arguments.connections };
    let site = Site::open(&reactor, &Opening { url, connections, patience, pid, core: None }, &trouble)?;
    let mut first = true;
    let mut kept = Ok(());
    let mut tell = |report: &Report, cell: &Cell| {
        if std::mem::take(&mut first) {
            println!("{}", table::head(report));
        }
        println!("{}", table::line(cell));
        if kept.is_ok() {
            kept = keep(report);
        }
    };
    let opened = agents.as_mut().map(|agents| seat(agents, arguments, target, &site)).transpose();
    let report = match (opened, &mut agents) {
        (Err(error), _) => Err(error),
        (Ok(_), Some(agents)) => Ok(run_by(Load::Agents(agents), &site, (name, definition), options, &mut tell)),
        (Ok(_), None) => Ok(run_workload(&reactor, &site, &trouble, (name, definition), options, &mut tell)),
    };
    // They have stopped before what they made is taken away.
    drop(agents);
    // Whatever came of it, the directory goes.
    let removed = site.remove();
    let mut report = report?;
    if let Err(error) = removed {
        report.valid = false;
        report.reasons.push(error);
    }
    kept?;
    Ok(report)
}

fn options(arguments: &Arguments) -> Options {
    Options {
        quick: arguments.quick,
        peak: arguments.peak,
        scale: arguments.scale,
        points: arguments.points,
        warm_up: arguments.warm_up,
        seconds: arguments.seconds,
        connections: arguments.connections,
        seed: arguments.seed,
        patience: Duration::from_secs_f64(arguments.patience),
        raw: arguments.raw || arguments.quick,
        asked: String::new(),
        before: None,
        steady: None,
    }
}

/// The agents that were named, connected; `None` where this process makes the load.
fn agents(arguments: &Arguments, interrupted: &Arc<AtomicBool>) -> Outcome<Option<Agents>> {
    let token = match &arguments.agent_token_file {
        _ if arguments.agent.is_empty() => return Ok(None),
        Some(path) => Token::read(path)?,
        // Nobody else is asked to believe it.
        None if arguments.agent.iter().all(|agent| agent == HERE) => Token::draw()?,
        None => return Err("agents must be told their token: give --agent-token-file FILE".to_owned()),
    };
    Agents::connect(&arguments.agent, &token, interrupted).map(Some)
}

/// Gives each agent its part of what was opened.
fn seat(agents: &mut Agents, arguments: &Arguments, target: &str, site: &Site) -> Outcome<()> {
    let (_, definition) = text(&arguments.workload)?;
    let patience = Duration::from_secs_f64(arguments.patience);
    agents.open(patience, |part, parts| Open {
        target: target.to_owned(),
        directory: site.directory(),
        part,
        parts,
        definition: definition.clone(),
        connections: arguments.connections,
        patience: arguments.patience,
        seed: arguments.seed,
        raw: arguments.raw || arguments.quick,
    })
}
