//! `cargo x sim`: simulated histories. One seed is one world.

use crate::workspace::Workspace;
use std::process::ExitCode;

#[derive(clap::Args)]
pub struct Arguments {
    /// Replay this one history and print it
    #[arg(long)]
    seed: Option<u64>,
    /// Run this many fresh histories
    #[arg(long, conflicts_with = "seed")]
    seeds: Option<u64>,
    /// Further arguments for the simulator
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    rest: Vec<String>,
}

pub fn run(workspace: &Workspace, arguments: &Arguments) -> Result<ExitCode, String> {
    let mut command = workspace.cargo();
    command.args(["run", "--quiet", "--package", "tarn-sim", "--", "run"]);
    match (arguments.seed, arguments.seeds) {
        (Some(seed), _) => command.args(["--seed", &seed.to_string(), "--trace"]),
        (None, Some(seeds)) => command.args(["--seeds", &seeds.to_string()]),
        (None, None) => &mut command,
    };
    let status = command.args(&arguments.rest).status().map_err(|error| format!("tarn-sim: {error}"))?;
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::from(1) })
}
