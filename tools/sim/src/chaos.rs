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
    spoilt_reads: u32,
    commit_faults: u32,
    /// Crash points to be met until the power goes, if it does.
    points_left: Option<u64>,
}

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
            spoilt_reads: 0,
            commit_faults: 0,
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
    }

    /// A number below `end`.
    pub fn draw(&self, end: u64) -> u64 {
        self.mood.lock().chance.below(end)
    }

    /// No faults and no crashes from now on.
    pub fn calm(&self) {
        let mut mood = self.mood.lock();
        mood.calm = true;
        mood.points_left = None;
    }

    /// Whether an operation may fail because of the store.
    pub fn may_fail(&self) -> bool {
        let mood = self.mood.lock();
        !mood.calm && (mood.store_faults > 0 || mood.spoilt_reads > 0)
    }

    /// Whether the store may be full.
    pub fn may_be_full(&self) -> bool {
        let mood = self.mood.lock();
        !mood.calm && mood.store_full > 0
    }

    /// The power goes at the `count`th crash point from now, counted from 1.
    pub fn cut_power_at(&self, count: Option<u64>) {
        self.mood.lock().points_left = count;
    }

    /// What the engine asks at each crash point.
    pub fn crash_point(&self, name: &'static str) -> bool {
        self.coverage.hit("crash points passed", name);
        let mut mood = self.mood.lock();
        match &mut mood.points_left {
            Some(left) if *left > 1 => {
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
        let delay = Duration::from_millis(mood.chance.range(0, self.store_ms));
        let effect = match mood.calm {
            true => Effect::None,
            false => mood.effect(operation.kind),
        };
        drop(mood);
        let kind = operation.kind.label();
        let what = match &effect {
            Effect::None => "done".to_owned(),
            Effect::Before(error) => format!("refused: {error}"),
            Effect::After => "done, answer lost".to_owned(),
            Effect::Truncate(_) => "truncated".to_owned(),
            Effect::Flip(_) => "a bit flipped".to_owned(),
        };
        if !matches!(effect, Effect::None) {
            self.coverage.hit("store faults", format!("{kind} {what}"));
        }
        self.trace.event("store", format_args!("{kind} {} in {delay:?}: {what}", operation.name));
        Fault { delay, effect }
    }
}

impl Mood {
    fn effect(&mut self, kind: Kind) -> Effect {
        let reads = matches!(kind, Kind::Get | Kind::GetRange);
        let spoilt = self.spoilt_reads;
        if reads && self.chance.permille(spoilt) {
            return match self.chance.percent(50) {
                true => Effect::Truncate(self.chance.below(64)),
                false => Effect::Flip(self.chance.next()),
            };
        }
        let full = self.store_full;
        if kind == Kind::Put && self.chance.permille(full) {
            return Effect::Before(StoreError::Full("as the seed decides".to_owned()));
        }
        let faults = self.store_faults;
        if !self.chance.permille(faults) {
            return Effect::None;
        }
        let writes = matches!(kind, Kind::Put | Kind::Delete);
        match self.chance.below(if writes { 4 } else { 1 }) {
            0 | 1 => Effect::Before(StoreError::Unavailable("as the seed decides".to_owned())),
            2 => Effect::Before(StoreError::Unknown("as the seed decides".to_owned())),
            _ => Effect::After,
        }
    }
}
