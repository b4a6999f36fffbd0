//! The lock manager as a program: from a call to an operation and from its outcome to an answer.
//!
//! - A synchronous call is answered by its reply. An asynchronous one (`_MSG`) has an empty reply; its outcome goes
//!   to the client by a call of the `_RES` procedure five numbers on.
//! - The gate is passed before anything is started, so an operation never runs for whom it may not.

use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::sync::{Arc, Weak};

use bytes::Bytes;
use smallvec::SmallVec;
use tarn_base::ids::Position;
use tarn_base::world::{BoxFuture, World};
use tarn_vfs::{Caller, Lock, LockKind, Node, OnceToken, Sent};

use super::clients;
use super::locks::{self, Asked, Outcome};
use super::proto::{self, Ask, PROCEDURES, PROGRAM, Request, ShareAsk, Status, VERSION};
use super::shares::{Mode, Shares};
use super::turns::Turns;
use super::waiters::Waiters;
use crate::exports::rules::ANONYMOUS_ID;
use crate::gate::{Gate, Intent, Refusal};
use crate::peer::{Attempt, Contact, Outbound, Question};
use crate::service::{CallContext, Program, Progress};
use crate::session::once;
use crate::wire::rpc::{AcceptStatus, AuthSys, Call, Credential};
use crate::wire::xdr::Writer;

/// First and last of the asynchronous requests; their answers are five numbers on.
const ASYNC: RangeInclusive<u32> = 6..=10;
/// Answers to asynchronous requests of ours, of which there are none.
const ANSWERS: RangeInclusive<u32> = 11..=15;
const ANSWER_AFTER: u32 = 5;

/// The lock manager. One serves all cores and transports.
pub struct Nlm {
    pub(super) gate: Arc<Gate>,
    pub(super) outbound: Arc<Outbound>,
    pub(super) world: World,
    /// The address that clients call; what we say comes from there.
    pub(super) address: Option<IpAddr>,
    pub(super) waiters: Waiters,
    pub(super) turns: Turns,
    pub(super) shares: Shares,
    /// Held while a client gives everything up: a copy of that call waits for what comes of the first one.
    pub(super) leaving: tokio::sync::Mutex<()>,
    /// For tasks of ours.
    this: Weak<Nlm>,
}

/// How an operation's outcome is put on the wire.
#[derive(Clone, Copy)]
enum Form {
    Plain,
    Test,
    Share,
}

/// An operation that was started, or an outcome that is here.
type Started = (Bytes, Form, BoxFuture<Outcome>);

impl Nlm {
    /// `address` is the one address that clients can have called, or `None` if there may be several.
    pub fn new(gate: Arc<Gate>, outbound: Arc<Outbound>, world: World, address: Option<IpAddr>) -> Arc<Nlm> {
        let address = address.map(|address| address.to_canonical()).filter(|address| !address.is_unspecified());
        Arc::new_cyclic(|this| Nlm {
            gate,
            outbound,
            world,
            address,
            waiters: Waiters::default(),
            turns: Turns::default(),
            shares: Shares::default(),
            leaving: tokio::sync::Mutex::default(),
            this: this.clone(),
        })
    }

    /// Ourselves, for a task that outlives the call.
    pub(super) fn shared(&self) -> Option<Arc<Nlm>> {
        self.this.upgrade()
    }

    /// Starts what `request` wants.
    fn start(&self, cx: &CallContext<'_>, call: &Call<'_>, request: Request) -> Option<Started> {
        let this = self.shared()?;
        let now = |status| -> BoxFuture<Outcome> { Box::pin(std::future::ready(Outcome::now(status))) };
        Some(match request {
            Request::Test(ask) => match self.understand(cx, call, &ask, Intent::Read) {
                Ok(asked) => (ask.cookie, Form::Test, Box::pin(async move { this.test(asked).await })),
                Err(status) => (ask.cookie, Form::Test, now(status)),
            },
            Request::Lock(ask) => {
                let intent = if ask.exclusive { Intent::Change } else { Intent::Read };
                match self.understand(cx, call, &ask, intent) {
                    Ok(asked) => (ask.cookie, Form::Plain, Box::pin(async move { this.lock(asked).await })),
                    Err(status) => (ask.cookie, Form::Plain, now(status)),
                }
            }
            Request::Cancel(ask) => match self.understand(cx, call, &ask, Intent::Read) {
                Ok(asked) => (ask.cookie, Form::Plain, Box::pin(async move { this.cancel(asked).await })),
                Err(status) => (ask.cookie, Form::Plain, now(status)),
            },
            Request::Unlock(ask) => match self.understand(cx, call, &ask, Intent::Read) {
                Ok(asked) => (ask.cookie, Form::Plain, Box::pin(async move { this.unlock(asked).await })),
                Err(status) => (ask.cookie, Form::Plain, now(status)),
            },
            // We wait for nobody's locks.
            Request::Granted(ask) => (ask.cookie, Form::Plain, now(Status::Denied)),
            Request::Share(ask) => {
                let intent = if ask.access & 2 != 0 { Intent::Change } else { Intent::Read };
                let mode = Mode { access: ask.access, deny: ask.deny };
                let reserve = |node| self.share(node, share_owner(cx, &ask), Some(mode), &sent(cx, call), ask.reclaim);
                let status =
                    self.admit(cx, call, &ask.handle, intent).map_or_else(|status| status, |(_, node)| reserve(node));
                (ask.cookie, Form::Share, now(status))
            }
            Request::Unshare(ask) => {
                let give_up = |node| self.share(node, share_owner(cx, &ask), None, &sent(cx, call), ask.reclaim);
                let passed = self.admit(cx, call, &ask.handle, Intent::Read);
                let status = passed.map_or_else(|status| status, |(_, node)| give_up(node));
                (ask.cookie, Form::Share, now(status))
            }
            Request::FreeAll(_) => return None,
        })
    }

    /// The caller and the lock that a request speaks of.
    fn understand(&self, cx: &CallContext<'_>, call: &Call<'_>, ask: &Ask, intent: Intent) -> Result<Asked, Status> {
        let range = locks::range(&ask.range)?;
        let (mut caller, node) = self.admit(cx, call, &ask.range.handle, intent)?;
        let token = token(cx, call);
        // A request to wait must find out what became of the first one, not hear what was said to it.
        caller.once = (!ask.block).then_some(token);
        caller.sent = Some(once::sent(cx.client(), call.xid, token.digest));
        let kind = if ask.exclusive { LockKind::Exclusive } else { LockKind::Shared };
        let owner = locks::owner(clients::name(&ask.range.caller, cx.peer.ip()), &ask.range);
        let lock = Lock { node, owner, kind, range };
        Ok(Asked { caller, lock, block: ask.block, reclaim: ask.reclaim, contact: self.contact(cx, ask.state) })
    }

    fn admit(
        &self,
        cx: &CallContext<'_>,
        call: &Call<'_>,
        handle: &[u8],
        intent: Intent,
    ) -> Result<(Caller, Node), Status> {
        let anonymous = AuthSys { stamp: 0, machine: b"", uid: ANONYMOUS_ID, gid: ANONYMOUS_ID, gids: SmallVec::new() };
        let sys = match &call.credential {
            Credential::Sys(sys) => sys,
            Credential::None => &anonymous,
        };
        let admitted = self.gate.admit(cx, handle, intent).map_err(|refused| {
            if refused.may_change() {
                self.gate.fs.answered(&sent(cx, call));
            }
            refusal(refused)
        })?;
        let mut caller = admitted.caller(cx, sys);
        // The client checked when the file was opened.
        caller.owner_override = true;
        Ok((caller, admitted.node))
    }

    fn contact(&self, cx: &CallContext<'_>, state: u32) -> Contact {
        Contact { client: cx.peer.ip(), server: self.address, transport: cx.transport, state }
    }

    /// Runs an asynchronous request and sends its answer. One that gets lost is asked for again by the client.
    async fn answer_by_call(self: Arc<Nlm>, contact: Contact, procedure: u32, started: Started) {
        let (cookie, form, operation) = started;
        let outcome = operation.await;
        if outcome.position != Position::ZERO && self.gate.fs.durable(outcome.position).await.is_err() {
            return;
        }
        if !self.is_ours().await {
            return;
        }
        let mut args = Writer::new();
        encode(&mut args, &cookie, form, &outcome);
        let args = args.to_vec();
        let question = Question { program: PROGRAM, version: VERSION, procedure, args: &args };
        // Such calls are answered late or never; that they were sent is all there is to know.
        if let Err(error) = self.outbound.call(&contact, question, &mut Attempt::default()).await {
            tracing::debug!(client = %contact.client, %error, "an answer to an asynchronous lock request is unconfirmed");
        }
    }
}

impl Program for Nlm {
    fn number(&self) -> u32 {
        PROGRAM
    }

    fn versions(&self) -> RangeInclusive<u32> {
        VERSION..=VERSION
    }

    fn name(&self) -> &'static str {
        "nlm"
    }

    fn procedures(&self) -> &'static [&'static str] {
        PROCEDURES
    }

    fn call(&self, cx: &CallContext<'_>, call: &Call<'_>, _reply: &mut Writer) -> Progress {
        let procedure = call.procedure;
        if procedure == proto::NLMPROC4_NULL || ANSWERS.contains(&procedure) {
            return Progress::now(0);
        }
        let request = match Request::decode(procedure, call.args) {
            Ok(Some(request)) => request,
            Ok(None) => return Progress::Refused(AcceptStatus::ProcedureUnavailable),
            Err(_) => return Progress::Refused(AcceptStatus::GarbageArguments),
        };
        let Some(this) = self.shared() else { return Progress::Refused(AcceptStatus::SystemError) };
        if let Request::FreeAll(name) = request {
            let (source, sent) = (cx.peer, sent(cx, call));
            return Progress::Later(Box::pin(
                async move { (Writer::new(), this.free_all(&name, source, &sent).await) },
            ));
        }
        let Some(started) = self.start(cx, call, request) else {
            return Progress::Refused(AcceptStatus::SystemError);
        };
        if ASYNC.contains(&procedure) {
            let answer = this.answer_by_call(self.contact(cx, 0), procedure + ANSWER_AFTER, started);
            self.world.spawn.spawn("lock-answer", Box::pin(answer));
            return Progress::now(0);
        }
        let (cookie, form, operation) = started;
        Progress::Later(Box::pin(async move {
            let outcome = operation.await;
            let mut results = Writer::new();
            encode(&mut results, &cookie, form, &outcome);
            (results, Progress::Done { position: outcome.position, status: outcome.status as u32 })
        }))
    }
}

fn encode(w: &mut Writer, cookie: &[u8], form: Form, outcome: &Outcome) {
    match form {
        Form::Plain => proto::encode_result(w, cookie, outcome.status),
        Form::Test => proto::encode_test_result(w, cookie, outcome.status, outcome.holder.as_ref()),
        Form::Share => proto::encode_share_result(w, cookie, outcome.status),
    }
}

fn token(cx: &CallContext<'_>, call: &Call<'_>) -> OnceToken {
    let uid = match &call.credential {
        Credential::Sys(sys) => sys.uid,
        Credential::None => ANONYMOUS_ID,
    };
    once::token(cx.client(), call.xid, PROGRAM, call.procedure, uid, call.args)
}

/// The call's name.
fn sent(cx: &CallContext<'_>, call: &Call<'_>) -> Sent {
    once::sent(cx.client(), call.xid, token(cx, call).digest)
}

fn refusal(refusal: Refusal) -> Status {
    match refusal {
        Refusal::BadHandle | Refusal::Stale => Status::StaleHandle,
        Refusal::Denied => Status::Failed,
        Refusal::ReadOnly => Status::ReadOnly,
        Refusal::TryLater => Status::DeniedGracePeriod,
    }
}

fn share_owner(cx: &CallContext<'_>, ask: &ShareAsk) -> tarn_vfs::LockOwner {
    let client = clients::name(&ask.caller, cx.peer.ip());
    tarn_vfs::LockOwner { client, owner: ask.owner.clone(), process: 0 }
}
