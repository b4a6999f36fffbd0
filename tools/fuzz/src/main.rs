//! `tarn-fuzz`: every decoder of bytes from outside, fed with damaged ones.
//!
//! - It knows nothing of coverage: valid bytes are made by the encoders, damaged, and their checksums put right, so
//!   that damage gets behind them.
//! - One line a target; status 1 on a finding, which is named with what replays it.

mod broken;
mod campaign;
mod chance;
mod hex;
mod judge;
mod memory;
mod mutate;
mod seeds;
mod targets;

use std::fs::OpenOptions;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use campaign::Limits;
use clap::Parser;
use hex::{hex, unhex};
use targets::Target;

#[global_allocator]
static ALLOCATOR: memory::Counting = memory::Counting;

/// Feeds every decoder of bytes from outside with damaged ones
#[derive(Parser)]
#[command(name = "tarn-fuzz")]
struct Arguments {
    /// Only targets whose names begin so; repeatable
    #[arg(long)]
    target: Vec<String>,
    /// Seconds for all targets together; without --executions, 60
    #[arg(long)]
    seconds: Option<f64>,
    /// Executions of each target
    #[arg(long)]
    executions: Option<u64>,
    /// The campaign to replay; a fresh one if not given
    #[arg(long)]
    seed: Option<u64>,
    /// Run this one execution of the campaign
    #[arg(long, requires = "seed", conflicts_with = "input")]
    execution: Option<u64>,
    /// Run this one input, hexadecimal
    #[arg(long)]
    input: Option<String>,
    /// Targets at once
    #[arg(long, default_value_t = 2)]
    jobs: usize,
    /// Write result lines to the end of this file too, and leave out targets that passed in it with as many executions
    #[arg(long, requires = "executions")]
    log: Option<PathBuf>,
    /// Seconds after which an execution that has not ended never will
    #[arg(long, default_value_t = 20)]
    hang_seconds: u64,
    /// Take targets that are broken on purpose instead: each must fail
    #[arg(long, hide = true)]
    broken: bool,
    /// Print the names of the targets and leave
    #[arg(long)]
    list: bool,
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(0) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::from(1),
        Err(problem) => {
            eprintln!("error: {problem}");
            ExitCode::from(2)
        }
    }
}

/// Gives the number of findings, or what is wrong with the arguments.
fn run(arguments: &Arguments) -> Result<usize, String> {
    let chosen = |target: &Target| {
        arguments.target.is_empty() || arguments.target.iter().any(|name| target.name.starts_with(name.as_str()))
    };
    let all = if arguments.broken { broken::targets() } else { targets::all() };
    seeds::check(&all)?;
    let mut targets: Vec<Target> = all.into_iter().filter(chosen).collect();
    if targets.is_empty() {
        return Err("no target is called so; see --list".to_owned());
    }
    if arguments.list {
        targets.iter().for_each(|target| println!("{}", target.name));
        return Ok(0);
    }
    judge::catch_panics();
    if let Some(input) = &arguments.input {
        return replay(&targets[0], &unhex(input).ok_or("the input is not hexadecimal")?);
    }
    let seed = arguments.seed.unwrap_or_else(fresh);
    if let Some(number) = arguments.execution {
        let mut input = Vec::new();
        campaign::input(&targets[0], &seeds::bases(&targets[0]), seed, number, &mut input);
        return replay(&targets[0], &input);
    }
    let mut log = None;
    if let (Some(path), Some(executions)) = (&arguments.log, arguments.executions) {
        let before = std::fs::read_to_string(path).unwrap_or_default();
        let passed = campaign::passed(&before, executions);
        targets.retain(|target| !passed.contains(target.name));
        let opened = OpenOptions::new().create(true).append(true).open(path);
        log = Some(opened.map_err(|error| format!("{}: {error}", path.display()))?);
    }
    let jobs = arguments.jobs.clamp(1, targets.len().max(1));
    let seconds = arguments.seconds.or(arguments.executions.is_none().then_some(60.0));
    let share = |seconds: f64| Duration::from_secs_f64(seconds.max(0.0) * jobs as f64 / targets.len().max(1) as f64);
    let hang = Duration::from_secs(arguments.hang_seconds);
    let limits = Limits { executions: arguments.executions, time: seconds.map(share), hang };
    let count = targets.len();
    println!("fuzz: {count} targets, seed {seed}");
    let findings = campaign::run(targets, seed, limits, jobs, log);
    println!("fuzz: {} passed, {findings} failed", count - findings);
    Ok(findings)
}

fn replay(target: &Target, input: &[u8]) -> Result<usize, String> {
    println!("{} bytes: {}", input.len(), hex(&input[..input.len().min(4096)]));
    let judged = judge::judge(target, input);
    match &judged {
        Ok(true) => println!("{}: accepted", target.name),
        Ok(false) => println!("{}: refused", target.name),
        Err(fault) => println!("{}: {fault}", target.name),
    }
    Ok(usize::from(judged.is_err()))
}

fn fresh() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(1, |since| since.as_millis() as u64)
}
