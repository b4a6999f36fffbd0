//! The server killed with SIGKILL under load, again and again.
//!
//! - Two raw clients change without pause; after each restart each finishes the call it was in, compares its whole
//!   directory with what was acknowledged, and goes on. Nobody mounts again.
//! - A kernel client's journal, if there is one, is held against the server at the same moment; the next kill waits
//!   until the kernel client has gone on, for it takes its time to connect again.
//! - At the end the server is stopped properly, started once more, and everything is compared again.
//! - Without `--group` this is a crash of the process: the page cache survives it. With it the command runs the server in a
//!   guest, and the whole guest is killed: what was not flushed is lost, as in a power cut.

use crate::history::History;
use crate::journal::Journal;
use crate::random::Random;
use crate::{Outcome, Server, random};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

#[derive(clap::Args)]
pub struct Arguments {
    #[command(flatten)]
    server: Server,
    #[arg(long, default_value_t = 5)]
    times: u64,
    /// Decides the changes and the moments [default: a fresh one]
    #[arg(long)]
    seed: Option<u64>,
    /// The journal of a kernel client
    #[arg(long)]
    journal: Option<PathBuf>,
    /// What is run once the server is first up, such as setting export rules
    #[arg(long)]
    prepare: Option<String>,
    /// A file that names the process group to kill, if that is not the command's own process: a guest's
    #[arg(long)]
    group: Option<PathBuf>,
    /// A file that is made to ask for a proper stop, instead of SIGTERM to the command
    #[arg(long)]
    stop: Option<PathBuf>,
    /// Where the server's output goes
    #[arg(long, default_value = "/dev/null")]
    log: PathBuf,
    /// The server's command line
    #[arg(last = true, required = true)]
    command: Vec<String>,
}

const CLIENTS: u32 = 2;
/// Changes, and a comparison, before the first kill: what is wrong without one is not the crash's fault.
const STEPS_BEFORE: u32 = 400;
/// How long a restart, and a comparison, may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// What clients and the killer say to each other.
#[derive(Default)]
struct Shared {
    /// Restarts so far: a client compares once for each.
    restarts: AtomicU64,
    verified: [AtomicU64; CLIENTS as usize],
    begun: [AtomicBool; CLIENTS as usize],
    end: AtomicBool,
}

struct Running {
    child: Child,
    group: Option<PathBuf>,
}

impl Drop for Running {
    fn drop(&mut self) {
        let group = self.group.as_ref().and_then(|file| std::fs::read_to_string(file).ok());
        match group {
            // Whoever started the guest sees that it is gone, cleans up and ends.
            Some(group) => drop(Command::new("kill").args(["-9", "--", &format!("-{}", group.trim())]).status()),
            None => drop(self.child.kill()),
        }
        let _ = self.child.wait();
    }
}

pub fn run(arguments: &Arguments) -> Outcome<String> {
    let seed = arguments.seed.unwrap_or_else(random::seed);
    println!("seed {seed}");
    let mut running = start(arguments)?;
    if let Some(prepare) = &arguments.prepare {
        let status = Command::new("sh").args(["-c", prepare]).status().map_err(|error| error.to_string())?;
        if !status.success() {
            return Err(format!("{prepare}: {status}"));
        }
    }
    let shared: &'static Shared = Box::leak(Box::default());
    let clients =
        (0..CLIENTS).map(|number| client(&arguments.server, number, seed, shared)).collect::<Outcome<Vec<_>>>()?;
    until(&clients, || shared.begun.iter().all(|begun| begun.load(Ordering::SeqCst)))?;
    let mut random = Random::new(seed ^ 0xdead);
    for round in 1..=arguments.times {
        std::thread::sleep(Duration::from_millis(200 + random.below(800)));
        // Dropped: killed with SIGKILL and waited for.
        drop(running);
        running = start(arguments).map_err(|problem| format!("restart {round}: {problem}"))?;
        settled(shared, round, &clients).map_err(|problem| format!("kill {round}: {problem}"))?;
        let lines = journal(arguments)?;
        goes_on(arguments).map_err(|problem| format!("kill {round}: {problem}"))?;
        println!("kill {round}: everything acknowledged is there{lines}");
    }
    shared.end.store(true, Ordering::SeqCst);
    let histories = clients.into_iter().map(join).collect::<Outcome<Vec<_>>>()?;
    terminate(arguments, &mut running)?;
    drop(running);
    let _running = start(arguments)?;
    last(arguments, histories, seed)
}

/// After a proper stop and one more start.
fn last(arguments: &Arguments, mut histories: Vec<History>, seed: u64) -> Outcome<String> {
    for history in &mut histories {
        history.verify().map_err(|problem| format!("after a proper stop: {problem}"))?;
    }
    let lines = journal(arguments)?;
    let sum = |count: fn(&History) -> u64| histories.iter().map(count).sum::<u64>();
    Ok(format!(
        "{} kills, {} acknowledged changes by raw clients all there ({} calls repeated, {} unstable writes sent again){lines}, seed {seed}",
        arguments.times,
        sum(|history| history.acknowledged),
        sum(History::repeated),
        sum(|history| history.rewritten),
    ))
}

fn client(server: &Server, number: u32, seed: u64, shared: &'static Shared) -> Outcome<JoinHandle<Outcome<History>>> {
    let history = History::begin(server, number, seed)?;
    Ok(std::thread::spawn(move || {
        live(history, number, shared).inspect_err(|problem| eprintln!("client {number}: {problem}"))
    }))
}

fn live(mut history: History, number: u32, shared: &Shared) -> Outcome<History> {
    let verified = &shared.verified[number as usize];
    for _ in 0..STEPS_BEFORE {
        history.step()?;
    }
    history.verify().map_err(|problem| format!("before any kill: {problem}"))?;
    shared.begun[number as usize].store(true, Ordering::SeqCst);
    while !shared.end.load(Ordering::SeqCst) {
        let restarts = shared.restarts.load(Ordering::SeqCst);
        if verified.load(Ordering::SeqCst) < restarts {
            history.verify().map_err(|problem| format!("after kill {restarts}: {problem}"))?;
            verified.store(restarts, Ordering::SeqCst);
        }
        history.step()?;
    }
    Ok(history)
}

/// Waits until every client has compared after this restart.
fn settled(shared: &Shared, round: u64, clients: &[JoinHandle<Outcome<History>>]) -> Outcome<()> {
    shared.restarts.store(round, Ordering::SeqCst);
    until(clients, || shared.verified.iter().all(|verified| verified.load(Ordering::SeqCst) >= round))
}

fn until(clients: &[JoinHandle<Outcome<History>>], done: impl Fn() -> bool) -> Outcome<()> {
    let started = Instant::now();
    while !done() {
        if clients.iter().any(JoinHandle::is_finished) {
            return Err("a client gave up; its reason is above".to_owned());
        }
        if started.elapsed() > PATIENCE {
            return Err("the clients do not carry on".to_owned());
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

fn join(client: JoinHandle<Outcome<History>>) -> Outcome<History> {
    client.join().map_err(|_| "a client panicked".to_owned())?
}

fn journal(arguments: &Arguments) -> Outcome<String> {
    let Some(path) = &arguments.journal else { return Ok(String::new()) };
    let journal = Journal::read(path)?;
    journal.verify(&arguments.server).map_err(|problem| format!("kernel client: {problem}"))?;
    Ok(format!(", {} by the kernel client", journal.lines))
}

/// The kernel client has acknowledged something more.
fn goes_on(arguments: &Arguments) -> Outcome<()> {
    let Some(path) = &arguments.journal else { return Ok(()) };
    let (before, started) = (Journal::read(path)?.lines, Instant::now());
    while Journal::read(path)?.lines == before {
        if started.elapsed() > PATIENCE {
            return Err("the kernel client does not carry on".to_owned());
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}

/// Starts the server and waits until it takes connections.
fn start(arguments: &Arguments) -> Outcome<Running> {
    if let Some(file) = &arguments.group {
        // The last guest's: its number may be somebody else's by now.
        let _ = std::fs::remove_file(file);
    }
    if let Some(file) = &arguments.stop {
        let _ = std::fs::remove_file(file);
    }
    let log = std::fs::OpenOptions::new().create(true).append(true).open(&arguments.log);
    let log = log.map_err(|error| format!("{}: {error}", arguments.log.display()))?;
    let errors = log.try_clone().map_err(|error| error.to_string())?;
    let child = Command::new(&arguments.command[0])
        .args(&arguments.command[1..])
        .stdin(Stdio::null())
        .stdout(log)
        .stderr(errors)
        .spawn()
        .map_err(|error| format!("{}: {error}", arguments.command[0]))?;
    let mut running = Running { child, group: arguments.group.clone() };
    let started = Instant::now();
    while TcpStream::connect_timeout(&arguments.server.address, Duration::from_secs(1)).is_err() {
        if let Ok(Some(status)) = running.child.try_wait() {
            return Err(format!("the server ended instead of serving: {status}"));
        }
        if started.elapsed() > PATIENCE {
            return Err(format!("the server does not listen after {} s", PATIENCE.as_secs()));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(running)
}

fn terminate(arguments: &Arguments, running: &mut Running) -> Outcome<()> {
    let process = running.child.id().to_string();
    match &arguments.stop {
        Some(file) => std::fs::write(file, "").map_err(|error| format!("{}: {error}", file.display()))?,
        None => drop(Command::new("kill").args(["-TERM", &process]).status()),
    }
    let started = Instant::now();
    while started.elapsed() < PATIENCE {
        if let Ok(Some(status)) = running.child.try_wait() {
            // What may have been a guest's group is somebody else's number now.
            running.group = None;
            return if status.success() { Ok(()) } else { Err(format!("a proper stop ended with {status}")) };
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    Err("the server does not end when asked to".to_owned())
}
