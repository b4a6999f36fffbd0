//! Interleavings that one thread does not meet by itself: moments between a fetch, an exchange, a trim and a run; and
//! several serving threads over everything that goes on in the background.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use tarn_base::ids::Position;
use tarn_vfs::{
    Answer, Caller, ClientId, CreateMode, Effect, Errno, FileSystem, ListRequest, Node, OnceToken, ReadReply, Reply,
    SetAttr, Stability, VolumeSettings,
};
use tarn_wal::{LogError, MemDevice};

use super::opening::{make, read, root, write};
use super::room::while_time_passes;
use crate::engine::Engine;
use crate::entry::{DataChange, Payload};
use crate::key::Key;
use crate::ops::read::Read;
use crate::run::Operation;
use crate::stripes::LockSet;
use crate::testing::Rig;
use crate::tx::{Need, Pins, Step, Tx};

/// Runs a read over what was pinned and is in RAM; fetches into the same pins until it comes to its end.
async fn read_pinned(engine: &Engine, pins: &mut Pins, node: Node, count: u32) -> Result<Vec<u8>, Errno> {
    let core = &engine.core;
    let operation = Read { caller: Caller::root(), node, offset: 0, count };
    let locks = LockSet::exclusive(node.volume, node.ino.0);
    loop {
        let stack = core.stack.load();
        if !pins.fits(&stack) {
            *pins = Pins::default();
            continue;
        }
        let mut tx = Tx::new(core, stack, pins, &locks);
        let outcome = operation.run(&mut tx).map(|reply: ReadReply| reply.data.concat());
        let need = tx.into_need();
        match outcome {
            Ok(data) => return Ok(data),
            Err(_) => core.fetch(pins, &need).await?,
        }
    }
}

/// What an operation pinned before a checkpoint says nothing of what that has moved to the store.
#[tokio::test]
async fn a_file_made_after_the_pinned_moment_is_read_from_the_store_once_it_is_there() {
    for caches in [0, 64 << 20] {
        let mut rig = Rig::new();
        rig.config.key_cache_bytes = caches;
        rig.config.record_cache_bytes = caches;
        let engine = rig.create().await;
        let node = make(&engine, "file").await;
        write(&engine, node, 0, &[7; 100_000]).await;
        let mut pins = Pins { stack: Some(engine.core.stack.load()), ..Pins::default() };
        engine.checkpoint().await.unwrap();
        assert!(read_pinned(&engine, &mut pins, node, 100_000).await.unwrap() == [7; 100_000]);
    }
}

/// Removes a record's pointer and writes the record again, as a cut's background work and a write after it do.
struct Replace(Node);

impl Operation for Replace {
    type Out = ();

    fn locks(&self) -> LockSet {
        LockSet::exclusive(self.0.volume, self.0.ino.0)
    }

    fn run(&self, tx: &mut Tx<'_>) -> Step<()> {
        let Node { volume, ino, .. } = self.0;
        tx.remove(Key::pointer(volume, ino, 0));
        let payload = Payload::Bytes(Bytes::from_static(b"again"));
        tx.write(DataChange { key: (volume, ino, 0), generation: 0, new: false, start: 0, payload });
        Ok(())
    }
}

#[tokio::test]
async fn a_pointer_removed_before_the_pinned_moment_is_not_missed_after_it_was_made_again() {
    for caches in [0, 64 << 20] {
        let mut rig = Rig::new();
        rig.config.key_cache_bytes = caches;
        rig.config.record_cache_bytes = caches;
        let engine = rig.create().await;
        let node = make(&engine, "file").await;
        write(&engine, node, 0, b"first").await;
        engine.checkpoint().await.unwrap();
        engine.core.execute(Replace(node)).await.unwrap();
        let mut pins = Pins { stack: Some(engine.core.stack.load()), ..Pins::default() };
        engine.checkpoint().await.unwrap();
        assert_eq!(read_pinned(&engine, &mut pins, node, 100).await.unwrap(), b"again");
    }
}

/// A run finds data that is only in the log; before it is fetched a checkpoint has stored it and trimmed the log.
#[tokio::test]
async fn data_trimmed_between_a_run_and_its_fetch_is_read_from_the_store() {
    let mut rig = Rig::new();
    rig.config.overlay_bytes = 0;
    let engine = rig.create().await;
    let node = make(&engine, "file").await;
    write(&engine, node, 0, b"a").await;
    write(&engine, node, 0, b"content").await;
    let core = &engine.core;
    let operation = Read { caller: Caller::root(), node, offset: 0, count: 100 };
    let locks = LockSet::exclusive(node.volume, node.ino.0);
    let mut pins = Pins::default();
    let need: Need = {
        let mut tx = Tx::new(core, core.stack.load(), &pins, &locks);
        assert!(operation.run(&mut tx).is_err());
        tx.into_need()
    };
    assert!(!need.logged.is_empty());
    engine.checkpoint().await.unwrap();
    assert!(core.log.read(need.logged[0]).is_err(), "trimmed");
    core.fetch(&mut pins, &need).await.unwrap();
    assert_eq!(read_pinned(&engine, &mut pins, node, 100).await.unwrap(), b"content");
}

/// A commit of what an earlier opening wrote needs nothing of the log, not even one that is new.
#[tokio::test]
async fn what_an_earlier_opening_wrote_is_durable() {
    let rig = Rig::new();
    let engine = rig.create().await;
    let node = make(&engine, "file").await;
    write(&engine, node, 0, b"content").await;
    engine.close().await.unwrap();
    rig.crash();
    let engine = rig.elsewhere().open().await.0;
    let done = engine.commit(&Caller::root(), node).await.unwrap();
    engine.durable(done.position).await.unwrap();
    assert!(engine.core.health.read_only.read().is_none());
}

/// What waits for the device holds writers up, and neither generations nor the image of session state.
#[tokio::test]
async fn while_a_checkpoint_is_shown_what_it_changes_is_fetched_past_the_cache() {
    let rig = Rig::new();
    let engine = rig.create().await;
    let (node, other) = (make(&engine, "file").await, make(&engine, "other").await);
    write(&engine, node, 0, b"old").await;
    engine.checkpoint().await.unwrap();
    write(&engine, node, 0, b"new").await;
    let keys = [Key::inode(node.volume, node.ino), Key::pointer(node.volume, node.ino, 0)];
    let unchanged = Key::inode(other.volume, other.ino);
    let cached = |key: &Key| engine.core.caches.keys.peek(key).is_some();
    let fetch = async || {
        engine.core.caches.keys.clear();
        for key in keys.into_iter().chain([unchanged]) {
            let need = Need { keys: [key].into(), ..Need::default() };
            engine.core.fetch(&mut Pins::default(), &need).await.unwrap();
        }
    };
    let showing = engine.core.stack.show();
    fetch().await;
    assert!(!keys.iter().any(cached) && cached(&unchanged));
    showing.exchange(0, engine.core.stack.load().view.clone());
    fetch().await;
    assert!(keys.iter().all(cached));
    engine.checkpoint().await.unwrap();
    assert_eq!(read(&engine, node, 0, 3).await, b"new");
}

#[tokio::test]
async fn a_slow_log_device_stops_no_closing() {
    let mut rig = Rig::new();
    rig.device = Arc::new(MemDevice::new(256 << 20));
    let engine = rig.create().await;
    let node = make(&engine, "file").await;
    let data = Bytes::from(vec![1; 1 << 20]);
    let waiting =
        (0..100).find_map(|_| match engine.write(&Caller::root(), node, 0, data.clone(), Stability::Unstable) {
            Answer::Ready(_) => None,
            later => Some(later),
        });
    let waiting = waiting.expect("more than may wait in memory");
    assert!(matches!(engine.core.log.append_with(data.len(), |_, _| ()), Err(LogError::Busy)));
    for client in 0..40 {
        for number in 0..1024 {
            let token = OnceToken { client: ClientId(client), number, digest: 0 };
            engine.core.once.remember(&token, Effect::default(), Position::ZERO);
        }
    }
    assert!(engine.core.close_generation().unwrap().is_some());
    engine.core.append_session_image(usize::MAX).unwrap();
    let waiting = tokio::spawn(waiting);
    for _ in 0..5 {
        rig.pass(Duration::from_millis(20)).await;
    }
    waiting.await.unwrap().unwrap();
    engine.checkpoint().await.unwrap();
    assert!(engine.core.health.read_only.read().is_none());
}

// --- several serving threads ---

/// A generator that a seed decides.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }
}

/// Waits for an answer on a thread of its own; asks again while it is told to.
fn patiently<T: Unpin>(mut ask: impl FnMut() -> Answer<T>) -> Reply<T> {
    loop {
        match futures::executor::block_on(ask()) {
            Err(done) if done.value.errno == Errno::TryLater => std::thread::yield_now(),
            reply => return reply,
        }
    }
}

/// One client, alone with its files, in directories that it shares with others.
struct Client {
    engine: Arc<Engine>,
    number: u64,
    dirs: Vec<Node>,
    dice: Dice,
    /// Directory, name, node, content.
    files: BTreeMap<u64, (usize, Node, Vec<u8>)>,
    next: u64,
}

const FILE_MAX: u64 = 120_000;

impl Client {
    fn name(&self, file: u64) -> String {
        format!("client{}-{file}", self.number)
    }

    fn durable(&self, position: Position) {
        futures::executor::block_on(self.engine.durable(position)).expect("a log that works");
    }

    fn pick(&mut self) -> Option<u64> {
        let nth = self.dice.roll(self.files.len().max(1) as u64) as usize;
        self.files.keys().nth(nth).copied()
    }

    fn step(&mut self) {
        match self.dice.roll(16) {
            0 | 1 if self.files.len() < 12 => self.create(),
            2..=6 => self.write(),
            7 | 8 => self.truncate(),
            9..=12 => self.check(),
            13 => self.rename(),
            14 if self.files.len() > 6 => self.remove(),
            15 => self.list(),
            _ => self.write(),
        }
    }

    fn create(&mut self) {
        let dir = self.dice.roll(self.dirs.len() as u64) as usize;
        let (file, caller) = (self.next, Caller::root());
        self.next += 1;
        let name = self.name(file);
        let done = patiently(|| {
            self.engine.create(&caller, self.dirs[dir], name.as_bytes(), CreateMode::Guarded, SetAttr::default())
        });
        let done = done.expect("a new file");
        self.durable(done.position);
        self.files.insert(file, (dir, done.value.attr.expect("attributes").node, Vec::new()));
    }

    fn write(&mut self) {
        let Some(file) = self.pick() else { return };
        let offset = self.dice.roll(FILE_MAX);
        let len = if self.dice.roll(3) == 0 { self.dice.roll(40_000) } else { self.dice.roll(6000) } + 1;
        let byte = self.dice.roll(255) as u8 + 1;
        let stability = if self.dice.roll(2) == 0 { Stability::File } else { Stability::Unstable };
        let data = Bytes::from(vec![byte; len as usize]);
        let (_, node, _) = self.files[&file];
        let done = patiently(|| self.engine.write(&Caller::root(), node, offset, data.clone(), stability));
        let done = done.expect("a write");
        if stability == Stability::File {
            self.durable(done.position);
        }
        let (_, _, content) = self.files.get_mut(&file).expect("picked");
        let end = (offset + len) as usize;
        content.resize(content.len().max(end), 0);
        content[offset as usize..end].fill(byte);
    }

    fn truncate(&mut self) {
        let Some(file) = self.pick() else { return };
        let size = if self.dice.roll(4) == 0 { 0 } else { self.dice.roll(FILE_MAX) };
        let (_, node, _) = self.files[&file];
        let set = SetAttr { size: Some(size), ..SetAttr::default() };
        patiently(|| self.engine.setattr(&Caller::root(), node, set)).expect("a new size");
        self.files.get_mut(&file).expect("picked").2.resize(size as usize, 0);
    }

    fn check(&mut self) {
        let Some(file) = self.pick() else { return };
        self.check_file(file);
    }

    fn check_file(&self, file: u64) {
        let (_, node, content) = &self.files[&file];
        let done = patiently(|| self.engine.read(&Caller::root(), *node, 0, 1 << 20)).expect("a read");
        let found = done.value.data.concat();
        let differs = found.iter().zip(content).position(|(found, expected)| found != expected);
        assert!(
            found.len() == content.len() && differs.is_none(),
            "{}: {} bytes of {}, differs at {differs:?}",
            self.name(file),
            found.len(),
            content.len()
        );
    }

    fn rename(&mut self) {
        let Some(file) = self.pick() else { return };
        let to = self.dice.roll(self.dirs.len() as u64) as usize;
        let over = self.pick().filter(|over| *over != file && self.dice.roll(2) == 0);
        let (from, node, content) = self.files[&file].clone();
        let (target, to) = match over {
            Some(over) => (over, self.files[&over].0),
            None => (self.next, to),
        };
        self.next += u64::from(over.is_none());
        let (old, new) = (self.name(file), self.name(target));
        let done = patiently(|| {
            self.engine.rename(&Caller::root(), self.dirs[from], old.as_bytes(), self.dirs[to], new.as_bytes())
        });
        done.expect("a new name");
        self.files.remove(&file);
        self.files.insert(target, (to, node, content));
    }

    fn remove(&mut self) {
        let Some(file) = self.pick() else { return };
        let (dir, _, _) = self.files[&file];
        let name = self.name(file);
        patiently(|| self.engine.remove(&Caller::root(), self.dirs[dir], name.as_bytes())).expect("a removal");
        self.files.remove(&file);
    }

    /// Every own file of a directory, and no other, is listed once, page by page.
    fn list(&mut self) {
        let dir = self.dice.roll(self.dirs.len() as u64) as usize;
        let mine = format!("client{}-", self.number);
        let (mut after, mut found) = (0, Vec::new());
        loop {
            let request = ListRequest { after, bytes_max: 600, entries_max: 10, entry_overhead: 24, attrs: true };
            let page = patiently(|| self.engine.list(&Caller::root(), self.dirs[dir], request)).expect("a page").value;
            after = page.entries.last().map_or(after, |entry| entry.cookie);
            found.extend(page.entries.into_iter().map(|entry| String::from_utf8(entry.name.to_vec()).expect("ASCII")));
            if page.eof {
                break;
            }
        }
        found.retain(|name| name.starts_with(&mine));
        found.sort();
        let here = self.files.iter().filter(|(_, held)| held.0 == dir);
        let mut expected: Vec<String> = here.map(|(file, _)| self.name(*file)).collect();
        expected.sort();
        assert_eq!(found, expected);
    }
}

async fn storm(seed: u64, rig: Rig, steps: usize) {
    let engine = rig.create().await;
    let settings = VolumeSettings { record_size: 4096, ..VolumeSettings::default() };
    engine.set_volume("vol", settings).await.unwrap();
    let mut dirs = vec![root(&engine)];
    for name in ["one", "two"] {
        let made = engine.mkdir(&Caller::root(), root(&engine), name.as_bytes(), SetAttr::default()).await.unwrap();
        dirs.push(made.value.attr.unwrap().node);
    }
    let running = Arc::new(AtomicUsize::new(3));
    let handle = tokio::runtime::Handle::current();
    let threads: Vec<_> = (0..3)
        .map(|number| {
            let (engine, dirs, running, handle) = (engine.clone(), dirs.clone(), running.clone(), handle.clone());
            let dice = Dice(seed * 1000 + number);
            std::thread::spawn(move || {
                let _entered = handle.enter();
                let mut client = Client { engine, number, dirs, dice, files: BTreeMap::new(), next: 0 };
                let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                    (0..steps).for_each(|_| client.step());
                }));
                running.fetch_sub(1, Ordering::Relaxed);
                outcome.map(|()| client)
            })
        })
        .collect();
    let mut turns = 0u64;
    while running.load(Ordering::Relaxed) > 0 {
        rig.clock.advance(Duration::from_millis(1));
        tokio::task::yield_now().await;
        turns += 1;
        if turns.is_multiple_of(200) {
            let engine = engine.clone();
            while_time_passes(&rig, async move { engine.checkpoint().await }).await.expect("a checkpoint");
        }
        if turns.is_multiple_of(1000) {
            // It waits for the checkpoint that empties a log which fills.
            let engine = engine.clone();
            while_time_passes(&rig, async move { engine.reclaim_now().await }).await.expect("a pass");
        }
    }
    let clients: Vec<Client> = threads.into_iter().map(|thread| thread.join().unwrap().expect("no failure")).collect();
    assert!(engine.core.health.damage.lock().is_empty(), "{:?}", engine.core.health.damage.lock());
    let checking: Vec<_> = clients.iter().flat_map(|client| client.files.values()).collect();
    for (_, node, content) in &checking {
        assert!(read(&engine, *node, 0, 1 << 20).await == *content);
    }
    let report = engine.fsck(true, |_| ()).await.unwrap();
    assert!(report.is_clean(), "{report:#?}");
    rig.crash();
    let (engine, _) = rig.open().await;
    for (_, node, content) in &checking {
        assert!(read(&engine, *node, 0, 1 << 20).await == *content);
    }
    engine.checkpoint().await.unwrap();
    let report = engine.fsck(true, |_| ()).await.unwrap();
    assert!(report.is_clean(), "{report:#?}");
}

fn storm_steps() -> usize {
    std::env::var("TARN_STORM_STEPS").ok().and_then(|steps| steps.parse().ok()).unwrap_or(300)
}

#[tokio::test]
async fn several_threads_with_nothing_in_ram_find_what_they_wrote() {
    let mut rig = Rig::new();
    rig.config.key_cache_bytes = 0;
    rig.config.record_cache_bytes = 0;
    rig.config.overlay_bytes = 100_000;
    rig.config.generation_keys = 300;
    storm(1, rig, storm_steps()).await;
}

#[tokio::test]
async fn several_threads_with_small_caches_and_a_small_log_find_what_they_wrote() {
    let mut rig = Rig::new();
    rig.config.key_cache_bytes = 40_000;
    rig.config.record_cache_bytes = 300_000;
    rig.config.overlay_bytes = 1 << 20;
    rig.device = Arc::new(MemDevice::new(2 << 20));
    storm(2, rig, storm_steps()).await;
}

#[tokio::test]
async fn several_threads_with_everything_in_ram_find_what_they_wrote() {
    storm(3, Rig::new(), storm_steps()).await;
}
