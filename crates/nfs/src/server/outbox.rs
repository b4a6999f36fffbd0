//! Replies of one connection: those that may leave, and those that wait for the log.
//!
//! - A reply leaves when its position is durable, never before; others overtake it.
//! - Replies that came in one run wait together, for the highest of their positions: one question to the log.
//! - When the log fails, what waited for it is answered with SYSTEM_ERR: the change may or may not survive, and
//!   no reply may claim either.
//! - Bytes being written are never appended to, so buffers are used again.

use std::collections::VecDeque;
use std::io::IoSlice;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tarn_base::ids::Position;
use tarn_vfs::Answer;

use super::connection::Socket;
use super::shared::Shared;
use crate::service::{Called, Dispatched, STATUS_REFUSED};
use crate::session::record;
use crate::wire::rpc::{self, AcceptStatus};
use crate::wire::xdr::Writer;

/// Memory that an idle buffer keeps, bytes.
const KEEP_SIZE: usize = 64 << 10;
/// Slices of one vectored write.
const SLICES_MAX: usize = 64;
/// Buffers kept for use again.
const SPARE_MAX: usize = 4;

/// A reply on its way.
struct Departure {
    called: Called,
    status: u32,
    started: Duration,
}

/// Replies that wait together.
#[derive(Default)]
struct Group {
    replies: Writer,
    departures: Vec<Departure>,
    position: Position,
}

struct Waiting {
    group: Group,
    durable: Answer<()>,
}

/// All replies of a connection that have not left.
pub(super) struct Outbox {
    peer: SocketAddr,
    /// May leave; appended to.
    ready: Writer,
    /// Being written, from `written` on.
    leaving: Writer,
    written: usize,
    /// Waits, and is joined by what comes in the same run.
    open: Group,
    waiting: VecDeque<Waiting>,
    held: usize,
    spare: Vec<Group>,
}

impl Outbox {
    pub(super) fn new(peer: SocketAddr) -> Outbox {
        Outbox {
            peer,
            ready: Writer::new(),
            leaving: Writer::new(),
            written: 0,
            open: Group::default(),
            waiting: VecDeque::new(),
            held: 0,
            spare: Vec::new(),
        }
    }

    /// Calls whose replies wait for the log.
    pub(super) fn held(&self) -> usize {
        self.held
    }

    /// Bytes that may leave and have not.
    pub(super) fn size(&self) -> usize {
        self.ready.len() + self.leaving.len() - self.written
    }

    /// Appends what `reply` encodes as one record, to leave at its time. Gives back what comes later, and the time.
    pub(super) fn take(
        &mut self,
        shared: &Shared,
        started: Duration,
        reply: impl FnOnce(&mut Writer) -> Dispatched,
    ) -> (Dispatched, Duration) {
        let mark = record::begin(&mut self.ready);
        let dispatched = reply(&mut self.ready);
        let now = shared.now();
        let Dispatched::Replied { called, position, status } = dispatched else {
            self.ready.rewind(mark);
            return (dispatched, now);
        };
        record::end(&mut self.ready, mark);
        if shared.is_durable(position) {
            shared.departs(self.peer, &called, status, now.saturating_sub(started));
        } else {
            self.ready.move_since(mark, &mut self.open.replies);
            self.open.departures.push(Departure { called, status, started });
            self.open.position = self.open.position.max(position);
            self.held += 1;
        }
        (dispatched, now)
    }

    /// Ends a run: what it left waiting begins to wait. Then lets go what has become durable. `true` if anything
    /// may leave that could not before.
    pub(super) fn poll_durable(&mut self, shared: &Shared, cx: &mut Context<'_>) -> bool {
        if !self.open.departures.is_empty() {
            let group = std::mem::replace(&mut self.open, self.spare.pop().unwrap_or_default());
            let durable = shared.fs.durable(group.position);
            self.waiting.push_back(Waiting { group, durable });
        }
        let mut any = false;
        let mut index = 0;
        while index < self.waiting.len() {
            let waiting = &mut self.waiting[index];
            let outcome = if shared.is_durable(waiting.group.position) {
                Poll::Ready(true)
            } else {
                Pin::new(&mut waiting.durable).poll(cx).map(|reply| reply.is_ok())
            };
            let Poll::Ready(durable) = outcome else {
                index += 1;
                continue;
            };
            if let Some(waiting) = self.waiting.remove(index) {
                self.release(shared, waiting.group, durable);
                any = true;
            }
        }
        any
    }

    fn release(&mut self, shared: &Shared, mut group: Group, durable: bool) {
        self.held -= group.departures.len();
        if durable {
            shared.became_durable(group.position);
            group.replies.append_to(&mut self.ready);
        }
        let now = shared.now();
        for departure in group.departures.drain(..) {
            let mut status = departure.status;
            if !durable {
                status = STATUS_REFUSED;
                let mark = record::begin(&mut self.ready);
                rpc::reply_accept(&mut self.ready, departure.called.xid, AcceptStatus::SystemError);
                record::end(&mut self.ready, mark);
            }
            shared.departs(self.peer, &departure.called, status, now.saturating_sub(departure.started));
        }
        if self.spare.len() < SPARE_MAX {
            group.replies.clear(KEEP_SIZE);
            group.position = Position::ZERO;
            self.spare.push(group);
        }
    }

    /// Gives back the memory of a connection with nothing to say.
    pub(super) fn rest(&mut self) {
        if self.size() == 0 && self.held == 0 {
            *self = Outbox::new(self.peer);
        }
    }

    /// Writes as much as the peer takes, or `enough` bytes, which `progress` counts up. Pending when the peer takes no more.
    pub(super) fn poll_write<S: Socket>(
        &mut self,
        stream: &mut S,
        cx: &mut Context<'_>,
        progress: &mut usize,
        enough: usize,
    ) -> Poll<std::io::Result<()>> {
        let limit = *progress + enough;
        while *progress < limit {
            if self.leaving.len() == self.written {
                self.leaving.clear(KEEP_SIZE);
                self.written = 0;
                if self.ready.is_empty() {
                    return Poll::Ready(Ok(()));
                }
                std::mem::swap(&mut self.ready, &mut self.leaving);
            }
            let mut slices = [IoSlice::new(&[]); SLICES_MAX];
            let used = self.leaving.slices(self.written, limit - *progress, &mut slices);
            match stream.poll_send(cx, &slices[..used]) {
                Poll::Ready(Ok(0)) => return Poll::Ready(Err(std::io::ErrorKind::WriteZero.into())),
                Poll::Ready(Ok(count)) => {
                    self.written += count;
                    *progress += count;
                }
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending => return Poll::Pending,
            }
        }
        Poll::Ready(Ok(()))
    }
}
