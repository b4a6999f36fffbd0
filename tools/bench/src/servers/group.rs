//! A memory control group for each server, all of the same size, so that none wins by caching more.
//!
//! - Version 1 and version 2 of the kernel's interface, below this process's own group; needs root.
//! - Where it cannot be made the server runs without, and [`words`] says so beside the figures.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes of the last group that was made; 0 before, and [`u64::MAX`] once one could not be made.
static SIZE: AtomicU64 = AtomicU64::new(0);

/// A group that ends with the server in it.
pub struct Group(PathBuf);

impl Group {
    /// Makes a group of `bytes`; `None` where that is not possible, or 0.
    pub fn make(name: &str, bytes: u64) -> Option<Group> {
        if bytes == 0 {
            return None;
        }
        let membership = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let made = candidates(&membership).into_iter().find_map(|(parent, file)| {
            let path = parent.join(format!("tarn-bench-{}-{name}", std::process::id()));
            fs::create_dir(&path).ok()?;
            super::left::note(&path);
            let group = Group(path);
            fs::write(group.0.join(file), bytes.to_string()).ok().map(|()| group)
        });
        SIZE.store(if made.is_some() { bytes } else { u64::MAX }, Ordering::Relaxed);
        made
    }

    /// The file that takes the number of a process that is to be in it.
    pub fn door(&self) -> String {
        self.0.join("cgroup.procs").display().to_string()
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // Its pages go with it; what is still in it keeps it there, and harms nobody.
        let _ = fs::remove_dir(&self.0);
    }
}

/// Where a group may be made, and the file that takes its limit: where this process is, for both versions.
fn candidates(membership: &str) -> Vec<(PathBuf, &'static str)> {
    let place = |line: &str| {
        let mut parts = line.splitn(3, ':').skip(1);
        let (controllers, path) = (parts.next()?, parts.next()?.trim_start_matches('/'));
        match controllers {
            "memory" => Some((Path::new("/sys/fs/cgroup/memory").join(path), "memory.limit_in_bytes")),
            "" => Some((Path::new("/sys/fs/cgroup").join(path), "memory.max")),
            _ => None,
        }
    };
    membership.lines().filter_map(place).collect()
}

/// How it was, for whoever reads the figures.
pub fn words() -> String {
    match SIZE.load(Ordering::Relaxed) {
        0 => "No server's memory was limited.".to_owned(),
        u64::MAX => "Memory groups could not be made here: no server's memory was limited.".to_owned(),
        bytes => format!("Each server in a memory group of its own, {} MiB.", bytes >> 20),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_is_made_where_this_process_is() {
        let found = candidates("4:memory:/a/b\n3:cpuset:/\n0::/c\n");
        let paths: Vec<_> = found.iter().map(|(path, file)| (path.to_str().unwrap(), *file)).collect();
        assert_eq!(paths, [("/sys/fs/cgroup/memory/a/b", "memory.limit_in_bytes"), ("/sys/fs/cgroup/c", "memory.max")]);
    }
}
