//! A campaign: every target gets its executions, or its share of the time.
//!
//! - A target ends with its first finding; the others go on.
//! - A watchdog ends the program when an execution does not end: such a thread cannot be stopped.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Write;
use std::sync::Mutex;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::chance::Chance;
use crate::hex::hex;
use crate::judge::{Fault, judge, shrink};
use crate::memory;
use crate::mutate;
use crate::seeds;
use crate::targets::Target;

/// Longer inputs are named by their number only.
const HEX_MAX: usize = 4096;

/// When a target has had enough. `None` is no limit; one of them is set.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    pub executions: Option<u64>,
    pub time: Option<Duration>,
    /// An execution that takes longer will never end.
    pub hang: Duration,
}

/// What a thread does at present: the watchdog's view.
#[derive(Default)]
struct Slot {
    /// Index of the target and 1; 0 while idle.
    target: AtomicUsize,
    number: AtomicU64,
}

struct Campaign {
    targets: Vec<Target>,
    seed: u64,
    slots: Vec<Slot>,
    next: AtomicUsize,
    findings: Mutex<usize>,
    /// Gets every result line too.
    log: Option<File>,
}

impl Campaign {
    fn say(&self, line: &str) {
        println!("{line}");
        if let Some(mut log) = self.log.as_ref() {
            // It is there to be looked at later; the line has been said.
            let _ = writeln!(log, "{line}");
        }
    }
}

static CAMPAIGN: OnceLock<Campaign> = OnceLock::new();

thread_local! {
    static MINE: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// The input of execution `number` for `target`.
pub fn input(target: &Target, seeds: &[Vec<u8>], seed: u64, number: u64, out: &mut Vec<u8>) {
    let mut chance = Chance::new(seed, number);
    mutate::input(&mut chance, seeds, target.words, out);
    if let Some(mend) = target.mend
        && chance.below(4) != 0
    {
        mend(out);
    }
}

/// Runs all `targets`, `jobs` at a time; gives the number of findings.
pub fn run(targets: Vec<Target>, seed: u64, limits: Limits, jobs: usize, log: Option<File>) -> usize {
    let slots = (0..jobs).map(|_| Slot::default()).collect();
    let campaign = Campaign { targets, seed, slots, next: AtomicUsize::new(0), findings: Mutex::new(0), log };
    let campaign = CAMPAIGN.get_or_init(|| campaign);
    memory::on_absurd(absurd);
    std::thread::spawn(move || watch(campaign, limits.hang));
    std::thread::scope(|scope| {
        for job in 0..jobs {
            scope.spawn(move || {
                MINE.set(job);
                while let Some(target) = campaign.targets.get(campaign.next.fetch_add(1, Ordering::Relaxed)) {
                    one(campaign, job, target, limits);
                }
                campaign.slots[job].target.store(0, Ordering::Relaxed);
            });
        }
    });
    *campaign.findings.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// One target, and its result line.
fn one(campaign: &Campaign, job: usize, target: &Target, limits: Limits) {
    let (mut seeds, committed) = ((target.seeds)(), seeds::committed(target.name));
    let slot = &campaign.slots[job];
    let index = campaign.targets.iter().position(|other| other.name == target.name).unwrap_or_default();
    slot.target.store(index + 1, Ordering::Relaxed);
    // What overflows its stack takes the program with it: the targets that have begun and not ended are known then.
    println!("fuzz {:<20} begins", target.name);
    if let Some(problem) = stale(target, &seeds) {
        return tell(campaign, target, &problem);
    }
    for input in &committed {
        if let Err(fault) = judge(target, input) {
            return tell(campaign, target, &format!("{fault}\n  with the committed seed {}", hex(input)));
        }
    }
    seeds.extend(committed);
    let started = Instant::now();
    let (mut done, mut accepted, mut bytes) = (0u64, 0u64, Vec::new());
    while limits.executions.is_none_or(|most| done < most) && limits.time.is_none_or(|most| started.elapsed() < most) {
        slot.number.store(done, Ordering::Relaxed);
        input(target, &seeds, campaign.seed, done, &mut bytes);
        match judge(target, &bytes) {
            Ok(valid) => accepted += u64::from(valid),
            Err(fault) => return tell(campaign, target, &finding(target, campaign.seed, done, &bytes, &fault)),
        }
        done += 1;
    }
    let seconds = started.elapsed().as_secs_f64();
    campaign.say(&format!(
        "fuzz {:<20} ok     {done:>9} executions {:>5.1} % accepted {seconds:>6.1} s {:>8.0} ns each",
        target.name,
        accepted as f64 * 100.0 / done.max(1) as f64,
        seconds * 1e9 / done.max(1) as f64,
    ));
}

/// The targets that a log says have passed with `executions` or more.
pub fn passed(log: &str, executions: u64) -> BTreeSet<&str> {
    let name = |line| match str::split_whitespace(line).collect::<Vec<_>>()[..] {
        ["fuzz", name, "ok", count, "executions", ..] => {
            count.parse::<u64>().is_ok_and(|count| count >= executions).then_some(name)
        }
        _ => None,
    };
    log.lines().filter_map(name).collect()
}

/// Seeds must be valid: a target whose seeds are refused tests nothing.
fn stale(target: &Target, seeds: &[Vec<u8>]) -> Option<String> {
    if seeds.is_empty() {
        return Some("has no seeds".to_owned());
    }
    seeds.iter().enumerate().find_map(|(at, seed)| match judge(target, seed) {
        Ok(true) => None,
        Ok(false) => Some(format!("refuses its own seed {at}: {}", hex(seed))),
        Err(fault) => Some(format!("seed {at}, {}, {fault}", hex(seed))),
    })
}

fn tell(campaign: &Campaign, target: &Target, problem: &str) {
    campaign.say(&format!("fuzz {:<20} FAILED {problem}", target.name));
    *campaign.findings.lock().unwrap_or_else(std::sync::PoisonError::into_inner) += 1;
}

fn finding(target: &Target, seed: u64, number: u64, input: &[u8], fault: &Fault) -> String {
    let (name, shortest) = (target.name, shrink(target, input, fault));
    let mut out = format!("{fault}\n  replay: tarn-fuzz --target {name} --seed {seed} --execution {number}");
    if shortest.len() <= HEX_MAX {
        out += &format!("\n  shortest: tarn-fuzz --target {name} --seed {seed} --input {}", hex(&shortest));
    }
    out
}

/// Ends the program if an execution does not end.
fn watch(campaign: &Campaign, hang: Duration) {
    let mut before = vec![((0, 0), Instant::now()); campaign.slots.len()];
    loop {
        std::thread::sleep(Duration::from_secs(1));
        for (slot, (seen, since)) in campaign.slots.iter().zip(&mut before) {
            let now = (slot.target.load(Ordering::Relaxed), slot.number.load(Ordering::Relaxed));
            if now != *seen || now.0 == 0 {
                (*seen, *since) = (now, Instant::now());
            } else if since.elapsed() > hang {
                name(campaign, slot, &format!("has not ended after {} s", hang.as_secs()));
                std::process::exit(1);
            }
        }
    }
}

fn absurd(bytes: usize) {
    match CAMPAIGN.get() {
        Some(campaign) => name(campaign, &campaign.slots[MINE.get()], &format!("asks for {bytes} bytes")),
        None => println!("FAILED asks for {bytes} bytes"),
    }
}

/// Names an execution that will not come back to name itself.
fn name(campaign: &Campaign, slot: &Slot, problem: &str) {
    let target = slot.target.load(Ordering::Relaxed).checked_sub(1).and_then(|index| campaign.targets.get(index));
    let (Some(target), number) = (target, slot.number.load(Ordering::Relaxed)) else { return };
    let (seed, name) = (campaign.seed, target.name);
    campaign.say(&format!(
        "fuzz {name:<20} FAILED {problem}\n  replay: tarn-fuzz --target {name} --seed {seed} --execution {number}"
    ));
    let mut bytes = Vec::new();
    input(target, &seeds::bases(target), seed, number, &mut bytes);
    if bytes.len() <= HEX_MAX {
        println!("  input: tarn-fuzz --target {name} --seed {seed} --input {}", hex(&bytes));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_target_takes_its_own_seeds_and_survives_a_thousand_inputs() {
        crate::judge::catch_panics();
        for target in crate::targets::all() {
            assert_eq!(stale(&target, &(target.seeds)()), None, "{}", target.name);
            let seeds = seeds::bases(&target);
            let mut bytes = Vec::new();
            for number in 0..1000 {
                input(&target, &seeds, 1, number, &mut bytes);
                if let Err(fault) = judge(&target, &bytes) {
                    panic!("{}", finding(&target, 1, number, &bytes, &fault));
                }
            }
        }
    }

    #[test]
    fn what_passed_is_read_from_a_log() {
        let log = "fuzz config    ok     500 executions  10 % accepted\nfuzz xdr FAILED 500 executions\n\
                   fuzz key-hint  ok     499 executions\n";
        assert_eq!(passed(log, 500).into_iter().collect::<Vec<_>>(), ["config"]);
    }

    #[test]
    fn a_stale_seed_is_a_finding() {
        let target = Target { name: "test", judge: |_| false, seeds: || vec![vec![1]], mend: None, words: &[] };
        assert_eq!(stale(&target, &(target.seeds)()).as_deref(), Some("refuses its own seed 0: 01"));
        assert!(stale(&target, &[]).is_some());
    }
}
