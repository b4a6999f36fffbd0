//! Connections: order, waiting, limits, and one real socket.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use tarn_nfs::server::connection::ConnectionError;
use tarn_nfs::server::{Settings, Shared, Socket, answer_datagram, prepare, serve_connection};
use tarn_nfs::wire::rpc::{ReplyBody, decode_reply};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream, ReadBuf};
use tokio::task::JoinHandle;

use crate::client::*;
use crate::gated::Gated;

/// One end of a pair of buffers. It counts what is read from it, and says when the other has left.
pub struct End {
    inner: DuplexStream,
    left: Arc<AtomicBool>,
    taken: Arc<AtomicUsize>,
}

impl End {
    /// With the other end, that holds so many bytes.
    pub fn new(size: usize) -> (DuplexStream, End) {
        let (ours, inner) = tokio::io::duplex(size);
        (ours, End { inner, left: Arc::default(), taken: Arc::default() })
    }

    /// Bytes that were read.
    pub fn taken(&self) -> Arc<AtomicUsize> {
        self.taken.clone()
    }
}

impl Socket for End {
    fn has_left(&self) -> bool {
        self.left.load(Ordering::Relaxed)
    }
}

impl AsyncRead for End {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let read = Pin::new(&mut self.inner).poll_read(cx, buf);
        self.taken.fetch_add(buf.filled().len() - before, Ordering::Relaxed);
        read
    }
}

impl AsyncWrite for End {
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

type Ended = JoinHandle<Result<(), ConnectionError>>;

fn start(server: &Server, settings: Settings) -> (DuplexStream, Arc<Shared>, Ended) {
    let shared = Shared::new(server.fs.clone(), server.programs.clone(), server.world.clone(), settings);
    let (ours, task) = connect(&shared);
    (ours, shared, task)
}

fn connect(shared: &Arc<Shared>) -> (DuplexStream, Ended) {
    let (ours, task, _) = connect_to_leave(shared);
    (ours, task)
}

/// The flag says that the peer has left.
fn connect_to_leave(shared: &Arc<Shared>) -> (DuplexStream, Ended, Arc<AtomicBool>) {
    let (ours, end) = End::new(256 << 10);
    let left = end.left.clone();
    let peer = "127.0.0.1:700".parse().unwrap();
    (ours, tokio::spawn(serve_connection(end, peer, shared.clone())), left)
}

pub fn gated() -> (Arc<Gated>, Server) {
    let fs = Gated::new();
    (fs.clone(), Server::new(fs, "* rw,no_root_squash,insecure"))
}

fn record(message: &[u8]) -> Vec<u8> {
    [&(message.len() as u32 | 1 << 31).to_be_bytes(), message].concat()
}

async fn receive(stream: &mut (impl AsyncRead + Unpin)) -> Vec<u8> {
    let mark = stream.read_u32().await.unwrap();
    assert!(mark & 1 << 31 != 0);
    let mut message = vec![0; (mark & 0x7fff_ffff) as usize];
    stream.read_exact(&mut message).await.unwrap();
    message
}

/// xid and status of the next reply.
async fn next(stream: &mut (impl AsyncRead + Unpin)) -> (u32, u32) {
    let message = receive(stream).await;
    match decode_reply(&message).unwrap() {
        (xid, ReplyBody::Success(results)) => {
            (xid, results.first_chunk().map_or(0, |status| u32::from_be_bytes(*status)))
        }
        (xid, _) => (xid, u32::MAX),
    }
}

/// Nothing arrives for a while.
async fn is_quiet(stream: &mut (impl AsyncRead + Unpin)) -> bool {
    tokio::time::timeout(Duration::from_millis(50), stream.read_u8()).await.is_err()
}

fn mkdir(client: &mut Client, name: &str) -> Vec<u8> {
    let root = client.server.root();
    record(&client.encode(NFS, 9, |w| dir_op(w, &root, name).sattr(None, None)))
}

pub fn getattr(client: &mut Client) -> Vec<u8> {
    let root = client.server.root();
    record(&client.encode(NFS, 1, |w| w.opaque(&root)))
}

pub fn write(client: &mut Client, handle: &[u8], stable: u32, data: &[u8]) -> Vec<u8> {
    let message = client.encode(NFS, 7, |w| {
        w.opaque(handle);
        w.u64(0);
        w.u32(data.len() as u32);
        w.u32(stable);
        w.opaque(data);
    });
    record(&message)
}

fn read(client: &mut Client, handle: &[u8], count: u32) -> Vec<u8> {
    let message = client.encode(NFS, 6, |w| {
        w.opaque(handle);
        w.u64(0);
        w.u32(count);
    });
    record(&message)
}

#[tokio::test]
async fn a_change_is_answered_when_it_is_durable_and_others_overtake_it() {
    let (fs, server) = gated();
    let (mut stream, _, _task) = start(&server, Settings::default());
    let mut client = server.client();
    let batch = [mkdir(&mut client, "a"), getattr(&mut client), mkdir(&mut client, "b")].concat();
    stream.write_all(&batch).await.unwrap();
    assert_eq!(next(&mut stream).await, (2, 0), "what shows no change goes first");
    assert!(is_quiet(&mut stream).await, "nothing is durable yet");
    assert_eq!(fs.asked.load(Ordering::Relaxed), 1, "what came together asks the log once");
    assert_eq!(fs.flush(true), 1);
    assert_eq!(next(&mut stream).await, (1, 0));
    assert_eq!(next(&mut stream).await, (3, 0));
}

#[tokio::test]
async fn unstable_data_does_not_wait() {
    let (fs, server) = gated();
    let (mut stream, _, _task) = start(&server, Settings::default());
    let mut client = server.client();
    let file = client.create(&server.root(), "file").await;
    client.xid = 0;
    stream.write_all(&write(&mut client, &file, 0, b"data")).await.unwrap();
    assert_eq!(next(&mut stream).await, (1, 0));
    stream.write_all(&write(&mut client, &file, 2, b"data")).await.unwrap();
    assert!(is_quiet(&mut stream).await);
    fs.flush(true);
    assert_eq!(next(&mut stream).await, (2, 0));
}

#[tokio::test]
async fn attributes_that_others_have_changed_wait_though_unstable_data_does_not() {
    let (fs, server) = gated();
    let (mut stream, _, _task) = start(&server, Settings::default());
    let mut client = server.client();
    let file = client.create(&server.root(), "file").await;
    client.xid = 0;
    fs.shown.store(7, Ordering::Relaxed);
    stream.write_all(&write(&mut client, &file, 0, b"data")).await.unwrap();
    assert!(is_quiet(&mut stream).await, "the reply shows a change that is not durable");
    fs.flush(true);
    assert_eq!(next(&mut stream).await, (1, 0));
}

#[tokio::test]
async fn a_failed_log_is_never_answered_with_success() {
    let (fs, server) = gated();
    let (mut stream, _, _task) = start(&server, Settings::default());
    let mut client = server.client();
    stream.write_all(&mkdir(&mut client, "a")).await.unwrap();
    assert!(is_quiet(&mut stream).await);
    fs.flush(false);
    assert_eq!(next(&mut stream).await, (1, u32::MAX), "SYSTEM_ERR");
}

#[tokio::test]
async fn a_large_change_waits_for_room_and_a_small_one_does_not() {
    let (fs, server) = gated();
    let (mut greedy, _, _task) = start(&server, Settings::default());
    let (mut other, _, _other) = start(&server, Settings::default());
    let mut client = server.client();
    let file = client.create(&server.root(), "file").await;
    client.xid = 0;
    fs.crowded.store(true, Ordering::Relaxed);
    greedy.write_all(&write(&mut client, &file, 0, &[1; 200_000])).await.unwrap();
    other.write_all(&write(&mut client, &file, 0, &[2; 4096])).await.unwrap();
    assert_eq!(next(&mut other).await, (2, 0));
    assert!(is_quiet(&mut greedy).await, "the large one is not even taken");
    fs.open();
    assert_eq!(next(&mut greedy).await, (1, 0));
    // Each asks for itself.
    greedy.write_all(&write(&mut client, &file, 0, &[1; 200_000])).await.unwrap();
    assert!(is_quiet(&mut greedy).await);
    fs.open();
    assert_eq!(next(&mut greedy).await, (3, 0));
}

#[tokio::test]
async fn a_call_that_must_fetch_does_not_hold_up_others() {
    let (fs, server) = gated();
    let (mut stream, shared, _task) = start(&server, Settings::default());
    let mut client = server.client();
    let root = server.root();
    let mut r = client
        .nfs(10, |w| {
            dir_op(w, &root, "symlink").sattr(None, None);
            w.opaque(b"target");
        })
        .await;
    r.u32();
    let symlink = r.made().0.unwrap();
    client.xid = 0;
    let later = record(&client.encode(NFS, 5, |w| w.opaque(&symlink)));
    stream.write_all(&[later, getattr(&mut client)].concat()).await.unwrap();
    assert_eq!(next(&mut stream).await, (2, 0));
    assert!(is_quiet(&mut stream).await);
    fs.open();
    let reply = receive(&mut stream).await;
    assert!(reply.ends_with(b"\0\0\0\x06target\0\0"));

    let clients = shared.clients();
    assert_eq!((clients.len(), clients[0].calls, clients[0].connections), (1, 2, 1));
    assert_eq!(clients[0].programs, ["nfs"]);
    let counted = shared.counters().snapshot();
    let calls = |name: &str| counted.iter().find(|stats| stats.procedure == name).unwrap().calls;
    assert_eq!((calls("READLINK"), calls("GETATTR"), calls("READ")), (1, 1, 0));
}

#[tokio::test]
async fn a_connection_takes_no_more_than_it_may_hold() {
    let (fs, server) = gated();
    let (mut stream, _, _task) = start(&server, Settings { calls_max: 2, ..Settings::default() });
    let mut client = server.client();
    let batch: Vec<u8> = (0..5).flat_map(|i| mkdir(&mut client, &format!("d{i}"))).collect();
    stream.write_all(&batch).await.unwrap();
    assert!(is_quiet(&mut stream).await);
    assert!(server.client().lookup(&server.root(), "d1").await.is_ok());
    assert!(server.client().lookup(&server.root(), "d2").await.is_err(), "the third waits its turn");
    for first in [1, 3, 5] {
        while fs.flush(true) == 0 {
            tokio::task::yield_now().await;
        }
        assert_eq!(next(&mut stream).await.0, first);
        if first < 5 {
            assert_eq!(next(&mut stream).await.0, first + 1);
        }
    }
}

/// Five READs that the store answers later, and a GETATTR behind them.
#[tokio::test]
async fn calls_that_will_answer_much_are_begun_a_few_at_a_time_and_hold_nothing_up() {
    let own = Settings { later_size_max: 150_000, later_total_max: 0, ..Settings::default() };
    let of_all = Settings { later_size_max: 0, later_total_max: 350_000, ..Settings::default() };
    for (limits, taken) in [(own, &[2, 2, 1][..]), (of_all, &[4, 1])] {
        let (fs, server) = gated();
        let (mut stream, _, _task) = start(&server, limits);
        let mut client = server.client();
        let file = client.create(&server.root(), "file").await;
        client.xid = 0;
        fs.far.store(true, Ordering::Relaxed);
        for _ in 0..5 {
            stream.write_all(&read(&mut client, &file, 100_000)).await.unwrap();
        }
        stream.write_all(&getattr(&mut client)).await.unwrap();
        assert_eq!(next(&mut stream).await, (6, 0), "what comes behind them does not wait");
        for &now in taken {
            assert!(is_quiet(&mut stream).await);
            assert_eq!(fs.open(), now);
            for _ in 0..now {
                assert_eq!(next(&mut stream).await.1, 0);
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_takes_no_replies_is_cut_off_though_calls_are_put_off() {
    let (fs, server) = gated();
    let limits = Settings {
        later_size_max: 1,
        later_total_max: 0,
        reply_size_max: 1,
        stall_max: Duration::ZERO,
        ..Settings::default()
    };
    let (mut stream, _, task) = start(&server, limits);
    let mut client = server.client();
    let file = client.create(&server.root(), "file").await;
    client.send(write(&mut server.client(), &file, 0, &[1; 200_000])[4..].to_vec()).await;
    fs.far.store(true, Ordering::Relaxed);
    for _ in 0..5 {
        stream.write_all(&read(&mut client, &file, 200_000)).await.unwrap();
    }
    let mut answered = 0;
    for _ in 0..5 {
        tokio::time::sleep(Duration::from_secs(6)).await;
        answered += fs.open();
    }
    tokio::time::sleep(Duration::from_secs(11)).await;
    assert!((1..5).contains(&answered), "{answered} of five were begun");
    assert!(task.is_finished());
    assert!(matches!(task.await.unwrap(), Err(ConnectionError::Stalled)));
}

/// What a client sent on a connection that it gave up has perhaps come again on another, and newer bytes after it.
#[tokio::test]
async fn what_a_peer_that_left_had_sent_is_not_begun_any_more() {
    let (fs, server) = gated();
    let mut client = server.client();
    let file = client.create(&server.root(), "file").await;
    let shared = Shared::new(
        server.fs.clone(),
        server.programs.clone(),
        server.world.clone(),
        Settings { calls_max: 1, ..Settings::default() },
    );
    for crowded in [true, false] {
        let (mut old, task, left) = connect_to_leave(&shared);
        fs.crowded.store(crowded, Ordering::Relaxed);
        if !crowded {
            // One call is in progress, and no more may be.
            old.write_all(&mkdir(&mut client, "busy")).await.unwrap();
        }
        old.write_all(&write(&mut client, &file, 0, &[1; 200_000])).await.unwrap();
        assert!(is_quiet(&mut old).await);
        left.store(true, Ordering::Relaxed);
        fs.crowded.store(false, Ordering::Relaxed);
        let (mut new, _task) = connect(&shared);
        new.write_all(&write(&mut client, &file, 0, &[2; 200_000])).await.unwrap();
        assert_eq!(next(&mut new).await.1, 0);
        fs.open();
        fs.flush(true);
        assert!(is_quiet(&mut old).await || task.is_finished());
        let results = client
            .nfs(6, |w| {
                w.opaque(&file);
                w.u64(0);
                w.u32(16);
            })
            .await;
        assert!(results.bytes.ends_with(&[2; 16]), "the old bytes came back");
        task.await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn stopping_answers_what_was_begun() {
    let (fs, server) = gated();
    let (mut stream, shared, task) = start(&server, Settings::default());
    let mut client = server.client();
    stream.write_all(&mkdir(&mut client, "a")).await.unwrap();
    assert!(is_quiet(&mut stream).await);
    shared.stop();
    stream.write_all(&getattr(&mut client)).await.unwrap();
    assert!(is_quiet(&mut stream).await);
    fs.flush(true);
    assert_eq!(next(&mut stream).await, (1, 0));
    assert_eq!(stream.read(&mut [0; 1]).await.unwrap(), 0, "the connection is closed");
    task.await.unwrap().unwrap();
    assert_eq!(shared.connections(), 0);
}

#[tokio::test]
async fn a_peer_that_makes_no_sense_is_cut_off() {
    let (_, server) = gated();
    let (mut stream, _, task) = start(&server, Settings::default());
    stream.write_all(&record(b"GET / HTTP/1.0\r\n\r\n  ")).await.unwrap();
    assert!(matches!(task.await.unwrap(), Err(ConnectionError::NotRpc)));
    let (mut stream, _, task) = start(&server, Settings::default());
    stream.write_all(b"GET / HTTP/1.0\r\n\r\n").await.unwrap();
    assert!(matches!(task.await.unwrap(), Err(ConnectionError::Record(_))));
}

#[tokio::test]
async fn half_a_peer_still_gets_its_answers() {
    let (_, server) = gated();
    let (mut stream, _, task) = start(&server, Settings::default());
    let mut client = server.client();
    stream.write_all(&getattr(&mut client)).await.unwrap();
    stream.shutdown().await.unwrap();
    assert_eq!(next(&mut stream).await, (1, 0));
    task.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn silence_ends_a_connection_in_the_end() {
    // The clock that sleeps is the paused one, the steady one is real: no silence at all is allowed here.
    let (_, server) = gated();
    let limits = Settings { idle_max: Duration::ZERO, stall_max: Duration::ZERO, ..Settings::default() };
    let (stream, _, task) = start(&server, limits.clone());
    task.await.unwrap().unwrap();
    drop(stream);
    let (mut stream, _, task) = start(&server, limits);
    stream.write_all(&[0x80, 0, 0, 9, 1]).await.unwrap();
    assert!(matches!(task.await.unwrap(), Err(ConnectionError::Stalled)));
}

/// Peers that stop amid a message are cut off early while they hold much together; nobody else is, and what is left of them
/// afterwards is no longer much.
#[tokio::test(start_paused = true)]
async fn peers_that_stop_amid_a_message_are_cut_off_early_when_they_hold_much() {
    let (_, server) = gated();
    let limits = Settings { stopped_max: Duration::ZERO, stopped_size_max: 2 << 20, ..Settings::default() };
    let (mut idle, shared, idling) = start(&server, limits);
    let part = record(&[0; 300 << 10]);
    let mut peers = Vec::new();
    // Three do not hold two mebibytes, eight do.
    for _ in 0..3 {
        let (mut stream, task) = connect(&shared);
        stream.write_all(&part[..part.len() - 1]).await.unwrap();
        peers.push((stream, task));
    }
    tokio::time::sleep(Duration::from_secs(11)).await;
    assert!(peers.iter().all(|(_, task)| !task.is_finished()));
    for _ in 3..8 {
        let (mut stream, task) = connect(&shared);
        stream.write_all(&part[..part.len() - 1]).await.unwrap();
        peers.push((stream, task));
    }
    tokio::time::sleep(Duration::from_secs(11)).await;
    let ended = peers.iter().filter(|(_, task)| task.is_finished()).count();
    assert!((1..8).contains(&ended), "{ended}");
    for (_, task) in peers.into_iter().filter(|(_, task)| task.is_finished()) {
        assert!(matches!(task.await.unwrap(), Err(ConnectionError::Stalled)));
    }
    assert!(!idling.is_finished());
    idle.write_all(&getattr(&mut server.client())).await.unwrap();
    assert_eq!(next(&mut idle).await, (1, 0));
}

#[tokio::test]
async fn a_datagram_waits_for_the_log_as_a_record_does() {
    let (fs, server) = gated();
    let shared = Shared::new(server.fs.clone(), server.programs.clone(), server.world.clone(), Settings::default());
    let peer = "127.0.0.1:700".parse().unwrap();
    let mut client = server.client();
    let mount = client.encode(MOUNT, 1, |w| w.opaque(b"/vol"));
    let reply = answer_datagram(&shared, peer, mount.into()).await.unwrap();
    assert_eq!(reply[32..64], server.root());
    assert_eq!(answer_datagram(&shared, peer, vec![1, 2, 3].into()).await, None);

    for works in [false, true] {
        let message = mkdir(&mut client, if works { "b" } else { "a" }).split_off(4);
        let serving = shared.clone();
        let mut task = tokio::spawn(async move { answer_datagram(&serving, peer, message.into()).await });
        assert!(tokio::time::timeout(Duration::from_millis(50), &mut task).await.is_err());
        fs.flush(works);
        let reply = task.await.unwrap().unwrap();
        assert_eq!(matches!(decode_reply(&reply).unwrap().1, ReplyBody::Success(_)), works);
    }
}

async fn exchange(stream: &mut (impl AsyncRead + AsyncWrite + Unpin), message: &[u8]) -> Vec<u8> {
    stream.write_all(&record(message)).await.unwrap();
    receive(stream).await
}

#[tokio::test]
async fn a_real_socket_carries_a_megabyte_both_ways() {
    let server = Server::open();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let shared = Shared::new(server.fs.clone(), server.programs.clone(), server.world.clone(), Settings::default());
    let serving = shared.clone();
    let task = tokio::spawn(async move {
        let (stream, peer) = listener.accept().await.unwrap();
        prepare(&stream).unwrap();
        serve_connection(stream, peer, serving).await
    });
    let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
    let mut client = server.client();

    let mount = exchange(&mut stream, &client.encode(MOUNT, 1, |w| w.opaque(b"/vol"))).await;
    assert_eq!(mount[32..64], server.root());
    let file = client.create(&server.root(), "file").await;
    let data: Vec<u8> = (0..1u32 << 20).map(|i| (i >> 8) as u8 ^ i as u8).collect();
    stream.write_all(&write(&mut client, &file, 2, &data)).await.unwrap();
    assert_eq!(next(&mut stream).await.1, 0);
    for _ in 0..3 {
        let message = client.encode(NFS, 6, |w| {
            w.opaque(&file);
            w.u64(0);
            w.u32(1 << 20);
        });
        let reply = exchange(&mut stream, &message).await;
        assert!(reply.ends_with(&data));
    }
    // Many calls in one write, in small pieces, one of them in fragments.
    let mut batch: Vec<u8> = (0..200).flat_map(|_| getattr(&mut client)).collect();
    let message = getattr(&mut client).split_off(4);
    batch.extend_from_slice(&10u32.to_be_bytes());
    batch.extend_from_slice(&message[..10]);
    batch.extend_from_slice(&record(&message[10..]));
    for piece in batch.chunks(777) {
        stream.write_all(piece).await.unwrap();
    }
    for _ in 0..201 {
        assert_eq!(next(&mut stream).await.1, 0);
    }
    drop(stream);
    task.await.unwrap().unwrap();
}
