//! Records that did not open when a checkpoint needed them: when that is believed.
//!
//! - What is given up is lost for good, so one failure proves nothing: a record must have failed in several attempts of
//!   the checkpoint, in each of which it was read once more, alone, over some seconds.
//! - An object that is not there, is not as long as it was written, or was so before, may be on its way back, and so may one
//!   that was written a short while ago, whatever it holds: that takes as long as somebody may need to put it back.
//! - What failed before an object changed says nothing of what it is now.
//! - Of what the store says nothing about nothing is believed.
//! - Once one record of an object is beyond doubt, others that fail in it are believed at once: an object that was
//!   deleted fails them all.
//! - A checkpoint that succeeds forgets everything.

use std::collections::BTreeMap;
use std::time::Duration;

use parking_lot::Mutex;
use tarn_base::ids::SegmentId;

use crate::records::look::{Look, Shape};

/// Attempts that a record must have failed in.
pub const ATTEMPTS: u32 = 6;
/// From the first of them to the last, at least, where the object is whole and has long been so.
pub const SPAN: Duration = Duration::from_secs(3);

/// A record that failed, where it was read from, and what a closer look at it showed.
#[derive(Clone, Copy, Debug)]
pub struct Failure {
    pub object: SegmentId,
    pub name: (SegmentId, u32),
    pub look: Look,
}

/// When that was.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    pub steady: Duration,
    pub wall_ms: i64,
}

/// Attempts, and when the first was.
#[derive(Clone, Copy, Debug)]
struct Count {
    attempts: u32,
    /// The last of them.
    last: u64,
    since: Duration,
}

impl Count {
    fn new(now: Duration) -> Count {
        Count { attempts: 0, last: 0, since: now }
    }

    /// Counts an attempt once.
    fn add(&mut self, attempt: u64) {
        self.attempts += u32::from(self.last != attempt);
        self.last = attempt;
    }

    fn suffices(&self, now: Duration, span: Duration) -> bool {
        self.attempts >= ATTEMPTS && now.saturating_sub(self.since) >= span
    }
}

#[derive(Debug)]
struct Object {
    shape: Option<Shape>,
    /// It is, or was, not there or not whole.
    incomplete: bool,
    /// Since it last changed.
    all: Count,
    failed: BTreeMap<(SegmentId, u32), Count>,
    beyond_doubt: bool,
}

#[derive(Debug, Default)]
struct State {
    /// The number of the running attempt, from 1.
    attempt: u64,
    objects: BTreeMap<SegmentId, Object>,
}

impl State {
    fn note(&mut self, object: SegmentId, shape: Option<Shape>, incomplete: bool, now: Duration) -> &mut Object {
        let new = |incomplete| {
            let (all, failed) = (Count::new(now), BTreeMap::new());
            Object { shape, incomplete, all, failed, beyond_doubt: false }
        };
        let object = self.objects.entry(object).or_insert_with(|| new(false));
        object.incomplete |= incomplete;
        if object.shape != shape {
            *object = new(object.incomplete);
        }
        object.all.add(self.attempt);
        object
    }
}

/// What is suspected of damage.
#[derive(Debug, Default)]
pub struct Suspects(Mutex<State>);

impl Suspects {
    /// A checkpoint begins.
    pub fn begin(&self) {
        self.0.lock().attempt += 1;
    }

    /// Notes that an object which the running attempt would need is not there.
    pub fn absent(&self, object: SegmentId, now: Duration) {
        self.0.lock().note(object, None, true, now);
    }

    /// Notes a failure; whether it is beyond doubt that the record is gone. An object that may be on its way back is waited
    /// for over `missing`.
    pub fn confirm(&self, failure: &Failure, now: Moment, missing: Duration) -> bool {
        let (shape, incomplete) = match failure.look {
            Look::Fine | Look::Unknown => return false,
            Look::Incomplete(shape) => (shape, true),
            Look::Damaged(shape) => (Some(shape), false),
        };
        let mut state = self.0.lock();
        let attempt = state.attempt;
        let object = state.note(failure.object, shape, incomplete, now.steady);
        let record = object.failed.entry(failure.name).or_insert_with(|| Count::new(now.steady));
        record.add(attempt);
        let age_ms = shape.map_or(0, |shape| now.wall_ms.saturating_sub(shape.modified_ms));
        let settled = i64::try_from(missing.as_millis()).is_ok_and(|missing_ms| age_ms >= missing_ms);
        object.beyond_doubt |= match object.incomplete || !settled {
            true => object.all.suffices(now.steady, missing.max(SPAN)),
            false => record.suffices(now.steady, SPAN),
        };
        object.beyond_doubt
    }

    pub fn clear(&self) {
        self.0.lock().objects.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MISSING: Duration = Duration::from_secs(600);
    const OLD: Look = Look::Damaged(Shape { size: 100, modified_ms: -1_000_000 });

    /// One attempt a second.
    #[derive(Default)]
    struct Rig(Suspects);

    impl Rig {
        fn fails(&self, object: u32, index: u32, look: Look, second: u64) -> bool {
            let object = SegmentId { epoch: 1, counter: object };
            let now = Moment { steady: Duration::from_secs(second), wall_ms: second as i64 * 1000 };
            self.0.confirm(&Failure { object, name: (object, index), look }, now, MISSING)
        }

        /// The second, counted from `from`, in which the failure is believed if it is seen in each.
        fn believed(&self, look: Look, from: u64) -> u64 {
            let attempt = |second: &u64| {
                self.0.begin();
                self.fails(1, 0, look, from + second)
            };
            (0..2000).find(attempt).unwrap()
        }
    }

    #[test]
    fn only_what_fails_again_and_again_is_believed() {
        let rig = Rig::default();
        for attempt in 0..10 {
            rig.0.begin();
            assert!(!rig.fails(1, 0, OLD, 0), "attempt {attempt} within no time");
        }
        let rig = Rig::default();
        rig.0.begin();
        assert!((0..10).all(|second| !rig.fails(2, 0, OLD, second)), "one attempt");
        let rig = Rig::default();
        assert_eq!(rig.believed(OLD, 0), 5);
        assert!(rig.fails(1, 1, OLD, 5) && !rig.fails(3, 0, OLD, 5));
        rig.0.clear();
        assert!(!rig.fails(1, 0, OLD, 100));
    }

    #[test]
    fn what_may_be_on_its_way_back_is_waited_for() {
        let at = |size, modified_ms| Shape { size, modified_ms };
        assert_eq!(Rig::default().believed(OLD, 0), 5);
        assert_eq!(Rig::default().believed(Look::Incomplete(None), 0), 600);
        assert_eq!(Rig::default().believed(Look::Incomplete(Some(at(99, -1_000_000))), 0), 600);
        assert_eq!(Rig::default().believed(Look::Damaged(at(100, -500_000)), 0), 100, "until it is old enough");
        assert_eq!(Rig::default().believed(Look::Damaged(at(100, i64::MAX)), 0), 600, "by whatever clock");
        // Missing, then parts of it, then all of it with its old time, which does not open.
        let rig = Rig::default();
        for second in 0..500 {
            rig.0.begin();
            assert!(!rig.fails(1, 0, Look::Incomplete(None), second));
        }
        for (size, second) in [(10, 500), (20, 501)] {
            rig.0.begin();
            assert!(!rig.fails(1, 0, Look::Incomplete(Some(at(size, 0))), second));
        }
        assert_eq!(rig.believed(OLD, 502), 600);
    }

    #[test]
    fn all_that_are_absent_wait_at_once() {
        let rig = Rig::default();
        let second = SegmentId { epoch: 1, counter: 2 };
        for at in 0..600 {
            rig.0.begin();
            rig.0.absent(second, Duration::from_secs(at));
            assert!(!rig.fails(1, 0, Look::Incomplete(None), at));
        }
        rig.0.begin();
        assert!(rig.fails(1, 0, Look::Incomplete(None), 600) && rig.fails(2, 7, Look::Incomplete(None), 600));
        // One that came back meanwhile, and fails, is another.
        assert!(!rig.fails(2, 7, OLD, 600));
    }

    #[test]
    fn an_object_that_changes_is_another() {
        let rig = Rig::default();
        assert_eq!(rig.believed(OLD, 0), 5);
        assert_eq!(rig.believed(Look::Damaged(Shape { size: 100, modified_ms: -2_000_000 }), 5), 5);
        assert!(!rig.fails(1, 0, OLD, 20));
    }

    #[test]
    fn of_what_cannot_be_asked_about_nothing_is_believed() {
        let rig = Rig::default();
        for second in 0..2000 {
            rig.0.begin();
            assert!(!rig.fails(1, 0, Look::Unknown, second) && !rig.fails(1, 0, Look::Fine, second));
        }
        assert_eq!(rig.believed(OLD, 2000), 5);
    }
}
