//! Records that did not open when a checkpoint needed them: when that is believed.
//!
//! - What is given up is lost for good, so failures prove nothing for as long as somebody may need to put right what is wrong:
//!   a record must have failed in several attempts of the checkpoint, in each of which it was read once more, alone, over
//!   that time. It makes no difference whether it is damaged or not there: what is only half back is damaged too.
//! - What failed before an object changed says nothing of what it is now. What was read in between, and what did not fail in
//!   an attempt in which something else did, is not suspected any more: an attempt that fails notes all that fails.
//! - Of what the store says nothing about nothing is believed.
//! - The time of a record does not count for another: all that fail in an attempt are noted, so that they wait at once.
//! - A checkpoint that succeeds forgets everything, and so does a restart.

use std::collections::BTreeMap;
use std::time::Duration;

use parking_lot::Mutex;
use tarn_base::ids::SegmentId;

use crate::records::look::{Look, Shape};

/// Attempts that a record must have failed in.
pub const ATTEMPTS: u32 = 6;
/// From the first of them to the last, however short the configured time.
pub const SPAN: Duration = Duration::from_secs(3);

/// Attempts further apart do not see one absence: those in between failed for another reason, and saw nothing.
const APART_MAX: Duration = Duration::from_secs(120);

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
}

impl Count {
    fn new(now: Duration) -> Count {
        Count { attempts: 0, last: 0, since: now }
    }

    /// Counts an attempt once; begins anew if there was one between in which it did not fail.
    fn add(&mut self, attempt: u64, now: Duration) {
        if self.last != 0 && self.last + 1 < attempt {
            *self = Count::new(now);
        }
        self.attempts += u32::from(self.last != attempt);
        self.last = attempt;
    }

    fn suffices(&self, now: Duration, span: Duration) -> bool {
        self.attempts >= ATTEMPTS && now.saturating_sub(self.since) >= span
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
    /// The number of the last attempt in which something failed, from 1; one is left out before what begins anew.
    attempt: u64,
    /// When the running one began, and when that one ended.
    begun: Duration,
    ended: Duration,
    /// Nothing has failed in the running one.
    clean: bool,
    objects: BTreeMap<SegmentId, Object>,
}

impl State {
    /// The number of the running attempt, in which something fails.
    fn failing(&mut self) -> u64 {
        if std::mem::take(&mut self.clean) {
            let apart = self.begun.saturating_sub(self.ended) > APART_MAX;
            self.attempt += if apart { 2 } else { 1 };
        }
        self.attempt
    }

    /// Notes a record that fails, of an object that looks like this.
    fn note(&mut self, object: SegmentId, shape: Option<Shape>, name: (SegmentId, u32), now: Duration) -> Count {
        let attempt = self.failing();
        let new = || Object { shape, failed: BTreeMap::new() };
        let object = self.objects.entry(object).or_insert_with(new);
        if object.shape != shape {
            *object = new();
        }
        let count = object.failed.entry(name).or_insert_with(|| Count::new(now));
        count.add(attempt, now);
        *count
    }
}

/// What is suspected of damage.
#[derive(Debug, Default)]
pub struct Suspects(Mutex<State>);

impl Suspects {
    /// A checkpoint begins.
    pub fn begin(&self, now: Duration) {
        let mut state = self.0.lock();
        (state.clean, state.begun) = (true, now);
    }

    /// It has failed.
    pub fn end(&self, now: Duration) {
        let mut state = self.0.lock();
        if !state.clean {
            state.ended = now;
        }
    }

    /// Whether nothing is suspected.
    pub fn is_empty(&self) -> bool {
        self.0.lock().objects.is_empty()
    }

    /// Notes that a record of an object was read: whatever was wrong with it is not any more.
    pub fn read(&self, object: SegmentId, name: (SegmentId, u32)) {
        if let Some(object) = self.0.lock().objects.get_mut(&object) {
            object.failed.remove(&name);
        }
    }

    /// Notes that a record which the running attempt would need is not there, for its object is not.
    pub fn absent(&self, object: SegmentId, name: (SegmentId, u32), now: Duration) {
        self.0.lock().note(object, None, name, now);
    }

    /// Notes a failure at `now`; whether it is beyond doubt that the record is gone, which it is not before it has been for a
    /// `span`.
    pub fn confirm(&self, failure: &Failure, now: Duration, span: Duration) -> bool {
        let shape = match failure.look {
            Look::Unknown => {
                self.0.lock().failing();
                return false;
            }
            Look::Fine => {
                self.0.lock().failing();
                self.read(failure.object, failure.name);
                return false;
            }
            Look::Incomplete(shape) => shape,
            Look::Damaged(shape) => Some(shape),
        };
        self.0.lock().note(failure.object, shape, failure.name, now).suffices(now, span)
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
        fn begin(&self, second: u64) {
            self.0.begin(Duration::from_secs(second));
        }

        /// The last that the running attempt sees.
        fn fails(&self, object: u32, index: u32, look: Look, second: u64) -> bool {
            let (object, now) = (SegmentId { epoch: 1, counter: object }, Duration::from_secs(second));
            let believed = self.0.confirm(&Failure { object, name: (object, index), look }, now, MISSING);
            self.0.end(now);
            believed
        }

        fn absent(&self, object: u32, index: u32, second: u64) {
            let object = SegmentId { epoch: 1, counter: object };
            self.0.absent(object, (object, index), Duration::from_secs(second));
        }

        /// The second in which the failure is believed if it is seen in each from `from` on.
        fn believed(&self, look: Look, from: u64) -> u64 {
            let attempt = |second: &u64| {
                self.begin(*second);
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
            rig.begin(0);
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
            rig.begin(second);
            assert!(!rig.fails(1, 0, look, second));
        }
        assert_eq!(rig.believed(damaged(100), 570), 1170);
    }

    #[test]
    fn what_did_not_fail_in_between_is_not_suspected() {
        let rig = Rig::default();
        for second in 0..2000 {
            rig.begin(second);
            // An attempt that fails for another reason says nothing.
            rig.begin(second);
            assert!(!rig.fails(1, 0, damaged(100), second) || second >= 600);
            let away = if second / 15 % 2 == 0 { (2, 3) } else { (3, 2) };
            rig.absent(away.0, 0, second);
            assert!(!rig.fails(away.0, 0, GONE, second), "never for longer than 15 seconds");
        }
        assert!(rig.fails(1, 0, damaged(100), 2000));
    }

    #[test]
    fn what_nobody_saw_for_long_is_not_suspected() {
        for look in [GONE, damaged(100)] {
            let rig = Rig::default();
            for second in (0..10).chain([600, 721]) {
                rig.begin(second);
                assert!(!rig.fails(1, 0, look, second), "attempts in between failed for another reason");
            }
            assert_eq!(rig.believed(look, 722), 1321);
        }
    }

    #[test]
    fn an_attempt_may_take_long() {
        let rig = Rig::default();
        for attempt in 0..6 {
            let second = 300 * attempt;
            rig.begin(second);
            assert_eq!(rig.fails(1, 0, GONE, second + 1), attempt == 5);
            rig.0.end(Duration::from_secs(second + 200));
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
            rig.begin(at);
            assert!(!rig.fails(1, 0, GONE, at));
            rig.absent(2, 7, at);
        }
        rig.begin(600);
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
                rig.begin(second);
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
            rig.begin(second);
            assert!(!rig.fails(1, 0, Look::Unknown, second) && !rig.fails(1, 0, Look::Fine, second));
        }
        assert_eq!(rig.believed(GONE, 2000), 2600);
    }
}
