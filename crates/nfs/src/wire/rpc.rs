//! ONC RPC version 2 (RFC 5531): calls, replies, and the credentials AUTH_NONE and AUTH_SYS.
//!
//! - A call is decoded up to its arguments; those belong to the program.
//! - A reply is encoded up to its results; those belong to the program.

use smallvec::SmallVec;

use super::xdr::{Reader, Writer, XdrError, XdrResult};

pub const RPC_VERSION: u32 = 2;
/// Longest body of a credential or verifier, bytes (RFC 5531 section 8.2).
pub const AUTH_BODY_MAX: usize = 400;
/// Most supplementary groups in AUTH_SYS (RFC 5531 appendix A).
pub const AUTH_SYS_GROUPS_MAX: usize = 16;
/// Longest machine name in AUTH_SYS, bytes.
pub const AUTH_SYS_MACHINE_MAX: usize = 255;

const CALL: u32 = 0;
const REPLY: u32 = 1;
const AUTH_NONE: u32 = 0;
/// Flavor number of AUTH_SYS.
pub const AUTH_SYS: u32 = 1;

/// Who calls, as far as the caller says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Credential<'a> {
    /// AUTH_NONE.
    None,
    /// AUTH_SYS (RFC 5531 appendix A).
    Sys(AuthSys<'a>),
}

/// The body of AUTH_SYS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthSys<'a> {
    pub stamp: u32,
    pub machine: &'a [u8],
    pub uid: u32,
    pub gid: u32,
    pub gids: SmallVec<[u32; AUTH_SYS_GROUPS_MAX]>,
}

/// A call, its arguments not decoded yet.
#[derive(Clone, Debug)]
pub struct Call<'a> {
    pub xid: u32,
    pub program: u32,
    pub version: u32,
    pub procedure: u32,
    pub credential: Credential<'a>,
    /// From the first argument to the end of the message.
    pub args: &'a [u8],
}

/// Why a message is not a call that can be run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallError {
    /// Not an RPC call at all, or not even a whole header: no answer is possible.
    NotACall,
    /// Another version of RPC: MSG_DENIED, RPC_MISMATCH.
    RpcVersion { xid: u32 },
    /// The credential is malformed or of a flavor that is not served: MSG_DENIED, AUTH_ERROR.
    Auth { xid: u32, status: AuthStatus },
}

/// `auth_stat`: why a call was not even looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum AuthStatus {
    BadCredential = 1,
    RejectedCredential = 2,
    BadVerifier = 3,
    RejectedVerifier = 4,
    TooWeak = 5,
}

/// `accept_stat` besides SUCCESS: why an understood call has no results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AcceptStatus {
    /// PROG_UNAVAIL.
    ProgramUnavailable,
    /// PROG_MISMATCH: these versions are served.
    ProgramMismatch { low: u32, high: u32 },
    /// PROC_UNAVAIL.
    ProcedureUnavailable,
    /// GARBAGE_ARGS.
    GarbageArguments,
    /// SYSTEM_ERR.
    SystemError,
}

impl<'a> Call<'a> {
    /// The call in `message`, which is one whole record or datagram.
    pub fn decode(message: &'a [u8]) -> Result<Call<'a>, CallError> {
        let mut r = Reader::new(message);
        let (xid, kind) = pair(&mut r).map_err(|_| CallError::NotACall)?;
        if kind != CALL {
            return Err(CallError::NotACall);
        }
        if r.u32().map_err(|_| CallError::NotACall)? != RPC_VERSION {
            return Err(CallError::RpcVersion { xid });
        }
        let mut header = || -> XdrResult<_> {
            let numbers = (r.u32()?, r.u32()?, r.u32()?);
            Ok((numbers, r.u32()?, r.opaque(AUTH_BODY_MAX)?, r.u32()?, r.opaque(AUTH_BODY_MAX)?))
        };
        let ((program, version, procedure), flavor, body, _, _) = header().map_err(|error| match error {
            XdrError::TooLong => CallError::Auth { xid, status: AuthStatus::BadCredential },
            _ => CallError::NotACall,
        })?;
        let bad = CallError::Auth { xid, status: AuthStatus::BadCredential };
        let credential = match flavor {
            AUTH_NONE => Credential::None,
            AUTH_SYS => Credential::Sys(AuthSys::decode(body).map_err(|_| bad)?),
            _ => return Err(bad),
        };
        Ok(Call { xid, program, version, procedure, credential, args: r.rest() })
    }

    /// Encodes a call of ours up to its arguments; with AUTH_NONE, or AUTH_SYS when `sys` is given.
    pub fn encode(w: &mut Writer, xid: u32, program: u32, version: u32, procedure: u32, sys: Option<&AuthSys<'_>>) {
        for v in [xid, CALL, RPC_VERSION, program, version, procedure] {
            w.u32(v);
        }
        match sys {
            None => {
                w.u32(AUTH_NONE);
                w.u32(0);
            }
            Some(sys) => {
                w.u32(AUTH_SYS);
                sys.encode(w);
            }
        }
        w.u32(AUTH_NONE);
        w.u32(0);
    }
}

impl<'a> AuthSys<'a> {
    pub fn decode(body: &'a [u8]) -> XdrResult<AuthSys<'a>> {
        let mut r = Reader::new(body);
        let stamp = r.u32()?;
        let machine = r.opaque(AUTH_SYS_MACHINE_MAX)?;
        let (uid, gid) = pair(&mut r)?;
        let count = r.count(AUTH_SYS_GROUPS_MAX, 4)?;
        let mut gids = SmallVec::new();
        for _ in 0..count {
            gids.push(r.u32()?);
        }
        Ok(AuthSys { stamp, machine, uid, gid, gids })
    }

    /// The body with its length.
    pub fn encode(&self, w: &mut Writer) {
        let mark = w.mark();
        w.u32(0);
        w.u32(self.stamp);
        w.opaque(self.machine);
        w.u32(self.uid);
        w.u32(self.gid);
        w.u32(self.gids.len() as u32);
        self.gids.iter().for_each(|gid| w.u32(*gid));
        w.patch(mark, (w.len_since(mark) - 4) as u32);
    }
}

fn pair(r: &mut Reader<'_>) -> XdrResult<(u32, u32)> {
    Ok((r.u32()?, r.u32()?))
}

/// Header of a reply with results (MSG_ACCEPTED, SUCCESS); they follow.
pub fn reply_success(w: &mut Writer, xid: u32) {
    for v in [xid, REPLY, 0, AUTH_NONE, 0, 0] {
        w.u32(v);
    }
}

/// A reply that accepts the call and gives no results.
pub fn reply_accept(w: &mut Writer, xid: u32, status: AcceptStatus) {
    let code = match status {
        AcceptStatus::ProgramUnavailable => 1,
        AcceptStatus::ProgramMismatch { .. } => 2,
        AcceptStatus::ProcedureUnavailable => 3,
        AcceptStatus::GarbageArguments => 4,
        AcceptStatus::SystemError => 5,
    };
    for v in [xid, REPLY, 0, AUTH_NONE, 0, code] {
        w.u32(v);
    }
    if let AcceptStatus::ProgramMismatch { low, high } = status {
        w.u32(low);
        w.u32(high);
    }
}

/// A reply that denies the call for its credential (MSG_DENIED, AUTH_ERROR).
pub fn reply_denied(w: &mut Writer, xid: u32, status: AuthStatus) {
    for v in [xid, REPLY, 1, 1, status as u32] {
        w.u32(v);
    }
}

/// A reply to a call in another version of RPC (MSG_DENIED, RPC_MISMATCH).
pub fn reply_rpc_mismatch(w: &mut Writer, xid: u32) {
    for v in [xid, REPLY, 1, 0, RPC_VERSION, RPC_VERSION] {
        w.u32(v);
    }
}

/// What came back for a call of ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReplyBody<'a> {
    /// MSG_ACCEPTED, SUCCESS: the results.
    Success(&'a [u8]),
    /// MSG_ACCEPTED with another `accept_stat`.
    Refused(u32),
    /// MSG_DENIED.
    Denied,
}

/// The reply in `message`, with its xid.
pub fn decode_reply(message: &[u8]) -> XdrResult<(u32, ReplyBody<'_>)> {
    let mut r = Reader::new(message);
    let (xid, kind) = pair(&mut r)?;
    if kind != REPLY {
        return Err(XdrError::Value("a message type"));
    }
    if r.u32()? != 0 {
        return Ok((xid, ReplyBody::Denied));
    }
    r.u32()?;
    r.opaque(AUTH_BODY_MAX)?;
    match r.u32()? {
        0 => Ok((xid, ReplyBody::Success(r.rest()))),
        status => Ok((xid, ReplyBody::Refused(status))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Vec<u8> {
        let sys = AuthSys { stamp: 1, machine: b"client", uid: 10, gid: 20, gids: SmallVec::from_slice(&[20, 30]) };
        let mut w = Writer::new();
        Call::encode(&mut w, 77, 100_003, 3, 1, Some(&sys));
        w.u32(5);
        w.to_vec()
    }

    #[test]
    fn a_call_is_decoded_up_to_its_arguments() {
        let bytes = sample();
        let call = Call::decode(&bytes).unwrap();
        assert_eq!((call.xid, call.program, call.version, call.procedure), (77, 100_003, 3, 1));
        assert_eq!(call.args, [0, 0, 0, 5]);
        let Credential::Sys(sys) = call.credential else { panic!("AUTH_SYS was sent") };
        assert_eq!((sys.uid, sys.gid, &sys.gids[..], sys.machine), (10, 20, &[20, 30][..], &b"client"[..]));
    }

    #[test]
    fn what_is_not_a_call_gets_the_answer_it_deserves() {
        let good = sample();
        let patched = |at: usize, v: u8| {
            let mut bytes = good.clone();
            bytes[at] = v;
            Call::decode(&bytes).map(|_| ()).unwrap_err()
        };
        assert_eq!(patched(7, 1), CallError::NotACall);
        assert_eq!(patched(11, 3), CallError::RpcVersion { xid: 77 });
        let bad = CallError::Auth { xid: 77, status: AuthStatus::BadCredential };
        assert_eq!(patched(27, 6), bad, "RPCSEC_GSS is not served");
        assert_eq!(patched(30, 2), bad, "a credential of more than 400 bytes");
        for len in 0..good.len() - 4 {
            assert!(Call::decode(&good[..len]).is_err());
        }
    }

    #[test]
    fn a_reply_is_read_as_it_was_written() {
        let mut w = Writer::new();
        reply_success(&mut w, 9);
        w.u32(3);
        assert_eq!(decode_reply(&w.to_vec()), Ok((9, ReplyBody::Success(&[0, 0, 0, 3]))));
        let mut w = Writer::new();
        reply_accept(&mut w, 9, AcceptStatus::ProgramMismatch { low: 3, high: 3 });
        assert_eq!(decode_reply(&w.to_vec()), Ok((9, ReplyBody::Refused(2))));
        let mut w = Writer::new();
        reply_denied(&mut w, 9, AuthStatus::TooWeak);
        assert_eq!(decode_reply(&w.to_vec()), Ok((9, ReplyBody::Denied)));
    }
}
