//! `tarn`: files over NFS whose bytes live in an object store.

use std::process::ExitCode;

use clap::Parser;
use tarn_filer::cli::Cli;

// Faster than the system's where threads free what others allocated, which is what a server does all day.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

pub fn main() -> ExitCode {
    // A server maps buffers anew all the time, and zeroing 2 MiB for each 1 MiB written took three quarters of the
    // time of a stream of writes. Where the kernel does not offer it, that is how it stays.
    let _ = rustix::thread::disable_transparent_huge_pages(true);
    match Cli::parse().run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(stop) => {
            eprintln!("tarn: {stop}");
            ExitCode::from(stop.code())
        }
    }
}
