//! How much must have been met for a run to count.
//!
//! - Every crash point, fault, kind of operation and way to send a call is a cell. In 10,000 histories each is met a hundred times at
//!   least; shorter runs owe their part of that, at least once each, and runs of fewer than [`HISTORIES_MIN`] owe nothing.
//!   The rarest are met six to ten times in 200, several in one history: a run of that length that lacks one goes on.
//! - A crash point that the engine passes and that is not listed here owes the same.
//! - Every history has its operations, its crashes, one of them amid an opening; nearly all reach a checkpoint and a collection.

use std::collections::BTreeSet;

use crate::chaos::STORE_FAULTS;
use crate::check::bypass;
use crate::coverage::Coverage;
use crate::plan::{CLOSING_POINTS, CREATING_POINTS, LIFE_POINTS, OPENING_POINTS};
use crate::story::{CRASHES_MIN, OPERATIONS_MIN, Told};
use crate::workload;

/// Runs of fewer histories owe nothing.
pub const HISTORIES_MIN: u64 = 200;
/// One in so many histories meets each cell.
const HISTORIES_PER_HIT: u64 = 100;
/// The crash point that only a failed batch leads to, and the histories with SlateDB that meet it once.
const REOPENING: &str = "before opening the metadata store again";
const HISTORIES_PER_REOPENING: u64 = 1000;
/// Histories that may end without a checkpoint, or without collecting garbage: one in a hundred, and five more. One or two in a
/// thousand do end so; the five keep a run of two hundred from failing by chance.
fn may_lack(histories: u64) -> u64 {
    histories / 100 + 5
}

/// Cells beside crash points, store faults and operations.
const CELLS: [(&str, &[&str]); 8] = [
    ("bypass", &[bypass::LOST, bypass::SHOWED, bypass::COMMITTED]),
    (
        "disk faults",
        &["a flush fails", "a write fails", "every write and flush fails", "power goes amid a write", "a slow flush"],
    ),
    (
        "clock",
        &[
            "jumps ahead between lives",
            "jumps back between lives",
            "jumps ahead while clients work",
            "jumps back while clients work",
        ],
    ),
    (
        "calls",
        &[
            "sent once",
            "sent twice at once",
            "sent again on a new connection",
            "connection cut, sent again",
            "overtaken on a new connection",
            "a late copy",
            "sent again after a restart",
        ],
    ),
    ("volumes", &["of write speed high"]),
    ("repeats", &["at once", "later"]),
    (
        "dedupe",
        &["content is shared", "what an earlier life stored is read back and shared", "one of two that share goes"],
    ),
    (
        "endings",
        &[
            "crash while opening",
            "crash while stopping",
            "log lost",
            "moved",
            "taken over",
            "taken from a living owner",
            "taken from an owner that stood still",
        ],
    ),
];

/// What the histories of a run have in common.
#[derive(Debug, Default)]
pub struct Tally {
    pub coverage: Coverage,
    pub histories: u64,
    pub operations: u64,
    pub crashes: u64,
    checkpoints: u64,
    collections: u64,
    /// Histories with too few operations or crashes.
    short: Vec<u64>,
}

impl Tally {
    pub fn add(&mut self, told: &Told) {
        self.histories += 1;
        self.operations += told.operations;
        self.crashes += told.crashes;
        let passed = |name| told.coverage.count("crash points passed", name) > 0;
        self.checkpoints += u64::from(passed("the batch is durable"));
        self.collections += u64::from(passed("a condemned object is deleted") || passed("moved records are written"));
        let amid_opening = told.coverage.count("endings", "crash while opening") > 0;
        if told.operations < OPERATIONS_MIN || told.crashes < CRASHES_MIN || !amid_opening {
            self.short.push(told.seed);
        }
        self.coverage.add(&told.coverage);
    }

    /// The shares, in words.
    pub fn shares(&self) -> String {
        let share = |count: u64| 100.0 * count as f64 / self.histories.max(1) as f64;
        let (checkpoints, collections) = (share(self.checkpoints), share(self.collections));
        format!("{checkpoints:.2} % of the histories reach a checkpoint, {collections:.2} % collect garbage")
    }

    /// What is missing; nothing if the run counts. `slate`: metadata was not in the model, whose commits fail.
    pub fn missing(&self, slate: bool) -> Vec<String> {
        if self.histories < HISTORIES_MIN {
            return Vec::new();
        }
        let need = (self.histories / HISTORIES_PER_HIT).clamp(1, 100);
        // SlateDB tries again by itself: that a batch of its fails is rare, and a matter of long runs.
        let of = |name: &str| match slate && name == REOPENING {
            true => self.histories / HISTORIES_PER_REOPENING,
            false => need,
        };
        let cells = self.cells(slate);
        let met = cells.iter().map(|(kind, name)| (kind, name, self.coverage.count(kind, name), of(name)));
        let mut missing: Vec<String> = met
            .filter(|(_, _, count, need)| count < need)
            .map(|(kind, name, count, need)| format!("{kind}: {name}: {count} times of {need}"))
            .collect();
        let shares = [("a checkpoint", self.checkpoints), ("a collection", self.collections)];
        for (what, count) in shares {
            if count + may_lack(self.histories) < self.histories {
                missing.push(format!("{what} in {count} of {} histories", self.histories));
            }
        }
        if let Some(first) = self.short.first() {
            let count = self.short.len();
            missing.push(format!("{count} histories are too short, the first is seed {first}"));
        }
        missing
    }

    fn cells(&self, slate: bool) -> BTreeSet<(&'static str, String)> {
        let points = LIFE_POINTS.iter().chain(&OPENING_POINTS).chain(&CREATING_POINTS).chain(&CLOSING_POINTS);
        let listed = points.map(|name| (*name).to_owned());
        let passed = self.coverage.names("crash points passed");
        let mut cells: BTreeSet<_> = listed.chain(passed).map(|name| ("crash points", name)).collect();
        let named = |kind: &'static str, names: &[&str]| -> Vec<(&'static str, String)> {
            names.iter().map(|name| (kind, (*name).to_owned())).collect()
        };
        cells.extend(named("store faults", &STORE_FAULTS));
        cells.extend(named("operations", &workload::kinds()));
        cells.extend(CELLS.iter().flat_map(|(kind, names)| named(kind, names)));
        if !slate {
            cells.extend(named("commits", &["FailBefore", "FailAfter"]));
        }
        cells
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_run_owes_every_cell_and_a_short_one_nothing() {
        let mut tally = Tally { histories: HISTORIES_MIN - 1, ..Tally::default() };
        assert_eq!(tally.missing(false), Vec::<String>::new());
        tally.histories = 10_000;
        (tally.checkpoints, tally.collections) = (9_895, 9_894);
        for (kind, name) in tally.cells(false) {
            (0..100).for_each(|_| tally.coverage.hit(kind, name.clone()));
        }
        assert_eq!(tally.missing(false), ["a collection in 9894 of 10000 histories"]);
        tally.coverage.hit("crash points passed", "one that is new");
        assert_eq!(tally.missing(false).len(), 2);
        tally.short.push(7);
        assert_eq!(tally.missing(false).len(), 3);
    }
}
