//! `tarn-sim-mutant`: the simulator over an engine with planted bugs, of which `TARN_MUTANT` switches one on.
//!
//! `--list` prints their names and rules.

use std::process::ExitCode;

use tarn_base::mutant::{ALL, chosen};

#[path = "main.rs"]
mod program;

fn main() -> ExitCode {
    if std::env::args().nth(1).is_some_and(|argument| argument == "--list") {
        ALL.iter().for_each(|mutant| println!("{} {}", mutant.name, mutant.rule));
        return ExitCode::SUCCESS;
    }
    if let Some(mutant) = chosen() {
        println!("mutant {}: {}", mutant.name, mutant.rule);
    }
    program::main()
}
