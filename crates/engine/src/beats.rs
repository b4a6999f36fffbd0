//! Changes let through at a rate, those of one beat together.
//!
//! - Each has its turn behind the one before. It goes at the beginning of the beat that its turn falls into: at once, if that
//!   has begun. So those who are held go together, and what is done for them is done for many: let through one by one, or in
//!   beats of 4 ms, changes share few flushes and take turns with a checkpoint on every core's caches, and cost twice as much.
//! - What nobody took of the last beat may still be taken, nothing older.
//! - Nobody waits longer than he says, or a beat. What that lets in beyond the rate is not made up for here.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Nanoseconds. 8 KiB writes beside checkpoints on one core came at
/// 16,500 a second with 4 ms, 18,800 with 12, 19,800 with 24, 21,000 with 32.
const BEAT: u64 = 32_000_000;

/// The turn of whoever came last, in nanoseconds of the steady clock.
#[derive(Debug, Default)]
pub struct Beats(AtomicU64);

impl Beats {
    /// When a change that takes up `time` of the rate goes, in nanoseconds of the steady clock; `None`: now. It waits for
    /// `most` or a beat at most.
    pub fn take(&self, time: Duration, most: Duration, now: Duration) -> Option<u64> {
        let now = now.as_nanos() as u64;
        let latest = now.saturating_add((most.as_nanos() as u64).max(BEAT));
        let turn = |last: u64| {
            let turn = last.max(now.saturating_sub(BEAT)).saturating_add(time.as_nanos() as u64);
            turn.min(latest.max(last))
        };
        let last = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |last| Some(turn(last)));
        let goes = turn(last.unwrap_or(now)).min(latest) / BEAT * BEAT;
        (goes > now).then_some(goes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: Duration = Duration::from_secs(2);

    /// Writers that come again once they were let through, each change taking `time`: how many went in each beat of a second.
    fn beats_of(writers: usize, time: Duration) -> Vec<usize> {
        let beats = Beats::default();
        let begin = Duration::from_secs(7);
        let mut wakes = vec![begin; writers];
        let mut went = vec![0; 100];
        loop {
            let (at, now) = wakes.iter().copied().enumerate().min_by_key(|(_, wake)| *wake).unwrap();
            let beat = ((now - begin).as_nanos() as u64 / BEAT) as usize;
            if beat >= went.len() {
                return went;
            }
            let goes = beats.take(time, MOST, now).map_or(now, Duration::from_nanos);
            let of = ((goes - begin).as_nanos() as u64 / BEAT) as usize;
            went.get_mut(of).into_iter().for_each(|count| *count += 1);
            // What it does itself.
            wakes[at] = goes + Duration::from_micros(20);
        }
    }

    #[test]
    fn as_many_go_as_the_rate_lets_and_in_each_beat_the_same() {
        for writers in [3, 64] {
            let went = beats_of(writers, Duration::from_nanos(BEAT / 60));
            assert!(went[2..].iter().all(|count| (59..=61).contains(count)), "{writers}: {went:?}");
        }
        // A change that takes two beats and a half.
        let went = beats_of(4, Duration::from_nanos(BEAT / 2 * 5));
        assert!((38..=41).contains(&went.iter().sum::<usize>()), "{went:?}");
    }

    #[test]
    fn what_was_not_taken_is_not_saved_up_and_nobody_waits_longer_than_he_says() {
        let beats = Beats::default();
        let time = Duration::from_nanos(BEAT / 8);
        for begin in [1, 9] {
            let now = Duration::from_secs(begin);
            let free = (0..100).filter(|_| beats.take(time, MOST, now).is_none()).count();
            assert!((7..=17).contains(&free), "{free} after a long silence");
        }
        let now = Duration::from_secs(20);
        let until = beats.take(Duration::MAX, MOST, now).expect("it waits");
        assert!(Duration::from_nanos(until) <= now + MOST);
        let short = Duration::from_nanos(2 * BEAT);
        let until = beats.take(time, short, now).expect("it waits");
        assert!(Duration::from_nanos(until) <= now + short, "behind one that waits for long");
        let until = beats.take(time, MOST, now).expect("it waits");
        assert!(
            Duration::from_nanos(until) > now + MOST - Duration::from_nanos(2 * BEAT),
            "and the turn of that stands"
        );
    }
}
