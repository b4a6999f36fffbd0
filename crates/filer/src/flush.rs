//! The log's thread: writes and flushes whenever somebody waits for it, and sleeps otherwise.
//!
//! - One thread, because flushes of one log follow each other; whoever waits meanwhile shares the next one. Of a flush of much,
//!   two others wait for the disk's writes.
//! - The wake hook never blocks: it sets a token that the thread takes when it next looks.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, mpsc};
use std::thread::{JoinHandle, Thread};

use parking_lot::Mutex;
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

/// The running thread.
pub struct Flusher {
    thread: JoinHandle<()>,
    stop: Arc<AtomicBool>,
}

impl Flusher {
    pub fn start(log: Arc<Log>, waker: &Waker) -> Outcome<Flusher> {
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
                while !stopped.load(Ordering::Acquire) {
                    while let Some(mut job) = log.begin_flush() {
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
