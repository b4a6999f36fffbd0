//! `tarn-sim`: simulated histories, many or one.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use clap::{Args, Parser, Subcommand};
use tarn_sim::demand::{HISTORIES_MIN, Tally};
use tarn_sim::flips::Campaign;
use tarn_sim::machine::Bends;
use tarn_sim::story::{Told, tell};

#[derive(Parser)]
#[command(
    name = "tarn-sim",
    about = "Runs the node in a world that a seed decides, crashes it, and compares it with the model"
)]
struct Program {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Runs histories
    Run(Run),
    /// Flips bits of what lies at rest, and reads everything back
    Flips(Flips),
}

#[derive(Args)]
struct Flips {
    /// Flips, in equal parts of all kinds of bytes
    #[arg(long, default_value_t = 60)]
    flips: u64,
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Flips tried at once
    #[arg(long, default_value_t = 2)]
    jobs: u64,
    /// Try this one only, by its number, and print what is said of it
    #[arg(long)]
    only: Option<u64>,
}

#[derive(Args)]
struct Run {
    /// Run this one history
    #[arg(long)]
    seed: Option<u64>,
    /// Print it, one line an event
    #[arg(long, requires = "seed")]
    trace: bool,
    /// Run this many histories; fewer fail. If it is not given: 20, or as many as the budget allows
    #[arg(long, conflicts_with = "seed")]
    seeds: Option<u64>,
    /// The first seed; a fresh one if not given
    #[arg(long, conflicts_with = "seed")]
    start: Option<u64>,
    /// Begin no further history after one that failed
    #[arg(long)]
    first: bool,
    /// Histories run at once
    #[arg(long, default_value_t = 2)]
    jobs: u64,
    /// Begin no further history after so many seconds
    #[arg(long)]
    budget_seconds: Option<u64>,
    /// Keep metadata in SlateDB, over the simulated object store, instead of in its model
    #[arg(long)]
    slate: bool,
    /// Say in the end what was met, and how often
    #[arg(long)]
    coverage: bool,
}

/// Histories, unless told otherwise.
const SEEDS: u64 = 20;
/// Fewer histories than this may miss a cell by chance.
const HISTORIES_SURE: u64 = 1000;
/// How many times the histories it was to run such a run may take.
const LONGER: u64 = 4;

impl Run {
    /// Histories to run at most.
    fn most(&self) -> u64 {
        self.seeds.unwrap_or(if self.budget_seconds.is_some() { u64::MAX / 2 } else { SEEDS })
    }

    fn bends(&self) -> Bends {
        Bends { slate: self.slate, ..Bends::default() }
    }

    /// The command that tells this history again.
    fn replay(&self, seed: u64) -> String {
        format!("cargo x sim --seed {seed}{}", if self.slate { " -- --slate" } else { "" })
    }
}

pub fn main() -> ExitCode {
    let run = match Program::parse().command {
        Command::Run(run) => run,
        Command::Flips(Flips { flips, seed, jobs, only }) => {
            let campaign = Campaign { flips, seed, jobs, only };
            let holds = campaign.run().unwrap_or_else(|problem| {
                println!("FAILED: {problem}");
                false
            });
            return if holds { ExitCode::SUCCESS } else { ExitCode::FAILURE };
        }
    };
    let failed = match run.seed {
        Some(seed) => one(seed, &run),
        None => many(&run),
    };
    if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// Runs one history; true if something is wrong with it.
fn one(seed: u64, run: &Run) -> bool {
    if run.trace {
        let filter = tracing_subscriber::EnvFilter::from_default_env();
        tracing_subscriber::fmt().with_env_filter(filter).without_time().with_target(false).init();
    }
    let told = tell(seed, run.trace, run.bends());
    conclude(&told, run);
    told.failure.is_some()
}

fn conclude(told: &Told, run: &Run) {
    let Told { seed, digest, operations, crashes, failure, .. } = told;
    match failure {
        None => println!("seed {seed}: OK, {operations} operations, {crashes} crashes, digest {digest:016x}"),
        Some(failure) => {
            println!("seed {seed}: FAILED after {operations} operations, {crashes} crashes\n{failure}");
            println!("replay:   {}", run.replay(*seed));
        }
    }
}

/// Runs many histories; true if something is wrong with one of them.
///
/// What a short run has not met may be chance: it goes on to [`LONGER`] times as many histories before that is said. One that
/// looks for a first failure (`--first`) does not: what is caught is caught within the histories it was given.
fn many(run: &Run) -> bool {
    let most = run.most();
    let many = Many::new(run);
    match run.seeds.is_none() && run.budget_seconds.is_some() {
        true => println!("seeds from {} on", many.start),
        false => println!("seeds {} to {}", many.start, many.start.wrapping_add(most).wrapping_sub(1)),
    }
    let by_chance = !run.first && run.seeds.is_some_and(|seeds| seeds < HISTORIES_SURE);
    let mut missing = many.run_to(most);
    for longer in 2..=LONGER {
        if missing.is_empty() || many.has_failed() || !by_chance {
            break;
        }
        missing.iter().for_each(|cell| println!("not yet met: {cell}"));
        missing = many.run_to(most * longer);
    }
    many.conclude(&missing)
}

/// Histories of seeds in a row.
struct Many<'a> {
    run: &'a Run,
    start: u64,
    begun: Instant,
    next: AtomicU64,
    tally: Mutex<Tally>,
    /// Properties that do not hold, by seed.
    failures: Mutex<BTreeMap<u64, String>>,
}

impl<'a> Many<'a> {
    fn new(run: &'a Run) -> Self {
        let start = run.start.unwrap_or_else(fresh);
        Self {
            run,
            start,
            begun: Instant::now(),
            next: AtomicU64::new(0),
            tally: Mutex::default(),
            failures: Mutex::default(),
        }
    }

    /// Runs on to this many histories; answers what they have not met.
    fn run_to(&self, most: u64) -> Vec<String> {
        std::thread::scope(|scope| {
            for _ in 0..self.run.jobs.max(1) {
                scope.spawn(|| while self.tell_next(most) {});
            }
        });
        self.next.store(most, Ordering::Relaxed);
        self.tally.lock().map(|tally| tally.missing(self.run.slate)).unwrap_or_default()
    }

    /// False once there is none to tell.
    fn tell_next(&self, most: u64) -> bool {
        let run = self.run;
        let budget = run.budget_seconds.map(Duration::from_secs);
        if budget.is_some_and(|budget| self.begun.elapsed() >= budget) || (run.first && self.has_failed()) {
            return false;
        }
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        if number >= most {
            return false;
        }
        let told = tell(self.start.wrapping_add(number), false, run.bends());
        if let Ok(mut tally) = self.tally.lock() {
            tally.add(&told);
        }
        if let Some(failure) = &told.failure {
            conclude(&told, run);
            if let Ok(mut failures) = self.failures.lock() {
                failures.insert(told.seed, failure.property.to_owned());
            }
        }
        true
    }

    fn has_failed(&self) -> bool {
        self.failures.lock().is_ok_and(|failures| !failures.is_empty())
    }

    /// Says what there was; true if something is wrong with it.
    fn conclude(self, missing: &[String]) -> bool {
        let run = self.run;
        let seconds = self.begun.elapsed().as_secs_f64();
        let failures = self.failures.into_inner().unwrap_or_default();
        let tally = self.tally.into_inner().unwrap_or_default();
        if run.coverage || tally.histories >= HISTORIES_MIN {
            print!("{}", tally.coverage);
            println!("{}", tally.shares());
        }
        let Tally { histories, operations, crashes, .. } = &tally;
        println!("{histories} histories, {operations} operations, {crashes} crashes in {seconds:.1} s");
        for cell in missing {
            println!("NOT MET: {cell}");
        }
        let wanted = run.seeds.filter(|wanted| histories < wanted && (failures.is_empty() || !run.first));
        if let Some(wanted) = wanted {
            println!("NOT RUN: {histories} of {wanted} seeds, budget used up");
        }
        if failures.is_empty() && missing.is_empty() && wanted.is_none() {
            println!("OK");
            return false;
        }
        for (seed, property) in &failures {
            println!("FAILED: {property}: {}", run.replay(*seed));
        }
        true
    }
}

/// A seed that nobody has tried; small enough to be typed.
fn fresh() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    (since.as_nanos() as u64 / 1000) % 1_000_000_000
}
