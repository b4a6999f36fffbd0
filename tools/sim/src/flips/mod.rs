//! Flipped bits: one bit of what lies at rest is flipped, the node is opened with empty caches, every file is read back.
//!
//! - It is the real engine, with SlateDB in sealed objects and the real formats, over a store and a log in memory.
//! - Bits are flipped only in live bytes: bytes that opening, reading, scrub or a deep fsck read. What is live is said
//!   class by class in [`Class`].
//! - No flip may ever show: each file reads as it was written, or as an error. That holds before a checkpoint over the
//!   damage, after it, and once the bit has been put back - then without errors, but for files that the checkpoint wrote
//!   over damaged bytes.
//! - A flip is noticed if the start is refused, a read fails, or log, health, scrub or fsck tell of it; it is named if
//!   they name the object, and the file where a file is concerned.

mod build;
mod ears;
mod judge;
mod node;
mod read;
mod trial;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::chance::Chance;

pub use build::Image;
pub use judge::Verdict;

/// Where a bit is flipped. Campaigns give each of the first six the same number of flips.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// Stored bytes of records that a pointer names. Not: records that nothing names any more.
    Records,
    /// Header, directory and footer of segments that hold such records.
    Directories,
    /// All bytes of the SSTs that the newest manifest names. Not: SSTs that wait for collection.
    Tables,
    /// All bytes of the newest manifest and the newest list of compactions. Not: older ones.
    Manifests,
    /// All bytes of the owner record.
    Owner,
    /// Both header slots; header and body of every frame from the tail on. Not: what fills a frame to its block, and
    /// the ring beyond the end.
    Log,
    /// Those of them that only the last flush before the crash wrote: nothing later says that they were durable.
    LastGroup,
}

/// The classes that flips are drawn for; a flip of the log may turn out to be one of the last group.
pub const CLASSES: [Class; 6] =
    [Class::Records, Class::Directories, Class::Tables, Class::Manifests, Class::Owner, Class::Log];

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Class::Records => "segment records",
            Class::Directories => "segment directories",
            Class::Tables => "metadata SSTs",
            Class::Manifests => "manifests",
            Class::Owner => "owner record",
            Class::Log => "log",
            Class::LastGroup => "log, last group",
        })
    }
}

/// One bit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flip {
    pub class: Class,
    /// The object; none for the log.
    pub object: Option<String>,
    /// Byte in the object or on the device, and bit in it.
    pub byte: u64,
    pub bit: u8,
}

impl fmt::Display for Flip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let object = self.object.as_deref().unwrap_or("the log's device");
        write!(f, "{}: byte {}, bit {} of {object}", self.class, self.byte, self.bit)
    }
}

/// What a campaign is.
#[derive(Clone, Debug)]
pub struct Campaign {
    pub flips: u64,
    pub seed: u64,
    /// Flips tried at once.
    pub jobs: u64,
    /// Try this one flip only, by its number, and print all that is said of it.
    pub only: Option<u64>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    flips: u64,
    wrong: u64,
    noticed: u64,
    named: u64,
}

impl Campaign {
    /// Runs it and prints a line a class; true if it holds: nothing wrong was served, and of the flips that had to be
    /// noticed at least 99 % were, object and file named.
    pub fn run(&self) -> Result<bool, String> {
        let image = Image::build(self.seed)?;
        println!("{image}");
        let control = trial::run(&image, None, self.seed)?;
        image.judge(None, &control).as_control()?;
        let flips: Vec<(u64, Flip)> = (0..).zip(self.draw(&image)?).collect();
        if let Some(only) = self.only {
            let (_, flip) = flips.get(only as usize).ok_or("there is no such flip")?;
            let told = trial::run(&image, Some(flip), only)?;
            println!("{flip}\n{told:#?}\n{:#?}", image.judge(Some(flip), &told));
            return Ok(true);
        }
        let tallies = self.try_all(&image, &flips)?;
        Ok(conclude(&tallies))
    }

    /// Equal parts of all classes, each over its live bytes.
    fn draw(&self, image: &Image) -> Result<Vec<Flip>, String> {
        let mut chance = Chance::new(self.seed, "flips");
        (0..self.flips).map(|number| image.draw(CLASSES[(number % 6) as usize], &mut chance)).collect()
    }

    fn try_all(&self, image: &Image, flips: &[(u64, Flip)]) -> Result<BTreeMap<Class, Tally>, String> {
        let next = AtomicU64::new(0);
        let tallies: Mutex<BTreeMap<Class, Tally>> = Mutex::default();
        let broken: Mutex<Option<String>> = Mutex::default();
        std::thread::scope(|scope| {
            for _ in 0..self.jobs.max(1) {
                scope.spawn(|| {
                    while let Some((number, flip)) = flips.get(next.fetch_add(1, Ordering::Relaxed) as usize) {
                        let verdict = match trial::run(image, Some(flip), *number) {
                            Ok(told) => image.judge(Some(flip), &told),
                            Err(error) => {
                                broken.lock().map(|mut broken| *broken = Some(format!("flip {number}: {error}"))).ok();
                                return;
                            }
                        };
                        self.tell(*number, flip, &verdict);
                        if let Ok(mut tallies) = tallies.lock() {
                            let tally = tallies.entry(flip.class).or_default();
                            tally.flips += 1;
                            tally.wrong += u64::from(!verdict.wrong.is_empty());
                            tally.noticed += u64::from(verdict.noticed);
                            tally.named += u64::from(verdict.noticed && verdict.named);
                        }
                    }
                });
            }
        });
        match broken.into_inner() {
            Ok(Some(error)) => Err(error),
            _ => Ok(tallies.into_inner().unwrap_or_default()),
        }
    }

    /// Says of a flip what is not as it should be.
    fn tell(&self, number: u64, flip: &Flip, verdict: &Verdict) {
        let replay =
            format!("cargo run -p tarn-sim -- flips --flips {} --seed {} --only {number}", self.flips, self.seed);
        for wrong in &verdict.wrong {
            println!("WRONG     {flip}: {wrong}\n          replay: {replay}");
        }
        if !verdict.noticed {
            println!("unnoticed {flip}\n          replay: {replay}");
        } else if !verdict.named {
            println!("unnamed   {flip}: {}\n          replay: {replay}", verdict.said);
        }
    }
}

/// Prints the table and says whether the campaign holds.
fn conclude(tallies: &BTreeMap<Class, Tally>) -> bool {
    println!("{:<20} {:>6} {:>6} {:>8} {:>6}", "class", "flips", "wrong", "noticed", "named");
    let line = |name: &str, tally: &Tally| {
        let Tally { flips, wrong, noticed, named } = tally;
        println!("{name:<20} {flips:>6} {wrong:>6} {noticed:>8} {named:>6}");
    };
    let (mut due, mut all) = (Tally::default(), Tally::default());
    for (class, tally) in tallies {
        line(&class.to_string(), tally);
        let sums = if *class == Class::LastGroup { vec![&mut all] } else { vec![&mut all, &mut due] };
        for sum in sums {
            sum.flips += tally.flips;
            sum.wrong += tally.wrong;
            sum.noticed += tally.noticed;
            sum.named += tally.named;
        }
    }
    line("all", &all);
    let holds = all.flips > 0 && all.wrong == 0 && due.named * 100 >= due.flips * 99;
    let part = due.named as f64 * 100.0 / due.flips.max(1) as f64;
    println!("{} flips, {} wrong; before the last group {part:.1} % noticed and named", all.flips, all.wrong);
    println!("{}", if holds { "OK" } else { "FAILED" });
    holds
}
