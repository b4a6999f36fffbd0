//! The server under measurement: started with the memory it may use, ended with the measurement, killed on the way.

use super::Common;
use crate::Outcome;
use crate::content::mix;
use crate::load::site::mount;
use crate::servers::{left, tarn};
use crate::target::Target;
use rustix::process::{Pid, Signal, kill_process};
use std::fs::{self, File};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tarn_nfsclient::{Client, Credentials, Handle};

/// How long a server may take to serve: it may have a log to fill first.
const START_MAX: Duration = Duration::from_secs(300);
const END_MAX: Duration = Duration::from_secs(300);
/// Between two looks whether it serves.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// The generator's ports are anybody's, and it must be root.
const RULES: &str = "127.0.0.0/8 rw,no_root_squash,insecure\n10.0.0.0/8 rw,no_root_squash,insecure";

pub struct Own {
    common: Common,
    pub directory: PathBuf,
    child: Option<Child>,
    pub target: Target,
    /// How often it was started.
    starts: u32,
}

/// Where its objects are, if that is elsewhere.
fn objects_of(common: &Common) -> Option<PathBuf> {
    let directory = common.objects.as_ref()?;
    Some(directory.join(format!("tarn-bench-{}", std::process::id())))
}

/// Makes a directory that is removed at the end; the one it lies in is somebody's, and stays.
fn make(directory: &Path, flag: &str) -> Outcome<()> {
    fs::create_dir(directory).map_err(|error| format!("{flag}: {} cannot be made: {error}", directory.display()))?;
    left::note(directory);
    Ok(())
}

impl Own {
    pub fn start(common: &Common) -> Outcome<Own> {
        let common = &Common { tarn: tarn::program(&common.tarn)?, ..common.clone() };
        crate::measure::cpu::check("--pin-server", common.pin_server)?;
        crate::measure::cpu::check("--pin-client", common.pin_client)?;
        let directory = common.directory.join(format!("tarn-bench-{}", std::process::id()));
        let target = Target::parse(&format!("Tarn=nfs://127.0.0.1:{}/vol", common.port))?;
        let mut own = Own { common: common.clone(), directory, child: None, target, starts: 0 };
        make(&own.directory, "--directory")?;
        if let Some(objects) = objects_of(common) {
            make(&objects, "--objects")?;
        }
        own.configure()?;
        own.up()?;
        own.tarn(&["volume", "set", "vol", "--exports", RULES])?;
        if let Some(core) = common.pin_client {
            crate::measure::cpu::pin(core)?;
        }
        Ok(own)
    }

    fn configure(&self) -> Outcome<()> {
        let common = &self.common;
        let cores = if common.pin_server.is_some() { "cores = 1\n" } else { "" };
        let text = format!(
            "[log]\nsize = \"{}GiB\"\n[cache]\ndata = \"{}MiB\"\nnames = \"{}MiB\"\n[checkpoint]\nmemory = \"{}MiB\"\n\
             [nfs]\n{cores}",
            common.log, common.cache_data, common.cache_names, common.checkpoint_memory
        );
        let path = self.directory.join("tarn.toml");
        fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))
    }

    /// Where the server keeps everything.
    pub fn data(&self) -> PathBuf {
        self.directory.join("data")
    }

    pub fn pid(&self) -> u32 {
        self.child.as_ref().map_or(0, Child::id)
    }

    /// Starts it and waits until it answers; gives the time that took.
    pub fn up(&mut self) -> Outcome<Duration> {
        self.starts += 1;
        let path = self.directory.join(format!("said-{}", self.starts));
        let said = File::create(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        let out = said.try_clone().map_err(|error| error.to_string())?;
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL"]);
        if let Some(core) = self.common.pin_server {
            command.args(["taskset", "--cpu-list", &core.to_string()]);
        }
        command.arg(&self.common.tarn).arg("serve").arg("--data").arg(self.data());
        let listen = SocketAddr::new(self.common.listen, self.common.port);
        command.arg("--nfs").arg(listen.to_string()).arg("--config").arg(self.directory.join("tarn.toml"));
        if let Some(objects) = objects_of(&self.common) {
            let url = format!("file://{}", objects.display());
            command.args(["--store", &url, "--key-file"]).arg(self.directory.join("key"));
        }
        command.env("TARN_LOG", &self.common.report).stdin(Stdio::null()).stdout(out).stderr(said);
        let started = Instant::now();
        let child = command.spawn().map_err(|error| format!("{}: {error}", self.common.tarn.display()))?;
        self.target.pid = Some(child.id());
        self.target.core = self.common.pin_server;
        self.child = Some(child);
        self.until_it_serves(started, &path)?;
        Ok(started.elapsed())
    }

    fn until_it_serves(&mut self, started: Instant, said: &Path) -> Outcome<()> {
        loop {
            if let Some(Ok(Some(status))) = self.child.as_mut().map(Child::try_wait) {
                let text = fs::read_to_string(said).unwrap_or_default();
                return Err(format!("the server ended ({status}): {}", text.trim_end()));
            }
            // A client would wait for one that has ended.
            let error = match TcpStream::connect(self.target.address) {
                Ok(_) => match mount(&self.target) {
                    // It serves when an attribute is answered, not when it listens.
                    Ok(root) => match self.client(Duration::from_secs(5)).getattr(&root) {
                        Ok(_) => return Ok(()),
                        Err(error) => error.to_string(),
                    },
                    Err(error) => error,
                },
                Err(error) => error.to_string(),
            };
            if started.elapsed() > START_MAX {
                return Err(format!("the server does not serve: {error}"));
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }

    pub fn client(&self, patience: Duration) -> Client {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64);
        Client::new(self.target.address, Credentials::root(), mix(now) as u32, patience)
    }

    /// The export's root.
    pub fn root(&self) -> Outcome<Handle> {
        mount(&self.target)
    }

    /// kill -9.
    pub fn kill(&mut self) -> Outcome<()> {
        let Some(mut child) = self.child.take() else { return Ok(()) };
        child.kill().and_then(|()| child.wait()).map_err(|error| error.to_string())?;
        Ok(())
    }

    /// A clean stop; gives the time it took.
    pub fn stop(&mut self) -> Outcome<Duration> {
        let Some(mut child) = self.child.take() else { return Ok(Duration::ZERO) };
        let started = Instant::now();
        let _ = kill_process(Pid::from_child(&child), Signal::TERM);
        while matches!(child.try_wait(), Ok(None)) {
            if started.elapsed() > END_MAX {
                let _ = child.kill();
                return Err("the server did not stop".to_owned());
            }
            std::thread::sleep(LOOK_EVERY);
        }
        Ok(started.elapsed())
    }

    /// A stop and a start: nothing is cached.
    pub fn cold(&mut self) -> Outcome<()> {
        self.stop()?;
        self.up()?;
        Ok(())
    }

    /// What a command prints.
    pub fn tarn(&self, arguments: &[&str]) -> Outcome<String> {
        let mut command = Command::new(&self.common.tarn);
        command.args(arguments).arg("--data").arg(self.data());
        let output = command.output().map_err(|error| format!("{}: {error}", self.common.tarn.display()))?;
        if !output.status.success() {
            return Err(format!("tarn {}: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr).trim()));
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// The server's own account.
    pub fn status(&self) -> Outcome<serde_json::Value> {
        serde_json::from_str(&self.tarn(&["status", "--json"])?).map_err(|error| format!("tarn status: {error}"))
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        // Its files go: nothing has to be brought to an end.
        let _ = self.kill();
        let _ = fs::remove_dir_all(&self.directory);
        if let Some(objects) = objects_of(&self.common) {
            let _ = fs::remove_dir_all(objects);
        }
    }
}
