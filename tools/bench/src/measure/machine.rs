//! The machine in one line, and how busy it is with other things.

use std::fs;

/// Processor, cores, memory, kernel, what an idle core does, how TCP is paced.
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
    let halt_poll = |name: &str| read(&format!("/sys/module/haltpoll/parameters/guest_halt_poll_{name}"));
    let cpuidle = |what: &str| read(&format!("/sys/devices/system/cpu/cpuidle/current_{what}"));
    let idle = idle([&cpuidle("driver"), &cpuidle("governor"), &halt_poll("ns"), &halt_poll("allow_shrink")]);
    format!("{kind}, {model}, {count} cores, {memory} of memory, Linux {kernel}{idle}, {}", tcp())
}

/// What an idle core does, where the guest tells. A halt is the host's to end, which takes longer than most calls do.
fn idle(driver_governor_ns_shrink: [&str; 4]) -> String {
    match driver_governor_ns_shrink.map(str::trim) {
        ["haltpoll", "haltpoll", "0", _] => ", an idle core halts at once".to_owned(),
        ["haltpoll", "haltpoll", ns, may_shrink] => {
            let less = if may_shrink == "Y" { ", or less," } else { "" };
            format!(", an idle core polls for up to {ns} ns{less} before it halts")
        }
        _ => String::new(),
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_idle_core_does_is_told_where_the_guest_decides_it() {
        let of = |ns, shrink| idle(["haltpoll\n", "haltpoll\n", ns, shrink]);
        assert_eq!(of("0\n", "Y\n"), ", an idle core halts at once");
        assert_eq!(of("200000\n", "Y\n"), ", an idle core polls for up to 200000 ns, or less, before it halts");
        assert_eq!(of("50000\n", "N\n"), ", an idle core polls for up to 50000 ns before it halts");
        assert_eq!(idle(["haltpoll\n", "menu\n", "0\n", "N\n"]), "", "another governor does not go by it");
        assert_eq!(idle(["none\n", "haltpoll\n", "0\n", "N\n"]), "", "nor another driver");
        assert_eq!(idle(["", "", "", ""]), "");
    }
}
