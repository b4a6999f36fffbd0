//! The disk alone, through the file system: what no server on it can beat.
//!
//! - The file is written once and flushed before anything is counted, so no figure holds an allocation.

use crate::Outcome;
use crate::content;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

/// What the disk does for one writer.
pub struct Disk {
    /// Median of 4 KiB pwrite and fdatasync.
    pub flush: Duration,
    /// Bytes per second of 1 MiB pwrites and one fdatasync at the end.
    pub stream: f64,
}

const STREAM_BYTES: u64 = 256 << 20;
const FLUSHES: usize = 400;

/// Measures in a file that is made in `directory` and removed again.
pub fn measure(directory: &Path) -> Outcome<Disk> {
    let path = directory.join("disk-alone");
    let measured = of_file(&path).map_err(|error| format!("{}: {error}", path.display()));
    let _ = std::fs::remove_file(&path);
    measured
}

fn of_file(path: &Path) -> std::io::Result<Disk> {
    let file = OpenOptions::new().create(true).truncate(true).write(true).open(path)?;
    stream(&file, 0)?;
    let started = Instant::now();
    stream(&file, 1)?;
    let stream = STREAM_BYTES as f64 / started.elapsed().as_secs_f64();
    let mut times = Vec::with_capacity(FLUSHES);
    for index in 0..FLUSHES as u64 {
        let started = Instant::now();
        file.write_all_at(content::at(index * 8, 4096), index * 4096)?;
        file.sync_data()?;
        times.push(started.elapsed());
    }
    times.sort();
    Ok(Disk { flush: times[FLUSHES / 2], stream })
}

fn stream(file: &File, stamp: u64) -> std::io::Result<()> {
    let step = content::PERIOD as u64;
    for offset in (0..STREAM_BYTES).step_by(content::PERIOD) {
        // Shifted a little each time, so that no two are the same.
        file.write_all_at(content::at((offset / step + stamp) * 512, content::PERIOD), offset)?;
    }
    file.sync_data()
}
