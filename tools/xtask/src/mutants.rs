//! `cargo x mutants`: planted bugs, and which check catches each.
//!
//! - The simulator is built once with the feature `mutants`, as a program of its own: the other stays without.
//! - Each mutant runs over the same seeds, from the first on, until one turns red; one that none turns red survives.
//! - The unmutated engine runs over the same seeds and must stay clean, or a red seed would say nothing.

use crate::workspace::Workspace;
use std::process::{Command, ExitCode};
use std::time::Instant;

#[derive(clap::Args)]
pub struct Arguments {
    /// Only these mutants
    names: Vec<String>,
    /// Seeds within which each must be caught
    #[arg(long, default_value_t = SEEDS)]
    seeds: u64,
    /// Print names and rules and leave
    #[arg(long)]
    list: bool,
}

pub const SEEDS: u64 = 200;
const PACKAGE: &str = "tarn-sim";
const PROGRAM: &str = "tarn-sim-mutant";

/// A mutant as the program lists it.
#[derive(Debug, PartialEq, Eq)]
struct Mutant {
    name: String,
    rule: String,
}

/// What turned red first.
#[derive(Debug, PartialEq, Eq)]
struct Caught {
    seed: String,
    check: String,
}

pub fn run(workspace: &Workspace, arguments: &Arguments) -> Result<ExitCode, String> {
    build(workspace)?;
    let mutants = list(workspace)?;
    if arguments.list {
        mutants.iter().for_each(|mutant| println!("{:<26} {}", mutant.name, mutant.rule));
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(unknown) = arguments.names.iter().find(|name| mutants.iter().all(|mutant| mutant.name != **name)) {
        return Err(format!("no mutant is called {unknown}; see --list"));
    }
    let chosen = |mutant: &&Mutant| arguments.names.is_empty() || arguments.names.contains(&mutant.name);
    let survived = judge(workspace, mutants.iter().filter(chosen).collect(), arguments.seeds)?;
    Ok(if survived == 0 { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

/// Builds and runs all of them; gives how many there are, or what went wrong.
pub fn all(workspace: &Workspace) -> Result<usize, String> {
    build(workspace)?;
    let mutants = list(workspace)?;
    match judge(workspace, mutants.iter().collect(), SEEDS)? {
        0 => Ok(mutants.len()),
        survived => Err(format!("{survived} survived, or the engine without any is not clean")),
    }
}

fn build(workspace: &Workspace) -> Result<(), String> {
    let mut command = workspace.cargo();
    let build = ["build", "--quiet", "--package", PACKAGE, "--features", "mutants", "--bin", PROGRAM];
    let status = command.args(build).status().map_err(|error| format!("cargo build: {error}"))?;
    if status.success() { Ok(()) } else { Err(format!("{PROGRAM} does not build")) }
}

fn simulator(workspace: &Workspace, mutant: &str) -> Command {
    let mut command = workspace.command(workspace.program(PROGRAM));
    command.env("TARN_MUTANT", mutant);
    command
}

fn output(command: &mut Command) -> Result<String, String> {
    let output = command.output().map_err(|error| format!("{PROGRAM}: {error}"))?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn list(workspace: &Workspace) -> Result<Vec<Mutant>, String> {
    let text = output(simulator(workspace, "").arg("--list"))?;
    let line = |line: &str| {
        let (name, rule) = line.split_once(' ')?;
        Some(Mutant { name: name.to_owned(), rule: rule.to_owned() })
    };
    Ok(text.lines().filter_map(line).collect())
}

/// Prints a line a mutant; gives how many survived, the unmutated engine counted as one if it is not clean.
fn judge(workspace: &Workspace, mutants: Vec<&Mutant>, seeds: u64) -> Result<usize, String> {
    let mut wrong = 0;
    let none = Mutant { name: "none".to_owned(), rule: "the engine as it is".to_owned() };
    println!("{:<26} {:<52} {:<12} seed", "mutant", "rule", "caught by");
    for mutant in std::iter::once(&none).chain(mutants.iter().copied()) {
        let started = Instant::now();
        let name = if *mutant == none { "" } else { &mutant.name };
        let count = seeds.to_string();
        let text = output(simulator(workspace, name).args(["run", "--start", "0", "--seeds", &count, "--first"]))?;
        let caught = first_red(&text);
        let ended = text.lines().last() == Some("OK");
        let right = if *mutant == none { caught.is_none() && ended } else { caught.is_some() };
        wrong += usize::from(!right);
        let (check, seed) = match &caught {
            Some(caught) => (caught.check.as_str(), caught.seed.as_str()),
            None if ended => ("nothing", "-"),
            None => ("no end", "-"),
        };
        let verdict = if right { "" } else { "  FAILED" };
        let seconds = started.elapsed().as_secs_f64();
        println!("{:<26} {:<52} {check:<12} {seed:>4} {seconds:>6.1} s{verdict}", mutant.name, mutant.rule);
    }
    println!("{}", if wrong == 0 { "OK" } else { "FAILED" });
    Ok(wrong)
}

/// The first red seed of a run, and the property that it names.
fn first_red(text: &str) -> Option<Caught> {
    let mut lines = text.lines().skip_while(|line| !(line.starts_with("seed ") && line.contains(": FAILED")));
    let seed = lines.next()?.strip_prefix("seed ")?.split(':').next()?.to_owned();
    let check = lines.next()?.strip_prefix("property: ")?.to_owned();
    Some(Caught { seed, check })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_red_seed_is_read_from_what_the_simulator_says() {
        let text = "seeds 0 to 199\nseed 3: FAILED after 41 operations, 1 crashes\nproperty: promise\nexpected: a\n";
        assert_eq!(first_red(text), Some(Caught { seed: "3".to_owned(), check: "promise".to_owned() }));
        assert_eq!(first_red("seeds 0 to 199\nOK\n"), None);
    }
}
