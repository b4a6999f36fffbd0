//! Servers that a test starts for itself on a free loopback port and ends with itself.

use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A running server; killed when dropped.
pub struct Server {
    child: Child,
    pub port: u16,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The program in `$TARN_TEST_BIN`, `$PATH` or `$HOME/go/bin`.
pub fn find(program: &str) -> Option<PathBuf> {
    let own = std::env::var_os("TARN_TEST_BIN").map(PathBuf::from);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let go = std::env::var_os("HOME").map(|home| PathBuf::from(home).join("go/bin"));
    let places = own.into_iter().chain(std::env::split_paths(&path)).chain(go);
    places.map(|place| place.join(program)).find(|file| file.is_file())
}

/// Says in one line that `test` was skipped for want of `program`.
pub fn skipped(test: &str, program: &str) {
    eprintln!("SKIPPED {test}: needs {program}");
}

impl Server {
    /// Starts what `command` makes of a free port and waits until it accepts connections.
    #[allow(clippy::disallowed_methods, reason = "tests make their own world")]
    pub fn start(command: impl FnOnce(u16) -> Command) -> Server {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let child = command(port).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let mut server = Server { child, port };
        let begun = Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(server.child.try_wait().unwrap().is_none(), "the server ended at once");
            assert!(begun.elapsed() < Duration::from_secs(60), "the server does not listen");
            std::thread::sleep(Duration::from_millis(20));
        }
        server
    }
}
