//! The log's thread: writes and flushes whenever somebody waits for it, and sleeps otherwise.
//!
//! - One thread, because flushes of one log follow each other; whoever waits meanwhile shares the next one. Only for a flush of
//!   much, another one waits for the disk's writes.
//! - The wake hook never blocks: it sets a token that the thread takes when it next looks.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::{JoinHandle, Thread};

use tarn_wal::{Log, Wake};

use crate::exit::{Outcome, Stop};

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

/// A thread for as long as a flush of much takes, beside which it costs little.
fn both(beside: &mut (dyn FnMut() + Send), here: &mut dyn FnMut()) -> bool {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("log-write".to_owned());
        // There may be no more threads, but there is a disk.
        let started = thread.spawn_scoped(scope, beside).is_ok();
        if started {
            here();
        }
        started
    })
}

/// The running thread.
pub struct Flusher {
    thread: JoinHandle<()>,
    stop: Arc<AtomicBool>,
}

impl Flusher {
    pub fn start(log: Arc<Log>, waker: &Waker) -> Outcome<Flusher> {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let thread = std::thread::Builder::new()
            .name("log".to_owned())
            .spawn(move || {
                crate::slice::shorten();
                while !stopped.load(Ordering::Acquire) {
                    while let Some(job) = log.begin_flush() {
                        let result = job.run_on(both);
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
