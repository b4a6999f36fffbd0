//! `tarn-bench`: measures NFSv3 servers beside each other.

use clap::{Args, Parser, Subcommand};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;
use tarn_bench::compare::{Rounds, Shape, compare};
use tarn_bench::fairness::{self, Beside, Seen, Stand};
use tarn_bench::figures::Around;
use tarn_bench::load::{Operation, Site, not_negative, positive, shape};
use tarn_bench::measure::cpu::Ticks;
use tarn_bench::measure::{RealTime, cpu, disk, machine, pauses, sleeper};
use tarn_bench::scale;
use tarn_bench::servers::{Place, Server, ganesha, left, null, space, tarn};
use tarn_bench::target::Target;
use tarn_bench::{Outcome, figures, report};

/// Where a Tarn that is started answers.
const TARN_PORT: u16 = 21049;

#[derive(Parser)]
#[command(name = "tarn-bench", about = "Measures NFSv3 servers beside each other")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Repeat calls in a closed loop at one or several servers, in turns
    Meta(Meta),
    /// Run a workload: a documented load at one or several targets, each answer checked
    Run(tarn_bench::workload::cli::Arguments),
    /// Wait for a controller (`run --agent`) and make a part of its load
    Agent(tarn_bench::workload::agent::serve::Arguments),
    /// Measure the generator: the same loads by fio, in turns; fails where latencies differ
    AgainstFio(tarn_bench::against_fio::Arguments),
    /// Measure what the systems that Tarn follows claim, Tarn over two stores and NFS-Ganesha in turns
    Claims(tarn_bench::claims::Arguments),
    /// Forecast what a load needs - cores, memory, log, nodes, money - from measured figures
    Size(tarn_bench::size::Arguments),
    /// Relay to a server and bend what passes: a run must find it out
    Bend {
        #[arg(long)]
        listen: SocketAddr,
        #[arg(long)]
        to: SocketAddr,
        #[arg(long)]
        fault: tarn_bench::bend::Fault,
        #[arg(long, default_value_t = 1000)]
        one_in: u64,
    },
    /// Serve canned answers: the floor beside every figure
    NullServer {
        #[arg(long, default_value = "127.0.0.1:20490")]
        listen: SocketAddr,
        /// Write what must be durable to this file, with group commit
        #[arg(long, value_name = "FILE")]
        wal: Option<PathBuf>,
    },
    /// Start the servers and hold them until Enter is pressed
    Hold(Servers),
    /// Measure what a greedy client and background work leave of others' latency; fails beyond the limits
    Fairness {
        #[command(flatten)]
        servers: Servers,
        /// What goes on beside the probes
        #[arg(long, value_delimiter = ',')]
        beside: Vec<Beside>,
        /// Of each row; collection has at least 30
        #[arg(long, default_value = "15", value_parser = positive)]
        seconds: f64,
        /// The 99th percentile of the calls of all of them is judged, row by row
        #[arg(long, default_value_t = 5)]
        rounds: usize,
    },
    /// Measure what Tarn's speed is judged from, beside NFS-Ganesha and the null server
    StartFigures {
        #[command(flatten)]
        servers: Servers,
        #[command(flatten)]
        how: How,
        /// The document that the table is written into, between its markers
        #[arg(long, value_name = "FILE")]
        document: Option<PathBuf>,
    },
    #[command(flatten)]
    Scale(scale::Command),
}

#[derive(Args)]
struct Meta {
    /// A server that runs: nfs://HOST:PORT/PATH[?mountport=N], or NAME=nfs://...; the first is what others are held
    /// against
    #[arg(long)]
    target: Vec<String>,
    /// The process of each target, in order [default: whoever listens at its port on this machine]
    #[arg(long)]
    server_pid: Vec<u32>,
    #[arg(long, value_delimiter = ',', default_value = "getattr")]
    operation: Vec<Operation>,
    /// Connections x calls in flight on each
    #[arg(long, value_delimiter = ',', default_value = "8x16", value_parser = shape)]
    shape: Vec<(usize, usize)>,
    /// An open loop of so many calls a second over all connections, instead of the closed one
    #[arg(long, value_delimiter = ',', value_parser = positive)]
    pace: Vec<f64>,
    #[command(flatten)]
    servers: Servers,
    #[command(flatten)]
    how: How,
    #[arg(long)]
    json: bool,
}

/// Servers to start.
#[derive(Args, Clone)]
struct Servers {
    /// Start Tarn from this binary
    #[arg(long, value_name = "BINARY")]
    tarn: Option<PathBuf>,
    /// Start NFS-Ganesha (root; in a network of its own)
    #[arg(long, value_delimiter = ',')]
    ganesha: Vec<ganesha::Variant>,
    /// Start the null server
    #[arg(long)]
    null: bool,
    /// Start the null server with a log
    #[arg(long)]
    null_wal: bool,
    /// The core of servers that are started
    #[arg(long, value_name = "CORE")]
    pin_server: Option<usize>,
    /// The core of the generator
    #[arg(long, value_name = "CORE")]
    pin_client: Option<usize>,
    /// Memory that each server may use, in a control group of its own, MiB; 0: no group
    #[arg(long, value_name = "MIB", default_value_t = 8192)]
    memory: u64,
    /// Where a directory for the servers' files is made, and removed at the end: a disk, not memory
    #[arg(long, default_value = "/var/tmp")]
    directory: PathBuf,
}

#[derive(Args, Clone, Copy)]
struct How {
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    #[arg(long, default_value = "1", value_parser = positive)]
    seconds: f64,
    #[arg(long, default_value = "0.3", value_parser = not_negative)]
    warm_up: f64,
    /// What a round of 1 MiB writes moves
    #[arg(long, default_value_t = 512)]
    write_mib: u64,
}

impl How {
    fn rounds(self) -> Rounds {
        Rounds {
            count: self.rounds.max(1),
            warm_up: Duration::from_secs_f64(self.warm_up.clamp(0.0, 3600.0)),
            length: Duration::from_secs_f64(self.seconds.clamp(0.01, 3600.0)),
            bytes: self.write_mib << 20,
        }
    }
}

/// The servers that run, and the directory that goes with them. They end first.
struct Running {
    servers: Vec<Server>,
    directory: Option<PathBuf>,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.servers.clear();
        if let Some(directory) = &self.directory {
            let _ = std::fs::remove_dir_all(directory);
        }
    }
}

impl Running {
    fn targets(&self) -> impl Iterator<Item = Target> {
        self.servers.iter().filter_map(|server| server.target.clone())
    }

    fn directory(&self) -> &Path {
        self.directory.as_deref().unwrap_or(Path::new("."))
    }
}

impl Servers {
    /// Goes on in a network of their own, if they are all that is measured.
    fn enter(&self) -> Outcome<()> {
        if self.ganesha.is_empty() { space::enter_network() } else { space::enter() }
    }

    /// Starts what was asked for; Tarn first.
    fn start(&self) -> Outcome<Running> {
        if !self.ganesha.is_empty() {
            space::enter()?;
        }
        let directory = self.directory.join(format!("tarn-bench-{}", std::process::id()));
        std::fs::create_dir(&directory).map_err(|error| format!("{}: {error}", directory.display()))?;
        left::note(&directory);
        let place = Place { directory: directory.clone(), core: self.pin_server, memory: self.memory << 20 };
        let mut running = Running { servers: Vec::new(), directory: Some(directory) };
        if let Some(binary) = &self.tarn {
            running.servers.push(tarn::start(&place, binary, TARN_PORT)?);
        }
        if !self.ganesha.is_empty() {
            running.servers.push(ganesha::port_mapper(&place)?);
        }
        for variant in &self.ganesha {
            let port = 22049 + 10 * *variant as u16;
            running.servers.push(ganesha::start(&place, *variant, port)?);
        }
        if self.null {
            running.servers.push(null::start(&place, 23049, false)?);
        }
        if self.null_wal {
            running.servers.push(null::start(&place, 23059, true)?);
        }
        if let Some(core) = self.pin_client {
            cpu::pin(core)?;
        }
        Ok(running)
    }
}

/// Makes a directory to work in at each; where one fails, the others are taken away.
fn prepare(targets: impl IntoIterator<Item = Target>) -> Outcome<Vec<Site>> {
    let mut sites = Vec::new();
    for target in targets {
        match Site::prepare(target) {
            Ok(site) => sites.push(site),
            Err(error) => {
                let _ = clean(sites);
                return Err(error);
            }
        }
    }
    Ok(sites)
}

/// Takes the sites' directories away, whatever came of the measurement.
fn clean(sites: Vec<Site>) -> Outcome<()> {
    sites.into_iter().try_for_each(Site::remove)
}

fn meta(arguments: &Meta) -> Outcome<()> {
    if arguments.target.is_empty() {
        arguments.servers.enter()?;
    }
    let running = arguments.servers.start()?;
    let mut targets: Vec<Target> = running.targets().collect();
    for (index, text) in arguments.target.iter().enumerate() {
        let mut target = Target::parse(text)?;
        target.pid = arguments.server_pid.get(index).copied().or_else(|| cpu::listener(target.address));
        target.core = arguments.servers.pin_server;
        targets.insert(index, target);
    }
    if targets.is_empty() {
        return Err("nothing to measure: give --target, --tarn, --ganesha, --null or --null-wal".to_owned());
    }
    let mut sites = prepare(targets)?;
    let measured = meta_rows(arguments, &mut sites);
    let durable = sites.iter().map(|site| format!("{}: durable: {}\n", site.target.name, site.target.durability));
    let how = format!("{} {}; load average {:.2}", RealTime::words(), machine::tcp(), machine::load_average());
    let words = durable.collect::<String>() + &how;
    // A program reads the output, a person the rest.
    if arguments.json {
        eprintln!("{words}")
    } else {
        println!("{words}")
    }
    measured.and(clean(sites))
}

fn meta_rows(arguments: &Meta, sites: &mut [Site]) -> Outcome<()> {
    let mut rows = Vec::new();
    let all_count = sites.len();
    for operation in &arguments.operation {
        for (connections, depth) in &arguments.shape {
            let shape = Shape::closed((*operation, *connections, *depth));
            let mut all: Vec<&mut Site> = sites.iter_mut().collect();
            let rounds = arguments.how.rounds();
            if arguments.pace.is_empty() {
                rows.extend(compare(&mut all, shape, rounds, None)?);
            }
            for pace in &arguments.pace {
                rows.extend(compare(&mut all, shape, rounds, Some(&vec![*pace; all_count]))?);
            }
        }
    }
    println!("{}", if arguments.json { report::json(&rows) } else { report::table(&rows) });
    Ok(())
}

/// The document with the table in it. Asked before a measurement too: what cannot be written afterwards is told then.
fn document(path: &Path, text: &str) -> Outcome<String> {
    let failed = |error| format!("{}: {error}", path.display());
    let old = std::fs::read_to_string(path).map_err(failed)?;
    std::fs::OpenOptions::new().write(true).open(path).map_err(failed)?;
    report::replace(&old, text)
}

fn start_figures(servers: &Servers, how: How, into: Option<&Path>) -> Outcome<()> {
    into.map(|path| document(path, "")).transpose()?;
    servers.enter()?;
    let (before, ticks) = (machine::load_average(), Ticks::now());
    let cores: Vec<usize> = servers.pin_server.into_iter().chain(servers.pin_client).collect();
    let told_of_cores = sleeper::words(&cores)? + &pauses::words(&cores)?;
    let running = servers.start()?;
    let disk = disk::measure(running.directory())?;
    let mut sites = prepare(running.targets())?;
    let ceiling = figures::ceiling(&mut sites, how.rounds())?;
    if let Some(rate) = ceiling.filter(|rate| *rate < figures::CEILING_MIN) {
        eprintln!("the generator makes {rate:.0} GETATTR/s, {:.0} are needed", figures::CEILING_MIN);
    }
    let measured = figures::measure(&mut sites, how.rounds(), &mut |rows| println!("{}", report::table(rows)));
    let around = Around {
        loads: (before, machine::load_average()),
        stolen: Ticks::now().stolen_since(&ticks),
        cores: told_of_cores,
    };
    let text = measured.map(|rows| figures::text(&sites, how.rounds(), (&disk, ceiling), &around, &rows));
    let text = match (text, clean(sites)) {
        // What ended the measurement comes first: what it left half made may not be removable.
        (Err(error), Err(left)) => return Err(format!("{error}; then {left}")),
        (text, cleaned) => cleaned.and(text)?,
    };
    println!("{text}");
    let Some(path) = into else { return Ok(()) };
    std::fs::write(path, document(path, &text)?).map_err(|error| format!("{}: {error}", path.display()))
}

fn fair(servers: &Servers, beside: &[Beside], seconds: f64, rounds: usize) -> Outcome<()> {
    let binary = servers.tarn.as_deref().ok_or("which Tarn? give --tarn BINARY")?;
    servers.enter()?;
    let running = Servers { tarn: None, ..servers.clone() }.start()?;
    let beside = if beside.is_empty() { &Beside::ALL } else { beside };
    let length = Duration::from_secs_f64(seconds.clamp(1.0, 3600.0));
    println!("{}", fairness::report::head());
    let mut measured = Vec::new();
    for round in 0..rounds.max(1) {
        // What streams overwrote stays in a store for its hold time: each round has one of its own.
        let directory = running.directory().join(format!("round-{round}"));
        std::fs::create_dir(&directory).map_err(|error| format!("{}: {error}", directory.display()))?;
        let place = Place { directory, core: servers.pin_server, memory: servers.memory << 20 };
        measured.extend(fair_round(place, binary, beside, length)?);
    }
    let (text, within) = fairness::report::whole(&measured);
    println!("{text}{}; load average {:.2}", machine::tcp(), machine::load_average());
    let most = (fairness::GETATTR_P99_MAX.as_millis(), fairness::WRITE_P99_MAX.as_millis());
    if within {
        Ok(())
    } else {
        Err(format!("not every row has GETATTR within {} ms, FILE_SYNC within {} ms and its work done", most.0, most.1))
    }
}

fn fair_round(place: Place, binary: &Path, beside: &[Beside], length: Duration) -> Outcome<Vec<Seen>> {
    let directory = place.directory.clone();
    let mut stand = Stand::start(place, binary, TARN_PORT)?;
    let rows = beside
        .iter()
        .map(|beside| stand.measure(*beside, length).inspect(|seen| println!("{}", fairness::report::line(seen))));
    let measured = rows.collect::<Outcome<Vec<Seen>>>();
    stand.end();
    let removed = std::fs::remove_dir_all(&directory);
    let measured = measured?;
    removed.map_err(|error| format!("{}: {error}", directory.display()))?;
    Ok(measured)
}

fn hold(servers: &Servers) -> Outcome<()> {
    let running = servers.start()?;
    for target in running.targets() {
        let Target { name, address, mount, export, pid, .. } = target;
        println!("{name}=nfs://{address}{export}?mountport={} (process {})", mount.port(), pid.unwrap_or(0));
    }
    println!("enter their network with: nsenter --net --target {}", std::process::id());
    println!("press Enter to end them");
    std::io::stdin().read_line(&mut String::new()).map_err(|error| error.to_string())?;
    Ok(())
}

fn main() -> ExitCode {
    let command = Arguments::parse().command;
    // Workloads end their load by a signal, and what they started with it.
    if matches!(
        command,
        Command::Meta(_)
            | Command::Hold(_)
            | Command::Fairness { .. }
            | Command::StartFigures { .. }
            | Command::Scale(_)
    ) && let Err(error) = left::watch()
    {
        eprintln!("tarn-bench: {error}");
        return ExitCode::FAILURE;
    }
    let ended = match command {
        Command::Meta(arguments) => meta(&arguments),
        Command::Bend { listen, to, fault, one_in } => tarn_bench::bend::serve(listen, to, fault, one_in),
        Command::Run(arguments) => tarn_bench::workload::cli::run(&arguments),
        Command::Size(arguments) => tarn_bench::size::run(&arguments),
        Command::Claims(arguments) => tarn_bench::claims::run(&arguments),
        Command::Agent(arguments) => tarn_bench::workload::agent::serve::run(&arguments),
        Command::AgainstFio(arguments) => tarn_bench::against_fio::run(&arguments),
        Command::NullServer { listen, wal } => tarn_bench::null::serve(listen, wal.as_deref()),
        Command::Hold(servers) => hold(&servers),
        Command::Fairness { servers, beside, seconds, rounds } => fair(&servers, &beside, seconds, rounds),
        Command::StartFigures { servers, how, document } => start_figures(&servers, how, document.as_deref()),
        Command::Scale(command) => scale::run(&command),
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("tarn-bench: {error}");
            ExitCode::FAILURE
        }
    }
}
