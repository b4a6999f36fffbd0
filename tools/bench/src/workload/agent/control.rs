//! The controller's side: all agents of a run, what each is told, and what they saw, added up.
//!
//! - A cell begins at one moment: each agent is told how long after the order, less half of its way. Moments are of each
//!   machine's own monotonic clock; no clock is compared with another.
//! - One agent that fails, is silent or goes away ends the run with its name.
//! - Dropping it tells all agents to stop and waits until they have, so that what they made can be taken away.

use super::link::{GREETING_MAX, Link, News, SILENCE, read_frame, write_frame};
use super::message::{Answer, Greeting, Open, Order, Shown, VERSION, decode, encode};
use super::serve;
use super::token::Token;
use crate::Outcome;
use crate::measure::{Meter, Sample};
use crate::workload::generator::{Made, ONCE_MAX, Step, Tally};
use crate::workload::result;
use std::net::{TcpListener, TcpStream, ToSocketAddrs};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// In place of an address: a generator in this process.
pub const HERE: &str = "here";
/// From the order to the beginning of a cell, beside the way there and back.
const LEAD: Duration = Duration::from_millis(250);
/// Longest time between two looks for a signal.
const LOOK: Duration = Duration::from_millis(100);
/// Beyond a cell's end and the patience: for what is in flight then.
const GRACE: Duration = Duration::from_secs(30);
/// Round trips of which the shortest counts.
const PINGS: usize = 20;
const CONNECT_MAX: Duration = Duration::from_secs(5);

struct Agent {
    address: String,
    machine: String,
    link: Link,
    rtt: Duration,
    connections: u64,
    target_rtt_us: f64,
    /// Its connection has been closed by the other side.
    closed: bool,
}

pub struct Agents {
    agents: Vec<Agent>,
    news: Receiver<News>,
    interrupted: Arc<AtomicBool>,
    patience: Duration,
}

impl Agents {
    /// Connects to all and learns how far away each is.
    pub fn connect(addresses: &[String], token: &Token, interrupted: &Arc<AtomicBool>) -> Outcome<Agents> {
        let (sender, news) = channel();
        let mut agents = Vec::new();
        for (number, address) in addresses.iter().enumerate() {
            let failed = |error: String| format!("agent {address}: {error}");
            let mut socket = if address == HERE { here(token) } else { dial(address) }.map_err(failed)?;
            let machine = greet(&mut socket, token).map_err(failed)?;
            let link = Link::new(socket, number, sender.clone()).map_err(|error| failed(error.to_string()))?;
            agents.push(Agent {
                address: address.clone(),
                machine,
                link,
                rtt: Duration::ZERO,
                connections: 0,
                target_rtt_us: 0.0,
                closed: false,
            });
        }
        let mut agents = Agents { agents, news, interrupted: interrupted.clone(), patience: Duration::ZERO };
        for number in 0..agents.agents.len() {
            agents.agents[number].rtt = agents.way_to(number)?;
        }
        Ok(agents)
    }

    /// The shortest of several ways there and back.
    fn way_to(&mut self, number: usize) -> Outcome<Duration> {
        let mut least = Duration::MAX;
        for _ in 0..PINGS {
            let began = Instant::now();
            self.tell(number, &Order::Ping)?;
            self.gather(&[number], SILENCE, &mut || Ok(LOOK))?;
            least = least.min(began.elapsed());
        }
        Ok(least)
    }

    /// Gives all their part of the target. `open` says what part is whose.
    pub fn open(&mut self, patience: Duration, open: impl Fn(usize, usize) -> Open) -> Outcome<()> {
        self.patience = patience;
        let count = self.agents.len();
        let all: Vec<usize> = (0..count).collect();
        for number in &all {
            self.tell(*number, &Order::Open(open(*number, count)))?;
        }
        for (agent, answer) in self.gather(&all, patience + GRACE, &mut || Ok(LOOK))?.into_iter().enumerate() {
            let Answer::Opened { connections, target_rtt_us } = answer else { return Err(self.odd(agent)) };
            (self.agents[agent].connections, self.agents[agent].target_rtt_us) = (connections, target_rtt_us);
        }
        Ok(())
    }

    /// Who they are, for the report.
    pub fn said(&self) -> Vec<result::Generator> {
        let said = |agent: &Agent| result::Generator {
            address: agent.address.clone(),
            machine: agent.machine.clone(),
            rtt_us: agent.rtt.as_secs_f64() * 1e6,
            target_rtt_us: agent.target_rtt_us,
            connections: agent.connections,
        };
        self.agents.iter().map(said).collect()
    }

    pub fn make(&mut self, peak: f64, scale: f64) -> Outcome<Made> {
        let all: Vec<usize> = (0..self.agents.len()).collect();
        for number in &all {
            self.tell(*number, &Order::Make { peak, scale })?;
        }
        let mut sum = Made::default();
        // However long that takes: an agent that makes no way says so itself, one that stalls is silent.
        for (number, answer) in self.gather(&all, Duration::MAX, &mut || Ok(LOOK))?.into_iter().enumerate() {
            let Answer::Made(made) = answer else { return Err(self.odd(number)) };
            sum.files = sum.files.saturating_add(made.files);
            sum.bytes = sum.bytes.saturating_add(made.bytes);
            sum.directories = sum.directories.saturating_add(made.directories);
        }
        Ok(sum)
    }

    /// Runs one cell at all of them. `once`: it takes each file once and ends when all have been taken.
    pub fn measure(&mut self, step: &Step, (warm_up, seconds): (f64, f64), once: bool, meter: Meter) -> Outcome<Tally> {
        let all: Vec<usize> = (0..self.agents.len()).collect();
        let furthest = self.agents.iter().map(|agent| agent.rtt).max().unwrap_or_default();
        let begin = Instant::now() + LEAD + 2 * furthest;
        for number in &all {
            let way = self.agents[*number].rtt / 2;
            let after = begin.saturating_duration_since(Instant::now() + way);
            let after_us = after.as_micros() as u64;
            self.tell(*number, &Order::Measure { step: step.clone(), after_us, warm_up, seconds })?;
        }
        let from = begin + Duration::from_secs_f64(if once { 0.0 } else { warm_up });
        let to = from + Duration::from_secs_f64(if once { ONCE_MAX } else { seconds });
        let most = to.saturating_duration_since(Instant::now()) + self.patience + GRACE;
        let (mut first, mut last): (Option<Sample>, Option<Sample>) = (None, None);
        let mut sample = || {
            for (at, sample) in [(from, &mut first), (to, &mut last)] {
                let now = Instant::now();
                if sample.is_none() && now < at {
                    return Ok(at - now);
                }
                if sample.is_none() {
                    *sample = Some(meter.sample()?);
                }
            }
            Ok(LOOK)
        };
        let answers = self.gather(&all, most, &mut sample)?;
        let mut sum: Option<Tally> = None;
        for (number, answer) in answers.into_iter().enumerate() {
            let Answer::Seen(shown) = answer else { return Err(self.odd(number)) };
            let tally =
                Shown::tally(*shown).map_err(|error| format!("agent {}: {error}", self.agents[number].address))?;
            match &mut sum {
                Some(sum) => sum.add(tally),
                None => sum = Some(tally),
            }
        }
        let mut sum = sum.ok_or("no agent took part")?;
        if !once {
            sum.seconds = seconds;
        }
        let last = last.map_or_else(|| meter.sample(), Ok)?;
        let spent = first.map(|first| last.since(&first));
        sum.server_cpu_s = spent.and_then(|spent| spent.process).map(|spent| spent.as_secs_f64());
        Ok(sum)
    }

    fn tell(&self, number: usize, order: &Order) -> Outcome<()> {
        let agent = &self.agents[number];
        agent.link.send(&encode(order)?).map_err(|error| format!("agent {}: {error}", agent.address))
    }

    fn odd(&self, number: usize) -> String {
        format!("agent {}: an answer to something else", self.agents[number].address)
    }

    /// One answer of each, in the order of `from`. `tick` is called again and again and says how soon it wants to be.
    fn gather(
        &mut self,
        from: &[usize],
        most: Duration,
        tick: &mut dyn FnMut() -> Outcome<Duration>,
    ) -> Outcome<Vec<Answer>> {
        let began = Instant::now();
        let mut answers: Vec<Option<Answer>> = from.iter().map(|_| None).collect();
        while let Some(missing) = answers.iter().position(Option::is_none) {
            if self.interrupted.load(Ordering::Relaxed) {
                return Err("stopped by a signal".to_owned());
            }
            let wait = tick()?.min(LOOK);
            match self.news.recv_timeout(wait) {
                Ok(news) => {
                    let address = self.agents[news.link].address.clone();
                    let failed = |error: String| format!("agent {address}: {error}");
                    if news.frame.is_err() {
                        self.agents[news.link].closed = true;
                    }
                    let answer = match decode(&news.frame.map_err(failed)?).map_err(failed)? {
                        Answer::Failed(reason) => return Err(failed(reason)),
                        answer => answer,
                    };
                    let place = from.iter().position(|number| *number == news.link);
                    match place.map(|place| &mut answers[place]) {
                        Some(place @ None) => *place = Some(answer),
                        _ => return Err(self.odd(news.link)),
                    }
                }
                Err(RecvTimeoutError::Timeout) if began.elapsed() < most => {}
                Err(_) => {
                    let address = &self.agents[from[missing]].address;
                    return Err(format!("agent {address}: no answer for {:.0} s", began.elapsed().as_secs_f64()));
                }
            }
        }
        Ok(answers.into_iter().flatten().collect())
    }
}

impl Drop for Agents {
    fn drop(&mut self) {
        for agent in &self.agents {
            agent.link.finish();
        }
        let began = Instant::now();
        while self.agents.iter().any(|agent| !agent.closed) && began.elapsed() < SILENCE {
            if let Ok(News { link, frame: Err(_), .. }) = self.news.recv_timeout(LOOK) {
                self.agents[link].closed = true;
            }
        }
    }
}

fn dial(address: &str) -> Outcome<TcpStream> {
    let found = address.to_socket_addrs().map_err(|error| format!("not HOST:PORT: {error}"))?.next();
    let found = found.ok_or("its name has no address")?;
    TcpStream::connect_timeout(&found, CONNECT_MAX)
        .map_err(|error| format!("{error}; start `tarn-bench agent --listen ADDRESS:PORT` there"))
}

/// A generator on a thread of this process, behind the same messages.
fn here(token: &Token) -> Outcome<TcpStream> {
    let text = |error: std::io::Error| error.to_string();
    let listener = TcpListener::bind("127.0.0.1:0").map_err(text)?;
    let socket = TcpStream::connect(listener.local_addr().map_err(text)?).map_err(text)?;
    let own = socket.local_addr().map_err(text)?;
    let (agent, peer) = listener.accept().map_err(text)?;
    if peer != own {
        return Err(format!("{peer} came in between"));
    }
    let token = token.clone();
    std::thread::spawn(move || serve::session(agent, &token, Some(Path::new("/"))));
    Ok(socket)
}

/// Exchanges greetings; the agent's machine in words.
fn greet(socket: &mut TcpStream, token: &Token) -> Outcome<String> {
    let failed = |error: std::io::Error| match error.kind() {
        std::io::ErrorKind::WouldBlock => "no greeting; is it busy with another run?".to_owned(),
        _ => error.to_string(),
    };
    socket.set_read_timeout(Some(SILENCE)).map_err(failed)?;
    let own = Greeting { token: token.text().to_owned(), ..Greeting::new() };
    write_frame(&*socket, &encode(&own)?).map_err(failed)?;
    let said: Greeting = decode(&read_frame(socket, GREETING_MAX).map_err(failed)?)?;
    if !said.refused.is_empty() {
        return Err(said.refused);
    }
    match said.tarn_bench_agent {
        VERSION => Ok(said.machine),
        other => {
            Err(format!("it speaks version {other}, this program {VERSION}; run the same tarn-bench on all machines"))
        }
    }
}
