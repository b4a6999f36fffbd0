//! One connection, as a client has it.
//!
//! - The server's end is the front end's own code over a pair of buffers; it lives in a task of the machine.
//! - With each reply goes how much of the log was durable when it left the server.

use std::collections::{BTreeMap, VecDeque};
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use parking_lot::Mutex;
use tarn_base::ids::Position;
use tarn_base::world::World;
use tarn_nfs::server::{Shared, Socket, serve_connection};
use tarn_wal::Log;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream, ReadBuf, ReadHalf, WriteHalf};
use tokio::sync::oneshot;

/// Bytes on their way in either direction.
const BUFFER: usize = 256 << 10;
/// The mark of a record in one fragment.
const LAST: u32 = 1 << 31;

/// A reply.
#[derive(Clone, Debug)]
pub struct Heard {
    pub message: Bytes,
    /// What was durable when it left the server.
    pub durable: Position,
}

type Waiting = Arc<Mutex<BTreeMap<u32, VecDeque<oneshot::Sender<Heard>>>>>;

/// See the head of the file. Closed when it is dropped.
pub struct Line {
    writer: tokio::sync::Mutex<WriteHalf<DuplexStream>>,
    waiting: Waiting,
    _open: oneshot::Sender<()>,
    left: Arc<AtomicBool>,
}

impl Drop for Line {
    fn drop(&mut self) {
        self.left.store(true, Ordering::Relaxed);
    }
}

impl Line {
    /// A connection from `peer`.
    pub fn open(shared: &Arc<Shared>, world: &World, log: &Arc<Log>, peer: SocketAddr) -> Arc<Line> {
        let (ours, theirs) = tokio::io::duplex(BUFFER);
        let departures = Departures::default();
        let left = Arc::new(AtomicBool::new(false));
        let watched = Watched { inner: theirs, log: log.clone(), departures: departures.clone(), left: left.clone() };
        let shared = shared.clone();
        let serve = async move {
            // How a connection ends is the peer's affair.
            let _ = serve_connection(watched, peer, shared).await;
        };
        world.spawn.spawn("connection", Box::pin(serve));
        let (reader, writer) = tokio::io::split(ours);
        let (open, closed) = oneshot::channel();
        let waiting = Waiting::default();
        let take = take_replies(reader, waiting.clone(), departures, closed);
        world.spawn.spawn("replies", Box::pin(take));
        Arc::new(Line { writer: tokio::sync::Mutex::new(writer), waiting, _open: open, left })
    }

    /// Sends a call; its reply comes, unless the connection ends before.
    pub async fn send(&self, xid: u32, message: &[u8]) -> oneshot::Receiver<Heard> {
        let (sender, receiver) = oneshot::channel();
        self.waiting.lock().entry(xid).or_default().push_back(sender);
        let mark = (message.len() as u32 | LAST).to_be_bytes();
        let mut writer = self.writer.lock().await;
        let sent = match writer.write_all(&mark).await {
            Ok(()) => writer.write_all(message).await,
            Err(error) => Err(error),
        };
        if sent.is_err() {
            // Nobody answers here any more.
            self.waiting.lock().clear();
        }
        receiver
    }
}

async fn take_replies(
    mut reader: ReadHalf<DuplexStream>,
    waiting: Waiting,
    departures: Departures,
    mut closed: oneshot::Receiver<()>,
) {
    let mut taken = 0;
    loop {
        let message = tokio::select! {
            biased;
            _ = &mut closed => return,
            message = record(&mut reader) => message,
        };
        let Ok(message) = message else { break };
        taken += 4 + message.len() as u64;
        let durable = departures.lock().at(taken);
        let Some(xid) = message.first_chunk().map(|xid| u32::from_be_bytes(*xid)) else { break };
        let sender = waiting.lock().get_mut(&xid).and_then(VecDeque::pop_front);
        if let Some(sender) = sender {
            // Whoever asked may have gone.
            let _ = sender.send(Heard { message, durable });
        }
    }
    waiting.lock().clear();
}

async fn record(reader: &mut ReadHalf<DuplexStream>) -> io::Result<Bytes> {
    let mut message = vec![0; (reader.read_u32().await? & !LAST) as usize];
    reader.read_exact(&mut message).await?;
    Ok(message.into())
}

/// What was durable when bytes left: (bytes so far, position).
#[derive(Debug, Default)]
struct Departed {
    sum: u64,
    left: VecDeque<(u64, Position)>,
}

type Departures = Arc<Mutex<Departed>>;

impl Departed {
    /// What was durable when the byte before `end` left.
    fn at(&mut self, end: u64) -> Position {
        while self.left.front().is_some_and(|(sum, _)| *sum < end) {
            self.left.pop_front();
        }
        self.left.front().map_or(Position::ZERO, |(_, durable)| *durable)
    }
}

/// The server's end.
struct Watched {
    inner: DuplexStream,
    log: Arc<Log>,
    departures: Departures,
    /// The client has given the connection up.
    left: Arc<AtomicBool>,
}

impl Socket for Watched {
    fn has_left(&self) -> bool {
        self.left.load(Ordering::Relaxed)
    }
}

impl AsyncRead for Watched {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_read(cx, buf)
    }
}

impl Watched {
    fn left(&self, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if let Poll::Ready(Ok(count)) = &written {
            let mut departures = self.departures.lock();
            departures.sum += *count as u64;
            let sum = departures.sum;
            departures.left.push_back((sum, self.log.durable()));
        }
        written
    }
}

impl AsyncWrite for Watched {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.inner).poll_write(cx, buf);
        self.left(written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.inner).poll_write_vectored(cx, slices);
        self.left(written)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}
