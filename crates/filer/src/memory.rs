//! How much memory this process may use: the machine's, or its control group's if that is less.

use std::fs;
use std::path::Path;

/// Bytes; 1 GiB if nothing can be read, so that defaults stay modest.
pub fn limit() -> u64 {
    limit_below(Path::new("/"))
}

/// Bytes that this process uses now (resident set), 0 if that cannot be read.
pub fn resident() -> u64 {
    let Ok(text) = fs::read_to_string("/proc/self/statm") else { return 0 };
    let pages: u64 = text.split_whitespace().nth(1).and_then(|word| word.parse().ok()).unwrap_or(0);
    pages * rustix::param::page_size() as u64
}

/// As [`limit`], with `proc` and `sys` below `root`.
fn limit_below(root: &Path) -> u64 {
    let machine = fs::read_to_string(root.join("proc/meminfo")).ok().and_then(|text| total(&text));
    let group = fs::read_to_string(root.join("proc/self/cgroup")).ok().and_then(|text| group_limit(root, &text));
    machine.into_iter().chain(group).min().unwrap_or(1 << 30)
}

fn total(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find(|line| line.starts_with("MemTotal:"))?;
    let kib: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kib * 1024)
}

/// The least limit of the process's group and of all groups around it.
fn group_limit(root: &Path, membership: &str) -> Option<u64> {
    let mut least = None;
    for line in membership.lines() {
        let mut parts = line.splitn(3, ':');
        let (Some(number), Some(controllers), Some(path)) = (parts.next(), parts.next(), parts.next()) else {
            continue;
        };
        let (base, file) = if number == "0" && controllers.is_empty() {
            ("sys/fs/cgroup", "memory.max")
        } else if controllers.split(',').any(|name| name == "memory") {
            ("sys/fs/cgroup/memory", "memory.limit_in_bytes")
        } else {
            continue;
        };
        let base = root.join(base);
        // Inside a container the path may name groups that are not mounted: then only the base exists.
        for group in Path::new(path.trim_start_matches('/')).ancestors() {
            let text = fs::read_to_string(base.join(group).join(file)).unwrap_or_default();
            if let Ok(bytes) = text.trim().parse::<u64>() {
                least = Some(least.map_or(bytes, |other: u64| other.min(bytes)));
            }
        }
    }
    least
}

#[cfg(test)]
mod tests {
    use super::*;

    fn world(files: &[(&str, &str)]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        dir
    }

    #[test]
    fn the_least_limit_around_the_process_counts() {
        let meminfo = ("proc/meminfo", "MemTotal:       8388608 kB\n");
        let plain = world(&[meminfo]);
        assert_eq!(limit_below(plain.path()), 8 << 30);
        let second = world(&[
            meminfo,
            ("proc/self/cgroup", "0::/a/b\n"),
            ("sys/fs/cgroup/a/memory.max", "1073741824\n"),
            ("sys/fs/cgroup/a/b/memory.max", "max\n"),
        ]);
        assert_eq!(limit_below(second.path()), 1 << 30);
        let first = world(&[
            meminfo,
            ("proc/self/cgroup", "5:cpu,cpuacct:/x\n4:memory:/x\n"),
            ("sys/fs/cgroup/memory/x/memory.limit_in_bytes", "536870912\n"),
            ("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"),
        ]);
        assert_eq!(limit_below(first.path()), 512 << 20);
        assert_eq!(limit_below(world(&[]).path()), 1 << 30);
    }

    #[test]
    fn this_process_uses_memory() {
        assert!(resident() > 0 && limit() > resident());
    }
}
