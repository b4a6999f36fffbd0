//! Tests with real clients: scripts below `tests/rig/`, each a row here with what it needs.
//!
//! - A script prints what it does, leaves with 0 or 1, and cleans up its network namespace, processes and files.
//! - `short` is what `cargo x test` gives it, `long` what `cargo x prove` does.

use super::needs;
use super::tally::Tally;
use crate::workspace::Workspace;
use std::process::Stdio;
use std::time::Instant;

pub struct Test {
    pub name: &'static str,
    pub script: &'static str,
    pub needs: &'static [&'static str],
    pub short: &'static [&'static str],
    pub long: &'static [&'static str],
}

const NETWORK: &[&str] = &["root", "ip", "ps"];
const GUEST: &[&str] = &["root", "ip", "ps", "/dev/net/tun", "guest"];
/// With a small file system of the test's own.
const DISK: &[&str] = &["root", "ip", "ps", "mke2fs", "/dev/loop-control"];
const S3: &[&str] = &["root", "ip", "ps", "versitygw"];

pub const TESTS: &[Test] = &[
    Test {
        name: "pjdfstest",
        script: "pjdfstest.sh",
        needs: &["root", "ip", "ps", "/dev/net/tun", "guest", "pjdfstest"],
        short: &[],
        long: &[],
    },
    Test {
        name: "fsx-buffered",
        script: "fsx.sh",
        needs: &["root", "ip", "ps", "/dev/net/tun", "guest", "fsx"],
        short: &["buffered", "5000"],
        long: &["buffered", "100000"],
    },
    Test {
        name: "fsx-direct",
        script: "fsx.sh",
        needs: &["root", "ip", "ps", "/dev/net/tun", "guest", "fsx"],
        short: &["direct", "5000"],
        long: &["direct", "100000"],
    },
    Test { name: "read-again", script: "again.sh", needs: GUEST, short: &["1"], long: &["60"] },
    Test { name: "listing", script: "listing.sh", needs: GUEST, short: &["5000"], long: &["200000"] },
    Test { name: "git-clone", script: "programs.sh", needs: GUEST, short: &["git"], long: &["git"] },
    Test { name: "tar", script: "programs.sh", needs: GUEST, short: &["tar"], long: &["tar"] },
    Test { name: "make", script: "programs.sh", needs: GUEST, short: &["make"], long: &["make"] },
    Test { name: "sqlite", script: "programs.sh", needs: GUEST, short: &["sqlite"], long: &["sqlite"] },
    Test { name: "locks", script: "locks.sh", needs: GUEST, short: &[], long: &[] },
    Test {
        name: "libnfs",
        script: "libnfs.sh",
        needs: &["root", "ip", "ps", "nfs-ls", "setpriv"],
        short: &[],
        long: &[],
    },
    Test {
        name: "sealed",
        script: "sealed.sh",
        needs: &["root", "ip", "ps", "strings", "nfs-ls"],
        short: &[],
        long: &[],
    },
    Test {
        name: "workloads",
        script: "workloads.sh",
        needs: &["root", "ip", "ps", "nfs-ls", "chromium-headless-shell"],
        short: &[],
        long: &[],
    },
    Test { name: "kill-raw", script: "kill.sh", needs: NETWORK, short: &["raw", "5"], long: &["raw", "100"] },
    Test { name: "kill-kernel", script: "kill.sh", needs: GUEST, short: &["kernel", "5"], long: &["kernel", "50"] },
    Test { name: "kernel-restarts", script: "restarts.sh", needs: GUEST, short: &["4"], long: &["50"] },
    Test {
        name: "power-cut",
        script: "power-cut.sh",
        needs: &["root", "ip", "ps", "/dev/net/tun", "guest", "mke2fs"],
        short: &["2"],
        long: &["20"],
    },
    Test {
        name: "log-flush-fails",
        script: "log-failure.sh",
        needs: &["root", "ip", "ps", "gcc"],
        short: &["flush"],
        long: &["flush"],
    },
    Test {
        name: "log-write-fails",
        script: "log-failure.sh",
        needs: &["root", "ip", "ps", "gcc"],
        short: &["write"],
        long: &["write"],
    },
    Test { name: "store-away", script: "store-away.sh", needs: S3, short: &["8", "512MiB"], long: &["120", "4GiB"] },
    Test { name: "log-full", script: "log-full.sh", needs: S3, short: &[], long: &[] },
    Test { name: "disk-full", script: "disk-full.sh", needs: DISK, short: &[], long: &[] },
    Test { name: "volume-limit", script: "volume-limit.sh", needs: NETWORK, short: &[], long: &[] },
    Test { name: "store-deleted", script: "store-gone.sh", needs: DISK, short: &["deleted"], long: &["deleted"] },
    Test { name: "store-read-only", script: "store-gone.sh", needs: DISK, short: &["read-only"], long: &["read-only"] },
    Test { name: "garbage", script: "garbage.sh", needs: NETWORK, short: &["20"], long: &["600", "release"] },
    Test { name: "bucket-alone", script: "recovery.sh", needs: NETWORK, short: &["bucket"], long: &["bucket"] },
    Test { name: "log-and-bucket", script: "recovery.sh", needs: NETWORK, short: &["log"], long: &["log"] },
    Test { name: "bucket-s3", script: "recovery.sh", needs: S3, short: &["s3"], long: &["s3"] },
    Test {
        name: "bucket-azure",
        script: "recovery.sh",
        needs: &["root", "ip", "ps", "azurite"],
        short: &["azure"],
        long: &["azure"],
    },
];

/// For `cargo x prove` only: that the tests which kill see planted bugs.
pub const PLANTED: Test = Test {
    name: "kills-can-fail",
    script: "planted.sh",
    needs: &["root", "ip", "ps", "/dev/net/tun", "guest", "mke2fs"],
    short: &[],
    long: &[],
};

/// Runs one against `tarn`; its output goes to a file and is shown if it fails.
pub fn run(workspace: &Workspace, test: &Test, arguments: &[&str], tally: &mut Tally) -> Result<(), String> {
    run_against("tarn", workspace, test, arguments, tally)
}

/// As [`run`], against another of our programs.
pub fn run_against(
    server: &str,
    workspace: &Workspace,
    test: &Test,
    arguments: &[&str],
    tally: &mut Tally,
) -> Result<(), String> {
    if let Some(need) = test.needs.iter().find(|need| needs::is_missing(workspace, need)) {
        println!("SKIPPED {}: needs {need}", test.name);
        tally.skips.push(format!("{}: needs {need}", test.name));
        return Ok(());
    }
    let started = Instant::now();
    let folder = workspace.target.join("x-rig");
    std::fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let log = folder.join(format!("{}.log", test.name));
    let output = std::fs::File::create(&log).map_err(|error| format!("{}: {error}", log.display()))?;
    let errors = output.try_clone().map_err(|error| format!("{}: {error}", log.display()))?;
    let status = workspace
        .command(workspace.root.join("tests/rig").join(test.script))
        .args(arguments)
        .env("TARN", workspace.program(server))
        .env("TARN_NFSLOAD", workspace.program("nfsload"))
        .stdin(Stdio::null())
        .stdout(output)
        .stderr(errors)
        .status()
        .map_err(|error| format!("{}: {error}", test.script))?;
    let text = String::from_utf8_lossy(&std::fs::read(&log).unwrap_or_default()).into_owned();
    let verdict = if status.success() { "ok" } else { "FAILED" };
    let said = said(&text, status.success());
    println!("rig {:<15} {verdict:<6} {:>4.0} s  {said}", test.name, started.elapsed().as_secs_f64());
    if !status.success() {
        let from = text.lines().count().saturating_sub(40);
        text.lines().skip(from).for_each(|line| println!("    {line}"));
        println!("    all output: {}", log.display());
    }
    match status.success() {
        true => tally.passed += 1,
        false => tally.failed(&format!("{}: {said}", test.name)),
    }
    Ok(())
}

/// The line of a test's output that says how it ended: the last, or why it failed (the server's words may follow).
fn said(output: &str, passed: bool) -> &str {
    let reason = output.lines().rfind(|line| line.starts_with("FAILED") && !passed);
    reason.or_else(|| output.lines().last()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_test_is_told_by_its_reason() {
        let output =
            "a: FAILED\nFAILED: a file is not what was written\n--- the server said last:\nserves at 0.0.0.0:2049";
        assert_eq!(said(output, false), "FAILED: a file is not what was written");
        assert_eq!(said("much\n3 files read", true), "3 files read");
        assert_eq!(said("cannot begin", false), "cannot begin");
        assert_eq!(said("", false), "");
    }

    #[test]
    fn every_script_is_there_and_every_need_is_known() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/rig");
        for test in TESTS.iter().chain([&PLANTED]) {
            assert!(std::path::Path::new(folder).join(test.script).is_file(), "{}", test.script);
            for need in test.needs {
                assert!(needs::NEEDS.iter().any(|known| known.name == *need), "{need}");
            }
        }
    }
}
