//! A process of the load: one operation after the other, when it is due, on its own share of the files.
//!
//! - With a rate, latency counts from the moment an operation was due, whenever it could begin: a slow server is not
//!   spared the operations that it delayed. In a closed loop it counts from the end of the one before: what the generator
//!   takes in between counts too, so that outstanding operations are the rate times the mean latency.
//! - What is due comes at the process's pace with jitter: between a half and one and a half of the mean distance.
//! - Every answer is judged against what the generator knows; one wrong byte ends the run.

use crate::Outcome;
use crate::drive::pattern::{Pattern, SECTOR};
use crate::drive::random::{Deck, Random, Shares};
use crate::drive::reactor::Reactor;
use crate::workload::definition::{Component, Kind, Operation, Stability};
use crate::workload::files::{File, Files, settle};
use crate::workload::place::{Node, Place};
use crate::workload::record::Recorder;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::{Duration, Instant};

/// Bytes between two COMMITs of a stream.
const STREAM_COMMIT: u64 = 16 << 20;
/// Bytes that are compared at once, a multiple of [`SECTOR`]: between two pieces begins what is due.
const PIECE: usize = 64 << 10;
/// Places that are tried until one is free of operations in flight.
const TRIES: usize = 64;

/// What all operations in flight of one process share.
pub struct Process {
    pub reactor: Reactor,
    pub place: Rc<Place>,
    pub pattern: Rc<Pattern>,
    pub files: Rc<Files>,
    pub component: Rc<Component>,
    /// Its index among the run's components.
    pub component_index: usize,
    pub recorder: Rc<Recorder>,
    /// Indices of the files it works on.
    pub share: Vec<usize>,
    /// The next file of a component that takes each once.
    pub next: Rc<Cell<usize>>,
    /// The file, by its place in the share, that sequential operations are in.
    pub current: Cell<usize>,
    pub shares: Shares,
    /// All processes of the component draw their operations from one deck.
    pub deck: Rc<RefCell<Deck>>,
    pub sizes: Vec<Shares>,
    pub random: RefCell<Random>,
    /// Where it makes and removes files, and those that are there.
    pub scratch: RefCell<Scratch>,
}

/// Files that CREATE made and REMOVE takes away.
#[derive(Default)]
pub struct Scratch {
    pub prefix: String,
    pub count: u64,
    pub names: Vec<(usize, String)>,
}

/// How long and how fast.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    pub begin: Instant,
    pub end: Instant,
    /// Between two operations of the process; `None`: a closed loop.
    pub distance: Option<Duration>,
}

/// What an operation moved.
#[derive(Clone, Copy, Debug)]
pub struct Done {
    pub at: Instant,
    pub read: u64,
    pub written: u64,
}

impl Done {
    fn at(at: Instant) -> Done {
        Done { at, read: 0, written: 0 }
    }
}

impl Process {
    /// Runs until the end or until there is nothing more to do.
    pub async fn run(self: Rc<Process>, pace: Pace) {
        let phase = self.random.borrow_mut().unit();
        // All begin at one moment, which the recorder knows.
        self.reactor.sleep_until(pace.begin).await;
        let mut due = match pace.distance {
            Some(distance) => pace.begin + distance.mul_f64(phase),
            None => Instant::now(),
        };
        loop {
            if pace.distance.is_some() {
                let idle = Instant::now() < due;
                self.reactor.sleep_until(due).await;
                if idle && !self.reactor.stopping() {
                    self.recorder.late(due, due.elapsed());
                }
            }
            if self.reactor.stopping() || due >= pace.end {
                return;
            }
            let index = self.shares.at(self.deck.borrow_mut().draw());
            let operation = &self.component.operation[index];
            let done = match self.operate(operation, index).await {
                Ok(Some(done)) => done,
                Ok(None) => return,
                Err(error) => {
                    return self.reactor.fail(format!("{}: {}: {error}", self.component.name, operation.op.name()));
                }
            };
            self.recorder.done(self.component_index, operation.op, due, done);
            match pace.distance {
                Some(distance) => due += distance.mul_f64(0.5 + self.random.borrow_mut().unit()),
                None => due = done.at,
            }
        }
    }

    /// One operation; `None` when everything has been done once.
    async fn operate(&self, operation: &Operation, index: usize) -> Outcome<Option<Done>> {
        let done = match operation.op {
            kind if kind.moves_data() => return self.move_data(operation, index).await,
            Kind::Create | Kind::Remove | Kind::Mkdir | Kind::Rename => self.change_names(operation.op).await?,
            Kind::Readlink => Done::at(self.readlink().await?),
            Kind::Readdir | Kind::Readdirplus => Done::at(self.list(operation.op == Kind::Readdirplus).await?),
            Kind::Fsstat => Done::at(self.place.fsstat().await?),
            kind => Done::at(self.ask(kind).await?),
        };
        Ok(Some(done))
    }

    /// A call about one file that exists.
    async fn ask(&self, kind: Kind) -> Outcome<Instant> {
        let Some((file, node)) = self.existing() else { return self.place.fsstat().await };
        match kind {
            Kind::Getattr => {
                let (size, at) = self.place.getattr(&node).await?;
                let file = self.files.files[file].borrow();
                if file.written && size < file.size {
                    return Err(format!("{} has {size} bytes of {}", file.name, file.size));
                }
                Ok(at)
            }
            Kind::Lookup => {
                let (directory, name) = self.stands(file);
                let (found, at) = self.place.lookup(&directory, &name).await?;
                match (&found, &node) {
                    (Node::Remote { fileid: found, .. }, Node::Remote { fileid, .. }) if found != fileid => {
                        Err(format!("LOOKUP of {name} found file {found}, not {fileid}"))
                    }
                    _ => Ok(at),
                }
            }
            Kind::Access => self.place.access(&node).await,
            _ => {
                let group = self.random.borrow_mut().below(8) as u32;
                self.place.setattr(&node, 0o600 + group * 8).await
            }
        }
    }

    async fn readlink(&self) -> Outcome<Instant> {
        let with: Vec<usize> = (0..self.files.directories.len())
            .filter(|index| !self.files.directories[*index].links.is_empty())
            .collect();
        if with.is_empty() {
            return self.place.fsstat().await;
        }
        let picked = with[self.random.borrow_mut().below(with.len() as u64) as usize];
        let links = &self.files.directories[picked].links;
        let (_, node) = &links[self.random.borrow_mut().below(links.len() as u64) as usize];
        let (to, at) = self.place.readlink(node).await?;
        if to.starts_with(b"to-") { Ok(at) } else { Err("a link leads elsewhere".to_owned()) }
    }

    async fn list(&self, plus: bool) -> Outcome<Instant> {
        let index = self.random.borrow_mut().below(self.files.directories.len() as u64) as usize;
        let directory = &self.files.directories[index];
        let (mut names, at) = self.place.readdir(&directory.node, plus).await?;
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        if names.len() < count {
            return Err(format!("a listing of {} names something twice", directory.name));
        }
        Ok(at)
    }

    async fn change_names(&self, kind: Kind) -> Outcome<Done> {
        let directories = &self.files.directories;
        if kind == Kind::Create || kind == Kind::Mkdir || self.scratch.borrow().names.is_empty() {
            let (index, name) = {
                let mut scratch = self.scratch.borrow_mut();
                scratch.count += 1;
                let index = self.random.borrow_mut().below(directories.len() as u64) as usize;
                (index, format!("{}{}", scratch.prefix, scratch.count))
            };
            if kind == Kind::Mkdir {
                return Ok(Done::at(self.place.mkdir(&directories[index].node, &format!("d{name}")).await?.1));
            }
            let (_, at) = self.place.create(&directories[index].node, &name).await?;
            self.scratch.borrow_mut().names.push((index, name));
            // A REMOVE with nothing to remove begins with the CREATE of what it removes.
            if kind == Kind::Create {
                return Ok(Done::at(at));
            }
        }
        let (index, name) = self.take_scratch();
        if kind == Kind::Rename {
            let to = format!("{name}r");
            let at = self.place.rename(&directories[index].node, &name, &to).await?;
            self.scratch.borrow_mut().names.push((index, to));
            return Ok(Done::at(at));
        }
        Ok(Done::at(self.place.remove(&directories[index].node, &name).await?))
    }

    fn take_scratch(&self) -> (usize, String) {
        let mut scratch = self.scratch.borrow_mut();
        let picked = self.random.borrow_mut().below(scratch.names.len() as u64) as usize;
        scratch.names.swap_remove(picked)
    }

    async fn move_data(&self, operation: &Operation, index: usize) -> Outcome<Option<Done>> {
        let kind = operation.op;
        let size = operation.sizes[self.sizes[index].pick(&mut self.random.borrow_mut())].0;
        let whole = matches!(kind, Kind::ReadFile | Kind::WriteFile | Kind::RewriteFile);
        let picked = if self.component.once {
            let at = self.next.replace(self.next.get() + 1);
            let Some(file) = self.share.get(at) else { return Ok(None) };
            *file
        } else if matches!(kind, Kind::ReadSequential | Kind::WriteSequential) {
            self.stream(size)
        } else {
            let touched = ((self.share.len() as f64 * self.files.touched).ceil() as u64).max(1);
            self.share[self.random.borrow_mut().below(touched) as usize]
        };
        if whole || self.component.once {
            return self.whole(operation, picked, size).await.map(Some);
        }
        let Some((from, to)) = self.claim(picked, kind, size) else {
            // Everything is in flight: an attribute is asked for instead, so that the pace holds.
            return self.ask(Kind::Getattr).await.map(|at| Some(Done::at(at)));
        };
        let node = self.open(picked).await?;
        let done = match kind.writes() {
            true => self.write(picked, &node, from, to, operation.stable).await,
            false => self.read(picked, &node, from, to).await,
        };
        self.files.files[picked].borrow_mut().release(from, to, kind.writes());
        done.map(Some)
    }

    /// The file that is being streamed; at its end the next one.
    fn stream(&self, size: u64) -> usize {
        let at = self.current.get();
        let file = self.files.files[self.share[at]].borrow();
        if file.cursor + size.min(file.size) > file.size {
            drop(file);
            let next = (at + 1) % self.share.len();
            self.current.set(next);
            self.files.files[self.share[next]].borrow_mut().cursor = 0;
            return self.share[next];
        }
        self.share[at]
    }

    /// A range of `size` bytes or of the whole file if that is less, free of operations in flight.
    fn claim(&self, file: usize, kind: Kind, size: u64) -> Option<(u64, u64)> {
        let mut file = self.files.files[file].borrow_mut();
        let size = size.min(file.size);
        for _ in 0..TRIES {
            let from = match kind {
                Kind::ReadSequential | Kind::WriteSequential => {
                    let from = if file.cursor + size > file.size { 0 } else { file.cursor };
                    file.cursor = from + size;
                    from
                }
                // Aligned to the operation's size where it fits several times, as block loads are.
                _ if file.size >= 2 * size => self.random.borrow_mut().below(file.size / size) * size,
                _ => self.random.borrow_mut().below((file.size - size) / SECTOR + 1) * SECTOR,
            };
            if file.claim(from, from + size, kind.writes()) {
                return Some((from, from + size));
            }
        }
        None
    }

    async fn read(&self, index: usize, node: &Node, from: u64, to: u64) -> Outcome<Done> {
        let (data, at) = self.place.read(node, from, to - from).await?;
        if (data.len() as u64) < to - from {
            let name = &self.files.files[index].borrow().name;
            return Err(format!("{name}: a read at {from} brought {} of {} bytes", data.len(), to - from));
        }
        for (piece, at) in data.chunks(PIECE).zip((from..).step_by(PIECE)) {
            if at > from {
                self.reactor.give_way();
            }
            self.files.files[index].borrow().check(&self.pattern, at, piece)?;
        }
        Ok(Done { at, read: data.len() as u64, written: 0 })
    }

    async fn write(&self, index: usize, node: &Node, from: u64, to: u64, stable: Stability) -> Outcome<Done> {
        let (id, versions) = {
            let file = self.files.files[index].borrow();
            (file.id, file.next_versions(from, to))
        };
        let fill = |at, out: &mut [u8]| self.pattern.fill(out, id, at, &versions[((at - from) / SECTOR) as usize..]);
        let mut pending = Vec::new();
        let mut at = self.place.write(node, (from, to - from), &fill, stable, &mut pending).await?;
        let pending = {
            let mut file = self.files.files[index].borrow_mut();
            file.set_versions(from, &versions);
            file.pending.append(&mut pending);
            let gathered: u64 = file.pending.iter().map(|range| range.size).sum();
            let now = stable == Stability::Commit || gathered >= STREAM_COMMIT;
            if now { std::mem::take(&mut file.pending) } else { Vec::new() }
        };
        if !pending.is_empty() {
            at = self.settle(index, node, pending).await?;
        }
        Ok(Done { at, read: 0, written: to - from })
    }

    async fn settle(&self, index: usize, node: &Node, pending: Vec<super::place::Pending>) -> Outcome<Instant> {
        let file = &self.files.files[index];
        let id = file.borrow().id;
        settle(&self.place, &self.pattern, node, id, |sectors| file.borrow().versions[sectors].to_vec(), pending).await
    }

    /// The whole file from its beginning to its end, `step` bytes a call.
    async fn whole(&self, operation: &Operation, index: usize, step: u64) -> Outcome<Done> {
        let kind = operation.op;
        let (size, free) = {
            let mut file = self.files.files[index].borrow_mut();
            (file.size, file.claim(0, u64::MAX, kind.writes()))
        };
        if !free {
            return self.ask(Kind::Getattr).await.map(Done::at);
        }
        let done = self.whole_claimed(operation, index, size, step).await;
        self.files.files[index].borrow_mut().release(0, u64::MAX, kind.writes());
        done
    }

    async fn whole_claimed(&self, operation: &Operation, index: usize, size: u64, step: u64) -> Outcome<Done> {
        let kind = operation.op;
        let node = if kind == Kind::WriteFile { self.renew(index).await? } else { self.open(index).await? };
        if kind != Kind::WriteFile {
            let (directory, name) = self.stands(index);
            self.place.lookup(&directory, &name).await?;
        }
        let mut done = Done::at(Instant::now());
        let mut at = 0;
        while at < size {
            let to = (at + step).min(size);
            let part = match kind.writes() {
                true => self.write(index, &node, at, to, Stability::Stream).await?,
                false => self.read(index, &node, at, to).await?,
            };
            done = Done { at: part.at, read: done.read + part.read, written: done.written + part.written };
            at = to;
        }
        let pending = std::mem::take(&mut self.files.files[index].borrow_mut().pending);
        if !pending.is_empty() {
            done.at = self.settle(index, &node, pending).await?;
        }
        if kind.writes() {
            self.files.files[index].borrow_mut().written = true;
        }
        Ok(done)
    }

    /// The file; one that was not made yet is made now.
    async fn open(&self, index: usize) -> Outcome<Node> {
        let node = self.files.files[index].borrow().node.clone();
        match node {
            Some(node) => Ok(node),
            None => self.renew(index).await,
        }
    }

    /// A new, empty file in place of the old one.
    async fn renew(&self, index: usize) -> Outcome<Node> {
        let (directory, name) = self.stands(index);
        let was = self.files.files[index].borrow_mut().node.take();
        if was.is_some() {
            self.place.remove(&directory, &name).await?;
        }
        let (node, _) = self.place.create(&directory, &name).await?;
        let mut file = self.files.files[index].borrow_mut();
        file.node = Some(node.clone());
        file.pending.clear();
        file.written = false;
        Ok(node)
    }

    fn stands(&self, index: usize) -> (Node, String) {
        let file = self.files.files[index].borrow();
        (self.files.directories[file.directory].node.clone(), file.name.clone())
    }

    /// A file of the share that exists now.
    fn existing(&self) -> Option<(usize, Node)> {
        for _ in 0..TRIES {
            let touched = ((self.share.len() as f64 * self.files.touched).ceil() as u64).max(1);
            let index = self.share[self.random.borrow_mut().below(touched) as usize];
            let file: std::cell::Ref<File> = self.files.files[index].borrow();
            if let Some(node) = &file.node {
                return Some((index, node.clone()));
            }
        }
        None
    }
}
