//! `cargo x`: the project's checks, tests, simulations and long evidence, one subcommand a file.
//!
//! - Every subcommand works from any directory of the checkout and writes only below the target directory and
//!   the tools directory (`TARN_TOOLS`).
//! - Exit codes: 0 everything passed, 1 something failed, 2 wrong usage, 3 passed with tests skipped.

mod check;
mod fuzz;
mod measure;
mod mutants;
mod prove;
mod sim;
mod source;
mod test;
mod workspace;

use clap::{Parser, Subcommand};
use std::process::ExitCode;
use workspace::Workspace;

#[derive(Parser)]
#[command(name = "cargo x", bin_name = "cargo x", about = "Checks, tests, simulations and proofs of Tarn")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Format, lints, layer laws, module cycles, function length, links
    Check(check::Arguments),
    /// Everything, in stages: build, tests, check, simulation, real clients
    Test(test::Arguments),
    /// Simulated histories; `--seed N` replays and prints one
    Sim(sim::Arguments),
    /// Planted bugs, and which check catches each
    Mutants(mutants::Arguments),
    /// Damaged bytes for every decoder
    Fuzz(fuzz::Arguments),
    /// What the systems that Tarn follows claim, measured here: the section "Workloads" of docs/performance.md
    Measure(measure::Arguments),
    /// The long evidence, resumable, one result line a check
    Prove(prove::Arguments),
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let workspace = match Workspace::find() {
        Ok(workspace) => workspace,
        Err(problem) => return fail(&problem),
    };
    let ended = match arguments.command {
        Command::Check(arguments) => check::run(&workspace, &arguments),
        Command::Test(arguments) => test::run(&workspace, &arguments),
        Command::Sim(arguments) => sim::run(&workspace, &arguments),
        Command::Mutants(arguments) => mutants::run(&workspace, &arguments),
        Command::Fuzz(arguments) => fuzz::run(&workspace, &arguments),
        Command::Measure(arguments) => measure::run(&workspace, &arguments),
        Command::Prove(arguments) => prove::run(&workspace, &arguments),
    };
    ended.unwrap_or_else(|problem| fail(&problem))
}

fn fail(problem: &str) -> ExitCode {
    eprintln!("error: {problem}");
    ExitCode::from(1)
}
