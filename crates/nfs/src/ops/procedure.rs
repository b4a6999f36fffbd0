//! What a procedure is, and how each is run: decode, start, encode.
//!
//! - Arguments are decoded whole before anything happens.
//! - The reply is encoded at once if the file system answers at once, else by a future that owns what it needs.
//! - A result with an error has the same shape whether the gate or the file system refused: status, then
//!   whatever the procedure's `resfail` holds.

use std::future::Future;
use std::pin::Pin;

use tarn_base::ids::Position;
use tarn_vfs::{Answer, Attr, Caller, Change, Done, FileSystem, HandleKey, Node, OnceToken, Reply, Sent};

use crate::gate::{Admitted, Gate, Intent, Refusal};
use crate::map;
use crate::service::{CallContext, Progress};
use crate::session::once;
use crate::wire::nfs3::{Status, Verifier};
use crate::wire::rpc::{AcceptStatus, AuthStatus, AuthSys, Call, Credential};
use crate::wire::xdr::{Writer, XdrResult};

/// A row of the dispatch table.
pub struct Row {
    pub name: &'static str,
    pub serve: fn(&Gate, &CallContext<'_>, &Call<'_>, &mut Writer) -> Progress,
    /// As [`Procedure::reply_size`], of encoded arguments.
    pub reply_size: fn(&[u8]) -> usize,
}

/// The row of `P`.
pub const fn row<P: Procedure>() -> Row {
    Row { name: P::NAME, serve: serve::<P>, reply_size: |args| P::decode(args).map_or(0, |args| P::reply_size(&args)) }
}

/// A procedure of NFSv3, but for NULL.
pub trait Procedure: 'static {
    /// As RFC 1813 has it.
    const NAME: &'static str;
    /// Whether it may not run twice: it carries a once-token.
    const ONCE: bool = false;

    type Args<'a>;
    /// What the file system gives.
    type Reply: Unpin + Send + 'static;
    /// What encoding needs from the arguments.
    type Keep: Send + 'static;

    fn decode(bytes: &[u8]) -> XdrResult<Self::Args<'_>>;

    /// Bytes that the reply may be as long as, where the client says it: of data, or entries.
    fn reply_size(_: &Self::Args<'_>) -> usize {
        0
    }

    /// Admits the call and starts it.
    fn start(rq: &Request<'_>, args: Self::Args<'_>) -> Result<Started<Self::Reply, Self::Keep>, Status>;

    /// Encodes what follows the status of a success; or fails, and everything is taken back.
    fn grant(w: &mut Writer, view: &View, keep: Self::Keep, reply: &mut Self::Reply) -> Result<(), Failed>;

    /// Encodes what follows the status of an error.
    fn refuse(w: &mut Writer, view: &View, changes: &[Change; 2]);
}

/// An error found while encoding.
pub struct Failed {
    pub status: Status,
    pub changes: [Change; 2],
}

/// A call on its way to the gate.
pub struct Request<'a> {
    pub gate: &'a Gate,
    pub cx: &'a CallContext<'a>,
    call: &'a Call<'a>,
    sys: &'a AuthSys<'a>,
    once: bool,
}

/// What every reply of one call is encoded with.
#[derive(Clone, Copy, Debug)]
pub struct View {
    pub fsid: u64,
    pub key: HandleKey,
    /// As it was before the operation began: if it changes meanwhile, the client learns that at its COMMIT.
    pub verifier: Verifier,
    /// Whether the export may be changed.
    pub writable: bool,
}

impl View {
    /// Of a call that did not pass the gate.
    const NONE: View = View { fsid: 0, key: HandleKey([0; 16]), verifier: [0; 8], writable: false };

    /// post_op_attr.
    pub fn attr(&self, w: &mut Writer, attr: Option<&Attr>) {
        w.option(attr, |w, attr| map::attributes(attr, self.fsid).encode(w));
    }

    /// wcc_data.
    pub fn change(&self, w: &mut Writer, change: &Change) {
        map::weak_cache(change, self.fsid).encode(w);
    }

    /// nfs_fh3.
    pub fn handle(&self, w: &mut Writer, node: Node) {
        w.opaque(&self.key.sign(node).0);
    }

    /// post_op_fh3 and post_op_attr of an object that was made.
    pub fn made(&self, w: &mut Writer, attr: Option<&Attr>) {
        w.option(attr, |w, attr| self.handle(w, attr.node));
        self.attr(w, attr);
    }
}

/// An object of a call that passed the gate.
pub struct Opened {
    pub node: Node,
    pub caller: Caller,
    pub view: View,
}

impl<'a> Request<'a> {
    pub fn fs(&self) -> &'a dyn FileSystem {
        &*self.gate.fs
    }

    /// Passes the gate with `handle`.
    #[inline]
    pub fn open(&self, handle: &[u8], intent: Intent) -> Result<Opened, Status> {
        let Some(token) = self.once.then(|| self.token()) else {
            let admitted = self.gate.admit(self.cx, handle, intent).map_err(map::refusal)?;
            return Ok(self.opened(&admitted));
        };
        let mut opened = self.pass_as(handle, intent, self.sent(token.digest))?;
        opened.caller.once = Some(token);
        Ok(opened)
    }

    /// Passes the gate with `handle`, as a call of this name.
    #[inline]
    pub fn pass_as(&self, handle: &[u8], intent: Intent, sent: Sent) -> Result<Opened, Status> {
        let admitted = self.gate.admit(self.cx, handle, intent).map_err(|refusal| self.refused(refusal, &sent))?;
        let mut opened = self.opened(&admitted);
        opened.caller.sent = Some(sent);
        Ok(opened)
    }

    /// A call that does not pass is answered with that.
    fn refused(&self, refusal: Refusal, sent: &Sent) -> Status {
        if refusal.may_change() {
            self.gate.fs.answered(sent);
        }
        map::refusal(refusal)
    }

    #[inline]
    fn opened(&self, admitted: &Admitted) -> Opened {
        let view = View {
            fsid: admitted.fsid,
            key: self.gate.key(),
            verifier: self.gate.fs.write_verifier(),
            writable: admitted.writable,
        };
        Opened { node: admitted.node, caller: admitted.caller(self.cx, self.sys), view }
    }

    fn token(&self) -> OnceToken {
        let call = self.call;
        once::token(self.cx.client(), call.xid, call.program, call.procedure, self.sys.uid, call.args)
    }

    /// The call's name, if its arguments have this digest.
    pub fn sent(&self, digest: u64) -> Sent {
        once::sent(self.cx.client(), self.call.xid, digest)
    }

    /// Passes the gate with a second handle, as the same caller.
    pub fn open_second(&self, handle: &[u8]) -> Result<Node, Status> {
        let passed = self.gate.admit(self.cx, handle, Intent::Change);
        passed.map(|admitted| admitted.node).map_err(|refusal| self.refused(refusal, &self.sent(self.token().digest)))
    }
}

/// A call that the file system works on, or has answered.
pub struct Started<T, K> {
    pub outcome: Outcome<T>,
    pub view: View,
    pub keep: K,
}

impl<T> Started<T, ()> {
    pub fn new(answer: Answer<T>, view: View) -> Started<T, ()> {
        Started { outcome: Outcome::Answer(answer), view, keep: () }
    }
}

/// One answer of the file system, or several put together.
pub enum Outcome<T> {
    Answer(Answer<T>),
    Future(Pin<Box<dyn Future<Output = Reply<T>> + Send>>),
}

fn serve<P: Procedure>(gate: &Gate, cx: &CallContext<'_>, call: &Call<'_>, w: &mut Writer) -> Progress {
    let Credential::Sys(sys) = &call.credential else {
        return Progress::Denied(AuthStatus::TooWeak);
    };
    let Ok(args) = P::decode(call.args) else {
        return Progress::Refused(AcceptStatus::GarbageArguments);
    };
    // Replies are large beside what is done with them: one that is here is encoded where it lies.
    match P::start(&Request { gate, cx, call, sys, once: P::ONCE }, args) {
        Ok(Started { outcome: Outcome::Answer(Answer::Ready(Some(mut reply))), view, keep }) => {
            encode::<P>(w, &view, keep, &mut reply)
        }
        Ok(Started { outcome: Outcome::Answer(answer), view, keep }) => later::<P>(view, keep, answer),
        Ok(Started { outcome: Outcome::Future(future), view, keep }) => later::<P>(view, keep, future),
        Err(status) => refuse::<P>(w, &View::NONE, status, &Default::default(), Position::ZERO),
    }
}

fn later<P: Procedure>(
    view: View,
    keep: P::Keep,
    reply: impl Future<Output = Reply<P::Reply>> + Send + 'static,
) -> Progress {
    Progress::Later(Box::pin(async move {
        let mut reply = reply.await;
        let mut w = Writer::new();
        let progress = encode::<P>(&mut w, &view, keep, &mut reply);
        (w, progress)
    }))
}

fn encode<P: Procedure>(w: &mut Writer, view: &View, keep: P::Keep, reply: &mut Reply<P::Reply>) -> Progress {
    let Done { value, position } = match reply {
        Ok(done) => done,
        Err(Done { value: failure, position }) => {
            return refuse::<P>(w, view, map::status(failure.errno), &failure.changes, *position);
        }
    };
    let mark = w.mark();
    w.u32(Status::Ok as u32);
    match P::grant(w, view, keep, value) {
        Ok(()) => Progress::Done { position: *position, status: 0 },
        Err(Failed { status, changes }) => {
            w.rewind(mark);
            refuse::<P>(w, view, status, &changes, *position)
        }
    }
}

fn refuse<P: Procedure>(
    w: &mut Writer,
    view: &View,
    status: Status,
    changes: &[Change; 2],
    position: Position,
) -> Progress {
    w.u32(status as u32);
    P::refuse(w, view, changes);
    Progress::Done { position, status: status as u32 }
}
