//! Runs futures on one thread; what wakes them is a reply, a completion or the clock.
//!
//! - Time is kept to the microsecond: a timer of the kernel ends a sleep, since epoll's own timeout may be rounded up to
//!   a whole millisecond, and near a moment that is due the thread looks instead of sleeping.
//! - Whose moment has come begins before anything else goes on, and what it sends is sent: between any two replies that are
//!   looked at and any two reads of a socket.
//! - Work that takes long is done in pieces, and gives way between two of them to what is due.
//! - A future is polled again when what it waits for happened; it may be polled for nothing and must bear that.
//! - Nothing is shared between threads; the waker says nothing, the reactor knows the task that runs.

use crate::Outcome;
use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use rustix::fd::{AsFd, OwnedFd};
use rustix::time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime};
use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

/// Nearer than that to a due moment the thread does not sleep: a sleep ends late by about as much.
const LOOK: Duration = Duration::from_micros(80);
/// Longest sleep, so that a stop is seen.
const SLEEP_MAX: Duration = Duration::from_millis(100);
/// The timer among the sources of events.
const TIMER: u64 = u64::MAX;

/// Something with a file descriptor that brings news.
pub trait Source {
    /// Takes some of what has come and wakes who waited for it. True if there may be more: it is asked again.
    fn ready(&self, reactor: &Reactor) -> bool;
    /// Sends what has gathered since the last time.
    fn flush(&self, reactor: &Reactor);
    /// Sleeps until there is news, at most so long; false if it knows no sleep of its own. Only asked of who is alone.
    fn sleep(&self, _most: Duration) -> Outcome<bool> {
        Ok(false)
    }
}

type Task = Pin<Box<dyn Future<Output = ()>>>;

struct Inner {
    epoll: OwnedFd,
    timer: OwnedFd,
    tasks: RefCell<Vec<Option<Task>>>,
    free: RefCell<Vec<usize>>,
    ready: RefCell<VecDeque<usize>>,
    timers: RefCell<BinaryHeap<Reverse<(Instant, usize)>>>,
    /// Whose moment has come.
    due: RefCell<VecDeque<usize>>,
    sources: RefCell<Vec<Rc<dyn Source>>>,
    /// Sources that have something to send.
    dirty: RefCell<Vec<usize>>,
    /// Sources that may have more.
    again: RefCell<Vec<usize>>,
    running: Cell<usize>,
    live: Cell<usize>,
    failure: RefCell<Option<String>>,
    stop: Cell<bool>,
    /// Set by a signal.
    interrupted: RefCell<Option<Arc<AtomicBool>>>,
}

/// A handle; clones are the same reactor.
#[derive(Clone)]
pub struct Reactor(Rc<Inner>);

impl Reactor {
    pub fn new() -> Outcome<Reactor> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(|error| format!("epoll: {error}"))?;
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags).map_err(|error| format!("timerfd: {error}"))?;
        // At its edge: setting it anew is what clears it.
        let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
        epoll::add(&epoll, &timer, epoll::EventData::new_u64(TIMER), flags)
            .map_err(|error| format!("epoll: {error}"))?;
        Ok(Reactor(Rc::new(Inner {
            epoll,
            timer,
            tasks: RefCell::default(),
            free: RefCell::default(),
            ready: RefCell::default(),
            timers: RefCell::default(),
            due: RefCell::default(),
            sources: RefCell::default(),
            dirty: RefCell::default(),
            again: RefCell::default(),
            running: Cell::new(0),
            live: Cell::new(0),
            failure: RefCell::default(),
            stop: Cell::new(false),
            interrupted: RefCell::default(),
        })))
    }

    /// Stops when `flag` is set: what a signal does.
    pub fn stop_by(&self, flag: Arc<AtomicBool>) {
        *self.0.interrupted.borrow_mut() = Some(flag);
    }

    /// Registers `source`, whose news come by `descriptor`. Its index is what [`Reactor::touch`] takes.
    pub fn add(&self, source: Rc<dyn Source>, descriptor: impl AsFd) -> Outcome<usize> {
        let index = self.0.sources.borrow().len();
        self.0.sources.borrow_mut().push(source);
        self.watch(index, descriptor)?;
        Ok(index)
    }

    /// Watches another descriptor for the source: its old one is closed.
    pub fn watch(&self, index: usize, descriptor: impl AsFd) -> Outcome<()> {
        let flags = epoll::EventFlags::IN | epoll::EventFlags::OUT | epoll::EventFlags::ET;
        let data = epoll::EventData::new_u64(index as u64);
        epoll::add(&self.0.epoll, descriptor, data, flags).map_err(|error| format!("epoll: {error}"))
    }

    /// The source has something to send.
    pub fn touch(&self, source: usize) {
        self.0.dirty.borrow_mut().push(source);
    }

    /// Starts a program of the load.
    pub fn spawn(&self, future: impl Future<Output = ()> + 'static) {
        let free = self.0.free.borrow_mut().pop();
        let mut tasks = self.0.tasks.borrow_mut();
        let index = free.unwrap_or_else(|| {
            tasks.push(None);
            tasks.len() - 1
        });
        tasks[index] = Some(Box::pin(future));
        self.0.ready.borrow_mut().push_back(index);
        self.0.live.set(self.0.live.get() + 1);
    }

    /// Starts what goes on beside the load and keeps nobody waiting: it ends when the last program has.
    pub fn spawn_beside(&self, future: impl Future<Output = ()> + 'static) {
        self.spawn(async move {
            future.await;
            std::future::pending::<()>().await;
        });
        self.0.live.set(self.0.live.get() - 1);
    }

    /// The task that is being polled: what a future writes down to be woken.
    pub fn current(&self) -> usize {
        self.0.running.get()
    }

    pub fn wake(&self, task: usize) {
        self.0.ready.borrow_mut().push_back(task);
    }

    /// Ends the run with a reason; the first one counts.
    pub fn fail(&self, reason: String) {
        self.0.failure.borrow_mut().get_or_insert(reason);
        self.stop();
    }

    /// Between two pieces of long work: begins what is due meanwhile. The caller borrows nothing that others may want.
    pub fn give_way(&self) {
        let own = self.current();
        self.begin_due();
        self.0.running.set(own);
    }

    /// Whether programs should end.
    pub fn stopping(&self) -> bool {
        self.0.stop.get()
    }

    /// Asks the programs to end, and wakes those that sleep.
    pub fn stop(&self) {
        self.0.stop.set(true);
        let sleepers = std::mem::take(&mut *self.0.timers.borrow_mut());
        sleepers.into_iter().for_each(|Reverse((_, task))| self.wake(task));
    }

    pub fn sleep_until(&self, due: Instant) -> Sleep {
        Sleep { reactor: self.clone(), due, armed: false }
    }

    /// Runs until every task has ended, or one failed.
    pub fn run(&self) -> Outcome<()> {
        let mut events = Vec::with_capacity(64);
        self.0.stop.set(false);
        while self.0.live.get() > 0 && self.0.failure.borrow().is_none() {
            let interrupted = self.0.interrupted.borrow().as_ref().is_some_and(|flag| flag.load(Ordering::Relaxed));
            if interrupted {
                self.fail("stopped by a signal".to_owned());
            }
            self.poll_ready();
            self.flush();
            let more = [!self.0.ready.borrow().is_empty(), !self.0.again.borrow().is_empty()];
            let more = more[0] || more[1] || !self.0.dirty.borrow().is_empty();
            let wait = if more { Duration::ZERO } else { self.sleep_length(Instant::now()) };
            let mut ready = std::mem::take(&mut *self.0.again.borrow_mut());
            self.listen(wait, &mut events, &mut ready)?;
            for index in ready {
                let source = self.0.sources.borrow()[index].clone();
                if source.ready(self) {
                    self.0.again.borrow_mut().push(index);
                }
                self.begin_due();
            }
        }
        let failure = self.0.failure.borrow_mut().take();
        self.clear();
        failure.map_or(Ok(()), Err)
    }

    /// Sleeps at most so long, and adds to `ready` who has news.
    fn listen(&self, most: Duration, events: &mut Vec<epoll::Event>, ready: &mut Vec<usize>) -> Outcome<()> {
        let alone = match &self.0.sources.borrow()[..] {
            [source] => Some(source.clone()),
            _ => None,
        };
        if let Some(source) = alone
            && source.sleep(most)?
        {
            *ready = vec![0];
            return Ok(());
        }
        let wait = self.set_timer(most)?;
        match epoll::wait(&self.0.epoll, spare_capacity(events), Some(&wait)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(format!("epoll: {error}")),
        }
        for event in events.drain(..).filter(|event| event.data.u64() != TIMER) {
            let index = event.data.u64() as usize;
            if !ready.contains(&index) {
                ready.push(index);
            }
        }
        Ok(())
    }

    fn poll_ready(&self) {
        self.begin_due();
        // Only those that are ready now: who wakes himself must not keep replies waiting.
        let count = self.0.ready.borrow().len();
        for _ in 0..count {
            let Some(index) = self.0.ready.borrow_mut().pop_front() else { return };
            self.poll(index);
            self.begin_due();
        }
    }

    /// Polls those whose moment has come, and sends what they have to send.
    fn begin_due(&self) {
        self.fire(Instant::now());
        if self.0.due.borrow().is_empty() {
            return;
        }
        let due = std::mem::take(&mut *self.0.due.borrow_mut());
        due.into_iter().for_each(|index| self.poll(index));
        self.flush();
    }

    fn poll(&self, index: usize) {
        let Some(mut task) = self.0.tasks.borrow_mut().get_mut(index).and_then(Option::take) else { return };
        self.0.running.set(index);
        if task.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending() {
            self.0.tasks.borrow_mut()[index] = Some(task);
        } else {
            self.0.free.borrow_mut().push(index);
            self.0.live.set(self.0.live.get() - 1);
        }
    }

    fn flush(&self) {
        let dirty = std::mem::take(&mut *self.0.dirty.borrow_mut());
        for index in dirty {
            let source = self.0.sources.borrow()[index].clone();
            source.flush(self);
        }
    }

    fn fire(&self, now: Instant) {
        let mut timers = self.0.timers.borrow_mut();
        while let Some(Reverse((due, task))) = timers.peek().copied() {
            if due > now {
                return;
            }
            timers.pop();
            self.0.due.borrow_mut().push_back(task);
        }
    }

    fn sleep_length(&self, now: Instant) -> Duration {
        let next = self.0.timers.borrow().peek().map(|Reverse((due, _))| due.saturating_duration_since(now));
        next.map_or(SLEEP_MAX, |wait| if wait < LOOK { Duration::ZERO } else { (wait - LOOK).min(SLEEP_MAX) })
    }

    /// Has the timer end a sleep of that length; the timeout that epoll is given besides.
    fn set_timer(&self, wait: Duration) -> Outcome<Timespec> {
        let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
        if wait.is_zero() {
            return Ok(zero);
        }
        let value = Timespec { tv_sec: wait.as_secs() as i64, tv_nsec: i64::from(wait.subsec_nanos()) };
        timerfd_settime(&self.0.timer, TimerfdTimerFlags::empty(), &Itimerspec { it_interval: zero, it_value: value })
            .map_err(|error| format!("timerfd: {error}"))?;
        Ok(Timespec { tv_sec: 1, tv_nsec: 0 })
    }

    /// Forgets what a failed run left behind.
    fn clear(&self) {
        self.0.tasks.borrow_mut().clear();
        self.0.free.borrow_mut().clear();
        self.0.ready.borrow_mut().clear();
        self.0.timers.borrow_mut().clear();
        self.0.due.borrow_mut().clear();
        self.0.again.borrow_mut().clear();
        self.0.live.set(0);
    }
}

/// Ends when its moment has come.
pub struct Sleep {
    reactor: Reactor,
    due: Instant,
    armed: bool,
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, _: &mut Context) -> Poll<()> {
        if Instant::now() >= self.due || self.reactor.stopping() {
            return Poll::Ready(());
        }
        if !self.armed {
            self.armed = true;
            let task = self.reactor.current();
            self.reactor.0.timers.borrow_mut().push(Reverse((self.due, task)));
        }
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sleepers_wake_in_the_order_of_their_moments() {
        let reactor = Reactor::new().unwrap();
        let woken = Rc::new(RefCell::new(Vec::new()));
        let start = Instant::now();
        for millis in [9_u64, 1, 5] {
            let (reactor_of_task, woken) = (reactor.clone(), woken.clone());
            reactor.spawn(async move {
                reactor_of_task.sleep_until(start + Duration::from_millis(millis)).await;
                assert!(start.elapsed() >= Duration::from_millis(millis));
                woken.borrow_mut().push(millis);
            });
        }
        reactor.run().unwrap();
        assert_eq!(*woken.borrow(), [1, 5, 9]);
    }

    #[test]
    fn a_sleep_ends_within_a_fraction_of_a_millisecond() {
        let reactor = Reactor::new().unwrap();
        let late = Rc::new(RefCell::new(Vec::new()));
        let (reactor_of_task, inner) = (reactor.clone(), late.clone());
        reactor.spawn(async move {
            for _ in 0..200 {
                let due = Instant::now() + Duration::from_micros(1300);
                reactor_of_task.sleep_until(due).await;
                inner.borrow_mut().push(due.elapsed());
            }
        });
        reactor.run().unwrap();
        // The median: other work may take the core away now and then.
        late.borrow_mut().sort_unstable();
        assert!(late.borrow()[100] < Duration::from_micros(300), "{:?}", late.borrow()[100]);
    }

    #[test]
    fn what_is_due_begins_between_two_pieces_of_long_work() {
        let reactor = Reactor::new().unwrap();
        let order = Rc::new(RefCell::new(Vec::new()));
        let (sleeper, worker) = (reactor.clone(), reactor.clone());
        let (of_sleeper, of_worker) = (order.clone(), order.clone());
        let due = Instant::now() + Duration::from_millis(2);
        reactor.spawn(async move {
            sleeper.sleep_until(due).await;
            of_sleeper.borrow_mut().push("due");
        });
        reactor.spawn(async move {
            let own = worker.current();
            std::thread::sleep(Duration::from_millis(4));
            worker.give_way();
            assert_eq!(worker.current(), own, "what it waits for next wakes it and not the other");
            of_worker.borrow_mut().push("done");
        });
        reactor.run().unwrap();
        assert_eq!(*order.borrow(), ["due", "done"]);
    }

    #[test]
    fn what_goes_on_beside_keeps_nobody_waiting() {
        let reactor = Reactor::new().unwrap();
        let rounds = Rc::new(Cell::new(0));
        let (beside, load, counted) = (reactor.clone(), reactor.clone(), rounds.clone());
        reactor.spawn_beside(async move {
            loop {
                counted.set(counted.get() + 1);
                beside.sleep_until(Instant::now() + Duration::from_millis(2)).await;
            }
        });
        reactor.spawn(async move { load.sleep_until(Instant::now() + Duration::from_millis(20)).await });
        reactor.run().unwrap();
        assert!(rounds.get() > 2);
    }

    #[test]
    fn a_failure_ends_everything_with_its_reason() {
        let reactor = Reactor::new().unwrap();
        let inner = reactor.clone();
        reactor.spawn(async move { inner.fail("wrong bytes".to_owned()) });
        let sleeper = reactor.clone();
        reactor.spawn(async move { sleeper.sleep_until(Instant::now() + Duration::from_secs(60)).await });
        assert_eq!(reactor.run(), Err("wrong bytes".to_owned()));
        assert_eq!(reactor.run(), Ok(()), "and leaves nothing behind");
    }
}
