//! `tarn fsck`: everything the metadata says is held against itself; with or without a server.
//!
//! Without one it is no mere reader: what the log holds must be in the metadata before that can be held against itself.

use std::path::PathBuf;

use clap::Args;

use super::scrub;
use crate::admin::client;
use crate::config::{Flags, Settings};
use crate::exit::{Outcome, Stop};
use crate::protocol::{Request, WalkView};
use crate::{node, place};

#[derive(Debug, Args)]
pub struct Fsck {
    /// The data directory [default: ./tarn-data]. A running server is asked. Without one the store is opened here as a
    /// server would open it: the log is recovered, a checkpoint is written, and the store is closed cleanly
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Where the write log lies, when no server runs
    #[arg(long, value_name = "DIR")]
    log: Option<PathBuf>,
    /// The store, when no server runs
    #[arg(long, value_name = "URL")]
    store: Option<String>,
    /// The file with the master key, when no server runs
    #[arg(long, value_name = "PATH")]
    key_file: Option<PathBuf>,
    /// A configuration file
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Also read and verify every record
    #[arg(long)]
    deep: bool,
}

impl Fsck {
    pub fn run(self) -> Outcome<()> {
        let settings = Settings::gather(&Flags {
            data: self.data,
            log: self.log,
            store: self.store,
            key_file: self.key_file,
            config: self.config,
            unsafe_log: true,
            ..Flags::default()
        })?;
        let bar = scrub::bar();
        let walked = match place::server_of(&settings.data) {
            Some(_) => {
                let request = Request::Fsck { deep: self.deep };
                client::ask_with(&settings.data, &request, |step| scrub::show(&bar, &step))
            }
            None => node::fsck_offline(&settings, self.deep, &|step| scrub::show(&bar, &step)),
        };
        bar.finish_and_clear();
        report("fsck", &walked?)
    }
}

/// Prints what a walk found; faults end the program with a code of their own.
pub fn report(name: &str, walk: &WalkView) -> Outcome<()> {
    let counts: Vec<String> = walk.counts.iter().map(|(what, count)| format!("{count} {what}")).collect();
    say!("{name}: {}", counts.join(", "));
    for fault in &walk.faults {
        say!("  fault: {fault}");
    }
    if walk.fault_count > walk.faults.len() as u64 {
        say!("  and {} more", walk.fault_count - walk.faults.len() as u64);
    }
    if walk.fault_count > 0 {
        return Err(Stop::Faults { count: walk.fault_count });
    }
    say!("{name}: clean");
    Ok(())
}
