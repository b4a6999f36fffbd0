//! `tarn`: files over NFS whose bytes live in an object store.

use std::process::ExitCode;

use clap::Parser;
use tarn_filer::cli::Cli;

// Faster than the system's where threads free what others allocated, which is what a server does all day.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    match Cli::parse().run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(stop) => {
            eprintln!("tarn: {stop}");
            ExitCode::from(stop.code())
        }
    }
}
