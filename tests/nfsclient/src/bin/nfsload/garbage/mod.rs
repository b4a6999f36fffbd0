//! Garbage beside an honest client.
//!
//! - Half of the messages are noise, half are calls of every procedure with valid credentials and handles, mutated.
//!   They come at a fixed rate, over TCP, to the port of NFS, MOUNT and NLM and to that of the port mapper.
//! - A thousand connections beside have begun a message and say no more.
//! - The garbage is sent by a user of its own, who has a directory of its own and knows the honest user's handles.
//! - An honest client meanwhile reads, writes and lists files of its own, one call at a time, and compares every byte.
//! - What must hold: nothing honest is lost or changed; the server's memory grows by at most 64 MiB; the honest client's
//!   slowest hundredth takes at most three times as long as before.

mod calls;
mod half_open;
mod honest;
mod noise;

use crate::{Outcome, Server, random};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use honest::Honest;

#[derive(clap::Args)]
pub struct Arguments {
    #[command(flatten)]
    server: Server,
    /// How long garbage is sent
    #[arg(long, default_value_t = 20)]
    seconds: u64,
    /// Messages of garbage a second, both kinds together
    #[arg(long, default_value_t = 2000)]
    rate: u64,
    /// Connections that have begun a message and say no more
    #[arg(long, default_value_t = 1000)]
    half_open: usize,
    /// How many times as long the honest client's slowest hundredth may take
    #[arg(long, default_value_t = 3.0)]
    slower: f64,
    /// Decides all bytes [default: a fresh one]
    #[arg(long)]
    seed: Option<u64>,
    /// The server's process, whose memory is watched
    #[arg(long)]
    process: u32,
}

/// Bytes by which the server may grow.
const GROWTH_MAX: u64 = 64 << 20;
/// Threads that send garbage, each over connections of its own.
const SENDERS: u64 = 4;

/// What the threads share.
pub struct Shared {
    pub end: AtomicBool,
    pub noise: AtomicU64,
    pub mutants: AtomicU64,
    pub replies: AtomicU64,
    /// Connections that the server cut off, and that were made again.
    pub cut: AtomicU64,
}

static SHARED: Shared = Shared {
    end: AtomicBool::new(false),
    noise: AtomicU64::new(0),
    mutants: AtomicU64::new(0),
    replies: AtomicU64::new(0),
    cut: AtomicU64::new(0),
};

pub fn run(arguments: &Arguments) -> Outcome<String> {
    let seed = arguments.seed.unwrap_or_else(random::seed);
    println!("seed {seed}");
    let mut honest = Honest::begin(&arguments.server, seed)?;
    let targets = calls::Targets::make(&arguments.server, &honest)?;
    // A measure of the same length as the short form's garbage; caches are warm before.
    honest.work(Duration::from_secs(5))?;
    let before = honest.work(Duration::from_secs(arguments.seconds.clamp(10, 60)))?;
    let resting = memory(arguments.process)?;
    println!("before: {before}, {} MiB resident", resting >> 20);
    let (during, most) = with_garbage(arguments, &mut honest, &targets, seed)?;
    println!("during: {during}, at most {} MiB resident", most >> 20);
    honest.verify()?;
    let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    let growth = most.saturating_sub(resting);
    let slower = during.p99.as_secs_f64() / before.p99.as_secs_f64();
    let said = format!(
        "{} noise, {} mutated calls, {} replies, {} connections cut; {} honest calls, every byte right; \
         memory grew by {} MiB (at most 64); honest p99 {:.2} ms, {slower:.2} times that before (at most {}); seed {seed}",
        count(&SHARED.noise),
        count(&SHARED.mutants),
        count(&SHARED.replies),
        count(&SHARED.cut),
        during.calls,
        growth >> 20,
        during.p99.as_secs_f64() * 1000.0,
        arguments.slower,
    );
    if growth > GROWTH_MAX || slower > arguments.slower { Err(said) } else { Ok(said) }
}

/// The honest client's work while garbage is sent, and the most memory that the server had.
fn with_garbage(
    arguments: &Arguments,
    honest: &mut Honest,
    targets: &calls::Targets,
    seed: u64,
) -> Outcome<(honest::Measured, u64)> {
    let address = arguments.server.address;
    std::thread::scope(|scope| {
        let rate = arguments.rate / SENDERS;
        for number in 0..SENDERS {
            scope.spawn(move || noise::send(address, targets, seed ^ ((number + 1) << 32), rate));
        }
        scope.spawn(|| half_open::hold(address, arguments.half_open, seed));
        let most = scope.spawn(|| watch(arguments.process));
        let began = Instant::now();
        let measured = honest.work(Duration::from_secs(arguments.seconds));
        SHARED.end.store(true, Ordering::Relaxed);
        println!("garbage for {:.0} s", began.elapsed().as_secs_f64());
        let most = most.join().map_err(|_| "the watch on memory panicked".to_owned())??;
        Ok((measured?, most))
    })
}

/// The most that the server's memory came to until the end.
fn watch(process: u32) -> Outcome<u64> {
    let mut most = 0;
    while !SHARED.end.load(Ordering::Relaxed) {
        most = most.max(memory(process)?);
        std::thread::sleep(Duration::from_millis(200));
    }
    Ok(most)
}

/// Bytes of the server that are resident.
fn memory(process: u32) -> Outcome<u64> {
    let path = format!("/proc/{process}/status");
    let text = std::fs::read_to_string(&path).map_err(|error| format!("{path}: {error}"))?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok());
    kib.map(|kib| kib << 10).ok_or_else(|| format!("{path} does not tell the server's memory"))
}
