//! One generator: its part of the file sets, and one cell after the other on them.
//!
//! - Several may share a run. Files, processes and, where there are fewer processes than generators, operations in flight
//!   are dealt out among them. Each works on files of its own, so none must know what another wrote.
//! - A process keeps its pace however many generators there are: together they do what one would have done.
//! - What a cell has shown is kept so that it can be added to what others saw: counts and histograms, not percentiles.

use crate::Outcome;
use crate::drive::connection::Trouble;
use crate::drive::pattern::{Pattern, Reducible};
use crate::drive::random::{Deck, Random, Shares};
use crate::drive::reactor::Reactor;
use crate::measure::{Meter, Sample};
use crate::workload::definition::{Component, Definition, Kind};
use crate::workload::files::{self, Files, Plan};
use crate::workload::place::{Node, Place};
use crate::workload::process::{Pace, Process, Scratch};
use crate::workload::progress::Progress;
use crate::workload::record::{Recorder, Seen, histogram, off_percent};
use serde::{Deserialize, Serialize};
use std::cell::{Cell as Slot, RefCell};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// Seconds after which a cell that takes each file once is given up.
pub const ONCE_MAX: f64 = 3600.0;

/// Which of so many generators.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    pub index: usize,
    pub count: usize,
}

impl Part {
    /// A generator that is alone.
    pub const WHOLE: Part = Part { index: 0, count: 1 };

    /// How many of `all` things are dealt to it: every `count`th from its index on.
    pub fn of(self, all: usize) -> usize {
        all.saturating_sub(self.index).div_ceil(self.count)
    }
}

/// One measurement to make.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Step {
    pub name: String,
    pub load: f64,
    /// Only components of this cell; `None`: those of none.
    pub cell: Option<String>,
    /// As fast as answers come, whatever rates the workload names.
    pub closed: bool,
}

/// When a cell begins, and seconds before it is measured and that it is.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    pub begin: Instant,
    pub warm_up: f64,
    pub seconds: f64,
}

/// What was made before the load begins.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Made {
    pub files: u64,
    pub bytes: u64,
    pub directories: u64,
}

/// What a cell has shown.
pub struct Tally {
    /// By component's index and kind of operation.
    pub seen: BTreeMap<(usize, Kind), Seen>,
    /// Seconds that were measured.
    pub seconds: f64,
    /// Microseconds that an idle process began late, 99 of 100 times at most.
    pub lateness_us: f64,
    /// Per cent by which a percentile misses that of the sorted latencies; `None` where those were not kept.
    pub histogram_off: Option<f64>,
    /// Processor seconds of the generators.
    pub generator_cpu_s: f64,
    /// Processor seconds of the server's process, where it is on this machine.
    pub server_cpu_s: Option<f64>,
    pub reopened: u64,
    pub jukebox: u64,
    pub verifiers: u64,
}

impl Tally {
    /// Adds what another generator saw of the same cell. One that was late makes the whole late.
    pub fn add(&mut self, other: Tally) {
        for (key, seen) in other.seen {
            let own = self.seen.entry(key).or_default();
            // All have the same bounds.
            let _ = own.latency.add(&seen.latency);
            own.read += seen.read;
            own.written += seen.written;
        }
        self.seconds = self.seconds.max(other.seconds);
        self.lateness_us = self.lateness_us.max(other.lateness_us);
        self.histogram_off = match (self.histogram_off, other.histogram_off) {
            (Some(own), Some(other)) => Some(own.max(other)),
            (own, other) => own.or(other),
        };
        self.generator_cpu_s += other.generator_cpu_s;
        self.reopened += other.reopened;
        self.jukebox += other.jukebox;
        self.verifiers += other.verifiers;
    }
}

/// What stays the same from cell to cell.
pub struct Generator<'a> {
    pub reactor: Reactor,
    pub trouble: Rc<Trouble>,
    pub place: Rc<Place>,
    pub definition: &'a Definition,
    pub part: Part,
    /// Of all random choices.
    pub seed: u64,
    /// Keep every latency and compare the percentiles with them.
    pub raw: bool,
    pub progress: Progress,
    pattern: Rc<Pattern>,
    /// The files that were dealt to this generator, and how many all generators have.
    sets: BTreeMap<String, (Rc<Files>, usize)>,
    /// Cells so far: names of new files differ from cell to cell.
    count: Slot<u64>,
}

/// The processors' time at the beginning and at the end of a cell.
type Samples = Rc<(Slot<Option<Sample>>, Slot<Option<Sample>>)>;

impl<'a> Generator<'a> {
    /// A generator that is alone; others set `part`.
    pub fn new(reactor: &Reactor, place: &Rc<Place>, trouble: &Rc<Trouble>, definition: &'a Definition) -> Self {
        let reducible = definition.reducible;
        let duplicates = reducible.dedupe_percent / 100.0;
        let reducible = Reducible { duplicates, block: reducible.block, compressible: reducible.compressible };
        Generator {
            reactor: reactor.clone(),
            trouble: trouble.clone(),
            place: place.clone(),
            definition,
            part: Part::WHOLE,
            seed: 1,
            raw: false,
            progress: Progress::of_terminal(),
            pattern: Rc::new(Pattern::new(reducible)),
            sets: BTreeMap::new(),
            count: Slot::new(0),
        }
    }

    /// From now on it neither makes nor compares bytes.
    pub fn blind(&mut self) {
        self.pattern = Rc::new(Pattern::blind());
    }

    /// Where its files stand, if that is on this machine.
    pub fn paths(&self) -> Vec<PathBuf> {
        let path = |file: &RefCell<files::File>| match &file.borrow().node {
            Some(Node::Path { path, .. }) => Some(path.to_path_buf()),
            _ => None,
        };
        self.sets.values().flat_map(|(files, _)| files.files.iter().filter_map(path)).collect()
    }

    /// Makes its part of the file sets of `peak` units of load, `scale` times as large as the workload says.
    pub fn make(&mut self, peak: f64, scale: f64) -> Outcome<Made> {
        let mut first = 0;
        let mut all = Made::default();
        for (index, set) in self.definition.fileset.iter().enumerate() {
            let whole = Plan::new(set, peak, scale, self.seed.wrapping_add(index as u64));
            let count = whole.sizes.len();
            let plan = whole.deal(set, self.part);
            all.files += plan.sizes.len() as u64;
            all.bytes += plan.bytes();
            all.directories += plan.directories as u64;
            let done = Rc::new(Slot::new(0));
            self.progress.follow_bytes(&self.reactor, &format!("making {}", set.name), done.clone(), plan.bytes());
            let made = files::make(&self.reactor, &self.place, &self.pattern, (set, plan, first), &done)?;
            self.progress.end();
            self.sets.insert(set.name.clone(), (Rc::new(made), count));
            first += count as u32;
        }
        Ok(all)
    }

    /// Runs one cell. `meter` is the server's, where it is on this machine.
    pub fn measure(&self, step: &Step, window: Window, meter: Meter) -> Outcome<Tally> {
        let components: Vec<(usize, &Component)> = self.definition.taking_part(step.cell.as_deref()).collect();
        let once = components.iter().all(|(_, component)| component.once);
        let begin = window.begin;
        let from = begin + Duration::from_secs_f64(if once { 0.0 } else { window.warm_up });
        let to = from + Duration::from_secs_f64(if once { ONCE_MAX } else { window.seconds });
        let recorder = Rc::new(Recorder::new(from, to, self.raw));
        let before = [&self.trouble.reopened, &self.trouble.jukebox, &self.trouble.verifiers].map(Slot::get);
        let samples = Rc::new((Slot::new(None), Slot::new(None)));
        self.sample_at(from, meter, &samples, true);
        if !once {
            self.progress.follow_time(&self.reactor, &step.name, (begin, to));
            self.sample_at(to, meter, &samples, false);
        }
        self.count.set(self.count.get() + 1);
        for (index, component) in &components {
            self.start(*index, component, step, (begin, to), &recorder)?;
        }
        let ended = self.reactor.run();
        self.progress.end();
        ended?;
        let first: Sample = samples.0.take().ok_or("a cell ended before it was measured")?;
        let last: Sample = match samples.1.take() {
            Some(sample) => sample,
            None => meter.sample()?,
        };
        let spent = last.since(&first);
        let seconds = match (once, recorder.last()) {
            (true, Some(last)) => last.saturating_duration_since(from).as_secs_f64(),
            (true, None) => 0.0,
            _ => window.seconds,
        };
        let after = [&self.trouble.reopened, &self.trouble.jukebox, &self.trouble.verifiers].map(Slot::get);
        let [reopened, jukebox, verifiers] = std::array::from_fn(|index| after[index] - before[index]);
        let lateness_us = recorder.lateness().as_secs_f64() * 1e6;
        let (seen, raw) = recorder.take();
        let histogram_off = self.raw.then(|| off_of_all(&seen, raw));
        let server_cpu_s = spent.process.map(|spent| spent.as_secs_f64());
        let generator_cpu_s = spent.generator.as_secs_f64();
        Ok(Tally {
            seen,
            seconds,
            lateness_us,
            histogram_off,
            generator_cpu_s,
            server_cpu_s,
            reopened,
            jukebox,
            verifiers,
        })
    }

    /// Reads the processors' time at a moment.
    fn sample_at(&self, at: Instant, meter: Meter, samples: &Samples, first: bool) {
        let (reactor, samples) = (self.reactor.clone(), samples.clone());
        self.reactor.spawn(async move {
            reactor.sleep_until(at).await;
            match meter.sample() {
                Ok(sample) if first => samples.0.set(Some(sample)),
                Ok(sample) => samples.1.set(Some(sample)),
                Err(error) => reactor.fail(error),
            }
        });
    }

    /// Starts this generator's processes of a component.
    fn start(
        &self,
        index: usize,
        component: &Component,
        step: &Step,
        (begin, end): (Instant, Instant),
        recorder: &Rc<Recorder>,
    ) -> Outcome<()> {
        let (files, all_files) = self.sets.get(&component.fileset).ok_or("a component's file set is missing")?;
        let dealt = deal(component, step.load, *all_files, self.part);
        let rate = if step.closed { 0.0 } else { component.rate_per_unit * step.load };
        let distance = (rate > 0.0).then(|| Duration::from_secs_f64(dealt.lanes_of_all as f64 / rate));
        let shared_component = Rc::new(component.clone());
        let next = Rc::new(Slot::new(0));
        // Generators draw from decks of their own.
        let own = (self.part.index as u64) << 48;
        let deck = Rc::new(Deck::new(self.seed ^ own ^ self.count.get()).into());
        for local in 0..dealt.processes {
            let all = 0..files.files.len();
            let share: Vec<usize> = match component.shared || component.once {
                true => all.collect(),
                false => all.skip(local).step_by(dealt.processes).collect(),
            };
            // Its number among the processes of all generators.
            let number = local * self.part.count + self.part.index;
            let seed = self.seed ^ (self.count.get() << 40) ^ ((index as u64) << 32) ^ number as u64;
            let prefix = format!("n{}-{index}-{number}-", self.count.get());
            let process = Rc::new(Process {
                reactor: self.reactor.clone(),
                place: self.place.clone(),
                pattern: self.pattern.clone(),
                files: files.clone(),
                component: shared_component.clone(),
                component_index: index,
                recorder: recorder.clone(),
                share,
                next: next.clone(),
                current: Slot::new(0),
                shares: Shares::new(component.operation.iter().map(|operation| operation.share)),
                sizes: component.operation.iter().map(|of| Shares::new(of.sizes.iter().map(|size| size.1))).collect(),
                deck: Rc::clone(&deck),
                random: Random::new(seed).into(),
                scratch: Scratch { prefix, ..Default::default() }.into(),
            });
            for _ in 0..dealt.outstanding {
                self.reactor.spawn(process.clone().run(Pace { begin, end, distance }));
            }
        }
        Ok(())
    }
}

/// What one generator has of a component.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Dealt {
    processes: usize,
    /// Operations in flight of each.
    outstanding: usize,
    /// Operations in flight of all generators together.
    lanes_of_all: usize,
}

/// Deals a component out among the generators that have files for it.
fn deal(component: &Component, load: f64, all_files: usize, part: Part) -> Dealt {
    let of_load = (component.processes_per_unit * load).ceil() as usize;
    // A process has a file of its own, unless all share all.
    let most = if component.shared || component.once { usize::MAX } else { all_files };
    let processes = (component.processes as usize).max(of_load).clamp(1, most.max(1));
    let outstanding = component.outstanding as usize;
    let lanes_of_all = processes * outstanding;
    let having_files = Part { index: part.index, count: part.count.min(all_files).max(1) };
    if part.index >= having_files.count {
        return Dealt { processes: 0, outstanding: 0, lanes_of_all };
    }
    if processes >= having_files.count {
        return Dealt { processes: having_files.of(processes), outstanding, lanes_of_all };
    }
    // Too few for all: each has one, with its share of what they have in flight.
    let lanes = having_files.of(lanes_of_all);
    Dealt { processes: usize::from(lanes > 0), outstanding: lanes, lanes_of_all }
}

fn off_of_all(seen: &BTreeMap<(usize, Kind), Seen>, mut raw: Vec<u64>) -> f64 {
    let mut all = histogram();
    for seen in seen.values() {
        // Both have the same bounds.
        let _ = all.add(&seen.latency);
    }
    off_percent(&all, &mut raw)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::library::find;

    fn parts(count: usize) -> impl Iterator<Item = Part> {
        (0..count).map(move |index| Part { index, count })
    }

    #[test]
    fn all_parts_together_are_the_whole() {
        for (all, count) in [(0, 1), (1, 3), (2, 3), (7, 3), (128, 2), (128, 5)] {
            assert_eq!(parts(count).map(|part| part.of(all)).sum::<usize>(), all, "{all} among {count}");
        }
    }

    #[test]
    fn operations_in_flight_are_the_same_among_any_number() {
        for (name, _) in crate::workload::library::LIBRARY {
            let (_, definition) = find(name).unwrap();
            for component in &definition.component {
                for (files, count) in [(1, 1), (1, 4), (4, 2), (16, 3), (1000, 3), (1000, 8)] {
                    let dealt = || parts(count).map(|part| deal(component, 3.0, files, part));
                    let whole = deal(component, 3.0, files, Part::WHOLE);
                    let lanes: usize = dealt().map(|dealt| dealt.processes * dealt.outstanding).sum();
                    assert_eq!(lanes, whole.processes * whole.outstanding, "{name}, {files} files among {count}");
                    assert!(dealt().all(|dealt| dealt.lanes_of_all == whole.lanes_of_all));
                }
            }
        }
    }

    #[test]
    fn no_process_is_without_a_file() {
        let (_, definition) = find("sfs2008-like").unwrap();
        for (files, count) in [(1, 4), (5, 4), (127, 3), (130, 4)] {
            for part in parts(count) {
                let dealt = deal(&definition.component[0], 1.0, files, part);
                assert!(dealt.processes <= part.of(files), "{files} files, {part:?}: {dealt:?}");
            }
        }
    }
}
