//! The brake: changes come as fast as checkpoints make room for them, and none stops for seconds.
//!
//! - What all may bring in a second is what checkpoints take in one, a little more while the log has much room and a little
//!   less while it has little, so that what it holds settles where as much comes as goes.
//! - It is never more than what the log has room for until the running checkpoint frees its part, spread over that time: who
//!   came first does not take it from those who come later.
//! - A change has its turn ([`crate::beats`]) in proportion to its bytes; a small one besides as far as small ones are what
//!   fills the log, so that who writes a little beside somebody's stream does not wait for that.
//! - Checkpoints store of what was written over only the last, so the more of that there is, the more of the log they take.
//! - Of the log's part that a running checkpoint frees counts what it has still to do: otherwise clients would be let in all
//!   at once at each end of one, and be held until the next.
//! - What a checkpoint takes in a second is meant of its whole time, of which the last ones showed how much comes before the
//!   records and how much goes into them: else more is let in at its begin than it takes, and less towards its end.
//! - A burst is taken in at full speed until the log is nearly half full: never less than it takes for a checkpoint to begin.
//! - Where changed keys fill the overlay's memory, writes have their turns so that as many come as checkpoints take.
//! - Waiting before the operation runs, a change holds nothing but its own bytes.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use crate::beats::Beats;

/// What a change costs the log beside its data, about.
const HEAD: u64 = 512;
/// Where the log fills for the first time: the least share of it that is taken in at full speed, and how much of it beyond what
/// makes a generation close.
const BURST: f64 = 0.45;
const BURST_GOES_ON: f64 = 0.05;
/// What is left of the best speed of a checkpoint that has the machine for itself when it has not, one in so many: so much is
/// believed until one has shown it.
const BESIDE_BURST: u64 = 2;
/// Where checkpoints follow each other: the share of the log, less what is stored, at which the brake begins, and half of the
/// log, which a checkpoint must not free more of for as much to fit in beside it; half-way as much comes as goes, and the log
/// has room for what comes while one is slow for a second or two.
const STEADY: (f64, f64) = (0.26, 0.52);
/// What the log is to hold at most when a checkpoint ends.
const MOST: f64 = 0.97;
/// Least part of what goes that comes while there is room for it, so that what a burst left is brought down slowly.
const SLOWLY: f64 = 0.9;
/// What checkpoints take in a second, until one has shown it.
const TAKEN_UNKNOWN: u64 = 64 << 20;
/// How often their speed is looked at. One that is over before two looks shows it as a whole, if it took at least so long.
const LOOK: Duration = Duration::from_millis(500);
const SHORT: Duration = Duration::from_millis(100);
/// One of less shows nothing, for of little the store's latency is most; each takes as long as if it stored so much more.
const LITTLE: u64 = 64 << 20;
/// So many times what is known or taken for granted is believed at once, or a part of it: what is shown once may be an exception.
const BELIEVED: u64 = 4;
/// No MiB has its turn later, and what is smaller in proportion: 16 ms for 8 KiB, which is a beat then. What the log has no room
/// for then waits for that, and is refused in the end.
const WAIT_MAX: Duration = Duration::from_secs(2);
/// So many bytes that came are remembered, the latest half of them surely.
const LATELY: u64 = 64 << 20;
/// What was known of the speed counts so many times as what a look shows: where the log fills for the first time, and later,
/// when the log has room for two or three seconds in which tables are merged.
const KNOWN_COUNTS: [u64; 2] = [3, 15];
/// What is taken for granted of a checkpoint's time, until one has shown it.
const PARTS_UNKNOWN: Parts = Parts { before: 0.0, records: 0.95 };

/// The share of the overlay's memory that changed keys take, at which the brake begins, and from which on only a little of what
/// checkpoints take is let in. The later it begins, the more of a burst is still to be stored when it is over, which makes what
/// comes then slower.
const KEYS: (f64, f64) = (0.10, 0.30);
/// That little, as a part of what they take: it may be names that fill the memory, and those nobody holds. And the share from
/// which on no turn is given any more.
const KEYS_LITTLE: f64 = 0.2;
const KEYS_MOST: f64 = 0.65;
/// The share at which a generation closes: nobody may be held for a checkpoint that does not begin.
pub const KEYS_CLOSE: f64 = 0.15;
/// Keys that a write counts for: those of a small file that is made and written.
const KEYS_OF_WRITE: f64 = 4.0;
/// Keys that checkpoints take in a second, until one has shown it, and how many one must have had to show it.
const KEYS_UNKNOWN: f64 = 80_000.0;
const KEYS_SHOWN: usize = 20_000;
/// No turn of a change is farther away because of keys.
const KEYS_WAIT_MAX: Duration = Duration::from_millis(50);

/// The parts of a checkpoint's time that come before its records and go into them; the rest comes behind them.
#[derive(Clone, Copy, Debug)]
struct Parts {
    before: f64,
    records: f64,
}

/// What a checkpoint that succeeded took.
#[derive(Clone, Copy, Debug)]
pub struct Stored {
    /// Keys and records.
    pub count: usize,
    pub took: Duration,
    /// Of that, before its records and for them.
    pub before: Duration,
    pub records: Duration,
}

/// A look at a checkpoint's speed.
#[derive(Clone, Copy, Debug)]
struct Look {
    at: Duration,
    /// What it had stored.
    stored: u64,
    /// Changes were held before it.
    held: bool,
}

/// The looks at a running checkpoint.
#[derive(Clone, Copy, Debug)]
struct Looks {
    /// Behind its first records.
    first: Look,
    last: Look,
    /// How many there were since the first.
    count: u32,
}

/// What is taken of the log, or of the memory that stands for it.
#[derive(Clone, Copy, Debug)]
pub struct Fill {
    pub used: u64,
    pub room: u64,
    /// The share of it that a burst is taken in up to.
    burst: f64,
}

impl Fill {
    /// Of a log at whose `percent` a generation closes.
    pub fn of_log(used: u64, room: u64, percent: u8) -> Fill {
        Fill { used, room, burst: (f64::from(percent) / 100.0 + BURST_GOES_ON).max(BURST) }
    }

    /// Of memory, at a third of which one closes.
    pub fn of_memory(used: u64, room: u64) -> Fill {
        Fill { used, room, burst: BURST }
    }
}

/// What the brake knows.
#[derive(Debug, Default)]
pub struct Brake {
    /// Bytes of the log that the running checkpoint frees, 0 if none runs, and of them those that are stored, were its time even over them.
    frees: AtomicU64,
    stored: AtomicU64,
    /// Bytes of the log that one frees, or the last freed, for a thousand that it stores.
    frees_of_1000: AtomicU64,
    /// It shows its speed.
    stores_much: AtomicBool,
    /// What the last ones showed of a checkpoint's time.
    parts: Mutex<Option<Parts>>,
    /// What was seen of its speed; `None` before its first record.
    looked: Mutex<Option<Looks>>,
    /// Bytes of a log in which nothing was written over that checkpoints take in a second beside changes that are held, and the most
    /// without any; 0: not known.
    taken: AtomicU64,
    alone: AtomicU64,
    /// Changes were held since the last look at it.
    held: AtomicBool,
    /// How many generations closed in a row because of the log.
    row: AtomicU32,
    /// Bytes of small changes and of large ones that came lately.
    small: AtomicU64,
    large: AtomicU64,
    /// Turns of small changes, and of large ones.
    small_turns: Beats,
    large_turns: Beats,
    /// Small changes had to wait for their turn since somebody asked.
    small_held: AtomicBool,
    /// Keys that checkpoints take in a second.
    keys_taken: Mutex<Option<f64>>,
}

impl Brake {
    /// A checkpoint begins that has `to_store` bytes to store and will free so many of the log.
    pub fn begins(&self, frees: u64, to_store: u64) {
        self.stores_much.store(to_store.min(frees) >= LITTLE, Ordering::Relaxed);
        self.frees_of_1000.store(frees.saturating_mul(1000) / (to_store + LITTLE), Ordering::Relaxed);
        self.stored.store(0, Ordering::Relaxed);
        self.frees.store(frees, Ordering::Relaxed);
        *self.looked.lock() = None;
    }

    /// `done` of `all` keys have been read that it needs before its records.
    pub fn prepares(&self, done: usize, all: usize) {
        self.has_done(self.parts().before * part_of(done, all));
    }

    /// `done` of `all` records have been stored.
    pub fn goes_on(&self, done: usize, all: usize, now: Duration) {
        let Parts { before, records } = self.parts();
        let stored = self.has_done(before + records * part_of(done, all));
        let mut looked = self.looked.lock();
        let Some(looks) = &mut *looked else {
            let first = Look { at: now, stored, held: self.held.swap(false, Ordering::Relaxed) };
            // The first of two looks that follow each other is one at a checkpoint that runs.
            *looked = Some(Looks { first, last: Look { held: false, ..first }, count: 0 });
            return;
        };
        let last = looks.last;
        let passed = now.saturating_sub(last.at);
        if passed < LOOK {
            return;
        }
        let held = self.held.swap(false, Ordering::Relaxed);
        looks.last = Look { at: now, stored, held };
        looks.count += 1;
        self.shows(stored.saturating_sub(last.stored), passed, (last.held, held));
    }

    fn parts(&self) -> Parts {
        self.parts.lock().unwrap_or(PARTS_UNKNOWN)
    }

    /// The running checkpoint has done that part of its work: what it frees of the log for that.
    fn has_done(&self, part: f64) -> u64 {
        let stored = (self.frees.load(Ordering::Relaxed) as f64 * part) as u64;
        self.stored.store(stored, Ordering::Relaxed);
        stored
    }

    /// So much was stored in a time, at whose begin and end changes were held before it or not.
    fn shows(&self, stored: u64, time: Duration, held: (bool, bool)) {
        if !self.stores_much.load(Ordering::Relaxed) {
            return;
        }
        let taken = (stored as f64 / self.written_over() / time.as_secs_f64()) as u64;
        match held {
            (true, true) => {
                let speed = self.speed();
                let taken = taken.clamp(speed / BELIEVED, speed.saturating_mul(BELIEVED));
                let counts = KNOWN_COUNTS[usize::from(self.row.load(Ordering::Relaxed) > 1)];
                let first = self.taken.load(Ordering::Relaxed) == 0;
                let known = if first { taken } else { (counts * speed + taken).div_ceil(counts + 1) };
                self.taken.store(known.max(1), Ordering::Relaxed);
            }
            (false, false) => {
                self.alone.fetch_max(taken, Ordering::Relaxed);
            }
            // Beside a burst it had next to nothing of the machine for a part of the time.
            _ => {}
        }
    }

    /// How many times as much the log holds as is to be stored.
    fn written_over(&self) -> f64 {
        (self.frees_of_1000.load(Ordering::Relaxed) as f64 / 1000.0).max(1.0)
    }

    /// Bytes of a log in which nothing was written over that checkpoints take in a second, as far as is known.
    pub fn speed(&self) -> u64 {
        match (self.taken.load(Ordering::Relaxed), self.alone.load(Ordering::Relaxed)) {
            (0, 0) => TAKEN_UNKNOWN,
            (0, alone) => (alone / BESIDE_BURST).max(1),
            (taken, _) => taken,
        }
    }

    /// The log has been trimmed by a checkpoint; `None`: it has been thrown away, or was there already.
    pub fn ends(&self, stored: Option<Stored>) {
        self.stored.store(0, Ordering::Relaxed);
        let frees = self.frees.swap(0, Ordering::Relaxed);
        let looked = self.looked.lock().take();
        let Some(Stored { count, took, before, records }) = stored else { return };
        if let Some(Looks { first, last, .. }) = looked.filter(|looks| looks.count < 2 && took >= SHORT) {
            let held = self.held.swap(false, Ordering::Relaxed) || last.held;
            self.shows(frees, took, (first.held, held));
        }
        if self.stores_much.load(Ordering::Relaxed) && took >= SHORT {
            let part = |of: Duration| of.as_secs_f64() / took.as_secs_f64();
            let shown = Parts { before: part(before), records: part(records) };
            let mut known = self.parts.lock();
            *known = Some(known.map_or(shown, |known| Parts {
                before: known.before / 4.0 + shown.before * 0.75,
                records: known.records / 4.0 + shown.records * 0.75,
            }));
        }
        if count >= KEYS_SHOWN {
            let taken = count as f64 / took.as_secs_f64().max(0.001);
            let mut known = self.keys_taken.lock();
            *known = Some(known.map_or(taken, |known| (known + taken) / 2.0));
        }
    }

    /// A generation closes, because of the log or not.
    pub fn closes(&self, pressed: bool) {
        let row = if pressed { self.row.load(Ordering::Relaxed).saturating_add(1) } else { 0 };
        self.row.store(row, Ordering::Relaxed);
    }

    /// When a change of `bytes` of data goes, in nanoseconds of the steady clock, where the log is as full as `fill` says,
    /// and changed keys take the share `keys` of the overlay's memory; `None`: now. Counts it as coming.
    pub fn until(
        &self,
        bytes: usize,
        large: bool,
        fill: Fill,
        keys: f64,
        now: impl FnOnce() -> Duration,
    ) -> Option<u64> {
        let bytes = bytes as u64 + HEAD;
        let part_of_all = self.comes(bytes, large);
        let of_log = self.rate(fill).map(|rate| time_of_log(rate, bytes));
        let of_log = if large { of_log } else { of_log.map(|(time, most)| (time.mul_f64(part_of_all), most)) };
        let of_keys = self.keys_rate(keys).map(|rate| (seconds(KEYS_OF_WRITE / rate, KEYS_WAIT_MAX), KEYS_WAIT_MAX));
        let (time, most) = match (of_log, of_keys) {
            (None, None) => return None,
            (Some(one), None) | (None, Some(one)) => one,
            (Some(log), Some(keys)) => (log.0.max(keys.0), log.1.max(keys.1)),
        };
        let turns = if large { &self.large_turns } else { &self.small_turns };
        let until = turns.take(time, most, now());
        if !large && until.is_some() {
            self.small_held.store(true, Ordering::Relaxed);
        }
        until
    }

    /// Whether small changes had to wait for their turn since it was last asked.
    pub fn small_were_held(&self) -> bool {
        self.small_held.load(Ordering::Relaxed) && self.small_held.swap(false, Ordering::Relaxed)
    }

    /// Keys that may come in a second because of what they take; `None`: as many as they like. Half-way as many come as go.
    fn keys_rate(&self, keys: f64) -> Option<f64> {
        let part = (keys - KEYS.0) / (KEYS.1 - KEYS.0);
        let least = if keys < KEYS_MOST { KEYS_LITTLE } else { 0.0 };
        (part > 0.0).then(|| self.keys_taken.lock().unwrap_or(KEYS_UNKNOWN) * (2.0 * (1.0 - part)).max(least))
    }

    /// Bytes that all together may bring in a second; `None`: as many as they like.
    fn rate(&self, Fill { used, room, burst }: Fill) -> Option<f64> {
        let share = |bytes: u64| bytes as f64 / room as f64;
        let (frees, stored) = (self.frees.load(Ordering::Relaxed), self.stored.load(Ordering::Relaxed));
        // What has to be stored before anything is freed.
        let to_do = share(if frees == 0 { used } else { frees.saturating_sub(stored) }).max(0.001);
        // What comes until then is what the next one frees.
        let most = if frees == 0 { MOST } else { (share(frees) + STEADY.1).min(MOST) };
        let until_freed = (most - share(used)).max(0.0) / to_do;
        let of_taken = match self.row.load(Ordering::Relaxed) {
            0 | 1 => (share(used) > burst).then(|| until_freed.min(1.0)),
            _ => {
                let part = (share(used.saturating_sub(stored)) - STEADY.0) / (STEADY.1 - STEADY.0);
                (part > 0.0).then(|| settling(part).min(until_freed))
            }
        };
        // It is asked for every change, and is nearly always said already.
        if of_taken.is_some() && !self.held.load(Ordering::Relaxed) {
            self.held.store(true, Ordering::Relaxed);
        }
        of_taken.map(|of_taken| of_taken * self.speed() as f64 * self.written_over())
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
}

/// What may come of what goes, where what the log has to store is at `part` of the way from the brake's begin to half of the log:
/// around the middle of it, where both are the same, it changes little.
fn settling(part: f64) -> f64 {
    let left = (1.0 - part).max(0.0);
    (left / part).powf(0.25).max(SLOWLY)
}

/// What `bytes` take up of a rate of so many bytes a second, and how long they wait at most.
fn time_of_log(rate: f64, bytes: u64) -> (Duration, Duration) {
    let most = WAIT_MAX.mul_f64((bytes as f64 / f64::from(1 << 20)).min(1.0));
    (seconds(bytes as f64 / rate, most), most)
}

fn part_of(done: usize, all: usize) -> f64 {
    done as f64 / all.max(1) as f64
}

fn seconds(count: f64, most: Duration) -> Duration {
    Duration::try_from_secs_f64(count).unwrap_or(most).min(most)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TAKEN: u64 = 100 << 20;
    const ROOM: u64 = 1000;

    /// A brake that knows a speed, where a checkpoint that frees `frees` of [`ROOM`] has stored `stored`.
    fn knows(row: u32, frees: u64, stored: u64) -> Brake {
        let brake = Brake::default();
        brake.taken.store(TAKEN, Ordering::Relaxed);
        brake.row.store(row, Ordering::Relaxed);
        brake.frees.store(frees, Ordering::Relaxed);
        brake.stored.store(stored, Ordering::Relaxed);
        brake
    }

    /// A checkpoint of `count` that took so long, as is taken for granted.
    fn took(count: usize, took: Duration) -> Stored {
        Stored { count, took, before: Duration::ZERO, records: took.mul_f64(PARTS_UNKNOWN.records) }
    }

    /// What comes of what goes.
    fn comes(brake: &Brake, used: u64) -> f64 {
        brake.rate(Fill::of_log(used, ROOM, 40)).map_or(f64::INFINITY, |rate| rate / TAKEN as f64)
    }

    #[test]
    fn as_much_comes_as_goes_and_never_more_than_there_is_room_for() {
        let steady = |used| comes(&knows(2, 300, 100), used);
        assert_eq!(steady(350), f64::INFINITY, "much room");
        assert!((1.5..10.0).contains(&steady(365)), "it begins gently");
        assert_eq!(steady(490), 1.0, "half-way as much comes as goes");
        for used in [445, 535] {
            assert!((0.75..1.34).contains(&steady(used)), "it settles slowly: {}", steady(used));
        }
        assert_eq!(steady(600), SLOWLY, "there is room for it");
        assert!((steady(750) - 0.35).abs() < 0.01, "70 more until 200 are stored, for the next one is to free 520");
        assert!(steady(820) < 1e-9);
        let burst = |used| comes(&knows(1, 400, 100), used);
        assert_eq!(burst(449), f64::INFINITY, "a burst is taken in");
        assert_eq!(burst(500), 1.0, "and then as much comes as goes");
        assert!((burst(750) - 0.567).abs() < 0.01, "170 more until 300 are stored");
        assert!((comes(&knows(0, 600, 0), 670) - 0.5).abs() < 0.01, "the log is no larger than it is");
        assert!(Brake::default().rate(Fill::of_log(740, ROOM, 70)).is_none(), "no checkpoint has begun");
        assert!(Brake::default().rate(Fill::of_memory(460, ROOM)).is_some());
        assert!(comes(&knows(0, 0, 0), 700) < 0.4, "between two tries of a checkpoint all is to be stored");
    }

    #[test]
    fn a_change_takes_its_turn_in_proportion_to_its_bytes() {
        let time = |rate, bytes| time_of_log(rate, bytes).0;
        assert_eq!(time(TAKEN as f64, TAKEN / 100), Duration::from_millis(10));
        assert_eq!(time(0.0, 4 << 20), WAIT_MAX);
        assert!(time_of_log(0.0, 4096).1 < Duration::from_millis(8), "who writes little never waits long");
    }

    #[test]
    fn where_keys_fill_the_memory_as_many_come_as_go() {
        let brake = Brake::default();
        let half_way = (KEYS.0 + KEYS.1) / 2.0;
        let rate = |keys| brake.keys_rate(keys).map(f64::round);
        for nothing in [None, Some(took(50, Duration::from_millis(500)))] {
            brake.ends(nothing);
            assert_eq!(rate(half_way), Some(KEYS_UNKNOWN), "what was thrown away, or small, shows nothing");
        }
        brake.ends(Some(took(30_000, Duration::from_secs(3))));
        assert_eq!(
            [KEYS.0, half_way, 0.15, 0.25, KEYS.1, 0.64, KEYS_MOST].map(rate),
            [None, Some(1e4), Some(1.5e4), Some(5e3), Some(2e3), Some(2e3), Some(0.0)]
        );
        let closing = rate(KEYS_CLOSE).unwrap_or(f64::INFINITY);
        assert!(closing > 1e4 && KEYS_CLOSE > KEYS.0, "a checkpoint has begun before fewer come than it takes");
        brake.ends(Some(took(30_000, Duration::from_secs(1))));
        assert_eq!(rate(half_way), Some(2e4), "it follows what they show");
        let now = Duration::from_secs(5);
        let until = |keys| brake.until(100, false, Fill::of_log(0, 100, 40), keys, || now).map(Duration::from_nanos);
        assert_eq!(until(KEYS.0), None);
        let waits: Vec<_> = (0..100).map(|_| until(0.9)).collect();
        assert!(waits.iter().flatten().all(|until| *until <= now + KEYS_WAIT_MAX));
        assert!(waits.iter().filter(|until| until.is_some()).count() > 90);
    }

    #[test]
    fn tries_that_fail_make_nobody_slower() {
        let brake = knows(1, 400, 100);
        let before = comes(&brake, 500);
        for _ in 0..100 {
            brake.begins(400, 400);
            brake.ends(None);
        }
        brake.begins(400, 400);
        brake.stored.store(100, Ordering::Relaxed);
        assert_eq!(comes(&brake, 500), before);
    }

    #[test]
    fn of_what_is_written_over_checkpoints_take_more_of_the_log() {
        let brake = knows(1, 0, 0);
        let rate =
            |brake: &Brake| brake.rate(Fill::of_log(500 << 20, 1000 << 20, 40)).unwrap_or_default() / TAKEN as f64;
        brake.begins(400 << 20, 400 << 20);
        assert_eq!(rate(&brake), 1.0, "nothing was");
        brake.begins(400 << 20, 36 << 20);
        assert_eq!(rate(&brake), 4.0);
        brake.shows(1 << 20, Duration::from_secs(1), (true, true));
        assert_eq!(brake.speed(), TAKEN, "one of little shows nothing");
        brake.begins(400 << 20, 0);
        assert_eq!(rate(&brake), 6.25, "one of nothing takes its time too");
        // Half of what it frees, with what it takes besides.
        brake.begins(300 << 20, 86 << 20);
        brake.shows(200 << 20, Duration::from_secs(1), (true, true));
        assert_eq!(brake.speed(), (3 * TAKEN + (100 << 20)) / 4);
        brake.begins(300 << 20, 86 << 20);
        brake.shows(100 << 20, Duration::from_secs(1), (true, true));
        assert!(brake.speed() < TAKEN, "half of that was to be stored");
        brake.ends(None);
        assert_eq!(brake.written_over(), 2.0, "the next is taken for such a one");
    }

    /// Writers without end beside checkpoints, on one processor, that read for some seconds what they need first, and have `merged`
    /// of it for two and a half of each thirteen seconds, in which tables are merged: bytes that came in each `window` steps of 2 ms.
    fn windows(cost_of_storing: f64, reading: f64, merged: f64, window: u32) -> Vec<f64> {
        const STEP: Duration = Duration::from_millis(2);
        const LOG: f64 = 4e9;
        const COST: f64 = 4.5e-9;
        let step = STEP.as_secs_f64();
        let brake = Brake::default();
        let (mut used, mut frees, mut read, mut stored, mut batch, mut pressed) = (0.0, 0.0, 0.0, 0.0, 0.0, false);
        let mut times = [0.0; 3];
        let mut came = vec![0.0];
        for turn in 0..30_000u32 {
            let now = STEP * turn;
            let fastest = if frees > 0.0 { 0.9 / COST } else { 3.0 / COST };
            let let_in = brake.rate(Fill::of_log(used as u64, LOG as u64, 40)).unwrap_or(f64::INFINITY).min(fastest);
            let comes = if used < LOG { let_in * step } else { 0.0 };
            used += comes;
            *came.last_mut().unwrap() += comes;
            if turn % window == window - 1 {
                came.push(0.0);
            }
            if frees > 0.0 && read < reading {
                read += step * (1.0 - let_in * COST).max(0.1);
                times[0] += step;
                brake.prepares((read / reading * 1e6) as usize, 1_000_000);
            } else if frees > 0.0 && stored < frees {
                times[1] += step;
                let share = if turn % 6500 < 1250 { merged } else { 1.0 };
                stored += step * share * (1.0 - let_in * COST).max(0.1) / cost_of_storing;
                brake.goes_on((stored / frees * 1e6) as usize, 1_000_000, now);
            } else if frees > 0.0 && batch > 0.0 {
                batch -= step;
                times[2] += step;
            } else {
                used -= frees;
                let [before, records, _] = times.map(Duration::from_secs_f64);
                let took = times.iter().sum();
                let ended = Stored { count: 4, took: Duration::from_secs_f64(took), before, records };
                brake.ends((frees > 0.0).then_some(ended));
                (read, times) = (0.0, [0.0; 3]);
                pressed = used > LOG * if pressed { 0.2 } else { 0.4 };
                brake.closes(pressed);
                (frees, stored, batch) = (if pressed { used } else { 0.0 }, 0.0, 0.5);
                if pressed {
                    brake.begins(frees as u64, frees as u64);
                }
            }
        }
        came.pop();
        came
    }

    /// The median of windows that are all within `part` of it.
    fn steady(windows: &[f64], part: f64) -> f64 {
        let mut sorted = windows.to_vec();
        sorted.sort_by(f64::total_cmp);
        let median = sorted[sorted.len() / 2];
        let within = (1.0 - part) * median..(1.0 + part) * median;
        assert!(windows.iter().all(|window| within.contains(window)), "it is not steady: {windows:.0?}");
        median
    }

    #[test]
    fn after_a_burst_as_much_comes_as_later() {
        for cost_of_storing in [3e-9, 5e-9, 7e-9] {
            let windows = windows(cost_of_storing, 0.0, 1.0, 2500);
            let median = steady(&windows[1..], 0.2);
            assert!(windows[0] > 1.7 * median, "no burst is taken in: {windows:.0?}");
        }
    }

    #[test]
    fn what_a_checkpoint_reads_first_makes_nobody_slower_at_its_end() {
        for cost_of_storing in [2e-9, 3e-9, 5e-9] {
            // Behind the burst, and the checkpoints that show it.
            steady(&windows(cost_of_storing, 0.7, 1.0, 250)[60..], 0.15);
        }
    }

    #[test]
    fn a_checkpoint_that_is_slow_for_seconds_makes_nobody_much_slower() {
        for cost_of_storing in [2e-9, 3e-9, 5e-9] {
            steady(&windows(cost_of_storing, 0.7, 0.5, 500)[30..], 0.18);
        }
    }

    #[test]
    fn who_writes_little_beside_a_stream_does_not_wait_for_it() {
        let brake = Brake::default();
        // How many of a thousand changes that come at once go at once.
        let at_once = |bytes: usize, now: u64| {
            let now = Duration::from_secs(now);
            let goes = |_: &u32| brake.until(bytes, bytes >= 1 << 16, Fill::of_log(60, 100, 40), 0.0, || now).is_none();
            (0..1000).filter(goes).count()
        };
        let alone = at_once(4096, 1);
        assert!(alone < 700, "alone it fills the log: {alone}");
        assert!(brake.small_were_held() && !brake.small_were_held(), "it is told once");
        assert!(at_once(1 << 20, 2) < 10);
        assert_eq!(at_once(4096, 3), 1000);
        assert!(!brake.small_were_held());
        for now in 4..40 {
            at_once(4096, now);
        }
        assert!(at_once(4096, 40) < 800, "now it is small ones that fill it");
    }

    #[test]
    fn the_speed_of_checkpoints_is_what_they_show_beside_changes_that_are_held() {
        let brake = Brake::default();
        let speed_at = |done, ms, held| {
            brake.held.store(held, Ordering::Relaxed);
            brake.goes_on(done, 1000, Duration::from_millis(ms));
            (brake.speed() as f64 / f64::from(1 << 20)).round()
        };
        brake.begins(1000 << 20, 1000 << 20);
        assert_eq!(speed_at(0, 10_000, false), 64.0, "nothing is known");
        assert_eq!(speed_at(100, 10_100, false), 64.0, "too early to tell");
        assert_eq!(speed_at(200, 11_000, false), 95.0, "half of what it does alone");
        assert_eq!(speed_at(201, 12_000, true), 95.0, "for a part of the time a burst went on beside it");
        assert_eq!(speed_at(401, 13_000, true), 190.0, "the first that is shown is believed");
        assert_eq!(speed_at(501, 14_000, true), 166.0, "95, by a quarter");
        assert_eq!(speed_at(502, 15_000, false), 166.0, "it was alone in the end");
        assert_eq!(speed_at(1000, 16_000, false), 166.0, "what it does alone does not count any more");
        assert!(brake.stored.load(Ordering::Relaxed) < 1000 << 20);
        brake.ends(None);
        assert_eq!(brake.stored.load(Ordering::Relaxed), 0);
    }

    /// A brake's speed, MiB/s, after a checkpoint of 1000 MiB that took so long.
    fn speed_after(brake: &Brake, ms: u64, held: bool) -> f64 {
        brake.begins(1000 << 20, 1000 << 20);
        for (done, at) in [(10, 10), (500, ms / 2), (1000, ms - 10)] {
            brake.held.store(held, Ordering::Relaxed);
            brake.goes_on(done, 1000, Duration::from_millis(10_000 + at));
        }
        brake.held.store(held, Ordering::Relaxed);
        brake.ends(Some(took(4, Duration::from_millis(ms))));
        (brake.speed() as f64 / f64::from(1 << 20)).round()
    }

    #[test]
    fn checkpoints_too_short_for_two_looks_show_their_speed_as_a_whole() {
        let brake = Brake::default();
        assert_eq!(speed_after(&brake, 50, true), 64.0, "this one is too short for that too");
        assert_eq!(speed_after(&brake, 800, false), 625.0, "half of what it does alone");
        assert_eq!(speed_after(&brake, 500, true), 2000.0, "beside changes that are held");
        assert_eq!(speed_after(&brake, 1000, true), 1750.0, "1000, by a quarter");
        assert_eq!(speed_after(&brake, 500, false), 1750.0, "and not alone any more");
        brake.begins(1000 << 20, 1000 << 20);
        brake.ends(Some(took(4, Duration::from_millis(800))));
        assert_eq!(brake.speed() >> 20, 1750, "one of no records shows nothing");
        let brake = Brake::default();
        brake.begins(1 << 20, 1 << 20);
        brake.goes_on(1, 1, Duration::from_secs(1));
        brake.ends(Some(took(4, Duration::from_millis(400))));
        assert_eq!(brake.speed(), TAKEN_UNKNOWN, "nor does one of a small file in a store that is far away");
    }

    #[test]
    fn what_is_shown_once_is_not_believed_beyond_measure() {
        let brake = Brake::default();
        assert_eq!(speed_after(&brake, 200, true), 256.0, "5000");
        assert_eq!(speed_after(&brake, 200, true), 448.0, "5000, taken for 1024, by a quarter");
        brake.shows(1 << 20, Duration::from_secs(1), (true, true));
        assert_eq!(brake.speed() >> 20, 364, "1, taken for 112, by a quarter");
    }

    #[test]
    fn one_that_was_long_shows_nothing_besides_its_looks() {
        let brake = Brake::default();
        brake.begins(1000 << 20, 1000 << 20);
        for (at, held) in [(10, true), (520, true), (1030, false), (1540, true)] {
            brake.held.store(held, Ordering::Relaxed);
            brake.goes_on(at, 1600, Duration::from_millis(at as u64));
        }
        brake.ends(Some(took(4, Duration::from_millis(1600))));
        assert_eq!(brake.speed(), TAKEN_UNKNOWN);
    }
}
