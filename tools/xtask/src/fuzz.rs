//! `cargo x fuzz`: every decoder of bytes from outside, fed with damaged ones; a line a decoder.

use crate::workspace::Workspace;
use std::process::ExitCode;

#[derive(clap::Args)]
pub struct Arguments {
    /// Seconds for all targets together; without --executions, 60
    #[arg(long)]
    seconds: Option<f64>,
    /// Executions of each target
    #[arg(long)]
    executions: Option<u64>,
    /// Only targets whose names begin so; repeatable
    #[arg(long)]
    target: Vec<String>,
    /// Further arguments for the fuzzer
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    rest: Vec<String>,
}

pub fn run(workspace: &Workspace, arguments: &Arguments) -> Result<ExitCode, String> {
    let mut command = workspace.cargo();
    command.args(["run", "--quiet", "--package", "tarn-fuzz", "--"]);
    if let Some(seconds) = arguments.seconds {
        command.args(["--seconds", &seconds.to_string()]);
    }
    if let Some(executions) = arguments.executions {
        command.args(["--executions", &executions.to_string()]);
    }
    for target in &arguments.target {
        command.args(["--target", target]);
    }
    let status = command.args(&arguments.rest).status().map_err(|error| format!("tarn-fuzz: {error}"))?;
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::from(1) })
}
