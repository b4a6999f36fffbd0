//! Threads by number, for what each has of its own.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Threads that are told apart; those beyond share.
pub(super) const THREADS: usize = 64;

thread_local! {
    static NUMBER: usize = {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        NEXT.fetch_add(1, Ordering::Relaxed)
    };
}

/// The number of this thread. No other has it or ever had it.
pub(super) fn number() -> usize {
    NUMBER.with(|number| *number)
}
