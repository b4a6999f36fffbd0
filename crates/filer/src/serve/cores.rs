//! Serving threads: each runs its own single-threaded executor, and a connection lives on one of them.
//!
//! - Connections are handed over in turn. Letting the kernel spread them over listeners of the same port gave some
//!   threads three times the connections of others.
//! - A serving thread never polls what a disk or a store must answer; that is the background runtime's.
//! - Sockets are looked at after every few turns of connections, or what has just arrived would wait for all turns of
//!   those that always have something to do.
//! - At the end, connections have a moment to answer what they work on; then they are cut.

use std::net::{SocketAddr, TcpStream};
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinSet;

use crate::exit::{Outcome, Stop};
use crate::front::Connection;

/// How long connections may take to answer what they work on when the server ends.
const PATIENCE: Duration = Duration::from_secs(2);

/// Turns of connections, some hundred microseconds each at most, between two looks at the sockets.
const TURNS: u32 = 4;

/// The serving threads.
pub struct Cores {
    cores: Vec<Core>,
    next: usize,
}

struct Core {
    hand_over: UnboundedSender<(TcpStream, SocketAddr)>,
    thread: JoinHandle<()>,
}

impl Cores {
    /// Starts `count` threads that run `serve` for each connection they are given.
    pub fn start(count: usize, serve: &Connection) -> Outcome<Cores> {
        let cores = (0..count).map(|index| start(index, serve.clone())).collect::<Outcome<Vec<Core>>>()?;
        Ok(Cores { cores, next: 0 })
    }

    /// Gives a connection, set to non-blocking, to the thread whose turn it is.
    pub fn hand_over(&mut self, stream: TcpStream, peer: SocketAddr) {
        let core = &self.cores[self.next % self.cores.len()];
        self.next = self.next.wrapping_add(1);
        // A thread that has ended drops the connection, and the client comes again.
        let _ = core.hand_over.send((stream, peer));
    }

    /// Takes no more connections and waits for the threads.
    pub fn stop(self) {
        let threads: Vec<JoinHandle<()>> = self.cores.into_iter().map(|core| core.thread).collect();
        for thread in threads {
            if thread.join().is_err() {
                tracing::error!("a serving thread failed");
            }
        }
    }
}

fn start(index: usize, serve: Connection) -> Outcome<Core> {
    let failed = |error: std::io::Error| Stop::Internal(format!("a serving thread cannot start: {error}"));
    let (hand_over, connections) = unbounded_channel();
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().event_interval(TURNS).build().map_err(failed)?;
    let thread = std::thread::Builder::new()
        .name(format!("serve-{index}"))
        .spawn(move || {
            crate::slice::shorten();
            runtime.block_on(accept(connections, serve));
        })
        .map_err(failed)?;
    Ok(Core { hand_over, thread })
}

async fn accept(mut connections: UnboundedReceiver<(TcpStream, SocketAddr)>, serve: Connection) {
    let mut served = JoinSet::new();
    loop {
        let (stream, peer) = tokio::select! {
            next = connections.recv() => match next {
                Some(next) => next,
                None => break,
            },
            // Keeps the set as small as there are connections.
            Some(_) = served.join_next() => continue,
        };
        match tokio::net::TcpStream::from_std(stream) {
            Ok(stream) => {
                served.spawn(serve(stream, peer));
            }
            Err(error) => tracing::warn!(%peer, "a connection cannot be served: {error}"),
        }
    }
    let _ = tokio::time::timeout(PATIENCE, async { while served.join_next().await.is_some() {} }).await;
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::sync::Arc;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    #[test]
    fn connections_take_turns_and_end_with_the_threads() {
        let serve: Connection = Arc::new(|mut stream, _| {
            Box::pin(async move {
                let name = std::thread::current().name().unwrap_or("?").to_owned();
                let _ = stream.write_all(name.as_bytes()).await;
                let mut end = [0];
                let _ = stream.read(&mut end).await;
            })
        });
        let mut cores = Cores::start(2, &serve).unwrap();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let mut clients = Vec::new();
        for turn in 0..4 {
            let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            client.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
            let (stream, peer) = listener.accept().unwrap();
            stream.set_nonblocking(true).unwrap();
            cores.hand_over(stream, peer);
            let mut name = [0; 7];
            client.read_exact(&mut name).unwrap();
            assert_eq!(name, *format!("serve-{}", turn % 2).as_bytes());
            clients.push(client);
        }
        let end = |mut client: TcpStream| {
            let _ = client.write(&[1]);
            assert!(matches!(client.read(&mut [0; 1]), Ok(0) | Err(_)));
        };
        clients.drain(..2).for_each(end);
        cores.stop();
        clients.drain(..).for_each(end);
    }
}
