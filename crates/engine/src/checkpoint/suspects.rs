//! Records that did not open when a checkpoint needed them: when that is believed.
//!
//! - What is given up is lost for good, so failures prove nothing for as long as somebody may need to put right what is wrong:
//!   a record must have failed in several attempts of the checkpoint, in each of which it was read once more, alone, over
//!   that time. It makes no difference whether it is damaged or not there: what is only half back is damaged too.
//! - What failed before an object changed says nothing of what it is now. What was read in between, and what did not fail in
//!   an attempt in which something else did, is not suspected any more: an attempt that fails notes all that fails.
//! - Of what the store says nothing about nothing is believed.
//! - Looks more than two minutes apart are not of one absence. So what is suspected is looked at first in each attempt, and
//!   again while a long one goes on.
//! - The time of a record does not count for another: all that fail in an attempt are noted, so that they wait at once.
//! - A checkpoint that succeeds forgets everything, and so does a restart.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use parking_lot::Mutex;
use tarn_base::ids::SegmentId;

use crate::records::look::{Look, Shape};

/// Attempts that a record must have failed in.
pub const ATTEMPTS: u32 = 6;
/// From the first of them to the last, however short the configured time.
pub const SPAN: Duration = Duration::from_secs(3);

/// Looks further apart are not of one absence.
const APART_MAX: Duration = Duration::from_secs(120);

/// When somebody looked: the clock before and after, between which the machine may have stood still.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    pub before: Duration,
    pub after: Duration,
}

/// What is to be believed of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It opens.
    Fine,
    /// It does not, or nobody can say, which may pass.
    Doubtful,
    /// It is gone, beyond doubt.
    Lost,
}

/// A record that failed, where it was read from, and what a closer look at it showed.
#[derive(Clone, Copy, Debug)]
pub struct Failure {
    pub object: SegmentId,
    pub name: (SegmentId, u32),
    pub look: Look,
}

/// Attempts, and when the first was.
#[derive(Clone, Copy, Debug)]
struct Count {
    attempts: u32,
    /// The last of them.
    last: u64,
    since: Duration,
    /// When the record was looked at last.
    seen: Duration,
}

impl Count {
    fn new(moment: Moment) -> Count {
        Count { attempts: 0, last: 0, since: moment.after, seen: moment.after }
    }

    /// Counts an attempt once; begins anew if there was one between in which it did not fail.
    fn add(&mut self, attempt: u64, moment: Moment) {
        let between = self.last != 0 && self.last + 1 < attempt;
        if between || moment.after.saturating_sub(self.seen) > APART_MAX {
            *self = Count::new(moment);
        }
        self.seen = moment.before;
        self.attempts += u32::from(self.last != attempt);
        self.last = attempt;
    }

    fn verdict(&self, moment: Moment, span: Duration) -> Verdict {
        let long = moment.before.saturating_sub(self.since) >= span;
        if self.attempts >= ATTEMPTS && long { Verdict::Lost } else { Verdict::Doubtful }
    }
}

#[derive(Debug)]
struct Object {
    /// Since it has been seen like this; `None`: it is not there.
    shape: Option<Shape>,
    failed: BTreeMap<(SegmentId, u32), Count>,
}

#[derive(Debug, Default)]
struct State {
    /// The number of the last attempt in which something failed, from 1.
    attempt: u64,
    /// Nothing has failed in the running one.
    clean: bool,
    objects: BTreeMap<SegmentId, Object>,
}

impl State {
    /// The number of the running attempt, in which something fails.
    fn failing(&mut self) -> u64 {
        self.attempt += u64::from(std::mem::take(&mut self.clean));
        self.attempt
    }

    /// Nobody can say what of a record is so: what was seen before neither grows nor goes.
    fn pass_over(&mut self, object: SegmentId, name: &(SegmentId, u32)) {
        let attempt = self.failing();
        if let Some(count) = self.objects.get_mut(&object).and_then(|object| object.failed.get_mut(name))
            && count.last + 1 >= attempt
        {
            count.last = attempt;
        }
    }

    /// Notes a record that fails, of an object that looks like this.
    fn note(&mut self, object: SegmentId, shape: Option<Shape>, name: (SegmentId, u32), moment: Moment) -> Count {
        let attempt = self.failing();
        let new = || Object { shape, failed: BTreeMap::new() };
        let object = self.objects.entry(object).or_insert_with(new);
        if object.shape != shape {
            *object = new();
        }
        let count = object.failed.entry(name).or_insert_with(|| Count::new(moment));
        count.add(attempt, moment);
        *count
    }
}

/// What is suspected of damage.
#[derive(Debug, Default)]
pub struct Suspects(Mutex<State>);

impl Suspects {
    /// A checkpoint begins.
    pub fn begin(&self) {
        self.0.lock().clean = true;
    }

    /// Whether nothing is suspected.
    pub fn is_empty(&self) -> bool {
        self.0.lock().objects.is_empty()
    }

    /// The records that are suspected.
    pub fn names(&self) -> BTreeSet<(SegmentId, u32)> {
        self.0.lock().objects.values().flat_map(|object| object.failed.keys().copied()).collect()
    }

    /// Notes that a record of an object was read: whatever was wrong with it is not any more.
    pub fn read(&self, object: SegmentId, name: (SegmentId, u32)) {
        if let Some(object) = self.0.lock().objects.get_mut(&object) {
            object.failed.remove(&name);
        }
    }

    /// Notes what a look at `moment` showed. A record that fails is gone if it has been for a `span`.
    pub fn confirm(&self, failure: &Failure, moment: Moment, span: Duration) -> Verdict {
        let shape = match failure.look {
            Look::Unknown => {
                self.0.lock().pass_over(failure.object, &failure.name);
                return Verdict::Doubtful;
            }
            Look::Fine => {
                self.read(failure.object, failure.name);
                return Verdict::Fine;
            }
            Look::Incomplete(shape) => shape,
            Look::Damaged(shape) => Some(shape),
        };
        self.0.lock().note(failure.object, shape, failure.name, moment).verdict(moment, span)
    }

    pub fn clear(&self) {
        self.0.lock().objects.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MISSING: Duration = Duration::from_secs(600);
    const GONE: Look = Look::Incomplete(None);

    fn damaged(size: u64) -> Look {
        Look::Damaged(Shape { size, modified_ms: 1 })
    }

    /// One attempt a second.
    #[derive(Default)]
    struct Rig(Suspects);

    impl Rig {
        fn begin(&self) {
            self.0.begin();
        }

        fn fails(&self, object: u32, index: u32, look: Look, second: u64) -> bool {
            self.looked(object, index, look, (second, second))
        }

        fn looked(&self, object: u32, index: u32, look: Look, (before, after): (u64, u64)) -> bool {
            let object = SegmentId { epoch: 1, counter: object };
            let moment = Moment { before: Duration::from_secs(before), after: Duration::from_secs(after) };
            self.0.confirm(&Failure { object, name: (object, index), look }, moment, MISSING) == Verdict::Lost
        }

        /// The second in which the failure is believed if it is seen in each from `from` on.
        fn believed(&self, look: Look, from: u64) -> u64 {
            let attempt = |second: &u64| {
                self.begin();
                self.fails(1, 0, look, *second)
            };
            (from..from + 2000).find(attempt).unwrap()
        }
    }

    #[test]
    fn only_what_fails_again_and_again_for_long_is_believed() {
        for look in [GONE, damaged(100), Look::Incomplete(Some(Shape { size: 5, modified_ms: 0 }))] {
            assert_eq!(Rig::default().believed(look, 0), 600);
            let rig = Rig::default();
            rig.begin();
            assert!((0..2000).all(|second| !rig.fails(2, 0, look, second)), "one attempt");
            let rig = Rig::default();
            assert_eq!(rig.believed(look, 0), 600);
            rig.0.clear();
            assert!(!rig.fails(1, 0, look, 601));
        }
    }

    #[test]
    fn what_is_on_its_way_back_is_waited_for_anew() {
        let rig = Rig::default();
        for (look, second) in [(GONE, 0), (GONE, 500), (damaged(10), 550), (damaged(20), 560)] {
            rig.begin();
            assert!(!rig.fails(1, 0, look, second));
        }
        assert_eq!(rig.believed(damaged(100), 570), 1170);
    }

    #[test]
    fn what_did_not_fail_in_between_is_not_suspected() {
        let rig = Rig::default();
        for second in 0..2000 {
            rig.begin();
            // An attempt that fails for another reason says nothing.
            rig.begin();
            assert!(!rig.fails(1, 0, damaged(100), second) || second >= 600);
            let away = if second / 15 % 2 == 0 { (2, 3) } else { (3, 2) };
            rig.fails(away.0, 0, GONE, second);
            assert!(!rig.fails(away.0, 0, GONE, second), "never for longer than 15 seconds");
        }
        assert!(rig.fails(1, 0, damaged(100), 2000));
    }

    #[test]
    fn what_nobody_saw_for_long_is_not_suspected() {
        for look in [GONE, damaged(100)] {
            let rig = Rig::default();
            for second in (0..10).chain([600, 721]) {
                rig.begin();
                assert!(!rig.fails(1, 0, look, second), "attempts in between failed for another reason");
            }
            assert_eq!(rig.believed(look, 722), 1321);
        }
    }

    #[test]
    fn what_was_looked_at_before_the_machine_stood_still_is_not_suspected() {
        for (before, after) in [(9, 700), (700, 1400)] {
            let rig = Rig::default();
            for second in 0..10 {
                rig.begin();
                assert!(!rig.fails(1, 0, GONE, second));
            }
            rig.begin();
            assert!(!rig.looked(1, 0, GONE, (before, after)));
            // The look may have been at its beginning.
            assert_eq!(rig.believed(GONE, after + 1), after + 601);
        }
    }

    #[test]
    fn a_store_that_does_not_say_changes_nothing() {
        let rig = Rig::default();
        for second in 0..=600 {
            rig.begin();
            let look = if second % 3 == 1 { Look::Unknown } else { GONE };
            assert_eq!(rig.fails(1, 0, look, second), second == 600);
        }
        for second in 601..1200 {
            rig.begin();
            assert!(!rig.fails(1, 0, Look::Unknown, second));
        }
        assert_eq!(rig.believed(GONE, 1200), 1800);
    }

    #[test]
    fn long_attempts_look_again() {
        let rig = Rig::default();
        for attempt in 0..6 {
            rig.begin();
            for second in (300 * attempt..300 * attempt + 300).step_by(60) {
                assert_eq!(rig.fails(1, 0, GONE, second), attempt == 5);
            }
        }
    }

    #[test]
    fn one_records_time_is_not_anothers() {
        let rig = Rig::default();
        assert_eq!(rig.believed(damaged(100), 0), 600);
        assert!(!rig.fails(1, 1, damaged(100), 600));
        assert!(!rig.fails(1, 2, Look::Incomplete(Some(Shape { size: 100, modified_ms: 1 })), 600));
        assert!(rig.fails(1, 0, damaged(100), 600));
        // What was read in between begins anew.
        assert!(!rig.fails(1, 0, Look::Fine, 601) && !rig.fails(1, 0, damaged(100), 602));
    }

    #[test]
    fn all_that_are_absent_wait_at_once() {
        let rig = Rig::default();
        for at in 0..600 {
            rig.begin();
            assert!(!rig.fails(1, 0, GONE, at));
            rig.fails(2, 7, GONE, at);
        }
        rig.begin();
        assert!(rig.fails(1, 0, GONE, 600) && rig.fails(2, 7, GONE, 600));
        assert!(!rig.fails(2, 8, GONE, 600), "another record of the same object, which nobody noted");
        // One that came back meanwhile, and fails, is another.
        assert!(!rig.fails(2, 7, damaged(100), 600));
    }

    #[test]
    fn what_an_attempt_read_that_failed_for_another_reason_is_not_suspected() {
        for look in [GONE, damaged(100)] {
            let rig = Rig::default();
            for second in 0..2000 {
                rig.begin();
                match second % 90 {
                    0 => assert!(!rig.fails(1, 0, look, second), "away for a second each time"),
                    _ => rig.0.read(SegmentId { epoch: 1, counter: 1 }, (SegmentId { epoch: 1, counter: 1 }, 0)),
                }
            }
            assert_eq!(rig.believed(look, 2000), 2600);
        }
    }

    #[test]
    fn of_what_cannot_be_asked_about_nothing_is_believed() {
        let rig = Rig::default();
        for second in 0..2000 {
            rig.begin();
            assert!(!rig.fails(1, 0, Look::Unknown, second) && !rig.fails(1, 0, Look::Fine, second));
        }
        assert_eq!(rig.believed(GONE, 2000), 2600);
    }
}
