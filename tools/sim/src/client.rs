//! Clients: they ask, compare, and wait for what they were promised - or do not wait.
//!
//! - Several are on their way at once. Straight on the engine each has one operation in progress and any number of replies
//!   that wait for the log; through the front end ([`remote`]) replies come when they may be shown.
//! - Some calls are made twice, at once or later.
//! - UNSTABLE writes are kept until a COMMIT says that they are durable, and written again if it says otherwise.

pub mod remote;

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use tarn_base::ids::Position;
use tarn_vfs::op::{Op, Outcome, Seen, Slots};
use tarn_vfs::{Caller, Errno, FileSystem, FileType, Node, Stability, WriteSpeed};
use tarn_wal::Log;
use tokio::sync::Notify;

use crate::chance::Chance;
use crate::chaos::Chaos;
use crate::check::bypass::Promises;
use crate::check::numbers::Numbers;
use crate::check::once::{self, Past};
use crate::check::unstable::Unstable;
use crate::check::{answers, promise, volumes};
use crate::failure::{Checked, Failure};
use crate::legible;
use crate::pairs::Pairs;
use crate::tracker::{Issue, Ran, Tracker};
use crate::workload::Workload;

use remote::{Remote, Unanswered};

/// Calls that may be repeated later, at most.
const PAST_MAX: usize = 40;
/// Replies of one client that wait for the log at once.
const WAITING_MAX: usize = 4;

/// What clients know, over all lives.
pub struct Knowledge {
    pub tracker: Arc<Tracker>,
    pub chaos: Arc<Chaos>,
    pub pairs: RefCell<Pairs>,
    pub workload: RefCell<Workload>,
    pub numbers: RefCell<Numbers>,
    pub past: RefCell<Vec<Past>>,
    pub unstable: RefCell<Unstable>,
    pub promises: RefCell<Promises>,
    pub volumes: RefCell<volumes::History>,
    /// What clients have to do before anything else.
    pub duties: RefCell<BTreeMap<u64, VecDeque<(Node, Op)>>>,
    /// Calls on their way through the front end.
    pub unanswered: RefCell<BTreeMap<u64, Unanswered>>,
    /// Everything up to here has been acknowledged.
    pub promised: Cell<Position>,
    pub operations: Cell<u64>,
}

/// One life as its clients see it.
pub struct Life<'a> {
    pub knowledge: &'a Knowledge,
    pub fs: Arc<dyn FileSystem>,
    /// The front end, if clients go through it.
    pub remote: Option<Remote>,
    pub log: Arc<Log>,
    /// The last position when it began; what took effect before did so in an earlier life.
    pub began: Position,
    pub think_ms: u64,
    /// The disk may lose power in the middle of a write, which reads of the log may notice first.
    pub power_may_go: bool,
    /// Operations that may still be issued.
    pub left: Cell<u64>,
    /// Told when so many are left.
    pub enough: Notify,
    pub enough_at: Cell<Option<u64>>,
}

/// What a client is about to ask.
pub struct Wish {
    pub kind: &'static str,
    pub op: Op,
    pub caller: Caller,
    /// What its slots stand for.
    pub slots: Slots,
    pub issue: Arc<Issue>,
}

/// What a reply shows.
pub struct Shown {
    pub op: Op,
    pub node: Option<Node>,
    pub outcome: Outcome,
    pub ran: Ran,
    /// As it was when the reply was made.
    pub verifier: [u8; 8],
    /// What was durable when the reply left the front end.
    pub left_with: Option<Position>,
}

impl Life<'_> {
    /// One client, until operations are used up or something is wrong.
    pub async fn client(&self, number: u64, mut chance: Chance) -> Checked {
        let mut waiting = FuturesUnordered::new();
        self.resume(number).await?;
        while self.take_one() {
            self.think(&mut chance).await;
            if chance.percent(4) {
                self.repeat(&mut chance).await?;
            }
            let shown = self.operation(number, &mut chance).await?;
            if let Some(shown) = shown {
                waiting.push(self.acknowledge(number, shown));
            }
            let patient = if chance.percent(50) { 0 } else { WAITING_MAX };
            while waiting.len() > patient {
                waiting.next().await.unwrap_or(Ok(()))?;
            }
        }
        while let Some(checked) = waiting.next().await {
            checked?;
        }
        Ok(())
    }

    fn take_one(&self) -> bool {
        let left = self.left.get();
        if self.enough_at.get() == Some(left) {
            self.enough_at.set(None);
            self.enough.notify_one();
        }
        self.left.set(left.saturating_sub(1));
        left > 0
    }

    async fn think(&self, chance: &mut Chance) {
        self.knowledge.chaos.jump_clock();
        match chance.range(0, self.think_ms) {
            0 => tokio::task::yield_now().await,
            span => tokio::time::sleep(Duration::from_millis(span)).await,
        }
    }

    pub fn event(&self, number: u64, what: std::fmt::Arguments<'_>) {
        self.knowledge.chaos.trace.event(&format!("client {number}"), what);
    }

    /// What the client does next: its duty, or what it likes.
    fn wish(&self, number: u64) -> Wish {
        let knowledge = self.knowledge;
        let (mut kind, mut op, mut caller) = knowledge.workload.borrow_mut().next(number);
        let pairs = knowledge.pairs.borrow();
        let duty = knowledge.duties.borrow_mut().get_mut(&number).and_then(VecDeque::pop_front);
        if let Some((node, again)) = duty
            && let Op::Write { node: slot, .. } = &again
            && pairs.engine.get(slot) == Some(&node)
        {
            (kind, op) = ("write again", again);
        }
        if self.remote.is_some() && remote::travels(&op) {
            remote::as_seen(&mut caller, &op, number);
        }
        knowledge.operations.set(knowledge.operations.get() + 1);
        knowledge.chaos.coverage.hit("operations", kind);
        self.event(number, format_args!("asks   {}", legible::op(&op)));
        knowledge.tracker.set_grace(self.fs.in_grace());
        let issue = knowledge.tracker.issue(&op, &caller, &pairs.model);
        Wish { kind, op, caller, slots: pairs.engine.clone(), issue }
    }

    /// Asks, and compares the answer; gives what its reply shows.
    async fn operation(&self, number: u64, chance: &mut Chance) -> Result<Option<Shown>, Failure> {
        let wish = self.wish(number);
        if let Some(remote) = &self.remote
            && remote::travels(&wish.op)
        {
            return self.ask_remote(remote, number, wish, chance).await;
        }
        let Wish { op, caller, slots, issue, .. } = wish;
        let twice = chance.percent(8) && caller.once.is_some() && once::remembers(&op);
        let (outcome, again) = self.run(&issue, &op, &caller, &slots, twice).await;
        let ran = issue.ran();
        let verifier = self.fs.write_verifier();
        self.event(number, format_args!("{}", answered(&op, &outcome, ran.as_ref())));
        let excuses = self.excuses(&outcome, false);
        let answered = answers::check(&op, &outcome, ran.as_ref(), excuses)?;
        let (true, Some(ran)) = (answered, ran) else {
            self.knowledge.chaos.coverage.hit("refusals for the moment", legible::seen(&outcome.seen));
            return Ok(None);
        };
        let node = subject(&op, &slots);
        let past = Past { op: op.clone(), caller, slots, outcome: outcome.clone(), at: ran.at, call: None };
        if let Some(again) = again {
            self.knowledge.chaos.coverage.hit("repeats", "at once");
            once::same(&past, &again)?;
        }
        let remembered = past.caller.once.is_some();
        self.note(past, &ran, remembered)?;
        Ok(Some(Shown { op, node, outcome, ran, verifier, left_with: None }))
    }

    /// Why an answer may be another than the model's.
    pub fn excuses(&self, outcome: &Outcome, wire: bool) -> answers::Excuses {
        let chaos = &self.knowledge.chaos;
        let limit = chaos.may_be_full() || self.fs.volumes().iter().any(|volume| volume.settings.size_limit.is_some());
        let refused = matches!(outcome.seen, Seen::Refused(Errno::Io | Errno::ReadOnly));
        let log = self.log.poisoned().is_some() || (self.power_may_go && refused);
        if log {
            // The power may have gone, which nobody else notices.
            self.enough.notify_one();
        }
        answers::Excuses { store: chaos.may_fail(), log, limit, wire }
    }

    /// Polls the operation; with `twice`, the same call comes a second time while the first is on its way.
    async fn run(
        &self,
        issue: &Arc<Issue>,
        op: &Op,
        caller: &Caller,
        slots: &Slots,
        twice: bool,
    ) -> (Outcome, Option<Outcome>) {
        let fs = &*self.fs;
        let mut first = pin!(self.knowledge.tracker.run(issue, op.run(fs, caller, slots)));
        let begun = std::future::poll_fn(|context| Poll::Ready(first.as_mut().poll(context))).await;
        // A first call that took effect, or has not come to its end: the second one must not run.
        let joins = begun.is_pending() || issue.ran().is_some_and(|ran| ran.changed);
        let second = async { if twice && joins { Some(op.run(fs, caller, slots).await) } else { None } };
        match begun {
            Poll::Ready(outcome) => (outcome, second.await),
            Poll::Pending => futures::join!(first, second),
        }
    }

    /// Takes note of what an answered operation did; it may be repeated later if its outcome is remembered.
    pub fn note(&self, past: Past, ran: &Ran, remembered: bool) -> Checked {
        let knowledge = self.knowledge;
        if ran.changed && ran.at > self.began {
            knowledge.numbers.borrow().taken(ran.at)?;
        }
        if past.outcome.seen == ran.outcome.seen {
            knowledge.pairs.borrow_mut().note(&past.op, &past.outcome, &ran.outcome, ran.at)?;
        }
        knowledge.workload.borrow_mut().note(&past.op, kind_of(&past.outcome.seen));
        if ran.changed && remembered && once::remembers(&past.op) {
            let mut all = knowledge.past.borrow_mut();
            if all.len() == PAST_MAX {
                all.remove(0);
            }
            all.push(past);
        }
        Ok(())
    }

    /// Makes a call again that took effect some time ago.
    async fn repeat(&self, chance: &mut Chance) -> Checked {
        let past = {
            let all = self.knowledge.past.borrow();
            if all.is_empty() || self.log.poisoned().is_some() {
                return Ok(());
            }
            chance.pick(&all).clone()
        };
        self.knowledge.chaos.coverage.hit("repeats", "later");
        self.check_once(&past).await
    }

    /// Holds a repeat of a call against the first.
    async fn check_once(&self, past: &Past) -> Checked {
        match (&self.remote, &past.call) {
            (Some(remote), Some(_)) => remote.repeats(past).await,
            _ => once::check(&*self.fs, past).await,
        }
    }

    /// Waits until the reply may be shown; from then on it counts.
    pub async fn acknowledge(&self, number: u64, shown: Shown) -> Checked {
        let Shown { op, node, outcome, ran, verifier, left_with } = shown;
        if outcome.position > Position::ZERO && self.fs.durable(outcome.position).await.is_err() {
            return Ok(());
        }
        // What was there at the opening is durable, though this log may never have held it.
        let durable = left_with.unwrap_or(self.log.durable()).max(self.began);
        promise::leaves(ran.required, durable)?;
        self.keep_unstable(number, &op, node, &outcome, &ran, (verifier, durable))?;
        let knowledge = self.knowledge;
        if let Some(node) = outcome.node {
            knowledge.numbers.borrow_mut().object(node)?;
        }
        if ran.changed && ran.required >= ran.at {
            knowledge.numbers.borrow_mut().seen(ran.at);
        }
        if ran.required > knowledge.promised.get() {
            knowledge.promised.set(ran.required);
            self.event(number, format_args!("relies on {}", ran.required));
        }
        Ok(())
    }

    /// Whether nothing is promised of the object.
    fn is_high(&self, node: Node) -> bool {
        let volumes = self.fs.volumes();
        volumes.iter().any(|info| info.id == node.volume && info.settings.write_speed == WriteSpeed::High)
    }

    /// A COMMIT was answered: what was in the file when it began is there for ever.
    fn note_commit(&self, node: Node, ran: &Ran) {
        let knowledge = self.knowledge;
        let Some(meant) = knowledge.pairs.borrow().meant(node) else { return };
        if let Some(last) = knowledge.tracker.laid(meant, ran.began).last() {
            knowledge.promises.borrow_mut().committed(meant, ran.at, last.at);
        }
    }

    /// What the client remembers of writes that may be lost. `at_reply`: verifier, and what was durable.
    fn keep_unstable(
        &self,
        number: u64,
        op: &Op,
        node: Option<Node>,
        outcome: &Outcome,
        ran: &Ran,
        at_reply: ([u8; 8], Position),
    ) -> Checked {
        let at = ran.at;
        let (Some(node), Seen::Changed { .. }) = (node, &outcome.seen) else { return Ok(()) };
        if self.is_high(node) {
            return Ok(());
        }
        let mut unstable = self.knowledge.unstable.borrow_mut();
        match op {
            // One of no bytes changes nothing that could be lost.
            Op::Write { stability: Stability::Unstable, .. } if ran.changed => {
                unstable.written(number, node, op.clone(), at, at_reply.0);
            }
            Op::Commit { .. } => {
                self.note_commit(node, ran);
                let again = unstable.committed(number, node, at, at_reply)?;
                if !again.is_empty() {
                    self.event(number, format_args!("must write {} times again", again.len()));
                }
                let mut duties = self.knowledge.duties.borrow_mut();
                duties.entry(number).or_default().extend(again.into_iter().map(|op| (node, op)));
            }
            _ => {}
        }
        Ok(())
    }
}

/// The object that an operation is about.
pub fn subject(op: &Op, slots: &Slots) -> Option<Node> {
    match op {
        Op::Write { node, .. } | Op::Commit { node } => slots.get(node).copied(),
        _ => None,
    }
}

fn kind_of(seen: &Seen) -> Option<FileType> {
    match seen {
        Seen::Object(facts) | Seen::Changed { object: Some(facts), .. } => Some(facts.kind),
        _ => None,
    }
}

pub fn answered(op: &Op, outcome: &Outcome, ran: Option<&Ran>) -> String {
    let at = match ran {
        Some(ran) if ran.changed => format!(" at {}", ran.at),
        Some(ran) => format!(" after {}", ran.at),
        None => String::new(),
    };
    let at = match outcome.node {
        Some(node) => format!("{at} (inode {:x})", node.ino.0),
        None => at,
    };
    format!("hears  {} of {}{at}", legible::seen(&outcome.seen), legible::op(op))
}
