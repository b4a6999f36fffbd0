//! Clients whose calls go through the NFS front end.
//!
//! - A call is sent once, or as networks have it: twice, again on a new connection, on one that breaks.
//! - What a crash left unanswered is sent again in the next life under the same number, as a client that mounts hard does.

use std::sync::Arc;
use std::time::Duration;

use tarn_vfs::op::{Op, Outcome, Seen, Slots};
use tarn_vfs::{Caller, Errno, FileSystem};

use crate::chance::Chance;
use crate::check::answers;
use crate::check::once::{self, Past, Sent};
use crate::client::{Life, Shown, Wish, answered, subject};
use crate::failure::{Checked, Failure};
use crate::front::manner::Manner;
use crate::front::wire::{Handles, Said, Wire};
use crate::front::{self, Front};
use crate::legible;
use crate::tracker::{Issue, Ran};

/// The front end, and what clients keep over its lives.
#[derive(Clone)]
pub struct Remote {
    pub front: Arc<Front>,
    pub engine: Arc<dyn FileSystem>,
    pub handles: Handles,
}

/// A call that has been sent and not answered.
#[derive(Clone)]
pub struct Unanswered {
    op: Op,
    caller: Caller,
    slots: Slots,
    pub issue: Arc<Issue>,
    said: Arc<parking_lot::Mutex<Said>>,
}

/// Whether calls of this kind go through the front end.
pub fn travels(op: &Op) -> bool {
    !matches!(op, Op::Lock { .. } | Op::Unlock { .. } | Op::ReleaseClient { .. } | Op::Statfs { .. })
}

/// The caller as the file system is to see it: the front end names the client, makes the tokens, and lets whoever
/// opened a file use it.
pub fn as_seen(caller: &mut Caller, op: &Op, number: u64) {
    caller.client = front::client_id(number);
    caller.once = None;
    caller.owner_override = match op {
        Op::Read { .. } | Op::Write { .. } => true,
        Op::Setattr { set, .. } => set.size.is_some(),
        _ => false,
    };
}

impl Remote {
    /// The file system as the checks see it.
    pub fn plain(&self) -> Wire {
        self.wire(front::CHECKER)
    }

    fn wire(&self, host: u64) -> Wire {
        Wire::new(self.front.clone(), self.engine.clone(), self.handles.clone(), host)
    }

    /// A call made again is answered as it was, byte for byte.
    pub async fn repeats(&self, past: &Past) -> Checked {
        let Some(sent) = &past.call else { return Ok(()) };
        let wire = self.wire(sent.host).replaying(sent.xid, sent.message.clone());
        let again = past.op.run(&wire, &past.caller, &past.slots).await;
        let said = wire.said.lock().clone();
        if let Some(wrong) = said.wrong {
            return Err(wrong);
        }
        let Some(heard) = said.heard.filter(|_| !said.unknown) else { return Ok(()) };
        if again.seen == Seen::Refused(Errno::TryLater) {
            return Ok(());
        }
        once::same(past, &again)?;
        once::encoded(&past.op, &sent.reply, &heard.message)
    }
}

impl Life<'_> {
    /// Sends again what the last life left unanswered.
    pub async fn resume(&self, number: u64) -> Checked {
        let (Some(remote), Some(before)) = (&self.remote, self.knowledge.unanswered.borrow_mut().remove(&number))
        else {
            return Ok(());
        };
        let (xid, message) = {
            let said = before.said.lock();
            (said.xid, said.message.clone())
        };
        // A listing goes on with its next page, which is another call.
        if message.is_empty() || matches!(before.op, Op::List { .. }) {
            return Ok(());
        }
        self.event(number, format_args!("sends  {} again", legible::op(&before.op)));
        self.knowledge.chaos.coverage.hit("calls", "sent again after a restart");
        let wire = remote.wire(front::host_of(number)).replaying(xid, message);
        let Unanswered { op, caller, slots, issue, .. } = before;
        let wish = Wish { kind: "again", op, caller, slots, issue };
        match self.converse(number, wish, wire).await? {
            Some(shown) => self.acknowledge(number, shown).await,
            None => Ok(()),
        }
    }

    /// Asks through the front end, and compares the answer.
    pub async fn ask_remote(
        &self,
        remote: &Remote,
        number: u64,
        wish: Wish,
        chance: &mut Chance,
    ) -> Result<Option<Shown>, Failure> {
        let (manner, plus) = (Manner::draw(chance), chance.percent(50));
        self.knowledge.chaos.coverage.hit("calls", manner.name());
        let wire = remote.wire(front::host_of(number)).tagged(wish.issue.tag, manner, plus);
        let again = chance.percent(4).then(|| chance.range(1, 200));
        let issue = wish.issue.clone();
        let shown = self.converse(number, wish, wire.clone()).await?;
        if wire.said.lock().heard.is_some() {
            issue.end();
        }
        if let (Some(after), Some(shown)) = (again, &shown) {
            // The network gives back a copy that it had kept.
            self.event(number, format_args!("sends  {} a second time", legible::op(&shown.op)));
            self.knowledge.chaos.coverage.hit("calls", "a late copy");
            self.late_copy(&wire, shown, after).await?;
        }
        Ok(shown)
    }

    async fn late_copy(&self, wire: &Wire, shown: &Shown, after: u64) -> Checked {
        let said = wire.said.lock().clone();
        tokio::time::sleep(Duration::from_millis(after)).await;
        let Some(heard) = wire.again(&said).await else { return Ok(()) };
        self.nothing_wrong()?;
        match said.heard {
            Some(first) if once::remembers(&shown.op) && shown.ran.changed && self.log.poisoned().is_none() => {
                once::encoded(&shown.op, &first.message, &heard.message)
            }
            _ => Ok(()),
        }
    }

    fn nothing_wrong(&self) -> Checked {
        self.knowledge.tracker.wrong().map_or(Ok(()), Err)
    }

    /// One call and its reply, held against the model.
    async fn converse(&self, number: u64, wish: Wish, wire: Wire) -> Result<Option<Shown>, Failure> {
        let Wish { op, caller, slots, issue, .. } = wish;
        let unanswered = Unanswered {
            op: op.clone(),
            caller: caller.clone(),
            slots: slots.clone(),
            issue: issue.clone(),
            said: wire.said.clone(),
        };
        self.knowledge.unanswered.borrow_mut().insert(number, unanswered);
        let outcome = op.run(&wire, &caller, &slots).await;
        self.knowledge.unanswered.borrow_mut().remove(&number);
        let said = wire.said.lock().clone();
        let ran = issue.ran();
        self.event(number, format_args!("{}", answered(&op, &outcome, ran.as_ref())));
        self.nothing_wrong()?;
        if let Some(wrong) = said.wrong {
            return Err(wrong);
        }
        let excuses = self.excuses(&outcome, true);
        let Some(heard) = said.heard.filter(|_| !said.unknown) else {
            self.knowledge.chaos.coverage.hit("calls", "never answered");
            return Ok(None);
        };
        let same = |ran: &Ran| self.knowledge.pairs.borrow().agree(outcome.node, ran.outcome.node);
        let Some(ran) = answers_one(&op, &outcome, &issue, excuses, same)? else {
            self.knowledge.chaos.coverage.hit("refusals for the moment", legible::seen(&outcome.seen));
            return Ok(None);
        };
        if let Some(again) = &said.again
            && once::remembers(&op)
            && ran.changed
            && self.log.poisoned().is_none()
        {
            once::encoded(&op, &heard.message, &again.message)?;
        }
        let host = front::host_of(number);
        let call = Some(Sent { host, xid: said.xid, message: said.message, reply: heard.message });
        let node = subject(&op, &slots);
        let past = Past { op: op.clone(), caller, slots, outcome: outcome.clone(), at: ran.at, call };
        self.note(past, &ran, true)?;
        let verifier = said.verifier.unwrap_or_default();
        Ok(Some(Shown { op, node, outcome, ran, verifier, left_with: Some(heard.durable) }))
    }
}

/// Of the times that a call took effect, the one that its reply tells of; `None` for a refusal for the moment.
///
/// A CREATE that finds a file and changes nothing runs again when it comes again, and makes another if the first was
/// removed meanwhile. The two replies differ in the object alone: `same` says whether a run gave the one of the reply.
fn answers_one(
    op: &Op,
    outcome: &Outcome,
    issue: &Issue,
    excuses: answers::Excuses,
    same: impl Fn(&Ran) -> bool,
) -> Result<Option<Ran>, Failure> {
    let mut all = issue.all();
    if matches!(op, Op::List { .. }) {
        // Each page was seen; the last one ended the listing.
        all = all.pop().into_iter().collect();
    }
    let (mut problem, mut likely) = (None, None);
    for ran in &all {
        match answers::check(op, outcome, Some(ran), excuses) {
            Ok(true) if same(ran) => return Ok(Some(ran.clone())),
            Ok(true) => likely = Some(ran),
            Ok(false) => return Ok(None),
            Err(failure) => problem = Some(failure),
        }
    }
    if let Some(ran) = likely {
        return Ok(Some(ran.clone()));
    }
    match (problem, &outcome.seen) {
        (Some(failure), _) => Err(failure),
        // The front end itself knows a handle of no volume.
        (None, Seen::Refused(Errno::Stale | Errno::TryLater)) => Ok(None),
        (None, _) => answers::check(op, outcome, None, excuses).map(|_| None),
    }
}

/// What unanswered calls name is still there.
pub fn still_meant(unanswered: &Unanswered, known: impl Fn(tarn_vfs::Node) -> bool) -> bool {
    unanswered.issue.nodes().all(known)
}
