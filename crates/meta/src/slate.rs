//! The ordered key-value contract on SlateDB: an LSM tree in the object store.
//!
//! - SlateDB's own log is off. A commit is one memtable, flushed to one SST and published by one manifest, which is
//!   created under a number nobody else took: all of it or nothing. The memtable is filled part by part, for SlateDB
//!   copies each part several times: what fits into the processor's cache costs half.
//! - A view is a SlateDB snapshot taken after the manifest of a commit was written, never before.
//! - A look reads through a reader that writes nothing.
//! - Opening writes a manifest with the next writer epoch; whoever has an older one can publish nothing more.
//! - A store that failed, was closed or was followed by another is cut off from the object store: what still runs in the
//!   background of it ends at its next request.
//! - The clock SlateDB sees never goes backwards, not even across restarts.
//! - Keys are 1 to 65,535 bytes.

mod cache;
mod clock;
mod error;
mod merging;
mod presence;
mod settings;
mod view;

use std::fmt;
use std::future::Future;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures::channel::oneshot::{self, Canceled};
use futures::future::{Either, select};
use futures::{StreamExt, stream};
use parking_lot::{Mutex, RwLock};
use slatedb::admin::Admin;
use slatedb::config::{CloseOptions, DbReaderOptions, FlushOptions, FlushType};
use slatedb::{CloseReason, CompactorBuilder, Db, DbReader, DbReaderMode, WriteBatch};
use tarn_base::world::World;
use tarn_store::Store;
use tarn_store::bridge::Bridge;
use tarn_store::sequence::Sequence;
use tokio::runtime::Handle;

use crate::contract::{Batch, MetaError, MetaLook, MetaOpener, MetaResult, MetaStore, MetaView};
use merging::{Commits, Merging};
use view::SlateView;

/// How often a look asks for a newer state. It is over long before.
const LOOK_POLL: Duration = Duration::from_secs(24 * 60 * 60);

/// How a [`SlateOpener`] opens.
#[derive(Clone, Debug)]
pub struct SlateOptions {
    /// Memory for decoded blocks, indexes and filters, bytes; shared by every opening of one opener.
    pub cache_bytes: u64,
    /// How long a commit, an opening or a close may take before it counts as failed.
    pub patience: Duration,
    /// What merges tables; `None`: bulk work, as all else that SlateDB does by itself.
    pub merging: Option<Handle>,
}

impl Default for SlateOptions {
    fn default() -> SlateOptions {
        // A batch of 200 k keys is flushed in well under a second to a disk; a bucket that needs a minute is away.
        SlateOptions { cache_bytes: 128 << 20, patience: Duration::from_secs(60), merging: None }
    }
}

/// Opens the SlateDB database under `path` of an object store.
pub struct SlateOpener {
    store: Arc<dyn Store>,
    path: String,
    world: World,
    options: SlateOptions,
    cache: Arc<cache::BlockCache>,
    last: Mutex<Weak<Opened>>,
    floor: Arc<Floor>,
    /// The manifests, up to the newest that was there or was written.
    manifests: Arc<Sequence>,
}

impl fmt::Debug for SlateOpener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SlateOpener({} in {:?})", self.path, self.store)
    }
}

impl SlateOpener {
    /// The database of the objects below `path` (a name without slash at its end) of `store`.
    pub fn new(store: Arc<dyn Store>, path: &str, world: World, options: SlateOptions) -> SlateOpener {
        let cache = Arc::new(cache::BlockCache::new(options.cache_bytes));
        SlateOpener {
            store,
            path: path.to_owned(),
            world,
            options,
            cache,
            last: Mutex::default(),
            floor: Arc::default(),
            manifests: Arc::new(presence::manifests(path)),
        }
    }
}

/// Changes that are brought into the memtable at a time.
const PART: usize = 512;
/// Tables that wait to be merged, or are merged, without holding a commit up, of the 128 that there may be, and what each further
/// one does.
const TABLES_FREE: usize = 16;
const PAUSE: Duration = Duration::from_millis(50);
/// Parts that are on their way to it.
const PARTS_AT_ONCE: usize = 4;
/// What a change takes there beside its key and value, bytes, at most.
const ENTRY: usize = 64;

/// Tries of an opening whose clock was behind what had been written.
const CLOCK_TRIES: u32 = 4;

#[async_trait]
impl MetaOpener for SlateOpener {
    async fn inspect(&self) -> MetaResult<bool> {
        // What is written from here on may be newer than what is read.
        let seen = self.manifests.seen();
        let bridge = Arc::new(Bridge::new(self.store.clone()));
        let admin = Admin::builder(self.path.as_str(), bridge).build();
        let manifest = match within(&self.world, self.options.patience, admin.read_manifest(None)).await {
            Some(Ok(manifest)) => manifest,
            Some(Err(error)) => return Err(error::of_reading(&error)),
            None => return Err(MetaError::Unavailable(format!("it did not answer for {:?}", self.options.patience))),
        };
        let Some(manifest) = manifest else { return Ok(false) };
        presence::not_before(&self.manifests, manifest.id(), seen)?;
        let newest = (&*self.manifests, manifest.id());
        presence::verify(&*self.store, &self.path, &manifest, newest).await?;
        self.manifests.see(manifest.id());
        Ok(true)
    }

    async fn look(&self) -> MetaResult<Option<Box<dyn MetaLook>>> {
        if !self.inspect().await? {
            return Ok(None);
        }
        presence::compactions(&*self.store, &self.path).await?;
        let bridge = self.bridge();
        bridge.seal();
        let options = DbReaderOptions {
            manifest_poll_interval: LOOK_POLL,
            skip_wal_replay: true,
            object_store_max_retries: Some(settings::RETRIES),
            ..DbReaderOptions::default()
        };
        let build = DbReader::builder(self.path.as_str(), bridge.clone())
            .with_reader_mode(DbReaderMode::FollowLatest)
            .with_options(options)
            .with_db_cache(self.cache.clone(), 0)
            .with_system_clock(Arc::new(clock::SlateClock::new(self.world.clock.clone())))
            .with_seed(self.world.random_u64())
            .build();
        match within(&self.world, self.options.patience, build).await {
            Some(Ok(reader)) => Ok(Some(Box::new(Look { reader: Arc::new(reader), bridge }))),
            Some(Err(error)) => Err(error::of_opening(&error)),
            None => Err(MetaError::Unavailable(format!("it did not answer for {:?}", self.options.patience))),
        }
    }

    async fn open(&self) -> MetaResult<Arc<dyn MetaStore>> {
        let mut tries = 1;
        loop {
            match self.open_once().await {
                // The compactor looks at the clock before it can be set right: from now on it is.
                Err(error) if tries < CLOCK_TRIES && self.floor.learn(&error) => tries += 1,
                outcome => return outcome,
            }
        }
    }
}

/// A reader, and its way to the store, which lets no write through.
struct Look {
    reader: Arc<DbReader>,
    bridge: Arc<Bridge>,
}

impl fmt::Debug for Look {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Look")
    }
}

impl Drop for Look {
    fn drop(&mut self) {
        self.bridge.cut();
    }
}

#[async_trait]
impl MetaLook for Look {
    fn view(&self) -> Arc<dyn MetaView> {
        Arc::new(SlateView::new(self.reader.clone(), self.bridge.clone()))
    }

    async fn close(&self) -> MetaResult<()> {
        self.bridge.cut();
        let closed = self.reader.close().await;
        closed.or_else(|error| error::of_closing(&error))
    }
}

/// The earliest time that SlateDB still takes, milliseconds since 1970, as far as it has told.
#[derive(Debug, Default)]
struct Floor(AtomicI64);

impl Floor {
    /// Whether the error says that the clock was behind.
    fn learn(&self, error: &MetaError) -> bool {
        let tick = error::clock_behind(error);
        tick.inspect(|tick| {
            self.0.fetch_max(*tick, Ordering::SeqCst);
        })
        .is_some()
    }
}

impl SlateOpener {
    /// A way to the store on which no manifest that was seen is passed over, or written over, when it is taken away.
    fn bridge(&self) -> Arc<Bridge> {
        Arc::new(Bridge::following(self.store.clone(), self.manifests.clone()))
    }

    async fn written_until(&self, bridge: &Arc<Bridge>) -> MetaResult<i64> {
        match within(&self.world, self.options.patience, written_until(&self.path, bridge.clone())).await {
            Some(told) => told.map_err(|error| error::of_opening(&error)),
            None => Err(MetaError::Unavailable(format!("it did not answer for {:?}", self.options.patience))),
        }
    }

    async fn open_once(&self) -> MetaResult<Arc<dyn MetaStore>> {
        if let Some(before) = self.last.lock().upgrade() {
            before.bridge.cut();
        }
        let bridge = self.bridge();
        let clock = Arc::new(clock::SlateClock::new(self.world.clock.clone()));
        clock.never_before(self.floor.0.load(Ordering::SeqCst));
        clock.never_before(self.written_until(&bridge).await?);
        let commits = Arc::new(Commits::new(self.world.clock.clone()));
        let mut compactor = CompactorBuilder::new(self.path.clone(), bridge.clone())
            .with_options(settings::compactor())
            .with_scheduler_supplier(Arc::new(Merging(commits.clone())));
        if let Some(merging) = &self.options.merging {
            compactor = compactor.with_runtime(merging.clone());
        }
        let build = Db::builder(self.path.clone(), bridge.clone())
            .with_settings(settings::settings())
            .with_compactor_builder(compactor)
            .with_db_cache(self.cache.clone(), 0)
            .with_system_clock(clock.clone())
            .with_seed(self.world.random_u64())
            .build();
        let opened = within(&self.world, self.options.patience, beside(&self.world, build)).await;
        let opened = match opened {
            Some(Ok(built)) => built.map_err(|error| error::of_opening(&error)),
            Some(Err(Canceled)) => Err(MetaError::Unavailable("opening ended before it was done".to_owned())),
            None => Err(MetaError::Unavailable(format!("opening took over {:?}", self.options.patience))),
        };
        let db = opened.inspect_err(|_| bridge.cut())?;
        let opened = Arc::new(Opened { db, bridge });
        // Whoever it was taken from may have written until it was, with a clock ahead of this one.
        clock.never_before(self.written_until(&opened.bridge).await?);
        let view = match opened.snapshot() {
            Ok(view) => view,
            Err(error) => return Err(error::of_opening(&error)),
        };
        *self.last.lock() = Arc::downgrade(&opened);
        let world = self.world.clone();
        let patience = self.options.patience;
        let (floor, view, busy) = (self.floor.clone(), RwLock::new(view), Mutex::new(State::Ready));
        let (store, path, manifests) = (self.store.clone(), self.path.clone(), self.manifests.clone());
        Ok(Arc::new(SlateStore { opened, store, path, world, patience, floor, manifests, view, commits, busy }))
    }
}

/// The latest time that the database under `path` was written at, milliseconds since 1970; 0 if there is none.
///
/// It is asked before the database is opened, because its compactor begins with that, and after it, when nobody else writes
/// any more.
async fn written_until(path: &str, store: Arc<Bridge>) -> Result<i64, slatedb::Error> {
    let admin = Admin::builder(path, store).build();
    let mut ticks = vec![0];
    if let Some(manifest) = admin.read_manifest(None).await? {
        ticks.push(manifest.last_l0_clock_tick());
        let last = manifest.last_compacted_l0_sst_id();
        let written = manifest.all_sst_views().map(|view| view.sst.id.value()).chain(last);
        ticks.extend(written.map(|id| id.timestamp_ms() as i64));
    }
    if let Some(compactions) = admin.read_compactions(None).await? {
        let jobs = || compactions.recent_compactions();
        ticks.extend(jobs().map(|job| job.id().timestamp_ms() as i64));
        // Whoever was at one is gone: it is to be taken up again, not waited for.
        let given_up = settings::WORKER_SILENT.as_millis() as i64 + 1;
        ticks.extend(jobs().filter_map(|job| Some(job.worker()?.last_heartbeat_ms as i64 + given_up)));
    }
    Ok(ticks.into_iter().max().unwrap_or(0))
}

/// The SSTs that the database under `path` of `store` consists of, by object name: those that its newest manifest names.
pub async fn tables(path: &str, store: Arc<dyn Store>) -> MetaResult<Vec<String>> {
    let admin = Admin::builder(path, Arc::new(Bridge::new(store))).build();
    let manifest = admin.read_manifest(None).await.map_err(|error| error::of_opening(&error))?;
    let views = manifest.iter().flat_map(|manifest| manifest.all_sst_views());
    Ok(views.map(|view| format!("{path}/compacted/{}.sst", view.sst.id.value())).collect())
}

/// The result of `future`, or `None` if it takes longer than `patience`.
async fn within<T>(world: &World, patience: Duration, future: impl Future<Output = T>) -> Option<T> {
    match select(Box::pin(future), world.clock.sleep(patience)).await {
        Either::Left((result, _)) => Some(result),
        Either::Right(_) => None,
    }
}

/// What becomes of `future` as bulk work, and whatever it starts with it: SlateDB's tasks live where it is opened, and those
/// that fill and flush a table take 40 to 80 ms of a core, which calls wait for where they have an ordinary claim.
/// It ends when nobody waits for it any more.
async fn beside<T: Send + 'static>(
    world: &World,
    future: impl Future<Output = T> + Send + 'static,
) -> Result<T, Canceled> {
    let (mut tell, told) = oneshot::channel();
    let run = async move {
        let Either::Left((result, _)) = select(Box::pin(future), tell.cancellation()).await else { return };
        // An error means that nobody waits any more.
        let _ = tell.send(result);
    };
    world.spawn.spawn_bulk("metadata", Box::pin(run));
    told.await
}

/// An open database and its way to the store. The last who holds it cuts the way.
struct Opened {
    db: Db,
    bridge: Arc<Bridge>,
}

impl Drop for Opened {
    fn drop(&mut self) {
        self.bridge.cut();
    }
}

impl Opened {
    fn snapshot(self: &Arc<Opened>) -> Result<Arc<dyn MetaView>, slatedb::Error> {
        Ok(Arc::new(SlateView::new(self.db.snapshot()?, self.clone())))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Ready,
    Committing,
    /// Closed, or a commit has failed or was dropped halfway.
    Ended,
}

struct SlateStore {
    opened: Arc<Opened>,
    store: Arc<dyn Store>,
    path: String,
    world: World,
    patience: Duration,
    floor: Arc<Floor>,
    manifests: Arc<Sequence>,
    /// As of the last commit.
    view: RwLock<Arc<dyn MetaView>>,
    commits: Arc<Commits>,
    busy: Mutex<State>,
}

impl fmt::Debug for SlateStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SlateStore({:?})", self.busy.lock())
    }
}

impl SlateStore {
    /// Nothing of this store reaches the object store from now on.
    fn end(&self) {
        *self.busy.lock() = State::Ended;
        self.opened.bridge.cut();
    }

    /// What the database knows of is gone: its compactor or collector has written a newer manifest since, which is surely
    /// there and whole; or it was taken away.
    ///
    /// A store of which part is gone is not written to any more, not by its closing either: its manifest would name what
    /// a store that is put back does not have.
    async fn outrun(&self, seen: u64, what: String) -> MetaResult<()> {
        let admin = Admin::builder(self.path.as_str(), Arc::new(Bridge::new(self.store.clone()))).build();
        if let Some(Ok(Some(newest))) = within(&self.world, self.patience, admin.read_manifest(None)).await
            && presence::verify(&*self.store, &self.path, &newest, (&self.manifests, seen.max(newest.id())))
                .await
                .is_ok()
        {
            return Ok(());
        }
        self.opened.bridge.seal();
        Err(MetaError::Gone(what))
    }

    /// Brings the batch into the memtable, where nobody sees it, and flushes that.
    async fn write(&self, batch: Batch) -> Result<(), slatedb::Error> {
        let parts = parts_of(batch).into_iter().map(|part| self.opened.db.write(part));
        // One waits while the next is brought.
        let mut parts = stream::iter(parts).buffered(PARTS_AT_ONCE);
        while let Some(written) = parts.next().await {
            written?;
        }
        self.opened.db.flush_with_options(FlushOptions { flush_type: FlushType::MemTable }).await
    }
}

/// Ends the store unless the commit it stands for has come to its end.
struct Committing<'a>(Option<&'a SlateStore>);

impl Drop for Committing<'_> {
    fn drop(&mut self) {
        if let Some(store) = self.0 {
            store.end();
        }
    }
}

#[async_trait]
impl MetaStore for SlateStore {
    fn view(&self) -> Arc<dyn MetaView> {
        self.view.read().clone()
    }

    async fn commit(&self, batch: Batch) -> MetaResult<()> {
        {
            let mut busy = self.busy.lock();
            match *busy {
                State::Ready => *busy = State::Committing,
                State::Committing => return Err(MetaError::Unavailable("two commits at once".to_owned())),
                State::Ended => {
                    return Err(MetaError::Unavailable("this store was closed, or a commit failed".to_owned()));
                }
            }
        }
        let (mut committing, began) = (Committing(Some(self)), self.world.clock.steady());
        if !batch.changes.is_empty() {
            verify_keys(&batch)?;
            match within(&self.world, self.patience, self.write(batch)).await {
                Some(Ok(())) => {}
                Some(Err(error)) => {
                    let error = error::of_commit(&error);
                    self.floor.learn(&error);
                    return Err(error);
                }
                None => return Err(MetaError::Unknown(format!("no answer in {:?}", self.patience))),
            }
            *self.view.write() = self.opened.snapshot().map_err(|error| error::of_commit(&error))?;
        }
        committing.0 = None;
        *self.busy.lock() = State::Ready;
        // It is there: who goes away meanwhile breaks nothing off.
        let pause = pause_for(self.opened.db.manifest().l0().len());
        if !pause.is_zero() {
            self.world.clock.sleep(pause).await;
        }
        self.commits.ended(began);
        Ok(())
    }

    async fn glance(&self) -> MetaResult<()> {
        let seen = self.manifests.seen();
        match presence::glance(&*self.store, &self.manifests).await {
            Err(MetaError::Gone(what)) => self.outrun(seen, what).await,
            seen => seen,
        }
    }

    async fn verify(&self) -> MetaResult<()> {
        let (seen, manifest) = (self.manifests.seen(), self.opened.db.manifest());
        match presence::verify(&*self.store, &self.path, &manifest, (&self.manifests, seen)).await {
            Err(MetaError::Gone(what)) => self.outrun(seen, what).await,
            verified => verified,
        }
    }

    async fn oldest_checkpoint(&self) -> MetaResult<Option<i64>> {
        let admin = Admin::builder(self.path.as_str(), self.opened.bridge.clone()).build();
        match within(&self.world, self.patience, admin.list_checkpoints(None)).await {
            Some(Ok(checkpoints)) => {
                let now = self.world.clock.now().as_millis();
                let lives = checkpoints
                    .into_iter()
                    .filter(|held| held.expire_time.is_none_or(|until| until.timestamp_millis() >= now));
                Ok(lives.map(|held| held.create_time.timestamp_millis()).min())
            }
            Some(Err(error)) => Err(error::of_reading(&error)),
            None => Err(MetaError::Unavailable(format!("no answer in {:?}", self.patience))),
        }
    }

    fn ended(&self) -> Option<MetaError> {
        let reason = self.opened.db.status().close_reason?;
        let what = format!("SlateDB has closed itself: {reason:?}");
        Some(if reason == CloseReason::Fenced { MetaError::Fenced(what) } else { MetaError::Unavailable(what) })
    }

    async fn close(&self) -> MetaResult<()> {
        *self.busy.lock() = State::Ended;
        // Everything committed is flushed; what is not committed must not be.
        let close = self.opened.db.close_with_options(CloseOptions::default().with_flush_type(None));
        let closed = within(&self.world, self.patience, close).await;
        self.opened.bridge.cut();
        match closed {
            Some(Ok(())) => Ok(()),
            Some(Err(error)) => error::of_closing(&error),
            None => Err(MetaError::Unavailable(format!("closing took over {:?}", self.patience))),
        }
    }
}

fn verify_keys(batch: &Batch) -> MetaResult<()> {
    match batch.changes.iter().find(|(key, _)| key.is_empty() || key.len() > usize::from(u16::MAX)) {
        Some((key, _)) => Err(MetaError::Unavailable(format!("a key of {} bytes cannot be stored", key.len()))),
        None => Ok(()),
    }
}

/// How long a commit is held up by so many tables that wait to be merged: merging, which gives way to everything, must keep up
/// before SlateDB takes no more.
fn pause_for(tables: usize) -> Duration {
    PAUSE * tables.saturating_sub(TABLES_FREE) as u32
}

/// What goes into the memtable at a time: all of `batch` where SlateDB could flush the memtable by itself before the last of
/// it is there.
fn parts_of(batch: Batch) -> Vec<WriteBatch> {
    let bytes_of = |(key, value): &(Bytes, Option<Bytes>)| key.len() + value.as_ref().map_or(0, Bytes::len) + ENTRY;
    let apart = batch.changes.iter().map(bytes_of).sum::<usize>() < settings::FLUSHED_AT / 2;
    let most = if apart { PART } else { batch.changes.len() };
    let mut parts: Vec<WriteBatch> = Vec::with_capacity(batch.changes.len().div_ceil(most.max(1)));
    for (at, (key, value)) in batch.changes.into_iter().enumerate() {
        if at % most == 0 {
            parts.push(WriteBatch::new());
        }
        if let Some(part) = parts.last_mut() {
            match value {
                Some(value) => part.put_bytes(key, value),
                None => part.delete(key),
            }
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commits_wait_for_merging_long_before_there_are_too_many_tables() {
        let most = SlateOptions::default().patience / 4;
        assert_eq!([0, TABLES_FREE].map(pause_for), [Duration::ZERO; 2]);
        assert!(pause_for(TABLES_FREE + 1) > Duration::ZERO && pause_for(100) > Duration::from_secs(2));
        assert!(pause_for(128) < most, "and no commit counts as failed for it");
    }

    #[test]
    fn what_slatedb_might_flush_by_itself_is_not_taken_apart() {
        let value = Bytes::from(vec![0; 1 << 20]);
        let batch = |changes: usize| Batch {
            changes: (0..changes).map(|at| (Bytes::from(at.to_string()), Some(value.clone()))).collect(),
        };
        assert_eq!(parts_of(batch(0)).len(), 0);
        assert_eq!(parts_of(batch(500)).len(), 1);
        assert_eq!(parts_of(batch(513)).len(), 1, "of 513 MiB");
        let small = Batch { changes: (0..1025).map(|at| (Bytes::from(at.to_string()), None)).collect() };
        assert_eq!(parts_of(small).len(), 3);
    }
}
