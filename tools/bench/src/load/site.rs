//! The directory on a server that a measurement works in.
//!
//! - Everything is made below one directory with a fresh name; [`Site::remove`] takes all of it away again.
//! - What an operation needs is made before it is measured, and counts for nothing.

use crate::Outcome;
use crate::content;
use crate::load::jobs::{File, Look, Names, Operation, Read, Write};
use crate::load::run::{Length, Plan, Run, run};
use crate::measure::Meter;
use crate::target::Target;
use std::process::Command;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tarn_nfsclient::client::How;
use tarn_nfsclient::{Client, Credentials, Handle, Stable};

/// Files that GETATTR, LOOKUP and ACCESS go round.
const FILES: usize = 256;
/// Size of the file that is read: more than the processor's caches, less than any server's.
const READ_BYTES: u64 = 64 << 20;
/// Size of a file that is overwritten in small pieces.
const SMALL_BYTES: u64 = 4 << 20;
/// Size of a file that a stream overwrites without an end.
const STREAM_BYTES: u64 = 256 << 20;
/// A server that keeps files in larger records than this has less garbage made for it.
const RECORD_BYTES: usize = 64 << 10;
const MIB: u64 = 1 << 20;

pub struct Site {
    pub target: Target,
    pub meter: Meter,
    client: Client,
    root: Handle,
    name: String,
    directory: Handle,
    files: Vec<File>,
    big: Option<Handle>,
    written: Option<Handle>,
    /// Files of small and of large writes, one for each connection, and their sizes.
    small: Vec<Handle>,
    large: (Vec<Handle>, u64),
    /// Names in the directory, so that it can be emptied.
    names: Vec<String>,
    /// Directories of created files, and how many each holds.
    made: Vec<(String, Handle, u64)>,
    stamp: u64,
}

fn told<T>(what: &str, result: tarn_nfsclient::Result<T>) -> Outcome<T> {
    result.map_err(|error| format!("{what}: {error}"))
}

/// The export's root.
pub fn mount(target: &Target) -> Outcome<Handle> {
    let number = target.address.port().into();
    let mut client = Client::new(target.mount, Credentials::root(), number, Duration::from_secs(20));
    told(&format!("mount {} of {}", target.export, target.name), client.mount(&target.export))
}

impl Site {
    pub fn prepare(target: Target) -> Outcome<Site> {
        let seed = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64);
        let first = content::mix(seed) as u32;
        let mut client = Client::new(target.address, Credentials::root(), first, Duration::from_secs(60));
        let root = mount(&target)?;
        let name = format!("tarn-bench-{:08x}", first);
        let directory = told("mkdir", client.mkdir(&root, name.as_bytes(), 0o755))?;
        let meter = Meter { pid: target.pid, core: target.core };
        let mut site = Site {
            target,
            meter,
            client,
            root,
            name,
            directory,
            files: Vec::new(),
            big: None,
            written: None,
            small: Vec::new(),
            large: (Vec::new(), 0),
            names: Vec::new(),
            made: Vec::new(),
            stamp: seed,
        };
        for index in 0..FILES {
            let name = format!("set-{index:05}");
            let handle = site.create(&name)?;
            let number = told("getattr", site.client.getattr(&handle))?.fileid;
            site.files.push(File { name, handle, number });
        }
        Ok(site)
    }

    /// Repeats `operation` and says what was seen. `bytes` is how much a round of large writes moves.
    pub fn measure(&mut self, operation: Operation, plan: Plan, bytes: u64) -> Outcome<Run> {
        let result = match operation {
            Operation::Getattr | Operation::Lookup | Operation::Access => {
                let mut job = Look::new(operation, &self.directory, &self.files);
                run(self.target.address, plan, &mut job, &self.meter)
            }
            Operation::Read4k => self.read(plan, 4096),
            Operation::Read1m => self.read(plan, content::PERIOD),
            Operation::Read1mWritten => self.read_written(plan),
            Operation::Write4kFilesync => self.write_small(plan, Stable::FileSync),
            Operation::Write4kUnstable => self.write_small(plan, Stable::Unstable),
            Operation::Create => self.create_many(plan),
            Operation::Write1m => self.write_large(plan, bytes),
        };
        result.map_err(|error| format!("{} at {}: {error}", operation.name(), self.target.name))
    }

    fn create(&mut self, name: &str) -> Outcome<Handle> {
        let handle = told("create", self.client.create(&self.directory, name.as_bytes(), How::Guarded))?;
        self.names.push(name.to_owned());
        Ok(handle)
    }

    /// Makes a file of content, on the medium.
    fn fill(&mut self, name: &str, bytes: u64) -> Outcome<Handle> {
        let handle = self.create(name)?;
        self.write(&handle, bytes)?;
        Ok(handle)
    }

    /// Fills the file, to the medium.
    fn write(&mut self, handle: &Handle, bytes: u64) -> Outcome<()> {
        for offset in (0..bytes).step_by(content::PERIOD) {
            let data = content::at(offset, content::PERIOD);
            let mut done = 0;
            while done < data.len() {
                let written = self.client.write(handle, offset + done as u64, &data[done..], Stable::Unstable);
                done += told("write", written)?.count as usize;
            }
        }
        told("commit", self.client.commit(handle)).map(|_| ())
    }

    fn read(&mut self, plan: Plan, size: usize) -> Outcome<Run> {
        let big = match self.big.take() {
            Some(big) => big,
            None => {
                let big = self.fill("read", READ_BYTES)?;
                self.store()?;
                big
            }
        };
        let mut job = Read::new(&big, READ_BYTES, size);
        self.big = Some(big);
        run(self.target.address, plan, &mut job, &self.meter)
    }

    /// Reads what was written right before: a server may keep that otherwise than what it has read or stored.
    fn read_written(&mut self, plan: Plan) -> Outcome<Run> {
        let file = match self.written.take() {
            Some(file) => file,
            None => self.create("written")?,
        };
        self.write(&file, READ_BYTES)?;
        let mut job = Read::new(&file, READ_BYTES, content::PERIOD);
        self.written = Some(file);
        run(self.target.address, plan, &mut job, &self.meter)
    }

    /// Has a Tarn of one's own store what it was given: what is read is cached, and not on its way.
    fn store(&self) -> Outcome<()> {
        let Some((program, data)) = &self.target.own else { return Ok(()) };
        let output = Command::new(program).args(["checkpoint", "--data"]).arg(data).output();
        let output = output.map_err(|error| format!("{}: {error}", program.display()))?;
        let said = String::from_utf8_lossy(&output.stderr);
        if output.status.success() { Ok(()) } else { Err(format!("tarn checkpoint: {}", said.trim())) }
    }

    fn write_small(&mut self, plan: Plan, stable: Stable) -> Outcome<Run> {
        while self.small.len() < plan.connections {
            let file = self.fill(&format!("small-{}", self.small.len()), SMALL_BYTES)?;
            self.small.push(file);
        }
        let stamp = self.stamp();
        let files = &self.small[..plan.connections];
        let mut job = Write::new(files, SMALL_BYTES, 4096, stable, stamp);
        let result = run(self.target.address, plan, &mut job, &self.meter)?;
        for file in &self.small[..plan.connections] {
            told("commit", self.client.commit(file))?;
        }
        Ok(result)
    }

    /// Writes `bytes` over all connections and commits them; the commits belong to what is measured.
    fn write_large(&mut self, plan: Plan, bytes: u64) -> Outcome<Run> {
        let share = (bytes / plan.connections as u64 / MIB).max(1) * MIB;
        self.large_files(plan.connections, share)?;
        let files = self.large.0[..plan.connections].to_vec();
        let mut job = Write::new(&files, share, content::PERIOD, Stable::Unstable, self.stamp());
        let length = Length::Calls(share / MIB * plan.connections as u64);
        let before = self.meter.sample()?;
        let started = Instant::now();
        let mut result = run(self.target.address, Plan { length, ..plan }, &mut job, &self.meter)?;
        for file in &files {
            told("commit", self.client.commit(file))?;
        }
        result.elapsed = started.elapsed();
        result.spent = self.meter.sample()?.since(&before);
        Ok(result)
    }

    /// Creates in a directory of its own. What was made stays until the end: ext4 spends most of a later CREATE on
    /// passing over inodes that were freed within the last minutes, which is not what is measured.
    fn create_many(&mut self, plan: Plan) -> Outcome<Run> {
        let name = format!("made-{}", self.made.len());
        let directory = told("mkdir", self.client.mkdir(&self.directory, name.as_bytes(), 0o755))?;
        let mut job = Names::create(&directory, 0);
        let result = run(self.target.address, plan, &mut job, &self.meter);
        self.made.push((name, directory, job.next));
        result
    }

    /// Makes and fills what `operation` works on, and repeats it a little, so that nothing of that is measured.
    pub fn warm(&mut self, operation: Operation, connections: usize) -> Outcome<()> {
        let plan = Plan { connections, depth: 1, warm_up: Duration::ZERO, length: Length::Calls(64), pace: None };
        match operation {
            Operation::Write1m => self.large_files(connections, STREAM_BYTES),
            _ => self.measure(operation, plan, 0).map(|_| ()),
        }
    }

    /// Reads, or overwrites without an end, in pieces of 1 MiB. Gives also how many writes were told to try later.
    pub fn stream(&mut self, operation: Operation, plan: Plan) -> Outcome<(Run, u64)> {
        if operation == Operation::Read1m {
            return Ok((self.read(plan, content::PERIOD)?, 0));
        }
        self.large_files(plan.connections, STREAM_BYTES)?;
        let files = &self.large.0[..plan.connections].to_vec();
        let mut job = Write::new(files, self.large.1, content::PERIOD, Stable::Unstable, self.stamp());
        job.patient = true;
        let result = run(self.target.address, plan, &mut job, &self.meter)?;
        for file in files {
            told("commit", self.client.commit(file))?;
        }
        Ok((result, job.told_later))
    }

    /// Fills files of `bytes` together and overwrites a piece in three of four records, so that three quarters of what is
    /// stored are dead: what is at least half alive nobody collects.
    pub fn make_garbage(&mut self, bytes: u64) -> Outcome<()> {
        let count = (bytes / STREAM_BYTES).max(1) as usize;
        self.large_files(count, STREAM_BYTES)?;
        for file in &self.large.0[..count] {
            for record in (0..STREAM_BYTES / RECORD_BYTES as u64).filter(|record| record % 4 != 0) {
                let offset = record * RECORD_BYTES as u64;
                let data = content::at(offset + 512, 4096);
                told("write", self.client.write(file, offset, data, Stable::Unstable))?;
            }
            told("commit", self.client.commit(file))?;
        }
        Ok(())
    }

    /// As [`Operation::Write1m`], into files that are new the first time.
    pub fn flood(&mut self, plan: Plan, bytes: u64) -> Outcome<Run> {
        let share = (bytes / plan.connections as u64 / MIB).max(1) * MIB;
        if self.large.1 < share {
            let names = (0..plan.connections).map(|index| format!("stream-{share}-{index}"));
            self.large = (names.map(|name| self.create(&name)).collect::<Outcome<Vec<Handle>>>()?, share);
        }
        self.write_large(plan, bytes)
    }

    /// Sees to it that there are `count` large files of `bytes` each.
    fn large_files(&mut self, count: usize, bytes: u64) -> Outcome<()> {
        if self.large.1 < bytes {
            self.large = (Vec::new(), bytes);
        }
        let share = self.large.1;
        while self.large.0.len() < count {
            let file = self.fill(&format!("large-{share}-{}", self.large.0.len()), share)?;
            self.large.0.push(file);
        }
        Ok(())
    }

    fn stamp(&mut self) -> u64 {
        self.stamp = self.stamp.wrapping_add(1 << 40);
        self.stamp
    }

    /// Takes away everything that was made.
    pub fn remove(mut self) -> Outcome<()> {
        for (name, directory, count) in std::mem::take(&mut self.made) {
            let length = Length::Calls(count);
            let plan = Plan { connections: 4, depth: 16, warm_up: Duration::ZERO, length, pace: None };
            let swept = run(self.target.address, plan, &mut Names::remove(&directory, 0), &Meter::default());
            swept.map_err(|error| format!("removing what was created: {error}"))?;
            told("rmdir", self.client.rmdir(&self.directory, name.as_bytes()))?;
        }
        for name in std::mem::take(&mut self.names) {
            told("remove", self.client.remove(&self.directory, name.as_bytes()))?;
        }
        told("rmdir", self.client.rmdir(&self.root, self.name.as_bytes()))
    }
}
