//! `cargo x test`: everything, in stages, each with its time.
//!
//! - Installs nothing without `--install`; prints what is missing as one line; a test that lacks something is
//!   skipped and listed by name, and then the run ends with status 3. With `--install` a skip is a failure.
//! - A failed stage does not hide the next; only a failed build ends the run.
//! - The last line is always `N passed, M failed, K skipped`.

pub mod needs;
mod programs;
pub mod rig;
pub mod tally;

use crate::check;
use crate::workspace::Workspace;
use std::process::ExitCode;
use std::time::Instant;
use tally::Tally;

#[derive(clap::Args)]
pub struct Arguments {
    /// Install what tests need first (root); then any skip fails
    #[arg(long)]
    install: bool,
    /// Only these stages: build, tests, check, simulation, flips, fuzz, clients
    stages: Vec<String>,
}

/// Seconds for all decoders together in the fuzz stage.
const FUZZ_SECONDS: u32 = 20;
/// Flipped bits in the stage of that name.
const FLIPS: u32 = 60;
/// Fresh histories in the simulation stage.
const SEEDS: u32 = 200;
/// Beside them those with metadata in SlateDB, which takes ten times as long.
const SLATE_SEEDS: u32 = 20;

type Stage = fn(&Workspace, &mut Tally) -> Result<(), String>;

const STAGES: &[(&str, Stage)] = &[
    ("build", programs::build),
    ("tests", programs::test),
    ("check", checks),
    ("simulation", simulation),
    ("flips", flips),
    ("fuzz", fuzz),
    ("clients", clients),
];

pub fn run(workspace: &Workspace, arguments: &Arguments) -> Result<ExitCode, String> {
    if let Some(unknown) = arguments.stages.iter().find(|stage| STAGES.iter().all(|(name, _)| name != stage)) {
        return Err(format!("no stage is called {unknown}"));
    }
    let started = Instant::now();
    let mut times = Vec::new();
    let mut tally = Tally::default();
    if arguments.install {
        stage("install", &mut times, || needs::install(workspace))?;
    }
    let missing = needs::missing(workspace);
    if !missing.is_empty() {
        println!("missing: {}", missing.iter().map(|need| need.name).collect::<Vec<_>>().join(", "));
        println!("install with: {}", needs::line(workspace, &missing));
    }
    let chosen = |name: &str| arguments.stages.is_empty() || arguments.stages.iter().any(|stage| stage == name);
    for (name, run) in STAGES.iter().filter(|(name, _)| chosen(name)) {
        let ended = stage(name, &mut times, || run(workspace, &mut tally));
        if let Err(problem) = ended {
            println!("FAILED {name}: {problem}");
            tally.failed(name);
            if *name == "build" {
                break;
            }
        }
    }
    report(&tally, &times, started);
    Ok(ExitCode::from(tally.status(arguments.install)))
}

fn stage(
    name: &'static str,
    times: &mut Vec<(&'static str, f64)>,
    run: impl FnOnce() -> Result<(), String>,
) -> Result<(), String> {
    println!("=== {name}");
    let started = Instant::now();
    let ended = run();
    let seconds = started.elapsed().as_secs_f64();
    println!("=== {name}: {seconds:.0} s");
    times.push((name, seconds));
    ended
}

fn report(tally: &Tally, times: &[(&str, f64)], started: Instant) {
    println!();
    for (name, seconds) in times {
        println!("{name:<14} {seconds:>6.0} s");
    }
    println!("{:<14} {:>6.0} s", "total", started.elapsed().as_secs_f64());
    println!();
    for name in &tally.failures {
        println!("FAILED {name}");
    }
    for skipped in &tally.skips {
        println!("SKIPPED {skipped}");
    }
    println!("{} passed, {} failed, {} skipped", tally.passed, tally.failures.len(), tally.skips.len());
}

fn checks(workspace: &Workspace, tally: &mut Tally) -> Result<(), String> {
    let checked = check::tally(workspace, &[])?;
    tally.passed += checked.passed;
    if checked.failed > 0 {
        tally.failed(&format!("check ({} of them)", checked.failed));
    }
    Ok(())
}

fn simulation(workspace: &Workspace, tally: &mut Tally) -> Result<(), String> {
    let runs: [(u32, &[&str], &str); 2] = [(SEEDS, &[], ""), (SLATE_SEEDS, &["--slate"], " with SlateDB")];
    for (seeds, more, what) in runs {
        let mut command = workspace.command(workspace.program("tarn-sim"));
        command.args(["run", "--seeds", &seeds.to_string()]).args(more);
        tally.program(&format!("simulation of {seeds} seeds{what}"), command)?;
    }
    Ok(())
}

fn flips(workspace: &Workspace, tally: &mut Tally) -> Result<(), String> {
    let mut command = workspace.command(workspace.program("tarn-sim"));
    command.args(["flips", "--flips", &FLIPS.to_string()]);
    tally.program(&format!("{FLIPS} flipped bits"), command)
}

fn fuzz(workspace: &Workspace, tally: &mut Tally) -> Result<(), String> {
    let mut command = workspace.command(workspace.program("tarn-fuzz"));
    command.args(["--seconds", &FUZZ_SECONDS.to_string()]);
    tally.program("fuzz", command)
}

fn clients(workspace: &Workspace, tally: &mut Tally) -> Result<(), String> {
    for test in rig::TESTS {
        rig::run(workspace, test, test.short, tally)?;
    }
    Ok(())
}
