//! One TCP connection.
//!
//! - A call that memory can answer is read, run and answered in one poll: no task, no channel, no wake-up.
//! - What has arrived is taken in one read, as far as a turn goes, and all replies it leads to leave in one write.
//! - Connections of a core take turns: each moves a bounded number of bytes and calls, then the others go on. Before
//!   replies are written, every other connection that has something runs: one wake-up of a peer serves many replies. Beside one
//!   that has more to do than its turn lets it, few replies do not wait for that.
//! - A large change is taken from the network when the file system has room for it; until then it stays there, and only
//!   its connection waits.
//! - A call that must wait is put aside, and the others go on; replies leave in any order.
//! - A call that will answer much, where enough of them wait for the store already, is begun when one of those is done;
//!   what comes behind it is not held up.
//! - What lay unread when the peer is seen to be gone is never run: it may have come again on another connection, and been
//!   followed by something newer. Whoever was not read for a while is asked before more of it is run.
//! - A node that was stopped for long looks whether the store is still its own before it goes on.
//! - What a connection may hold is bounded: calls in progress, bytes that those will answer, bytes not taken by the peer,
//!   time without progress. Beyond that nothing is read, and the peer feels it.
//! - Peers that stop amid a message are waited for less patiently while all of them together hold much.
//! - A call runs to its end though the connection goes away; only its reply is lost.

use std::collections::VecDeque;
use std::future::Future;
use std::io::IoSlice;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use futures::stream::{FuturesUnordered, StreamExt};
use rustix::event::{PollFd, PollFlags, Timespec};
use tarn_base::world::BoxFuture;
use tarn_vfs::Answer;
use tokio::io::{AsyncRead, AsyncWrite};

use super::clients::Connected;
use super::inbox::{Inbox, READ_SIZE};
use super::outbox::Outbox;
use super::shared::Shared;
use crate::service::{self, Called, Dispatched, LaterReply, Progress, Transport};
use crate::session::record::{Framed, RECORD_SIZE_MAX, RecordError};
use crate::wire::xdr::Writer;

/// Bytes that a connection takes, runs and writes, and calls that it runs, before others of the core get their turn: some
/// hundred microseconds.
const TURN_BYTES: usize = 512 << 10;
const TURN_CALLS: usize = 128;
/// A connection that moved less than this has done little.
const LITTLE: usize = 64 << 10;
/// A message from this size on is a large change, and asks for room.
const LARGE_SIZE: usize = 64 << 10;
/// Messages that are put off are not longer: none that reads is, unless its peer pads it.
const PUT_OFF_SIZE: usize = 2 << 10;
/// After so long a silence the peer may be gone, and what it sent last be old.
const QUIET: Duration = Duration::from_secs(1);
/// How often limits in time are looked at.
const TICK: Duration = Duration::from_secs(5);

/// Why a connection ended otherwise than by the peer closing it.
#[derive(Debug, thiserror::Error)]
pub enum ConnectionError {
    #[error("the connection failed: {0}")]
    Io(#[from] std::io::Error),
    #[error("the peer sent {0}")]
    Record(#[from] RecordError),
    #[error("the peer does not speak RPC")]
    NotRpc,
    #[error("the peer stopped amid a message or took no replies")]
    Stalled,
    #[error("another node has the store")]
    Deposed,
}

/// What a connection runs over.
pub trait Socket: AsyncRead + AsyncWrite + Unpin {
    /// Whether the peer has closed its side or reset the connection, though what it sent before may be unread.
    fn has_left(&self) -> bool;

    /// As `poll_write_vectored`, and what need not be copied may not be. Whoever was told to wait comes again with the same bytes,
    /// and perhaps more.
    fn poll_send(&mut self, cx: &mut Context<'_>, slices: &[IoSlice<'_>]) -> Poll<std::io::Result<usize>> {
        Pin::new(self).poll_write_vectored(cx, slices)
    }
}

impl Socket for tokio::net::TcpStream {
    fn has_left(&self) -> bool {
        let mut asked = [PollFd::new(self, PollFlags::RDHUP)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        rustix::event::poll(&mut asked, Some(&now)).is_ok_and(|found| found > 0)
    }
}

/// Serves `stream` until the peer closes it, breaks the protocol or is silent for too long, or
/// [`Shared::stop`] is called. Never blocks the thread.
pub async fn serve_connection<S>(stream: S, peer: SocketAddr, shared: Arc<Shared>) -> Result<(), ConnectionError>
where
    S: Socket,
{
    let peer = service::canonical(peer);
    let now = shared.now();
    let (id, connected) = shared.clients.enter(peer, shared.world.clock.now(), now);
    let _entry = Entry { shared: &shared, id };
    let mut stopping = shared.stopping();
    let mut stopping = pin!(async move {
        // An error means that nobody is left who could ask for it.
        let _ = stopping.wait_for(|stop| *stop).await;
    });
    let mut connection = Connection {
        shared: &shared,
        connected,
        stream,
        peer,
        inbox: Inbox::new(&shared.memory),
        outbox: Outbox::new(peer),
        later: FuturesUnordered::new(),
        later_size: Part::of(&shared.later),
        deferred: VecDeque::new(),
        unread: true,
        stopped: Part::of(&shared.stopped),
        sleeps: None,
        door: None,
        asked: false,
        busy: Part::of(shared.busy()),
        stood_back: false,
        blocked: false,
        reading: true,
        tick: shared.world.clock.sleep(TICK),
        active: now,
    };
    std::future::poll_fn(move |cx| {
        if connection.reading && stopping.as_mut().poll(cx).is_ready() {
            connection.reading = false;
        }
        connection.poll(cx)
    })
    .await
}

/// Takes the connection off the list, however it ends.
struct Entry<'a> {
    shared: &'a Shared,
    id: u64,
}

impl Drop for Entry<'_> {
    fn drop(&mut self) {
        self.shared.clients.leave(self.id);
    }
}

/// What a connection adds to a sum over all connections.
struct Part<'a> {
    total: &'a AtomicUsize,
    size: usize,
}

impl<'a> Part<'a> {
    fn of(total: &'a AtomicUsize) -> Part<'a> {
        Part { total, size: 0 }
    }

    fn set(&mut self, size: usize) {
        if size != self.size {
            self.total.fetch_add(size, Ordering::Relaxed);
            self.total.fetch_sub(std::mem::replace(&mut self.size, size), Ordering::Relaxed);
        }
    }
}

impl Drop for Part<'_> {
    fn drop(&mut self) {
        self.set(0);
    }
}

/// A call put aside.
struct LaterCall {
    called: Called,
    started: Duration,
    reply: LaterReply,
    /// As in [`Dispatched::Later`].
    size: usize,
}

impl Future for LaterCall {
    type Output = (Called, Duration, usize, Writer, Progress);

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let (results, progress) = ready!(self.reply.as_mut().poll(cx));
        Poll::Ready((self.called, self.started, self.size, results, progress))
    }
}

/// What a connection has done since it was last its turn.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct Turn {
    bytes: usize,
    calls: usize,
}

impl Turn {
    fn is_over(&self) -> bool {
        self.bytes >= TURN_BYTES || self.calls >= TURN_CALLS
    }
}

/// Comes back after every other connection of the core has had its turn and the sockets were looked at.
fn give_way<T>(cx: &mut Context<'_>) -> Poll<T> {
    let _ = pin!(tokio::task::yield_now()).poll(cx);
    Poll::Pending
}

struct Connection<'a, S> {
    shared: &'a Shared,
    connected: Arc<Connected>,
    stream: S,
    peer: SocketAddr,
    inbox: Inbox,
    outbox: Outbox,
    later: FuturesUnordered<LaterCall>,
    /// What these may answer.
    later_size: Part<'a>,
    /// Messages of calls that are begun when fewer of those wait, and when they came.
    deferred: VecDeque<(Bytes, Duration)>,
    /// Something that the peer sent may lie unread for a while.
    unread: bool,
    /// Memory of a message that waits for its rest.
    stopped: Part<'a>,
    /// Nothing goes on before this is over: the node slept.
    sleeps: Option<Answer<()>>,
    /// A large message waits for room.
    door: Option<Answer<()>>,
    /// Room was asked for, for the message that comes.
    asked: bool,
    /// 1 while the next turn is waited for, as there is more to do than one lets.
    busy: Part<'a>,
    /// There are replies to write, and others run before that is done.
    stood_back: bool,
    /// The peer takes no more at present.
    blocked: bool,
    /// Until the peer closes its side or we are asked to stop.
    reading: bool,
    tick: BoxFuture<()>,
    /// When bytes last moved, on the steady clock.
    active: Duration,
}

impl<S: Socket> Connection<'_, S> {
    /// Does all that can be done now.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ConnectionError>> {
        while self.tick.as_mut().poll(cx).is_ready() {
            if self.is_over()? {
                return Poll::Ready(Ok(()));
            }
            self.tick = self.shared.world.clock.sleep(TICK);
        }
        self.busy.set(0);
        let mut now = self.shared.now();
        if self.sleeps.is_none() {
            self.sleeps = self.shared.fs.awake(now);
        }
        if let Some(sleeps) = &mut self.sleeps {
            if ready!(Pin::new(sleeps).poll(cx)).is_err() {
                return Poll::Ready(Err(ConnectionError::Deposed));
            }
            self.sleeps = None;
            self.unread = true;
        }
        let mut turn = Turn::default();
        loop {
            let before = turn;
            if self.stood_back || self.blocked {
                self.stood_back = false;
                self.blocked = self.outbox.poll_write(&mut self.stream, cx, &mut turn.bytes, TURN_BYTES)?.is_pending();
            }
            while !turn.is_over() {
                let Poll::Ready(Some(finished)) = self.later.poll_next_unpin(cx) else { break };
                self.finish_later(finished);
                turn.calls += 1;
            }
            self.run_deferred(&mut turn)?;
            self.poll_calls(cx, &mut turn, now)?;
            let released = self.outbox.poll_durable(self.shared, cx);
            if turn != before || released {
                now = self.shared.now();
                self.active = now;
            }
            self.stood_back = self.outbox.size() > 0 && !self.blocked;
            if turn.is_over() {
                self.busy.set(1);
                return give_way(cx);
            }
            if self.stood_back && (turn.bytes >= LITTLE || self.busy.total.load(Ordering::Relaxed) == 0) {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            if turn == before && !released && !self.stood_back {
                break;
            }
        }
        if !self.reading && self.in_progress() == 0 && !self.blocked {
            return Pin::new(&mut self.stream).poll_shutdown(cx).map_err(ConnectionError::from);
        }
        Poll::Pending
    }

    fn in_progress(&self) -> usize {
        self.later.len() + self.deferred.len() + self.outbox.held()
    }

    /// Whether a call that will answer much may be begun.
    fn may_fetch(&self) -> bool {
        let (shared, settings) = (self.shared, &self.shared.settings);
        self.later_size.size < settings.later_size_max
            || shared.later.load(Ordering::Relaxed) < settings.later_total_max
    }

    /// Whether more calls may be begun.
    fn has_room(&self) -> bool {
        let settings = &self.shared.settings;
        self.in_progress() < settings.calls_max && self.outbox.size() < settings.reply_size_max
    }

    /// Whether the message that comes next may be taken, and what of it is still to come be read.
    fn is_let_in(&mut self, cx: &mut Context<'_>) -> bool {
        if self.door.is_none() && !self.asked {
            let size = self.inbox.announced();
            // One that is longer than any may be is refused without waiting.
            if !(LARGE_SIZE..=RECORD_SIZE_MAX).contains(&size) {
                return true;
            }
            self.asked = true;
            self.door = Some(self.shared.fs.room(size));
        }
        // Whatever the answer, the change itself will hear it too.
        let waits = self.door.as_mut().is_some_and(|door| Pin::new(door).poll(cx).is_pending());
        if !waits {
            self.door = None;
        }
        !waits
    }

    /// Begins calls that were put off.
    fn run_deferred(&mut self, turn: &mut Turn) -> Result<(), ConnectionError> {
        while !turn.is_over()
            && self.may_fetch()
            && self.outbox.size() < self.shared.settings.reply_size_max
            && let Some((message, started)) = self.deferred.pop_front()
        {
            turn.calls += 1;
            self.run(message, started)?;
        }
        Ok(())
    }

    /// Puts a call off, if it will answer much and may not fetch now.
    fn put_off(&mut self, message: &Bytes, now: Duration) -> bool {
        let put_off = !self.may_fetch()
            && message.len() <= PUT_OFF_SIZE
            && service::reply_size(&self.shared.programs, message) > 0;
        if put_off {
            // The memory that it came in is much larger.
            self.deferred.push_back((Bytes::copy_from_slice(message), now));
        }
        put_off
    }

    /// Forgets what was not begun if the peer is gone.
    fn look_for_peer(&mut self) {
        if self.stream.has_left() {
            self.reading = false;
            self.inbox = Inbox::new(&self.shared.memory);
            self.door = None;
            self.deferred.clear();
        }
    }

    /// Reads and runs calls until nothing more has arrived, enough is in progress, or the turn is over.
    fn poll_calls(&mut self, cx: &mut Context<'_>, turn: &mut Turn, mut now: Duration) -> Result<(), ConnectionError> {
        if std::mem::take(&mut self.unread) || now.saturating_sub(self.active) > QUIET {
            self.look_for_peer();
        }
        let begun = turn.calls;
        // Only who waits for its peer, and for nothing of ours, is stopped by it.
        self.stopped.set(0);
        while self.reading && self.has_room() && !turn.is_over() {
            if !self.is_let_in(cx) {
                self.unread = true;
                return Ok(());
            }
            let missing = match self.inbox.next()? {
                Framed::Message(message) => {
                    turn.calls += 1;
                    turn.bytes += message.len();
                    self.asked = false;
                    if !self.put_off(&message, now) {
                        now = self.run(message, now)?;
                    }
                    continue;
                }
                Framed::Missing(missing) => missing,
            };
            if turn.calls > begun && missing <= READ_SIZE && self.inbox.is_empty() {
                // What has been taken is answered before more is read.
                return Ok(());
            }
            let most = TURN_BYTES.saturating_sub(turn.bytes).max(READ_SIZE);
            match self.inbox.poll_read(&mut self.stream, cx, missing, most) {
                Poll::Ready(Ok(0)) => self.reading = false,
                Poll::Ready(Ok(count)) => {
                    turn.bytes += count;
                    self.active = now;
                }
                Poll::Ready(Err(error)) => return Err(error.into()),
                Poll::Pending => {
                    self.stopped.set(self.inbox.holds());
                    return Ok(());
                }
            }
        }
        self.unread = true;
        Ok(())
    }

    /// Runs one call; gives the time afterwards.
    fn run(&mut self, message: Bytes, started: Duration) -> Result<Duration, ConnectionError> {
        let (shared, peer) = (self.shared, self.peer);
        let (dispatched, now) = self
            .outbox
            .take(shared, started, |out| service::dispatch(&shared.programs, peer, Transport::Tcp, &message, out));
        match dispatched {
            Dispatched::Replied { called, .. } => self.connected.called(called.program, now),
            Dispatched::Later { called, reply, size } => {
                self.connected.called(called.program, now);
                self.later_size.set(self.later_size.size + size);
                self.later.push(LaterCall { called, started, reply, size });
            }
            Dispatched::Silent => self.connected.called(None, now),
            Dispatched::Nonsense => return Err(ConnectionError::NotRpc),
        }
        Ok(now)
    }

    fn finish_later(&mut self, finished: <LaterCall as Future>::Output) {
        let (called, started, size, mut results, progress) = finished;
        self.later_size.set(self.later_size.size - size);
        self.outbox
            .take(self.shared, started, |out| service::finish(called, progress, out, |out| results.append_to(out)));
    }

    /// Looks at the limits in time; `true` if an idle connection is to end.
    fn is_over(&mut self) -> Result<bool, ConnectionError> {
        let silent = self.shared.now().saturating_sub(self.active);
        let settings = &self.shared.settings;
        let amid = self.inbox.is_amid() || self.outbox.size() > 0;
        // What was put off waits for the peer, where it takes no replies.
        if self.later.len() + self.outbox.held() > 0 {
            return Ok(false);
        }
        let crowded = self.stopped.size > 0 && self.shared.stopped.load(Ordering::Relaxed) > settings.stopped_size_max;
        if amid && silent > if crowded { settings.stopped_max } else { settings.stall_max } {
            return Err(ConnectionError::Stalled);
        }
        // One that is at work would need it again at once.
        if !amid && silent >= TICK {
            self.outbox.rest();
        }
        Ok(!amid && silent > settings.idle_max)
    }
}
