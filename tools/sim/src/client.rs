//! Clients: they ask, compare, and wait for what they were promised - or do not wait.
//!
//! - Several are on their way at once; each has one operation in progress and any number of replies that wait for the log.
//! - Some calls are made twice, at once or later.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use tarn_base::ids::Position;
use tarn_vfs::op::{Op, Outcome, Seen, Slots};
use tarn_vfs::{Caller, Errno, FileSystem, FileType};
use tarn_wal::Log;
use tokio::sync::Notify;

use crate::chance::Chance;
use crate::chaos::Chaos;
use crate::check::numbers::Numbers;
use crate::check::once::{self, Past};
use crate::check::{answers, promise};
use crate::failure::{Checked, Failure};
use crate::legible;
use crate::pairs::Pairs;
use crate::tracker::{Issue, Ran, Tracker};
use crate::workload::Workload;

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
    /// Everything up to here has been acknowledged.
    pub promised: Cell<Position>,
    pub operations: Cell<u64>,
}

/// One life as its clients see it.
pub struct Life<'a> {
    pub knowledge: &'a Knowledge,
    pub fs: Arc<dyn FileSystem>,
    pub log: Arc<Log>,
    pub think_ms: u64,
    /// The disk may lose power in the middle of a write, which reads of the log may notice first.
    pub power_may_go: bool,
    /// Operations that may still be issued.
    pub left: Cell<u64>,
    /// Told when so many are left.
    pub enough: Notify,
    pub enough_at: Cell<Option<u64>>,
}

impl Life<'_> {
    /// One client, until operations are used up or something is wrong.
    pub async fn client(&self, number: u64, mut chance: Chance) -> Checked {
        let mut waiting = FuturesUnordered::new();
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
        match chance.range(0, self.think_ms) {
            0 => tokio::task::yield_now().await,
            span => tokio::time::sleep(Duration::from_millis(span)).await,
        }
    }

    fn event(&self, number: u64, what: std::fmt::Arguments<'_>) {
        self.knowledge.chaos.trace.event(&format!("client {number}"), what);
    }

    /// Asks, and compares the answer; gives what its reply shows.
    async fn operation(&self, number: u64, chance: &mut Chance) -> Result<Option<Shown>, Failure> {
        let knowledge = self.knowledge;
        let (kind, op, caller) = knowledge.workload.borrow_mut().next(number);
        let (slots, issue) = {
            let pairs = knowledge.pairs.borrow();
            (pairs.engine.clone(), knowledge.tracker.issue(&op, &caller, &pairs.model))
        };
        knowledge.operations.set(knowledge.operations.get() + 1);
        knowledge.chaos.coverage.hit("operations", kind);
        self.event(number, format_args!("asks   {}", legible::op(&op)));
        knowledge.tracker.set_grace(self.fs.in_grace());
        let twice = chance.percent(8) && caller.once.is_some() && once::remembers(&op);
        let (outcome, again) = self.run(&issue, &op, &caller, &slots, twice).await;
        let ran = issue.ran();
        self.event(number, format_args!("{}", answered(&op, &outcome, ran.as_ref())));
        let limit = knowledge.chaos.may_be_full()
            || self.fs.volumes().iter().any(|volume| volume.settings.size_limit.is_some());
        let refused = matches!(outcome.seen, Seen::Refused(Errno::Io | Errno::ReadOnly));
        let log = self.log.poisoned().is_some() || (self.power_may_go && refused);
        let excuses = answers::Excuses { store: knowledge.chaos.may_fail(), log, limit };
        if excuses.log {
            // The power may have gone, which nobody else notices.
            self.enough.notify_one();
        }
        let answered = answers::check(&op, &outcome, ran.as_ref(), excuses)?;
        let (true, Some(ran)) = (answered, ran) else {
            knowledge.chaos.coverage.hit("refusals for the moment", legible::seen(&outcome.seen));
            return Ok(None);
        };
        self.note(op, caller, slots, &outcome, &ran, again)?;
        Ok(Some(Shown { outcome, ran }))
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

    fn note(
        &self,
        op: Op,
        caller: Caller,
        slots: Slots,
        outcome: &Outcome,
        ran: &Ran,
        again: Option<Outcome>,
    ) -> Checked {
        let knowledge = self.knowledge;
        if ran.changed {
            knowledge.numbers.borrow().taken(ran.at)?;
        }
        if outcome.seen == ran.outcome.seen {
            knowledge.pairs.borrow_mut().note(&op, outcome, &ran.outcome, ran.at)?;
        }
        knowledge.workload.borrow_mut().note(&op, kind_of(&outcome.seen));
        let past = Past { op, caller, slots, outcome: outcome.clone(), at: ran.at };
        if let Some(again) = again {
            knowledge.chaos.coverage.hit("repeats", "at once");
            once::same(&past, &again)?;
        }
        if ran.changed && past.caller.once.is_some() && once::remembers(&past.op) {
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
        once::check(&*self.fs, &past).await
    }

    /// Waits until the reply may be shown; from then on it counts.
    async fn acknowledge(&self, number: u64, shown: Shown) -> Checked {
        let Shown { outcome, ran } = shown;
        if outcome.position > Position::ZERO && self.fs.durable(outcome.position).await.is_err() {
            return Ok(());
        }
        promise::leaves(ran.required, self.log.durable())?;
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
}

/// What a reply shows.
struct Shown {
    outcome: Outcome,
    ran: Ran,
}

fn kind_of(seen: &Seen) -> Option<FileType> {
    match seen {
        Seen::Object(facts) | Seen::Changed { object: Some(facts), .. } => Some(facts.kind),
        _ => None,
    }
}

fn answered(op: &Op, outcome: &Outcome, ran: Option<&Ran>) -> String {
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
