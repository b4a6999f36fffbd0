//! UNSTABLE data that passed the log by may be lost in a crash, and then what was there before it shows; nothing else of a
//! file is lost.
//!
//! - Lost are writes that a client made UNSTABLE, and of the size that may pass the log by.
//! - A piece of a file is older than the model's only if every write over it since is lost, no COMMIT that was answered covers
//!   them, and no recovery or clean stop came after them. It is what it was at some moment since then, as a whole.
//! - What is left then is the truth: the model is patched, and later recoveries find the same.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use tarn_base::ids::Position;
use tarn_engine::{LostData, RecoveryReport};
use tarn_vfs::{Caller, FileSystem, Node};

use crate::failure::{Checked, Failure};
use crate::tracker::{Laid, Tracker};

const NAME: &str = "bypass";
/// Pieces are compared within the smallest records: how much of a write has become durable may differ from one to the next.
const PIECE: u64 = 4096;

/// Some recovery reported lost data.
pub const LOST: &str = "data was lost";
/// And bytes of it were not those of the model.
pub const SHOWED: &str = "lost bytes showed";
/// Data of an entry that lacks it was committed in time.
pub const COMMITTED: &str = "what was committed is there";

/// What makes UNSTABLE data last, over all lives.
#[derive(Debug, Default)]
pub struct Promises {
    /// By file of the model: where a COMMIT took effect, and the last change that it covered, for each. It brings data into the
    /// log up to where it took effect: of a log that is lost, only what came before counts.
    committed: BTreeMap<Node, BTreeSet<(Position, Position)>>,
    /// Up to where openings have recovered.
    recovered: BTreeSet<Position>,
    /// What openings found missing, as far as the last one has recovered.
    lost: Vec<LostData>,
}

impl Promises {
    /// A COMMIT was answered that began when `last` was the file's last change, and took effect at `at`.
    pub fn committed(&mut self, node: Node, at: Position, last: Position) {
        self.committed.entry(node).or_default().insert((at, last));
    }

    /// What an opening up to `report.last` may lack. Without the log the store goes on from the middle of what the opening before
    /// had replayed.
    fn may_lack(&self, report: &RecoveryReport) -> Vec<LostData> {
        let again = self.recovered.last().is_some_and(|before| report.last < *before);
        let before = self.lost.iter().filter(|data| again && data.position <= report.last);
        report.bypassed.iter().chain(before).copied().collect()
    }

    fn recovered(&mut self, position: Position, bypassed: &[LostData]) {
        self.recovered.retain(|at| *at <= position);
        self.recovered.insert(position);
        self.committed.values_mut().for_each(|all| all.retain(|(at, _)| *at <= position));
        self.lost.extend(bypassed.iter().copied());
        self.lost.sort_by_key(|data| (data.position, data.offset));
        self.lost.dedup();
        self.lost.retain(|data| data.position <= position);
    }

    /// Up to where a COMMIT covers the file's changes, of those up to `position`.
    fn commit_of(&self, node: Node, position: Position) -> Position {
        let of_node = self.committed.get(&node).into_iter().flatten().filter(|(at, _)| *at <= position);
        of_node.map(|(_, last)| *last).max().unwrap_or(Position::ZERO)
    }

    /// Up to where an opening has recovered, of those up to `position`.
    fn recovery_before(&self, position: Position) -> Position {
        self.recovered.range(..=position).next_back().copied().unwrap_or(Position::ZERO)
    }
}

/// A file of which data may be lost.
struct File {
    engine: Node,
    /// In the model.
    node: Node,
    size: u64,
    /// All that was done to its bytes.
    laid: Vec<Laid>,
    lost: Vec<(Position, Range<u64>)>,
}

impl File {
    /// Ranges within which each operation did the same to every byte, as far as data may be lost there.
    fn pieces(&self) -> Vec<Range<u64>> {
        let ranges = self.laid.iter().map(|laid| &laid.bytes).chain(self.lost.iter().map(|(_, bytes)| bytes));
        let mut cuts: BTreeSet<u64> = ranges.flat_map(|bytes| [bytes.start, bytes.end]).collect();
        for (_, bytes) in &self.lost {
            cuts.extend((bytes.start / PIECE..bytes.end.div_ceil(PIECE)).map(|number| number * PIECE));
        }
        cuts.insert(self.size);
        let ends = cuts.iter().skip(1);
        let pieces = cuts.iter().zip(ends).map(|(start, end)| *start..*end);
        let may_lack = |piece: &Range<u64>| self.lost.iter().any(|(_, bytes)| covers(bytes, piece));
        pieces.filter(|piece| piece.end <= self.size && may_lack(piece)).collect()
    }

    /// The last operation that certainly made a piece what it was then.
    fn certain(&self, piece: &Range<u64>) -> Position {
        let is_lost = |at| self.lost.iter().any(|(lost, bytes)| *lost == at && covers(bytes, piece));
        let certain = |laid: &&Laid| covers(&laid.bytes, piece) && !is_lost(laid.at);
        self.laid.iter().rev().find(certain).map_or(Position::ZERO, |laid| laid.at)
    }
}

/// Holds what an opening found missing against what may be; the tracker's model, which is that of the recovered position,
/// becomes what is left. Gives what was met. `twin`: the engine's object that is one of the model; `write_min`: bytes of a write
/// that passes the log by, at least.
pub async fn check(
    engine: &dyn FileSystem,
    tracker: &Tracker,
    twin: impl Fn(Node) -> Option<Node>,
    promises: &mut Promises,
    report: &RecoveryReport,
    write_min: u64,
) -> Result<Vec<&'static str>, Failure> {
    let recovered = report.last;
    // What a crash before took may not be in the store yet.
    if report.clean && report.lost.iter().any(|lost| lost.position.incarnation() == report.incarnation) {
        let found = format!("{:?}", report.lost);
        return Err(Failure::new(NAME, "a clean stop leaves nothing out of log and store", found));
    }
    let lost = promises.may_lack(report);
    let mut met = Vec::new();
    for file in files(tracker, &lost, twin, recovered, write_min)? {
        let (before, commit) = (promises.recovery_before(recovered), promises.commit_of(file.node, recovered));
        // Who stops cleanly has made everything durable.
        let floor = if report.clean { recovered } else { before.max(commit) };
        if file.lost.iter().any(|(at, _)| before < *at && *at <= commit) {
            met.push(COMMITTED);
        }
        for piece in file.pieces() {
            let count = (piece.end - piece.start) as usize;
            let found = read(engine, file.engine, &piece).await?;
            if tracker.model.peek(file.node, piece.start, count).is_some_and(|meant| meant == found) {
                continue;
            }
            let since = floor.max(file.certain(&piece));
            let values = tracker.values(file.node, piece.clone(), since, recovered);
            is_one_of(&file, &piece, &found, &values)?;
            met.push(SHOWED);
            tracker.model.patch(file.node, piece.start, &found);
        }
    }
    if !report.bypassed.is_empty() {
        met.push(LOST);
    }
    promises.recovered(recovered, &report.bypassed);
    Ok(met)
}

/// The files that are still there, with what may be lost of them.
fn files(
    tracker: &Tracker,
    lost: &[LostData],
    twin: impl Fn(Node) -> Option<Node>,
    recovered: Position,
    write_min: u64,
) -> Result<Vec<File>, Failure> {
    let mut files: BTreeMap<Node, File> = BTreeMap::new();
    for data in lost {
        let bytes = data.offset..data.offset.saturating_add(data.len);
        let write = tracker.laid_at(data.position);
        let may_pass = |laid: &Laid| laid.unstable && laid.bytes.end - laid.bytes.start >= write_min;
        let Some(write) = write.filter(|write| may_pass(write) && covers(&write.bytes, &bytes)) else {
            let expected = format!("lost data is that of an UNSTABLE write of {write_min} bytes or more");
            return Err(Failure::new(
                NAME,
                expected,
                format!("{data:?}, where there was {:?}", tracker.laid_at(data.position)),
            ));
        };
        let (node, engine) = (write.node, twin(write.node));
        // What nobody knows any more, or is gone, is left to the comparison of the trees.
        let (Some(engine), Some(size)) = (engine, tracker.model.size(node)) else { continue };
        if (engine.volume, engine.ino) != (data.volume, data.ino) {
            let expected = format!("lost data of a write of inode {:x}", engine.ino.0);
            return Err(Failure::new(NAME, expected, format!("{data:?}")));
        }
        let laid = || tracker.laid(node, recovered);
        let file = files.entry(node).or_insert_with(|| File { engine, node, size, laid: laid(), lost: Vec::new() });
        file.lost.push((write.at, bytes));
    }
    Ok(files.into_values().collect())
}

fn is_one_of(file: &File, piece: &Range<u64>, found: &[u8], values: &[(Position, Vec<u8>)]) -> Checked {
    if values.iter().any(|(_, value)| value == found) {
        return Ok(());
    }
    let mut expected = format!("bytes {piece:?} of inode {:x} are what they were at one of:", file.engine.ino.0);
    for (at, value) in values {
        expected += &format!("\n          {at}: {}", beginning(value));
    }
    let lost: Vec<_> =
        file.lost.iter().filter(|(_, bytes)| covers(bytes, piece)).map(|(at, _)| at.to_string()).collect();
    Err(Failure::new(NAME, expected, format!("{}; lost there: {}", beginning(found), lost.join(", "))))
}

fn beginning(bytes: &[u8]) -> String {
    let first: String = bytes.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    if bytes.iter().all(|byte| *byte == 0) { "zeros".to_owned() } else { first }
}

fn covers(bytes: &Range<u64>, piece: &Range<u64>) -> bool {
    bytes.start <= piece.start && piece.end <= bytes.end
}

async fn read(engine: &dyn FileSystem, node: Node, piece: &Range<u64>) -> Result<Vec<u8>, Failure> {
    let count = (piece.end - piece.start) as u32;
    let read = engine.read(&Caller::root(), node, piece.start, count).await;
    let read = read.map(|done| done.value.data.concat());
    read.map_err(|done| Failure::new(NAME, "a file that can be read", format!("{:?}", done.value.errno)))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use futures::FutureExt;
    use tarn_vfs::Stability::{self, File as Stable, Unstable};
    use tarn_vfs::model::Model;
    use tarn_vfs::op::{Data, Op, Slot, Slots};
    use tarn_vfs::{CreateMode, SetAttr, VolumeSettings};

    use super::*;
    use crate::world::SimClock;

    const FILE: Slot = Slot(1);
    const LEN: u64 = 5000;

    /// An engine that is a model too, and the tracker beside it; in both there is one file.
    struct World {
        engine: Arc<Model>,
        tracker: Arc<Tracker>,
        slots: [Slots; 2],
        promises: Promises,
    }

    impl World {
        fn new() -> World {
            let engine = Arc::new(Model::with_volume());
            let tracker = Tracker::new(SimClock::new());
            let appended = engine.clone();
            tracker.follow(Arc::new(move || appended.position()));
            let root = tracker.model.add_volume("vol", VolumeSettings::default(), &Caller::root()).root;
            tracker.begin_at(Position::ZERO);
            let slots = [[(Slot(0), engine.volumes()[0].root)].into(), [(Slot(0), root)].into()];
            let mut world = World { engine, tracker, slots, promises: Promises::default() };
            let name = "name".into();
            let create =
                Op::Create { dir: Slot(0), name, mode: CreateMode::Unchecked, set: SetAttr::default(), into: FILE };
            world.run(&create);
            world
        }

        fn run(&mut self, op: &Op) -> Position {
            let (tracker, engine) = (&self.tracker, &*self.engine);
            let issue = tracker.issue(op, &Caller::root(), &self.slots[1]);
            let caller = Caller::root();
            let run = tracker.run(&issue, op.run(engine, &caller, &self.slots[0]));
            let outcome = run.now_or_never().expect("models answer at once");
            let ran = issue.ran().expect("it took effect");
            op.note(&outcome, &mut self.slots[0]);
            op.note(&ran.outcome, &mut self.slots[1]);
            ran.at
        }

        fn write(&mut self, seed: u64, stability: Stability) -> Position {
            self.run(&Op::Write { node: FILE, offset: 0, data: data(seed), stability })
        }

        fn commit(&mut self) {
            let last = self.tracker.laid(self.slots[1][&FILE], self.engine.position()).pop().expect("it was written");
            self.promises.committed(last.node, self.engine.position(), last.at);
        }

        /// Opened again after a crash: data at `lost` is, and `shows` is there, of [`LEN`] bytes.
        fn recover(&mut self, lost: &[Position], shows: &[u8], clean: bool) -> Result<Vec<&'static str>, Failure> {
            let (engine, node) = (self.slots[0][&FILE], self.slots[1][&FILE]);
            self.engine.patch(engine, 0, shows);
            let of = |position: &Position| LostData {
                volume: engine.volume,
                ino: engine.ino,
                offset: 0,
                len: LEN,
                position: *position,
            };
            let last = self.engine.position();
            let bypassed = lost.iter().map(of).collect();
            let report = RecoveryReport { last, clean, bypassed, ..RecoveryReport::default() };
            let twin = |other| (other == node).then_some(engine);
            let met = check(&*self.engine, &self.tracker, twin, &mut self.promises, &report, 512);
            let met = met.now_or_never().expect("models answer at once")?;
            self.tracker.begin_at(last);
            let left = self.tracker.model.peek(node, 0, LEN as usize);
            assert_eq!(left.as_deref(), Some(shows), "the model is what is left");
            Ok(met)
        }
    }

    fn data(seed: u64) -> Data {
        // The lowest bit of a seed says nothing.
        Data { seed: seed << 1, count: LEN as u32 }
    }

    fn bytes(seed: u64) -> Vec<u8> {
        data(seed).bytes().to_vec()
    }

    fn is_red(checked: Result<Vec<&'static str>, Failure>) -> bool {
        checked.is_err_and(|failure| failure.property == NAME)
    }

    #[test]
    fn what_was_there_before_may_show_and_nothing_else() {
        let world = || {
            let mut world = World::new();
            let (first, second) = (world.write(1, Unstable), world.write(2, Unstable));
            (world, [first, second])
        };
        for shows in [bytes(2), bytes(1), vec![0; LEN as usize]] {
            let (mut world, lost) = world();
            world.recover(&lost, &shows, false).unwrap();
        }
        // Each of the smallest records for itself.
        let mixed = [&bytes(1)[..PIECE as usize], &bytes(2)[PIECE as usize..]].concat();
        let (mut other, lost) = world();
        assert_eq!(other.recover(&lost, &mixed, false).unwrap(), [SHOWED, LOST]);
        let (mut other, lost) = world();
        assert!(is_red(other.recover(&lost, &bytes(3), false)));
        // Of the first nothing is lost, so it is older than what may show.
        let (mut other, lost) = world();
        assert!(is_red(other.recover(&lost[1..], &[0; LEN as usize], false)));
        let (mut other, lost) = world();
        assert!(is_red(other.recover(&lost, &bytes(1), true)), "a clean stop loses nothing");
    }

    #[test]
    fn what_was_committed_written_stable_or_cut_off_is_not_lost() {
        let mut world = World::new();
        let lost = world.write(1, Unstable);
        world.commit();
        assert!(is_red(world.recover(&[lost], &[0; LEN as usize], false)));

        let mut world = World::new();
        let lost = world.write(1, Unstable);
        world.commit();
        assert_eq!(world.recover(&[lost], &bytes(1), false).unwrap(), [COMMITTED, LOST]);

        let mut world = World::new();
        let lost = [world.write(1, Unstable), world.write(2, Stable), world.write(3, Unstable)];
        assert!(is_red(world.recover(&lost[..1], &bytes(1), false)));
        assert!(is_red(world.recover(&lost, &bytes(1), false)), "a stable write is never lost");

        let mut world = World::new();
        let first = world.write(1, Stable);
        let cut = SetAttr { size: Some(0), ..SetAttr::default() };
        world.run(&Op::Setattr { node: FILE, set: cut });
        let lost = world.write(2, Unstable);
        assert!(is_red(world.recover(&[lost], &bytes(1), false)), "{first} was cut off");
    }

    #[test]
    fn what_a_recovery_left_stays() {
        let mut world = World::new();
        let first = world.write(1, Unstable);
        let second = world.write(2, Unstable);
        world.recover(&[first, second], &bytes(1), false).unwrap();
        let third = world.write(3, Unstable);
        assert!(is_red(world.recover(&[first, second, third], &bytes(2), false)));
        world.recover(&[first, second, third], &bytes(1), false).unwrap();
    }

    #[test]
    fn a_store_without_its_log_may_lack_what_its_last_opening_lacked() {
        let mut promises = Promises::default();
        let data = |at| LostData {
            volume: Default::default(),
            ino: Default::default(),
            offset: 0,
            len: 1,
            position: Position(at),
        };
        promises.recovered(Position(20), &[data(5), data(15)]);
        let of = |promises: &Promises, last| {
            promises.may_lack(&RecoveryReport { last: Position(last), ..RecoveryReport::default() })
        };
        assert_eq!(of(&promises, 25), []);
        assert_eq!(of(&promises, 10), [data(5)]);
        promises.recovered(Position(25), &[]);
        assert_eq!(of(&promises, 10), [data(5)], "it is not in the store either");
        let node = Node { volume: Default::default(), epoch: 0, ino: Default::default(), generation: 1 };
        promises.committed(node, Position(24), Position(5));
        assert_eq!(promises.commit_of(node, Position(25)), Position(5));
        assert_eq!(
            promises.commit_of(node, Position(10)),
            Position::ZERO,
            "what it brought into the log is lost with that"
        );
    }
}
