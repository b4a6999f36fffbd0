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
//! - A change may take more of the log than its bytes: what one that is counted takes is seen of each generation.
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
const SLOWLY: f64 = 0.85;
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
/// What was known of the speed counts so many times as what a look shows: where the log begins to fill, and at most, with each look
/// one more, for the log has room for two or three seconds in which tables are merged.
const KNOWN_COUNTS: (u64, u64) = (3, 31);
/// A byte that is counted takes no less of the log, and no more, for a thousand: frames are written in whole blocks. What a COMMIT
/// brings into the log behind the generation that counted it is not what changes take.
const WEIGHT: (u64, u64) = (1000, 2000);
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
    /// Looks that it was learned from since the log began to fill.
    believed: AtomicU64,
    /// Changes were held since the last look at it.
    held: AtomicBool,
    /// How many generations closed in a row because of the log.
    row: AtomicU32,
    /// Bytes that were counted since a generation closed, and what a thousand of them took of the log in the last; 0: not known.
    counted: AtomicU64,
    weight: AtomicU64,
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
                let first = self.taken.load(Ordering::Relaxed) == 0;
                let looks = if first { 0 } else { self.believed.fetch_add(1, Ordering::Relaxed) };
                let counts = (KNOWN_COUNTS.0 + looks).min(KNOWN_COUNTS.1);
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
        if !pressed {
            self.believed.store(0, Ordering::Relaxed);
        }
    }

    /// A generation that has closed takes so many bytes of the log, or of the memory that stands for it.
    pub fn weighs(&self, taken: u64) {
        let counted = self.counted.swap(0, Ordering::Relaxed);
        if counted >= LITTLE {
            self.weight.store(taken.saturating_mul(1000) / counted, Ordering::Relaxed);
        }
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
        self.counted.fetch_add(bytes, Ordering::Relaxed);
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
        let weight = self.weight.load(Ordering::Relaxed).clamp(WEIGHT.0, WEIGHT.1) as f64 / 1000.0;
        of_taken.map(|of_taken| of_taken * self.speed() as f64 * self.written_over() / weight)
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
mod tests;
