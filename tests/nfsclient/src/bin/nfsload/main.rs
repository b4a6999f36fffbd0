//! `nfsload`: loads a server with changes, remembers each one that was acknowledged, and holds the server to it.

mod history;
mod journal;
mod kill;
mod random;
mod tree;

use clap::{Args, Parser, Subcommand};
use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;
use tarn_nfsclient::{Client, Credentials, Handle};

/// Any failure of a test tool ends the test with its text.
pub type Outcome<T> = Result<T, String>;

#[derive(Parser)]
#[command(name = "nfsload", about = "Loads an NFSv3 server and checks that it keeps what it acknowledged")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Write a tree that the seed decides
    Fill(tree::Arguments),
    /// Compare the server with that tree: everything is there, nothing else is
    Check(tree::Arguments),
    /// Make a directory that everybody may write in
    Mkdir {
        #[command(flatten)]
        server: Server,
        name: String,
    },
    /// Start the server, kill it under load again and again, and check after each restart
    Kill(kill::Arguments),
}

#[derive(Args, Clone)]
pub struct Server {
    /// Where NFS and MOUNT answer
    #[arg(long, default_value = "127.0.0.1:2049")]
    address: SocketAddr,
    #[arg(long, default_value = "/vol")]
    export: String,
}

impl Server {
    /// A client and the export's root. `number` keeps clients' calls apart.
    pub fn connect(&self, number: u32) -> Outcome<(Client, Handle)> {
        let first = random::seed() as u32 & 0x00ff_ffff | number << 24;
        let mut client = Client::new(self.address, Credentials::root(), first, Duration::from_secs(60));
        let root = client.mount(&self.export).map_err(|error| format!("mount {}: {error}", self.export))?;
        Ok((client, root))
    }
}

fn main() -> ExitCode {
    let outcome = match Arguments::parse().command {
        Command::Fill(arguments) => tree::fill(&arguments),
        Command::Check(arguments) => tree::check(&arguments),
        Command::Mkdir { server, name } => mkdir(&server, &name),
        Command::Kill(arguments) => kill::run(&arguments),
    };
    match outcome {
        Ok(said) => {
            println!("{said}");
            ExitCode::SUCCESS
        }
        Err(problem) => {
            eprintln!("nfsload: {problem}");
            ExitCode::from(1)
        }
    }
}

fn mkdir(server: &Server, name: &str) -> Outcome<String> {
    let (mut client, root) = server.connect(1)?;
    let problem = |error| format!("mkdir {name}: {error}");
    let made = client.mkdir(&root, name.as_bytes(), 0o777).map_err(problem)?;
    let all = tarn_nfsclient::types::Change::mode(0o777);
    client.setattr(&made, all).map_err(problem)?;
    Ok(format!("made {name}"))
}
