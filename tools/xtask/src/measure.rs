//! `cargo x measure`: the section "Workloads" of docs/performance.md, measured on this machine.
//!
//! - What was measured stays: a second call goes on where the first one ended, unless Tarn was built anew meanwhile.
//! - Needs root, two cores and Debian's nfs-ganesha, nfs-ganesha-vfs and rpcbind; without those `--no-ganesha`.

use crate::workspace::Workspace;
use std::process::ExitCode;

#[derive(clap::Args)]
pub struct Arguments {
    /// Only these; `list` names them
    workloads: Vec<String>,
    /// Leave NFS-Ganesha out
    #[arg(long)]
    no_ganesha: bool,
    /// Seconds and rounds, as a share of what is right: a trial, which writes no document
    #[arg(long, default_value_t = 1.0)]
    share: f64,
    /// Build nothing: the programs are there
    #[arg(long)]
    built: bool,
}

pub fn run(workspace: &Workspace, arguments: &Arguments) -> Result<ExitCode, String> {
    if !arguments.built {
        let built = workspace.cargo().args(["build", "--release", "-p", "tarn-filer", "-p", "tarn-bench"]).status();
        if !built.map_err(|error| format!("cargo build: {error}"))?.success() {
            return Err("cargo build failed".to_owned());
        }
    }
    let programs = workspace.target.join("release");
    let mut command = workspace.command(programs.join("tarn-bench"));
    command.arg("claims").arg("--tarn").arg(programs.join("tarn"));
    let results = if arguments.share < 1.0 { "measure-trial" } else { "measure" };
    command.arg("--results").arg(workspace.target.join(results)).args(["--share", &arguments.share.to_string()]);
    if !arguments.workloads.is_empty() {
        command.args(["--workload", &arguments.workloads.join(",")]);
    }
    if arguments.share >= 1.0 {
        command.arg("--document").arg(workspace.root.join("docs/performance.md"));
    }
    if !arguments.no_ganesha {
        command.arg("--ganesha");
    }
    let status = command.status().map_err(|error| format!("tarn-bench: {error}"))?;
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::from(1) })
}
