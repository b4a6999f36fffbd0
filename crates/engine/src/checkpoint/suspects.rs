//! Records that did not open when a checkpoint needed them: when that is believed.
//!
//! - What is given up is lost for good, so one failure proves nothing: a record must have failed in several attempts of
//!   the checkpoint, each of which read it twice, over some seconds; where the object is not there at all, over as long as
//!   somebody may need to put it back.
//! - An object that has changed may be on its way back: what failed in it before says nothing of what it is now. One that
//!   was not there, or is too short, is waited for as long as one that is not there.
//! - Of an object that the store says nothing about nothing is believed.
//! - Once one record of an object is beyond doubt, others that fail in it are believed at once: an object that was
//!   deleted fails them all.
//! - A checkpoint that succeeds forgets everything.

use std::collections::BTreeMap;
use std::time::Duration;

use parking_lot::Mutex;
use tarn_base::ids::SegmentId;

/// Attempts that a record must have failed in.
pub const ATTEMPTS: u32 = 6;
/// From the first of them to the last, at least, where the object is there.
pub const SPAN: Duration = Duration::from_secs(3);

/// What the store says of the object that a record is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    Missing,
    There {
        /// Bytes.
        size: u64,
        modified_ms: i64,
    },
    /// It could not be asked.
    Unknown,
}

/// A record that failed, and where it lies.
#[derive(Clone, Copy, Debug)]
pub struct Failure {
    /// The object that it was read from.
    pub object: SegmentId,
    pub name: (SegmentId, u32),
    /// Where the record ends in it.
    pub end: u64,
}

#[derive(Debug)]
struct Object {
    look: Look,
    /// Somebody may be putting it back.
    incomplete: bool,
    /// Failures of each record since the object last changed, and when the first was.
    failed: BTreeMap<(SegmentId, u32), (u32, Duration)>,
    beyond_doubt: bool,
}

/// What is suspected of damage.
#[derive(Debug, Default)]
pub struct Suspects(Mutex<BTreeMap<SegmentId, Object>>);

impl Suspects {
    /// Notes that a record failed at `now`, and what the store said of its object after that; whether it is beyond doubt
    /// that the record is gone. An object that is not whole is waited for over `missing`.
    pub fn confirm(&self, failure: &Failure, look: Look, now: Duration, missing: Duration) -> bool {
        let whole = match look {
            Look::Unknown => return false,
            Look::Missing => false,
            Look::There { size, .. } => size >= failure.end,
        };
        let mut objects = self.0.lock();
        let begin = || Object { look, incomplete: false, failed: BTreeMap::new(), beyond_doubt: false };
        let object = objects.entry(failure.object).or_insert_with(begin);
        object.incomplete |= !whole;
        if object.look != look {
            *object = Object { incomplete: object.incomplete, ..begin() };
        }
        if object.beyond_doubt {
            return true;
        }
        let (count, first) = object.failed.entry(failure.name).or_insert((0, now));
        *count += 1;
        let span = if object.incomplete { missing.max(SPAN) } else { SPAN };
        object.beyond_doubt = *count >= ATTEMPTS && now.saturating_sub(*first) >= span;
        object.beyond_doubt
    }

    pub fn clear(&self) {
        self.0.lock().clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MISSING: Duration = Duration::from_secs(600);
    const WHOLE: Look = Look::There { size: 100, modified_ms: 1 };

    fn failure(counter: u32, index: u32) -> Failure {
        let object = SegmentId { epoch: 1, counter };
        Failure { object, name: (object, index), end: 100 }
    }

    /// The second, counted from `from`, in which the failure is believed if it is seen once a second.
    fn believed(suspects: &Suspects, look: Look, from: u64) -> u64 {
        (0..2000)
            .find(|second| suspects.confirm(&failure(1, 0), look, Duration::from_secs(from + second), MISSING))
            .unwrap()
    }

    #[test]
    fn only_what_fails_again_and_again_is_believed() {
        let suspects = Suspects::default();
        let confirm = |counter, index, now| suspects.confirm(&failure(counter, index), WHOLE, now, MISSING);
        let at = Duration::from_secs;
        for attempt in 0..10 {
            assert!(!confirm(1, 0, at(0)), "attempt {attempt} within no time");
        }
        for second in 0..5 {
            assert!(!confirm(2, 0, at(second)));
        }
        assert!(!confirm(2, 1, at(4)));
        assert!(confirm(2, 0, at(5)));
        assert!(confirm(2, 1, at(5)) && !confirm(3, 0, at(5)));
        suspects.clear();
        assert!(!confirm(2, 0, at(100)));
    }

    #[test]
    fn what_is_being_put_back_is_waited_for_as_long_as_what_is_missing() {
        assert_eq!(believed(&Suspects::default(), WHOLE, 0), 5);
        assert_eq!(believed(&Suspects::default(), Look::Missing, 0), 600);
        let short = Look::There { size: 99, modified_ms: 1 };
        assert_eq!(believed(&Suspects::default(), short, 0), 600);
        // Missing, then half of it, then all of it, which does not open.
        let suspects = Suspects::default();
        for second in 0..500 {
            assert!(!suspects.confirm(&failure(1, 0), Look::Missing, Duration::from_secs(second), MISSING));
        }
        for (size, second) in [(10, 500), (20, 501), (100, 502)] {
            let look = Look::There { size, modified_ms: second as i64 };
            assert!(!suspects.confirm(&failure(1, 0), look, Duration::from_secs(second), MISSING));
        }
        assert_eq!(believed(&suspects, Look::There { size: 100, modified_ms: 502 }, 502), 600);
    }

    #[test]
    fn an_object_that_changes_is_another() {
        let suspects = Suspects::default();
        assert_eq!(believed(&suspects, WHOLE, 0), 5);
        assert_eq!(believed(&suspects, Look::There { size: 100, modified_ms: 2 }, 5), 5);
        assert!(!suspects.confirm(&failure(1, 0), WHOLE, Duration::from_secs(20), MISSING));
    }

    #[test]
    fn of_an_object_that_cannot_be_asked_about_nothing_is_believed() {
        let suspects = Suspects::default();
        for second in 0..2000 {
            assert!(!suspects.confirm(&failure(1, 0), Look::Unknown, Duration::from_secs(second), MISSING));
        }
        assert_eq!(believed(&suspects, WHOLE, 2000), 5);
    }
}
