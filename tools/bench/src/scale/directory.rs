//! One very large directory: filled, listed cold, looked into, listed while it changes, emptied.
//!
//! - Cold is after a stop and a start: the server's caches are empty; the kernel's page cache is not touched.
//! - Every listing is judged: no name twice, none missed that was there all the time.

use super::calls::{CREATE, Kind, LOOKUP, REMOVE};
use super::drive::{Drive, Story, drive};
use super::listing::Lister;
use super::own::Own;
use super::watch::Watch;
use super::{Common, mib};
use crate::Outcome;
use crate::content::mix;
use crate::load::wire::Reply;
use clap::Args;
use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tarn_nfsclient::Handle;

/// NFS3ERR_NOENT.
const ABSENT: u32 = 2;
/// Listings while the directory changes.
const LISTINGS: usize = 4;
/// Names that come and go meanwhile.
const RESTLESS: u64 = 20_000;
/// A byte of memory for each stable one.
const NAMES_MAX: u64 = 1_000_000_000;

#[derive(Args)]
pub struct Large {
    #[command(flatten)]
    pub(super) common: Common,
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1..=NAMES_MAX))]
    count: u64,
    /// Bytes asked for in a page of a listing
    #[arg(long, default_value_t = 1 << 20, value_parser = clap::value_parser!(u32).range(4096..))]
    page: u32,
    /// Names looked up
    #[arg(long, default_value_t = 200_000, value_parser = clap::value_parser!(u64).range(1..=NAMES_MAX))]
    lookups: u64,
    /// Stop after filling and hold the server until Enter is pressed, for a kernel client
    #[arg(long)]
    hold: bool,
}

/// CREATE, REMOVE or LOOKUP of one name after another in one directory.
struct Each<N: FnMut() -> Option<Vec<u8>>> {
    kind: Kind,
    create: bool,
    directory: Handle,
    /// What must come of each.
    status: u32,
    names: N,
}

impl<N: FnMut() -> Option<Vec<u8>>> Each<N> {
    fn new(procedure: u32, directory: &Handle, status: u32, names: N) -> Each<N> {
        let directory = directory.clone();
        Each { kind: Kind::new(procedure), create: procedure == CREATE, directory, status, names }
    }
}

impl<N: FnMut() -> Option<Vec<u8>>> Story for Each<N> {
    fn call(&mut self, _slot: usize, xid: u32, out: &mut Vec<u8>) -> bool {
        let Some(name) = (self.names)() else { return false };
        self.kind.call(xid, out, |arguments| {
            arguments.bytes(&self.directory.0).bytes(&name);
            if self.create {
                arguments.guarded();
            }
        });
        true
    }

    fn judge(&mut self, _slot: usize, mut results: Reply) -> Outcome<()> {
        match results.u32()? {
            status if status == self.status => Ok(()),
            status => {
                Err(format!("{:?}, not {:?}", tarn_nfsclient::Status(status), tarn_nfsclient::Status(self.status)))
            }
        }
    }
}

fn stable_name(number: u64) -> Vec<u8> {
    format!("entry-{number:08}").into_bytes()
}

fn absent_name(number: u64) -> Vec<u8> {
    format!("never-{number:08}").into_bytes()
}

/// The names of `numbers`, one after another.
fn names(numbers: std::ops::Range<u64>, name: fn(u64) -> Vec<u8>) -> impl FnMut() -> Option<Vec<u8>> {
    let mut numbers = numbers;
    move || numbers.next().map(name)
}

fn said(what: &str, count: u64, ran: &Drive) -> f64 {
    let rate = ran.rate(count);
    println!("{what}: {count} in {:.2} s, {rate:.0}/s, p99 {:.0} us", ran.elapsed.as_secs_f64(), ran.quantile(0.99));
    rate
}

/// One listing, judged.
struct Seen {
    stable: Vec<bool>,
    others: HashSet<Vec<u8>>,
    entries: u64,
}

impl Seen {
    fn new(count: u64) -> Seen {
        Seen { stable: vec![false; count as usize], others: HashSet::new(), entries: 0 }
    }

    fn note(&mut self, name: &[u8]) -> Outcome<()> {
        self.entries += 1;
        let number =
            name.strip_prefix(b"entry-").and_then(|text| std::str::from_utf8(text).ok()?.parse::<usize>().ok());
        let twice = match number.and_then(|number| self.stable.get_mut(number)) {
            Some(seen) => std::mem::replace(seen, true),
            None => !self.others.insert(name.to_vec()),
        };
        if twice { Err(format!("{} was listed twice", String::from_utf8_lossy(name))) } else { Ok(()) }
    }

    fn judge(&self) -> Outcome<()> {
        match self.stable.iter().position(|seen| !seen) {
            Some(number) => Err(format!("entry {number} was there all the time and was not listed")),
            None => Ok(()),
        }
    }
}

impl Large {
    pub fn run(&self) -> Outcome<()> {
        let mut own = Own::start(&self.common)?;
        let root = own.root()?;
        let directory = own.client(Duration::from_secs(60)).mkdir(&root, b"large", 0o755);
        let directory = directory.map_err(|error| format!("mkdir: {error}"))?;
        let watch = Watch::start(own.pid(), &own.data());
        let ran = self.each(&own, CREATE, &directory, 0, names(0..self.count, stable_name))?;
        let created = said("CREATE", self.count, &ran);
        println!(
            "memory while creating: most {} of {} and 512 MiB",
            mib(watch.resident_most()),
            mib(self.common.memory())
        );
        drop(watch);
        own.cold()?;
        if self.hold {
            println!("{} (process {}); press Enter to go on", own.target.address, own.pid());
            std::io::stdin().read_line(&mut String::new()).map_err(|error| error.to_string())?;
            own.cold()?;
        }
        let watch = Watch::start(own.pid(), &own.data());
        self.list("READDIRPLUS, cold", 17, &own, &directory)?;
        self.list("READDIRPLUS, again", 17, &own, &directory)?;
        println!("memory while listing: most {}", mib(watch.resident_most()));
        drop(watch);
        own.cold()?;
        self.list("READDIR, cold", 16, &own, &directory)?;
        self.look_up(&mut own, &directory)?;
        self.list_while_it_changes(&own, &directory)?;
        let removed = self.remove_all(&own, &directory)?;
        println!("rm -r / CREATE: {:.2}", removed / created);
        own.client(Duration::from_secs(60)).rmdir(&root, b"large").map_err(|error| format!("rmdir: {error}"))?;
        println!("fsck: {}", own.tarn(&["fsck"]).unwrap_or_else(|error| error).trim().replace('\n', "; "));
        Ok(())
    }

    fn each(
        &self,
        own: &Own,
        procedure: u32,
        directory: &Handle,
        status: u32,
        names: impl FnMut() -> Option<Vec<u8>>,
    ) -> Outcome<Drive> {
        drive(own.target.address, self.common.shape, &mut Each::new(procedure, directory, status, names))
    }

    fn list(&self, what: &str, procedure: u32, own: &Own, directory: &Handle) -> Outcome<()> {
        let mut lister = Lister::new(own.target.address, directory, procedure, self.page)?;
        let mut seen = Seen::new(self.count);
        let started = Instant::now();
        lister.all(&mut |name, _| seen.note(name))?;
        let elapsed = started.elapsed();
        seen.judge()?;
        let rate = seen.entries as f64 / elapsed.as_secs_f64();
        println!(
            "{what}: {} entries in {:.2} s and {} pages, {rate:.0}/s, {} with attributes and handle",
            seen.entries,
            elapsed.as_secs_f64(),
            lister.pages,
            lister.whole
        );
        Ok(())
    }

    /// Names drawn at random, present and absent in turns, each after a restart.
    fn look_up(&self, own: &mut Own, directory: &Handle) -> Outcome<()> {
        let (count, lookups) = (self.count, self.lookups);
        for round in 0..2u64 {
            let mut rates = Vec::new();
            for (what, status) in [("present", 0), ("absent", ABSENT)] {
                own.cold()?;
                for again in ["cold", "again"] {
                    let mut numbers = (0..lookups).map(|number| mix(number + round * lookups) % count);
                    let name = if status == 0 { stable_name } else { absent_name };
                    let ran = self.each(own, LOOKUP, directory, status, || numbers.next().map(name))?;
                    rates.push(said(&format!("LOOKUP of {what} names, {again}"), lookups, &ran));
                }
            }
            println!("absent / present: cold {:.2}, again {:.2}", rates[2] / rates[0], rates[3] / rates[1]);
        }
        Ok(())
    }

    fn list_while_it_changes(&self, own: &Own, directory: &Handle) -> Outcome<()> {
        let over = AtomicBool::new(false);
        let address = own.target.address;
        std::thread::scope(|scope| {
            let changes = scope.spawn(|| restless(address, directory, &over));
            let mut worst = Duration::ZERO;
            let listed = (0..LISTINGS).try_for_each(|turn| {
                let procedure = if turn.is_multiple_of(2) { 17 } else { 16 };
                let page = if turn < 2 { self.page } else { 32 << 10 };
                let mut seen = Seen::new(self.count);
                let started = Instant::now();
                Lister::new(address, directory, procedure, page)?.all(&mut |name, _| seen.note(name))?;
                worst = worst.max(started.elapsed());
                seen.judge()
            });
            over.store(true, Ordering::Relaxed);
            let changed = changes.join().map_err(|_| "the changing thread panicked".to_owned())??;
            listed?;
            println!(
                "{LISTINGS} listings while {changed} names were created and removed: none twice, none missed; \
                 the slowest took {:.1} s",
                worst.as_secs_f64()
            );
            Ok(())
        })
    }

    fn remove_all(&self, own: &Own, directory: &Handle) -> Outcome<f64> {
        let mut lister = Lister::new(own.target.address, directory, 16, self.page)?;
        let started = Instant::now();
        let mut removed = 0;
        loop {
            let mut page = Vec::new();
            if !lister.page(&mut |name, _| {
                page.push(name.to_vec());
                Ok(())
            })? {
                break;
            }
            removed += page.len() as u64;
            let mut names = page.into_iter();
            self.each(own, REMOVE, directory, 0, || names.next())?;
        }
        let rate = removed as f64 / started.elapsed().as_secs_f64();
        println!("rm -r: {removed} in {:.2} s, {rate:.0}/s, the listing included", started.elapsed().as_secs_f64());
        if removed != self.count {
            return Err(format!("{removed} of {} names were listed while they were removed", self.count));
        }
        Ok(rate)
    }
}

/// Creates and removes names until told to end; gives how many changes that were.
fn restless(address: SocketAddr, directory: &Handle, over: &AtomicBool) -> Outcome<u64> {
    let name: fn(u64) -> Vec<u8> = |number| format!("restless-{number:08}").into_bytes();
    let mut changes = 0;
    while !over.load(Ordering::Relaxed) {
        for procedure in [CREATE, REMOVE] {
            let mut each = Each::new(procedure, directory, 0, names(0..RESTLESS, name));
            changes += drive(address, (2, 8), &mut each)?.calls;
        }
    }
    Ok(changes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_twice_and_a_name_missed_are_told() {
        let mut seen = Seen::new(2);
        seen.note(b"entry-00000001").unwrap();
        assert!(seen.note(b"entry-00000001").is_err());
        assert!(seen.judge().unwrap_err().contains("entry 0"));
        seen.note(b"entry-00000000").unwrap();
        seen.note(b"other").unwrap();
        assert!(seen.note(b"other").is_err());
        assert_eq!(seen.judge(), Ok(()));
    }
}
