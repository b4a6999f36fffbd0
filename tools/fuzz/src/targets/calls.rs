//! RPC: record marks, calls, replies, the primitives of XDR, and the port mapper.

use bytes::BytesMut;
use smallvec::SmallVec;
use tarn_nfs::portmap::proto::{Binding, Mapping, Netid, decode_address, decode_port, parse_universal, universal};
use tarn_nfs::session::record::{Framed, Framer, RECORD_SIZE_MAX, begin, end};
use tarn_nfs::wire::rpc::{
    AcceptStatus, AuthStatus, AuthSys, Call, Credential, decode_reply, reply_accept, reply_denied, reply_success,
};
use tarn_nfs::wire::xdr::{Reader, Writer};

use super::Target;

pub fn targets() -> Vec<Target> {
    vec![
        Target::new("record-marks", record_marks, record_mark_seeds),
        Target::new("xdr", xdr, xdr_seeds),
        Target::new("rpc-call", call, call_seeds),
        Target::new("rpc-credential", credential, credential_seeds),
        Target::new("rpc-reply", |bytes| decode_reply(bytes).is_ok(), reply_seeds),
        Target::new("portmap-mapping", mapping, || vec![written(|w| MAPPING.encode(w))]),
        Target::new("portmap-binding", binding, || vec![written(|w| BINDING.encode(w))]),
        Target::new("portmap-port", |bytes| decode_port(bytes).is_ok(), || vec![vec![0, 0, 8, 1]]),
        Target::new(
            "portmap-address",
            |bytes| decode_address(bytes).is_ok(),
            || vec![written(|w| w.opaque(b"10.0.0.1.8.1")), written(|w| w.opaque(b"fe80::1%eth0.8.1"))],
        ),
        Target::new("universal-address", universal_address, || {
            vec![b"10.0.0.1.8.1".to_vec(), b"fd00::7.0.111".to_vec()]
        })
        .words(&[".", ":", "::", "%", "255", "256", "ffff", "0", "1.2.3.4"]),
    ]
}

/// The bytes that `write` writes.
pub(super) fn written(write: impl FnOnce(&mut Writer)) -> Vec<u8> {
    let mut w = Writer::new();
    write(&mut w);
    w.to_vec()
}

/// The first byte says in what steps the rest arrives.
fn record_marks(bytes: &[u8]) -> bool {
    let Some((step, stream)) = bytes.split_first() else { return false };
    let mut framer = Framer::default();
    let (mut buffer, mut found) = (BytesMut::new(), 0);
    for piece in stream.chunks(usize::from(*step) * 16 + 1) {
        buffer.extend_from_slice(piece);
        loop {
            match framer.next(&mut buffer) {
                Ok(Framed::Message(message)) => {
                    assert!(message.len() <= RECORD_SIZE_MAX, "a message of {} bytes", message.len());
                    found += 1;
                }
                Ok(Framed::Missing(bytes)) => {
                    assert!(bytes > 0 && bytes <= RECORD_SIZE_MAX + 4, "{bytes} bytes are said to be missing");
                    break;
                }
                Err(_) => return false,
            }
        }
    }
    found > 0
}

fn record_mark_seeds() -> Vec<Vec<u8>> {
    let whole = written(|w| {
        let mark = begin(w);
        w.opaque(b"a message in one fragment");
        end(w, mark);
    });
    let parts = [&[0, 0, 0, 3][..], b"two", &[0, 0, 0, 1], b" ", &[0x80, 0, 0, 5], b"parts"].concat();
    let long = [&[0x80, 0, 0x40, 0][..], &[7; 0x4000]].concat();
    vec![[&[255], &whole[..]].concat(), [&[0], &parts[..], &whole].concat(), [&[3], &long[..], &parts].concat()]
}

/// The first bytes say what is read from the rest.
fn xdr(bytes: &[u8]) -> bool {
    let (script, rest) = bytes.split_at(bytes.len().min(8));
    let mut r = Reader::new(rest);
    for step in script {
        let max = usize::from(*step) * 8;
        let read = match step % 9 {
            0 => r.u32().is_ok(),
            1 => r.u64().is_ok(),
            2 => r.bool().is_ok(),
            3 => r.fixed::<8>().is_ok(),
            4 => r.opaque(max).is_ok(),
            5 => r.opaque(usize::MAX).is_ok(),
            6 => r.option(|r| r.opaque(max)).is_ok(),
            7 => r.count(max, 4).is_ok(),
            _ => r.end().is_ok(),
        };
        if !read {
            return false;
        }
    }
    true
}

fn xdr_seeds() -> Vec<Vec<u8>> {
    let body = written(|w| {
        w.u32(1);
        w.u64(2);
        w.bool(true);
        w.fixed(&[7; 8]);
        w.opaque(b"opaque");
        w.opaque(b"");
        w.option(Some(b"there"), |w, value| w.opaque(value));
        w.u32(0);
    });
    vec![[&[0, 1, 2, 3, 13, 5, 15, 7], &body[..]].concat()]
}

fn call(bytes: &[u8]) -> bool {
    let Ok(call) = Call::decode(bytes) else { return false };
    let sys = match &call.credential {
        Credential::None => None,
        Credential::Sys(sys) => Some(sys),
    };
    let again = written(|w| Call::encode(w, call.xid, call.program, call.version, call.procedure, sys));
    let again = Call::decode(&again).expect("an encoded call");
    let numbers = |call: &Call<'_>| (call.xid, call.program, call.version, call.procedure);
    assert_eq!((numbers(&again), &again.credential), (numbers(&call), &call.credential));
    true
}

fn sys(groups: usize) -> AuthSys<'static> {
    let gids: SmallVec<_> = (0..groups as u32).collect();
    AuthSys { stamp: 1, machine: b"client.example", uid: 1000, gid: 100, gids }
}

fn call_seeds() -> Vec<Vec<u8>> {
    let call = |sys: Option<&AuthSys<'_>>| {
        written(|w| {
            Call::encode(w, 77, 100_003, 3, 1, sys);
            w.opaque(&[9; 32]);
        })
    };
    vec![call(None), call(Some(&sys(0))), call(Some(&sys(16)))]
}

fn credential(bytes: &[u8]) -> bool {
    let Ok(sys) = AuthSys::decode(bytes) else { return false };
    let again = written(|w| sys.encode(w));
    assert_eq!(AuthSys::decode(&again[4..]).as_ref(), Ok(&sys));
    true
}

fn credential_seeds() -> Vec<Vec<u8>> {
    [0, 3, 16].map(|groups| written(|w| sys(groups).encode(w))[4..].to_vec()).to_vec()
}

fn reply_seeds() -> Vec<Vec<u8>> {
    vec![
        written(|w| {
            reply_success(w, 9);
            w.u32(3);
        }),
        written(|w| reply_accept(w, 9, AcceptStatus::ProgramMismatch { low: 3, high: 3 })),
        written(|w| reply_denied(w, 9, AuthStatus::TooWeak)),
    ]
}

const MAPPING: Mapping = Mapping { program: 100_003, version: 3, protocol: 6, port: 2049 };

fn mapping(bytes: &[u8]) -> bool {
    let Ok(mapping) = Mapping::decode(bytes) else { return false };
    assert_eq!(written(|w| mapping.encode(w)), bytes);
    true
}

const BINDING: Binding<'static> =
    Binding { program: 100_003, version: 3, netid: b"tcp", address: b"10.0.0.1.8.1", owner: b"superuser" };

fn binding(bytes: &[u8]) -> bool {
    let Ok(binding) = Binding::decode(bytes) else { return false };
    assert_eq!(Binding::decode(&written(|w| binding.encode(w))), Ok(binding));
    Netid::parse(binding.netid);
    parse_universal(binding.address);
    true
}

fn universal_address(bytes: &[u8]) -> bool {
    let Some(address) = parse_universal(bytes) else { return false };
    assert_eq!(parse_universal(universal(address).as_bytes()), Some(address));
    true
}
