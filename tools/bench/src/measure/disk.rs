//! The disk alone, through the file system: what no server on it can beat.
//!
//! - The file is written once and flushed before anything is counted, so no figure holds an allocation.

use crate::Outcome;
use crate::content;
use crate::measure::interrupts::Interrupts;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use rustix::fs::OFlags;

/// What the disk does for one writer.
pub struct Disk {
    /// Median of 4 KiB pwrite and fdatasync.
    pub flush: Duration,
    /// Bytes per second of 1 MiB pwrites and one fdatasync at the end.
    pub stream: f64,
    /// The core that is told when a write has ended, if it is one.
    pub core: Option<usize>,
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
    let before = Interrupts::now();
    for index in 0..FLUSHES as u64 {
        let started = Instant::now();
        file.write_all_at(content::at(index * 8, 4096), index * 4096)?;
        file.sync_data()?;
        times.push(started.elapsed());
    }
    let core = Interrupts::now().core_since(&before, FLUSHES as u64 / 2);
    times.sort();
    Ok(Disk { flush: times[FLUSHES / 2], stream, core })
}

fn stream(file: &File, stamp: u64) -> std::io::Result<()> {
    let step = content::PERIOD as u64;
    for offset in (0..STREAM_BYTES).step_by(content::PERIOD) {
        // Shifted a little each time, so that no two are the same.
        file.write_all_at(content::at((offset / step + stamp) * 512, content::PERIOD), offset)?;
    }
    file.sync_data()
}

/// Durable writes of 4 KiB beside other work, past the page cache and whatever server uses the disk.
pub struct Probe {
    path: PathBuf,
    file: File,
}

const PROBE_BYTES: u64 = 16 << 20;
/// What is slower counts as this.
const MOST: Duration = Duration::from_secs(60);

#[repr(align(4096))]
struct Block([u8; 4096]);

impl Probe {
    /// A file in `directory` that is written once before anything is counted; it goes with the probe.
    pub fn prepare(directory: &Path) -> Outcome<Probe> {
        let path = directory.join("disk-probe");
        let failed = |error| format!("{}: {error}", path.display());
        std::fs::write(&path, vec![1; PROBE_BYTES as usize])
            .and_then(|()| File::open(&path)?.sync_all())
            .map_err(failed)?;
        let flags = (OFlags::DIRECT | OFlags::DSYNC).bits() as i32;
        let file = OpenOptions::new().write(true).custom_flags(flags).open(&path).map_err(failed)?;
        Ok(Probe { path, file })
    }

    /// Writes `pace` times a second; after `lead` it counts for `length`, nanoseconds from when each write was due.
    pub fn run(&self, pace: f64, lead: Duration, length: Duration) -> Outcome<Histogram<u64>> {
        let mut latency = Histogram::new_with_bounds(1, MOST.as_nanos() as u64, 3).expect("three digits");
        let block = Block([2; 4096]);
        let started = Instant::now();
        for index in 0_u32.. {
            let due = Duration::from_secs_f64(f64::from(index) / pace);
            if due >= lead + length {
                break;
            }
            std::thread::sleep(due.saturating_sub(started.elapsed()));
            let offset = u64::from(index) * 4096 % PROBE_BYTES;
            self.file.write_all_at(&block.0, offset).map_err(|error| format!("{}: {error}", self.path.display()))?;
            if due >= lead {
                latency.saturating_record((started.elapsed() - due).as_nanos() as u64);
            }
        }
        Ok(latency)
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_probe_counts_each_write_that_was_due_after_the_lead() {
        let directory = std::env::temp_dir().join(format!("tarn-probe-{}", std::process::id()));
        std::fs::create_dir(&directory).unwrap();
        let probe = Probe::prepare(&directory).unwrap();
        let latency = probe.run(200.0, Duration::from_millis(50), Duration::from_millis(100)).unwrap();
        assert_eq!(latency.len(), 20);
        assert!(latency.min() > 0);
        drop(probe);
        std::fs::remove_dir(&directory).expect("its file is gone with it");
    }
}
