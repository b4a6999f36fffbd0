//! Clients for tests: they answer as they are told, and remember what they were asked. And a world whose time
//! passes when the test says so.

use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tarn_base::time::Time;
use tarn_base::world::{BoxFuture, Clock, Random, Spawn, World};
use tokio::sync::{Notify, oneshot};

use super::dial::{Conversation, Dialer, Step};
use crate::portmap::proto::PORT;
use crate::service::Transport;
use crate::wire::rpc::{self, AcceptStatus, Call};
use crate::wire::xdr::Writer;

/// The port that every program of every fake client has.
pub const FAKE_PORT: u16 = 4045;

/// What a client does with a call.
#[derive(Clone)]
pub enum Say {
    Results(Vec<u8>),
    /// As `Results`, once the test says so.
    Held(Arc<Notify>, Vec<u8>),
    Silence,
    /// No such program.
    Refuse,
}

/// A call that a client heard, or would have if the network had let it through.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Heard {
    pub from: Option<IpAddr>,
    pub to: SocketAddr,
    pub transport: Transport,
    pub program: u32,
    pub procedure: u32,
    pub args: Vec<u8>,
}

type Script = Box<dyn FnMut(&Heard) -> Say + Send>;

/// A network of clients.
#[derive(Clone)]
pub struct FakeNet {
    script: Arc<Mutex<Script>>,
    heard: Arc<Mutex<Vec<Heard>>>,
    /// Nobody answers there, the port mapper neither.
    pub dead: Arc<Mutex<Vec<IpAddr>>>,
    /// Transports over which programs are registered.
    pub registered: Arc<Mutex<Vec<Transport>>>,
}

impl FakeNet {
    pub fn new(script: impl FnMut(&Heard) -> Say + Send + 'static) -> FakeNet {
        FakeNet {
            script: Arc::new(Mutex::new(Box::new(script))),
            heard: Arc::default(),
            dead: Arc::default(),
            registered: Arc::new(Mutex::new(vec![Transport::Tcp, Transport::Udp])),
        }
    }

    pub fn script(&self, script: impl FnMut(&Heard) -> Say + Send + 'static) {
        *self.script.lock() = Box::new(script);
    }

    /// What was heard since the last time, but for questions to port mappers.
    pub fn take_heard(&self) -> Vec<Heard> {
        std::mem::take(&mut *self.heard.lock())
    }

    fn answer(&self, heard: Heard, call: &Call<'_>) -> Say {
        if heard.to.port() == PORT {
            let asked = if call.version == 2 {
                if call.args[8..12] == [0, 0, 0, 6] { Transport::Tcp } else { Transport::Udp }
            } else {
                if call.args[12..15] == *b"tcp" { Transport::Tcp } else { Transport::Udp }
            };
            let port = if self.registered.lock().contains(&asked) { FAKE_PORT } else { 0 };
            let mut w = Writer::new();
            match (call.version, port) {
                (2, port) => w.u32(u32::from(port)),
                (_, 0) => w.opaque(b""),
                (_, port) => w.opaque(format!("::.{}.{}", port >> 8, port & 0xff).as_bytes()),
            }
            return Say::Results(w.to_vec());
        }
        let say = (self.script.lock())(&heard);
        self.heard.lock().push(heard);
        say
    }
}

impl Dialer for FakeNet {
    fn dial(
        &self,
        transport: Transport,
        from: Option<IpAddr>,
        to: SocketAddr,
    ) -> BoxFuture<io::Result<Box<dyn Conversation>>> {
        let alive = !self.dead.lock().contains(&to.ip());
        let conversation = FakeConversation { net: self.clone(), transport, from, to, answers: VecDeque::new() };
        Box::pin(async move {
            let conversation: Box<dyn Conversation> = Box::new(conversation);
            if alive { Ok(conversation) } else { Err(io::ErrorKind::HostUnreachable.into()) }
        })
    }
}

struct FakeConversation {
    net: FakeNet,
    transport: Transport,
    from: Option<IpAddr>,
    to: SocketAddr,
    answers: VecDeque<(u32, Say)>,
}

impl Conversation for FakeConversation {
    fn send<'a>(&'a mut self, message: &'a [u8]) -> Step<'a, ()> {
        let call = Call::decode(message).unwrap();
        let heard = Heard {
            from: self.from,
            to: self.to,
            transport: self.transport,
            program: call.program,
            procedure: call.procedure,
            args: call.args.to_vec(),
        };
        let say = self.net.answer(heard, &call);
        self.answers.push_back((call.xid, say));
        Box::pin(std::future::ready(Ok(())))
    }

    fn receive(&mut self) -> Step<'_, Vec<u8>> {
        Box::pin(async move {
            let (xid, say) = match self.answers.pop_front() {
                Some(answer) => answer,
                None => std::future::pending().await,
            };
            let mut w = Writer::new();
            let results = match say {
                Say::Silence => return std::future::pending().await,
                Say::Refuse => {
                    rpc::reply_accept(&mut w, xid, AcceptStatus::ProgramUnavailable);
                    return Ok(w.to_vec());
                }
                Say::Held(release, results) => {
                    release.notified().await;
                    results
                }
                Say::Results(results) => results,
            };
            rpc::reply_success(&mut w, xid);
            w.fixed(&results);
            Ok(w.to_vec())
        })
    }
}

/// Who sleeps, and until when.
type Sleepers = Vec<(Duration, oneshot::Sender<()>)>;

/// Time that passes when the test says so.
#[derive(Clone, Default)]
pub struct HandClock {
    /// The time, and who waits for a later one.
    inner: Arc<Mutex<(Duration, Sleepers)>>,
}

impl HandClock {
    /// Lets `span` pass, step by step, so that what wakes up runs in between.
    pub async fn pass(&self, span: Duration) {
        let end = self.inner.lock().0 + span;
        loop {
            settle().await;
            let mut inner = self.inner.lock();
            let next = inner.1.iter().map(|(at, _)| *at).min().filter(|at| *at <= end);
            inner.0 = next.unwrap_or(end);
            let now = inner.0;
            let (due, later): (Sleepers, Sleepers) =
                std::mem::take(&mut inner.1).into_iter().partition(|(at, _)| *at <= now);
            inner.1 = later;
            for (_, sender) in due {
                let _ = sender.send(());
            }
            if next.is_none() {
                return;
            }
        }
    }
}

/// Lets every task run that can.
pub async fn settle() {
    for _ in 0..50 {
        tokio::task::yield_now().await;
    }
}

impl Clock for HandClock {
    fn now(&self) -> Time {
        Time::from_nanos(1_000_000_000_000_000_000 + self.steady().as_nanos() as i64)
    }

    fn steady(&self) -> Duration {
        self.inner.lock().0
    }

    fn sleep(&self, span: Duration) -> BoxFuture<()> {
        let (sender, receiver) = oneshot::channel();
        let mut inner = self.inner.lock();
        let at = inner.0 + span;
        inner.1.retain(|(_, sender)| !sender.is_closed());
        inner.1.push((at, sender));
        Box::pin(async move { drop(receiver.await) })
    }
}

struct Numbers(Mutex<u64>);

impl Random for Numbers {
    fn fill(&self, out: &mut [u8]) {
        for byte in out {
            let mut next = self.0.lock();
            *next = next.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            *byte = (*next >> 40) as u8;
        }
    }
}

struct OnTokio;

impl Spawn for OnTokio {
    #[allow(clippy::disallowed_methods)]
    fn spawn(&self, _name: &'static str, task: BoxFuture<()>) {
        tokio::spawn(task);
    }
}

/// A world on the test's own runtime.
pub fn world() -> (World, HandClock) {
    let clock = HandClock::default();
    let world =
        World { clock: Arc::new(clock.clone()), random: Arc::new(Numbers(Mutex::new(1))), spawn: Arc::new(OnTokio) };
    (world, clock)
}
