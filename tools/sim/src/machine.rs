//! The machine on which the engine lives, and the bucket that outlives it.
//!
//! - A power cut ends every task where it stands, and the disk loses what it may.
//! - The bucket - objects and metadata - keeps what was done, whatever happens to the machine.

use std::sync::Arc;
use std::time::Duration;

use tarn_base::crypto::Key;
use tarn_base::world::World;
use tarn_engine::{Engine, MetaFactory, OpenOptions, Parts, VolumeSpec, slate};
use tarn_meta::mem::{MemDisk, MemOpener};
use tarn_meta::slate::SlateOptions;
use tarn_store::Store;
use tarn_store::fault::FaultStore;
use tarn_store::memory::MemoryStore;
use tarn_vfs::{FileSystem, VolumeSettings};
use tarn_wal::faulty::FaultyDisk;
use tarn_wal::{Log, LogDevice, Wake};
use tokio::sync::Notify;

use crate::chance::Chance;
use crate::chaos::Chaos;
use crate::check::nonces::{Nonces, NotedDevice, NotedStore};
use crate::late::LateStore;
use crate::plan::Plan;
use crate::tracker::Tracker;
use crate::world::{SimClock, SimRandom, Tasks};

/// Puts something around a part.
type Bend<T> = Arc<dyn Fn(Arc<T>) -> Arc<T>>;

/// Bends what the engine is made of, to plant bugs.
#[derive(Clone)]
pub struct Bends {
    pub device: Bend<dyn LogDevice>,
    pub file_system: Bend<dyn FileSystem>,
    /// Metadata in the real engine, over the same object store, instead of its model.
    pub slate: bool,
}

impl Default for Bends {
    /// Straight.
    fn default() -> Bends {
        Bends { device: Arc::new(|device| device), file_system: Arc::new(|file_system| file_system), slate: false }
    }
}

/// See the head of the file.
pub struct Machine {
    pub disk: FaultyDisk,
    pub tasks: Arc<Tasks>,
    pub memory: Arc<MemoryStore>,
    pub meta: MemDisk,
    world: World,
    config: tarn_engine::Config,
    store: Arc<dyn Store>,
    pub nonces: Arc<Nonces>,
    bends: Bends,
    log_bytes: u64,
    chance: Chance,
    flush_ms: u64,
    chaos: Arc<Chaos>,
}

impl Machine {
    /// How long checkpoints of the metadata keep objects that they may name: SlateDB's compactor holds some for a quarter
    /// of an hour. Three times that is less than an idle connection lives.
    pub fn checkpoints_live(&self) -> Duration {
        if self.bends.slate { Duration::from_secs(18 * 60) } else { Duration::ZERO }
    }

    pub fn new(plan: &Plan, clock: Arc<SimClock>, chaos: &Arc<Chaos>, tracker: &Arc<Tracker>, bends: Bends) -> Machine {
        let mut chance = Chance::new(plan.seed, "machine");
        let tasks = Arc::new(Tasks::new(tracker.clone()));
        let random = Arc::new(SimRandom::new(Chance::new(plan.seed, "random")));
        let world = World { clock: clock.clone(), random, spawn: tasks.clone() };
        let memory = Arc::new(MemoryStore::new(clock.clone()));
        let late = Arc::new(LateStore::new(memory.clone(), Chance::new(plan.seed, "late"), plan.store_ms));
        let nonces = Arc::new(Nonces::default());
        let store = Arc::new(FaultStore::new(late, clock, chaos.clone()));
        let store = Arc::new(NotedStore(store, nonces.clone()));
        let meta = MemDisk::new();
        meta.set_commit_hook(Some(chaos.commits()));
        let points = chaos.clone();
        let mut config = plan.config();
        config.crash_points = Some(Arc::new(move |name| points.crash_point(name)));
        Machine {
            disk: FaultyDisk::new(plan.log_bytes, chance.next()),
            tasks,
            memory,
            meta,
            world,
            config,
            store,
            nonces,
            bends,
            log_bytes: plan.log_bytes,
            chance,
            flush_ms: plan.flush_ms,
            chaos: chaos.clone(),
        }
    }

    pub fn world(&self) -> &World {
        &self.world
    }

    /// A blank disk: what follows happens on another machine. Gives the old one.
    pub fn replace_disk(&mut self) -> FaultyDisk {
        let blank = FaultyDisk::new(self.log_bytes, self.chance.next());
        std::mem::replace(&mut self.disk, blank)
    }

    /// Another machine with the same bucket and a blank disk, beside this one.
    pub fn rival(&mut self) -> Machine {
        let tasks = Arc::new(self.tasks.of_another_machine());
        Machine {
            disk: FaultyDisk::new(self.log_bytes, self.chance.next()),
            world: World { spawn: tasks.clone(), ..self.world.clone() },
            tasks,
            memory: self.memory.clone(),
            meta: self.meta.clone(),
            config: self.config.clone(),
            chaos: self.chaos.clone(),
            store: self.store.clone(),
            nonces: self.nonces.clone(),
            bends: self.bends.clone(),
            log_bytes: self.log_bytes,
            chance: Chance::new(self.chance.next(), "rival"),
            flush_ms: self.flush_ms,
        }
    }

    fn parts(&self) -> Parts {
        let disk = self.meta.clone();
        let meta: MetaFactory = match self.bends.slate {
            true => slate(self.world.clone(), SlateOptions { cache_bytes: 1 << 20, ..SlateOptions::default() }),
            false => Arc::new(move |_, _| Arc::new(MemOpener::new(disk.clone()))),
        };
        Parts {
            world: self.world.clone(),
            store: self.store.clone(),
            meta,
            log: (self.bends.device)(Arc::new(NotedDevice(self.disk.device(), self.nonces.clone()))),
            master: master(),
            config: self.config.clone(),
        }
    }

    /// Creates a store, or opens the one that is there, and drives its log.
    pub async fn open(
        &mut self,
        create: Option<VolumeSpec>,
        take: bool,
    ) -> Result<(Arc<Engine>, tarn_engine::RecoveryReport), tarn_engine::OpenError> {
        let wanted = Arc::new(Notify::new());
        let notify = wanted.clone();
        let wake: Wake = Arc::new(move || notify.notify_one());
        let opened = match create {
            Some(first) => Engine::create(self.parts(), first, wake).await,
            None => Engine::open(self.parts(), OpenOptions { take, ..OpenOptions::new(wake) }).await,
        };
        let (engine, report) = opened?;
        let chance = Chance::new(self.chance.next(), "flush");
        let drive = drive(engine.log().clone(), wanted, chance, self.flush_ms, self.chaos.clone());
        self.world.spawn.spawn("log", Box::pin(drive));
        Ok((engine, report))
    }

    /// The engine as clients see it.
    pub fn file_system(&self, engine: &Arc<Engine>) -> Arc<dyn FileSystem> {
        (self.bends.file_system)(engine.clone())
    }

    /// The power goes. Gives the names of tasks that had panicked before.
    pub async fn cut_power(&self) -> Vec<&'static str> {
        let panicked = self.tasks.kill().await;
        self.disk.crash();
        panicked
    }
}

/// The master key of the world.
pub fn master() -> Key {
    Key::new([7; 32])
}

/// A first volume, or a further one.
pub fn volume(number: usize, settings: &VolumeSettings) -> VolumeSpec {
    VolumeSpec { name: format!("vol{number}"), settings: settings.clone(), uid: 0, gid: 0, mode: 0o755 }
}

/// Flushes the log when it is wanted, and some time after.
async fn drive(log: Arc<Log>, wanted: Arc<Notify>, mut chance: Chance, flush_ms: u64, chaos: Arc<Chaos>) {
    loop {
        while let Some(mut job) = log.begin_flush() {
            let result = job.run();
            if chance.permille(chaos.slow_flushes()) {
                chaos.coverage.hit("disk faults", "a slow flush");
                pause(&mut chance, 3_000).await;
            }
            pause(&mut chance, flush_ms / 2).await;
            log.finish_flush(job, result);
        }
        wanted.notified().await;
        pause(&mut chance, flush_ms).await;
    }
}

async fn pause(chance: &mut Chance, longest_ms: u64) {
    let span = chance.range(0, longest_ms);
    if span > 0 {
        tokio::time::sleep(Duration::from_millis(span)).await;
    }
}
