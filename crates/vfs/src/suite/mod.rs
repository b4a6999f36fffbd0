//! What any file system behind the contract must do: one file per operation, small cases, each in a directory of
//! its own.
//!
//! - [`check`] runs all cases and tells which failed and where; [`cases`] lists them, to be run one by one.
//! - A case asks only what the contract, POSIX and Linux promise; no numbers, cookies or clocks of one
//!   implementation.
//! - Nothing here restarts the file system: what survives a restart is tested where restarts are made.

mod access;
mod create;
mod link;
mod list;
mod lock;
mod lookup;
mod make;
mod once;
mod place;
mod read;
mod remove;
mod rename;
mod setattr;
mod statfs;
mod times;
mod write;

use std::fmt;
use std::sync::Arc;

pub use place::{Case, Place, Verdict};

use crate::contract::FileSystem;
use crate::types::{Caller, SetAttr, VolumeInfo};

/// A case that failed.
#[derive(Clone, Debug)]
pub struct Failed {
    pub case: &'static str,
    pub why: String,
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.case, self.why)
    }
}

/// All cases.
pub fn cases() -> Vec<Case> {
    let files = [
        access::CASES,
        create::CASES,
        link::CASES,
        list::CASES,
        lock::CASES,
        lookup::CASES,
        make::CASES,
        once::CASES,
        read::CASES,
        remove::CASES,
        rename::CASES,
        setattr::CASES,
        statfs::CASES,
        times::CASES,
        write::CASES,
    ];
    files.concat()
}

/// The suite over one file system.
pub struct Suite {
    fs: Arc<dyn FileSystem>,
    volume: VolumeInfo,
    heard: Arc<place::Heard>,
}

impl Suite {
    /// Sets the file system's event sink; `volume` is empty.
    pub fn new(fs: Arc<dyn FileSystem>, volume: &VolumeInfo) -> Suite {
        let heard = Arc::new(place::Heard::default());
        fs.set_event_sink(heard.clone());
        Suite { fs, volume: volume.clone(), heard }
    }

    /// Runs one case in a directory of its own, made in the volume's root by the superuser.
    pub async fn run(&self, case: &Case) -> Result<(), Failed> {
        let failed = |why: String| Failed { case: case.name, why };
        let set = SetAttr { mode: Some(0o777), ..SetAttr::default() };
        let name = case.name.replace("::", ".");
        let made = self.fs.mkdir(&Caller::root(), self.volume.root, name.as_bytes(), set).await;
        let made = made.map_err(|done| failed(format!("no directory for it: {}", done.value.errno)))?;
        let dir = made.value.attr.ok_or_else(|| failed("mkdir gave no attributes".to_owned()))?.node;
        let (fs, volume, heard) = (self.fs.clone(), self.volume.clone(), self.heard.clone());
        (case.run)(Place { fs, volume, heard, dir }).await.map_err(failed)
    }
}

/// Runs all cases, one after another, in an empty volume; gives their number, or all that failed. Sets the file
/// system's event sink.
pub async fn check(fs: Arc<dyn FileSystem>, volume: &VolumeInfo) -> Result<usize, Vec<Failed>> {
    let (suite, cases, mut failed) = (Suite::new(fs, volume), cases(), Vec::new());
    for case in &cases {
        failed.extend(suite.run(case).await.err());
    }
    if failed.is_empty() { Ok(cases.len()) } else { Err(failed) }
}
