//! Counts what an execution allocates.
//!
//! - Counters belong to the thread: executions beside each other do not disturb each other.
//! - More than [`ABSURD`] bytes at once are never asked of the machine: whoever is registered ends the program first.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::OnceLock;

/// No decoder of ours has use for as many bytes.
const ABSURD: isize = 1 << 30;

thread_local! {
    static ARMED: Cell<bool> = const { Cell::new(false) };
    static LIVE: Cell<isize> = const { Cell::new(0) };
    static PEAK: Cell<isize> = const { Cell::new(0) };
}

static ON_ABSURD: OnceLock<fn(usize)> = OnceLock::new();

/// The system's allocator, watched.
pub struct Counting;

/// What to do before the program ends for an absurd allocation of so many bytes.
pub fn on_absurd(tell: fn(usize)) {
    let _ = ON_ABSURD.set(tell);
}

/// Runs `f`; gives also how many bytes it held at once, at most.
pub fn measured<T>(f: impl FnOnce() -> T) -> (T, usize) {
    LIVE.set(0);
    PEAK.set(0);
    ARMED.set(true);
    let value = f();
    ARMED.set(false);
    (value, PEAK.get().max(0) as usize)
}

fn grow(by: isize) {
    let live = LIVE.get() + by;
    LIVE.set(live);
    if live > PEAK.get() {
        PEAK.set(live);
    }
    if live > ABSURD && ARMED.get() {
        ARMED.set(false);
        if let Some(tell) = ON_ABSURD.get() {
            tell(live as usize);
        }
        std::process::exit(1);
    }
}

// SAFETY: every call is handed on to the system's allocator with its arguments unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        grow(layout.size() as isize);
        // SAFETY: as our caller's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        grow(layout.size() as isize);
        // SAFETY: as our caller's.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, old: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        grow(size as isize - layout.size() as isize);
        // SAFETY: as our caller's.
        unsafe { System.realloc(old, layout, size) }
    }

    unsafe fn dealloc(&self, old: *mut u8, layout: Layout) {
        LIVE.set(LIVE.get() - layout.size() as isize);
        // SAFETY: as our caller's.
        unsafe { System.dealloc(old, layout) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_held_at_once_is_counted() {
        let (_, peak) = measured(|| {
            drop(vec![1u8; 50_000]);
            vec![2u8; 30_000].len()
        });
        assert!((50_000..60_000).contains(&peak), "{peak}");
    }
}
