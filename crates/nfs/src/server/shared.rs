//! What all connections of a port have in common.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use tarn_base::ids::Position;
use tarn_base::memory::Memory;
use tarn_base::world::World;
use tarn_vfs::FileSystem;
use tokio::sync::watch;

use super::clients::{ClientInfo, Clients};
use super::counters::Counters;
use super::thread::{self, THREADS};
use crate::service::{self, Called, Dispatched, Programs, Transport};
use crate::wire::rpc::{self, AcceptStatus};
use crate::wire::xdr::Writer;

/// Limits of a connection, and of all together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Calls of one connection that may be worked on or wait for the log. Linux sends at most 128 at a time by
    /// default (65,536 if told to); more than this wait in the socket.
    pub calls_max: usize,
    /// Bytes that calls of one connection which wait for the store may answer before more such calls are begun, though
    /// others leave none of `later_total_max`: at 50 ms a GET it is 640 MiB/s.
    pub later_size_max: usize,
    /// Bytes that those of all connections may answer before each is held to `later_size_max`.
    pub later_total_max: usize,
    /// Bytes of replies that may wait for the peer to take them.
    pub reply_size_max: usize,
    /// A connection that is silent for so long is closed. Longer than Linux's own limit of five minutes.
    pub idle_max: Duration,
    /// A peer that stops amid a message, or takes no replies, for so long is cut off.
    pub stall_max: Duration,
    /// One that stops amid a message is cut off after so long while all such peers together hold more than
    /// `stopped_size_max`.
    pub stopped_max: Duration,
    /// Bytes that messages may hold of which the rest does not come, before less patience is had with each.
    pub stopped_size_max: usize,
    /// Operations that take longer are logged; none is.
    pub slow: Option<Duration>,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            calls_max: 512,
            later_size_max: 32 << 20,
            later_total_max: 16 << 20,
            reply_size_max: 8 << 20,
            idle_max: Duration::from_secs(3600),
            stall_max: Duration::from_secs(60),
            stopped_max: Duration::from_secs(5),
            stopped_size_max: 16 << 20,
            slow: Some(Duration::from_secs(1)),
        }
    }
}

/// What all connections of a port have in common.
pub struct Shared {
    pub(super) fs: Arc<dyn FileSystem>,
    pub(super) programs: Programs,
    pub(super) world: World,
    pub(super) settings: Settings,
    pub(super) clients: Clients,
    /// What large messages are received in.
    pub(super) memory: Memory,
    /// Bytes of messages that connections hold and that wait for their rest.
    pub(super) stopped: AtomicUsize,
    /// Connections that have more to do than their turn lets them, by thread.
    busy: [AtomicUsize; THREADS],
    /// Bytes that all calls which wait for the store may answer.
    pub(super) later: AtomicUsize,
    counters: Counters,
    /// The highest position known durable; saves asking.
    durable: AtomicU64,
    stopping: watch::Sender<bool>,
}

impl Shared {
    pub fn new(fs: Arc<dyn FileSystem>, programs: Programs, world: World, settings: Settings) -> Arc<Shared> {
        let counters = Counters::new(programs.iter().map(|program| &**program));
        Arc::new(Shared {
            memory: fs.memory(),
            fs,
            programs,
            world,
            settings,
            clients: Clients::default(),
            stopped: AtomicUsize::new(0),
            busy: std::array::from_fn(|_| AtomicUsize::new(0)),
            later: AtomicUsize::new(0),
            counters,
            durable: AtomicU64::new(0),
            stopping: watch::Sender::new(false),
        })
    }

    /// Asks all connections to end: what is being worked on is answered, nothing new is read.
    pub fn stop(&self) {
        self.stopping.send_replace(true);
    }

    pub(super) fn stopping(&self) -> watch::Receiver<bool> {
        self.stopping.subscribe()
    }

    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Connections open at present.
    pub fn connections(&self) -> usize {
        self.clients.connections()
    }

    /// Connected clients, by address.
    pub fn clients(&self) -> Vec<ClientInfo> {
        let names: Vec<_> = self.programs.iter().map(|program| program.name()).collect();
        self.clients.list(&names, self.now())
    }

    /// Connections of this thread that have more to do than their turn lets them.
    pub(super) fn busy(&self) -> &AtomicUsize {
        &self.busy[thread::number() % THREADS]
    }

    pub(super) fn now(&self) -> Duration {
        self.world.clock.steady()
    }

    pub(super) fn is_durable(&self, position: Position) -> bool {
        position.0 <= self.durable.load(Ordering::Acquire)
    }

    pub(super) fn became_durable(&self, position: Position) {
        self.durable.fetch_max(position.0, Ordering::AcqRel);
    }

    /// A reply may leave: counts it, and logs it if it was slow.
    pub(super) fn departs(&self, peer: SocketAddr, called: &Called, status: u32, elapsed: Duration) {
        self.counters.count(called, status, elapsed);
        if self.settings.slow.is_some_and(|slow| elapsed > slow) {
            let (program, procedure) = self.counters.names(called);
            let millis = elapsed.as_millis() as u64;
            tracing::warn!(%peer, program, procedure, xid = called.xid, status, millis, "slow operation");
        }
    }
}

/// Answers one datagram; `None` if there is nothing to send.
pub async fn answer_datagram(shared: &Shared, peer: SocketAddr, message: Bytes) -> Option<Vec<u8>> {
    let peer = service::canonical(peer);
    let started = shared.now();
    if shared.fs.awake(started).is_some() {
        return None;
    }
    let mut out = Writer::new();
    let mut dispatched = service::dispatch(&shared.programs, peer, Transport::Udp, &message, &mut out);
    drop(message);
    if let Dispatched::Later { called, reply, .. } = dispatched {
        let (mut results, progress) = reply.await;
        dispatched = service::finish(called, progress, &mut out, |out| results.append_to(out));
    }
    let Dispatched::Replied { called, position, status } = dispatched else { return None };
    if !shared.is_durable(position) {
        match shared.fs.durable(position).await {
            Ok(_) => shared.became_durable(position),
            Err(_) => {
                out = Writer::new();
                rpc::reply_accept(&mut out, called.xid, AcceptStatus::SystemError);
            }
        }
    }
    let now = shared.now();
    if shared.fs.awake(now).is_some() {
        return None;
    }
    shared.departs(peer, &called, status, now.saturating_sub(started));
    Some(out.to_vec())
}

/// Prepares an accepted socket: replies leave at once, and a peer that has gone is noticed.
pub fn prepare(stream: &tokio::net::TcpStream) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let keepalive =
        socket2::TcpKeepalive::new().with_time(Duration::from_secs(60)).with_interval(Duration::from_secs(15));
    socket2::SockRef::from(stream).set_tcp_keepalive(&keepalive)
}
