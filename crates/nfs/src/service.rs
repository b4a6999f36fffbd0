//! How programs share a port: a call comes in, the program of its number answers.
//!
//! - A program answers within the call wherever memory suffices. Only what must be fetched becomes a future.
//! - A reply is encoded when the operation is done and leaves when its position is durable; whoever runs the
//!   connection sees to that, so no program waits for the log itself.
//! - Header, refusals and framing are written here, never by a program.

use std::future::Future;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::ops::RangeInclusive;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use tarn_base::ids::Position;
use tarn_vfs::ClientId;

use crate::wire::rpc::{self, AcceptStatus, AuthStatus, Call, CallError};
use crate::wire::xdr::Writer;

/// What carries the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Transport {
    Tcp,
    Udp,
}

/// Where a call came from.
#[derive(Clone, Copy, Debug)]
pub struct CallContext<'a> {
    /// Address and port; an IPv4 address mapped into IPv6 is unmapped ([`canonical`]).
    pub peer: SocketAddr,
    pub transport: Transport,
    /// The whole message; `call.args` is part of it, so [`Bytes::slice_ref`] gives payloads without a copy. Must
    /// not be kept beyond the call.
    pub message: &'a Bytes,
}

impl CallContext<'_> {
    /// The client as the file system names it: its address in 128 bits, without the port.
    pub fn client(&self) -> ClientId {
        client_id(self.peer.ip())
    }
}

/// `address` with IPv4 mapped into IPv6, as one number.
pub fn client_id(address: IpAddr) -> ClientId {
    let v6: Ipv6Addr = match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        IpAddr::V6(v6) => v6,
    };
    ClientId(v6.to_bits())
}

/// `peer` as rules and lists know it: `::ffff:a.b.c.d` is `a.b.c.d`.
pub fn canonical(peer: SocketAddr) -> SocketAddr {
    SocketAddr::new(peer.ip().to_canonical(), peer.port())
}

/// What a program did with a call.
pub enum Progress {
    /// The results are encoded. They leave once `position` is durable, at once if it is zero. `status` is the
    /// program's own status, for the counters; 0 is success.
    Done { position: Position, status: u32 },
    /// The results come.
    Later(LaterReply),
    /// The call has no results; whatever was encoded is dropped.
    Refused(AcceptStatus),
    /// The credential does not do.
    Denied(AuthStatus),
    /// The procedure has no reply.
    Silent,
}

impl Progress {
    /// Encoded, and may leave at once.
    pub fn now(status: u32) -> Progress {
        Progress::Done { position: Position::ZERO, status }
    }
}

/// Results that come: encoded into a writer of their own, with what became of the call ([`Progress::Later`] again
/// is not allowed and taken for a system error).
pub type LaterReply = Pin<Box<dyn Future<Output = (Writer, Progress)> + Send>>;

/// An RPC program. One object serves all connections and cores.
pub trait Program: Send + Sync {
    /// Its number (RFC 5531 section 13).
    fn number(&self) -> u32;

    /// The versions it serves.
    fn versions(&self) -> RangeInclusive<u32>;

    /// For counters and listings: "nfs".
    fn name(&self) -> &'static str;

    /// Names of its procedures by number, for counters and the log; "" where a number is not used.
    fn procedures(&self) -> &'static [&'static str];

    /// Runs a call of a version it serves. Appends results, without any header, to `reply`.
    fn call(&self, cx: &CallContext<'_>, call: &Call<'_>, reply: &mut Writer) -> Progress;

    /// Bytes that the reply to a call may be as long as, where its client says it; 0: it is short.
    fn reply_size(&self, _call: &Call<'_>) -> usize {
        0
    }
}

/// The programs of one port, in no particular order; numbers differ.
pub type Programs = Vec<Arc<dyn Program>>;

/// Which procedure of which program of a [`Programs`] a reply belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Called {
    pub xid: u32,
    /// Index into the list of programs; `None` if the call did not get as far.
    pub program: Option<usize>,
    pub procedure: u32,
}

/// What came of a message.
pub enum Dispatched {
    /// A whole reply was appended. It leaves once `position` is durable. `status` is the program's status.
    Replied { called: Called, position: Position, status: u32 },
    /// [`finish`] makes the reply of what this yields, which may be as long as `size` says ([`reply_size`]).
    Later { called: Called, reply: LaterReply, size: usize },
    /// Nothing is to be sent.
    Silent,
    /// The peer does not speak RPC; a connection had better be closed.
    Nonsense,
}

/// Status counted for a call that was refused before a program gave one.
pub const STATUS_REFUSED: u32 = u32::MAX;

/// Runs the call in `message` and appends the reply to `out`, without record mark.
pub fn dispatch(
    programs: &[Arc<dyn Program>],
    peer: SocketAddr,
    transport: Transport,
    message: &Bytes,
    out: &mut Writer,
) -> Dispatched {
    let call = match Call::decode(message) {
        Ok(call) => call,
        Err(error) => return refuse_undecoded(error, out),
    };
    let index = programs.iter().position(|program| program.number() == call.program);
    let called = Called { xid: call.xid, program: index, procedure: call.procedure };
    let Some(program) = index.map(|index| &programs[index]) else {
        return finish(called, Progress::Refused(AcceptStatus::ProgramUnavailable), out, |_| ());
    };
    let versions = program.versions();
    if !versions.contains(&call.version) {
        let status = AcceptStatus::ProgramMismatch { low: *versions.start(), high: *versions.end() };
        return finish(called, Progress::Refused(status), out, |_| ());
    }
    let mark = out.mark();
    rpc::reply_success(out, call.xid);
    let cx = CallContext { peer, transport, message };
    match program.call(&cx, &call, out) {
        Progress::Done { position, status } => Dispatched::Replied { called, position, status },
        Progress::Later(reply) => {
            out.rewind(mark);
            Dispatched::Later { called, reply, size: program.reply_size(&call) }
        }
        other => {
            out.rewind(mark);
            finish(called, other, out, |_| ())
        }
    }
}

/// As [`Program::reply_size`], of the call in `message`.
pub fn reply_size(programs: &[Arc<dyn Program>], message: &[u8]) -> usize {
    let Ok(call) = Call::decode(message) else { return 0 };
    programs.iter().find(|program| program.number() == call.program).map_or(0, |program| program.reply_size(&call))
}

fn refuse_undecoded(error: CallError, out: &mut Writer) -> Dispatched {
    let xid = match error {
        CallError::NotACall => return Dispatched::Nonsense,
        CallError::RpcVersion { xid } => {
            rpc::reply_rpc_mismatch(out, xid);
            xid
        }
        CallError::Auth { xid, status } => {
            rpc::reply_denied(out, xid, status);
            xid
        }
    };
    let called = Called { xid, program: None, procedure: 0 };
    Dispatched::Replied { called, position: Position::ZERO, status: STATUS_REFUSED }
}

/// Appends the reply that `progress` says to `out`; `results` appends the results, if there are any.
pub fn finish(called: Called, progress: Progress, out: &mut Writer, results: impl FnOnce(&mut Writer)) -> Dispatched {
    let xid = called.xid;
    match progress {
        Progress::Done { position, status } => {
            rpc::reply_success(out, xid);
            results(out);
            return Dispatched::Replied { called, position, status };
        }
        Progress::Silent => return Dispatched::Silent,
        Progress::Refused(status) => rpc::reply_accept(out, xid, status),
        Progress::Denied(status) => rpc::reply_denied(out, xid, status),
        Progress::Later(_) => rpc::reply_accept(out, xid, AcceptStatus::SystemError),
    }
    Dispatched::Replied { called, position: Position::ZERO, status: STATUS_REFUSED }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) struct Echo;

    impl Program for Echo {
        fn number(&self) -> u32 {
            300
        }
        fn versions(&self) -> RangeInclusive<u32> {
            2..=3
        }
        fn name(&self) -> &'static str {
            "echo"
        }
        fn procedures(&self) -> &'static [&'static str] {
            &["ECHO", "LATER", "GARBAGE"]
        }
        fn call(&self, _: &CallContext<'_>, call: &Call<'_>, reply: &mut Writer) -> Progress {
            reply.u32(42);
            match call.procedure {
                0 => Progress::now(0),
                1 => Progress::Later(Box::pin(async { (Writer::new(), Progress::now(0)) })),
                _ => Progress::Refused(AcceptStatus::GarbageArguments),
            }
        }
    }

    fn run(program: u32, version: u32, procedure: u32) -> (Dispatched, Vec<u8>) {
        let programs: Programs = vec![Arc::new(Echo)];
        let mut w = Writer::new();
        Call::encode(&mut w, 1, program, version, procedure, None);
        let mut out = Writer::new();
        let peer = "127.0.0.1:700".parse().unwrap();
        let dispatched = dispatch(&programs, peer, Transport::Tcp, &w.to_vec().into(), &mut out);
        (dispatched, out.to_vec())
    }

    #[test]
    fn a_call_finds_its_program_or_hears_why_not() {
        let body = |bytes: &[u8]| rpc::decode_reply(bytes).map(|(_, body)| format!("{body:?}")).unwrap();
        assert_eq!(body(&run(300, 2, 0).1), "Success([0, 0, 0, 42])");
        assert_eq!(body(&run(100_227, 3, 0).1), "Refused(1)", "NFSACL is answered at once");
        assert_eq!(body(&run(300, 4, 0).1), "Refused(2)");
        assert_eq!(body(&run(300, 3, 9).1), "Refused(4)");
        let (dispatched, bytes) = run(300, 3, 1);
        assert!(matches!(dispatched, Dispatched::Later { .. }) && bytes.is_empty());
    }
}
