//! One very large sparse file, overwritten at random through several checkpoints, then removed.
//!
//! - The places are spread over the whole file; each is written once, then overwritten in another order.
//! - The log begins empty and takes in a burst at full speed. That is shown by itself: what is to be steady, the number of
//!   replies in windows of some seconds, counts from the end of the first checkpoint of overwritten places on.

use super::calls::{Kind, READ, WRITE};
use super::drive::{Story, drive};
use super::own::Own;
use super::watch::Watch;
use super::{Common, mib};
use crate::Outcome;
use crate::content::{at, mix};
use crate::load::wire::Reply;
use clap::Args;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tarn_nfsclient::types::Change;
use tarn_nfsclient::{Handle, client::How};

const PIECE: u64 = 8192;
/// GiB
const SIZE_MAX: u64 = 8192;
const SECONDS_MAX: u64 = 1_000_000;
/// What is compared: replies in so much time.
const WINDOW: Duration = Duration::from_secs(5);
/// Between two looks whether a checkpoint was stored.
const LOOK_EVERY: Duration = Duration::from_millis(250);

#[derive(Args)]
pub struct Sparse {
    #[command(flatten)]
    pub(super) common: Common,
    /// GiB, a power of two
    #[arg(long, default_value_t = 1024, value_parser = clap::value_parser!(u64).range(1..=SIZE_MAX))]
    size: u64,
    /// Places that are written, 8 KiB each: more than calls in flight
    #[arg(long, default_value_t = 400_000, value_parser = clap::value_parser!(u64).range(1..))]
    places: u64,
    /// Seconds of overwriting
    #[arg(long, default_value_t = 120, value_parser = clap::value_parser!(u64).range(1..=SECONDS_MAX))]
    seconds: u64,
    /// Seconds to watch the space come back
    #[arg(long, default_value_t = 60)]
    after: u64,
    /// Bytes of a record; the volume's default if left out
    #[arg(long)]
    record_size: Option<String>,
}

/// How long writes go on.
enum Pass {
    /// Until every place was written.
    Once,
    /// Until a checkpoint of overwritten places is stored.
    Burst(Arc<AtomicBool>),
    Timed(Instant),
}

/// 8 KiB FILE_SYNC writes, one after another, at places drawn from the whole file.
struct Overwrite {
    file: Handle,
    kind: Kind,
    pieces: u64,
    places: u64,
    /// Writes so far.
    next: u64,
    pass: Pass,
    /// When each place was last written, as the number of the write; 0: never.
    written: Vec<u64>,
    /// The place of each slot's write; one place is not written twice at a time.
    slots: Vec<Option<(u64, u64)>>,
    windows: Vec<u64>,
    started: Instant,
}

impl Overwrite {
    fn offset(&self, place: u64) -> u64 {
        // An odd multiplier visits every piece of a power of two once before any comes again.
        place.wrapping_mul(0x9e37_79b9_7f4a_7c15) % self.pieces * PIECE
    }

    fn is_over(&self) -> bool {
        match &self.pass {
            Pass::Once => self.next == self.places,
            Pass::Burst(over) => over.load(Ordering::Relaxed),
            Pass::Timed(until) => Instant::now() >= *until,
        }
    }

    /// Begins anew to count.
    fn begin(&mut self, pass: Pass) {
        (self.pass, self.windows, self.started) = (pass, Vec::new(), Instant::now());
    }

    fn draw(&mut self) -> Option<(u64, u64)> {
        if self.is_over() {
            return None;
        }
        self.next += 1;
        let mut place = if matches!(self.pass, Pass::Once) { self.next - 1 } else { mix(self.next) % self.places };
        while self.slots.iter().flatten().any(|(held, _)| *held == place) {
            place = (place + 1) % self.places;
        }
        Some((place, self.next))
    }
}

/// What write number `write` puts at a place.
fn content(write: u64) -> &'static [u8] {
    at(mix(write) >> 30 << 3, PIECE as usize)
}

impl Story for Overwrite {
    fn call(&mut self, slot: usize, xid: u32, out: &mut Vec<u8>) -> bool {
        let Some((place, write)) = self.draw() else { return false };
        self.slots[slot] = Some((place, write));
        let offset = self.offset(place);
        self.kind.call(xid, out, |arguments| {
            arguments.bytes(&self.file.0).u64(offset).u32(PIECE as u32).u32(2).bytes(content(write));
        });
        true
    }

    fn judge(&mut self, slot: usize, mut results: Reply) -> Outcome<()> {
        results.status()?;
        results.weak_cache_data()?;
        let (count, stable) = (results.u32()?, results.u32()?);
        if u64::from(count) != PIECE || stable != 2 {
            return Err(format!("WRITE of {count} bytes, stability {stable}"));
        }
        if let Some((place, write)) = self.slots[slot].take() {
            self.written[place as usize] = write;
        }
        let window = (self.started.elapsed().as_millis() / WINDOW.as_millis()) as usize;
        if self.windows.len() <= window {
            self.windows.resize(window + 1, 0);
        }
        self.windows[window] += 1;
        Ok(())
    }
}

/// READ of places, held against the last write of each.
struct Verify<'a> {
    of: &'a Overwrite,
    kind: Kind,
    next: u64,
    last: u64,
    slots: Vec<u64>,
}

impl Story for Verify<'_> {
    fn call(&mut self, slot: usize, xid: u32, out: &mut Vec<u8>) -> bool {
        if self.next == self.last {
            return false;
        }
        let place = mix(self.next) % self.of.places;
        self.next += 1;
        self.slots[slot] = place;
        let offset = self.of.offset(place);
        self.kind.call(xid, out, |arguments| {
            arguments.bytes(&self.of.file.0).u64(offset).u32(PIECE as u32);
        });
        true
    }

    fn judge(&mut self, slot: usize, mut results: Reply) -> Outcome<()> {
        results.status()?;
        results.optional_attributes()?;
        let (_count, _end, size) = (results.u32()?, results.u32()?, results.u32()? as usize);
        let place = self.slots[slot];
        if results.bytes(size)? != content(self.of.written[place as usize]) {
            return Err(format!("place {place} does not hold its last write"));
        }
        Ok(())
    }
}

impl Sparse {
    pub fn run(&self) -> Outcome<()> {
        self.check()?;
        let mut own = Own::start(&self.common)?;
        if let Some(size) = &self.record_size {
            own.tarn(&["volume", "set", "vol", "--record-size", size])?;
        }
        let root = own.root()?;
        let mut client = own.client(Duration::from_secs(60));
        let file = client.create(&root, b"sparse", How::Guarded).map_err(|error| format!("create: {error}"))?;
        let size = self.size << 30;
        client.setattr(&file, Change::size(size)).map_err(|error| format!("setattr: {error}"))?;
        let (connections, depth) = self.common.shape;
        let mut story = Overwrite {
            file,
            kind: Kind::new(WRITE),
            pieces: size / PIECE,
            places: self.places,
            next: 0,
            pass: Pass::Once,
            written: vec![0; self.places as usize],
            slots: vec![None; connections * depth],
            windows: Vec::new(),
            started: Instant::now(),
        };
        let watch = Watch::start(own.pid(), &own.data());
        let ran = drive(own.target.address, self.common.shape, &mut story)?;
        println!("{} places of {} GiB written once: {:.0}/s", self.places, self.size, ran.rate(self.places));
        self.say_windows(&story);
        // What was written first is to be in the store, so that it is overwritten there.
        own.tarn(&["checkpoint"])?;
        self.burst(&own, &mut story)?;
        let before = own.status()?["checkpoint"].clone();
        story.begin(Pass::Timed(Instant::now() + Duration::from_secs(self.seconds)));
        let ran = drive(own.target.address, self.common.shape, &mut story)?;
        println!(
            "overwriting: {} in {:.0} s, {:.0}/s, p50 {:.0} us, p99 {:.0} us",
            ran.calls,
            ran.elapsed.as_secs_f64(),
            ran.rate(ran.calls),
            ran.quantile(0.5),
            ran.quantile(0.99)
        );
        self.say_windows(&story);
        println!("checkpoints before: {before}");
        println!("checkpoints after:  {}", own.status()?["checkpoint"]);
        println!("memory: most {}, configured {}", mib(watch.resident_most()), mib(self.common.memory()));
        println!("disk: most {}", mib(watch.disk_most()));
        drop(watch);
        self.verify(&mut own, &story)?;
        self.remove(&own, &root)
    }

    fn check(&self) -> Outcome<()> {
        let (pieces, calls) = ((self.size << 30) / PIECE, self.common.shape.0 * self.common.shape.1);
        if !self.size.is_power_of_two() {
            return Err(format!("--size {}: give a power of two", self.size));
        }
        if self.places > pieces {
            return Err(format!("--places {}: {} GiB have {pieces} of them; give fewer", self.places, self.size));
        }
        if self.places <= calls as u64 {
            return Err(format!("--places {}: give more than the {calls} calls in flight (--shape)", self.places));
        }
        Ok(())
    }

    /// Overwrites from an empty log on, until a checkpoint of that is stored.
    fn burst(&self, own: &Own, story: &mut Overwrite) -> Outcome<()> {
        let stored = || own.status().map(|status| status["checkpoint"]["count"].as_u64());
        let (before, over) = (stored()?, Arc::new(AtomicBool::new(false)));
        story.begin(Pass::Burst(over.clone()));
        let ran = std::thread::scope(|scope| {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) && matches!(stored(), Ok(now) if now == before) {
                    std::thread::sleep(LOOK_EVERY);
                }
                over.store(true, Ordering::Relaxed);
            });
            let ran = drive(own.target.address, self.common.shape, story);
            over.store(true, Ordering::Relaxed);
            ran
        })?;
        let (seconds, rate) = (ran.elapsed.as_secs_f64(), ran.rate(ran.calls));
        println!("the burst, overwriting until the first checkpoint: {} in {seconds:.1} s, {rate:.0}/s", ran.calls);
        Ok(())
    }

    fn say_windows(&self, story: &Overwrite) {
        // The last one is not full.
        let full = &story.windows[..story.windows.len().saturating_sub(1)];
        let rates: Vec<u64> = full.iter().map(|count| count / WINDOW.as_secs()).collect();
        let mut sorted = rates.clone();
        sorted.sort_unstable();
        let (Some(least), Some(most)) = (sorted.first(), sorted.last()) else { return };
        let median = sorted[sorted.len() / 2];
        println!("  in windows of {} s: least {least}, median {median}, most {most}: {rates:?}", WINDOW.as_secs());
    }

    fn verify(&self, own: &mut Own, story: &Overwrite) -> Outcome<()> {
        own.kill()?;
        let back = own.up()?;
        println!("after kill -9: serves within {:.2} s", back.as_secs_f64());
        let (connections, depth) = self.common.shape;
        let last = self.places.min(20_000);
        let slots = vec![0; connections * depth];
        let mut verify = Verify { of: story, kind: Kind::new(READ), next: 0, last, slots };
        let ran = drive(own.target.address, self.common.shape, &mut verify)?;
        println!("{last} places drawn at random hold their last write: {:.0} reads/s", ran.rate(last));
        Ok(())
    }

    fn remove(&self, own: &Own, root: &Handle) -> Outcome<()> {
        own.tarn(&["checkpoint"])?;
        let mut client = own.client(Duration::from_secs(60));
        let started = Instant::now();
        client.remove(root, b"sparse").map_err(|error| format!("remove: {error}"))?;
        println!("REMOVE answered after {:.1} ms", started.elapsed().as_secs_f64() * 1000.0);
        let mut shown = String::new();
        while started.elapsed() < Duration::from_secs(self.after) {
            let status = own.status()?;
            let of = |name: &str| status["segments"][name].as_u64().unwrap_or(0);
            let used = status["volumes"][0]["used_bytes"].as_u64().unwrap_or(0);
            let (live, condemned) = (mib(of("live_bytes")), mib(of("condemned_bytes")));
            let text = format!("volume {} used, segments {live} in use, {condemned} await deletion", mib(used));
            if text != shown {
                println!("  after {:.1} s: {text}", started.elapsed().as_secs_f64());
                shown = text;
            }
            std::thread::sleep(Duration::from_secs(1));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        sparse: Sparse,
    }

    fn refused(arguments: &str) -> String {
        let line = Line::parse_from(format!("sparse --tarn tarn {arguments}").split(' '));
        line.sparse.check().expect_err(arguments)
    }

    #[test]
    fn places_that_are_none_or_are_all_in_flight_are_refused() {
        assert!(refused("--size 1 --places 131073").contains("give fewer"));
        assert!(refused("--size 1000 --places 1000").contains("power of two"));
        assert!(refused("--shape 4x16 --places 64").contains("more than the 64"));
        let fits = Line::parse_from("sparse --tarn tarn --size 1 --places 131072".split(' '));
        assert_eq!(fits.sparse.check(), Ok(()));
    }
}
