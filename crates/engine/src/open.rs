//! Creating and opening a shard.
//!
//! Steps, each of which may be the last one that happens; what follows a crash begins again at the first:
//! 1. The owner record is read, the log opened, and whether the two go together is decided.
//! 2. The metadata is looked at without opening it: whether it is all there and has come as far as record and log say. The
//!    log is replayed over what it says. So whatever is missing or damaged and can be known is known before anything is
//!    changed, and putting that back is enough. Nothing stays written but the header of a log that was blank.
//! 3. The store is asked whether it honours conditions; the owner record is replaced: a new owner epoch, perhaps a new
//!    incarnation. Whoever had it before is deposed.
//! 4. The metadata store is opened, which fences whoever wrote to it before. If somebody has since the look, it is read, and
//!    the log replayed, once more.
//! 5. Objects under reserved numbers that nothing names are deleted, by name.
//! 6. The opening batch: the epoch's salt and its first reserved segment numbers.
//! 7. The log is started, and the owner record says that it was; operations may run.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use tarn_base::crypto::Key;
use tarn_base::ids::{Position, Uuid};
use tarn_base::mutant;
use tarn_base::world::World;
use tarn_meta::slate::{SlateOpener, SlateOptions};
use tarn_meta::{Batch, MetaError, MetaOpener, MetaStore, MetaView};
use tarn_store::sealed::SealedStore;
use tarn_store::{Store, probe};
use tarn_wal::{CreateOptions, Log, LogDevice, LogError, Recovery, Wake};

use crate::admin::VolumeSpec;
use crate::checkpoint::RESERVE;
use crate::config::Config;
use crate::engine::{Assembly, Engine};
use crate::error::OpenError;
use crate::key::Key as MetaKey;
use crate::missing::LostData;
use crate::orphans::{remove_late, remove_orphans};
use crate::owner::{Claim, Held, Owner, OwnerState, Register, Secrets, is_log_of, log_id};
use crate::recovery::{Base, Rebuilt, Replay};
use crate::value::{NotifyRecord, SaltRecord, ShardState};

/// Makes the opener of the metadata store that lies in the shard's store, under the shard's key.
pub type MetaFactory = Arc<dyn Fn(Arc<dyn Store>, &Key) -> Arc<dyn MetaOpener> + Send + Sync>;

/// Metadata in SlateDB, every object sealed under the shard's key.
pub fn slate(world: World, options: SlateOptions) -> MetaFactory {
    Arc::new(move |store, shard| {
        let sealed = SealedStore::new(store, shard.derive(b"", &[b"tarn metadata objects 1"]), world.random.clone());
        Arc::new(SlateOpener::new(Arc::new(sealed), "meta", world.clone(), options.clone()))
    })
}

/// How often the metadata is opened again that only we can have fenced.
const META_TRIES: usize = 5;
/// How far numbers jump after an opening that may have lost answered entries (engine rule 18).
const INODES_SKIPPED: u64 = 1 << 32;
/// Volume numbers have 32 bits, and nobody makes as many between two takeovers. An administrator's change is durable
/// when it is answered whatever the write speed, so a crash loses none.
const VOLUMES_SKIPPED: u32 = 1 << 16;

/// What an engine is made of.
#[derive(Clone)]
pub struct Parts {
    pub world: World,
    /// The shard's part of the object store.
    pub store: Arc<dyn Store>,
    pub meta: MetaFactory,
    /// The device of the write log: blank, or with a log on it.
    pub log: Arc<dyn LogDevice>,
    pub master: Key,
    pub config: Config,
}

/// How to open.
#[derive(Clone)]
pub struct OpenOptions {
    /// Take the shard from a node whose log is out of reach.
    pub take: bool,
    /// Go on although the log that holds the newest changes is lost.
    pub accept_loss: bool,
    /// Called when the log wants to be flushed; see [`tarn_wal::Log`].
    pub wake: Wake,
}

impl OpenOptions {
    pub fn new(wake: Wake) -> OpenOptions {
        OpenOptions { take: false, accept_loss: false, wake }
    }
}

/// What an opening found and did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecoveryReport {
    /// It followed a clean close.
    pub clean: bool,
    /// It was opened without the log that may hold more.
    pub taken: bool,
    pub owner_epoch: u32,
    pub incarnation: u32,
    /// P of the store as it was found.
    pub position: Position,
    /// The last position that was recovered.
    pub last: Position,
    /// Entries applied over the store, and their bytes.
    pub entries: u64,
    pub bytes: u64,
    /// Names of objects that nothing uses; what was there under them is deleted.
    pub orphans: u64,
    /// Locks and remembered outcomes were lost with the log.
    pub session_lost: bool,
    /// UNSTABLE data that is lost, for it had passed the log by: in the order it was written.
    pub lost: Vec<LostData>,
    /// The same with what later entries cover.
    pub bypassed: Vec<LostData>,
}

/// What record and log, read together, ask for.
struct Plan {
    log: Recovery,
    held: Held,
    /// The log is the one the record names.
    own: bool,
    clean: bool,
    taken: bool,
    /// The metadata was put back to an earlier state, and is to be opened all the same.
    older: bool,
    incarnation: u32,
}

impl Plan {
    /// Whether something that was answered is given up.
    fn gives_up(&self) -> bool {
        self.taken || self.older
    }

    /// Decides to go on from an earlier state of the metadata.
    fn give_up(&mut self) -> Result<(), OpenError> {
        self.older = true;
        if std::mem::take(&mut self.clean) {
            self.incarnation = next_incarnation(self.incarnation)?;
        }
        Ok(())
    }
}

/// The incarnation after `known`.
fn next_incarnation(known: u32) -> Result<u32, OpenError> {
    if known >= Position::INCARNATION_MAX { Err(OpenError::UsedUp) } else { Ok(known + 1) }
}

impl Engine {
    /// Creates a store with a first volume and opens it. A creation that was interrupted is continued.
    pub async fn create(
        parts: Parts,
        first: VolumeSpec,
        wake: Wake,
    ) -> Result<(Arc<Engine>, RecoveryReport), OpenError> {
        let register = Register::new(parts.store.clone(), parts.master.clone(), parts.world.clone());
        let held = match register.read().await? {
            Some(held) if held.owner.state != OwnerState::New => return Err(OpenError::Exists),
            Some(held) => held,
            None => {
                probe::conditions(&*parts.store, &parts.world).await?;
                register.create(new_owner(&parts.world), new_secrets(&parts.world)).await?
            }
        };
        parts.config.crash_point("the owner record is created").await;
        let (engine, report) = open(&parts, register, held, OpenOptions::new(wake)).await?;
        create_first(&engine, first).await?;
        parts.config.crash_point("the first volume is created").await;
        engine.tenure.created().await?;
        Ok((engine, report))
    }

    /// Opens a store for writing and recovers what its log holds.
    pub async fn open(parts: Parts, options: OpenOptions) -> Result<(Arc<Engine>, RecoveryReport), OpenError> {
        let register = Register::new(parts.store.clone(), parts.master.clone(), parts.world.clone());
        match register.read().await? {
            Some(held) if held.owner.state != OwnerState::New => open(&parts, register, held, options).await,
            _ => Err(OpenError::NotCreated),
        }
    }
}

async fn open(
    parts: &Parts,
    register: Register,
    held: Held,
    options: OpenOptions,
) -> Result<(Arc<Engine>, RecoveryReport), OpenError> {
    let config = &parts.config;
    let mut plan = plan(parts, held, &options)?;
    let opener = (parts.meta)(parts.store.clone(), &plan.held.secrets.shard);
    // Opening would make what is not there, and what was lost would look like new.
    let looked = match plan.held.owner.state {
        OwnerState::New => None,
        _ => Some(look(parts, &*opener, &mut plan, &options).await?),
    };
    if looked.is_some() {
        probe::conditions(&*parts.store, &parts.world).await?;
    }
    if plan.taken {
        plan.held = claim(parts, &register, &plan).await?;
    }
    let stored = looked.as_ref().map_or(Position::ZERO, |found| found.state.position);
    let held = register.replace(&plan.held, next_owner(&plan, stored)?).await?;
    config.crash_point("the owner record names us").await;
    let meta = open_meta(&*opener, &register, &held).await?;
    let Found { state, notify, mut rebuilt } = still(parts, &meta.view(), &mut plan, &options, looked).await?;
    let position = state.position;
    for doubt in plan.log.doubts() {
        tracing::warn!(log = %parts.log.name(), "{doubt}");
    }
    // A takeover that was interrupted has a log of its own by now, but what was lost is as lost as before.
    let lost = plan.gives_up() || held.owner.lineage_from > position;
    if lost || (!plan.clean && rebuilt.exposes_answers()) {
        begin_lineage(&mut rebuilt, lost)?;
    }
    config.crash_point("the log is replayed").await;
    let orphans = remove_orphans(&parts.store, &meta.view(), &state).await?;
    let (salt, state) = opening_batch(parts, &*meta, &held.owner, &state, &rebuilt).await?;
    config.crash_point("the opening batch is durable").await;
    let last = plan.log.last().unwrap_or_default().max(position).max(plan.held.owner.closed);
    let mut report = report(&plan, &held.owner, &rebuilt, (position, last), orphans.len() as u64);
    // A log without entries has never said whose locks the one before it held.
    let own_session = plan.own && plan.log.last().unwrap_or_default() > Position::ZERO;
    let notify = if own_session { Vec::new() } else { notify };
    report.session_lost = !notify.is_empty();
    let sequence = if last.incarnation() == plan.incarnation { last.sequence() + 1 } else { 1 };
    let opening = plan.log.opening() + 1;
    let log = plan.log.start(plan.incarnation, sequence, options.wake)?;
    config.crash_point("the log is started").await;
    // From here on an earlier state of the log is told from this one.
    let held = register.replace(&held, Owner { opening, ..held.owner.clone() }).await?;
    let (world, config, store) = (parts.world.clone(), parts.config.clone(), parts.store.clone());
    let assembly = Assembly { world, config, store, register, held, opener, meta, salt, state, rebuilt, log, notify };
    let engine = Engine::assemble(assembly)?;
    if !orphans.is_empty() {
        let late = remove_late(parts.store.clone(), parts.world.clone(), parts.config.hold, orphans);
        parts.world.spawn.spawn("late orphans", Box::pin(late));
    }
    Ok((engine, report))
}

/// What the metadata says and the log adds.
struct Found {
    state: ShardState,
    notify: Vec<NotifyRecord>,
    rebuilt: Rebuilt,
}

/// Reads metadata and log as they are; changes nothing.
async fn look(
    parts: &Parts,
    opener: &dyn MetaOpener,
    plan: &mut Plan,
    options: &OpenOptions,
) -> Result<Found, OpenError> {
    let Some(look) = opener.look().await? else {
        return Err(OpenError::Gone("every object of its metadata, below meta/".into()));
    };
    let base = Base::read(&look.view()).await;
    if let Err(error) = look.close().await {
        tracing::debug!(%error, "closing a look at the metadata store");
    }
    found(parts, base?, plan, options)
}

/// Opens the metadata store of a shard that is `held`.
///
/// What starts left that ended amid their own fence, or that lost its newest manifests, is taken for another writer's at
/// first; each try goes past some of it.
async fn open_meta(opener: &dyn MetaOpener, register: &Register, held: &Held) -> Result<Arc<dyn MetaStore>, OpenError> {
    for _ in 0..META_TRIES {
        match opener.open().await {
            Err(MetaError::Fenced(why)) => match register.read().await? {
                Some(found) if found.owner == held.owner => {
                    tracing::warn!(%why, "the store is ours all the same: its metadata is opened again");
                }
                _ => return Err(OpenError::Taken),
            },
            opened => return Ok(opened?),
        }
    }
    Ok(opener.open().await?)
}

/// What was `looked` at, unless somebody has written since.
async fn still(
    parts: &Parts,
    view: &Arc<dyn MetaView>,
    plan: &mut Plan,
    options: &OpenOptions,
    looked: Option<Found>,
) -> Result<Found, OpenError> {
    let base = Base::read(view).await?;
    match looked {
        None => found(parts, Some(base.unwrap_or_else(Base::new)), plan, options),
        Some(found) if base.as_ref().is_some_and(|base| base.state == found.state) => Ok(found),
        Some(_) => found(parts, base, plan, options),
    }
}

/// Decides whether the metadata has come as far as it must have, and replays the log over it.
fn found(parts: &Parts, base: Option<Base>, plan: &mut Plan, options: &OpenOptions) -> Result<Found, OpenError> {
    let base = base.ok_or_else(|| OpenError::Damaged("the shard's state is missing".into()))?;
    let held = base.state.position;
    let (reserved, epoch) = (base.state.reserved_epoch, plan.held.owner.epoch);
    if reserved > epoch {
        return Err(OpenError::OwnerOlder { held: epoch, known: reserved });
    }
    if plan.own && plan.log.opening() < plan.held.owner.opening {
        return Err(OpenError::LogReplaced { held: plan.log.opening(), known: plan.held.owner.opening });
    }
    if plan.own && plan.log.trimmed() > held {
        return Err(OpenError::StoreOlder { held, known: plan.log.trimmed() });
    }
    let known = plan.held.owner.stored;
    if known > held && !plan.older {
        if !options.accept_loss {
            return Err(OpenError::StoreOlder { held, known });
        }
        tracing::warn!(%held, %known, "opening a store that was put back to an earlier state");
        plan.give_up()?;
    }
    let (state, notify) = (base.state.clone(), base.notify.clone());
    let replay = Replay::new(base, parts.config.overlay_bytes, parts.world.clock.steady());
    let rebuilt = replay.run(&mut plan.log)?;
    let last = plan.log.last().unwrap_or_default();
    // Whatever is in the store was in its log before. One without entries is new.
    if plan.own && last > Position::ZERO && last < held {
        return Err(OpenError::LogOlder { last, held });
    }
    Ok(Found { state, notify, rebuilt })
}

/// Makes the first volume unless an interrupted creation has. Nobody drives the log's flushes yet.
async fn create_first(engine: &Engine, first: VolumeSpec) -> Result<(), OpenError> {
    if !engine.volume_list().is_empty() {
        return Ok(());
    }
    let mut creating = pin!(engine.create_volume(first));
    let created = std::future::poll_fn(|cx| match creating.as_mut().poll(cx) {
        Poll::Pending => {
            engine.log().flush_now();
            creating.as_mut().poll(cx)
        }
        ready => ready,
    });
    created.await.map(|_| ()).map_err(|error| OpenError::Volume(error.to_string()))
}

fn new_owner(world: &World) -> Owner {
    Owner {
        store: Uuid(world.random_bytes()),
        state: OwnerState::New,
        epoch: 0,
        incarnation: 0,
        node: Uuid::default(),
        lineage: 0,
        lineage_from: Position::ZERO,
        closed: Position::ZERO,
        stored: Position::ZERO,
        opening: 0,
        claim: None,
    }
}

fn new_secrets(world: &World) -> Secrets {
    Secrets { shard: Key::new(world.random_bytes()), handle: world.random_bytes() }
}

/// Decides whether record and log go together. Writes nothing but the header of a blank log.
fn plan(parts: &Parts, held: Held, options: &OpenOptions) -> Result<Plan, OpenError> {
    let owner = held.owner.clone();
    let may_take = options.take || options.accept_loss;
    let free = owner.state != OwnerState::Open;
    let mut log = match Log::open(parts.log.clone(), &parts.master) {
        Err(LogError::Blank { .. }) if !free && !may_take => return Err(OpenError::Elsewhere { owner: owner.node }),
        Err(LogError::Blank { .. }) => new_log(parts, &owner.store)?,
        opened => opened?,
    };
    if !is_log_of(&owner.store, &log.id()) || log.shard() != parts.config.shard {
        return Err(OpenError::ForeignLog);
    }
    let own = log.id() == owner.node;
    if !own && !free && !may_take {
        return Err(OpenError::Elsewhere { owner: owner.node });
    }
    // A store that needs no log is not made to need one before it is known to be whole.
    if (!own || free) && log.incarnation() > 0 {
        let mut changes = false;
        log.replay(|entry| {
            let (entry, _) = crate::entry::Entry::decode(&entry.payload).map_err(undecodable)?;
            changes |= entry.changes_store();
            Ok::<(), LogError>(())
        })?;
        if !own && changes {
            return Err(OpenError::StaleLog);
        }
    }
    let known = owner.incarnation.max(log.incarnation());
    let clean = match (own, owner.state) {
        (_, OwnerState::New) => false,
        (true, OwnerState::Closed) => {
            log.clean() && log.incarnation() == known && log.last().is_some_and(|last| last >= owner.closed)
        }
        // It was closed while the store was away: the log has everything.
        (true, OwnerState::Open) => log.clean() && log.incarnation() == known,
        (false, _) => free && log.incarnation() == 0,
    };
    let incarnation = if clean || mutant::on(mutant::POSITION_REUSED) { known } else { next_incarnation(known)? };
    Ok(Plan { log, held, own, clean, taken: !own && !free, older: false, incarnation: incarnation.max(1) })
}

fn undecodable(error: tarn_base::codec::DecodeError) -> LogError {
    LogError::Damaged { offset: 0, reason: format!("an entry: {error}") }
}

/// A log on a blank device.
fn new_log(parts: &Parts, store: &Uuid) -> Result<Recovery, OpenError> {
    let options = CreateOptions {
        id: log_id(store, parts.world.random_bytes()),
        shard: parts.config.shard,
        master: &parts.master,
        log_key: Key::new(parts.world.random_bytes()),
        wrap_nonce: parts.world.random_bytes(),
    };
    Log::create(parts.log.clone(), options)?;
    Ok(Log::open(parts.log.clone(), &parts.master)?)
}

/// Says in the record that we take the shard, and waits until its owner must have seen that.
async fn claim(parts: &Parts, register: &Register, plan: &Plan) -> Result<Held, OpenError> {
    let claim = Claim { node: plan.log.id(), nonce: parts.world.random_u64() };
    tracing::warn!(owner = %plan.held.owner.node, "taking the store over without the log that holds its newest changes");
    let claimed = Owner { claim: Some(claim), ..plan.held.owner.clone() };
    let held = register.replace(&plan.held, claimed).await?;
    parts.config.crash_point("the store is claimed").await;
    parts.world.clock.sleep(parts.config.heartbeat * 2).await;
    Ok(held)
}

/// The record with us as owner of a store whose P is `stored`.
fn next_owner(plan: &Plan, stored: Position) -> Result<Owner, OpenError> {
    let before = &plan.held.owner;
    let mut owner = Owner {
        // A creation stays one until its volume is there.
        state: if before.state == OwnerState::New { OwnerState::New } else { OwnerState::Open },
        epoch: before.epoch.checked_add(1).ok_or(OpenError::UsedUp)?,
        incarnation: plan.incarnation,
        node: plan.log.id(),
        stored,
        opening: if plan.own { before.opening } else { 0 },
        claim: None,
        ..before.clone()
    };
    if plan.gives_up() {
        owner.lineage += 1;
        owner.lineage_from = Position::new(plan.incarnation, 0);
    }
    Ok(owner)
}

/// Answers may be lost: no number they may have shown is given out again (engine rule 18). The opening batch makes that
/// durable before any operation runs, so lineages add up.
fn begin_lineage(rebuilt: &mut Rebuilt, log_lost: bool) -> Result<(), OpenError> {
    rebuilt.lineage = rebuilt.lineage.checked_add(1).ok_or(OpenError::UsedUp)?;
    rebuilt.next_inode = rebuilt.next_inode.saturating_add(INODES_SKIPPED);
    if log_lost {
        rebuilt.next_volume = rebuilt.next_volume.saturating_add(VOLUMES_SKIPPED);
    }
    Ok(())
}

/// Commits the salt of this owner epoch and its first reserved segment numbers.
async fn opening_batch(
    parts: &Parts,
    meta: &dyn MetaStore,
    owner: &Owner,
    found: &ShardState,
    rebuilt: &Rebuilt,
) -> Result<([u8; 16], ShardState), OpenError> {
    let salt: [u8; 16] = parts.world.random_bytes();
    let state = ShardState {
        // Of no harm if higher than P says: numbers are only never given out twice.
        next_inode: rebuilt.next_inode,
        next_volume: rebuilt.next_volume,
        lineage: rebuilt.lineage,
        reserved_epoch: owner.epoch,
        reserved_counter: 1 + RESERVE,
        settled_counter: 1,
        ..found.clone()
    };
    let (mut shard_value, mut salt_value) = (Vec::new(), Vec::new());
    state.encode(&mut shard_value);
    SaltRecord(salt).encode(&mut salt_value);
    let changes = vec![
        (MetaKey::shard().bytes(), Some(shard_value.into())),
        (MetaKey::salt(owner.epoch).bytes(), Some(salt_value.into())),
    ];
    meta.commit(Batch { changes }).await?;
    Ok((salt, state))
}

fn report(
    plan: &Plan,
    owner: &Owner,
    rebuilt: &Rebuilt,
    (position, last): (Position, Position),
    orphans: u64,
) -> RecoveryReport {
    RecoveryReport {
        clean: plan.clean,
        taken: plan.taken,
        owner_epoch: owner.epoch,
        incarnation: plan.incarnation,
        position,
        last,
        entries: rebuilt.entries,
        bytes: rebuilt.bytes,
        orphans,
        session_lost: false,
        lost: rebuilt.missing.list(),
        bypassed: rebuilt.missing.all(),
    }
}
