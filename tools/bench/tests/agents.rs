//! Several agents make one load: what they do adds up to what one generator does, and one that dies voids the run.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;
use tarn_bench::workload::result::Report;

/// Every file is written once and read once: counts do not hang on time.
const ONCE: &str = r#"
    title = "Each file once"
    follows = "nothing"
    load = { unit = "run", warm_up = 0, seconds = 1 }
    valid = { silence_max_ms = 0 }
    fileset = [{ name = "made", files = 37, empty = true, sizes = [[8192, 2], [65536, 1]] }]
    cell = [{ name = "write" }, { name = "read" }]
    [[component]]
    name = "writers"
    cell = "write"
    fileset = "made"
    once = true
    processes = 3
    operation = [{ op = "write_file", share = 1, sizes = [[65536, 1]] }]
    [[component]]
    name = "readers"
    cell = "read"
    fileset = "made"
    once = true
    processes = 3
    operation = [{ op = "read_file", share = 1, sizes = [[65536, 1]] }]
"#;

/// A rate for as long as it takes to kill somebody.
const PACED: &str = r#"
    title = "At a pace"
    follows = "nothing"
    load = { unit = "op/s", points = 1, peak = 400, warm_up = 0.1, seconds = 1 }
    valid = { silence_max_ms = 0 }
    fileset = [{ name = "data", files = 16, sizes = [[65536, 1]] }]
    [[component]]
    name = "mix"
    fileset = "data"
    processes = 5
    rate_per_unit = 1
    operation = [{ op = "read", share = 70, sizes = [[4096, 1]] }, { op = "write", share = 30, sizes = [[4096, 1]] }]
"#;

struct Agent {
    child: Child,
    address: String,
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A place on a disk, since files are read past the page cache.
struct Stand {
    directory: PathBuf,
}

impl Drop for Stand {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

impl Stand {
    fn new(name: &str) -> Stand {
        let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
        std::fs::create_dir_all(directory.join("target")).unwrap();
        for (name, text) in [("token", "a token of the test"), ("once.toml", ONCE), ("paced.toml", PACED)] {
            std::fs::write(directory.join(name), text).unwrap();
        }
        Stand { directory }
    }

    fn path(&self, name: &str) -> String {
        self.directory.join(name).display().to_string()
    }

    fn agent(&self) -> Agent {
        let mut child = Command::new(env!("CARGO_BIN_EXE_tarn-bench"))
            .args(["agent", "--listen", "127.0.0.1:0", "--token-file", &self.path("token")])
            .args(["--local", &self.path("target")])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("agent at ").unwrap().to_owned();
        Agent { child, address }
    }

    fn command(&self, workload: &str, agents: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tarn-bench"));
        command.args(["run", &self.path(workload), "--target", &format!("file://{}", self.path("target"))]);
        command.args(["--json", &self.path("result.json"), "--raw"]);
        for agent in agents {
            command.args(["--agent", agent]);
        }
        if !agents.is_empty() {
            command.args(["--agent-token-file", &self.path("token")]);
        }
        command
    }

    fn report(&self) -> Report {
        let text = std::fs::read_to_string(self.path("result.json")).unwrap();
        serde_json::from_str::<Vec<Report>>(&text).unwrap().remove(0)
    }

    /// What a run that counts has shown. Its times are not judged: the machine may have other work.
    fn good(&self, workload: &str, agents: &[&str]) -> Report {
        let output = self.command(workload, agents).arg("--quick").output().unwrap();
        assert!(output.status.success(), "{}{}", said(&output.stdout), said(&output.stderr));
        self.nothing_left();
        self.report()
    }

    fn nothing_left(&self) {
        assert_eq!(std::fs::read_dir(self.path("target")).unwrap().count(), 0, "the directory is taken away");
    }
}

fn said(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn counts(report: &Report) -> Vec<(String, String, u64)> {
    let operations = report.cells.iter().flat_map(|cell| &cell.operations);
    operations.map(|of| (of.component.clone(), of.operation.clone(), of.count)).collect()
}

#[test]
fn two_agents_do_what_one_generator_does() {
    let stand = Stand::new("two");
    let (one, two) = (stand.agent(), stand.agent());
    let both = [one.address.as_str(), two.address.as_str()];
    let (alone, dealt) = (stand.good("once.toml", &[]), stand.good("once.toml", &both));
    assert_eq!(counts(&alone), counts(&dealt));
    assert_eq!(counts(&alone).iter().map(|row| row.2).sum::<u64>(), 74);
    assert_eq!((alone.files, alone.bytes), (dealt.files, dealt.bytes));
    assert_eq!((alone.generators.len(), dealt.generators.len()), (0, 2));
    let mixed = stand.good("once.toml", &[&one.address, "here", &two.address]);
    assert_eq!(counts(&alone), counts(&mixed));

    let paced = stand.good("paced.toml", &both);
    let count: u64 = counts(&paced).iter().map(|row| row.2).sum();
    assert!((380..=420).contains(&count), "{count} operations of 400");
    assert!(paced.cells[0].histogram_off.unwrap() < 1.0);
}

/// What a run says whose agent is treated like that in the midst of a cell.
fn spoiled(name: &str, signal: &str) -> (Output, Report) {
    let stand = Stand::new(name);
    let (one, two) = (stand.agent(), stand.agent());
    let mut command = stand.command("paced.toml", &[&one.address, &two.address]);
    let run = command.args(["--seconds", "60"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    std::thread::sleep(Duration::from_secs(2));
    let kill = Command::new("kill").args([signal, &two.child.id().to_string()]).status().unwrap();
    assert!(kill.success());
    let output = run.wait_with_output().unwrap();
    stand.nothing_left();
    let report = stand.report();
    assert!(report.reasons.iter().any(|reason| reason.contains(&two.address)), "{:?}", report.reasons);
    // The other one waits for the next run.
    stand.good("once.toml", &[&one.address]);
    (output, report)
}

#[test]
fn an_agent_that_dies_voids_the_run() {
    let (output, report) = spoiled("dies", "-KILL");
    assert_eq!(output.status.code(), Some(1), "{}", said(&output.stderr));
    assert!(!report.valid);
}

#[test]
fn an_agent_that_stalls_voids_the_run() {
    let (output, report) = spoiled("stalls", "-STOP");
    assert_eq!(output.status.code(), Some(1), "{}", said(&output.stderr));
    assert!(!report.valid && report.reasons.iter().any(|reason| reason.contains("silent")), "{:?}", report.reasons);
}

#[test]
fn a_signal_at_the_controller_stops_all_and_cleans_up() {
    let stand = Stand::new("signal");
    let (one, two) = (stand.agent(), stand.agent());
    let mut command = stand.command("paced.toml", &[&one.address, &two.address]);
    let run = command.args(["--seconds", "60"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    std::thread::sleep(Duration::from_secs(2));
    Command::new("kill").args(["-INT", &run.id().to_string()]).status().unwrap();
    let output = run.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(stand.report().reasons.iter().any(|reason| reason.contains("signal")));
    stand.nothing_left();
    stand.good("once.toml", &[&one.address, &two.address]);
}

#[test]
fn a_wrong_token_or_a_directory_that_was_not_named_is_refused() {
    let stand = Stand::new("token");
    let agent = stand.agent();
    std::fs::write(stand.path("token"), "another token, as long").unwrap();
    let output = stand.command("once.toml", &[&agent.address]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(said(&output.stderr).contains("wrong token"), "{}", said(&output.stderr));
    stand.nothing_left();

    std::fs::write(stand.path("token"), "a token of the test").unwrap();
    let elsewhere = format!("file://{}", stand.path(""));
    let output = stand.command("once.toml", &[&agent.address]).args(["--target", &elsewhere]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(said(&output.stderr).contains("which this agent may load"), "{}", said(&output.stderr));
}
