//! The log's thread: writes and flushes whenever somebody waits for it, and sleeps otherwise.
//!
//! - One thread, because flushes of one log follow each other; whoever waits meanwhile shares the next one. Of a flush of much,
//!   two others wait for the disk's writes.
//! - The wake hook never blocks: it sets a token that the thread takes when it next looks.
//! - Where changes are held back, because checkpoints do not keep up, it rests before each flush: more of them share one, and
//!   what it would have cost goes to the checkpoint that they are held back for.

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
                let mut lately = Lately::default();
                let mut next = || {
                    if lately.note(were_held(), Instant::now()) {
                        std::thread::sleep(REST);
                    }
                    log.begin_flush()
                };
                while !stopped.load(Ordering::Acquire) {
                    while let Some(mut job) = next() {
                        let result = job.run_beside(&beside);
                        if let Err(error) = &result {
                            tracing::error!("the log {} failed: {error}", log.name());
                        }
                        log.finish_flush(job, result);
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
    use super::*;

    #[test]
    fn it_rests_for_a_while_after_changes_were_held() {
        let (begin, mut lately) = (Instant::now(), Lately::default());
        let mut held = |since, ms| lately.note(since, begin + Duration::from_millis(ms));
        assert!(!held(false, 0), "never yet");
        assert!(held(true, 1000) && held(false, 1099));
        assert!(held(true, 1099) && held(false, 1198) && !held(false, 1199));
    }
}
