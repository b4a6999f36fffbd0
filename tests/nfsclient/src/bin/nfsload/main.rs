//! `nfsload`: loads a server with changes, remembers each one that was acknowledged, and holds the server to it.

mod garbage;
mod history;
mod journal;
mod kill;
mod ledger;
mod proxy;
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
    /// List the export's root
    List {
        #[command(flatten)]
        server: Server,
    },
    /// Start the server, kill it under load again and again, and check after each restart
    Kill(kill::Arguments),
    /// Append records, each durable when it is answered, and note in a ledger what was
    Write(ledger::Write),
    /// Hold the server to the ledger
    Read(ledger::Check),
    /// Remove each client's last file, and take it out of the ledger
    Drop(ledger::Check),
    /// Pass HTTP on to an object store, or answer 503 in its place
    Proxy(proxy::Arguments),
    /// Send a server garbage, and check that an honest client does not notice
    Garbage(garbage::Arguments),
}

#[derive(Args, Clone)]
pub struct Server {
    /// Where NFS and MOUNT answer
    #[arg(long, default_value = "127.0.0.1:2049")]
    address: SocketAddr,
    #[arg(long, default_value = "/vol")]
    export: String,
    /// How long a connection may be silent before a new one is made, seconds
    #[arg(long, default_value_t = 10)]
    timeout: u64,
}

impl Server {
    /// A client and the export's root. `number` keeps clients' calls apart.
    pub fn connect(&self, number: u32) -> Outcome<(Client, Handle)> {
        self.connect_as(number, Credentials::root())
    }

    /// The same as another user.
    pub fn connect_as(&self, number: u32, who: Credentials) -> Outcome<(Client, Handle)> {
        let first = random::seed() as u32 & 0x00ff_ffff | number << 24;
        let mut client = Client::new(self.address, who, first, Duration::from_secs(60));
        client.timeout = Duration::from_secs(self.timeout);
        let root = client.mount(&self.export).map_err(|error| format!("mount {}: {error}", self.export))?;
        Ok((client, root))
    }
}

fn main() -> ExitCode {
    let outcome = match Arguments::parse().command {
        Command::Fill(arguments) => tree::fill(&arguments),
        Command::Check(arguments) => tree::check(&arguments),
        Command::Mkdir { server, name } => mkdir(&server, &name),
        Command::List { server } => list(&server),
        Command::Kill(arguments) => kill::run(&arguments),
        Command::Write(arguments) => ledger::write(&arguments),
        Command::Read(arguments) => ledger::check(&arguments),
        Command::Drop(arguments) => ledger::drop_last(&arguments),
        Command::Proxy(arguments) => proxy::run(arguments),
        Command::Garbage(arguments) => garbage::run(&arguments),
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

fn list(server: &Server) -> Outcome<String> {
    let (mut client, root) = server.connect(1)?;
    let entries = client.readdirplus(&root).map_err(|error| format!("list: {error}"))?;
    Ok(format!("{} entries", entries.len()))
}
