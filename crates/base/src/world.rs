//! The world as it is handed down: time, chance and tasks.
//!
//! Only the program (`filer`) and the simulator make these. Everything else takes a [`World`], so one seed
//! decides everything in simulation.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use crate::time::Time;

pub type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send + 'static>>;

/// Two clocks: the wall's, which may jump, and a steady one.
pub trait Clock: Send + Sync {
    /// Now, as the wall clock has it; may go backwards.
    fn now(&self) -> Time;
    /// Like it, some milliseconds behind, for whoever asks very often.
    fn now_about(&self) -> Time {
        self.now()
    }
    /// Time since some fixed moment; never goes backwards.
    fn steady(&self) -> Duration;
    /// Like it, from another fixed moment and some milliseconds behind, for whoever asks very often.
    fn steady_about(&self) -> Duration {
        self.steady()
    }
    /// Completes once `span` has passed on the steady clock.
    fn sleep(&self, span: Duration) -> BoxFuture<()>;
}

/// A source of bytes that nobody can guess (in simulation: that the seed decides).
pub trait Random: Send + Sync {
    fn fill(&self, out: &mut [u8]);
}

/// Starts tasks on the background runtime.
pub trait Spawn: Send + Sync {
    /// Runs `task` to its end, apart from the caller. A task is named for whoever reads a trace.
    fn spawn(&self, name: &'static str, task: BoxFuture<()>);

    /// As [`Spawn::spawn`], for work on much data that no call waits for: it gives way to everything else.
    fn spawn_bulk(&self, name: &'static str, task: BoxFuture<()>) {
        self.spawn(name, task);
    }
}

/// Everything that a component may not make for itself.
#[derive(Clone)]
pub struct World {
    pub clock: Arc<dyn Clock>,
    pub random: Arc<dyn Random>,
    pub spawn: Arc<dyn Spawn>,
}

impl World {
    pub fn random_bytes<const N: usize>(&self) -> [u8; N] {
        let mut out = [0u8; N];
        self.random.fill(&mut out);
        out
    }

    pub fn random_u64(&self) -> u64 {
        u64::from_le_bytes(self.random_bytes())
    }
}

impl std::fmt::Debug for World {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("World")
    }
}
