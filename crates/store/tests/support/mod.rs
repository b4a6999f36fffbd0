//! A world of its own for tests: the real clock, random numbers of a seed, tasks on the current runtime.
#![allow(dead_code, reason = "each test binary uses a part")]

pub mod server;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tarn_base::time::Time;
use tarn_base::world::{BoxFuture, Clock, Random, Spawn, World};

struct RealClock(Instant);

#[allow(clippy::disallowed_methods, reason = "tests make their own world")]
impl Clock for RealClock {
    fn now(&self) -> Time {
        Time::from_nanos(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as i64)
    }
    fn steady(&self) -> Duration {
        self.0.elapsed()
    }
    fn sleep(&self, span: Duration) -> BoxFuture<()> {
        Box::pin(tokio::time::sleep(span))
    }
}

/// SplitMix64.
struct SeededRandom(AtomicU64);

impl Random for SeededRandom {
    fn fill(&self, out: &mut [u8]) {
        for part in out.chunks_mut(8) {
            let mut z = self.0.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
            z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            part.copy_from_slice(&(z ^ (z >> 31)).to_le_bytes()[..part.len()]);
        }
    }
}

struct TokioSpawn;

#[allow(clippy::disallowed_methods, reason = "tests make their own world")]
impl Spawn for TokioSpawn {
    fn spawn(&self, _: &'static str, task: BoxFuture<()>) {
        tokio::spawn(task);
    }
}

#[allow(clippy::disallowed_methods, reason = "tests make their own world")]
pub fn world(seed: u64) -> World {
    World {
        clock: Arc::new(RealClock(Instant::now())),
        random: Arc::new(SeededRandom(AtomicU64::new(seed))),
        spawn: Arc::new(TokioSpawn),
    }
}
