//! A target that is open: its connections, the directory that was made for the run, and how that goes away again.

use crate::Outcome;
use crate::drive::connection::Trouble;
use crate::drive::reactor::Reactor;
use crate::measure::{Meter, cpu};
use crate::target::Target;
use crate::workload::admin::{self, Admin};
use crate::workload::place::{Local, Nfs, Place};
use serde_json::Value;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::{Duration, Instant};
use tarn_nfsclient::{Client, Credentials, Handle, Kind};

/// NULL calls that the round trip is told from.
const PINGS: usize = 101;

/// What the name of a run's directory begins with.
pub const DIRECTORY: &str = "tarn-bench-";

pub struct Site {
    pub name: String,
    pub place: Rc<Place>,
    pub meter: Meter,
    pub connections: usize,
    /// Microseconds of a NULL call, the median.
    pub rtt_us: f64,
    pub durability: String,
    pub configuration: Value,
    /// A Tarn's admin port.
    pub admin: Option<Admin>,
    directory: Directory,
}

/// What was made, so that it can be taken away.
enum Directory {
    Remote { address: SocketAddr, root: Handle, name: String },
    Path(PathBuf),
}

/// What a site is opened with.
#[derive(Clone, Debug)]
pub struct Opening {
    pub url: String,
    pub connections: usize,
    pub patience: Duration,
    /// The server's process; by default whoever listens at its port on this machine.
    pub pid: Option<u32>,
    pub core: Option<usize>,
}

/// One generator's part of the directory that a run has made.
pub struct Seat {
    pub place: Rc<Place>,
    pub connections: usize,
    /// Microseconds of a NULL call, the median; for a directory 0.
    pub rtt_us: f64,
}

impl Seat {
    /// Makes `part` in `directory`, which stands in the target's root already. Whoever made that takes it all away.
    pub fn take(
        reactor: &Reactor,
        opening: &Opening,
        (directory, part): (&str, &str),
        trouble: &Rc<Trouble>,
    ) -> Outcome<Seat> {
        if let Some(path) = opening.url.strip_prefix("file://") {
            let path = PathBuf::from(path).join(directory).join(part);
            std::fs::create_dir(&path).map_err(|error| format!("{}: {error}", path.display()))?;
            let place = Rc::new(Place::Local(Local::open(reactor, &path)?));
            return Ok(Seat { place, connections: 0, rtt_us: 0.0 });
        }
        let target = Target::parse(&opening.url)?;
        let failed = |error: tarn_nfsclient::Error| format!("{}: {directory}: {error}", target.name);
        let root = client(target.mount).mount(&target.export).map_err(failed)?;
        let mut client = client(target.address);
        let (inner, _) = client.lookup(&root, directory.as_bytes()).map_err(failed)?;
        let own = client.mkdir(&inner, part.as_bytes(), 0o755).map_err(failed)?;
        let rtt_us = ping(target.address)?;
        let nfs = Nfs::open(reactor, &target, own, opening.connections, opening.patience, trouble)?;
        Ok(Seat { connections: nfs.connections(), place: Rc::new(Place::Nfs(nfs)), rtt_us })
    }
}

impl Site {
    /// The name of the directory that was made.
    pub fn directory(&self) -> String {
        match &self.directory {
            Directory::Remote { name, .. } => name.clone(),
            Directory::Path(path) => path.file_name().unwrap_or_default().to_string_lossy().into_owned(),
        }
    }

    /// Opens `nfs://host[:port]/path` or `file:///dir` and makes a directory of its own there.
    pub fn open(reactor: &Reactor, opening: &Opening, trouble: &Rc<Trouble>) -> Outcome<Site> {
        // No two runs at one time share a name, whatever machine they come from.
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        let name = format!("{DIRECTORY}{:x}-{:x}", std::process::id(), now.as_micros());
        if let Some(path) = opening.url.strip_prefix("file://") {
            return Site::local(reactor, opening, PathBuf::from(path).join(name));
        }
        for (scheme, what) in [("s3://", "object stores"), ("iscsi://", "block devices")] {
            if opening.url.starts_with(scheme) {
                return Err(format!("{}: {what} are no targets; give nfs:// or file://", opening.url));
            }
        }
        let mut target = Target::parse(&opening.url)?;
        target.pid = opening.pid.or_else(|| cpu::listener(target.address));
        target.core = opening.core;
        let (root, directory) = make_directory(&target, &name)?;
        let rtt_us = ping(target.address)?;
        let admin = Admin::find(&target)?;
        let status = admin.map(|admin| admin.status()).transpose()?;
        let nfs = Nfs::open(reactor, &target, directory, opening.connections, opening.patience, trouble)?;
        Ok(Site {
            name: opening.url.clone(),
            connections: nfs.connections(),
            place: Rc::new(Place::Nfs(nfs)),
            meter: Meter { pid: target.pid, core: target.core },
            rtt_us,
            durability: status.as_ref().map_or_else(
                || "not told by the server: FILE_SYNC and COMMIT are taken at their word".to_owned(),
                |status| admin::stable_storage(status, &target.export),
            ),
            configuration: status.map_or(Value::Null, |status| admin::configuration(&status, &target.export)),
            admin,
            directory: Directory::Remote { address: target.address, root, name },
        })
    }

    fn local(reactor: &Reactor, opening: &Opening, path: PathBuf) -> Outcome<Site> {
        std::fs::create_dir(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(Site {
            name: opening.url.clone(),
            connections: 0,
            place: Rc::new(Place::Local(Local::open(reactor, &path)?)),
            meter: Meter { pid: None, core: None },
            rtt_us: 0.0,
            durability: "O_DIRECT without a flush: past the page cache, perhaps in the device's".to_owned(),
            configuration: Value::Null,
            admin: None,
            directory: Directory::Path(path),
        })
    }

    /// Takes the run's directory away.
    pub fn remove(self) -> Outcome<()> {
        match &self.directory {
            Directory::Path(path) => {
                std::fs::remove_dir_all(path).map_err(|error| format!("{}: {error}", path.display()))
            }
            Directory::Remote { address, root, name } => {
                let mut client = client(*address);
                let (directory, _) = client.lookup(root, name.as_bytes()).map_err(|error| error.to_string())?;
                empty(&mut client, &directory)
                    .and_then(|()| client.rmdir(root, name.as_bytes()))
                    .map_err(|error| format!("{name} could not be taken away: {error}"))
            }
        }
    }
}

fn client(address: SocketAddr) -> Client {
    let first = std::process::id().wrapping_mul(104_729) ^ 0x5a5a_0000;
    Client::new(address, Credentials::root(), first, Duration::from_secs(10))
}

fn make_directory(target: &Target, name: &str) -> Outcome<(Handle, Handle)> {
    let failed = |error: tarn_nfsclient::Error| format!("{}: {error}", target.name);
    let root = client(target.mount).mount(&target.export).map_err(failed)?;
    let directory = client(target.address).mkdir(&root, name.as_bytes(), 0o755).map_err(failed)?;
    Ok((root, directory))
}

fn empty(client: &mut Client, directory: &Handle) -> tarn_nfsclient::Result<()> {
    for entry in client.readdirplus(directory)? {
        if entry.name == b"." || entry.name == b".." {
            continue;
        }
        if entry.attributes.is_some_and(|attributes| attributes.kind == Kind::Directory) {
            let (inner, _) = client.lookup(directory, &entry.name)?;
            empty(client, &inner)?;
            client.rmdir(directory, &entry.name)?;
        } else {
            client.remove(directory, &entry.name)?;
        }
    }
    Ok(())
}

fn ping(address: SocketAddr) -> Outcome<f64> {
    let mut client = client(address);
    let mut times = Vec::with_capacity(PINGS);
    for _ in 0..PINGS {
        let began = Instant::now();
        client.null().map_err(|error| error.to_string())?;
        times.push(began.elapsed().as_secs_f64() * 1e6);
    }
    times.sort_by(f64::total_cmp);
    Ok(times[PINGS / 2])
}
