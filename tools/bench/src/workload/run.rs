//! A run: the directory, the files, cell after cell, the report.
//!
//! - It works only in a directory that it made, and takes it away at the end, after a failure and after Ctrl-C too.
//! - A wrong byte, a refused call or a server that is gone ends it with its reason; the report says so.

use crate::Outcome;
use crate::drive::connection::Trouble;
use crate::drive::pattern::{Pattern, Reducible};
use crate::drive::random::{Deck, Random, Shares};
use crate::drive::reactor::Reactor;
use crate::measure::{Meter, Sample};
use crate::ort;
use crate::workload::admin::{self, Admin};
use crate::workload::bill;
use crate::workload::definition::{Component, Definition, Quick, Response};
use crate::workload::files::{self, Files, Plan};
use crate::workload::judge::judge;
use crate::workload::place::Place;
use crate::workload::process::{Pace, Process};
use crate::workload::progress::Progress;
use crate::workload::record::{Recorder, histogram, off_percent};
use crate::workload::result::{self, Cell, Latency, Report};
use crate::workload::site::Site;
use std::cell::Cell as Slot;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// How a run differs from what its workload says.
#[derive(Clone, Debug)]
pub struct Options {
    pub quick: bool,
    /// Units at the peak; 0: as the workload says, or found.
    pub peak: f64,
    pub scale: f64,
    pub points: u32,
    pub warm_up: Option<f64>,
    pub seconds: Option<f64>,
    pub connections: usize,
    pub seed: u64,
    pub patience: Duration,
    /// Keep every latency and compare the percentiles with them.
    pub raw: bool,
    /// Cells that an earlier run has measured already.
    pub before: Vec<Cell>,
}

/// Share of a closed loop's rate that is taken for the peak.
const PEAK_SHARE: f64 = 0.85;
/// Seconds of that closed loop.
const SEARCH: f64 = 3.0;

/// One measurement to make.
#[derive(Clone, Debug)]
struct Step {
    name: String,
    load: f64,
    /// Only components of this cell; `None`: those of none.
    cell: Option<String>,
    closed: bool,
}

/// The processors' time at the beginning and at the end of a cell.
type Samples = Rc<(Slot<Option<Sample>>, Slot<Option<Sample>>)>;

/// Everything that stays the same from cell to cell.
struct Stage<'a> {
    reactor: Reactor,
    definition: &'a Definition,
    options: &'a Options,
    place: Rc<Place>,
    pattern: Rc<Pattern>,
    sets: BTreeMap<String, Rc<Files>>,
    trouble: Rc<Trouble>,
    meter: Meter,
    admin: Option<Admin>,
    progress: Progress,
    warm_up: f64,
    seconds: f64,
    /// Cells so far: names of new files differ from cell to cell.
    count: Slot<u64>,
}

/// Runs a workload at a site that was opened for it. `tell` is called after each cell.
pub fn run(
    reactor: &Reactor,
    site: &Site,
    trouble: &Rc<Trouble>,
    (name, definition): (&str, &Definition),
    options: &Options,
    tell: &mut dyn FnMut(&Report, &Cell),
) -> Report {
    let quick = if options.quick { definition.load.quick } else { None };
    let scale = options.scale * quick.map_or(1.0, |quick| quick.scale);
    let reducible = definition.reducible;
    let duplicates = reducible.dedupe_percent / 100.0;
    let reducible = Reducible { duplicates, block: reducible.block, compressible: reducible.compressible };
    let mut stage = Stage {
        reactor: reactor.clone(),
        definition,
        options,
        place: site.place.clone(),
        pattern: Rc::new(Pattern::new(reducible)),
        sets: BTreeMap::new(),
        trouble: trouble.clone(),
        meter: site.meter,
        admin: site.admin,
        progress: Progress::of_terminal(),
        warm_up: options.warm_up.or(quick.map(|quick| quick.warm_up)).unwrap_or(definition.load.warm_up),
        seconds: options.seconds.or(quick.map(|quick| quick.seconds)).unwrap_or(definition.load.seconds),
        count: Slot::new(0),
    };
    let mut report = blank(name, definition, options, site);
    report.scale = scale;
    report.peak = first_of([options.peak, quick.map_or(0.0, |quick| quick.peak), definition.load.peak]);
    // A run that fails says so in its report: nobody takes half of it for the whole.
    if let Err(reason) = stage.all(&mut report, quick, scale, tell) {
        report.reasons.push(reason);
    }
    finish(&mut report, definition);
    report
}

/// Op/s that data is sized for while the peak is unknown.
const SMALL_PEAK: f64 = 2000.0;

fn first_of(values: [f64; 3]) -> f64 {
    values.into_iter().find(|value| *value > 0.0).unwrap_or(0.0)
}

fn steps(definition: &Definition, options: &Options, quick: Option<Quick>, peak: f64) -> Vec<Step> {
    if !definition.cell.is_empty() {
        let step = |cell: &super::definition::Cell| Step {
            name: cell.name.clone(),
            load: cell.load,
            cell: Some(cell.name.clone()),
            closed: false,
        };
        return definition.cell.iter().map(step).collect();
    }
    let of_quick = quick.map_or(0, |quick| quick.points);
    let count = [options.points, of_quick, definition.load.points].into_iter().find(|points| *points > 0).unwrap_or(1);
    let step = |index: u32| {
        let share = f64::from(index) / f64::from(count);
        Step { name: format!("{:.0} %", share * 100.0), load: peak * share, cell: None, closed: false }
    };
    (1..=count).map(step).collect()
}

fn blank(name: &str, definition: &Definition, options: &Options, site: &Site) -> Report {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    Report {
        version: result::VERSION,
        workload: name.to_owned(),
        title: definition.title.clone(),
        follows: definition.follows.clone(),
        notice: definition.notice.clone(),
        target: site.name.clone(),
        unit: definition.load.unit.clone(),
        began: now.as_secs(),
        seed: options.seed,
        scale: options.scale,
        peak: 0.0,
        files: 0,
        bytes: 0,
        directories: 0,
        connections: site.connections as u64,
        rtt_us: site.rtt_us,
        stable_storage: site.durability.clone(),
        configuration: site.configuration.clone(),
        machine: crate::measure::machine::describe(),
        cells: Vec::new(),
        ort_ms: None,
        bill: None,
        valid: true,
        reasons: Vec::new(),
    }
}

/// The overall response time and whether all of it counts.
fn finish(report: &mut Report, definition: &Definition) {
    let of = |x: fn(&Cell) -> f64| report.cells.iter().map(|cell| (x(cell), cell.latency_ms.mean)).collect::<Vec<_>>();
    report.ort_ms = match definition.load.response {
        Response::None => None,
        Response::Sfs2008 => ort::sfs2008(&of(|cell| cell.achieved)),
        Response::Spec2020 => ort::spec2020(&of(|cell| cell.load)),
    };
    for cell in report.cells.iter().filter(|cell| !cell.valid) {
        report.reasons.push(format!("{}: {}", cell.name, cell.reasons.join("; ")));
    }
    report.valid = report.reasons.is_empty();
    report.bill = bill::of(report);
}

impl Stage<'_> {
    fn all(
        &mut self,
        report: &mut Report,
        quick: Option<Quick>,
        scale: f64,
        tell: &mut dyn FnMut(&Report, &Cell),
    ) -> Outcome<()> {
        // Data is sized for the peak; one that must be found is found on the data of a small one.
        let sized_for = if report.peak > 0.0 { report.peak } else { SMALL_PEAK };
        self.make(report, sized_for, scale)?;
        if report.peak == 0.0 && self.definition.load.points > 0 {
            report.peak = self.find_peak()?;
        }
        for step in steps(self.definition, self.options, quick, report.peak) {
            let before = self.options.before.iter().find(|cell| cell.name == step.name && cell.valid);
            let cell = before.cloned().map_or_else(|| self.cell(&step), Ok)?;
            report.cells.push(cell.clone());
            tell(report, &cell);
        }
        Ok(())
    }

    fn make(&mut self, report: &mut Report, peak: f64, scale: f64) -> Outcome<()> {
        let mut first = 0;
        for (index, set) in self.definition.fileset.iter().enumerate() {
            let plan = Plan::new(set, peak, scale, self.options.seed.wrapping_add(index as u64));
            report.files += plan.sizes.len() as u64;
            report.bytes += plan.bytes();
            report.directories += plan.directories as u64;
            let count = plan.sizes.len() as u32;
            let done = Rc::new(Slot::new(0));
            self.progress.follow_bytes(&self.reactor, &format!("making {}", set.name), done.clone(), plan.bytes());
            let made = files::make(&self.reactor, &self.place, &self.pattern, (set, plan, first), &done)?;
            self.progress.end();
            self.sets.insert(set.name.clone(), Rc::new(made));
            first += count;
        }
        Ok(())
    }

    /// Units that a closed loop of the same processes reaches, less a reserve.
    fn find_peak(&self) -> Outcome<f64> {
        let step = Step { name: "search".to_owned(), load: 1.0, cell: None, closed: true };
        let cell = self.measure(&step, 0.5, SEARCH)?;
        let rate: f64 = self.definition.component.iter().map(|component| component.rate_per_unit).sum();
        if rate <= 0.0 {
            return Err("a workload of load points needs a rate".to_owned());
        }
        Ok((cell.achieved * PEAK_SHARE / rate / 100.0).ceil() * 100.0)
    }

    fn cell(&self, step: &Step) -> Outcome<Cell> {
        let mut cell = self.measure(step, self.warm_up, self.seconds)?;
        cell.reasons = judge(&cell, &self.definition.valid, self.options.quick);
        cell.valid = cell.reasons.is_empty();
        Ok(cell)
    }

    fn measure(&self, step: &Step, warm_up: f64, seconds: f64) -> Outcome<Cell> {
        let components: Vec<(usize, &Component)> = self.definition.component.iter().enumerate().collect();
        let belongs = |component: &Component| component.cell.is_none() || component.cell == step.cell;
        let components: Vec<_> = components.into_iter().filter(|(_, component)| belongs(component)).collect();
        let asked = self.admin.map(|admin| admin.requests()).transpose()?;
        let once = components.iter().all(|(_, component)| component.once);
        let begin = Instant::now() + Duration::from_millis(20);
        let warm_up = if once { 0.0 } else { warm_up };
        let from = begin + Duration::from_secs_f64(warm_up);
        let to = from + Duration::from_secs_f64(if once { ONCE_MAX } else { seconds });
        let recorder = Rc::new(Recorder::new(from, to, self.options.raw));
        let before = [&self.trouble.reopened, &self.trouble.jukebox, &self.trouble.verifiers].map(Slot::get);
        let samples = Rc::new((Slot::new(None), Slot::new(None)));
        self.sample_at(from, &samples, true);
        if !once {
            self.progress.follow_time(&self.reactor, &step.name, (begin, to));
            self.sample_at(to, &samples, false);
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
            None => self.meter.sample()?,
        };
        let spent = last.since(&first);
        let elapsed = match (once, recorder.last()) {
            (true, Some(last)) => last.saturating_duration_since(from).as_secs_f64(),
            _ => seconds,
        };
        let after = [&self.trouble.reopened, &self.trouble.jukebox, &self.trouble.verifiers].map(Slot::get);
        let [reopened, jukebox, verifiers] = std::array::from_fn(|index| after[index] - before[index]);
        let mut cell = self.summary(step, &components, &recorder, elapsed);
        if let (Some(admin), Some(before)) = (self.admin, asked) {
            cell.requests = Some(admin::between(&before, &admin.requests()?));
        }
        cell.server_cpu_s = spent.process.map(|spent| spent.as_secs_f64());
        cell.server_rss_mib = self.meter.pid.and_then(crate::measure::machine::rss_mib);
        cell.generator_cpu_s = spent.generator.as_secs_f64();
        (cell.reopened, cell.jukebox, cell.verifiers) = (reopened, jukebox, verifiers);
        Ok(cell)
    }

    /// Reads the processors' time at a moment.
    fn sample_at(&self, at: Instant, samples: &Samples, first: bool) {
        let (reactor, meter, samples) = (self.reactor.clone(), self.meter, samples.clone());
        self.reactor.spawn(async move {
            reactor.sleep_until(at).await;
            match meter.sample() {
                Ok(sample) if first => samples.0.set(Some(sample)),
                Ok(sample) => samples.1.set(Some(sample)),
                Err(error) => reactor.fail(error),
            }
        });
    }

    fn start(
        &self,
        index: usize,
        component: &Component,
        step: &Step,
        (begin, end): (Instant, Instant),
        recorder: &Rc<Recorder>,
    ) -> Outcome<()> {
        let files = self.sets.get(&component.fileset).ok_or("a component's file set is missing")?;
        let of_load = (component.processes_per_unit * step.load).ceil() as usize;
        // A process has a file of its own, unless all share all.
        let most = if component.shared || component.once { usize::MAX } else { files.files.len() };
        let processes = (component.processes as usize).max(of_load).clamp(1, most.max(1));
        let rate = if step.closed { 0.0 } else { component.rate_per_unit * step.load };
        let lanes = processes * component.outstanding as usize;
        let distance = (rate > 0.0).then(|| Duration::from_secs_f64(lanes as f64 / rate));
        let shared_component = Rc::new(component.clone());
        let next = Rc::new(Slot::new(0));
        let deck = Rc::new(Deck::new(self.options.seed ^ self.count.get()).into());
        for number in 0..processes {
            let all = 0..files.files.len();
            let share: Vec<usize> = match component.shared || component.once {
                true => all.collect(),
                false => all.skip(number).step_by(processes).collect(),
            };
            let seed = self.options.seed ^ (self.count.get() << 40) ^ ((index as u64) << 32) ^ number as u64;
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
                scratch: super::process::Scratch { prefix, ..Default::default() }.into(),
            });
            for _ in 0..component.outstanding {
                self.reactor.spawn(process.clone().run(Pace { begin, end, distance }));
            }
        }
        Ok(())
    }

    fn summary(&self, step: &Step, components: &[(usize, &Component)], recorder: &Recorder, seconds: f64) -> Cell {
        let lateness_us = recorder.lateness().as_secs_f64() * 1e6;
        let (seen, mut raw) = recorder.take();
        let count: u64 = seen.values().map(|seen| seen.latency.len()).sum();
        let requested: f64 = match step.closed {
            true => 0.0,
            false => components.iter().map(|(_, component)| component.rate_per_unit * step.load).sum(),
        };
        let mut all = histogram();
        let mut operations = Vec::new();
        for (index, component) in components {
            let shares: f64 = component.operation.iter().map(|operation| operation.share).sum();
            let of_all = if requested > 0.0 { component.rate_per_unit * step.load / requested } else { 1.0 };
            let known = requested > 0.0 || components.len() == 1;
            for operation in &component.operation {
                let found = seen.get(&(*index, operation.op));
                let done = found.map_or(0, |seen| seen.latency.len());
                if let Some(seen) = found {
                    // Both have the same bounds.
                    let _ = all.add(&seen.latency);
                }
                operations.push(result::Operation {
                    component: component.name.clone(),
                    operation: operation.op.name(),
                    count: done,
                    share: done as f64 * 100.0 / count.max(1) as f64,
                    wanted: known.then_some(operation.share * 100.0 / shares * of_all),
                    latency_ms: found.map(|seen| Latency::of(&seen.latency)).unwrap_or_default(),
                });
            }
        }
        let bytes = |of: fn(&super::record::Seen) -> u64| seen.values().map(of).sum::<u64>() as f64 / 1e6 / seconds;
        Cell {
            name: step.name.clone(),
            load: step.load,
            seconds,
            requested,
            achieved: count as f64 / seconds,
            latency_ms: Latency::of(&all),
            read_mb_s: bytes(|seen| seen.read),
            write_mb_s: bytes(|seen| seen.written),
            operations,
            server_cpu_s: None,
            server_rss_mib: None,
            generator_cpu_s: 0.0,
            lateness_us,
            requests: None,
            histogram_off: self.options.raw.then(|| off_percent(&all, &mut raw)),
            reopened: 0,
            jukebox: 0,
            verifiers: 0,
            valid: true,
            reasons: Vec::new(),
        }
    }
}

/// Seconds after which a cell that takes each file once is given up.
const ONCE_MAX: f64 = 3600.0;
