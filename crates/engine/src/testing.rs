//! A whole engine in a test: memory for a store, for metadata and for the log, a clock that is set by hand.
//!
//! - A [`Rig`] outlives its engines, as a machine and a bucket outlive a process.
//! - [`Rig::crash`] ends every task of the engine where it stands; what was not flushed to the log is gone.
//! - The log is flushed by a task, as soon as somebody waits for it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tarn_base::crypto::Key;
use tarn_base::time::Time;
use tarn_base::world::{BoxFuture, Clock, Random, Spawn, World};
use tarn_meta::mem::{MemDisk, MemOpener};
use tarn_store::Store;
use tarn_store::memory::MemoryStore;
use tarn_vfs::VolumeSettings;
use tarn_wal::{LogDevice, MemDevice};
use tokio::sync::{Notify, oneshot};

use crate::admin::VolumeSpec;
use crate::config::Config;
use crate::engine::Engine;
use crate::error::OpenError;
use crate::open::{MetaFactory, OpenOptions, Parts, RecoveryReport};

/// Whom to wake, by when and in which order they came.
type Sleepers = BTreeMap<(Duration, u64), oneshot::Sender<()>>;

/// A clock that stands still until it is moved.
#[derive(Default)]
pub struct ManualClock {
    state: Mutex<(Duration, Sleepers)>,
    sleepers: AtomicU64,
}

impl ManualClock {
    /// Moves the clock and wakes whoever slept until then.
    pub fn advance(&self, span: Duration) {
        let mut state = self.state.lock();
        state.0 += span;
        let now = state.0;
        while let Some(entry) = state.1.first_entry()
            && entry.key().0 <= now
        {
            let _ = entry.remove().send(());
        }
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Time {
        let steady = self.steady();
        Time { seconds: 1_700_000_000 + steady.as_secs() as i64, nanos: steady.subsec_nanos() }
    }

    fn steady(&self) -> Duration {
        self.state.lock().0
    }

    fn sleep(&self, span: Duration) -> BoxFuture<()> {
        let (sender, receiver) = oneshot::channel();
        let mut state = self.state.lock();
        let until = state.0.saturating_add(span);
        if span.is_zero() {
            return Box::pin(std::future::ready(()));
        }
        state.1.insert((until, self.sleepers.fetch_add(1, Ordering::Relaxed)), sender);
        Box::pin(async move {
            let _ = receiver.await;
        })
    }
}

/// Chance that a seed decides.
pub struct SeededRandom(Mutex<u64>);

impl Random for SeededRandom {
    fn fill(&self, out: &mut [u8]) {
        let mut state = self.0.lock();
        for byte in out {
            *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            *byte = (*state >> 56) as u8;
        }
    }
}

/// Tasks that can be ended all at once.
#[derive(Default)]
pub struct Tasks(Mutex<Vec<tokio::task::AbortHandle>>);

impl Spawn for Tasks {
    fn spawn(&self, _name: &'static str, task: BoxFuture<()>) {
        self.0.lock().push(tokio::spawn(task).abort_handle());
    }
}

impl Tasks {
    fn abort(&self) {
        self.0.lock().drain(..).for_each(|task| task.abort());
    }
}

/// A machine with a log device, a bucket and a clock.
#[derive(Clone)]
pub struct Rig {
    pub clock: Arc<ManualClock>,
    pub world: World,
    pub tasks: Arc<Tasks>,
    pub store: Arc<dyn Store>,
    pub memory: Arc<MemoryStore>,
    pub disk: MemDisk,
    pub device: Arc<dyn LogDevice>,
    pub master: Key,
    pub config: Config,
}

impl Default for Rig {
    fn default() -> Rig {
        Rig::new()
    }
}

impl Rig {
    /// A new machine, an empty bucket, a blank log of 16 MiB.
    pub fn new() -> Rig {
        let clock = Arc::new(ManualClock::default());
        let tasks = Arc::new(Tasks::default());
        let random = Arc::new(SeededRandom(Mutex::new(1)));
        let world = World { clock: clock.clone(), random, spawn: tasks.clone() };
        let memory = Arc::new(MemoryStore::new(clock.clone()));
        let device = Arc::new(MemDevice::new(16 << 20));
        let config = Config { segment_bytes: 256 << 10, ..Config::default() };
        let master = Key::new([7; 32]);
        Rig { clock, world, tasks, store: memory.clone(), memory, disk: MemDisk::new(), device, master, config }
    }

    /// Another machine over the same bucket: its own tasks, a blank log.
    pub fn elsewhere(&self) -> Rig {
        let tasks = Arc::new(Tasks::default());
        let world = World { spawn: tasks.clone(), ..self.world.clone() };
        Rig { world, tasks, device: Arc::new(MemDevice::new(16 << 20)), ..self.clone() }
    }

    pub fn parts(&self) -> Parts {
        let disk = self.disk.clone();
        let meta: MetaFactory = Arc::new(move |_, _| Arc::new(MemOpener::new(disk.clone())));
        Parts {
            world: self.world.clone(),
            store: self.store.clone(),
            meta,
            log: self.device.clone(),
            master: self.master.clone(),
            config: self.config.clone(),
        }
    }

    /// A volume `vol` whose root belongs to the superuser.
    pub fn first_volume() -> VolumeSpec {
        VolumeSpec { name: "vol".into(), settings: VolumeSettings::default(), uid: 0, gid: 0, mode: 0o755 }
    }

    /// Creates the store and opens it.
    pub async fn create(&self) -> Arc<Engine> {
        self.try_create().await.expect("a new store").0
    }

    pub async fn try_create(&self) -> Result<(Arc<Engine>, RecoveryReport), OpenError> {
        let wake = Arc::new(Notify::new());
        let made = Engine::create(self.parts(), Rig::first_volume(), hook(&wake)).await;
        made.inspect(|(engine, _)| self.drive(engine, wake))
    }

    pub async fn open(&self) -> (Arc<Engine>, RecoveryReport) {
        self.try_open(false, false).await.expect("a store that opens")
    }

    pub async fn try_open(&self, take: bool, accept_loss: bool) -> Result<(Arc<Engine>, RecoveryReport), OpenError> {
        let wake = Arc::new(Notify::new());
        let options = OpenOptions { take, accept_loss, wake: hook(&wake) };
        Engine::open(self.parts(), options).await.inspect(|(engine, _)| self.drive(engine, wake))
    }

    /// Flushes the log of `engine` whenever `wake` says so.
    pub fn drive(&self, engine: &Engine, wake: Arc<Notify>) {
        let log = engine.log().clone();
        self.world.spawn.spawn(
            "log",
            Box::pin(async move {
                loop {
                    log.flush_now();
                    wake.notified().await;
                }
            }),
        );
    }

    /// Ends every task of this machine where it stands.
    pub fn crash(&self) {
        self.tasks.abort();
    }

    /// Lets tasks run until none has anything to do, then moves the clock.
    pub async fn pass(&self, span: Duration) {
        settle().await;
        self.clock.advance(span);
        settle().await;
    }
}

fn hook(wake: &Arc<Notify>) -> tarn_wal::Wake {
    let wake = wake.clone();
    Arc::new(move || wake.notify_one())
}

/// Lets other tasks of a single-threaded runtime run.
pub async fn settle() {
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
}
