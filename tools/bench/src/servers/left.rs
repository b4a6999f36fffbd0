//! What a measurement would leave behind where a signal ends it: servers, directories, memory groups.
//!
//! - A server that changes its user, as the port mapper does, does not die with its parent (prctl(2), PR_SET_PDEATHSIG).
//! - The signal's own thread takes all away, whatever the others are at, and ends the process as the signal would have.

use crate::Outcome;
use rustix::process::{Pid, Signal, WaitOptions, getpid, kill_process, waitpid};
use signal_hook::consts::{SIGINT, SIGTERM};
use std::fs;
use std::io::Read;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

/// Directories, in the order in which they were made.
static MADE: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// The directory goes with this process, if a signal ends it.
pub fn note(directory: &Path) {
    if let Ok(mut made) = MADE.lock() {
        made.push(directory.to_owned());
    }
}

/// Has SIGINT and SIGTERM take away what there is.
pub fn watch() -> Outcome<()> {
    for signal in [SIGINT, SIGTERM] {
        let failed = |error: std::io::Error| format!("signal {signal}: {error}");
        let (mut told, tells) = UnixStream::pair().map_err(failed)?;
        signal_hook::low_level::pipe::register(signal, tells).map_err(failed)?;
        std::thread::spawn(move || {
            if told.read_exact(&mut [0]).is_ok() {
                eprintln!("tarn-bench: stopped by a signal");
                take_away();
                std::process::exit(128 + signal);
            }
        });
    }
    Ok(())
}

fn take_away() {
    for child in children() {
        let _ = kill_process(child, Signal::KILL);
        let _ = waitpid(Some(child), WaitOptions::empty());
    }
    let made = MADE.lock().map(|made| made.clone()).unwrap_or_default();
    for directory in made.iter().rev() {
        // A memory group goes when it is empty, and its files cannot.
        if fs::remove_dir(directory).is_err() {
            let _ = fs::remove_dir_all(directory);
        }
    }
}

/// The processes that this one started.
fn children() -> Vec<Pid> {
    let own = getpid().as_raw_nonzero().get();
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    numbers.filter(|number| parent(*number) == Some(own)).filter_map(Pid::from_raw).collect()
}

fn parent(process: i32) -> Option<i32> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // Behind the name, which may hold anything: state, parent.
    stat.rsplit_once(") ")?.1.split(' ').nth(1)?.parse().ok()
}
