//! The history of one seed: lives of a machine, each ended by a crash or a clean stop, each followed by a recovery that
//! is held against the model.

mod settle;

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt;
use futures::future::try_join_all;
use tarn_base::ids::Position;
use tarn_engine::{CheckpointError, Engine, OpenError, RecoveryReport, VolumeSpec};
use tarn_vfs::op::Slot;
use tarn_vfs::{Caller, FileSystem, Lock, Node, WriteSpeed};
use tarn_wal::faulty::FaultyDisk;
use tokio::sync::Notify;

use crate::chance::Chance;
use crate::chaos::Chaos;
use crate::check::{self, numbers::Numbers, verifier::Verifiers};
use crate::client::remote::{self, Remote};
use crate::client::{Knowledge, Life};
use crate::coverage::Coverage;
use crate::failure::{Checked, Failure};
use crate::front::Front;
use crate::front::wire::Handles;
use crate::machine::{Bends, Machine, master, volume};
use crate::pairs::Pairs;
use crate::plan::{CLOSING_POINTS, CREATING_POINTS, DeviceFault, Ending, LifePlan, OPENING_POINTS, Plan};
use crate::trace::Trace;
use crate::tracker::Tracker;
use crate::workload::Workload;
use crate::world::SimClock;

/// Attempts to open before the faults end.
const RAGING_ATTEMPTS: u32 = 6;
/// Virtual time that a life, a close or an opening may take.
const PATIENCE: Duration = Duration::from_secs(1800);

/// Operations and crashes of every history, at least; one crash is amid an opening.
pub const OPERATIONS_MIN: u64 = 300;
pub const CRASHES_MIN: u64 = 3;

/// What came of a seed.
#[derive(Debug)]
pub struct Told {
    pub seed: u64,
    /// Of the whole trace.
    pub digest: u64,
    pub operations: u64,
    pub crashes: u64,
    pub coverage: Arc<Coverage>,
    pub failure: Option<Failure>,
}

/// Runs the history of `seed`; prints it if asked to.
pub fn tell(seed: u64, print: bool, bends: Bends) -> Told {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => panic!("a runtime of one thread cannot be made: {error}"),
    };
    runtime.block_on(async {
        let mut story = Story::new(Plan::new(seed), print, bends);
        let failure = story.run().await.err();
        story.machine.tasks.kill().await;
        match &failure {
            Some(failure) => story.event("end", format_args!("FAILED: {}", failure.property)),
            None => story.event("end", format_args!("OK")),
        }
        Told {
            seed,
            digest: story.trace.digest(),
            operations: story.knowledge.operations.get(),
            crashes: story.crashes,
            coverage: story.coverage,
            failure,
        }
    })
}

struct Story {
    plan: Plan,
    clock: Arc<SimClock>,
    trace: Arc<Trace>,
    coverage: Arc<Coverage>,
    chaos: Arc<Chaos>,
    machine: Machine,
    knowledge: Knowledge,
    chance: Chance,
    /// Decides what the checks spoil.
    spoiler: Chance,
    verifiers: Verifiers,
    crashes: u64,
    /// Attempts to open that were crashed or failed, since the last that succeeded.
    failed_since: u32,
    /// The disk of the machine before, if this one began with the bucket alone.
    left_behind: Option<FaultyDisk>,
    /// The volumes are in the store from here on.
    founded: Position,
    /// The log is lost: the store is taken over without it.
    log_lost: bool,
    /// The store failed at times during the last stop, so the owner record may not say that it was one.
    may_need_log: bool,
    /// Handles that clients of the front end keep, and the number of their last call.
    handles: Handles,
    xids: Arc<AtomicU32>,
    listings: check::listing::Listings,
}

/// An engine that is open.
struct Opened {
    engine: Arc<Engine>,
    fs: Arc<dyn FileSystem>,
    report: RecoveryReport,
    /// If clients of this history go through the front end.
    remote: Option<Remote>,
}

impl Opened {
    /// The file system as clients see it.
    fn seen(&self) -> Arc<dyn FileSystem> {
        match &self.remote {
            Some(remote) => Arc::new(remote.plain()),
            None => self.fs.clone(),
        }
    }
}

/// How a life ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Power,
    /// Stopped cleanly; everything is in the bucket.
    Saved,
    /// Stopped cleanly, but the log is still needed.
    Unsaved,
    /// Stopped without all that was answered UNSTABLE.
    Lacking,
}

impl Story {
    fn new(plan: Plan, print: bool, bends: Bends) -> Story {
        let clock = SimClock::new();
        let trace = Arc::new(Trace::new(clock.clone(), print));
        let coverage = Arc::new(Coverage::default());
        let chance = Chance::new(plan.seed, "chaos");
        let chaos = Chaos::new(chance, plan.store_ms, clock.clone(), coverage.clone(), trace.clone());
        let tracker = Tracker::new(clock.clone());
        let machine = Machine::new(&plan, clock.clone(), &chaos, &tracker, bends);
        let streams = Chance::new(plan.seed, "streams");
        let workload = Workload::new(Chance::new(plan.seed, "workload"), streams, plan.volumes.len(), plan.wire);
        let knowledge = Knowledge {
            tracker,
            chaos: chaos.clone(),
            pairs: RefCell::new(Pairs::default()),
            workload: RefCell::new(workload),
            numbers: RefCell::new(Numbers::default()),
            past: RefCell::default(),
            unstable: RefCell::default(),
            promises: RefCell::default(),
            volumes: RefCell::default(),
            duties: RefCell::default(),
            unanswered: RefCell::default(),
            promised: Cell::new(Position::ZERO),
            operations: Cell::new(0),
        };
        let (chance, spoiler) = (Chance::new(plan.seed, "story"), Chance::new(plan.seed, "spoiler"));
        let verifiers = Verifiers::default();
        Story {
            plan,
            clock,
            trace,
            coverage,
            chaos,
            machine,
            knowledge,
            chance,
            spoiler,
            verifiers,
            crashes: 0,
            failed_since: 0,
            left_behind: None,
            founded: Position::ZERO,
            log_lost: false,
            may_need_log: false,
            handles: Handles::default(),
            xids: Arc::new(AtomicU32::new(1)),
            listings: check::listing::Listings::default(),
        }
    }

    fn event(&self, who: &str, what: std::fmt::Arguments<'_>) {
        self.trace.event(who, what);
    }

    async fn run(&mut self) -> Checked {
        self.event("plan", format_args!("{:?}", self.plan));
        let mut opened = self.create().await?;
        let mut end = End::Power;
        for number in 0..self.plan.lives.len() {
            if number >= self.plan.lives_min && self.is_enough() {
                break;
            }
            let plan = self.plan.lives[number];
            if number > 0 {
                opened = self.open(&plan, end).await?;
                self.verify(&opened).await?;
            }
            end = self.live(&opened, number, &plan).await?;
            self.machine.nonces.check()?;
            let stored = opened.engine.status().stored;
            if end == End::Saved && plan.moves {
                self.event("machine", format_args!("is replaced; the bucket alone goes on"));
                self.left_behind = Some(self.machine.replace_disk());
            }
            if end == End::Power && plan.loses_log && stored >= self.founded {
                self.event("machine", format_args!("is lost with its log; the store is taken over"));
                self.coverage.hit("endings", "log lost");
                self.machine.replace_disk();
                self.log_lost = true;
            }
        }
        self.settle(end).await
    }

    /// Whether as much has happened as must in every history.
    fn is_enough(&self) -> bool {
        let opening = self.coverage.count("endings", "crash while opening");
        self.knowledge.operations.get() >= OPERATIONS_MIN && self.crashes >= CRASHES_MIN && opening > 0
    }

    /// The power goes while the store is opened, at a place of chance.
    fn cut_opening(&mut self, creating: bool) {
        let mut points = OPENING_POINTS[..if self.log_lost { 5 } else { 4 }].to_vec();
        if creating {
            points.extend(CREATING_POINTS);
        }
        let point = *self.chance.pick(&points);
        self.chaos.cut_power_at_point(point, 1);
    }

    /// The store, its volumes, and the model's beside them.
    async fn create(&mut self) -> Result<Opened, Failure> {
        let plan = self.plan.lives[0];
        let first = volume(0, &self.plan.volumes[0]);
        let opened = self.attempts(&plan, Some(first)).await?;
        self.chaos.calm();
        for number in 1..self.plan.volumes.len() {
            let made = opened.engine.create_volume(volume(number, &self.plan.volumes[number])).await;
            made.map_err(|error| Failure::new("create", "another volume", error.to_string()))?;
        }
        for (number, info) in opened.engine.volumes().iter().enumerate() {
            let attr = opened.engine.getattr(&Caller::root(), info.root).await;
            let attr = attr.map_err(|done| Failure::new("create", "a root", format!("{:?}", done.value.errno)))?.value;
            self.knowledge.tracker.set_clock(attr.btime);
            let model = self.knowledge.tracker.model.add_volume(&info.name, info.settings.clone(), &Caller::root());
            self.knowledge.pairs.borrow_mut().root(Slot(number as u32), info.root, model.root);
            if info.settings.write_speed == WriteSpeed::High {
                self.coverage.hit("volumes", "of write speed high");
                self.knowledge.tracker.set_high(model.root.volume);
            }
        }
        self.founded = opened.engine.log().appended();
        let made = check::volumes::volumes(&opened.engine);
        self.knowledge.volumes.borrow_mut().ask(made, Position::ZERO);
        self.knowledge.volumes.borrow_mut().done(Position::ZERO);
        // The volumes are durable; nothing else is yet.
        self.knowledge.tracker.begin_at(Position::ZERO);
        self.verifiers.opened(opened.fs.write_verifier(), false)?;
        Ok(opened)
    }

    async fn open(&mut self, plan: &LifePlan, end: End) -> Result<Opened, Failure> {
        if plan.jump_ms != 0 {
            self.coverage
                .hit("clock", if plan.jump_ms > 0 { "jumps ahead between lives" } else { "jumps back between lives" });
            self.event("clock", format_args!("jumps by {} ms", plan.jump_ms));
            self.clock.jump(plan.jump_ms);
        }
        let opened = self.attempts(plan, None).await?;
        self.verifiers.opened(opened.fs.write_verifier(), opened.report.clean)?;
        let (stopped, clean) = (matches!(end, End::Saved | End::Unsaved), opened.report.clean);
        // An attempt that failed may have gone so far that the next one cannot know.
        if (stopped && !clean && self.failed_since == 0) || (end == End::Lacking && clean) {
            return Err(Failure::new(
                "verifier",
                "an opening is clean after a clean stop",
                format!("{clean}, {end:?}"),
            ));
        }
        Ok(opened)
    }

    /// Opens, or creates, until it succeeds; power goes now and then.
    async fn attempts(&mut self, plan: &LifePlan, create: Option<VolumeSpec>) -> Result<Opened, Failure> {
        let mut create = create;
        self.failed_since = 0;
        for attempt in 0.. {
            let calm = attempt >= RAGING_ATTEMPTS;
            if calm {
                self.chaos.calm()
            } else {
                self.chaos.rage(plan)
            }
            let crashes = attempt < plan.opening_crashes;
            self.chaos.cut_power_at(None);
            if crashes {
                self.cut_opening(create.is_some());
            }
            let chaos = self.chaos.clone();
            let opened = tokio::select! {
                biased;
                () = chaos.power_gone.notified() => None,
                opened = self.machine.open(create.clone(), self.log_lost) => Some(opened),
                () = tokio::time::sleep(PATIENCE) => return Err(stuck("an opening")),
            };
            self.chaos.cut_power_at(None);
            match opened {
                None => {
                    self.crash().await?;
                    self.failed_since += 1;
                    self.coverage.hit("endings", "crash while opening");
                }
                Some(Ok((engine, report))) => {
                    self.event("machine", format_args!("opened: {report:?}"));
                    let log = engine.log().clone();
                    self.knowledge.tracker.follow(Arc::new(move || log.appended()));
                    let fs = self.machine.file_system(&engine);
                    let remote = self.plan.wire.then(|| self.remote(&engine, &fs));
                    return Ok(Opened { engine, fs, report, remote });
                }
                Some(Err(OpenError::Exists)) if create.is_some() && self.failed_since > 0 => create = None,
                Some(Err(OpenError::Elsewhere { .. })) if self.left_behind.is_some() && self.may_need_log => {
                    self.event("machine", format_args!("needs the log that was left behind"));
                    self.coverage.hit("endings", "moved back");
                    if let Some(disk) = self.left_behind.take() {
                        self.machine.disk = disk;
                    }
                    self.kill().await?;
                }
                Some(Err(error)) => {
                    self.event("machine", format_args!("does not open: {error}"));
                    let excused = is_away(&error) || (plan.spoilt_reads > 0 && is_spoilt(&error));
                    // SlateDB takes its own manifest, whose reply was lost, for another writer's.
                    let excused =
                        excused || (plan.store_faults + plan.store_spells > 0 && matches!(error, OpenError::Taken));
                    if calm || !excused {
                        return Err(Failure::new("opening", "a store that opens", format!("{error:?}: {error}")));
                    }
                    self.failed_since += 1;
                    self.kill().await?;
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        }
        Err(stuck("an opening"))
    }

    fn remote(&self, engine: &Arc<Engine>, fs: &Arc<dyn FileSystem>) -> Remote {
        let (world, tracker) = (self.machine.world(), &self.knowledge.tracker);
        let front = Front::new(fs, tracker, world, engine.log(), self.xids.clone());
        Remote { front, engine: fs.clone(), handles: self.handles.clone() }
    }

    /// Clients at work until the life ends as planned.
    async fn live(&mut self, opened: &Opened, number: usize, plan: &LifePlan) -> Result<End, Failure> {
        self.event("life", format_args!("{number} begins, ends with {:?}", plan.ending));
        self.knowledge.numbers.borrow_mut().begin_life();
        self.chaos.rage(plan);
        let (mut enough_at, mut device) = (None, None);
        match plan.ending {
            Ending::Operations(count) => enough_at = Some(plan.operations - count),
            Ending::Point(count) => self.chaos.cut_power_at(Some(count)),
            Ending::Named(name, count) => self.chaos.cut_power_at_point(name, count),
            Ending::Disk(count) => self.machine.disk.cut_power_after(count),
            Ending::Device(fault) => (enough_at, device) = (Some(plan.operations / 2), Some(fault)),
            Ending::Clean | Ending::CleanUntil(_) => {}
        }
        let life = Life {
            knowledge: &self.knowledge,
            fs: opened.fs.clone(),
            remote: opened.remote.clone(),
            log: opened.engine.log().clone(),
            began: opened.engine.log().appended().max(opened.report.last),
            think_ms: self.plan.think_ms,
            power_may_go: matches!(plan.ending, Ending::Disk(_)),
            left: Cell::new(plan.operations),
            enough: Notify::new(),
            enough_at: Cell::new(enough_at),
        };
        let clients = (0..self.plan.clients).map(|client| {
            let chance = Chance::new(self.plan.seed, &format!("client {client} of life {number}"));
            life.client(client, chance)
        });
        let (seed, engine) = (self.plan.seed, &opened.engine);
        let admin = life.administer(engine.clone(), Chance::new(seed, &format!("admin of life {number}")));
        let collector = life.collect(engine.clone(), Chance::new(seed, &format!("reclaim of life {number}")));
        let others = async {
            let admin = async { if plan.administered { admin.await } else { Ok(()) } };
            let collector = async { if plan.collects { collector.await } else { Ok(()) } };
            futures::future::try_join(admin, collector).await.map(|_| ())
        };
        let clients = futures::future::try_join(try_join_all(clients), others);
        let crashes = self.work(clients, &life, plan, device).await?;
        drop(life);
        self.note_dedupe(opened);
        if !crashes {
            return self.close(opened, plan).await;
        }
        if matches!(plan.ending, Ending::Disk(_)) {
            self.coverage.hit("disk faults", "power goes amid a write");
        }
        self.coverage.hit("endings", format!("crash: {}", plan.ending.name()));
        self.crash().await?;
        Ok(End::Power)
    }

    /// What dedupe came to in this life.
    fn note_dedupe(&self, opened: &Opened) {
        let totals = opened.engine.status().dedupe;
        if totals.hits > 0 {
            self.coverage.hit("dedupe", "content is shared");
        }
        if totals.read_back > 0 {
            self.coverage.hit("dedupe", "what an earlier life stored is read back and shared");
        }
    }

    /// Lets the clients work until they have done or something ends it; says whether the power goes.
    async fn work<C>(
        &self,
        clients: C,
        life: &Life<'_>,
        plan: &LifePlan,
        device: Option<DeviceFault>,
    ) -> Result<bool, Failure>
    where
        C: Future<Output = Result<(Vec<()>, ()), Failure>>,
    {
        let mut clients = Some(Box::pin(clients));
        let mut power = false;
        if let Some(fault) = device {
            self.wait(&mut clients, life, PATIENCE).await?;
            self.coverage.hit("disk faults", fault.name());
            match fault {
                DeviceFault::Flush => self.machine.disk.fail_next_flush(),
                DeviceFault::Write => self.machine.disk.fail_next_write(),
                DeviceFault::ForEver => self.machine.disk.break_down(),
            }
        }
        if clients.is_some() {
            power = self.wait(&mut clients, life, PATIENCE).await? && device.is_none();
        }
        let crashes = power || !matches!(plan.ending, Ending::Clean | Ending::CleanUntil(_));
        if crashes && self.chaos.draw(2) == 0 {
            // Those on their way go on for a moment.
            let moment = Duration::from_millis(1 + self.chaos.draw(60));
            if let Some(clients) = &mut clients {
                tokio::select! {
                    biased;
                    () = tokio::time::sleep(moment) => {}
                    done = clients => { done?; }
                }
            }
        }
        Ok(crashes)
    }

    /// Waits for the clients' end, or for what ends the life before: then it says so.
    async fn wait<C>(&self, clients: &mut Option<C>, life: &Life<'_>, patience: Duration) -> Result<bool, Failure>
    where
        C: Future<Output = Result<(Vec<()>, ()), Failure>> + Unpin,
    {
        let Some(running) = clients else { return Ok(false) };
        let ended = tokio::select! {
            biased;
            () = self.chaos.power_gone.notified() => true,
            () = life.enough.notified() => true,
            done = running => {
                done?;
                false
            }
            () = tokio::time::sleep(patience) => return Err(stuck("a life")),
        };
        if !ended {
            *clients = None;
        }
        Ok(ended)
    }

    /// A clean stop, or the attempt.
    async fn close(&mut self, opened: &Opened, plan: &LifePlan) -> Result<End, Failure> {
        if let Ending::CleanUntil(points) = plan.ending {
            match CLOSING_POINTS.get(points as usize) {
                Some(point) => self.chaos.cut_power_at_point(point, 1),
                None => self.chaos.cut_power_at(Some(points - 1)),
            }
        }
        let last = opened.engine.log().appended();
        self.may_need_log =
            plan.store_faults > 0 || plan.store_spells > 0 || plan.spoilt_reads > 0 || plan.store_full > 0;
        let chaos = self.chaos.clone();
        let closed = tokio::select! {
            biased;
            () = chaos.power_gone.notified() => None,
            closed = opened.engine.close() => Some(closed),
            () = tokio::time::sleep(PATIENCE) => return Err(stuck("a clean stop")),
        };
        self.chaos.cut_power_at(None);
        let end = match closed {
            None => {
                self.coverage.hit("endings", "crash while stopping");
                self.crash().await?;
                return Ok(End::Power);
            }
            Some(Ok(())) => End::Saved,
            Some(Err(error)) => {
                self.event("machine", format_args!("stopped, but {error}"));
                if matches!(error, CheckpointError::Lost { .. }) { End::Lacking } else { End::Unsaved }
            }
        };
        self.event("machine", format_args!("stopped: {end:?}"));
        self.coverage.hit("endings", format!("stopped: {end:?}"));
        // Whoever stops cleanly has made everything durable, asked or not.
        self.knowledge.promised.set(self.knowledge.promised.get().max(last));
        self.kill().await?;
        self.machine.disk.crash();
        Ok(end)
    }

    /// The power goes.
    async fn crash(&mut self) -> Checked {
        self.crashes += 1;
        self.event("power", format_args!("is cut; {} was promised", self.knowledge.promised.get()));
        no_panics(self.machine.cut_power().await)?;
        check::damage::check(&self.machine.disk, &master(), &mut self.spoiler)
    }

    /// The process ends, the machine goes on.
    async fn kill(&mut self) -> Checked {
        no_panics(self.machine.tasks.kill().await)
    }

    /// Holds what was recovered against the model, which goes back to that position.
    async fn verify(&mut self, opened: &Opened) -> Checked {
        self.chaos.calm();
        let recovered = opened.report.last;
        let taken = std::mem::take(&mut self.log_lost);
        if taken {
            // What only the log held is gone, and everybody is told so.
            self.knowledge.promised.set(opened.report.position);
        }
        let promised = self.knowledge.promised.get();
        self.event("check", format_args!("recovered {recovered}, promised {promised}"));
        check::promise::kept(promised, recovered)?;
        let tracker = self.knowledge.tracker.clone();
        let Some((at, model)) = tracker.at(recovered) else {
            let expected = format!("a position that was given out: {:?}", tracker.positions());
            return Err(Failure::new("promise", expected, recovered.to_string()));
        };
        tracker.model.restore(&model);
        self.check_bypass(opened).await?;
        let held: Vec<Lock> =
            tracker.model.locks().into_iter().filter(|info| !info.waiting).map(|info| info.lock).collect();
        let holders: Vec<Bytes> = held.iter().map(|lock| lock.owner.client.clone()).collect();
        if self.left_behind.take().is_some() || taken {
            self.coverage.hit("endings", if taken { "taken over" } else { "moved" });
            check::locks::told(&*opened.fs, &holders)?;
            let twin =
                |lock: &Lock| self.knowledge.pairs.borrow().twin(lock.node).map(|node| Lock { node, ..lock.clone() });
            let held: Vec<Lock> = held.iter().filter_map(twin).collect();
            check::grace::check(&*opened.fs, &held).await?;
            self.knowledge.past.borrow_mut().clear();
            self.knowledge.unanswered.borrow_mut().clear();
            tracker.model.lose_session_state();
        }
        let (slots, twins) = self.knowledge.pairs.borrow_mut().forget_after(at);
        self.forget(&slots, &twins, recovered);
        tracker.begin_at(recovered);
        self.event("check", format_args!("the model goes back to {at}"));
        self.knowledge.volumes.borrow_mut().check(&opened.engine, recovered)?;
        self.check_listings(opened, taken).await?;
        let model = tracker.model.snapshot();
        self.check_all(opened, &model, &lost(&model, &twins)).await?;
        if self.chance.percent(40) {
            check::walk::check(&opened.engine).await?;
        }
        Ok(())
    }

    /// Holds lost UNSTABLE data against what may be lost; the model becomes what is left.
    async fn check_bypass(&self, opened: &Opened) -> Checked {
        let Knowledge { tracker, pairs, promises, .. } = &self.knowledge;
        let twin = |node| pairs.borrow().twin(node);
        let mut kept = promises.take();
        let (fs, least) = (&*opened.fs, self.plan.bypass.write_min as u64);
        let met = check::bypass::check(fs, tracker, twin, &mut kept, &opened.report, least).await?;
        promises.replace(kept);
        met.into_iter().for_each(|name| self.coverage.hit("bypass", name));
        Ok(())
    }

    /// Listings that were begun before go on; others begin.
    async fn check_listings(&mut self, opened: &Opened, lost: bool) -> Checked {
        if lost {
            self.listings.forget();
        }
        let mut dirs: Vec<Node> = {
            let pairs = self.knowledge.pairs.borrow();
            (0..self.plan.volumes.len()).map(|number| pairs.engine[&Slot(number as u32)]).collect()
        };
        let some = self.knowledge.workload.borrow().directories();
        let pairs = self.knowledge.pairs.borrow().engine.clone();
        dirs.extend(some.iter().filter_map(|slot| pairs.get(slot)).take(2));
        self.listings.go_on(&*opened.seen(), &dirs, &mut self.chance).await
    }

    /// What clients knew of what came after `recovered` is void.
    fn forget(&mut self, slots: &[Slot], twins: &[(Node, Node)], recovered: Position) {
        let knowledge = &self.knowledge;
        knowledge.workload.borrow_mut().forget(slots);
        knowledge.past.borrow_mut().retain(|past| past.at <= recovered);
        let gone: Vec<Node> = twins.iter().map(|(_, engine)| *engine).collect();
        knowledge.unstable.borrow_mut().recovered(recovered, &gone);
        let mut unanswered = knowledge.unanswered.borrow_mut();
        let pairs = knowledge.pairs.borrow();
        unanswered.retain(|_, call| remote::still_meant(call, |node| pairs.twin(node).is_some()));
        let tags: Vec<u32> = unanswered.values().map(|call| call.issue.tag).collect();
        knowledge.tracker.keep(&tags);
    }

    /// Everything that must hold of an engine in which nobody works.
    async fn check_all(&mut self, opened: &Opened, model: &tarn_vfs::model::Model, lost: &[Node]) -> Checked {
        let seen = opened.seen();
        let fs = &*seen;
        for number in 0..self.plan.volumes.len() {
            let slot = Slot(number as u32);
            let (root, model_root) = {
                let pairs = self.knowledge.pairs.borrow();
                (pairs.engine[&slot], pairs.model[&slot])
            };
            check::tree::check(fs, root, &model.snapshot(), model_root).await?;
        }
        check::locks::check(fs, model, &self.knowledge.pairs.borrow())?;
        check::lost::check(fs, lost).await?;
        let past = self.knowledge.past.borrow().clone();
        for _ in 0..past.len().min(4) {
            let one = self.chance.pick(&past);
            match &opened.remote {
                Some(remote) if one.call.is_some() => remote.repeats(one).await?,
                _ => check::once::check(fs, one).await?,
            }
        }
        Ok(())
    }
}

fn no_panics(panicked: Vec<&'static str>) -> Checked {
    match panicked.first() {
        None => Ok(()),
        Some(_) => Err(Failure::new("panic", "tasks that come to their end", format!("panicked: {panicked:?}"))),
    }
}

fn stuck(what: &str) -> Failure {
    Failure::new("progress", format!("{what} comes to its end within {PATIENCE:?}"), "it does not")
}

/// Of objects that nobody knows any more, the engine's nodes of those that are not there in `model`.
fn lost(model: &tarn_vfs::model::Model, twins: &[(Node, Node)]) -> Vec<Node> {
    let gone = |node: Node| matches!(model.getattr(&Caller::root(), node).now_or_never(), Some(Err(_)) | None);
    twins.iter().filter(|(model, _)| gone(*model)).map(|(_, engine)| *engine).collect()
}

/// What an opening says while the store does not answer.
fn is_away(error: &OpenError) -> bool {
    matches!(error, OpenError::Store(_) | OpenError::Meta(_) | OpenError::Volume(_))
}

/// What it may say of an object that was spoilt on the way.
fn is_spoilt(error: &OpenError) -> bool {
    use OpenError::{Damaged, Newer, OwnerDamaged, WrongKey};
    matches!(error, Damaged(_) | OwnerDamaged(_) | WrongKey | Newer(_))
}
