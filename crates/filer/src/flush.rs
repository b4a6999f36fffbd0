//! The log's thread: writes and flushes whenever somebody waits for it, and sleeps otherwise.
//!
//! - One thread, because flushes of one log follow each other; whoever waits meanwhile shares the next one. Of a flush of much,
//!   two others wait for the disk's writes.
//! - The wake hook never blocks: it sets a token that the thread takes when it next looks.
//! - Where changes are held back, because checkpoints do not keep up, it rests before each flush: more of them share one, and
//!   what it would have cost goes to the checkpoint that they are held back for.
//! - Where a flush takes long, it waits a little for those whom the last one answered: else they find the next one gone, half of
//!   the clients shares each, and each of them waits for two.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, mpsc};
use std::thread::{JoinHandle, Thread};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tarn_wal::{Log, Wake};

use crate::exit::{Outcome, Stop};

/// How long it rests: other changes that want a flush wait for that too.
const REST: Duration = Duration::from_micros(500);
/// So long after one was held back it still does: those that are held go together, some tens of milliseconds apart.
const HELD: Duration = Duration::from_millis(100);
/// A flush that takes so long and that so many wait for: the next one waits for as many, half of that time at most, in such steps.
const SLOW: Duration = Duration::from_millis(1);
const SEVERAL: usize = 2;
const GATHER_MAX: Duration = Duration::from_millis(2);
const STEP: Duration = Duration::from_micros(100);
/// Nobody is waited for once so much is to be written.
const ENOUGH: usize = 1 << 20;
/// Flushes that do not wait after one that waited in vain.
const IN_VAIN: u32 = 16;

/// When changes were held back last.
#[derive(Default)]
struct Lately(Option<Instant>);

impl Lately {
    /// Whether they were lately. `since`: since this was last asked.
    fn note(&mut self, since: bool, now: Instant) -> bool {
        if since {
            self.0 = Some(now);
        }
        self.0.is_some_and(|at| now.saturating_duration_since(at) < HELD)
    }
}

/// What the flushes so far say of the next.
#[derive(Default)]
struct Gathering {
    took: Duration,
    /// Who waited for the last one or came meanwhile.
    waited: usize,
    /// So many do not wait.
    in_vain: u32,
}

impl Gathering {
    fn flushed(&mut self, took: Duration, waited: usize) {
        (self.took, self.waited) = (took, waited);
        self.in_vain = self.in_vain.saturating_sub(1);
    }

    /// How long the next one waits for as many.
    fn waits(&self) -> Duration {
        let worth = self.in_vain == 0 && self.took >= SLOW && self.waited >= SEVERAL;
        if worth { (self.took / 2).min(GATHER_MAX) } else { Duration::ZERO }
    }

    /// Waits for them, of whom `here` says how many are there; `step` waits for a step and says how long it has been.
    fn gather(&mut self, here: impl Fn() -> usize, mut step: impl FnMut() -> Duration) {
        let waits = self.waits();
        if waits.is_zero() {
            return;
        }
        while here() < self.waited && step() < waits {}
        // Some may have been counted twice.
        if here() < self.waited - self.waited / 4 {
            self.in_vain = IN_VAIN;
        }
    }
}

/// Wakes the log's thread; made before the log is, because the log needs it.
#[derive(Clone, Default)]
pub struct Waker(Arc<OnceLock<Thread>>);

impl Waker {
    /// The hook that a log calls when a flush is due.
    pub fn hook(&self) -> Wake {
        let thread = self.0.clone();
        Arc::new(move || {
            if let Some(thread) = thread.get() {
                thread.unpark();
            }
        })
    }
}

/// The running thread.
pub struct Flusher {
    thread: JoinHandle<()>,
    stop: Arc<AtomicBool>,
}

impl Flusher {
    /// `were_held`: whether changes were held back since it was last asked.
    pub fn start(log: Arc<Log>, waker: &Waker, were_held: impl Fn() -> bool + Send + 'static) -> Outcome<Flusher> {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let (hand, handed) = mpsc::channel::<Box<dyn FnOnce() + Send>>();
        let handed = Arc::new(Mutex::new(handed));
        for _ in 0..2 {
            let handed = handed.clone();
            let next = move || handed.lock().recv().ok();
            // They end when the log's thread has.
            std::thread::Builder::new()
                .name("log-write".to_owned())
                .spawn(move || {
                    crate::slice::shorten();
                    std::iter::from_fn(next).for_each(|write| write());
                })
                .map_err(|error| Stop::Internal(format!("a thread for the log's writes cannot start: {error}")))?;
        }
        let thread = std::thread::Builder::new()
            .name("log".to_owned())
            .spawn(move || {
                crate::slice::shorten();
                // Threads that are gone are the flush's to notice.
                let beside = move |write| drop(hand.send(write));
                let (mut lately, mut gathering) = (Lately::default(), Gathering::default());
                let mut next = |gathering: &mut Gathering| {
                    if lately.note(were_held(), Instant::now()) {
                        std::thread::sleep(REST);
                    } else {
                        let begin = Instant::now();
                        let step = || {
                            std::thread::sleep(STEP);
                            begin.elapsed()
                        };
                        gathering.gather(|| if log.buffered() < ENOUGH { log.waiting() } else { usize::MAX }, step);
                    }
                    log.begin_flush()
                };
                while !stopped.load(Ordering::Acquire) {
                    while let Some(mut job) = next(&mut gathering) {
                        let (began, waiting) = (Instant::now(), log.waiting());
                        let result = job.run_beside(&beside);
                        if let Err(error) = &result {
                            tracing::error!("the log {} failed: {error}", log.name());
                        }
                        let took = began.elapsed();
                        log.finish_flush(job, result);
                        gathering.flushed(took, waiting + log.waiting());
                    }
                    std::thread::park();
                }
            })
            .map_err(|error| Stop::Internal(format!("the log's thread cannot start: {error}")))?;
        // What was asked for before there was a thread to wake is found at its first look, or by this token.
        let _ = waker.0.set(thread.thread().clone());
        thread.thread().unpark();
        Ok(Flusher { thread, stop })
    }

    /// Ends the thread after the flush that runs.
    pub fn stop(self) {
        self.stop.store(true, Ordering::Release);
        self.thread.thread().unpark();
        if self.thread.join().is_err() {
            tracing::error!("the log's thread failed");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn a_long_flush_waits_for_those_whom_the_last_one_answered() {
        let after = |ms, waited| {
            let mut gathering = Gathering::default();
            gathering.flushed(Duration::from_millis(ms), waited);
            gathering
        };
        assert_eq!(after(3, 4).waits(), Duration::from_micros(1500));
        assert_eq!(after(9, 4).waits(), GATHER_MAX);
        assert_eq!(after(3, SEVERAL - 1).waits(), Duration::ZERO, "who is alone");
        assert_eq!(after(0, 4).waits(), Duration::ZERO, "a short one");
        let (steps, mut gathering) = (Cell::new(0), after(9, 4));
        let step = || {
            steps.set(steps.get() + 1);
            STEP * steps.get()
        };
        gathering.gather(|| steps.get() as usize, step);
        assert_eq!(steps.get(), 4, "until they are there");
        assert_eq!(gathering.waits(), GATHER_MAX);
        steps.set(0);
        gathering.gather(|| 2, step);
        assert_eq!(STEP * steps.get(), GATHER_MAX, "and no longer than that");
        for left in (0..IN_VAIN).rev() {
            assert_eq!(gathering.waits(), Duration::ZERO, "it was in vain");
            gathering.flushed(Duration::from_millis(9), 4);
            assert_eq!(gathering.in_vain, left);
        }
        assert_eq!(gathering.waits(), GATHER_MAX);
    }

    #[test]
    fn it_rests_for_a_while_after_changes_were_held() {
        let (begin, mut lately) = (Instant::now(), Lately::default());
        let mut held = |since, ms| lately.note(since, begin + Duration::from_millis(ms));
        assert!(!held(false, 0), "never yet");
        assert!(held(true, 1000) && held(false, 1099));
        assert!(held(true, 1099) && held(false, 1198) && !held(false, 1199));
    }
}
