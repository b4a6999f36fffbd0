//! The command line: one file for each command.

#[macro_use]
mod say;

mod bench;
mod checkpoint;
mod clients;
mod fsck;
mod key;
mod locks;
mod log;
mod scrub;
mod serve;
mod status;
mod table;
mod volume;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use crate::config;
use crate::exit::Outcome;

/// A filer whose files live in an object store.
#[derive(Debug, Parser)]
#[command(name = "tarn", version, max_term_width = 120, disable_help_subcommand = true)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve files over NFS; without arguments from ./tarn-data on this machine only
    Serve(serve::Serve),
    /// Show how the running server is
    Status(status::Status),
    /// Create, list, change and delete volumes
    #[command(subcommand)]
    Volume(volume::Volume),
    /// List the clients of the running server
    Clients(clients::Clients),
    /// List locks, and break those of a client that is gone
    #[command(subcommand)]
    Locks(locks::Locks),
    /// Bring everything that is in the log to the store now
    Checkpoint(checkpoint::Checkpoint),
    /// Check that everything the metadata says is true of itself; without a server this recovers and closes the store
    Fsck(fsck::Fsck),
    /// Read every stored byte and check it
    Scrub(scrub::Scrub),
    /// Show, check and bring back the master key
    #[command(subcommand)]
    Key(key::KeyCommand),
    /// Look into a log without a server
    #[command(subcommand)]
    Log(log::LogCommand),
    /// Measure servers: hands over to the load generator tarn-bench
    Bench(bench::Bench),
    /// Forecast what a load needs: hands over to tarn-bench
    Size(bench::Size),
}

/// Which server a command means.
#[derive(Debug, Args)]
pub struct Where {
    /// The data directory of the server
    #[arg(long, value_name = "DIR", default_value = "./tarn-data")]
    data: PathBuf,
}

impl Where {
    fn data(&self) -> Outcome<PathBuf> {
        config::absolute(self.data.clone())
    }
}

impl Cli {
    pub fn run(self) -> Outcome<()> {
        match self.command {
            Command::Serve(command) => command.run(),
            Command::Status(command) => command.run(),
            Command::Volume(command) => command.run(),
            Command::Clients(command) => command.run(),
            Command::Locks(command) => command.run(),
            Command::Checkpoint(command) => command.run(),
            Command::Fsck(command) => command.run(),
            Command::Scrub(command) => command.run(),
            Command::Key(command) => command.run(),
            Command::Log(command) => command.run(),
            Command::Bench(command) => command.run(),
            Command::Size(command) => command.run(),
        }
    }
}
