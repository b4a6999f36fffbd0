//! Connections take turns: what one moves before others go on, and whose replies leave when.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};

use tarn_nfs::server::{Settings, Shared, Socket, serve_connection};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, DuplexStream, ReadBuf};

use crate::connection::{gated, getattr, write};

const MIB: usize = 1 << 20;
/// What a turn moves, about.
const TURN: usize = 512 << 10;

/// One end of a pair of buffers that counts what is read from it.
struct Counted {
    inner: DuplexStream,
    taken: Arc<AtomicUsize>,
}

impl Socket for Counted {
    fn has_left(&self) -> bool {
        false
    }
}

impl AsyncRead for Counted {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let read = Pin::new(&mut self.inner).poll_read(cx, buf);
        self.taken.fetch_add(buf.filled().len() - before, Ordering::Relaxed);
        read
    }
}

impl AsyncWrite for Counted {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

/// A connection that goes on only when it is told to.
struct Served {
    ours: DuplexStream,
    taken: Arc<AtomicUsize>,
    serve: Pin<Box<dyn Future<Output = ()>>>,
}

impl Served {
    fn new(shared: &Arc<Shared>, port: u16) -> Served {
        let (ours, inner) = tokio::io::duplex(16 * MIB);
        let taken = Arc::new(AtomicUsize::new(0));
        let end = Counted { inner, taken: taken.clone() };
        let served = serve_connection(end, ([127, 0, 0, 1], port).into(), shared.clone());
        Served { ours, taken, serve: Box::pin(async move { drop(served.await) }) }
    }

    /// One poll; the bytes that it took.
    fn turn(&mut self) -> usize {
        let before = self.taken.load(Ordering::Relaxed);
        let ended = self.serve.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        assert!(ended.is_pending(), "the connection has ended");
        self.taken.load(Ordering::Relaxed) - before
    }

    /// Whether replies have left; takes them.
    fn has_answered(&mut self) -> bool {
        let mut room = [0; 4096];
        let mut room = ReadBuf::new(&mut room);
        Pin::new(&mut self.ours).poll_read(&mut Context::from_waker(Waker::noop()), &mut room).is_ready()
    }
}

fn calls(shared: &Shared) -> u64 {
    shared.clients().iter().map(|client| client.calls).sum()
}

#[tokio::test]
async fn a_stream_takes_or_runs_no_more_at_once_than_others_can_wait_for() {
    let (_, server) = gated();
    let shared = Shared::new(server.fs.clone(), server.programs.clone(), server.world.clone(), Settings::default());
    let mut client = server.client();
    let file = client.create(&server.root(), "file").await;
    client.xid = 0;
    let mut stream = Served::new(&shared, 700);
    let message = write(&mut client, &file, 0, &vec![1; MIB]);
    for _ in 0..4 {
        stream.ours.write_all(&message).await.unwrap();
    }
    let mut turns = 0;
    while calls(&shared) < 4 {
        let before = calls(&shared);
        let taken = stream.turn();
        let ran = (calls(&shared) - before) as usize;
        assert!(taken <= TURN + MIB / 8, "{taken} bytes taken");
        assert!(ran <= 1 && (ran == 0 || taken <= MIB / 8), "{ran} writes run, and {taken} bytes taken");
        turns += 1;
        assert!(turns < 20, "it comes to an end");
    }
    assert!(turns >= 12);
}

#[tokio::test]
async fn few_replies_do_not_wait_for_one_that_has_much_to_do() {
    let (_, server) = gated();
    let shared = Shared::new(server.fs.clone(), server.programs.clone(), server.world.clone(), Settings::default());
    let mut client = server.client();
    let file = client.create(&server.root(), "file").await;
    client.xid = 0;
    let (mut stream, mut other) = (Served::new(&shared, 700), Served::new(&shared, 701));
    other.ours.write_all(&getattr(&mut client)).await.unwrap();
    other.turn();
    assert!(!other.has_answered(), "others may have something for the same peer");
    other.turn();
    assert!(other.has_answered());
    stream.ours.write_all(&write(&mut client, &file, 0, &vec![1; MIB])).await.unwrap();
    stream.turn();
    other.ours.write_all(&getattr(&mut client)).await.unwrap();
    other.turn();
    assert!(other.has_answered());
    // And afterwards it is as it was.
    while !stream.has_answered() {
        stream.turn();
    }
    stream.turn();
    other.ours.write_all(&getattr(&mut client)).await.unwrap();
    other.turn();
    assert!(!other.has_answered());
}
