//! Which tables are merged when: what SlateDB chooses by their sizes, and what of that waits.
//!
//! - A commit is a table; some of them become a run, and some runs of about one size a larger one. What is merged is written
//!   again, and a read asks what is not.
//! - Where commits take much of the time, changes wait for them, and what merging costs is missing to them: then runs wait until
//!   there are many. At rest few wait.
//! - One merge of runs goes on at a time: the other place is for tables, which hold commits up.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use slatedb::compactor::{
    CompactionScheduler, CompactionSchedulerSupplier, CompactionSpec, CompactorStateView,
    SizeTieredCompactionSchedulerSupplier, SourceId,
};
use slatedb::config::{CompactorOptions, SizeTieredCompactionSchedulerOptions};
use tarn_base::world::Clock;

/// How many tables, or runs of about one size, are merged at once: at least SlateDB's own number, at most more than wait, for
/// SlateDB makes no more runs where as many wait already.
const AT_ONCE: (usize, usize) = (4, 64);
/// So many runs wait beside many commits: of 150,000 keys and four tables each, seven million small files.
const MANY: usize = 48;
/// Commits take much of the time where one takes one part in so many of it.
const MUCH: u32 = 5;
/// So long after the last such one there is rest.
const REST: Duration = Duration::from_secs(20);

/// How much of the time commits take.
pub struct Commits {
    clock: Arc<dyn Clock>,
    last: Mutex<Last>,
}

struct Last {
    /// When one ended, and when one that took much.
    ended: Duration,
    took_much: Option<Duration>,
}

impl Commits {
    pub fn new(clock: Arc<dyn Clock>) -> Commits {
        let last = Mutex::new(Last { ended: clock.steady(), took_much: None });
        Commits { clock, last }
    }

    /// One that began then, by the steady clock, has ended.
    pub fn ended(&self, began: Duration) {
        let now = self.clock.steady();
        let mut last = self.last.lock();
        if now.saturating_sub(began) * MUCH > now.saturating_sub(last.ended) {
            last.took_much = Some(now);
        }
        last.ended = now;
    }

    fn take_much(&self) -> bool {
        self.last.lock().took_much.is_some_and(|then| self.clock.steady().saturating_sub(then) < REST)
    }
}

/// Makes the scheduler of one database.
pub struct Merging(pub Arc<Commits>);

impl CompactionSchedulerSupplier for Merging {
    fn compaction_scheduler(&self, options: &CompactorOptions) -> Box<dyn CompactionScheduler + Send + Sync> {
        let tiers = SizeTieredCompactionSchedulerOptions {
            min_compaction_sources: AT_ONCE.0,
            max_compaction_sources: AT_ONCE.1,
            ..SizeTieredCompactionSchedulerOptions::default()
        };
        let options = CompactorOptions { scheduler_options: tiers.into(), ..options.clone() };
        let by_size = SizeTieredCompactionSchedulerSupplier::new().compaction_scheduler(&options);
        Box::new(Scheduler { commits: self.0.clone(), by_size })
    }
}

struct Scheduler {
    commits: Arc<Commits>,
    by_size: Box<dyn CompactionScheduler + Send + Sync>,
}

impl CompactionScheduler for Scheduler {
    fn propose(&self, state: &CompactorStateView) -> Vec<CompactionSpec> {
        let mut place = runs_may(self.commits.take_much(), state.manifest().compacted().len(), going_on(state));
        let mut proposed = self.by_size.propose(state);
        proposed.retain(|merge| !is_of_runs(merge) || std::mem::take(&mut place));
        proposed
    }

    fn validate(&self, state: &CompactorStateView, merge: &CompactionSpec) -> Result<(), slatedb::Error> {
        self.by_size.validate(state, merge)
    }
}

/// Whether a merge of runs may begin, of which there are so many.
fn runs_may(commits_take_much: bool, runs: usize, going_on: usize) -> bool {
    going_on == 0 && (runs >= MANY || !commits_take_much)
}

/// Merges of runs that go on.
fn going_on(state: &CompactorStateView) -> usize {
    let merges = state.compactions().into_iter().flat_map(|known| known.recent_compactions());
    merges.filter(|merge| merge.active() && is_of_runs(merge.spec())).count()
}

fn is_of_runs(merge: &CompactionSpec) -> bool {
    merge.sources().iter().all(|source| matches!(source, SourceId::SortedRun(_)))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use tarn_base::time::Time;
    use tarn_base::world::BoxFuture;

    use super::*;

    #[derive(Default)]
    struct ByHand(AtomicU64);

    impl ByHand {
        fn at(&self, ms: u64) -> Duration {
            self.0.store(ms, Ordering::Relaxed);
            self.steady()
        }
    }

    impl Clock for ByHand {
        fn now(&self) -> Time {
            Time::EPOCH
        }

        fn steady(&self) -> Duration {
            Duration::from_millis(self.0.load(Ordering::Relaxed))
        }

        fn sleep(&self, _: Duration) -> BoxFuture<()> {
            Box::pin(std::future::pending())
        }
    }

    #[test]
    fn commits_take_much_of_the_time_where_they_follow_each_other() {
        let clock = Arc::new(ByHand::default());
        let commits = Commits::new(clock.clone());
        let commit = |began, ended| {
            let began = clock.at(began);
            clock.at(ended);
            commits.ended(began);
            commits.take_much()
        };
        assert!(!commit(30_000, 30_600), "one, long after the opening");
        assert!(!commit(60_000, 61_000), "a second in half a minute");
        assert!(commit(62_000, 62_400), "one right after another");
        assert!(commit(70_000, 70_100), "a short one soon after that");
        assert!(!commit(82_300, 82_500), "nothing for twenty seconds but short ones");
        clock.at(82_500);
        assert!(commit(82_600, 83_000));
        clock.at(103_001);
        assert!(!commits.take_much(), "no commit comes any more");
    }

    #[test]
    fn runs_wait_beside_many_commits_and_for_each_other() {
        assert!(runs_may(false, 4, 0), "at rest");
        assert!(!runs_may(true, MANY - 1, 0));
        assert!(runs_may(true, MANY, 0));
        assert!(!runs_may(false, MANY, 1), "the other place is for tables");
        let tables = CompactionSpec::new(vec![SourceId::SstView(Default::default()); 4], 0);
        assert!(!is_of_runs(&tables) && is_of_runs(&CompactionSpec::new(vec![SourceId::SortedRun(1)], 1)));
    }
}
