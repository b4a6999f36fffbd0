//! The machine in one line, and how busy it is with other things.

use std::fs;

/// Processor, cores, memory, kernel, how TCP is paced.
pub fn describe() -> String {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let value = |text: &str, name: &str| -> Option<String> {
        let line = text.lines().find(|line| line.starts_with(name))?;
        Some(line.split_once(':')?.1.trim().to_owned())
    };
    let processors = read("/proc/cpuinfo");
    let model = value(&processors, "model name").unwrap_or_else(|| "unknown processor".to_owned());
    let virtual_machine = processors.contains(" hypervisor");
    let count = processors.lines().filter(|line| line.starts_with("processor")).count();
    let memory = value(&read("/proc/meminfo"), "MemTotal")
        .and_then(|text| text.split(' ').next()?.parse::<u64>().ok())
        .map_or_else(|| "unknown".to_owned(), |kib| format!("{:.0} GiB", kib as f64 / (1 << 20) as f64));
    let kernel = read("/proc/sys/kernel/osrelease").trim().to_owned();
    let kind = if virtual_machine { "virtual machine" } else { "machine" };
    format!("{kind}, {model}, {count} cores, {memory} of memory, Linux {kernel}, {}", tcp())
}

/// TCP's congestion control, which the connections of this network have.
pub fn tcp() -> String {
    let name = fs::read_to_string("/proc/sys/net/ipv4/tcp_congestion_control");
    format!("TCP {}", name.as_deref().map_or("unknown", str::trim))
}

/// Mean number of tasks that ran or wanted to, over the last minute.
pub fn load_average() -> f64 {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().and_then(|first| first.parse().ok()).unwrap_or(f64::NAN)
}

/// Ticks of all cores together since the machine began.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Ticks {
    /// Something ran or could have.
    busy: u64,
    /// Of these, the host ran something else (steal in /proc/stat).
    stolen: u64,
}

impl Ticks {
    pub fn now() -> Ticks {
        Ticks::of(&fs::read_to_string("/proc/stat").unwrap_or_default())
    }

    fn of(stat: &str) -> Ticks {
        let line = stat.lines().next().unwrap_or_default();
        let fields: Vec<u64> = line.split_ascii_whitespace().skip(1).map_while(|field| field.parse().ok()).collect();
        let [user, nice, system, _idle, _wait, interrupts, soft, stolen, ..] = fields[..] else {
            return Ticks::default();
        };
        Ticks { busy: user + nice + system + interrupts + soft + stolen, stolen }
    }

    /// What share of the busy time since `before` the host took.
    pub fn stolen_since(&self, before: &Ticks) -> f64 {
        (self.stolen - before.stolen) as f64 / (self.busy - before.busy).max(1) as f64
    }
}

/// MiB of memory that a process holds now; `None` if it is gone.
pub fn rss_mib(pid: u32) -> Option<f64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.split_ascii_whitespace().next()?.parse::<f64>().ok().map(|kib| kib / 1024.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_host_takes_is_a_share_of_what_was_busy() {
        let before = Ticks::of("cpu  10 0 10 900 50 0 0 5 0 0\ncpu0 1 2 3\n");
        let after = Ticks::of("cpu  60 20 20 1900 90 4 6 15 0 0\n");
        assert_eq!(after.stolen_since(&before), 10.0 / 100.0);
        assert_eq!(Ticks::of(""), Ticks::default());
        assert_eq!(before.stolen_since(&before), 0.0);
    }
}
