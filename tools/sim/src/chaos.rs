//! What goes wrong: the object store, commits of metadata, power at crash points.
//!
//! - Everything is decided by one stream of chance, in the order in which the engine asks.
//! - While it is calm nothing fails, and calls take as long as ever.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tarn_base::world::{BoxFuture, Clock};
use tarn_meta::mem::{CommitFate, CommitHook};
use tarn_store::StoreError;
use tarn_store::fault::{Effect, Fault, Faults};
use tarn_store::operation::{Kind, Operation};
use tokio::sync::Notify;

use crate::chance::Chance;
use crate::coverage::Coverage;
use crate::plan::LifePlan;
use crate::trace::Trace;
use crate::world::SimClock;

struct Mood {
    chance: Chance,
    calm: bool,
    store_faults: u32,
    store_full: u32,
    store_spells: u32,
    spoilt_reads: u32,
    commit_faults: u32,
    clock_jumps: u32,
    /// Calls that the store goes on to refuse.
    refusing: u64,
    /// Crash points to be met until the power goes, if it does; only those of the name, if there is one.
    points_left: Option<(Option<&'static str>, u64)>,
}

/// Flushes of the log that take seconds, in a thousand.
const SLOW_FLUSHES: u32 = 5;

/// See the head of the file.
pub struct Chaos {
    mood: Mutex<Mood>,
    store_ms: u64,
    clock: Arc<SimClock>,
    pub coverage: Arc<Coverage>,
    pub trace: Arc<Trace>,
    /// The power has gone at a crash point.
    pub power_gone: Notify,
}

impl Chaos {
    pub fn new(
        chance: Chance,
        store_ms: u64,
        clock: Arc<SimClock>,
        coverage: Arc<Coverage>,
        trace: Arc<Trace>,
    ) -> Arc<Chaos> {
        let mood = Mood {
            chance,
            calm: true,
            store_faults: 0,
            store_full: 0,
            store_spells: 0,
            spoilt_reads: 0,
            commit_faults: 0,
            clock_jumps: 0,
            refusing: 0,
            points_left: None,
        };
        let power_gone = Notify::new();
        Arc::new(Chaos { mood: Mutex::new(mood), store_ms, clock, coverage, trace, power_gone })
    }

    /// Faults as the plan has them from now on.
    pub fn rage(&self, plan: &LifePlan) {
        let mut mood = self.mood.lock();
        mood.calm = false;
        mood.store_faults = plan.store_faults;
        mood.store_full = plan.store_full;
        mood.spoilt_reads = plan.spoilt_reads;
        mood.commit_faults = plan.commit_faults;
        mood.store_spells = plan.store_spells;
        mood.clock_jumps = plan.clock_jumps;
    }

    /// A number below `end`.
    pub fn draw(&self, end: u64) -> u64 {
        self.mood.lock().chance.below(end)
    }

    /// No faults and no crashes from now on.
    pub fn calm(&self) {
        let mut mood = self.mood.lock();
        mood.calm = true;
        mood.refusing = 0;
        mood.points_left = None;
    }

    /// Whether an operation may fail because of the store.
    pub fn may_fail(&self) -> bool {
        let mood = self.mood.lock();
        !mood.calm && (mood.store_faults > 0 || mood.store_spells > 0 || mood.spoilt_reads > 0)
    }

    /// Whether the store may be full.
    pub fn may_be_full(&self) -> bool {
        let mood = self.mood.lock();
        !mood.calm && mood.store_full > 0
    }

    /// The power goes at the `count`th crash point from now, counted from 1.
    pub fn cut_power_at(&self, count: Option<u64>) {
        self.mood.lock().points_left = count.map(|count| (None, count));
    }

    /// The power goes the `count`th time from now that this crash point is met.
    pub fn cut_power_at_point(&self, name: &'static str, count: u64) {
        self.mood.lock().points_left = Some((Some(name), count));
    }

    /// Sets the wall clock to another time, now and then; whoever works must not mind.
    pub fn jump_clock(&self) {
        let mut mood = self.mood.lock();
        let jumps = mood.clock_jumps;
        if mood.calm || jumps == 0 || !mood.chance.permille(jumps) {
            return;
        }
        let span = mood.chance.range(1, 7_200_000) as i64;
        let by = if mood.chance.percent(50) { span } else { -span };
        drop(mood);
        self.coverage
            .hit("clock", if by > 0 { "jumps ahead while clients work" } else { "jumps back while clients work" });
        self.trace.event("clock", format_args!("jumps by {by} ms"));
        self.clock.jump(by);
    }

    /// Flushes of the log that take seconds, in a thousand.
    pub fn slow_flushes(&self) -> u32 {
        if self.mood.lock().calm { 0 } else { SLOW_FLUSHES }
    }

    /// What the engine asks at each crash point.
    pub fn crash_point(&self, name: &'static str) -> bool {
        self.coverage.hit("crash points passed", name);
        let mut mood = self.mood.lock();
        match &mut mood.points_left {
            Some((Some(wanted), _)) if *wanted != name => false,
            Some((_, left)) if *left > 1 => {
                *left -= 1;
                false
            }
            Some(_) => {
                mood.points_left = None;
                drop(mood);
                self.coverage.hit("crash points", name);
                self.trace.event("power", format_args!("goes: {name}"));
                // Whoever waits for it is told even if it comes later.
                self.power_gone.notify_one();
                true
            }
            None => false,
        }
    }

    /// Decides about commits of the metadata store.
    pub fn commits(self: &Arc<Self>) -> CommitHook {
        let chaos = self.clone();
        Arc::new(move |changes| {
            let (delay, fate) = chaos.commit(changes);
            let clock = chaos.clock.clone();
            let later: BoxFuture<CommitFate> = Box::pin(async move {
                if !delay.is_zero() {
                    clock.sleep(delay).await;
                }
                fate
            });
            later
        })
    }

    fn commit(&self, changes: usize) -> (Duration, CommitFate) {
        let mut mood = self.mood.lock();
        let delay = Duration::from_millis(mood.chance.range(0, self.store_ms));
        let fails = !mood.calm && mood.commit_faults > 0;
        let fails = fails && {
            let faults = mood.commit_faults;
            mood.chance.percent(faults)
        };
        let fate = match fails {
            false => CommitFate::Done,
            true if mood.chance.percent(50) => CommitFate::FailBefore,
            true => CommitFate::FailAfter,
        };
        drop(mood);
        self.coverage.hit("commits", format!("{fate:?}"));
        self.trace.event("metadata", format_args!("commit of {changes} keys: {fate:?} in {delay:?}"));
        (delay, fate)
    }
}

impl Faults for Chaos {
    fn decide(&self, operation: Operation<'_>) -> Fault {
        let mut mood = self.mood.lock();
        let mut delay = Duration::from_millis(mood.chance.range(0, self.store_ms));
        let (effect, what) = match mood.calm {
            true => (Effect::None, "done"),
            false => mood.effect(operation.kind),
        };
        if what == SLOW {
            delay += Duration::from_millis(mood.chance.range(1_000, 30_000));
        }
        drop(mood);
        let kind = operation.kind.label();
        if what != "done" {
            self.coverage.hit("store faults", what);
            self.coverage.hit("calls with store faults", kind);
        }
        self.trace.event("store", format_args!("{kind} {} in {delay:?}: {what}", operation.name));
        Fault { delay, effect }
    }
}

/// A call that takes seconds.
const SLOW: &str = "slow";
/// All that the object store does wrong, as the coverage counts it.
pub const STORE_FAULTS: [&str; 8] =
    ["full", "truncated read", "a bit flipped", "refused", "throttled", "timed out, not done", "timed out, done", SLOW];

impl Mood {
    /// What becomes of a call, and its name.
    fn effect(&mut self, kind: Kind) -> (Effect, &'static str) {
        let why = || "as the seed decides".to_owned();
        let reads = matches!(kind, Kind::Get | Kind::GetRange);
        let spoilt = self.spoilt_reads;
        if reads && self.chance.permille(spoilt) {
            return match self.chance.percent(50) {
                true => (Effect::Truncate(self.chance.below(64)), "truncated read"),
                false => (Effect::Flip(self.chance.next()), "a bit flipped"),
            };
        }
        let full = self.store_full;
        if kind == Kind::Put && self.chance.permille(full) {
            return (Effect::Before(StoreError::Full(why())), "full");
        }
        if self.refusing > 0 {
            self.refusing -= 1;
            return (Effect::Before(StoreError::Unavailable("slow down".to_owned())), "throttled");
        }
        let spells = self.store_spells;
        if self.chance.permille(spells) {
            self.refusing = self.chance.range(3, 30);
            return (Effect::None, SLOW);
        }
        let faults = self.store_faults;
        if !self.chance.permille(faults) {
            return (Effect::None, "done");
        }
        let writes = matches!(kind, Kind::Put | Kind::Delete);
        match self.chance.below(if writes { 4 } else { 3 }) {
            0 | 1 => (Effect::Before(StoreError::Unavailable(why())), "refused"),
            2 => (Effect::Before(StoreError::Unknown(why())), "timed out, not done"),
            _ => (Effect::After, "timed out, done"),
        }
    }
}
