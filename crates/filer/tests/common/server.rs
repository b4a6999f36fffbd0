//! A server under test: started, spoken to, stopped or killed.

#![allow(dead_code)]

use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::process::{Child, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use super::Place;
use super::nfs::Client;

pub struct Server {
    child: Child,
    /// Everything printed up to the command that mounts.
    pub banner: String,
    pub nfs: SocketAddr,
    errors: Receiver<String>,
}

/// Configuration of a small server: a log of 64 MiB, any port, and no care for what the temporary directory is on.
pub const SMALL: &str = "log.size = '64MiB'\nlog.unsafe = true\nnfs.listen = '127.0.0.1:0'\n";

impl Server {
    pub fn start(place: &Place, args: &[&str]) -> Server {
        Server::start_with(place, args, &[])
    }

    /// Starts `tarn serve` with the small configuration, `args` and these environment variables.
    pub fn start_with(place: &Place, args: &[&str], environment: &[(&str, &str)]) -> Server {
        std::fs::write(place.path("small.toml"), SMALL).unwrap();
        let mut command = place.tarn(&["serve", "--config", "small.toml"]);
        command.args(args).envs(environment.iter().copied());
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let errors = lines(child.stderr.take().unwrap());
        Server::listening(child, errors)
    }

    /// As [`Server::start`], but whoever reads what it says on standard error goes away once it serves.
    pub fn start_unheard(place: &Place, args: &[&str]) -> Server {
        std::fs::write(place.path("small.toml"), SMALL).unwrap();
        let (reader, writer) = std::io::pipe().unwrap();
        let mut command = place.tarn(&["serve", "--config", "small.toml"]);
        let child = command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(writer).spawn().unwrap();
        // The command holds the other end of the pipe, too.
        drop(command);
        let server = Server::listening(child, channel().1);
        drop(reader);
        server
    }

    fn listening(mut child: Child, errors: Receiver<String>) -> Server {
        let output = lines(child.stdout.take().unwrap());
        let mut banner = String::new();
        let limit = Instant::now() + Duration::from_secs(60);
        while !banner.contains("    touch /mnt/hello\n") {
            match output.recv_timeout(limit.saturating_duration_since(Instant::now())) {
                Ok(line) => banner.push_str(&(line + "\n")),
                Err(_) => panic!("no server: {banner}\n{}", errors.iter().collect::<Vec<_>>().join("\n")),
            }
        }
        let first = banner.lines().next().unwrap();
        let nfs = first.rsplit(' ').next().unwrap().parse().unwrap();
        Server { child, banner, nfs, errors }
    }

    pub fn mount(&self) -> Client {
        Client::mount(self.nfs, "/vol")
    }

    /// The recovery code, if it was printed.
    pub fn recovery_code(&self) -> Option<String> {
        self.banner
            .lines()
            .map(str::trim)
            .find(|line| line.len() == 63 && line.matches('-').count() == 7)
            .map(str::to_owned)
    }

    /// Asks for the end and waits for it; what was said on standard error.
    pub fn stop(mut self) -> String {
        let id = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(id, rustix::process::Signal::TERM).unwrap();
        let status = self.child.wait().unwrap();
        let errors = self.errors.iter().collect::<Vec<_>>().join("\n");
        assert_eq!(status.code(), Some(0), "{errors}");
        errors
    }

    /// Ends it without a word.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    pub fn hang_up(&self) {
        let id = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(id, rustix::process::Signal::HUP).unwrap();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn lines(from: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(from).lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    receiver
}
