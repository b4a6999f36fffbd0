//! `tarn-bench size` (also `tarn size`): what a load needs, forecast from measured figures, every assumption printed.
//!
//! - [`figures`]: what was measured, a small data file that is written from results. [`forecast`]: the model.
//! - `--check` holds the forecast against another measurement; it fails beyond [`OFF_MAX`].

mod figures;
mod forecast;

use crate::Outcome;
use crate::workload::library::find;
use crate::workload::result::Report;
use figures::{Figures, Measured};
use forecast::{Node, Wanted, forecast};
use std::fmt::Write;
use std::path::{Path, PathBuf};

/// What comes with the program.
const FIGURES: &str = include_str!("../../sizes.toml");
/// Per cent by which a forecast may miss a measurement.
pub const OFF_MAX: f64 = 20.0;

#[derive(clap::Args)]
pub struct Arguments {
    /// A workload that figures were measured of; `-like` may be left out
    #[arg(long, required_unless_present_any = ["from", "check"])]
    workload: Option<String>,
    /// Units of load: jobs, op/s, streams, as the workload counts
    #[arg(long, alias = "jobs", required_unless_present_any = ["from", "check"])]
    units: Option<f64>,
    /// Milliseconds from the clients to the filer and back
    #[arg(long, default_value_t = 0.5)]
    rtt: f64,
    /// Share of the data that is used, which memory is to hold
    #[arg(long, default_value_t = 1.0)]
    cached: f64,
    /// Milliseconds that the object store takes to answer
    #[arg(long, default_value_t = 15.0)]
    store_ms: f64,
    /// Share of a month in which the load is there
    #[arg(long, default_value_t = 1.0)]
    duty: f64,
    /// Seconds of writes that the log takes before a checkpoint begins
    #[arg(long, default_value_t = 120.0)]
    absorb: f64,
    #[command(flatten)]
    node: Node,
    /// Measured figures [default: those that come with the program]
    #[arg(long, value_name = "FILE")]
    figures: Option<PathBuf>,
    /// Print the figures of a result of `tarn-bench run --json` as such a file
    #[arg(long, value_name = "RESULT")]
    from: Option<PathBuf>,
    /// Hold the forecast against a result of `tarn-bench run --json`
    #[arg(long, value_name = "RESULT", conflicts_with = "from")]
    check: Option<PathBuf>,
}

pub fn run(arguments: &Arguments) -> Outcome<()> {
    if let Some(path) = &arguments.from {
        print!("{}", Figures::of(&read(path)?)?.text()?);
        return Ok(());
    }
    let figures = match &arguments.figures {
        Some(path) => {
            Figures::parse(&std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?)?
        }
        None => Figures::parse(FIGURES)?,
    };
    if let Some(path) = &arguments.check {
        return check(&figures, &read(path)?);
    }
    let (Some(workload), Some(units)) = (&arguments.workload, arguments.units) else {
        return Err("give --workload and --units".to_owned());
    };
    let measured = figures.find(workload)?;
    let (_, definition) = find(&measured.workload)?;
    let wanted = Wanted {
        units,
        rtt_ms: arguments.rtt,
        cached: arguments.cached,
        store_ms: arguments.store_ms,
        duty: arguments.duty,
        absorb: arguments.absorb,
        node: arguments.node,
    };
    wanted.check()?;
    print!("{}", forecast(measured, &definition, &wanted)?.text(measured, &wanted));
    Ok(())
}

fn read(path: &Path) -> Outcome<Vec<Report>> {
    let text = std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
    serde_json::from_str(&text).map_err(|error| format!("{}: {error}", path.display()))
}

/// A line for each load point of the reports that figures are known of.
fn check(figures: &Figures, reports: &[Report]) -> Outcome<()> {
    let mut text =
        format!("{:<16} {:>10} {:>14} {:>14} {:>8}\n", "workload", "units", "forecast cores", "measured", "off %");
    let mut worst: f64 = 0.0;
    let mut compared = 0;
    for report in reports {
        let Ok(measured) = figures.find(&report.workload) else { continue };
        for point in Measured::points_of(report) {
            let cores = measured.cores(point.units);
            let off = (cores / point.cores - 1.0) * 100.0;
            let (name, units) = (&report.workload, point.units);
            let _ = writeln!(text, "{name:<16} {units:>10.2} {cores:>14.3} {:>14.3} {off:>+8.1}", point.cores);
            worst = worst.max(off.abs());
            compared += 1;
        }
    }
    print!("{text}");
    match compared {
        0 => {
            Err("no load point of these results counts, has processor time and is of a workload with figures"
                .to_owned())
        }
        _ if worst <= OFF_MAX => Ok(()),
        _ => Err(format!("a forecast is off by {worst:.1} %, {OFF_MAX} are allowed")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each load point of the figures from all others, so that none is forecast from itself.
    #[test]
    fn forecasts_are_within_their_bound_of_what_was_measured() {
        let figures = Figures::parse(FIGURES).unwrap();
        let mut configurations = 0;
        for measured in &figures.measured {
            for (index, point) in measured.points.iter().enumerate() {
                let forecast = measured.without(index).cores(point.units);
                let off = (forecast / point.cores - 1.0) * 100.0;
                assert!(off.abs() <= OFF_MAX, "{} at {} from the others: {off:+.1} %", measured.workload, point.units);
                configurations += 1;
            }
        }
        assert!(configurations >= 2);
    }

    #[test]
    fn everything_that_has_figures_can_be_sized() {
        let figures = Figures::parse(FIGURES).unwrap();
        let node = Node { cores: 16.0, memory: 128.0, network: 12.5, price: 1.0, busy: 0.6 };
        for measured in &figures.measured {
            let (_, definition) = find(&measured.workload).unwrap();
            let wanted =
                |units| Wanted { units, rtt_ms: 0.5, cached: 0.5, store_ms: 15.0, duty: 1.0, absorb: 120.0, node };
            let of = |units| forecast(measured, &definition, &wanted(units)).unwrap();
            let (small, large) = (of(measured.points[0].units), of(measured.points[0].units * 100.0));
            assert!(large.cores > small.cores && large.usd > small.usd && large.nodes >= small.nodes);
            let text = large.text(measured, &wanted(1.0));
            for word in ["assum", "USD", "cores", "log"] {
                assert!(text.contains(word), "{word}: {text}");
            }
        }
        assert!(figures.find("sfs2008").is_ok() && figures.find("nothing").is_err());
    }
}
