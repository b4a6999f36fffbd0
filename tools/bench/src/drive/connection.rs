//! ONC RPC calls (RFC 5531) over one TCP connection, as futures.
//!
//! - Any number of calls is in flight; replies are matched by number, in any order.
//! - A connection that breaks is opened again and the calls in flight are sent again under their numbers, as the
//!   kernel's client does, until the patience is over; that it broke is counted and told.
//! - No reply is trusted: what is short or refused is an error with its reason.

use crate::Outcome;
use crate::drive::reactor::{Reactor, Source};
use crate::stream::{LAST, Stream};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::future::Future;
use std::io::{ErrorKind, IoSlice, Write};
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tarn_nfsclient::xdr::{Reader, Writer};

const NFS: u32 = 100_003;
/// Pieces that go out in one write.
const PIECES_MAX: usize = 32;

/// What went wrong on the way and was got over; shared by all connections of a run.
#[derive(Debug, Default)]
pub struct Trouble {
    /// Connections that broke and were opened again.
    pub reopened: Cell<u64>,
    /// Replies JUKEBOX (RFC 1813, 2.6), waited out.
    pub jukebox: Cell<u64>,
    /// Verifiers of WRITE and COMMIT that changed (RFC 1813, 3.3.21): the server restarted and data was sent again.
    pub verifiers: Cell<u64>,
    /// The longest that a reply was waited for.
    pub longest: Cell<Duration>,
}

/// A reply's results and when they came.
pub struct Answer {
    record: Vec<u8>,
    results: usize,
    pub at: Instant,
}

impl Answer {
    pub fn reader(&self) -> Reader<'_> {
        Reader::new(&self.record[self.results..])
    }
}

struct Waiting {
    task: usize,
    record: Rc<Vec<u8>>,
    sent: Instant,
    answer: Option<Answer>,
}

struct State {
    stream: Stream,
    out: VecDeque<Rc<Vec<u8>>>,
    /// Bytes of the first piece that are gone.
    gone: usize,
    /// Ordered, so that calls are sent again in their order.
    waiting: BTreeMap<u32, Waiting>,
    next: u32,
    touched: bool,
}

struct Shared {
    reactor: Reactor,
    address: SocketAddr,
    source: Cell<usize>,
    /// The credential and verifier of every call.
    who: Vec<u8>,
    patience: Duration,
    trouble: Rc<Trouble>,
    state: RefCell<State>,
}

/// A handle; clones are the same connection.
#[derive(Clone)]
pub struct Connection(Rc<Shared>);

impl Connection {
    /// Calls carry AUTH_SYS of `uid` and `gid`. `first` is the first call's number; it should differ between connections.
    pub fn open(
        reactor: &Reactor,
        address: SocketAddr,
        (uid, gid): (u32, u32),
        first: u32,
        patience: Duration,
        trouble: Rc<Trouble>,
    ) -> Outcome<Connection> {
        let stream = connect(address, Duration::from_secs(10))?;
        let body = Writer::new().u32(0).bytes(b"tarn-bench").u32(uid).u32(gid).u32(0).0;
        let who = Writer::new().u32(1).bytes(&body).u32(0).u32(0).0;
        let socket = stream.socket.try_clone().map_err(|error| error.to_string())?;
        let (out, waiting) = (VecDeque::new(), BTreeMap::new());
        let state = State { stream, out, gone: 0, waiting, next: first, touched: false };
        let shared = Rc::new(Shared {
            reactor: reactor.clone(),
            address,
            source: Cell::new(0),
            who,
            patience,
            trouble,
            state: RefCell::new(state),
        });
        shared.source.set(reactor.add(shared.clone(), &socket)?);
        Ok(Connection(shared))
    }

    pub fn trouble(&self) -> &Trouble {
        &self.0.trouble
    }

    /// Begins a call of NFSv3; `arguments` appends them.
    pub fn call(&self, procedure: u32, arguments: impl FnOnce(&mut Vec<u8>)) -> Call {
        let mut state = self.0.state.borrow_mut();
        let xid = state.next;
        state.next = state.next.wrapping_add(1);
        let header = Writer::new().u32(0).u32(xid).u32(0).u32(2).u32(NFS).u32(3).u32(procedure);
        let mut record = header.0;
        record.extend_from_slice(&self.0.who);
        arguments(&mut record);
        let mark = (record.len() - 4) as u32 | LAST;
        record[..4].copy_from_slice(&mark.to_be_bytes());
        let record = Rc::new(record);
        state.out.push_back(record.clone());
        let task = self.0.reactor.current();
        state.waiting.insert(xid, Waiting { task, record, sent: Instant::now(), answer: None });
        if !std::mem::replace(&mut state.touched, true) {
            self.0.reactor.touch(self.0.source.get());
        }
        Call { shared: self.0.clone(), xid }
    }
}

/// A call in flight; its outcome is the reply.
pub struct Call {
    shared: Rc<Shared>,
    xid: u32,
}

impl Future for Call {
    type Output = Answer;

    fn poll(self: Pin<&mut Self>, _: &mut Context) -> Poll<Answer> {
        let mut state = self.shared.state.borrow_mut();
        let Some(waiting) = state.waiting.get_mut(&self.xid) else { return Poll::Pending };
        waiting.task = self.shared.reactor.current();
        match waiting.answer.take() {
            Some(answer) => {
                state.waiting.remove(&self.xid);
                Poll::Ready(answer)
            }
            None => Poll::Pending,
        }
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        if let Ok(mut state) = self.shared.state.try_borrow_mut() {
            state.waiting.remove(&self.xid);
        }
    }
}

impl Source for Shared {
    fn ready(&self, reactor: &Reactor) -> bool {
        let received = self.receive(reactor);
        match received.and_then(|more| self.send().map(|()| more)) {
            Ok(more) => more,
            Err(error) => {
                self.reopen(reactor, &error);
                false
            }
        }
    }

    fn flush(&self, reactor: &Reactor) {
        self.state.borrow_mut().touched = false;
        if let Err(error) = self.send() {
            self.reopen(reactor, &error);
        }
    }
}

impl Shared {
    /// Takes what one read brings; whether there may be more.
    fn receive(&self, reactor: &Reactor) -> std::io::Result<bool> {
        let mut state = self.state.borrow_mut();
        let State { stream, waiting, .. } = &mut *state;
        let more = stream.fill()?;
        let at = Instant::now();
        while let Some(record) = stream.input.next_record()? {
            let (xid, results) = match accepted(record) {
                Ok(found) => found,
                Err(reason) => {
                    reactor.fail(format!("{}: {reason}", self.address));
                    return Ok(false);
                }
            };
            // A reply to a call that was sent twice comes twice.
            let Some(call) = waiting.get_mut(&xid) else { continue };
            if call.answer.is_none() {
                call.answer = Some(Answer { record: record.to_vec(), results, at });
                self.trouble.longest.set(self.trouble.longest.get().max(at - call.sent));
                reactor.wake(call.task);
            }
        }
        Ok(more)
    }

    fn send(&self) -> std::io::Result<()> {
        let mut state = self.state.borrow_mut();
        let State { stream, out, gone, .. } = &mut *state;
        while !out.is_empty() {
            let mut slices: [IoSlice; PIECES_MAX] = std::array::from_fn(|_| IoSlice::new(&[]));
            let mut count = 0;
            for (slice, piece) in slices.iter_mut().zip(out.iter()) {
                *slice = IoSlice::new(&piece[if count == 0 { *gone } else { 0 }..]);
                count += 1;
            }
            match (&stream.socket).write_vectored(&slices[..count]) {
                Ok(written) => *gone += written,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
            while out.front().is_some_and(|piece| piece.len() <= *gone) {
                *gone -= out.pop_front().map_or(0, |piece| piece.len());
            }
        }
        Ok(())
    }

    /// Opens the connection again and sends what has no answer.
    fn reopen(&self, reactor: &Reactor, error: &std::io::Error) {
        let started = Instant::now();
        let stream = loop {
            match connect(self.address, Duration::from_secs(1)) {
                Ok(stream) => break stream,
                Err(_) if started.elapsed() < self.patience => std::thread::sleep(Duration::from_millis(100)),
                Err(_) => {
                    let waited = started.elapsed().as_secs_f64();
                    return reactor.fail(format!("{}: {error}; no connection for {waited:.0} s", self.address));
                }
            }
        };
        self.trouble.reopened.set(self.trouble.reopened.get() + 1);
        let mut state = self.state.borrow_mut();
        state.stream = stream;
        state.gone = 0;
        state.out =
            state.waiting.values().filter(|call| call.answer.is_none()).map(|call| call.record.clone()).collect();
        if let Err(error) = reactor.watch(self.source.get(), &state.stream.socket) {
            reactor.fail(error);
        }
        // The edge comes with the registration: what is to go goes when the socket is reported writable.
    }
}

fn connect(address: SocketAddr, wait: Duration) -> Outcome<Stream> {
    let socket = tarn_nfsclient::dial::dial(address, wait);
    socket.and_then(Stream::new).map_err(|error| format!("{address}: {error}"))
}

/// The number of an accepted, successful reply and where its results begin (RFC 5531, 9).
fn accepted(record: &[u8]) -> Result<(u32, usize), String> {
    let mut reader = Reader::new(record);
    let mut word = || reader.u32().map_err(|error| error.to_string());
    let (xid, kind, state) = (word()?, word()?, word()?);
    if (kind, state) != (1, 0) {
        return Err("a call was denied".to_owned());
    }
    let _flavor = word()?;
    let _verifier = reader.bytes().map_err(|error| error.to_string())?;
    match reader.u32().map_err(|error| error.to_string())? {
        0 => Ok((xid, record.len() - reader.rest().len())),
        status => Err(format!("a call was refused with status {status} (RFC 5531, 9)")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::net::TcpListener;

    /// Answers each call with its procedure; the first connection is closed after one call without an answer.
    fn server(listener: TcpListener, breaks: bool) {
        for (index, socket) in listener.incoming().enumerate() {
            let mut socket = socket.unwrap();
            let mut mark = [0; 4];
            while socket.read_exact(&mut mark).is_ok() {
                let mut record = vec![0; (u32::from_be_bytes(mark) & !LAST) as usize];
                socket.read_exact(&mut record).unwrap();
                if breaks && index == 0 {
                    break;
                }
                let reply = [&record[..4], &[0, 0, 0, 1], &[0; 16], &record[20..24]].concat();
                socket.write_all(&(reply.len() as u32 | LAST).to_be_bytes()).unwrap();
                socket.write_all(&reply).unwrap();
            }
        }
    }

    fn calls(breaks: bool) -> u64 {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || server(listener, breaks));
        let reactor = Reactor::new().unwrap();
        let trouble = Rc::new(Trouble::default());
        let patience = Duration::from_secs(5);
        let connection = Connection::open(&reactor, address, (0, 0), 9, patience, trouble.clone()).unwrap();
        let answered = Rc::new(Cell::new(0));
        for procedure in 0..40 {
            let (connection, answered) = (connection.clone(), answered.clone());
            reactor.spawn(async move {
                let answer = connection.call(procedure, |_| ()).await;
                assert_eq!(answer.reader().u32().unwrap(), procedure);
                answered.set(answered.get() + 1);
            });
        }
        reactor.run().unwrap();
        assert_eq!(answered.get(), 40);
        trouble.reopened.get()
    }

    #[test]
    fn each_call_gets_its_own_reply() {
        assert_eq!(calls(false), 0);
    }

    #[test]
    fn a_broken_connection_is_opened_again_and_told() {
        assert_eq!(calls(true), 1);
    }
}
