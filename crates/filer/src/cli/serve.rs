//! `tarn serve`: the server.

use std::path::PathBuf;

use clap::Args;

use crate::config::Flags;
use crate::exit::Outcome;
use crate::serve;

#[derive(Debug, Args)]
pub struct Serve {
    /// State of this node; also the log and the objects unless they are put elsewhere [default: ./tarn-data]
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Where the write log lies, on a local disk [default: log in the data directory]
    #[arg(long, value_name = "DIR")]
    log: Option<PathBuf>,
    /// Where objects live: file:///DIR, s3://BUCKET/PREFIX, az://CONTAINER/PREFIX [default: objects in the data
    /// directory]
    #[arg(long, value_name = "URL")]
    store: Option<String>,
    /// The file with the master key; made there if it is absent and the store is new [default: key in the data
    /// directory]
    #[arg(long, value_name = "PATH")]
    key_file: Option<PathBuf>,
    /// Where NFS, MOUNT and NLM answer [default: 127.0.0.1:2049]
    #[arg(long, value_name = "ADDR:PORT")]
    nfs: Option<String>,
    /// Where read-only status and metrics answer over HTTP, or "off" [default: off]
    #[arg(long, value_name = "ADDR:PORT")]
    admin: Option<String>,
    /// Also answer portmap and the status monitor on port 111, which makes locks reachable
    #[arg(long)]
    portmap: bool,
    /// A configuration file
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Accept a log that does not survive a power loss (memory or network file system)
    #[arg(long)]
    unsafe_log: bool,
    /// Claim a store that another node left open; what only that node's log holds is given up
    #[arg(long)]
    take: bool,
    /// Open the store without the log it was left with; what only that log holds is given up
    #[arg(long)]
    accept_loss: bool,
}

impl Serve {
    pub fn run(self) -> Outcome<()> {
        serve::run(Flags {
            data: self.data,
            log: self.log,
            store: self.store,
            key_file: self.key_file,
            nfs: self.nfs,
            admin: self.admin,
            portmap: self.portmap,
            config: self.config,
            unsafe_log: self.unsafe_log,
            take: self.take,
            accept_loss: self.accept_loss,
        })
    }
}
