//! Memory that all connections together hold for peers that keep them waiting: messages of which the rest has not come,
//! and replies that have not been taken.
//!
//! - What is read beyond the first few KiB of a message must be granted. Who is not granted it waits, and so does its
//!   peer: first those that have been answered before, then the others, each in the order of asking.
//! - While somebody waits, who has moved nothing for [`PATIENCE`] is given up, the longest silent first: peers that stop
//!   amid a message hold others up for that long.
//! - Replies are there before anybody can ask; they are counted.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::task::{Poll, Waker};
use std::time::Duration;

use parking_lot::Mutex;

/// How long a peer may be silent while others need the memory that it holds: longer than a lost packet takes to come again.
pub(super) const PATIENCE: Duration = Duration::from_millis(500);

/// What all connections of a port may hold.
#[derive(Debug)]
pub(super) struct Allowance {
    /// Bytes.
    limit: usize,
    /// Bytes held; changed under the lock.
    used: AtomicUsize,
    /// Connections that wait; changed under the lock.
    waiting: AtomicUsize,
    holders: Mutex<Holders>,
}

#[derive(Debug, Default)]
struct Holders {
    last: u64,
    all: BTreeMap<u64, Holder>,
    /// Who waits, and whether it was answered before.
    queue: VecDeque<(u64, bool)>,
}

#[derive(Debug)]
struct Holder {
    size: usize,
    mark: Arc<Mark>,
    /// Wakes the connection.
    waker: Waker,
}

/// What a connection and its entry share.
#[derive(Debug, Default)]
struct Mark {
    given_up: AtomicBool,
    /// When bytes last moved, nanoseconds on the steady clock.
    moved: AtomicU64,
}

impl Holder {
    fn silent(&self, now: Duration) -> Duration {
        now.saturating_sub(Duration::from_nanos(self.mark.moved.load(Relaxed)))
    }
}

impl Allowance {
    pub(super) fn new(limit: usize) -> Allowance {
        Allowance { limit, used: AtomicUsize::new(0), waiting: AtomicUsize::new(0), holders: Mutex::default() }
    }

    /// Whether half of what may be held is, or somebody waits.
    pub(super) fn is_short(&self) -> bool {
        self.used.load(Relaxed) > self.limit / 2 || self.waiting.load(Relaxed) > 0
    }

    /// One message always fits.
    fn fits(&self, size: usize) -> bool {
        let used = self.used.load(Relaxed);
        used == 0 || used + size <= self.limit
    }

    /// Gives those up that have been silent for too long, until `size` bytes more fit.
    fn make_room(&self, holders: &mut Holders, size: usize, now: Duration) {
        while !self.fits(size) {
            let holding = holders.all.values_mut().filter(|holder| holder.size > 0);
            let longest = holding.max_by_key(|holder| holder.silent(now));
            let Some(holder) = longest.filter(|holder| holder.silent(now) >= PATIENCE) else { return };
            holder.mark.given_up.store(true, Relaxed);
            self.used.fetch_sub(std::mem::take(&mut holder.size), Relaxed);
            holder.waker.wake_by_ref();
        }
    }
}

/// What one connection holds.
pub(super) struct Hold<'a> {
    allowance: &'a Allowance,
    /// Of its entry; 0 if it never held anything.
    id: u64,
    size: usize,
    mark: Arc<Mark>,
    waits: bool,
}

impl<'a> Hold<'a> {
    pub(super) fn new(allowance: &'a Allowance) -> Hold<'a> {
        Hold { allowance, id: 0, size: 0, mark: Arc::default(), waits: false }
    }

    /// Bytes that this connection could hold.
    pub(super) fn within_reach(&self) -> usize {
        self.allowance.limit.saturating_sub(self.allowance.used.load(Relaxed)) + self.size
    }

    /// Bytes held.
    pub(super) fn size(&self) -> usize {
        self.size
    }

    /// Whether all together hold half of what they may, or somebody waits.
    pub(super) fn is_short(&self) -> bool {
        self.allowance.is_short()
    }

    /// Whether others needed the memory, so that the connection is to end.
    pub(super) fn is_given_up(&self) -> bool {
        self.mark.given_up.load(Relaxed)
    }

    /// Bytes have moved.
    pub(super) fn moved(&self, now: Duration) {
        self.mark.moved.store(now.as_nanos() as u64, Relaxed);
    }

    /// Asks for `size` bytes in all, as one that was `answered` before or not. Whoever waits asks again when it is woken,
    /// and after [`PATIENCE`].
    pub(super) fn poll_reach(&mut self, size: usize, answered: bool, now: Duration, waker: &Waker) -> Poll<()> {
        if size <= self.size {
            return Poll::Ready(());
        }
        let allowance = self.allowance;
        let mut holders = allowance.holders.lock();
        self.enter(&mut holders, now, waker);
        if !self.waits {
            let before = |other: &(u64, bool)| other.1 || !answered;
            let place = holders.queue.iter().take_while(|other| before(other)).count();
            holders.queue.insert(place, (self.id, answered));
            allowance.waiting.store(holders.queue.len(), Relaxed);
            self.waits = true;
        }
        if holders.queue.front().is_some_and(|first| first.0 != self.id) {
            return Poll::Pending;
        }
        let more = size - self.size;
        allowance.make_room(&mut holders, more, now);
        if !allowance.fits(more) {
            return Poll::Pending;
        }
        self.set(&mut holders, size);
        Poll::Ready(())
    }

    /// Holds `size` bytes, whether or not they fit.
    pub(super) fn count(&mut self, size: usize, now: Duration, waker: &Waker) {
        if size == self.size && !self.waits {
            return;
        }
        let allowance = self.allowance;
        let mut holders = allowance.holders.lock();
        self.enter(&mut holders, now, waker);
        self.set(&mut holders, size);
        allowance.make_room(&mut holders, 0, now);
    }

    /// Has an entry that wakes whoever asks. Who held nothing has not been silent.
    fn enter(&mut self, holders: &mut Holders, now: Duration, waker: &Waker) {
        if self.size == 0 {
            self.moved(now);
        }
        if self.id == 0 {
            holders.last += 1;
            self.id = holders.last;
            let holder = Holder { size: 0, mark: self.mark.clone(), waker: waker.clone() };
            holders.all.insert(self.id, holder);
        } else if let Some(holder) = holders.all.get_mut(&self.id) {
            holder.waker.clone_from(waker);
        }
    }

    /// Holds `size` bytes and waits no more; who waits next is woken.
    fn set(&mut self, holders: &mut Holders, size: usize) {
        if let Some(holder) = holders.all.get_mut(&self.id) {
            self.allowance.used.fetch_add(size, Relaxed);
            self.allowance.used.fetch_sub(std::mem::replace(&mut holder.size, size), Relaxed);
        }
        self.size = size;
        if std::mem::take(&mut self.waits) {
            holders.queue.retain(|other| other.0 != self.id);
            self.allowance.waiting.store(holders.queue.len(), Relaxed);
        }
        if let Some(next) = holders.queue.front().and_then(|first| holders.all.get(&first.0)) {
            next.waker.wake_by_ref();
        }
    }
}

impl Drop for Hold<'_> {
    fn drop(&mut self) {
        if self.id > 0 {
            let mut holders = self.allowance.holders.lock();
            self.set(&mut holders, 0);
            holders.all.remove(&self.id);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;
    use std::task::Wake;

    use super::*;

    #[derive(Default)]
    struct Woken(AtomicUsize);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Relaxed);
        }
    }

    const NOW: Duration = Duration::from_secs(100);

    #[test]
    fn who_asks_for_more_than_is_left_waits_until_some_is_let_go() {
        let allowance = Allowance::new(100);
        let woken = Arc::new(Woken::default());
        let waker = Waker::from(woken.clone());
        let [mut one, mut two, mut three] = std::array::from_fn(|_| Hold::new(&allowance));
        assert!(one.poll_reach(70, false, NOW, &waker).is_ready());
        assert!(two.poll_reach(40, false, NOW, &waker).is_pending());
        assert!(three.poll_reach(10, false, NOW, &waker).is_pending(), "two asked first");
        assert_eq!(woken.0.load(Relaxed), 0);
        one.count(0, NOW, &waker);
        assert_eq!(woken.0.load(Relaxed), 1);
        assert!(three.poll_reach(10, false, NOW, &waker).is_pending());
        assert!(two.poll_reach(40, false, NOW, &waker).is_ready());
        assert!(three.poll_reach(10, false, NOW, &waker).is_ready());
        assert!(!one.is_given_up() && !one.is_short());
        drop((one, two, three));
        assert_eq!(allowance.used.load(Relaxed), 0);
        assert!(allowance.holders.lock().all.is_empty());
    }

    #[test]
    fn who_was_answered_before_goes_first() {
        let allowance = Allowance::new(100);
        let [mut one, mut two, mut three] = std::array::from_fn(|_| Hold::new(&allowance));
        let waker = Waker::noop();
        assert!(one.poll_reach(100, false, NOW, waker).is_ready());
        assert!(two.poll_reach(100, false, NOW, waker).is_pending());
        assert!(three.poll_reach(100, true, NOW, waker).is_pending());
        drop(one);
        assert!(two.poll_reach(100, false, NOW, waker).is_pending());
        assert!(three.poll_reach(100, true, NOW, waker).is_ready());
    }

    #[test]
    fn who_is_silent_is_given_up_when_another_needs_the_memory_and_only_then() {
        let allowance = Allowance::new(100);
        let [mut one, mut two, mut three] = std::array::from_fn(|_| Hold::new(&allowance));
        let waker = Waker::noop();
        assert!(one.poll_reach(50, false, NOW, waker).is_ready());
        assert!(two.poll_reach(50, false, NOW, waker).is_ready());
        let later = NOW + PATIENCE;
        two.moved(later);
        assert!(!one.is_given_up(), "nobody needs it");
        assert!(three.poll_reach(60, false, later - Duration::from_millis(1), waker).is_pending());
        assert!(!one.is_given_up());
        assert!(three.poll_reach(60, false, later, waker).is_pending());
        assert!(one.is_given_up() && !two.is_given_up(), "the one that moves keeps its own");
        assert!(three.poll_reach(50, false, later, waker).is_ready());
        drop(one);
        assert_eq!(allowance.used.load(Relaxed), 100);
    }

    #[test]
    fn one_message_fits_however_little_is_allowed() {
        let allowance = Allowance::new(1);
        let mut one = Hold::new(&allowance);
        assert!(one.poll_reach(1 << 20, false, NOW, Waker::noop()).is_ready());
        assert!(one.is_short());
    }

    #[test]
    fn what_is_counted_makes_room_by_the_silent() {
        let allowance = Allowance::new(100);
        let [mut one, mut two] = std::array::from_fn(|_| Hold::new(&allowance));
        let waker = Waker::noop();
        one.count(90, NOW, waker);
        two.count(90, NOW + PATIENCE / 2, waker);
        assert!(!one.is_given_up());
        two.moved(NOW + PATIENCE);
        two.count(91, NOW + PATIENCE, waker);
        assert!(one.is_given_up() && !two.is_given_up());
        two.count(0, NOW + PATIENCE, waker);
        two.count(200, NOW + 4 * PATIENCE, waker);
        assert!(!two.is_given_up(), "it held nothing");
    }
}
