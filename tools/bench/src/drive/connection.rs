//! ONC RPC calls (RFC 5531) over one TCP connection, as futures.
//!
//! - Any number of calls is in flight; replies are matched by number, in any order.
//! - A connection that breaks is opened again and the calls in flight are sent again under their numbers, as the
//!   kernel's client does, until the patience is over; that it broke is counted and told.
//! - Large records are read, sent and kept in pieces, so that who is due waits for one of them and not for all: memory that is
//!   fresh each time costs as much as the copy into it.
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
/// Bytes that go out before others have their turn.
const SEND_MAX: usize = 256 << 10;
/// Bytes of a call's header and of the arguments that most calls have.
const HEADER: usize = 256;
/// Buffers that are kept, and the least of them that is worth it.
const SPARE_MAX: usize = 64;
const SPARE_BYTES_MIN: usize = 16 << 10;

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

/// Buffers of large records that are not needed any more.
#[derive(Default)]
struct Spare(RefCell<Vec<Vec<u8>>>);

impl Spare {
    /// An empty buffer, for about so many bytes.
    fn take(&self, size: usize) -> Vec<u8> {
        let spare = if size < SPARE_BYTES_MIN { None } else { self.0.borrow_mut().pop() };
        spare.unwrap_or_else(|| Vec::with_capacity(size))
    }

    fn keep(&self, mut buffer: Vec<u8>) {
        let mut spare = self.0.borrow_mut();
        if buffer.capacity() >= SPARE_BYTES_MIN && spare.len() < SPARE_MAX {
            buffer.clear();
            spare.push(buffer);
        }
    }
}

/// A reply's results and when they came.
pub struct Answer {
    record: Vec<u8>,
    results: usize,
    spare: Rc<Spare>,
    pub at: Instant,
}

impl Answer {
    pub fn reader(&self) -> Reader<'_> {
        Reader::new(self.results())
    }

    pub fn results(&self) -> &[u8] {
        &self.record[self.results..]
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        self.spare.keep(std::mem::take(&mut self.record));
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
    spare: Rc<Spare>,
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
            spare: Rc::default(),
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
        let mut record = self.record(procedure, 0);
        arguments(&mut record);
        self.send(record)
    }

    /// A call to which about `size` bytes of arguments are to be appended; [`Connection::send`] begins it.
    pub fn record(&self, procedure: u32, size: usize) -> Vec<u8> {
        let mut record = self.0.spare.take(HEADER + size);
        for word in [0, 0, 0, 2, NFS, 3, procedure] {
            record.extend_from_slice(&word.to_be_bytes());
        }
        record.extend_from_slice(&self.0.who);
        record
    }

    pub fn send(&self, mut record: Vec<u8>) -> Call {
        let mut state = self.0.state.borrow_mut();
        let xid = state.next;
        state.next = state.next.wrapping_add(1);
        let mark = (record.len() - 4) as u32 | LAST;
        record[..4].copy_from_slice(&mark.to_be_bytes());
        record[4..8].copy_from_slice(&xid.to_be_bytes());
        let record = Rc::new(record);
        state.out.push_back(record.clone());
        let task = self.0.reactor.current();
        state.waiting.insert(xid, Waiting { task, record, sent: Instant::now(), answer: None });
        self.0.touch(&mut state);
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
                if let Some(Ok(record)) = state.waiting.remove(&self.xid).map(|call| Rc::try_unwrap(call.record)) {
                    self.shared.spare.keep(record);
                }
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
                let mut kept = self.spare.take(record.len());
                kept.extend_from_slice(record);
                call.answer = Some(Answer { record: kept, results, spare: self.spare.clone(), at });
                self.trouble.longest.set(self.trouble.longest.get().max(at - call.sent));
                reactor.wake(call.task);
            }
        }
        Ok(more)
    }

    /// Has what is to go sent when others have had their turn.
    fn touch(&self, state: &mut State) {
        if !std::mem::replace(&mut state.touched, true) {
            self.reactor.touch(self.source.get());
        }
    }

    fn send(&self) -> std::io::Result<()> {
        let mut state = self.state.borrow_mut();
        let State { stream, out, gone, .. } = &mut *state;
        let mut left = SEND_MAX;
        while !out.is_empty() {
            if left == 0 {
                self.touch(&mut state);
                return Ok(());
            }
            let mut slices: [IoSlice; PIECES_MAX] = std::array::from_fn(|_| IoSlice::new(&[]));
            let (mut count, mut room) = (0, left);
            for (slice, piece) in slices.iter_mut().zip(out.iter()) {
                let rest = &piece[if count == 0 { *gone } else { 0 }..];
                *slice = IoSlice::new(&rest[..rest.len().min(room)]);
                room -= slice.len();
                count += 1;
            }
            match (&stream.socket).write_vectored(&slices[..count]) {
                Ok(written) => {
                    *gone += written;
                    left -= written;
                }
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
