//! The brake: changes come as fast as checkpoints make room for them, and none stops for seconds.
//!
//! - What all may bring in a second is what checkpoints take in one, more while the log has much room and less while it has
//!   little, so that what it holds settles where as much comes as goes.
//! - A change waits in proportion to its bytes and to how many wait beside it; a small one besides as far as small ones are what
//!   fills the log, so that who writes a little beside somebody's stream does not wait for that.
//! - Of the log's part that a running checkpoint frees counts what it has still to do: otherwise clients would be let in all
//!   at once at each end of one, and be held until the next.
//! - A burst is taken in at full speed: the brake is late until the log has made a second checkpoint follow the first.
//! - Waiting before the operation runs, a change holds nothing but its own bytes.

use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

/// What a change costs the log beside its data, about.
const HEAD: u64 = 512;
/// Where the log fills for the first time: the share of it at which the brake begins, and at which nothing comes any more. What
/// comes until the first generation is stored is to be no more than checkpoints that follow each other hold: with 0.6 for the
/// begin the rate fell to two thirds of the later one for ten seconds.
const BURST: (f64, f64) = (0.5, 1.05);
/// The same where checkpoints follow each other. While one runs there are two generations in the log, at the end each of
/// what counts here: it must not be more than half.
const STEADY: (f64, f64) = (0.25, 0.5);
/// What checkpoints take in a second, until one has shown it.
const TAKEN_UNKNOWN: u64 = 64 << 20;
/// How often their speed is looked at.
const LOOK: Duration = Duration::from_millis(500);
/// No MiB waits longer for the brake, and nothing shorter than in proportion: 16 ms for 8 KiB. What the log has no room for
/// then waits for that, and is refused in the end.
const WAIT_MAX: Duration = Duration::from_secs(2);
/// So many bytes that came are remembered, the latest half of them surely.
const LATELY: u64 = 64 << 20;
/// Waits end at multiples of this: each end apart would be a wake-up, a flush and a reply apart. Less than this is owed, and
/// waited by whoever makes it enough.
const BEAT: u64 = 4_000_000;
/// The last part of the way, in which the brake becomes firm.
const FIRM: f64 = 0.2;
/// The part of a checkpoint's time that goes into its records, in thousandths.
const RECORDS_SHARE: u64 = 950;

/// What the brake knows.
#[derive(Debug, Default)]
pub struct Brake {
    /// Bytes of the log that the running checkpoint frees, and of them those that are stored, were its time even over them.
    frees: AtomicU64,
    stored: AtomicU64,
    /// When its speed was last looked at, and what it had stored.
    looked: Mutex<(Duration, u64)>,
    /// Bytes of the log that checkpoints take in a second; 0: there was none.
    taken: AtomicU64,
    /// How many generations closed in a row because of the log.
    row: AtomicU32,
    /// Changes that wait.
    waiting: AtomicUsize,
    /// Waits that are owed, in nanoseconds.
    owed: AtomicU64,
    /// Bytes of small changes and of large ones that came lately.
    small: AtomicU64,
    large: AtomicU64,
}

impl Brake {
    /// A checkpoint begins that will free so many bytes of the log.
    pub fn begins(&self, frees: u64, now: Duration) {
        self.stored.store(0, Ordering::Relaxed);
        self.frees.store(frees, Ordering::Relaxed);
        *self.looked.lock() = (now, 0);
    }

    /// `done` of `all` records have been stored.
    pub fn goes_on(&self, done: usize, all: usize, now: Duration) {
        let stored = self.frees.load(Ordering::Relaxed) / 1000 * (done as u64 * RECORDS_SHARE / (all as u64).max(1));
        self.stored.store(stored, Ordering::Relaxed);
        let mut looked = self.looked.lock();
        let (then, before) = *looked;
        let passed = now.saturating_sub(then);
        if passed >= LOOK {
            *looked = (now, stored);
            let taken = (stored.saturating_sub(before) as f64 / passed.as_secs_f64()) as u64;
            let known = self.taken.load(Ordering::Relaxed);
            self.taken.store(if known == 0 { taken } else { (known + taken) / 2 }, Ordering::Relaxed);
        }
    }

    /// The log has been trimmed, or the checkpoint thrown away.
    pub fn ends(&self) {
        self.stored.store(0, Ordering::Relaxed);
    }

    /// A generation closes, because of the log or not.
    pub fn closes(&self, pressed: bool) {
        let row = if pressed { self.row.load(Ordering::Relaxed).saturating_add(1) } else { 0 };
        self.row.store(row, Ordering::Relaxed);
    }

    /// The wait of a change of `bytes` of data, where the log holds `used` bytes of `room`. Counts it as coming.
    pub fn wait_for(&self, bytes: usize, large: bool, used: u64, room: u64) -> Duration {
        let bytes = bytes as u64 + HEAD;
        let part_of_all = self.comes(bytes, large);
        let (counts, (begins, full)) = match self.row.load(Ordering::Relaxed) {
            0 | 1 => (used, BURST),
            _ => (used.saturating_sub(self.stored.load(Ordering::Relaxed)), STEADY),
        };
        let part = (counts as f64 / room as f64 - begins) / (full - begins);
        let taken = match self.taken.load(Ordering::Relaxed) {
            0 => TAKEN_UNKNOWN,
            taken => taken,
        };
        let wait = wait(part, taken, bytes, self.waiting.load(Ordering::Relaxed) as u64);
        if large { wait } else { wait.mul_f64(part_of_all) }
    }

    /// Counts a change; the part that its kind has of what came lately.
    fn comes(&self, bytes: u64, large: bool) -> f64 {
        let (own, other) = if large { (&self.large, &self.small) } else { (&self.small, &self.large) };
        let own_bytes = own.fetch_add(bytes, Ordering::Relaxed) + bytes;
        let all = own_bytes + other.load(Ordering::Relaxed);
        if all > LATELY {
            // What is lost between the two is of no account.
            own.store(own_bytes / 2, Ordering::Relaxed);
            other.store((all - own_bytes) / 2, Ordering::Relaxed);
        }
        own_bytes as f64 / all as f64
    }

    /// One change more waits.
    pub fn enters(&self) {
        self.waiting.fetch_add(1, Ordering::Relaxed);
    }

    /// One goes on.
    pub fn leaves(&self) {
        self.waiting.fetch_sub(1, Ordering::Relaxed);
    }

    /// When `wait` from now on is over, in nanoseconds of the steady clock, with what was owed: `None` if that is too little
    /// and is owed from now on.
    pub fn until(&self, wait: Duration, now: Duration) -> Option<u64> {
        let owed = self.owed.swap(0, Ordering::Relaxed) + wait.as_nanos() as u64;
        let over = now.as_nanos() as u64 + owed;
        let until = over / BEAT * BEAT;
        let waits = owed >= BEAT;
        self.owed.fetch_add(if waits { over - until } else { owed }, Ordering::Relaxed);
        waits.then_some(until)
    }
}

/// The wait of `bytes`, with `others` waiting beside them, where the log is at `part` of the way between the brake's begin and
/// its end, and checkpoints take `taken` bytes in a second: half-way as much comes as goes.
///
/// Between a quarter and three quarters of the way the rate changes by less than a third, so that what a burst left in the
/// log is brought down slowly; a checkpoint's time without records moves the part by a fifth.
fn wait(part: f64, taken: u64, bytes: u64, others: u64) -> Duration {
    if part <= 0.0 {
        return Duration::ZERO;
    }
    let left = 1.0 - part.min(1.0);
    let rate = taken as f64 * (left / part).powf(0.25) * (left / FIRM).min(1.0);
    let most = WAIT_MAX.mul_f64((bytes as f64 / f64::from(1 << 20)).min(1.0));
    Duration::try_from_secs_f64(bytes as f64 * (others + 1) as f64 / rate).unwrap_or(most).min(most)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TAKEN: u64 = 100 << 20;

    #[test]
    fn the_wait_grows_with_the_log_and_with_the_change() {
        let alone = |part, bytes| wait(part, TAKEN, bytes, 0);
        assert_eq!(alone(-0.1, 1 << 20), Duration::ZERO);
        assert_eq!(alone(0.0, 1 << 20), Duration::ZERO);
        assert_eq!(alone(0.5, TAKEN / 100), Duration::from_millis(10), "half-way as much comes as goes");
        assert_eq!(wait(0.5, TAKEN, TAKEN / 100, 9), Duration::from_millis(100), "of all together");
        let parts = [0.01, 0.1, 0.3, 0.5, 0.7, 0.9, 0.99];
        assert!(parts.windows(2).all(|two| alone(two[0], 8192) < alone(two[1], 8192)));
        assert!(alone(0.05, TAKEN / 100) < Duration::from_millis(5), "it begins gently");
        for part in [0.25, 0.75] {
            let change = alone(part, TAKEN / 100).as_secs_f64() / alone(0.5, TAKEN / 100).as_secs_f64();
            assert!((0.75..1.34).contains(&change), "it settles slowly: {change}");
        }
        assert!(alone(0.95, TAKEN / 100) > Duration::from_millis(60), "and is firm at the end");
        assert_eq!(alone(0.3, 1 << 20).as_micros(), (alone(0.3, 1 << 12) * 256).as_micros());
        assert_eq!(alone(1.0, 4 << 20), WAIT_MAX);
        assert!(wait(9.0, 0, 4096, 1000) < Duration::from_millis(8), "who writes little never waits long");
    }

    #[test]
    fn who_writes_little_beside_a_stream_does_not_wait_for_it() {
        let brake = Brake::default();
        let small = |brake: &Brake| brake.wait_for(4096, false, 90, 100);
        assert!(small(&brake) > Duration::ZERO, "alone it fills the log");
        for _ in 0..1000 {
            assert!(brake.wait_for(1 << 20, true, 90, 100) > Duration::from_millis(5));
        }
        assert!(small(&brake) < Duration::from_micros(1));
        for _ in 0..100_000 {
            small(&brake);
        }
        assert!(small(&brake) > Duration::from_micros(20), "now it is small ones that fill it");
    }

    #[test]
    fn short_waits_are_put_together_and_none_is_lost() {
        let brake = Brake::default();
        let (mut now, mut waited) = (Duration::from_millis(1234), Duration::ZERO);
        let wait = Duration::from_micros(150);
        for _ in 0..7000 {
            now += Duration::from_micros(37);
            if let Some(until) = brake.until(wait, now) {
                assert_eq!(until % BEAT, 0);
                waited += Duration::from_nanos(until) - now;
            }
        }
        assert!(waited <= wait * 7000 && waited + Duration::from_millis(8) > wait * 7000, "{waited:?}");
        let until = brake.until(Duration::from_millis(30), now).expect("a long wait");
        assert!(Duration::from_nanos(until) - now > Duration::from_millis(25));
    }

    #[test]
    fn the_speed_of_checkpoints_is_what_they_last_showed() {
        let brake = Brake::default();
        brake.begins(100 << 20, Duration::from_secs(10));
        brake.goes_on(1, 1000, Duration::from_millis(10_100));
        assert_eq!(brake.taken.load(Ordering::Relaxed), 0, "too early to tell");
        brake.goes_on(500, 1000, Duration::from_secs(12));
        let taken = brake.taken.load(Ordering::Relaxed);
        assert!(taken > 23 << 20 && taken < 25 << 20, "{taken}");
        brake.goes_on(1000, 1000, Duration::from_secs(13));
        assert!(brake.taken.load(Ordering::Relaxed) > taken);
        assert!(brake.stored.load(Ordering::Relaxed) < 100 << 20);
        brake.ends();
        assert_eq!(brake.stored.load(Ordering::Relaxed), 0);
    }
}
