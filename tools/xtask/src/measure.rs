//! `cargo x measure`: the section "Workloads" of docs/performance.md, measured on this machine.
//!
//! - One workload after the other, each in a process of its own: what was measured stays when the next one fails.
//! - Needs root, two cores and Debian's nfs-ganesha, nfs-ganesha-vfs and rpcbind; without those `--no-ganesha`.

use crate::workspace::Workspace;
use std::process::ExitCode;

#[derive(clap::Args)]
pub struct Arguments {
    /// Only these workloads
    workloads: Vec<String>,
    /// Leave NFS-Ganesha out
    #[arg(long)]
    no_ganesha: bool,
    /// Seconds that each point is measured
    #[arg(long, default_value_t = 3.0)]
    seconds: f64,
    /// Build nothing: the programs are there
    #[arg(long)]
    built: bool,
}

/// Those whose figures the document holds against the seeds'.
const WORKLOADS: [&str; 6] = ["sfs2008-like", "ai-image-like", "oltp", "stream-read", "stream-write", "analytics"];

pub fn run(workspace: &Workspace, arguments: &Arguments) -> Result<ExitCode, String> {
    if !arguments.built {
        let built = workspace.cargo().args(["build", "--release", "-p", "tarn-filer", "-p", "tarn-bench"]).status();
        if !built.map_err(|error| format!("cargo build: {error}"))?.success() {
            return Err("cargo build failed".to_owned());
        }
    }
    let programs = workspace.target.join("release");
    let results = workspace.target.join("measure");
    let chosen: Vec<&str> = match arguments.workloads.is_empty() {
        true => WORKLOADS.to_vec(),
        false => arguments.workloads.iter().map(String::as_str).collect(),
    };
    let mut failed = Vec::new();
    for workload in chosen {
        let mut command = workspace.command(programs.join("tarn-bench"));
        command.arg("claims").arg("--tarn").arg(programs.join("tarn")).arg("--results").arg(&results);
        command.args(["--workload", workload, "--seconds", &arguments.seconds.to_string(), "--document"]);
        command.arg(workspace.root.join("docs/performance.md"));
        if !arguments.no_ganesha {
            command.arg("--ganesha");
        }
        let status = command.status().map_err(|error| format!("tarn-bench: {error}"))?;
        if !status.success() {
            failed.push(workload);
        }
    }
    if failed.is_empty() { Ok(ExitCode::SUCCESS) } else { Err(format!("not measured: {}", failed.join(", "))) }
}
