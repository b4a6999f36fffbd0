//! `tarn bench` and `tarn size`: hand over to `tarn-bench`, the load generator, which also forecasts what a load needs.
//!
//! - A program of its own: what measures a server shares no code with it, and is no part of what is deployed.
//! - It is looked for beside this program, then in PATH.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::Command;

use clap::Args;

use crate::exit::{Outcome, Stop};

const PROGRAM: &str = "tarn-bench";

#[derive(Debug, Args)]
pub struct Bench {
    /// What tarn-bench is told, such as: meta --target nfs://127.0.0.1:2049/vol --operation getattr
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENTS")]
    arguments: Vec<OsString>,
}

#[derive(Debug, Args)]
pub struct Size {
    /// What is to be sized, such as: --workload ai-image --jobs 700 --rtt 0.5
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENTS")]
    arguments: Vec<OsString>,
}

impl Size {
    pub fn run(self) -> Outcome<()> {
        let arguments = std::iter::once("size".into()).chain(self.arguments).collect();
        Bench { arguments }.run()
    }
}

impl Bench {
    pub fn run(self) -> Outcome<()> {
        let own = std::env::current_exe().ok();
        let beside = own.and_then(|own| Some(own.parent()?.join(PROGRAM))).filter(|path| path.exists());
        let program = beside.unwrap_or_else(|| PROGRAM.into());
        let error = Command::new(&program).args(self.arguments).exec();
        Err(Stop::NoBench(format!("{}: {error}", program.display())))
    }
}
