//! Records that did not open when a checkpoint needed them: when that is believed.
//!
//! - What is given up is lost for good, so one failure proves nothing: a record must have failed in several attempts of
//!   the checkpoint, each of which read it twice, over some seconds; where the object is not there at all, over as long as
//!   somebody may need to put it back.
//! - Once one record of an object is beyond doubt, others that fail in it are believed at once: an object that was
//!   deleted fails them all.
//! - A checkpoint that succeeds forgets everything.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use parking_lot::Mutex;
use tarn_base::ids::SegmentId;

/// Attempts that a record must have failed in.
pub const ATTEMPTS: u32 = 6;
/// From the first of them to the last, at least, where the object is there.
pub const SPAN: Duration = Duration::from_secs(3);

#[derive(Debug, Default)]
struct State {
    /// Failures of each record, and when the first was.
    failed: BTreeMap<(SegmentId, u32), (u32, Duration)>,
    beyond_doubt: BTreeSet<SegmentId>,
}

/// What is suspected of damage.
#[derive(Debug, Default)]
pub struct Suspects(Mutex<State>);

impl Suspects {
    /// Notes that a record failed at `now`; whether that is beyond doubt, which it is not before it has for a `span`.
    pub fn confirm(&self, name: (SegmentId, u32), now: Duration, span: Duration) -> bool {
        let mut state = self.0.lock();
        if state.beyond_doubt.contains(&name.0) {
            return true;
        }
        let (count, first) = state.failed.entry(name).or_insert((0, now));
        *count += 1;
        let confirmed = *count >= ATTEMPTS && now.saturating_sub(*first) >= span;
        if confirmed {
            state.beyond_doubt.insert(name.0);
        }
        confirmed
    }

    pub fn clear(&self) {
        *self.0.lock() = State::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_fails_again_and_again_is_believed() {
        let segment = |counter| SegmentId { epoch: 1, counter };
        let suspects = Suspects::default();
        let confirm = |name, now| suspects.confirm(name, now, SPAN);
        let at = Duration::from_secs;
        for attempt in 0..10 {
            assert!(!confirm((segment(1), 0), at(0)), "attempt {attempt} within no time");
        }
        for second in 0..5 {
            assert!(!confirm((segment(2), 0), at(second)));
        }
        assert!(!confirm((segment(2), 1), at(4)));
        assert!(confirm((segment(2), 0), at(5)));
        assert!(confirm((segment(2), 1), at(5)) && !confirm((segment(3), 0), at(5)));
        suspects.clear();
        assert!(!confirm((segment(2), 0), at(100)));
    }
}
