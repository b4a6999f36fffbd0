//! Processor time of a server, two ways: what its process took, and how busy its core was.
//!
//! - The core's time holds what the process's does not: interrupts, the kernel's threads, and every stranger there.
//! - Both are read from /proc in ticks of 10 ms: a window of a second is known to one per cent.

use crate::Outcome;
use rustix::thread::{CpuSet, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};
use std::fs;
use std::net::SocketAddr;
use std::time::Duration;

/// USER_HZ: fixed on every architecture that this runs on.
const TICK: Duration = Duration::from_millis(10);

/// Whose time is read.
#[derive(Clone, Copy, Debug, Default)]
pub struct Meter {
    pub pid: Option<u32>,
    pub core: Option<usize>,
}

/// Time taken since the process began, or since the machine did.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sample {
    pub process: Option<Duration>,
    pub core: Option<Duration>,
    /// What the generator's own thread took: a run that it limits says nothing of the server.
    pub generator: Duration,
}

impl Sample {
    pub fn since(&self, before: &Sample) -> Sample {
        let less = |now: Option<Duration>, then: Option<Duration>| Some(now?.saturating_sub(then?));
        let generator = self.generator.saturating_sub(before.generator);
        Sample { process: less(self.process, before.process), core: less(self.core, before.core), generator }
    }
}

impl Meter {
    pub fn sample(&self) -> Outcome<Sample> {
        let process = self.pid.map(|pid| {
            let stat = fs::read_to_string(format!("/proc/{pid}/stat"));
            let stat = stat.map_err(|error| format!("the server's process {pid}: {error}"))?;
            process_time(&stat).ok_or_else(|| format!("/proc/{pid}/stat is not understood"))
        });
        let core = self.core.map(|core| {
            let stat = fs::read_to_string("/proc/stat").map_err(|error| format!("/proc/stat: {error}"))?;
            core_time(&stat, core).ok_or_else(|| format!("/proc/stat knows no core {core}"))
        });
        let own = clock_gettime(ClockId::ThreadCPUTime);
        let generator = Duration::new(own.tv_sec as u64, own.tv_nsec as u32);
        Ok(Sample { process: process.transpose()?, core: core.transpose()?, generator })
    }
}

/// utime and stime of all threads: the 14th and 15th field; the 2nd, in brackets, may hold anything.
fn process_time(stat: &str) -> Option<Duration> {
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace().skip(11);
    let ticks: u32 = fields.next()?.parse::<u32>().ok()? + fields.next()?.parse::<u32>().ok()?;
    Some(TICK * ticks)
}

fn core_time(stat: &str, core: usize) -> Option<Duration> {
    Some(TICK * Ticks::of(stat, &format!("cpu{core}"))?.busy)
}

/// Ticks of a core, or of all together, since the machine began.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Ticks {
    /// Everything but idle and waiting for a disk.
    busy: u32,
    /// Of these, the host ran something else (steal).
    stolen: u32,
}

impl Ticks {
    /// Of all cores.
    pub fn now() -> Ticks {
        Ticks::of(&fs::read_to_string("/proc/stat").unwrap_or_default(), "cpu").unwrap_or_default()
    }

    fn of(stat: &str, name: &str) -> Option<Ticks> {
        let line = stat.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?;
        let fields: Vec<u32> = line.split_ascii_whitespace().map_while(|field| field.parse().ok()).collect();
        let [user, nice, system, _idle, _wait, interrupts, soft, stolen, ..] = fields[..] else { return None };
        Some(Ticks { busy: user + nice + system + interrupts + soft + stolen, stolen })
    }

    /// What share of the busy time since `before` the host took.
    pub fn stolen_since(&self, before: &Ticks) -> f64 {
        let less = |now: u32, then: u32| f64::from(now.saturating_sub(then));
        less(self.stolen, before.stolen) / less(self.busy, before.busy).max(1.0)
    }
}

/// Refuses a core that this machine has not.
pub fn check(flag: &str, core: Option<usize>) -> Outcome<()> {
    let lacks = |core: &usize| !std::path::Path::new(&format!("/sys/devices/system/cpu/cpu{core}")).exists();
    match core.filter(lacks) {
        Some(core) => Err(format!("{flag} {core}: this machine has no such core; they count from 0")),
        None => Ok(()),
    }
}

/// Keeps this thread, and what it starts from now on, on one core.
pub fn pin(core: usize) -> Outcome<()> {
    let mut set = CpuSet::new();
    set.set(core);
    sched_setaffinity(None, &set).map_err(|error| format!("core {core}: {error}"))
}

/// The process that listens at the port of `address`, found by the socket's number among its descriptors.
pub fn listener(address: SocketAddr) -> Option<u32> {
    let suffix = format!(":{:04X}", address.port());
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"].map(|path| fs::read_to_string(path).unwrap_or_default());
    let sockets: Vec<String> = tables
        .iter()
        .flat_map(|table| table.lines())
        .filter_map(|line| {
            let fields: Vec<&str> = line.split_ascii_whitespace().collect();
            // State 0A is LISTEN.
            (fields.get(1)?.ends_with(&suffix) && *fields.get(3)? == "0A").then(|| format!("socket:[{}]", fields[9]))
        })
        .collect();
    let holds = |pid: &u32| {
        let descriptors = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
        let mut links = descriptors.filter_map(|entry| fs::read_link(entry.path()).ok());
        links.any(|link| sockets.iter().any(|socket| link.as_os_str() == socket.as_str()))
    };
    let processes = fs::read_dir("/proc").ok()?.flatten();
    processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).find(holds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_whatever_the_process_is_called() {
        let stat = "7 (a b) c) S 1 7 7 0 -1 4194560 1 2 3 4 150 50 9 9 20 0 1 0";
        assert_eq!(process_time(stat), Some(Duration::from_secs(2)));
        let stat = "cpu  9 9 9 9 9 9 9 9 0 0\ncpu0 1 2 3 100 50 4 5 6 0 0\ncpu10 7 0 0 0 0 0 0 0 0 0\n";
        assert_eq!(core_time(stat, 0), Some(TICK * 21));
        assert_eq!(core_time(stat, 10), Some(TICK * 7));
        assert_eq!(core_time(stat, 1), None);
    }

    #[test]
    fn what_the_host_takes_is_a_share_of_what_was_busy() {
        let before = Ticks::of("cpu  10 0 10 900 50 0 0 5 0 0\ncpu0 1 2 3\n", "cpu").unwrap();
        let after = Ticks::of("cpu  60 20 20 1900 90 4 6 15 0 0\n", "cpu").unwrap();
        assert_eq!(after.stolen_since(&before), 10.0 / 100.0);
        assert_eq!(before.stolen_since(&after), 0.0);
    }

    #[test]
    fn a_listener_is_found() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        assert_eq!(super::listener(listener.local_addr().unwrap()), Some(std::process::id()));
    }
}
