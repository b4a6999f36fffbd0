//! `tarn`: files over NFS whose bytes live in an object store.

use std::process::ExitCode;

use clap::Parser;
use tarn_filer::cli::Cli;

// Faster than the system's where threads free what others allocated, which is what a server does all day.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

pub fn main() -> ExitCode {
    large_pages_where_asked_for();
    match Cli::parse().run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(stop) => {
            eprintln!("tarn: {stop}");
            ExitCode::from(stop.code())
        }
    }
}

/// A server maps buffers anew all the time, and zeroing 2 MiB for each 1 MiB written took three quarters of the time of a stream of
/// writes: pages of 2 MiB are only for what asks for them.
fn large_pages_where_asked_for() {
    /// `PR_THP_DISABLE_EXCEPT_ADVISED` of Linux 6.18.
    const EXCEPT_ADVISED: libc::c_ulong = 2;
    // SAFETY: these say how the kernel maps this process's memory, and touch none of it.
    let done = unsafe {
        libc::prctl(
            libc::PR_SET_THP_DISABLE,
            1 as libc::c_ulong,
            EXCEPT_ADVISED,
            0 as libc::c_ulong,
            0 as libc::c_ulong,
        )
    };
    let mode = || std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled").unwrap_or_default();
    // An older kernel gives them to who asks, or to everybody: then to nobody.
    if done != 0 && mode().contains("[always]") {
        let _ = rustix::thread::disable_transparent_huge_pages(true);
    }
}
