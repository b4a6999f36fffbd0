//! Runs the program as its users do.

#![allow(dead_code)]

pub mod nfs;
pub mod server;

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

pub const TARN: &str = env!("CARGO_BIN_EXE_tarn");

/// A directory of its own for one test; gone with it.
pub struct Place(pub tempfile::TempDir);

impl Place {
    pub fn new() -> Place {
        Place(tempfile::tempdir().unwrap())
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// The path as messages show it.
    pub fn shown(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    /// `tarn` with these arguments, run here, with no environment that would reach into the test.
    pub fn tarn(&self, args: &[&str]) -> Command {
        let mut command = Command::new(TARN);
        command.args(args).current_dir(self.0.path());
        for name in ["TARN_PASSPHRASE", "TARN_RECOVERY_CODE", "TARN_LOG", "NOTIFY_SOCKET"] {
            command.env_remove(name);
        }
        command
    }

    pub fn run(&self, args: &[&str]) -> Output {
        self.run_with(args, "")
    }

    /// Runs to the end with `input` on standard input.
    pub fn run_with(&self, args: &[&str], input: &str) -> Output {
        output(self.tarn(args), input)
    }

    /// Every file and what is in it.
    pub fn contents(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        let mut out = BTreeMap::new();
        walk(self.0.path(), &mut out);
        out
    }
}

pub fn output(mut command: Command, input: &str) -> Output {
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("tarn starts");
    child.stdin.take().unwrap().write_all(input.as_bytes()).ok();
    child.wait_with_output().unwrap()
}

pub fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

pub fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn walk(dir: &Path, out: &mut BTreeMap<PathBuf, Vec<u8>>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let meta = fs::symlink_metadata(&path).unwrap();
        if meta.is_dir() {
            out.insert(path.clone(), b"directory".to_vec());
            walk(&path, out);
        } else if meta.is_file() {
            out.insert(path.clone(), fs::read(&path).unwrap_or_default());
        }
    }
}
