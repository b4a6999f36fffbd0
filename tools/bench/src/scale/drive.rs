//! The loop: so many connections, so many calls in flight on each, every one a story whose next call follows from its
//! last reply.
//!
//! - One thread. Whatever is wrong - a refusal, a short reply, a closed connection, silence - ends the run.

use crate::Outcome;
use crate::content::mix;
use crate::load::wire::Reply;
use crate::stream::Stream;
use hdrhistogram::Histogram;
use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use rustix::fd::OwnedFd;
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// A server that says nothing for so long is taken for dead.
const SILENCE_MAX: Duration = Duration::from_secs(120);
/// Calls in flight on one connection are told apart by the low bits of their numbers.
const DEPTH_BITS: u32 = 8;
/// And for what each of the first connections counts on its own.
const COUNT_BITS: u32 = 20;

/// What is done, call by call. Slots are numbered over all connections.
pub trait Story {
    /// Appends the next call of a slot, under the number `xid`; false if nothing is left for it.
    fn call(&mut self, slot: usize, xid: u32, out: &mut Vec<u8>) -> bool;
    /// Judges the results of the slot's call.
    fn judge(&mut self, slot: usize, results: Reply) -> Outcome<()>;
}

pub struct Drive {
    pub calls: u64,
    pub elapsed: Duration,
    /// Nanoseconds from a call's write to its reply.
    pub latency: Histogram<u64>,
}

impl Drive {
    /// Of `what` per second.
    pub fn rate(&self, what: u64) -> f64 {
        what as f64 / self.elapsed.as_secs_f64()
    }

    /// Microseconds.
    pub fn quantile(&self, quantile: f64) -> f64 {
        self.latency.value_at_quantile(quantile) as f64 / 1000.0
    }
}

struct Flight {
    stream: Stream,
    /// When the call in flight of each slot was made, and its number.
    sent: Vec<Option<(Instant, u32)>>,
    count: u32,
}

struct Loop<'a> {
    depth: usize,
    story: &'a mut dyn Story,
    flights: Vec<Flight>,
    epoll: OwnedFd,
    in_flight: usize,
    calls: u64,
    latency: Histogram<u64>,
}

/// Runs every slot's story to its end.
pub fn drive(address: SocketAddr, (connections, depth): (usize, usize), story: &mut dyn Story) -> Outcome<Drive> {
    let mut state = Loop::new(address, connections, depth, story)?;
    let started = Instant::now();
    for connection in 0..connections {
        for slot in 0..depth {
            state.issue(connection, slot, started);
        }
        state.flush(connection)?;
    }
    state.until_done()?;
    Ok(Drive { calls: state.calls, elapsed: started.elapsed(), latency: state.latency })
}

impl<'a> Loop<'a> {
    fn new(address: SocketAddr, connections: usize, depth: usize, story: &'a mut dyn Story) -> Outcome<Loop<'a>> {
        if connections == 0 || depth == 0 || depth > 1 << DEPTH_BITS {
            return Err(format!("connections and depth begin at 1, the depth ends at {}", 1 << DEPTH_BITS));
        }
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(|error| format!("epoll: {error}"))?;
        let mut flights = Vec::new();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64);
        let seed = mix(now) as u32;
        for index in 0..connections {
            let socket = TcpStream::connect_timeout(&address, Duration::from_secs(10));
            let stream = socket.and_then(Stream::new).map_err(|error| format!("{address}: {error}"))?;
            let flags = epoll::EventFlags::IN | epoll::EventFlags::OUT | epoll::EventFlags::ET;
            epoll::add(&epoll, &stream.socket, epoll::EventData::new_u64(index as u64), flags)
                .map_err(|error| format!("epoll: {error}"))?;
            // Remembered replies of an earlier connection must not be met, nor may two that are open have the same numbers: of
            // two WRITEs that look the same the one on the earlier connection is taken for a copy that comes late.
            let count = seed.wrapping_add((index as u32) << COUNT_BITS);
            flights.push(Flight { stream, sent: vec![None; depth], count });
        }
        let latency = Histogram::new_with_bounds(100, 100_000_000_000, 3).map_err(|error| error.to_string())?;
        Ok(Loop { depth, story, flights, epoll, in_flight: 0, calls: 0, latency })
    }

    fn until_done(&mut self) -> Outcome<()> {
        let mut events = Vec::with_capacity(self.flights.len().max(8));
        let silence = Timespec { tv_sec: SILENCE_MAX.as_secs() as i64, tv_nsec: 0 };
        while self.in_flight > 0 {
            match epoll::wait(&self.epoll, spare_capacity(&mut events), Some(&silence)) {
                Ok(0) => return Err(format!("the server was silent for {} s", SILENCE_MAX.as_secs())),
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(format!("epoll: {error}")),
            }
            for event in events.drain(..) {
                let connection = event.data.u64() as usize;
                self.receive(connection)?;
                self.flush(connection)?;
            }
        }
        Ok(())
    }

    fn receive(&mut self, connection: usize) -> Outcome<()> {
        loop {
            let more = self.flights[connection].stream.fill().map_err(|error| error.to_string())?;
            let now = Instant::now();
            while let Some(slot) = self.take_reply(connection, now)? {
                self.issue(connection, slot, now);
            }
            if !more {
                return Ok(());
            }
        }
    }

    /// The slot that the next whole reply frees.
    fn take_reply(&mut self, connection: usize, now: Instant) -> Outcome<Option<usize>> {
        let flight = &mut self.flights[connection];
        let Some(record) = flight.stream.input.next_record().map_err(|error| error.to_string())? else {
            return Ok(None);
        };
        let mut reply = Reply(record, 0);
        let xid = reply.accepted()?;
        let slot = (xid & ((1 << DEPTH_BITS) - 1)) as usize;
        let sent = flight.sent.get_mut(slot).and_then(|held| held.take_if(|(_, number)| *number == xid));
        let (sent, _) = sent.ok_or("a reply to a call that was not made")?;
        self.story.judge(connection * self.depth + slot, reply)?;
        self.in_flight -= 1;
        self.calls += 1;
        self.latency.saturating_record((now - sent).as_nanos() as u64);
        Ok(Some(slot))
    }

    fn issue(&mut self, connection: usize, slot: usize, now: Instant) {
        let flight = &mut self.flights[connection];
        flight.count = flight.count.wrapping_add(1);
        let xid = flight.count << DEPTH_BITS | slot as u32;
        if self.story.call(connection * self.depth + slot, xid, flight.stream.output.tail()) {
            flight.sent[slot] = Some((now, xid));
            self.in_flight += 1;
        }
    }

    fn flush(&mut self, connection: usize) -> Outcome<()> {
        self.flights[connection].stream.flush().map_err(|error| error.to_string())
    }
}
