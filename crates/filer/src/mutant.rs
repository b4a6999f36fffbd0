//! `tarn-mutant`: the program with planted bugs in it, of which `TARN_MUTANT` switches one on. Never for users.

#[path = "main.rs"]
mod program;

fn main() -> std::process::ExitCode {
    if let Some(mutant) = tarn_base::mutant::chosen() {
        eprintln!("tarn-mutant: {} - {}", tarn_base::mutant::MARK, mutant.name);
    }
    program::main()
}
