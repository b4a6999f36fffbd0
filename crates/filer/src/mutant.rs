//! `tarn-mutant`: the program with planted bugs in it, of which `TARN_MUTANT` switches one on. Never for users.

use std::process::ExitCode;

use tarn_base::mutant::choose;

#[path = "main.rs"]
mod program;

fn main() -> ExitCode {
    let name = std::env::var("TARN_MUTANT").unwrap_or_default();
    match choose(&name) {
        Some(mutant) => eprintln!("tarn-mutant: {}, against rule {}", mutant.name, mutant.rule),
        // A mutant that is nowhere would count as seen by nobody.
        None if !name.is_empty() => {
            eprintln!("tarn-mutant: no mutant is called {name}");
            return ExitCode::from(2);
        }
        None => {}
    }
    program::main()
}
