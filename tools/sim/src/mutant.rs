//! `tarn-sim-mutant`: the simulator over an engine with planted bugs, of which `TARN_MUTANT` switches one on.
//!
//! `--list` prints their names and rules.

use std::process::ExitCode;

use tarn_base::mutant::{ALL, choose};

#[path = "main.rs"]
mod program;

fn main() -> ExitCode {
    if std::env::args().nth(1).is_some_and(|argument| argument == "--list") {
        ALL.iter().for_each(|mutant| println!("{} {}", mutant.name, mutant.rule));
        return ExitCode::SUCCESS;
    }
    let name = std::env::var("TARN_MUTANT").unwrap_or_default();
    match choose(&name) {
        Some(mutant) => println!("mutant {}: {}", mutant.name, mutant.rule),
        // A mutant that is nowhere would count as seen by nobody.
        None if !name.is_empty() => {
            eprintln!("no mutant is called {name}");
            return ExitCode::from(2);
        }
        None => {}
    }
    program::main()
}
