//! `cargo x prove`: the long evidence, one result line a check.
//!
//! - Resumable: what passed for the present commit is not run again (`target/prove/state.json`); `--again` forgets.
//! - A check that fails or is skipped is run again next time.
//! - Exit codes as for `test`: 0 passed, 1 failed, 3 passed with skips.

use crate::test::rig;
use crate::test::tally::Tally;
use crate::workspace::Workspace;
use serde_json::{Map, Value, json};
use std::path::PathBuf;
use std::process::{ExitCode, Stdio};
use std::time::{Duration, Instant};

#[derive(clap::Args)]
pub struct Arguments {
    /// Only these checks
    names: Vec<String>,
    /// Run again what passed already
    #[arg(long)]
    again: bool,
    /// Print the names and leave
    #[arg(long)]
    list: bool,
}

/// Histories of the simulation, and those with metadata in SlateDB.
const SEEDS: u32 = 10_000;
const SLATE_SEEDS: u32 = 1_000;
/// Bits, in equal parts of everything that lies at rest.
const FLIPS: u32 = 1_000;
/// Of each decoder.
const EXECUTIONS: u32 = 10_000_000;
const COLD_BUILD_MAX: Duration = Duration::from_secs(8 * 60);

/// What a check has to say for itself: passed or not, and its figure.
type Outcome = Result<String, String>;
type Check = fn(&Workspace) -> Outcome;

/// The checks that are not tests with real clients.
const OWN: &[(&str, Check)] = &[
    ("simulation", simulation),
    ("mutants", mutants),
    ("flips", flips),
    ("fuzz", fuzz),
    ("cold-build", cold_build),
    ("fairness", fairness),
];

/// All checks.
fn names() -> Vec<&'static str> {
    let clients = rig::TESTS.iter().chain([&rig::PLANTED]);
    OWN.iter().map(|(name, _)| *name).chain(clients.map(|test| test.name)).collect()
}

pub fn run(workspace: &Workspace, arguments: &Arguments) -> Result<ExitCode, String> {
    let names = names();
    if arguments.list {
        println!("{}", names.join("\n"));
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(unknown) = arguments.names.iter().find(|name| !names.contains(&name.as_str())) {
        return Err(format!("no check is called {unknown}; there are {}", names.join(", ")));
    }
    build(workspace)?;
    let mut state = State::read(workspace, arguments.again)?;
    let mut tally = Tally::default();
    for name in names.iter().filter(|name| arguments.names.is_empty() || arguments.names.iter().any(|n| n == *name)) {
        if let Some(line) = state.passed(name) {
            println!("prove {name:<15} ok     (before)  {line}");
            tally.passed += 1;
            continue;
        }
        prove(workspace, name, &mut state, &mut tally)?;
    }
    println!("{} passed, {} failed, {} skipped", tally.passed, tally.failures.len(), tally.skips.len());
    Ok(ExitCode::from(tally.status(false)))
}

fn prove(workspace: &Workspace, name: &str, state: &mut State, tally: &mut Tally) -> Result<(), String> {
    let started = Instant::now();
    if let Some((_, check)) = OWN.iter().find(|(own, _)| *own == name) {
        let outcome = check(workspace);
        let (verdict, line) = match &outcome {
            Ok(line) => ("ok", line),
            Err(line) => ("FAILED", line),
        };
        println!("prove {name:<15} {verdict:<6} {:>6.0} s  {line}", started.elapsed().as_secs_f64());
        tally.outcome(name, outcome.is_ok());
        return if outcome.is_ok() { state.pass(name, line) } else { Ok(()) };
    }
    let passed = tally.passed;
    if name == rig::PLANTED.name {
        build_planted(workspace)?;
        rig::run_against("tarn-mutant", workspace, &rig::PLANTED, rig::PLANTED.long, tally)?;
    } else {
        let test = rig::TESTS.iter().find(|test| test.name == name);
        let test = test.ok_or_else(|| format!("no check is called {name}"))?;
        rig::run(workspace, test, test.long, tally)?;
    }
    if tally.passed > passed {
        state.pass(name, &format!("{:.0} s", started.elapsed().as_secs_f64()))?;
    }
    Ok(())
}

fn build(workspace: &Workspace) -> Result<(), String> {
    let mut command = workspace.cargo();
    let status = command.args(["build", "--workspace", "--bins", "--tests"]).status();
    let built = status.map_err(|error| format!("cargo build: {error}"))?.success();
    if built { Ok(()) } else { Err("cargo build failed".to_owned()) }
}

/// The server with planted bugs in it.
fn build_planted(workspace: &Workspace) -> Result<(), String> {
    let build = ["build", "--quiet", "--package", "tarn-filer", "--features", "mutants", "--bin", "tarn-mutant"];
    let status = workspace.cargo().args(build).status().map_err(|error| format!("cargo build: {error}"))?;
    if status.success() { Ok(()) } else { Err("tarn-mutant does not build".to_owned()) }
}

fn simulation(workspace: &Workspace) -> Outcome {
    let runs: [(u32, &[&str]); 2] = [(SEEDS, &[]), (SLATE_SEEDS, &["--slate"])];
    for (seeds, more) in runs {
        let mut command = workspace.command(workspace.program("tarn-sim"));
        let status = command.args(["run", "--seeds", &seeds.to_string()]).args(more).status();
        if !status.map_err(|error| format!("tarn-sim: {error}"))?.success() {
            return Err("a seed failed, or something was not met often enough; it is named above".to_owned());
        }
    }
    Ok(format!("{SEEDS} seeds clean, and {SLATE_SEEDS} with SlateDB"))
}

fn flips(workspace: &Workspace) -> Outcome {
    let mut command = workspace.command(workspace.program("tarn-sim"));
    let status = command.args(["flips", "--flips", &FLIPS.to_string()]).status();
    match status.map_err(|error| format!("tarn-sim: {error}"))?.success() {
        true => Ok(format!("{FLIPS} flipped bits, none of them served")),
        false => Err("a flipped bit was served or went unnoticed; it is named above".to_owned()),
    }
}

fn mutants(workspace: &Workspace) -> Outcome {
    let count = crate::mutants::all(workspace)?;
    Ok(format!("{count} caught within {} seeds each", crate::mutants::SEEDS))
}

fn fuzz(workspace: &Workspace) -> Outcome {
    let mut command = workspace.command(workspace.program("tarn-fuzz"));
    let status = command.args(["--executions", &EXECUTIONS.to_string()]).status();
    match status.map_err(|error| format!("tarn-fuzz: {error}"))?.success() {
        true => Ok(format!("{EXECUTIONS} executions of each decoder clean")),
        false => Err("a decoder failed; what replays it is printed above".to_owned()),
    }
}

/// `cargo build --release` into an empty directory, as a newcomer's first command does.
fn cold_build(workspace: &Workspace) -> Outcome {
    let target = workspace.target.join("prove/cold");
    let _ = std::fs::remove_dir_all(&target);
    let started = Instant::now();
    let output = workspace
        .cargo()
        .args(["build", "--release"])
        .env("CARGO_TARGET_DIR", &target)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .output()
        .map_err(|error| format!("cargo build --release: {error}"))?;
    let took = started.elapsed();
    let _ = std::fs::remove_dir_all(&target);
    let line = format!("{:.0} s, at most {:.0}", took.as_secs_f64(), COLD_BUILD_MAX.as_secs_f64());
    match (output.status.success(), took <= COLD_BUILD_MAX) {
        (true, true) => Ok(line),
        (true, false) => Err(line),
        (false, _) => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
    }
}

/// One greedy client and the server's own background work beside two probes; the server on one core, all clients on
/// another. Other load on the machine makes it fail.
fn fairness(workspace: &Workspace) -> Outcome {
    let built = workspace.cargo().args(["build", "--release", "-p", "tarn-filer", "-p", "tarn-bench"]).status();
    if !built.map_err(|error| format!("cargo build --release: {error}"))?.success() {
        return Err("cargo build --release failed".to_owned());
    }
    let release = workspace.target.join("release");
    let mut command = workspace.command(release.join("tarn-bench"));
    command.arg("fairness").arg("--tarn").arg(release.join("tarn")).args(["--pin-server", "0", "--pin-client", "1"]);
    match command.status().map_err(|error| format!("tarn-bench: {error}"))?.success() {
        true => Ok("GETATTR p99 within 5 ms and FILE_SYNC p99 within 20 ms beside every load".to_owned()),
        false => {
            Err("a probe waited longer than it may, or nothing went on beside it: the rows marked above".to_owned())
        }
    }
}

/// What has passed for this commit.
struct State {
    file: PathBuf,
    commit: String,
    passed: Map<String, Value>,
}

impl State {
    fn read(workspace: &Workspace, again: bool) -> Result<State, String> {
        let file = workspace.target.join("prove/state.json");
        let commit = commit(workspace)?;
        let old: Value =
            std::fs::read(&file).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok()).unwrap_or_default();
        let same = old["commit"].as_str() == Some(commit.as_str()) && !again;
        let passed = if same { old["passed"].as_object().cloned() } else { None };
        Ok(State { file, commit, passed: passed.unwrap_or_default() })
    }

    fn passed(&self, name: &str) -> Option<&str> {
        self.passed.get(name)?.as_str()
    }

    fn pass(&mut self, name: &str, line: &str) -> Result<(), String> {
        self.passed.insert(name.to_owned(), json!(line));
        let text = json!({ "commit": self.commit, "passed": self.passed }).to_string();
        let problem = |error: std::io::Error| format!("{}: {error}", self.file.display());
        std::fs::create_dir_all(self.file.parent().unwrap_or(&self.file)).map_err(problem)?;
        std::fs::write(&self.file, text).map_err(problem)
    }
}

/// The commit, with the changes on top of it: evidence holds for exactly what was run.
fn commit(workspace: &Workspace) -> Result<String, String> {
    let git = |arguments: &[&str]| -> Result<String, String> {
        let output = workspace.command("git").args(arguments).output().map_err(|error| format!("git: {error}"))?;
        Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let changes = git(&["diff", "HEAD"])?;
    let digest = changes
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    let changed = if changes.is_empty() { String::new() } else { format!("+{digest:016x}") };
    Ok(format!("{}{changed}", git(&["rev-parse", "HEAD"])?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_passed_is_remembered_for_its_commit_only() {
        let file = std::env::temp_dir().join(format!("tarn-prove-{}/state.json", std::process::id()));
        let mut state = State { file: file.clone(), commit: "a".to_owned(), passed: Map::new() };
        state.pass("simulation", "2000 seeds clean").unwrap();
        let text: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
        assert_eq!(text, json!({ "commit": "a", "passed": { "simulation": "2000 seeds clean" } }));
        assert_eq!(state.passed("simulation"), Some("2000 seeds clean"));
        assert_eq!(state.passed("locks"), None);
        std::fs::remove_dir_all(file.parent().unwrap()).unwrap();
    }
}
