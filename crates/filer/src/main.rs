//! `tarn`: files over NFS whose bytes live in an object store.

use std::ffi::{c_int, c_long};
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
    keep_free_memory();
    match Cli::parse().run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(stop) => {
            eprintln!("tarn: {stop}");
            ExitCode::from(stop.code())
        }
    }
}

/// The allocator's option of that name; it has no other in the crate.
const PURGE_DELAY: c_int = 15;
/// What the allocator waits before it gives free memory back, and what we let it wait, milliseconds. A burst that follows
/// another within a write-back delay finds its memory, where each page that the kernel must find again costs as much as
/// encrypting it; later the machine has it back. The most that is in use at a time grows by nothing.
const FREE_MS: c_long = 30_000;

unsafe extern "C" {
    fn mi_option_set_default(option: c_int, value: c_long);
}

/// Sets [`FREE_MS`], unless the environment says otherwise (MIMALLOC_PURGE_DELAY).
fn keep_free_memory() {
    // SAFETY: it sets a number in the allocator that this program is linked with.
    unsafe { mi_option_set_default(PURGE_DELAY, FREE_MS) };
}

#[cfg(test)]
mod tests {
    use super::*;

    unsafe extern "C" {
        fn mi_option_get(option: c_int) -> c_long;
    }

    #[test]
    fn the_option_is_the_one_that_is_meant() {
        // SAFETY: it reads a number in the allocator that this program is linked with.
        let read = || unsafe { mi_option_get(PURGE_DELAY) };
        // No other option has this default.
        assert_eq!(read(), 1000);
        keep_free_memory();
        assert_eq!(read(), FREE_MS);
    }
}
