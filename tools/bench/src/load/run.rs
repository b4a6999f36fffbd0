//! The loop: so many connections, so many calls in flight on each.
//!
//! - Closed: a reply is answered by the next call. Open ([`Plan::pace`]): calls are due at fixed times, whatever the
//!   server does; one that finds no free place waits for it, and its latency counts from when it was due. The loop rests
//!   between its turns, which counts too, and goes before everything else on its core: what kept it from a turn would count
//!   as well.
//! - One thread, edge-triggered epoll: all replies of one read are judged, their successors go out in one write.
//! - Whatever is wrong - a status, a short reply, other bytes, a closed connection, silence - ends the run.
//! - What is counted came between the two samples of the processor's time; calls in flight at the end are waited for
//!   and judged, not counted.

use crate::Outcome;
use crate::load::jobs::Job;
use crate::load::latencies::Latencies;
use crate::load::wire::Reply;
use crate::measure::{Meter, RealTime, Sample};
use crate::stream::Stream;
use hdrhistogram::Histogram;
use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use rustix::fd::OwnedFd;
use rustix::thread::set_current_timer_slack;
use std::collections::{BTreeSet, VecDeque};
use std::net::{SocketAddr, TcpStream};
use std::num::NonZeroU64;
use std::time::{Duration, Instant};

/// A server that says nothing for so long is taken for dead.
const SILENCE_MAX: Duration = Duration::from_secs(60);
/// What is left of a wait after the kernel's timer, which counts in milliseconds, is rested through.
const TIMER_GRAIN: Duration = Duration::from_micros(100);
/// An open loop sleeps so long before each look at what has come and what is due, where more is due than the kernel's timer
/// can wait for. One that never sleeps keeps its core busy, and where the server's is busy too, the host of a virtual
/// machine takes pauses of milliseconds, which are then the 99th percentile. The kernel makes it some 40 us.
const REST: Duration = Duration::from_micros(20);
/// How much later than asked for the kernel may wake the loop up, on purpose.
const TIMER_SLACK: NonZeroU64 = NonZeroU64::MIN;
/// Calls in flight on one connection are told apart by the low bits of their numbers.
const DEPTH_BITS: u32 = 8;
/// Most calls in flight on a connection.
pub const DEPTH_MAX: usize = 1 << DEPTH_BITS;

/// Most connections.
const CONNECTIONS_MAX: usize = 1024;

/// Connections x calls in flight on each, as a command line says them.
pub fn shape(text: &str) -> Result<(usize, usize), String> {
    let (connections, depth) = text.split_once('x').ok_or("not CONNECTIONSxDEPTH, such as 8x16")?;
    let number = |text: &str, most: usize| match text.parse() {
        Ok(number) if (1..=most).contains(&number) => Ok(number),
        _ => Err(format!("{text} is not a number from 1 to {most}")),
    };
    Ok((number(connections, CONNECTIONS_MAX)?, number(depth, DEPTH_MAX)?))
}

/// A number above 0 that ends, as a command line says it.
pub fn positive(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(number) if f64::is_finite(number) && number > 0.0 => Ok(number),
        _ => Err("not a number above 0".to_owned()),
    }
}

/// The same, or 0.
pub fn not_negative(text: &str) -> Result<f64, String> {
    if text.parse() == Ok(0.0) { Ok(0.0) } else { positive(text) }
}

#[derive(Clone, Copy, Debug)]
pub enum Length {
    Time(Duration),
    Calls(u64),
}

#[derive(Clone, Copy, Debug)]
pub struct Plan {
    pub connections: usize,
    /// Calls in flight on each connection, at most [`DEPTH_MAX`].
    pub depth: usize,
    /// Before anything is counted. Not used where calls are counted.
    pub warm_up: Duration,
    pub length: Length,
    /// Open loop: calls a second over all connections. `None`: the closed loop.
    pub pace: Option<f64>,
}

/// What was seen between two samples.
pub struct Run {
    pub calls: u64,
    pub elapsed: Duration,
    /// Nanoseconds from a call's write, or from when it was due, to its reply.
    pub latency: Histogram<u64>,
    /// Of each window the 99th percentile by the median: see [`crate::load::latencies`].
    pub tails: Vec<f64>,
    /// What the server took meanwhile.
    pub spent: Sample,
}

#[derive(Clone)]
struct Slot {
    token: u64,
    sent: Instant,
    xid: u32,
    busy: bool,
}

struct Flight {
    stream: Stream,
    slots: Vec<Slot>,
    count: u32,
}

struct Loop<'a> {
    plan: Plan,
    job: &'a mut dyn Job,
    meter: &'a Meter,
    flights: Vec<Flight>,
    epoll: OwnedFd,
    issued: u64,
    in_flight: usize,
    /// Open loop: places without a call, the longest free first; and when the first call was due.
    free: VecDeque<(usize, usize)>,
    first_due: Instant,
    latencies: Latencies,
    calls: u64,
    /// When counting began, and the sample of that moment.
    began: Option<(Instant, Sample)>,
    ended: Option<(Instant, Sample)>,
}

/// Runs `job` against the server at `address`.
pub fn run(address: SocketAddr, plan: Plan, job: &mut dyn Job, meter: &Meter) -> Outcome<Run> {
    let mut state = Loop::new(address, plan, job, meter)?;
    let started = Instant::now();
    if matches!(plan.length, Length::Calls(_)) {
        state.began = Some((started, meter.sample()?));
        state.latencies.begin(started);
    }
    state.first_due = started;
    let _real_time = plan.pace.map(|_| RealTime::take());
    match plan.pace {
        Some(_) => {
            set_current_timer_slack(Some(TIMER_SLACK)).map_err(|error| format!("the timer's slack: {error}"))?;
            let places = (0..plan.depth).flat_map(|slot| (0..plan.connections).map(move |index| (index, slot)));
            state.free = places.collect();
            state.issue_due()?;
        }
        None => {
            for connection in 0..plan.connections {
                for slot in 0..plan.depth {
                    state.issue(connection, slot, started);
                }
                state.flush(connection)?;
            }
        }
    }
    state.until_done(started)?;
    let (Some((began, before)), Some((ended, after))) = (state.began, state.ended) else {
        return Err("a run ended before it was measured".to_owned());
    };
    let (latency, tails) = state.latencies.end()?;
    Ok(Run { calls: state.calls, elapsed: ended - began, latency, tails, spent: after.since(&before) })
}

impl<'a> Loop<'a> {
    fn new(address: SocketAddr, plan: Plan, job: &'a mut dyn Job, meter: &'a Meter) -> Outcome<Loop<'a>> {
        if plan.connections == 0 || plan.depth == 0 || plan.depth > DEPTH_MAX {
            return Err(format!("connections and depth begin at 1, the depth ends at {DEPTH_MAX}"));
        }
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(|error| format!("epoll: {error}"))?;
        let now = Instant::now();
        let mut flights = Vec::new();
        for index in 0..plan.connections {
            let socket = TcpStream::connect_timeout(&address, Duration::from_secs(10));
            let mut stream = socket.and_then(Stream::new).map_err(|error| format!("{address}: {error}"))?;
            stream.input.take_whole(job.whole_one_in());
            let flags = epoll::EventFlags::IN | epoll::EventFlags::OUT | epoll::EventFlags::ET;
            epoll::add(&epoll, &stream.socket, epoll::EventData::new_u64(index as u64), flags)
                .map_err(|error| format!("epoll: {error}"))?;
            let slots = vec![Slot { token: 0, sent: now, xid: 0, busy: false }; plan.depth];
            // Remembered replies of an earlier connection must not be met.
            let count = std::process::id().wrapping_mul(7919).wrapping_add((index as u32) << 16);
            flights.push(Flight { stream, slots, count });
        }
        Ok(Loop {
            plan,
            job,
            meter,
            flights,
            epoll,
            issued: 0,
            in_flight: 0,
            free: VecDeque::new(),
            first_due: now,
            latencies: Latencies::new()?,
            calls: 0,
            began: None,
            ended: None,
        })
    }

    fn until_done(&mut self, started: Instant) -> Outcome<()> {
        let mut events = Vec::with_capacity(self.plan.connections.max(8));
        let mut heard = started;
        while self.in_flight > 0 || (self.plan.pace.is_some() && !self.is_over()) {
            let patience = self.patience();
            if self.plan.pace.is_some() && patience == (Timespec { tv_sec: 0, tv_nsec: 0 }) {
                std::thread::sleep(REST);
            }
            match epoll::wait(&self.epoll, spare_capacity(&mut events), Some(&patience)) {
                Ok(0) if self.in_flight > 0 && heard.elapsed() > SILENCE_MAX => {
                    return Err(format!("the server was silent for {} s", SILENCE_MAX.as_secs()));
                }
                Ok(0) | Err(rustix::io::Errno::INTR) => {}
                Ok(_) => heard = Instant::now(),
                Err(error) => return Err(format!("epoll: {error}")),
            }
            for event in events.drain(..) {
                let connection = event.data.u64() as usize;
                self.receive(connection)?;
                self.flush(connection)?;
            }
            self.pass_time(started)?;
            self.issue_due()?;
        }
        Ok(())
    }

    /// How long to sleep until the next call is due. The kernel's timers are coarser than the last millisecond before.
    fn patience(&self) -> Timespec {
        let until = match self.plan.pace {
            Some(pace) if !self.free.is_empty() && !self.is_over() => {
                self.due(pace).saturating_duration_since(Instant::now()).saturating_sub(TIMER_GRAIN)
            }
            _ => SILENCE_MAX,
        };
        let millis = until.as_millis() as i64;
        Timespec { tv_sec: millis / 1000, tv_nsec: (millis % 1000 * 1_000_000) as _ }
    }

    fn due(&self, pace: f64) -> Instant {
        self.first_due + Duration::from_secs_f64(self.issued as f64 / pace)
    }

    /// Open loop: makes the calls that are due by now and have a place.
    fn issue_due(&mut self) -> Outcome<()> {
        let Some(pace) = self.plan.pace else { return Ok(()) };
        let now = Instant::now();
        let mut touched = BTreeSet::new();
        while !self.is_over() && self.due(pace) <= now {
            let Some((connection, slot)) = self.free.pop_front() else { break };
            self.issue(connection, slot, self.due(pace));
            touched.insert(connection);
        }
        touched.into_iter().try_for_each(|connection| self.flush(connection))
    }

    /// Whether no more calls are made.
    fn is_over(&self) -> bool {
        match self.plan.length {
            Length::Time(_) => self.ended.is_some(),
            Length::Calls(calls) => self.issued == calls,
        }
    }

    /// Begins and ends counting when it is time.
    fn pass_time(&mut self, started: Instant) -> Outcome<()> {
        let now = Instant::now();
        if self.began.is_some() && self.ended.is_none() {
            self.latencies.pass(now)?;
        }
        match (self.plan.length, &self.began, &self.ended) {
            (Length::Time(_), None, _) if now - started >= self.plan.warm_up => {
                self.began = Some((now, self.meter.sample()?));
                self.latencies.begin(now);
            }
            (Length::Time(length), Some((began, _)), None) if now - *began >= length => {
                self.ended = Some((now, self.meter.sample()?));
            }
            (Length::Calls(_), Some(_), None) if self.in_flight == 0 && self.is_over() => {
                self.ended = Some((now, self.meter.sample()?));
            }
            _ => {}
        }
        Ok(())
    }

    fn receive(&mut self, connection: usize) -> Outcome<()> {
        loop {
            let more = self.flights[connection].stream.fill().map_err(|error| error.to_string())?;
            let now = Instant::now();
            while let Some(slot) = self.take_reply(connection, now)? {
                match self.plan.pace {
                    Some(_) => self.free.push_back((connection, slot)),
                    None => self.issue(connection, slot, now),
                }
            }
            if !more {
                return Ok(());
            }
        }
    }

    /// The slot that the next whole reply frees.
    fn take_reply(&mut self, connection: usize, now: Instant) -> Outcome<Option<usize>> {
        let flight = &mut self.flights[connection];
        let Some((head, unseen)) = flight.stream.input.next_head().map_err(|error| error.to_string())? else {
            return Ok(None);
        };
        let mut reply = Reply(head, unseen);
        let xid = reply.accepted()?;
        let index = xid as usize % DEPTH_MAX;
        let slot = flight.slots.get_mut(index).filter(|slot| slot.busy && slot.xid == xid);
        let slot = slot.ok_or("a reply to a call that was not made")?;
        slot.busy = false;
        self.job.judge(slot.token, reply)?;
        self.in_flight -= 1;
        if self.began.is_some() && self.ended.is_none() {
            self.calls += 1;
            self.latencies.record(now.saturating_duration_since(slot.sent));
        }
        Ok(Some(index))
    }

    fn issue(&mut self, connection: usize, slot: usize, now: Instant) {
        if self.is_over() {
            return;
        }
        let flight = &mut self.flights[connection];
        flight.count = flight.count.wrapping_add(1);
        let xid = flight.count << DEPTH_BITS | slot as u32;
        let token = self.job.call(connection, xid, flight.stream.output.tail());
        flight.slots[slot] = Slot { token, sent: now, xid, busy: true };
        self.issued += 1;
        self.in_flight += 1;
    }

    fn flush(&mut self, connection: usize) -> Outcome<()> {
        self.flights[connection].stream.flush().map_err(|error| error.to_string())
    }
}
