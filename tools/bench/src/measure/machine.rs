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

/// MiB of memory that a process holds now; `None` if it is gone.
pub fn rss_mib(pid: u32) -> Option<f64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.split_ascii_whitespace().next()?.parse::<f64>().ok().map(|kib| kib / 1024.0)
}
