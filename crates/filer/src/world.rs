//! The real world: the machine's clocks, the kernel's randomness, tasks on the background runtime.
//!
//! - This is the only place of the program where they come from; everything else is handed a [`World`].
//! - A sleep belongs to the background runtime's timer whichever thread awaits it.

use std::sync::Arc;
use std::time::Duration;

use rustix::time::{ClockId, Timespec, clock_gettime};
use tarn_base::time::Time;
use tarn_base::world::{BoxFuture, Clock, Random, Spawn, World};
use tokio::runtime::Handle;

/// The world as seen from a program whose background runtime is `background`; `bulk` runs what gives way to
/// everything else.
pub fn real(background: Handle, bulk: Handle) -> World {
    World {
        clock: Arc::new(MachineClock {
            start: clock_gettime(ClockId::Monotonic).tv_sec,
            background: background.clone(),
        }),
        random: Arc::new(KernelRandom),
        spawn: Arc::new(BackgroundSpawn { background, bulk }),
    }
}

fn wall(now: Timespec) -> Time {
    // A wall clock before 1970 is wrong anyway; the epoch is the nearest honest answer.
    if now.tv_sec < 0 { Time::EPOCH } else { Time { seconds: now.tv_sec, nanos: now.tv_nsec as u32 } }
}

struct MachineClock {
    /// The second in which it was made, as the kernel's steady clock has it.
    start: i64,
    background: Handle,
}

impl Clock for MachineClock {
    fn now(&self) -> Time {
        wall(clock_gettime(ClockId::Realtime))
    }

    fn now_about(&self) -> Time {
        wall(clock_gettime(ClockId::RealtimeCoarse))
    }

    fn steady(&self) -> Duration {
        let now = clock_gettime(ClockId::Monotonic);
        Duration::new((now.tv_sec - self.start) as u64, now.tv_nsec as u32)
    }

    fn steady_about(&self) -> Duration {
        let now = clock_gettime(ClockId::MonotonicCoarse);
        Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
    }

    fn sleep(&self, span: Duration) -> BoxFuture<()> {
        let _inside = self.background.enter();
        Box::pin(tokio::time::sleep(span))
    }
}

/// `getrandom`, which blocks only before the machine's pool is first filled.
pub struct KernelRandom;

impl Random for KernelRandom {
    fn fill(&self, out: &mut [u8]) {
        let mut rest = out;
        while !rest.is_empty() {
            match rustix::rand::getrandom(&mut *rest, rustix::rand::GetRandomFlags::empty()) {
                Ok(count) => rest = &mut rest[count..],
                Err(rustix::io::Errno::INTR) => {}
                // Nothing that Tarn seals would be safe without it.
                Err(error) => panic!("the kernel gives no random bytes: {error}"),
            }
        }
    }
}

struct BackgroundSpawn {
    background: Handle,
    bulk: Handle,
}

impl Spawn for BackgroundSpawn {
    fn spawn(&self, name: &'static str, task: BoxFuture<()>) {
        run(&self.background, name, task);
    }

    fn spawn_bulk(&self, name: &'static str, task: BoxFuture<()>) {
        run(&self.bulk, name, task);
    }
}

fn run(runtime: &Handle, name: &'static str, task: BoxFuture<()>) {
    let task = runtime.spawn(task);
    // A panic in a background task is a bug of ours: it is said aloud, and the service goes on.
    runtime.spawn(async move {
        if let Err(error) = task.await
            && error.is_panic()
        {
            tracing::error!(task = name, "a background task failed: {error}");
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_bytes_differ_and_clocks_run() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let world = real(runtime.handle().clone(), runtime.handle().clone());
        assert_ne!(world.random_bytes::<32>(), world.random_bytes::<32>());
        let before = world.clock.steady();
        runtime.block_on(world.clock.sleep(Duration::from_millis(2)));
        assert!(world.clock.steady() >= before + Duration::from_millis(2));
        assert!(world.clock.now().seconds > 1_600_000_000);
    }
}
