//! Servers that a measurement starts itself: each pinned to the server's core, each ended with the measurement.
//!
//! - A server dies with this process, however that ends; where a signal ends it, what it wrote goes too ([`left`]).
//! - What it says goes to a file in the measurement's directory; the end of it is told where a start fails.

pub mod ganesha;
pub mod group;
pub mod left;
pub mod null;
pub mod space;
pub mod tarn;

use crate::Outcome;
use crate::load::site::mount;
use crate::target::Target;
use group::Group;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long a server may take to serve: it may have a log to fill first.
const START_MAX: Duration = Duration::from_secs(120);
const END_MAX: Duration = Duration::from_secs(20);

pub struct Server {
    child: Child,
    /// The file of what it said.
    said: PathBuf,
    pub target: Option<Target>,
    /// Goes after the server.
    _group: Option<Group>,
}

/// Where servers are started, and on which core.
#[derive(Clone, Debug)]
pub struct Place {
    pub directory: PathBuf,
    pub core: Option<usize>,
    /// Bytes of memory for each server; 0: not limited.
    pub memory: u64,
}

impl Place {
    fn start(&self, name: &str, program: &Path, arguments: &[&str]) -> Outcome<Server> {
        let said = self.directory.join(format!("{name}.out"));
        let out = File::create(&said).map_err(|error| format!("{}: {error}", said.display()))?;
        let errors = out.try_clone().map_err(|error| error.to_string())?;
        // Before each other they become the program itself, under one process number.
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL"]);
        let group = Group::make(name, self.memory);
        if let Some(group) = &group {
            command.args(["sh", "-c", "echo $$ > \"$0\"; exec \"$@\"", &group.door()]);
        }
        if let Some(core) = self.core {
            command.args(["taskset", "--cpu-list", &core.to_string()]);
        }
        command.arg(program).args(arguments).stdin(Stdio::null()).stdout(out).stderr(errors);
        let child = command.spawn().map_err(|error| format!("setpriv {}: {error}", program.display()))?;
        Ok(Server { child, said, target: None, _group: group })
    }

    fn text(&self, name: &str) -> String {
        self.directory.join(name).display().to_string()
    }
}

impl Server {
    /// The last lines that it said.
    fn last_words(&self) -> String {
        let said = std::fs::read(&self.said).unwrap_or_default();
        let text = String::from_utf8_lossy(&said);
        let lines: Vec<&str> = text.lines().rev().take(3).collect();
        lines.into_iter().rev().collect::<Vec<&str>>().join("; ")
    }

    /// Waits until the export can be mounted.
    fn ready(mut self, mut target: Target, place: &Place) -> Outcome<Server> {
        let started = Instant::now();
        target.pid = Some(self.child.id());
        target.core = place.core;
        loop {
            if let Ok(Some(status)) = self.child.try_wait() {
                let said = self.last_words();
                return Err(format!("{} ended before it served ({status}); it said: {said:?}", target.name));
            }
            let listens = std::net::TcpStream::connect_timeout(&target.mount, Duration::from_secs(1)).is_ok();
            let error = match listens.then(|| mount(&target)) {
                Some(Ok(_)) => break,
                Some(Err(error)) => error,
                None => format!("{} does not listen", target.name),
            };
            if started.elapsed() > START_MAX {
                return Err(format!("{error}: {}", self.last_words()));
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        self.target = Some(target);
        Ok(self)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let pid = rustix::process::Pid::from_child(&self.child);
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        let started = Instant::now();
        while matches!(self.child.try_wait(), Ok(None)) {
            if started.elapsed() > END_MAX {
                let _ = self.child.kill();
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}
