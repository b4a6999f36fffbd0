//! A small RPC client: finds the port of a client's program, calls it, and repeats itself over UDP.
//!
//! - All waiting is bounded, by the world's steady clock.
//! - A port once found is remembered until a call to it fails; then it is asked for again, once: the client may
//!   have restarted.
//! - The transport by which the client came is tried first, then the other.

use std::collections::BTreeMap;
use std::future::Future;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use smallvec::SmallVec;
use tarn_base::world::World;

use super::contact::Contact;
use super::dial::{Conversation, Dialer};
use crate::portmap::proto::{self as portmap, Binding, Mapping, Netid};
use crate::service::Transport;
use crate::wire::rpc::{self, AuthSys, Call, ReplyBody};
use crate::wire::xdr::Writer;

/// How long a connection may take to come about.
const CONNECT_WAIT: Duration = Duration::from_secs(5);
/// How long an answer over TCP may take.
const ANSWER_WAIT_TCP: Duration = Duration::from_secs(8);
/// Waits after each sending of a datagram.
const ANSWER_WAITS_UDP: [Duration; 4] =
    [Duration::from_millis(400), Duration::from_millis(800), Duration::from_millis(1600), Duration::from_millis(3200)];
/// Most ports remembered.
const PORTS_MAX: usize = 4096;
/// The name under which we call.
const MACHINE: &[u8] = b"tarn";

/// Why a client could not be asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallFailed {
    /// The client or the network: try again.
    #[error("the client cannot be reached: {0}")]
    Unreachable(String),
    /// The client: it does not run the service now. Try again when it may have restarted.
    #[error("the client's port mapper does not know the service")]
    NotRegistered,
    /// The client: repeating does not help.
    #[error("the client refuses the call (status {0})")]
    Refused(u32),
    /// The client: repeating does not help.
    #[error("the client's answer cannot be understood")]
    Nonsense,
    /// Us: what was to be said is not true any more.
    #[error("the call is not wanted any more")]
    Withdrawn,
}

/// What a caller sees of a call while it runs.
#[derive(Default)]
pub struct Attempt<'a> {
    /// How often the question itself may have reached the client.
    pub sent: u32,
    /// Asked before each sending: whether the question still makes sense.
    pub wanted: Option<&'a (dyn Fn() -> bool + Send + Sync)>,
}

/// What is asked of a client.
#[derive(Clone, Copy, Debug)]
pub struct Question<'a> {
    pub program: u32,
    pub version: u32,
    pub procedure: u32,
    /// Encoded arguments.
    pub args: &'a [u8],
}

/// Key of a remembered port: client, transport, program, version.
type PortKey = (IpAddr, Transport, u32, u32);

/// Calls clients. Cheap to share; has no tasks of its own.
pub struct Outbound {
    dialer: Arc<dyn Dialer>,
    world: World,
    ports: Mutex<BTreeMap<PortKey, u16>>,
}

impl Outbound {
    pub fn new(dialer: Arc<dyn Dialer>, world: World) -> Outbound {
        Outbound { dialer, world, ports: Mutex::default() }
    }

    /// Asks the client and gives its encoded results. Takes at most about a minute.
    pub async fn call(
        &self,
        contact: &Contact,
        question: Question<'_>,
        attempt: &mut Attempt<'_>,
    ) -> Result<Vec<u8>, CallFailed> {
        let mut first = None;
        for transport in [contact.transport, other(contact.transport)] {
            match self.call_over(transport, contact, question, attempt).await {
                Err(failed @ (CallFailed::Unreachable(_) | CallFailed::NotRegistered)) => {
                    first.get_or_insert(failed);
                }
                settled => return settled,
            }
        }
        Err(first.unwrap_or(CallFailed::NotRegistered))
    }

    async fn call_over(
        &self,
        transport: Transport,
        contact: &Contact,
        question: Question<'_>,
        attempt: &mut Attempt<'_>,
    ) -> Result<Vec<u8>, CallFailed> {
        let key = (contact.client, transport, question.program, question.version);
        let remembered = self.ports.lock().get(&key).copied();
        if let Some(port) = remembered {
            match self.exchange(transport, contact, port, question, attempt).await {
                Err(CallFailed::Withdrawn) => return Err(CallFailed::Withdrawn),
                Ok(results) => return Ok(results),
                Err(_) => self.ports.lock().remove(&key),
            };
        }
        let port = self.find_port(transport, contact, question).await?;
        let results = self.exchange(transport, contact, port, question, attempt).await?;
        let mut ports = self.ports.lock();
        if ports.len() >= PORTS_MAX {
            ports.clear();
        }
        ports.insert(key, port);
        Ok(results)
    }

    /// Asks the client's port mapper: version 2 over IPv4, 4 and 3 over IPv6.
    async fn find_port(
        &self,
        transport: Transport,
        contact: &Contact,
        question: Question<'_>,
    ) -> Result<u16, CallFailed> {
        let netid = Netid::of(transport, contact.client);
        let mut args = Writer::new();
        if netid.is_v4() {
            let (program, version, protocol) = (question.program, question.version, netid.protocol());
            Mapping { program, version, protocol, port: 0 }.encode(&mut args);
        } else {
            let (program, version) = (question.program, question.version);
            let address = portmap::universal(SocketAddr::new(contact.client, portmap::PORT));
            let (netid, address) = (netid.name().as_bytes(), address.as_bytes());
            Binding { program, version, netid, address, owner: b"" }.encode(&mut args);
        }
        let args = args.to_vec();
        let versions: &[u32] = if netid.is_v4() { &[2] } else { &[4, 3] };
        let mut last = CallFailed::NotRegistered;
        for &version in versions {
            let procedure = if version == 2 { portmap::PMAPPROC_GETPORT } else { portmap::RPCBPROC_GETADDR };
            let ask = Question { program: portmap::PROGRAM, version, procedure, args: &args };
            match self.exchange(transport, contact, portmap::PORT, ask, &mut Attempt::default()).await {
                Ok(results) => {
                    let port =
                        if version == 2 { portmap::decode_port(&results) } else { portmap::decode_address(&results) };
                    return port.map_err(|_| CallFailed::Nonsense)?.ok_or(CallFailed::NotRegistered);
                }
                Err(failed @ CallFailed::Refused(_)) => last = failed,
                Err(failed) => return Err(failed),
            }
        }
        Err(last)
    }

    async fn exchange(
        &self,
        transport: Transport,
        contact: &Contact,
        port: u16,
        question: Question<'_>,
        attempt: &mut Attempt<'_>,
    ) -> Result<Vec<u8>, CallFailed> {
        let unreachable = |error: std::io::Error| CallFailed::Unreachable(error.to_string());
        let xid = self.world.random_u64() as u32;
        let mut message = Writer::new();
        let sys = AuthSys { stamp: 0, machine: MACHINE, uid: 0, gid: 0, gids: SmallVec::new() };
        Call::encode(&mut message, xid, question.program, question.version, question.procedure, Some(&sys));
        let mut message = message.to_vec();
        message.extend_from_slice(question.args);

        let dialing = self.dialer.dial(transport, contact.server, SocketAddr::new(contact.client, port));
        let mut conversation = self.within(CONNECT_WAIT, dialing).await?.map_err(unreachable)?;
        let waits: &[Duration] = match transport {
            Transport::Tcp => &[ANSWER_WAIT_TCP],
            Transport::Udp => &ANSWER_WAITS_UDP,
        };
        for &wait in waits {
            if attempt.wanted.is_some_and(|wanted| !wanted()) {
                return Err(CallFailed::Withdrawn);
            }
            attempt.sent += 1;
            self.within(wait, conversation.send(&message)).await?.map_err(unreachable)?;
            if let Ok(answer) = self.within(wait, answer_to(xid, conversation.as_mut())).await {
                return answer;
            }
        }
        Err(silent())
    }

    /// What `future` yields, unless `span` passes first.
    async fn within<T>(&self, span: Duration, future: impl Future<Output = T>) -> Result<T, CallFailed> {
        tokio::select! {
            biased;
            value = future => Ok(value),
            () = self.world.clock.sleep(span) => Err(silent()),
        }
    }
}

fn silent() -> CallFailed {
    CallFailed::Unreachable("no answer in time".into())
}

fn other(transport: Transport) -> Transport {
    match transport {
        Transport::Tcp => Transport::Udp,
        Transport::Udp => Transport::Tcp,
    }
}

/// Waits for the answer to the call `xid`; what belongs to no call of ours is passed over.
async fn answer_to(xid: u32, conversation: &mut dyn Conversation) -> Result<Vec<u8>, CallFailed> {
    loop {
        let message = conversation.receive().await.map_err(|error| CallFailed::Unreachable(error.to_string()))?;
        match rpc::decode_reply(&message) {
            Ok((theirs, _)) if theirs != xid => {}
            Ok((_, ReplyBody::Success(results))) => return Ok(results.to_vec()),
            Ok((_, ReplyBody::Refused(status))) => return Err(CallFailed::Refused(status)),
            Ok((_, ReplyBody::Denied)) => return Err(CallFailed::Refused(u32::MAX)),
            Err(_) => return Err(CallFailed::Nonsense),
        }
    }
}
