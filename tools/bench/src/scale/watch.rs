//! What a server takes while it is measured: resident memory every 100 ms, disk every few seconds.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const MEMORY_EVERY: Duration = Duration::from_millis(100);
const DISK_EVERY: Duration = Duration::from_secs(3);
const PAGE: u64 = 4096;

/// Files below a directory.
#[derive(Clone, Copy, Debug, Default)]
pub struct Disk {
    /// Bytes of the medium, as st_blocks has them.
    pub bytes: u64,
    pub files: u64,
}

#[derive(Debug, Default)]
struct Seen {
    resident: AtomicU64,
    resident_most: AtomicU64,
    disk_most: AtomicU64,
    samples: AtomicU64,
    disk: Mutex<Disk>,
    over: AtomicBool,
}

/// A thread that looks, until it is dropped.
pub struct Watch {
    seen: Arc<Seen>,
    thread: Option<JoinHandle<()>>,
}

impl Watch {
    pub fn start(pid: u32, directory: &Path) -> Watch {
        let seen = Arc::new(Seen::default());
        let (shared, directory) = (seen.clone(), directory.to_owned());
        let thread = std::thread::spawn(move || look(&shared, pid, &directory));
        Watch { seen, thread: Some(thread) }
    }

    /// Bytes resident at the last look.
    pub fn resident(&self) -> u64 {
        self.seen.resident.load(Ordering::Relaxed)
    }

    pub fn resident_most(&self) -> u64 {
        self.seen.resident_most.load(Ordering::Relaxed)
    }

    pub fn disk_most(&self) -> u64 {
        self.seen.disk_most.load(Ordering::Relaxed)
    }

    /// How often memory was looked at.
    pub fn samples(&self) -> u64 {
        self.seen.samples.load(Ordering::Relaxed)
    }

    pub fn disk(&self) -> Disk {
        *self.seen.disk.lock().unwrap_or_else(|held| held.into_inner())
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.seen.over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn look(seen: &Seen, pid: u32, directory: &Path) {
    let mut disk_at: Option<Instant> = None;
    while !seen.over.load(Ordering::Relaxed) {
        let begun = Instant::now();
        if let Some(resident) = resident(pid) {
            seen.resident.store(resident, Ordering::Relaxed);
            seen.resident_most.fetch_max(resident, Ordering::Relaxed);
            seen.samples.fetch_add(1, Ordering::Relaxed);
        }
        if disk_at.is_none_or(|at| at.elapsed() >= DISK_EVERY) {
            let disk = usage(directory);
            seen.disk_most.fetch_max(disk.bytes, Ordering::Relaxed);
            *seen.disk.lock().unwrap_or_else(|held| held.into_inner()) = disk;
            disk_at = Some(Instant::now());
        }
        std::thread::sleep(MEMORY_EVERY.saturating_sub(begun.elapsed()));
    }
}

/// Bytes resident of a process.
pub fn resident(pid: u32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/statm")).ok()?;
    Some(text.split(' ').nth(1)?.parse::<u64>().ok()? * PAGE)
}

/// Everything below a directory; what goes away meanwhile does not count.
pub fn usage(directory: &Path) -> Disk {
    let mut all = Disk::default();
    let mut left: Vec<PathBuf> = vec![directory.to_owned()];
    while let Some(path) = left.pop() {
        for entry in fs::read_dir(path).into_iter().flatten().flatten() {
            let Ok(found) = entry.metadata() else { continue };
            all.bytes += found.blocks() * 512;
            if found.is_dir() {
                left.push(entry.path());
            } else {
                all.files += 1;
            }
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_process_and_a_directory_take_is_seen() {
        let directory = std::env::temp_dir().join(format!("tarn-bench-watch-{}", std::process::id()));
        fs::create_dir(&directory).unwrap();
        fs::write(directory.join("a"), vec![1; 100_000]).unwrap();
        let watch = Watch::start(std::process::id(), &directory);
        std::thread::sleep(Duration::from_millis(300));
        assert!(watch.resident_most() > 1 << 20 && watch.samples() >= 2);
        drop(watch);
        assert_eq!(usage(&directory).files, 1);
        fs::remove_dir_all(&directory).unwrap();
    }
}
