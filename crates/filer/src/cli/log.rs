//! `tarn log`: looks into a log without a server.

use std::path::PathBuf;

use clap::Subcommand;

use crate::config::{Flags, Settings};
use crate::exit::Outcome;
use crate::node;

#[derive(Debug, Subcommand)]
pub enum LogCommand {
    /// Read a log from end to end and say what is in it; changes nothing
    Verify {
        /// The data directory [default: ./tarn-data]
        #[arg(long, value_name = "DIR")]
        data: Option<PathBuf>,
        /// Where the log lies [default: log in the data directory]
        #[arg(long, value_name = "DIR")]
        log: Option<PathBuf>,
        /// The file with the master key [default: key in the data directory]
        #[arg(long, value_name = "PATH")]
        key_file: Option<PathBuf>,
    },
}

impl LogCommand {
    pub fn run(self) -> Outcome<()> {
        let LogCommand::Verify { data, log, key_file } = self;
        let settings = Settings::gather(&Flags { data, log, key_file, ..Flags::default() })?;
        say!("{}", node::verify_log(&settings)?);
        Ok(())
    }
}
