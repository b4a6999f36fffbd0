//! The simulated world: virtual time, seeded chance, tasks that end when the machine does.
//!
//! - Time passes only when every task waits for it; nothing here asks the real clock.
//! - Tasks belong to a machine: [`Tasks::kill`] ends all of them where they stand, as a power cut does; [`Tasks::stop`] lets
//!   time pass without them, as a hypervisor does that moves a machine.
//! - Operations that the engine finishes in a task are watched, so that the tracker knows when each took effect.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use parking_lot::Mutex;
use tarn_base::time::Time;
use tarn_base::world::{BoxFuture, Clock, Random, Spawn};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::chance::Chance;

/// 2033-05-18, seconds: a time that is certainly not today's.
const START_SECONDS: i64 = 2_000_000_000;
/// The engine's name for the task that finishes an operation which had to fetch.
const OPERATION: &str = "operation";

/// Virtual time since the world began, and a wall clock that can be set.
#[derive(Debug)]
pub struct SimClock {
    start: Instant,
    offset_ms: AtomicI64,
}

impl SimClock {
    /// Inside a runtime whose time is paused.
    pub fn new() -> Arc<SimClock> {
        Arc::new(SimClock { start: Instant::now(), offset_ms: AtomicI64::new(0) })
    }

    /// Sets the wall clock, forward or back; the steady one does not notice.
    pub fn jump(&self, by_ms: i64) {
        self.offset_ms.fetch_add(by_ms, Ordering::Relaxed);
    }
}

impl Clock for SimClock {
    fn now(&self) -> Time {
        let passed = self.steady().as_nanos() as i64;
        let offset = self.offset_ms.load(Ordering::Relaxed) * 1_000_000;
        Time::from_nanos(START_SECONDS * 1_000_000_000 + passed + offset)
    }

    fn steady(&self) -> Duration {
        self.start.elapsed()
    }

    fn sleep(&self, span: Duration) -> BoxFuture<()> {
        Box::pin(tokio::time::sleep(span))
    }
}

/// Random bytes that the seed decides.
pub struct SimRandom(Mutex<Chance>);

impl SimRandom {
    pub fn new(chance: Chance) -> SimRandom {
        SimRandom(Mutex::new(chance))
    }
}

impl Random for SimRandom {
    fn fill(&self, out: &mut [u8]) {
        let mut chance = self.0.lock();
        for piece in out.chunks_mut(8) {
            piece.copy_from_slice(&chance.next().to_le_bytes()[..piece.len()]);
        }
    }
}

/// Looks at operations that the engine finishes in a task.
pub trait Watch: Send + Sync {
    /// `task` finishes the operation that is begun now.
    fn watch(self: Arc<Self>, task: BoxFuture<()>) -> BoxFuture<()>;
}

/// The tasks of one machine.
pub struct Tasks {
    running: Mutex<Vec<(&'static str, JoinHandle<()>)>>,
    stop: Arc<Stop>,
    watch: Arc<dyn Watch>,
}

/// Whether the machine stands still, and who goes on when it does not any more.
#[derive(Debug, Default)]
struct Stop(Mutex<Option<Vec<Waker>>>);

impl Stop {
    /// Whether it does; if so, `context` is woken when that is over.
    fn holds(&self, context: &Context<'_>) -> bool {
        let mut stopped = self.0.lock();
        let waiting = stopped.as_mut();
        waiting.map(|waiting| waiting.push(context.waker().clone())).is_some()
    }
}

impl Tasks {
    pub fn new(watch: Arc<dyn Watch>) -> Tasks {
        Tasks { running: Mutex::default(), stop: Arc::default(), watch }
    }

    /// None yet, and as much watched.
    pub fn of_another_machine(&self) -> Tasks {
        Tasks::new(self.watch.clone())
    }

    /// No task does anything until [`Tasks::go_on`].
    pub fn stop(&self) {
        self.stop.0.lock().get_or_insert_default();
    }

    pub fn go_on(&self) {
        let waiting = self.stop.0.lock().take();
        waiting.into_iter().flatten().for_each(Waker::wake);
    }

    /// Ends every task where it stands; gives the names of those that had panicked.
    pub async fn kill(&self) -> Vec<&'static str> {
        let mut panicked = Vec::new();
        loop {
            let tasks = std::mem::take(&mut *self.running.lock());
            if tasks.is_empty() {
                return panicked;
            }
            tasks.iter().for_each(|(_, task)| task.abort());
            for (name, task) in tasks {
                if task.await.is_err_and(|error| error.is_panic()) {
                    panicked.push(name);
                }
            }
        }
    }
}

impl Spawn for Tasks {
    fn spawn(&self, name: &'static str, task: BoxFuture<()>) {
        let mut task = if name == OPERATION { self.watch.clone().watch(task) } else { task };
        let stop = self.stop.clone();
        let task = std::future::poll_fn(move |context| match stop.holds(context) {
            true => Poll::Pending,
            false => task.as_mut().poll(context),
        });
        self.running.lock().push((name, tokio::spawn(task)));
    }
}
