//! A node without sockets: the real engine, SlateDB over sealed objects in memory, a log in memory.

use std::sync::Arc;

use parking_lot::Mutex;
use tarn_base::crypto::Key;
use tarn_base::world::{BoxFuture, Spawn, World};
use tarn_engine::{Config, Engine, MetaFactory, OpenError, OpenOptions, Parts, VolumeSpec, slate};
use tarn_meta::slate::SlateOptions;
use tarn_store::Store;
use tarn_store::memory::MemoryStore;
use tarn_store::sealed::SealedStore;
use tarn_wal::Wake;
use tarn_wal::faulty::FaultyDisk;
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use crate::chance::Chance;
use crate::world::{SimClock, SimRandom};

/// Small, so that there are many.
const SEGMENT_BYTES: u32 = 256 << 10;
pub const LOG_BYTES: u64 = 4 << 20;

/// Tasks that end together.
#[derive(Default)]
struct Tasks(Mutex<Vec<JoinHandle<()>>>);

impl Spawn for Tasks {
    fn spawn(&self, _name: &'static str, task: BoxFuture<()>) {
        self.0.lock().push(tokio::spawn(task));
    }
}

pub struct Node {
    pub clock: Arc<SimClock>,
    pub memory: Arc<MemoryStore>,
    pub disk: FaultyDisk,
    tasks: Arc<Tasks>,
    world: World,
    /// The shard's key, once a metadata store was opened.
    shard: Arc<Mutex<Option<Key>>>,
}

impl Node {
    /// In a runtime whose time is paused.
    pub fn new(disk: FaultyDisk, seed: u64, label: &str) -> Node {
        let clock = SimClock::new();
        let tasks = Arc::new(Tasks::default());
        let random = Arc::new(SimRandom::new(Chance::new(seed, label)));
        let world = World { clock: clock.clone(), random, spawn: tasks.clone() };
        let memory = Arc::new(MemoryStore::new(clock.clone()));
        Node { clock, memory, disk, tasks, world, shard: Arc::default() }
    }

    pub fn master() -> Key {
        Key::new([7; 32])
    }

    fn parts(&self) -> Parts {
        let options = SlateOptions { cache_bytes: 8 << 20, ..SlateOptions::default() };
        let (inner, shard) = (slate(self.world.clone(), options), self.shard.clone());
        let meta: MetaFactory = Arc::new(move |store, key| {
            *shard.lock() = Some(key.clone());
            inner(store, key)
        });
        let config = Config { segment_bytes: SEGMENT_BYTES, ..Config::default() };
        let (world, store) = (self.world.clone(), self.memory.clone());
        Parts { world, store, meta, log: self.disk.device(), master: Node::master(), config }
    }

    /// Opens, or creates with a first volume, and drives the log.
    pub async fn open(&self, create: Option<VolumeSpec>) -> Result<Arc<Engine>, OpenError> {
        let wanted = Arc::new(Notify::new());
        let notify = wanted.clone();
        let wake: Wake = Arc::new(move || notify.notify_one());
        let (engine, _) = match create {
            Some(first) => Engine::create(self.parts(), first, wake).await?,
            None => Engine::open(self.parts(), OpenOptions::new(wake)).await?,
        };
        let log = engine.log().clone();
        let drive = async move {
            loop {
                log.flush_now();
                wanted.notified().await;
            }
        };
        self.world.spawn.spawn("log", Box::pin(drive));
        Ok(engine)
    }

    /// Ends every task of the engine where it stands. What was flushed stays.
    pub async fn kill(&self) {
        let tasks = std::mem::take(&mut *self.tasks.0.lock());
        tasks.iter().for_each(|task| task.abort());
        for task in tasks {
            let _ = task.await;
        }
        self.disk.crash();
    }

    /// The objects of the metadata store as it sees them.
    pub fn sealed(&self) -> Result<Arc<dyn Store>, String> {
        let shard = self.shard.lock().clone().ok_or("no metadata store was opened")?;
        let key = shard.derive(b"", &[b"tarn metadata objects 1"]);
        Ok(Arc::new(SealedStore::new(self.memory.clone(), key, self.world.random.clone())))
    }
}
