//! Connections take turns: what one moves before others go on, and whose replies leave when.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Waker};

use tarn_nfs::server::{Settings, Shared, serve_connection};
use tokio::io::{AsyncRead, AsyncWriteExt, DuplexStream, ReadBuf};

use crate::client::Server;
use crate::connection::{End, gated, getattr, write};

const MIB: usize = 1 << 20;
/// What a turn moves, about.
const TURN: usize = 512 << 10;

/// A connection that goes on only when it is told to.
struct Served {
    ours: DuplexStream,
    taken: Arc<AtomicUsize>,
    serve: Pin<Box<dyn Future<Output = ()>>>,
}

impl Served {
    fn new(shared: &Arc<Shared>, port: u16) -> Served {
        let (ours, end) = End::new(16 * MIB);
        let taken = end.taken();
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

fn shared(server: &Server) -> Arc<Shared> {
    Shared::new(server.fs.clone(), server.programs.clone(), server.world.clone(), Settings::default())
}

fn calls(shared: &Shared) -> u64 {
    shared.clients().iter().map(|client| client.calls).sum()
}

#[tokio::test]
async fn a_stream_takes_or_runs_no_more_at_once_than_others_can_wait_for() {
    let (_, server) = gated();
    let shared = shared(&server);
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
    let shared = shared(&server);
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
