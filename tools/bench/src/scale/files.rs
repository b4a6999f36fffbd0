//! Very many small files: CREATE and one FILE_SYNC WRITE each.
//!
//! - Every hundredth of the way a row says the rate since the last, memory and disk.
//! - At the end the server is killed; files drawn from all of them are read back and held against what was written.

use super::calls::{Arguments, CREATE, Kind, LOOKUP, READ, Short, WRITE, take_handle, take_made_handle};
use super::drive::{Story, drive};
use super::own::Own;
use super::watch::Watch;
use super::{Common, mib};
use crate::Outcome;
use crate::content::{at, mix};
use crate::load::wire::Reply;
use clap::Args;
use std::fs::File;
use std::io::Write as _;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use tarn_nfsclient::Handle;

/// Files read back after the kill.
const SAMPLE: u64 = 20_000;
const ROWS: u64 = 100;

#[derive(Args)]
pub struct Files {
    #[command(flatten)]
    pub(super) common: Common,
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1..))]
    count: u64,
    /// Files of one directory
    #[arg(long, default_value_t = 10_000)]
    per_directory: u64,
    /// Rows of the series, also written to this file
    #[arg(long, value_name = "FILE")]
    series: Option<PathBuf>,
}

/// Bytes of file `number`: 0 to 1 KiB.
fn size_of(number: u64) -> usize {
    (mix(number) % 1025) as usize
}

fn content_of(number: u64) -> &'static [u8] {
    at(mix(number) >> 20, size_of(number))
}

fn put_name(arguments: &mut Arguments<'_>, number: u64) {
    let mut name = *b"f000000000";
    let mut rest = number;
    for digit in name[1..].iter_mut().rev() {
        *digit = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    arguments.bytes(&name);
}

/// One row of the series.
#[derive(Clone, Copy, Debug)]
struct Row {
    done: u64,
    at: Duration,
    resident: u64,
    disk: u64,
}

#[derive(Clone, Copy, Debug)]
enum State {
    Idle,
    Creating(u64),
    Made(u64, Short),
    Writing(u64),
}

struct Make<'a> {
    directories: &'a [Handle],
    per: u64,
    count: u64,
    next: u64,
    done: u64,
    slots: Vec<State>,
    create: Kind,
    write: Kind,
    started: Instant,
    watch: &'a Watch,
    rows: Vec<Row>,
    series: Option<File>,
}

impl Story for Make<'_> {
    fn call(&mut self, slot: usize, xid: u32, out: &mut Vec<u8>) -> bool {
        match self.slots[slot] {
            State::Made(number, handle) => {
                let data = content_of(number);
                self.write.call(xid, out, |arguments| {
                    arguments.bytes(handle.bytes()).u64(0).u32(data.len() as u32).u32(2).bytes(data);
                });
                self.slots[slot] = State::Writing(number);
            }
            _ => {
                if self.next == self.count {
                    return false;
                }
                let number = self.next;
                self.next += 1;
                let directory = &self.directories[(number / self.per) as usize];
                self.create.call(xid, out, |arguments| {
                    put_name(arguments.bytes(&directory.0), number);
                    arguments.guarded();
                });
                self.slots[slot] = State::Creating(number);
            }
        }
        true
    }

    fn judge(&mut self, slot: usize, mut results: Reply) -> Outcome<()> {
        let status = results.status();
        self.slots[slot] = match self.slots[slot] {
            State::Creating(number) => {
                status.map_err(|error| format!("CREATE of file {number}: {error}"))?;
                State::Made(number, take_made_handle(&mut results)?)
            }
            State::Writing(number) => {
                status.map_err(|error| format!("WRITE of file {number}: {error}"))?;
                results.weak_cache_data()?;
                let (count, stable) = (results.u32()?, results.u32()?);
                if count as usize != size_of(number) || stable != 2 {
                    return Err(format!("WRITE of file {number}: {count} bytes, stability {stable}"));
                }
                self.done += 1;
                if self.done.is_multiple_of((self.count / ROWS).max(1)) {
                    self.row()?;
                }
                State::Idle
            }
            State::Idle | State::Made(..) => return Err("a reply to nothing".to_owned()),
        };
        Ok(())
    }
}

impl Make<'_> {
    fn row(&mut self) -> Outcome<()> {
        let disk = self.watch.disk().bytes;
        let row = Row { done: self.done, at: self.started.elapsed(), resident: self.watch.resident(), disk };
        let before = self.rows.last().map_or((0, Duration::ZERO), |row| (row.done, row.at));
        let rate = (row.done - before.0) as f64 / (row.at - before.1).as_secs_f64().max(1e-9);
        if let Some(file) = &mut self.series {
            let (seconds, resident, disk) = (row.at.as_secs_f64(), row.resident >> 20, row.disk >> 20);
            writeln!(file, "{},{seconds:.1},{rate:.0},{resident},{disk}", row.done)
                .map_err(|error| error.to_string())?;
        }
        self.rows.push(row);
        Ok(())
    }

    /// Files per second of each tenth.
    fn tenths(&self) -> Vec<f64> {
        let edges: Vec<Row> =
            (1..=10).filter_map(|tenth| self.rows.get(self.rows.len() * tenth / 10 - 1)).copied().collect();
        let mut before = (0, Duration::ZERO);
        edges
            .iter()
            .map(|row| {
                let rate = (row.done - before.0) as f64 / (row.at - before.1).as_secs_f64().max(1e-9);
                before = (row.done, row.at);
                rate
            })
            .collect()
    }
}

#[derive(Clone, Copy, Debug)]
enum Checking {
    Idle,
    Looking(u64),
    Found(u64, Short),
    Reading(u64),
}

/// LOOKUP and READ of files drawn at random.
struct Check<'a> {
    directories: &'a [Handle],
    per: u64,
    count: u64,
    next: u64,
    last: u64,
    slots: Vec<Checking>,
    lookup: Kind,
    read: Kind,
}

impl Story for Check<'_> {
    fn call(&mut self, slot: usize, xid: u32, out: &mut Vec<u8>) -> bool {
        match self.slots[slot] {
            Checking::Found(number, handle) => {
                self.read.call(xid, out, |arguments| {
                    arguments.bytes(handle.bytes()).u64(0).u32(4096);
                });
                self.slots[slot] = Checking::Reading(number);
            }
            _ => {
                if self.next == self.last {
                    return false;
                }
                let number = mix(self.next) % self.count;
                self.next += 1;
                let directory = &self.directories[(number / self.per) as usize];
                self.lookup.call(xid, out, |arguments| put_name(arguments.bytes(&directory.0), number));
                self.slots[slot] = Checking::Looking(number);
            }
        }
        true
    }

    fn judge(&mut self, slot: usize, mut results: Reply) -> Outcome<()> {
        let status = results.status();
        self.slots[slot] = match self.slots[slot] {
            Checking::Looking(number) => {
                status.map_err(|error| format!("LOOKUP of file {number}: {error}"))?;
                Checking::Found(number, take_handle(&mut results)?)
            }
            Checking::Reading(number) => {
                status.map_err(|error| format!("READ of file {number}: {error}"))?;
                results.optional_attributes()?;
                let (count, _end, size) = (results.u32()?, results.u32()?, results.u32()? as usize);
                if count as usize != size || results.bytes(size)? != content_of(number) {
                    return Err(format!("file {number} does not hold what was written"));
                }
                Checking::Idle
            }
            Checking::Idle | Checking::Found(..) => return Err("a reply to nothing".to_owned()),
        };
        Ok(())
    }
}

impl Files {
    pub fn run(&self) -> Outcome<()> {
        let mut own = Own::start(&self.common)?;
        let root = own.root()?;
        let mut client = own.client(Duration::from_secs(60));
        let made = (0..self.count.div_ceil(self.per_directory))
            .map(|index| client.mkdir(&root, format!("d{index:06}").as_bytes(), 0o755));
        let directories = made.collect::<Result<Vec<Handle>, _>>().map_err(|error| format!("mkdir: {error}"))?;
        self.make(&own, &directories)?;
        own.kill()?;
        let back = own.up()?;
        println!("after kill -9: serves within {:.2} s", back.as_secs_f64());
        self.check(&own, &directories)
    }

    fn make(&self, own: &Own, directories: &[Handle]) -> Outcome<()> {
        let watch = Watch::start(own.pid(), &own.data());
        let (connections, depth) = self.common.shape;
        let series = self.series.as_ref().map(File::create).transpose().map_err(|error| error.to_string())?;
        let mut make = Make {
            directories,
            per: self.per_directory,
            count: self.count,
            next: 0,
            done: 0,
            slots: vec![State::Idle; connections * depth],
            create: Kind::new(CREATE),
            write: Kind::new(WRITE),
            started: Instant::now(),
            watch: &watch,
            rows: Vec::new(),
            series,
        };
        let ran = drive(own.target.address, self.common.shape, &mut make)?;
        let tenths = make.tenths();
        let best = tenths.iter().copied().fold(0.0, f64::max);
        let last = tenths.last().copied().unwrap_or(0.0);
        println!("{} files in {:.1} s: {:.0} files/s", self.count, ran.elapsed.as_secs_f64(), ran.rate(self.count));
        println!("a call: p50 {:.0} us, p99 {:.0} us", ran.quantile(0.5), ran.quantile(0.99));
        println!("tenths, files/s: {}", tenths.iter().map(|rate| format!("{rate:.0}")).collect::<Vec<_>>().join(" "));
        println!("last tenth / best tenth: {:.2}", last / best.max(1e-9));
        println!(
            "memory: most {} ({} samples), caches and overlay {}, beyond them {}",
            mib(watch.resident_most()),
            watch.samples(),
            mib(self.common.memory()),
            mib(watch.resident_most().saturating_sub(self.common.memory()))
        );
        self.say_disk(own, &watch)
    }

    fn say_disk(&self, own: &Own, watch: &Watch) -> Outcome<()> {
        let objects = super::watch::usage(&own.data().join("objects"));
        println!("disk: most {}, log of {} GiB included", mib(watch.disk_most()), self.common.log);
        let written: u64 = (0..self.count).map(|number| size_of(number) as u64).sum();
        println!("written: {}", mib(written));
        let each = objects.bytes / objects.files.max(1);
        println!("objects: {} of {} together, {} KiB each", objects.files, mib(objects.bytes), each >> 10);
        println!("checkpoints: {}", own.status()?["checkpoint"]);
        Ok(())
    }

    fn check(&self, own: &Own, directories: &[Handle]) -> Outcome<()> {
        let (connections, depth) = self.common.shape;
        let mut check = Check {
            directories,
            per: self.per_directory,
            count: self.count,
            next: 0,
            last: SAMPLE.min(self.count),
            slots: vec![Checking::Idle; connections * depth],
            lookup: Kind::new(LOOKUP),
            read: Kind::new(READ),
        };
        let ran = drive(own.target.address, self.common.shape, &mut check)?;
        let rate = ran.rate(check.last);
        println!("{} files drawn at random read back cold, all as written: {rate:.0} files/s", check.last);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_empty_to_one_kib_and_tell_their_number() {
        let sizes: Vec<usize> = (0..10_000).map(size_of).collect();
        assert!(sizes.iter().all(|size| *size <= 1024) && sizes.contains(&0) && sizes.contains(&1024));
        assert_ne!(content_of(1), content_of(2));
    }

    #[test]
    fn a_file_with_other_bytes_is_told() {
        let handle = Handle(vec![1; 8]);
        let mut check = Check {
            directories: std::slice::from_ref(&handle),
            per: 10,
            count: 10,
            next: 0,
            last: 1,
            slots: vec![Checking::Reading(3)],
            lookup: Kind::new(LOOKUP),
            read: Kind::new(READ),
        };
        let reply = |data: &[u8]| {
            let head = tarn_nfsclient::xdr::Writer::new().u32(0).u32(0).u32(data.len() as u32).u32(1);
            head.bytes(data).0
        };
        assert_eq!(check.judge(0, Reply(&reply(content_of(3)), 0)), Ok(()));
        check.slots[0] = Checking::Reading(4);
        assert!(check.judge(0, Reply(&reply(content_of(3)), 0)).is_err());
    }
}
