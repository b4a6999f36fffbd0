//! Keeps the model in step with the engine: each operation runs over the model at the moment it took effect.
//!
//! - An operation takes effect within one poll: of the caller's future, or of the task that finishes it. Whether it
//!   changed anything shows in the log's last position, before and after.
//! - A change that the engine did not log is taken back from the model: a refusal for the moment, if it says so.
//! - For every position that an operation took there is a copy of the model.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::ops::{Bound, Range};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use futures::FutureExt;
use parking_lot::Mutex;
use tarn_base::ids::{Position, VolumeId};
use tarn_base::time::Time;
use tarn_base::world::{BoxFuture, Clock};
use tarn_vfs::model::Model;
use tarn_vfs::op::{Op, Outcome, Seen, Slot, Slots};
use tarn_vfs::walk::Facts;
use tarn_vfs::{Answer, Caller, Errno, FileSystem, Node, Reply, Stability};

use crate::failure::Failure;
use crate::legible;
use crate::world::{SimClock, Watch};

/// An operation on its way.
pub struct Issue {
    op: Op,
    caller: Caller,
    slots: Slots,
    /// By which the front end's calls are known again.
    pub tag: u32,
    /// Each time it took effect: repeats of what may run twice do so again.
    ran: Mutex<Vec<Ran>>,
    /// Changes of others when it began, and the log's last position.
    began: Mutex<Option<(u64, Position)>>,
    /// A task of the engine has taken it over.
    taken: AtomicBool,
    /// Its client was answered, and copies of it may still come.
    over: AtomicBool,
}

/// What became of an operation when it took effect.
#[derive(Clone, Debug)]
pub struct Ran {
    /// The log's last position just after.
    pub at: Position,
    /// The log's last position when the operation began.
    pub began: Position,
    /// It is the operation's own.
    pub changed: bool,
    /// The model says that it must be.
    pub must_change: bool,
    /// What the model answers.
    pub outcome: Outcome,
    /// What must be durable before the reply may be shown.
    pub required: Position,
    /// Changes before the operation began and when it ended; more than one apart for a listing in pages.
    changes: (u64, u64),
}

/// Bytes of a file that an operation made what they are: it wrote them, or cut them off.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Laid {
    pub at: Position,
    /// The model's.
    pub node: Node,
    pub bytes: Range<u64>,
    /// Written UNSTABLE.
    pub unstable: bool,
}

impl Ran {
    /// Whether nothing else changed while it ran, so that the answers can be compared.
    pub fn is_atomic(&self) -> bool {
        self.changes.0 == self.changes.1
    }
}

impl Issue {
    /// A listing comes in pages, each of which takes effect by itself.
    fn is_list(&self) -> bool {
        matches!(self.op, Op::List { .. })
    }

    /// The model's objects that it names.
    pub fn nodes(&self) -> impl Iterator<Item = Node> {
        self.slots.values().copied()
    }

    /// How it took effect, last.
    pub fn ran(&self) -> Option<Ran> {
        self.ran.lock().last().cloned()
    }

    /// How it took effect, each time.
    pub fn all(&self) -> Vec<Ran> {
        self.ran.lock().clone()
    }

    /// From now on it must not take effect where that could be seen.
    pub fn end(&self) {
        self.over.store(true, Ordering::Relaxed);
    }

    /// What came after `position` never was.
    fn forget_after(&self, position: Position) {
        self.ran.lock().retain(|ran| ran.at <= position);
        *self.began.lock() = None;
        self.taken.store(false, Ordering::Relaxed);
    }
}

struct Inner {
    /// Tells the log's last position.
    appended: Arc<dyn Fn() -> Position + Send + Sync>,
    /// Whose future is polled now.
    current: Option<Arc<Issue>>,
    /// Operations that calls may come for, by their tags.
    issues: BTreeMap<u32, Arc<Issue>>,
    next_tag: u32,
    /// What an operation did that it must not.
    wrong: Option<Failure>,
    /// Copies of the model just after each position that an operation took.
    history: BTreeMap<Position, Model>,
    /// What operations did to the bytes of files, by their positions.
    laid: BTreeMap<Position, Laid>,
    changes: u64,
    /// Last change of each object that a reply must not show before it is durable, and last change of all.
    stable: BTreeMap<Node, Position>,
    any: BTreeMap<Node, Position>,
    in_grace: bool,
    /// Volumes whose replies promise nothing.
    high: BTreeSet<VolumeId>,
}

/// See the head of the file.
pub struct Tracker {
    pub model: Model,
    model_clock: Arc<SetClock>,
    clock: Arc<SimClock>,
    inner: Mutex<Inner>,
}

impl Tracker {
    pub fn new(clock: Arc<SimClock>) -> Arc<Tracker> {
        let model_clock = Arc::new(SetClock::default());
        let inner = Inner {
            appended: Arc::new(|| Position::ZERO),
            current: None,
            issues: BTreeMap::new(),
            next_tag: 0,
            wrong: None,
            history: BTreeMap::new(),
            laid: BTreeMap::new(),
            changes: 0,
            stable: BTreeMap::new(),
            any: BTreeMap::new(),
            in_grace: false,
            high: BTreeSet::new(),
        };
        let model = Model::new(model_clock.clone());
        Arc::new(Tracker { model, model_clock, clock, inner: Mutex::new(inner) })
    }

    /// Where the log's last position can be asked from now on.
    pub fn follow(&self, appended: Arc<dyn Fn() -> Position + Send + Sync>) {
        self.inner.lock().appended = appended;
    }

    /// Takes the model as it is for what there is at `position`; what came after it never was.
    pub fn begin_at(&self, position: Position) {
        let mut inner = self.inner.lock();
        inner.history.retain(|at, _| *at < position);
        inner.history.insert(position, self.model.snapshot());
        inner.laid.retain(|at, _| *at <= position);
        inner.stable.clear();
        inner.any.clear();
        inner.current = None;
        inner.issues.values().for_each(|issue| issue.forget_after(position));
    }

    /// Of the operations begun so far, no calls come any more but for these.
    pub fn keep(&self, tags: &[u32]) {
        self.inner.lock().issues.retain(|tag, _| tags.contains(tag));
    }

    /// The operation of this tag.
    pub fn issued(&self, tag: u32) -> Option<Arc<Issue>> {
        self.inner.lock().issues.get(&tag).cloned()
    }

    /// What has gone wrong since it was asked last.
    pub fn wrong(&self) -> Option<Failure> {
        self.inner.lock().wrong.take()
    }

    /// What the model takes for the present time, until the next operation.
    pub fn set_clock(&self, now: Time) {
        *self.model_clock.0.lock() = now;
    }

    pub fn set_grace(&self, in_grace: bool) {
        self.inner.lock().in_grace = in_grace;
    }

    /// Replies of this volume of the model leave before anything is durable.
    pub fn set_high(&self, volume: VolumeId) {
        self.inner.lock().high.insert(volume);
    }

    /// The model as of `position`, or of the last operation before it.
    pub fn at(&self, position: Position) -> Option<(Position, Model)> {
        let inner = self.inner.lock();
        inner.history.range(..=position).next_back().map(|(at, model)| (*at, model.snapshot()))
    }

    /// What operations up to `position` did to the bytes of a file of the model, in order.
    pub fn laid(&self, node: Node, position: Position) -> Vec<Laid> {
        let inner = self.inner.lock();
        inner.laid.range(..=position).map(|(_, laid)| laid).filter(|laid| laid.node == node).cloned().collect()
    }

    /// What the operation that took `position` did to the bytes of a file.
    pub fn laid_at(&self, position: Position) -> Option<Laid> {
        let inner = self.inner.lock();
        let (at, _) = inner.history.range(position..).next()?;
        inner.laid.get(at).cloned()
    }

    /// Bytes of a file of the model as they were at `from`, and after each change up to `to`; what is not there is zeros.
    pub fn values(&self, node: Node, bytes: Range<u64>, from: Position, to: Position) -> Vec<(Position, Vec<u8>)> {
        let inner = self.inner.lock();
        let first = inner.history.range(..=from).next_back();
        let later = inner.history.range((Bound::Excluded(from), Bound::Included(to)));
        let count = (bytes.end - bytes.start) as usize;
        let mut values: Vec<(Position, Vec<u8>)> = first
            .into_iter()
            .chain(later)
            .map(|(at, model)| (*at, model.peek(node, bytes.start, count).unwrap_or_else(|| vec![0; count])))
            .collect();
        values.dedup_by(|later, earlier| later.1 == earlier.1);
        values
    }

    /// Positions that operations took and that were not lost.
    pub fn positions(&self) -> Vec<Position> {
        self.inner.lock().history.keys().copied().collect()
    }

    /// An operation over `slots` of the model, to be polled by [`Tracker::run`].
    pub fn issue(&self, op: &Op, caller: &Caller, slots: &Slots) -> Arc<Issue> {
        let named: Slots = nodes_of(op).iter().filter_map(|slot| Some((*slot, *slots.get(slot)?))).collect();
        // The model must not remember outcomes: repeats are checked apart.
        let caller = Caller { once: None, ..caller.clone() };
        let (ran, began, taken, over) = Default::default();
        let mut inner = self.inner.lock();
        inner.next_tag += 1;
        let tag = inner.next_tag;
        let issue = Arc::new(Issue { op: op.clone(), caller, slots: named, tag, ran, began, taken, over });
        inner.issues.insert(tag, issue.clone());
        issue
    }

    /// Makes `call`, which is the operation over the engine or a repeat of it, and notes when it takes effect.
    pub fn observe<T: Send + 'static>(
        self: &Arc<Self>,
        issue: &Arc<Issue>,
        call: impl FnOnce() -> Answer<T>,
    ) -> Answer<T> {
        let before = self.enter(Some(issue.clone()));
        let answer = call();
        let mine = self.inner.lock().current.take().is_some();
        if mine && matches!(answer, Answer::Ready(_)) {
            self.took_effect(issue, before);
        }
        match answer {
            Answer::Waits(waits) if mine => self.held(issue.clone(), waits),
            answer => answer,
        }
    }

    /// An operation that has not begun: it takes effect when it is polled, unless a task takes it over then.
    fn held<T: Send + 'static>(self: &Arc<Self>, issue: Arc<Issue>, mut waits: BoxFuture<Reply<T>>) -> Answer<T> {
        let tracker = self.clone();
        let mut mine = true;
        Answer::Waits(Box::pin(std::future::poll_fn(move |context| {
            let before = tracker.enter(mine.then(|| issue.clone()));
            let polled = waits.as_mut().poll(context);
            mine = tracker.inner.lock().current.take().is_some();
            if mine && polled.is_ready() {
                tracker.took_effect(&issue, before);
            }
            polled
        })))
    }

    /// Polls `future`, which is the operation over the engine, and notes when it takes effect.
    pub async fn run<T>(self: &Arc<Self>, issue: &Arc<Issue>, future: impl Future<Output = T>) -> T {
        let mut future = Box::pin(future);
        std::future::poll_fn(move |context| {
            let before = self.enter(Some(issue.clone()));
            let polled = future.as_mut().poll(context);
            let mine = self.inner.lock().current.take().is_some();
            // Unless a task has taken it over, it took effect here.
            let elsewhere = issue.taken.load(Ordering::Relaxed) && !issue.is_list();
            if mine && polled.is_ready() && !elsewhere {
                self.took_effect(issue, before);
            }
            polled
        })
        .await
    }

    fn enter(&self, issue: Option<Arc<Issue>>) -> Position {
        let mut inner = self.inner.lock();
        if let Some(issue) = &issue {
            issue.began.lock().get_or_insert((inner.changes, (inner.appended)()));
        }
        inner.current = issue;
        (inner.appended)()
    }

    /// Runs the operation over the model. `before`: the log's last position before it took effect.
    fn took_effect(&self, issue: &Issue, before: Position) {
        let mut guard = self.inner.lock();
        let inner = &mut *guard;
        let at = (inner.appended)();
        let changed = at > before;
        let (first, began) = issue.began.lock().unwrap_or((inner.changes, before));
        if changed && issue.over.load(Ordering::Relaxed) && !self.comes_to_the_same(issue) && inner.wrong.is_none() {
            let expected = format!("{}, answered, does not run over what came since", legible::op(&issue.op));
            inner.wrong = Some(Failure::new("once", expected, format!("a late copy took {at}")));
        }
        if remembers(&issue.op) && issue.ran.lock().iter().any(|ran| ran.changed) {
            // A repeat, which is answered from memory.
            if changed && inner.wrong.is_none() {
                let expected = format!("{} runs once, however often it is called", legible::op(&issue.op));
                inner.wrong = Some(Failure::new("once", expected, format!("it took {at} too")));
            }
            return;
        }
        if !changed && let Some(outcome) = self.stands(issue) {
            // What it answers for is there, and must be as durable as a change of its own would be.
            let any = issue.slots.values().filter_map(|node| inner.any.get(node)).max().copied();
            let required = match is_unstable(&issue.op) {
                _ if inner.is_high(issue) => Position::ZERO,
                true => inner.required(issue, &outcome),
                false => any.unwrap_or(Position::ZERO),
            };
            let changes = (inner.changes, inner.changes);
            issue.ran.lock().push(Ran { at, began, changed, must_change: false, outcome, required, changes });
            return;
        }
        *self.model_clock.0.lock() = self.clock.now();
        let before_model = self.model.snapshot();
        let (position, locks) = (self.model.position(), self.model.locks());
        self.model.set_grace(inner.in_grace);
        let outcome = issue.op.run(&self.model, &issue.caller, &issue.slots).now_or_never();
        let outcome =
            outcome.unwrap_or(Outcome { seen: Seen::Refused(Errno::Io), node: None, position: Position::ZERO });
        let must_change = self.model.position() != position || self.model.locks() != locks;
        let first = if issue.is_list() { first } else { inner.changes };
        // Pages that others changed between show more than one state, which the model does not follow.
        let torn = first != inner.changes;
        let required = if torn { Position::ZERO } else { inner.required(issue, &outcome) };
        if changed {
            inner.changes += 1;
            inner.history.insert(at, self.model.snapshot());
            let touched = self.touched(issue, &outcome, &before_model);
            inner.note_change(issue, &touched, at);
            inner.laid.extend(laid(issue, &outcome, &touched, at).map(|laid| (at, laid)));
        } else {
            self.model.restore(&before_model);
        }
        let required = if changed && !is_unstable(&issue.op) { required.max(at) } else { required };
        let required = if inner.is_high(issue) { Position::ZERO } else { required };
        let changes = (first, inner.changes - u64::from(changed));
        issue.ran.lock().push(Ran { at, began, changed, must_change, outcome, required, changes });
    }

    /// What a copy of a write that ran or was answered tells, if its bytes are there: it changes nothing.
    fn stands(&self, issue: &Issue) -> Option<Outcome> {
        let Op::Write { node, data, .. } = &issue.op else { return None };
        let copy = issue.over.load(Ordering::Relaxed) || !issue.ran.lock().is_empty();
        if !copy || data.count == 0 || !self.comes_to_the_same(issue) {
            return None;
        }
        let node = *issue.slots.get(node)?;
        let attr = self.model.getattr(&Caller::root(), node).now_or_never()?.ok()?.value;
        let after = [Some(Facts::from(&attr)), None];
        let seen = Seen::Changed { object: None, count: data.count, after };
        Some(Outcome { seen, node: None, position: Position::ZERO })
    }

    /// Whether a write would write what is there; any other operation does not matter here.
    fn comes_to_the_same(&self, issue: &Issue) -> bool {
        let Op::Write { node, offset, data, .. } = &issue.op else { return true };
        let Some(node) = issue.slots.get(node) else { return true };
        let read = self.model.read(&Caller::root(), *node, *offset, data.count).now_or_never();
        read.is_none_or(|read| read.is_ok_and(|done| done.value.data.concat() == *data.bytes()))
    }

    /// Of the objects that the operation names or gives, those that it changed.
    fn touched(&self, issue: &Issue, outcome: &Outcome, before: &Model) -> Vec<Node> {
        let change = |model: &Model, node: Node| match model.getattr(&Caller::root(), node).now_or_never() {
            Some(Ok(done)) => Some(done.value.change),
            _ => None,
        };
        let named = issue.slots.values().chain(&outcome.node).copied();
        named.filter(|node| change(before, *node) != change(&self.model, *node)).collect()
    }
}

impl Inner {
    /// Whether the reply leaves at once whatever it shows. Locks wait in any volume.
    fn is_high(&self, issue: &Issue) -> bool {
        let locks = matches!(issue.op, Op::Lock { .. } | Op::Unlock { .. } | Op::ReleaseClient { .. });
        !locks && issue.nodes().any(|node| self.high.contains(&node.volume))
    }

    /// What the reply shows that must be durable before.
    fn required(&self, issue: &Issue, outcome: &Outcome) -> Position {
        let shows = match &outcome.seen {
            Seen::Refused(errno) => matches!(errno, Errno::Exists | Errno::NotFound | Errno::NotEmpty),
            _ => true,
        };
        if !shows {
            return Position::ZERO;
        }
        let of = if matches!(issue.op, Op::Commit { .. }) { &self.any } else { &self.stable };
        let named = issue.slots.values().chain(&outcome.node);
        // Locking and statistics of a volume show nothing of an object.
        match issue.op {
            Op::Lock { .. } | Op::Unlock { .. } | Op::ReleaseClient { .. } | Op::Statfs { .. } => Position::ZERO,
            _ => named.filter_map(|node| of.get(node)).max().copied().unwrap_or(Position::ZERO),
        }
    }

    fn note_change(&mut self, issue: &Issue, touched: &[Node], at: Position) {
        // Reading may set an access time, which nobody has to wait for.
        let shown = match issue.op {
            Op::Read { .. } | Op::List { .. } | Op::Readlink { .. } => return,
            Op::Lock { .. } | Op::Unlock { .. } | Op::ReleaseClient { .. } => return,
            _ => !is_unstable(&issue.op),
        };
        for node in touched {
            self.any.insert(*node, at);
            if shown {
                self.stable.insert(*node, at);
            }
        }
    }
}

/// The model's clock: what the world's showed when the operation took effect.
#[derive(Debug, Default)]
struct SetClock(Mutex<Time>);

impl Clock for SetClock {
    fn now(&self) -> Time {
        *self.0.lock()
    }

    fn steady(&self) -> Duration {
        Duration::ZERO
    }

    fn sleep(&self, _span: Duration) -> BoxFuture<()> {
        Box::pin(std::future::ready(()))
    }
}

/// Whether the operation remembers its outcome under a token.
pub fn remembers(op: &Op) -> bool {
    matches!(
        op,
        Op::Setattr { .. }
            | Op::Create { .. }
            | Op::Mkdir { .. }
            | Op::Make { .. }
            | Op::Link { .. }
            | Op::Remove { .. }
            | Op::Rmdir { .. }
            | Op::Rename { .. }
    )
}

fn is_unstable(op: &Op) -> bool {
    match op {
        Op::Write { stability, .. } => *stability == Stability::Unstable,
        Op::Read { .. } | Op::List { .. } | Op::Readlink { .. } => true,
        _ => false,
    }
}

/// What an operation did to the bytes of a file.
fn laid(issue: &Issue, outcome: &Outcome, touched: &[Node], at: Position) -> Option<Laid> {
    let (node, bytes, unstable) = match (&issue.op, &outcome.seen) {
        (Op::Write { node, offset, stability, .. }, Seen::Changed { count, .. }) => {
            let end = offset.saturating_add(u64::from(*count));
            (issue.slots.get(node).copied(), *offset..end, *stability == Stability::Unstable)
        }
        (Op::Setattr { node, set }, Seen::Changed { .. }) => {
            (issue.slots.get(node).copied(), set.size?..u64::MAX, false)
        }
        (Op::Create { set, .. }, Seen::Changed { .. }) => (outcome.node, set.size?..u64::MAX, false),
        _ => return None,
    };
    let node = node.filter(|node| touched.contains(node))?;
    Some(Laid { at, node, bytes, unstable })
}

/// Slots that an operation names, without the one it fills.
fn nodes_of(op: &Op) -> Vec<Slot> {
    match op {
        Op::Getattr { node }
        | Op::Setattr { node, .. }
        | Op::Access { node, .. }
        | Op::Readlink { node }
        | Op::Read { node, .. }
        | Op::Write { node, .. }
        | Op::Commit { node }
        | Op::Statfs { node }
        | Op::Lock { node, .. }
        | Op::Unlock { node, .. } => vec![*node],
        Op::Lookup { dir, .. }
        | Op::List { dir, .. }
        | Op::Create { dir, .. }
        | Op::Mkdir { dir, .. }
        | Op::Make { dir, .. }
        | Op::Remove { dir, .. }
        | Op::Rmdir { dir, .. } => vec![*dir],
        Op::Link { node, dir, .. } => vec![*node, *dir],
        Op::Rename { from, to, .. } => vec![*from, *to],
        Op::ReleaseClient { .. } => Vec::new(),
    }
}

impl Watch for Tracker {
    fn watch(self: Arc<Self>, task: BoxFuture<()>) -> BoxFuture<()> {
        let Some(issue) = self.inner.lock().current.take() else { return task };
        issue.taken.store(true, Ordering::Relaxed);
        Box::pin(Watched { tracker: self, issue, task })
    }
}

/// A task of the engine that finishes an operation.
struct Watched {
    tracker: Arc<Tracker>,
    issue: Arc<Issue>,
    task: BoxFuture<()>,
}

impl Future for Watched {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let before = self.tracker.enter(None);
        let polled = self.task.as_mut().poll(context);
        if polled.is_ready() {
            self.tracker.took_effect(&self.issue, before);
        }
        polled
    }
}
