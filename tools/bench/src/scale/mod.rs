//! Very many files, a very large directory, a very large file: what stays flat as the data grows, and what does not.
//!
//! - Each measurement starts a Tarn of its own, watches its memory and its disk all the while, and ends it.
//! - [`drive`]: the loop; every call in flight is a story of its own, whose next call follows from the last reply.
//! - [`own`]: the server, its restarts. [`watch`]: memory every 100 ms, disk every few seconds.
//! - [`files`], [`directory`], [`sparse`], [`stream`]: the measurements.

pub mod calls;
pub mod directory;
pub mod drive;
pub mod files;
pub mod listing;
pub mod own;
pub mod sparse;
pub mod stream;
pub mod watch;

use crate::Outcome;
use crate::servers::space;
use clap::{Args, Subcommand};
use std::net::IpAddr;
use std::path::PathBuf;

#[derive(Subcommand)]
pub enum Command {
    /// Make very many small files: rate, memory and disk as they grow, then kill the server and time its return
    Files(files::Files),
    /// Fill one directory, list it cold, look names up, list it while it changes, empty it
    Directory(directory::Large),
    /// Stream large UNSTABLE writes to the last COMMIT, in turns with dd on the same disk
    Stream(stream::Stream),
    /// Overwrite a very large sparse file at random, through several checkpoints, and remove it
    Sparse(sparse::Sparse),
}

/// The server that is measured and the generator's shape.
#[derive(Args, Clone, Debug)]
pub struct Common {
    /// Start Tarn from this binary
    #[arg(long, value_name = "BINARY")]
    pub tarn: PathBuf,
    /// Where a directory for the server's files is made, and removed at the end: a disk, not memory
    #[arg(long, default_value = "/var/tmp")]
    pub directory: PathBuf,
    /// Where a directory for its objects is made, instead of beside its log, and removed at the end
    #[arg(long)]
    pub objects: Option<PathBuf>,
    /// Where the server listens; the generator comes over loopback
    #[arg(long, default_value = "127.0.0.1")]
    pub listen: IpAddr,
    #[arg(long, default_value_t = 22049)]
    pub port: u16,
    /// Connections x calls in flight on each
    #[arg(long, default_value = "4x16", value_parser = crate::load::shape)]
    pub shape: (usize, usize),
    #[arg(long, value_name = "CORE")]
    pub pin_server: Option<usize>,
    #[arg(long, value_name = "CORE")]
    pub pin_client: Option<usize>,
    /// Memory of the server's caches, MiB: of file data
    #[arg(long, default_value_t = 256)]
    pub cache_data: u64,
    /// and of names
    #[arg(long, default_value_t = 512)]
    pub cache_names: u64,
    /// and of changes that the store does not hold yet
    #[arg(long, default_value_t = 256)]
    pub checkpoint_memory: u64,
    /// GiB
    #[arg(long, default_value_t = 4)]
    pub log: u64,
    /// Levels of what the server reports, by module
    #[arg(long, default_value = "info")]
    pub report: String,
}

impl Common {
    /// What the caches and the changes may take together, bytes.
    pub fn memory(&self) -> u64 {
        (self.cache_data + self.cache_names + self.checkpoint_memory) << 20
    }
}

impl Command {
    fn common(&self) -> &Common {
        match self {
            Command::Files(files) => &files.common,
            Command::Directory(directory) => &directory.common,
            Command::Stream(stream) => &stream.common,
            Command::Sparse(sparse) => &sparse.common,
        }
    }
}

pub fn run(command: &Command) -> Outcome<()> {
    // Where a client from outside is to come, it would not reach a network of the measurement's own.
    if command.common().listen.is_loopback() {
        space::enter_network()?;
    }
    match command {
        Command::Files(files) => files.run(),
        Command::Directory(directory) => directory.run(),
        Command::Stream(stream) => stream.run(),
        Command::Sparse(sparse) => sparse.run(),
    }
}

/// Text of a size in bytes.
pub fn mib(bytes: u64) -> String {
    format!("{} MiB", bytes >> 20)
}
