//! What a signal ends leaves nothing behind.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};

#[test]
fn a_measurement_that_a_signal_ends_leaves_no_server_and_no_directory() {
    let directory = std::env::temp_dir().join(format!("tarn-bench-left-{}", std::process::id()));
    std::fs::create_dir(&directory).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_tarn-bench"));
    command.args(["hold", "--null", "--memory", "0", "--directory"]).arg(&directory);
    let mut held = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    // Waiting for a child closes what it reads, which ends this one too.
    let open = held.stdin.take();
    let mut said = BufReader::new(held.stdout.take().unwrap()).lines().map(Result::unwrap);
    let server = said.find(|line| line.contains("(process ")).unwrap();
    let server = server.rsplit_once("(process ").unwrap().1.trim_end_matches(')');
    let server = PathBuf::from(format!("/proc/{server}"));
    assert!(server.exists() && std::fs::read_dir(&directory).unwrap().count() == 1);
    let kill = Command::new("kill").arg(held.id().to_string()).status().unwrap();
    assert!(kill.success());
    assert_eq!(held.wait().unwrap().code(), Some(128 + 15));
    drop(open);
    assert!(!server.exists(), "the server lives");
    assert_eq!(std::fs::read_dir(&directory).unwrap().count(), 0, "its directory is there");
    std::fs::remove_dir(&directory).unwrap();
}
