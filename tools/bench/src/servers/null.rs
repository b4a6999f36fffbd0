//! The null server, as a process of its own.

use super::{Place, Server};
use crate::Outcome;
use crate::target::Target;

/// Starts this program's null server on the port, with a log on the disk of the place if it is asked for.
pub fn start(place: &Place, port: u16, with_log: bool) -> Outcome<Server> {
    let program = std::env::current_exe().map_err(|error| format!("this program's path: {error}"))?;
    let address = format!("127.0.0.1:{port}");
    let log = place.text("null-log");
    let mut arguments = vec!["null-server", "--listen", &address];
    let name = if with_log { "null server with log" } else { "null server" };
    if with_log {
        arguments.extend(["--wal", &log]);
    }
    let server = place.start(&name.replace(' ', "-"), &program, &arguments)?;
    let mut target = Target::parse(&format!("{name}=nfs://{address}/null"))?;
    target.durability = match with_log {
        true => "FILE_SYNC, CREATE and COMMIT: the record in a log that nobody reads, fdatasync",
        false => "nothing is kept",
    }
    .to_owned();
    server.ready(target, place)
}
