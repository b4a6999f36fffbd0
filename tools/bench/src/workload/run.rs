//! A run: the directory, the files, cell after cell, the report.
//!
//! - It works only in a directory that it made, and takes it away at the end, after a failure and after Ctrl-C too.
//! - The load comes from this process or from agents; what they saw is added up before anything is said of it.
//! - A wrong byte, a refused call or a server that is gone ends it with its reason; the report says so.

use crate::Outcome;
use crate::drive::connection::Trouble;
use crate::drive::reactor::Reactor;
use crate::measure::Meter;
use crate::ort;
use crate::workload::admin::{self, Admin};
use crate::workload::agent::control::Agents;
use crate::workload::bill;
use crate::workload::definition::{Definition, Quick, Response};
use crate::workload::generator::{Generator, Made, Step, Tally, Window};
use crate::workload::judge::judge;
use crate::workload::record::histogram;
use crate::workload::result::{self, Cell, Latency, Report};
use crate::workload::site::Site;
use crate::workload::steady::{self, Steady};
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
    /// All of it in words.
    pub asked: String,
    /// An earlier run of the same, which has measured some cells already.
    pub before: Option<Report>,
    /// One checkpoint in each cell, at a set moment.
    pub steady: Option<Steady>,
}

/// Share of a closed loop's rate that is tried as the peak, and of what did not count that is tried next.
const PEAK_SHARE: f64 = 0.85;
/// How often a peak is tried; the last share is a quarter of the closed loop's.
const PEAK_TRIES: usize = 8;
/// Seconds of that closed loop at least; otherwise as long as a point is measured: a server may hold for a few seconds what
/// it does not hold for long.
const SEARCH_MIN: f64 = 3.0;
/// Between the start of a cell and its first operation.
const LEAD: Duration = Duration::from_millis(20);

/// Who makes the load.
pub enum Load<'a> {
    Own(Box<Generator<'a>>),
    Agents(&'a mut Agents),
}

impl Load<'_> {
    fn make(&mut self, peak: f64, scale: f64) -> Outcome<Made> {
        match self {
            Load::Own(generator) => generator.make(peak, scale),
            Load::Agents(agents) => agents.make(peak, scale),
        }
    }

    fn measure(&mut self, step: &Step, (warm_up, seconds): (f64, f64), once: bool, meter: Meter) -> Outcome<Tally> {
        match self {
            Load::Own(generator) => {
                generator.measure(step, Window { begin: Instant::now() + LEAD, warm_up, seconds }, meter)
            }
            Load::Agents(agents) => agents.measure(step, (warm_up, seconds), once, meter),
        }
    }
}

/// Everything that stays the same from cell to cell.
struct Stage<'a> {
    definition: &'a Definition,
    options: &'a Options,
    load: Load<'a>,
    meter: Meter,
    admin: Option<Admin>,
    warm_up: f64,
    seconds: f64,
}

/// Runs a workload from this process at a site that was opened for it. `tell` is called after each cell.
pub fn run(
    reactor: &Reactor,
    site: &Site,
    trouble: &Rc<Trouble>,
    (name, definition): (&str, &Definition),
    options: &Options,
    tell: &mut dyn FnMut(&Report, &Cell),
) -> Report {
    let mut generator = Generator::new(reactor, &site.place, trouble, definition);
    (generator.seed, generator.raw) = (options.seed, options.raw);
    run_by(Load::Own(Box::new(generator)), site, (name, definition), options, tell)
}

/// The same from whoever makes the load.
pub fn run_by(
    load: Load,
    site: &Site,
    (name, definition): (&str, &Definition),
    options: &Options,
    tell: &mut dyn FnMut(&Report, &Cell),
) -> Report {
    let quick = if options.quick { definition.load.quick } else { None };
    let scale = options.scale * quick.map_or(1.0, |quick| quick.scale);
    let mut report = blank(name, definition, options, site);
    if let Load::Agents(agents) = &load {
        report.generators = agents.said();
        report.connections = report.generators.iter().map(|generator| generator.connections).sum();
    }
    report.scale = scale;
    report.peak = first_of([options.peak, quick.map_or(0.0, |quick| quick.peak), definition.load.peak]);
    let mut stage = Stage {
        definition,
        options,
        load,
        meter: site.meter,
        admin: site.admin,
        warm_up: options.warm_up.or(quick.map(|quick| quick.warm_up)).unwrap_or(definition.load.warm_up),
        seconds: options.seconds.or(quick.map(|quick| quick.seconds)).unwrap_or(definition.load.seconds),
    };
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
        asked: options.asked.clone(),
        peak: 0.0,
        files: 0,
        bytes: 0,
        directories: 0,
        connections: site.connections as u64,
        rtt_us: site.rtt_us,
        stable_storage: site.durability.clone(),
        configuration: site.configuration.clone(),
        machine: crate::measure::machine::describe(),
        load_average: None,
        generators: Vec::new(),
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
        let made = self.load.make(sized_for, scale)?;
        (report.files, report.bytes, report.directories) = (made.files, made.bytes, made.directories);
        let before = self.options.before.as_ref();
        if report.peak == 0.0 && self.definition.load.points > 0 {
            // Cells that are taken over are shares of the peak that was found then.
            report.peak = match before.filter(|before| !before.cells.is_empty()) {
                Some(before) => before.peak,
                None => self.find_peak()?,
            };
        }
        for step in steps(self.definition, self.options, quick, report.peak) {
            let cells = before.map_or(&[][..], |before| &before.cells);
            let measured = cells.iter().find(|cell| cell.name == step.name && cell.valid).cloned();
            let cell = measured.map_or_else(|| self.cell(&step), Ok)?;
            report.cells.push(cell.clone());
            tell(report, &cell);
        }
        Ok(())
    }

    /// The most units that count when they are offered, of those tried: a closed loop waits for a server that pauses, and
    /// so reaches what nobody can offer it.
    fn find_peak(&mut self) -> Outcome<f64> {
        let step = Step { name: "search".to_owned(), load: 1.0, cell: None, closed: true };
        let cell = self.measure(&step, 0.5, self.seconds.max(SEARCH_MIN))?;
        let rate: f64 = self.definition.component.iter().map(|component| component.rate_per_unit).sum();
        if rate <= 0.0 {
            return Err("a workload of load points needs a rate".to_owned());
        }
        let mut reached = cell.achieved / rate;
        let mut peak = 0.0;
        for _ in 0..PEAK_TRIES {
            reached *= PEAK_SHARE;
            peak = (reached / 100.0).ceil() * 100.0;
            let step = Step { name: "search".to_owned(), load: peak, cell: None, closed: false };
            // As long as two points, so that it sees what the last of them will.
            let cell = self.measure(&step, self.warm_up, (2.0 * self.seconds).max(SEARCH_MIN))?;
            if self.is_peak(&cell) {
                break;
            }
        }
        Ok(peak)
    }

    /// Whether a load that was tried counts and answers as fast as a peak should.
    fn is_peak(&self, cell: &Cell) -> bool {
        let most = Some(self.definition.load.peak_response_max_ms).filter(|most| *most > 0.0);
        let slow = most.is_some_and(|most| cell.latency_ms.mean > most);
        !slow && judge(cell, &self.definition.valid, self.options.quick).is_empty()
    }

    fn cell(&mut self, step: &Step) -> Outcome<Cell> {
        let (mut cell, unsteady) = match self.options.steady.clone() {
            Some(steady) => self.measure_steady(step, &steady)?,
            None => (self.measure(step, self.warm_up, self.seconds)?, None),
        };
        cell.reasons = judge(&cell, &self.definition.valid, self.options.quick);
        cell.reasons.extend(unsteady);
        cell.valid = cell.reasons.is_empty();
        Ok(cell)
    }

    /// A cell with one checkpoint, and why it does not count if it has another number of them.
    fn measure_steady(&mut self, step: &Step, steady: &Steady) -> Outcome<(Cell, Option<String>)> {
        let admin = self.admin.ok_or("whether a checkpoint fell into a cell is asked at the admin port: name it")?;
        steady.checkpoint()?;
        // What changed beside the first has its age, after which the next comes by itself.
        steady.checkpoint()?;
        let before = admin.checkpoints()?;
        let begin = Instant::now() + LEAD;
        let asked = steady.later(LEAD + Duration::from_secs_f64(self.seconds));
        let cell = self.measure(step, self.warm_up, self.seconds);
        let ended = asked.join().map_err(|_| "what asks for a checkpoint failed")??;
        let late = ended.saturating_duration_since(begin + Duration::from_secs_f64(self.warm_up + self.seconds));
        Ok((cell?, steady::judge(admin.checkpoints()? - before, late)))
    }

    fn measure(&mut self, step: &Step, warm_up: f64, seconds: f64) -> Outcome<Cell> {
        let asked = self.admin.map(|admin| admin.requests()).transpose()?;
        let once = self.definition.taking_part(step.cell.as_deref()).all(|(_, component)| component.once);
        let tally = self.load.measure(step, (warm_up, seconds), once, self.meter)?;
        let mut cell = summary(self.definition, step, &tally);
        if let (Some(admin), Some(before)) = (self.admin, asked) {
            cell.requests = Some(admin::between(&before, &admin.requests()?));
        }
        cell.server_rss_mib = self.meter.pid.and_then(crate::measure::machine::rss_mib);
        Ok(cell)
    }
}

fn summary(definition: &Definition, step: &Step, tally: &Tally) -> Cell {
    let components: Vec<_> = definition.taking_part(step.cell.as_deref()).collect();
    let count: u64 = tally.seen.values().map(|seen| seen.latency.len()).sum();
    let requested: f64 = match step.closed {
        true => 0.0,
        false => components.iter().map(|(_, component)| component.rate_per_unit * step.load).sum(),
    };
    let mut all = histogram();
    let mut operations = Vec::new();
    for (index, component) in &components {
        let shares: f64 = component.operation.iter().map(|operation| operation.share).sum();
        let of_all = if requested > 0.0 { component.rate_per_unit * step.load / requested } else { 1.0 };
        let known = requested > 0.0 || components.len() == 1;
        for operation in &component.operation {
            let found = tally.seen.get(&(*index, operation.op));
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
    let seconds = tally.seconds.max(1e-6);
    let bytes = |of: fn(&super::record::Seen) -> u64| tally.seen.values().map(of).sum::<u64>() as f64 / 1e6 / seconds;
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
        server_cpu_s: tally.server_cpu_s,
        server_rss_mib: None,
        generator_cpu_s: tally.generator_cpu_s,
        lateness_us: tally.lateness_us,
        requests: None,
        histogram_off: tally.histogram_off,
        reopened: tally.reopened,
        jukebox: tally.jukebox,
        verifiers: tally.verifiers,
        valid: true,
        reasons: Vec::new(),
    }
}
