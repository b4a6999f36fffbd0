//! Measured figures: what a workload's load points cost the server, and what moved.
//!
//! - A small TOML file, written from results of `tarn-bench run --json` and strict in every key.
//! - Only load points that count are taken: no forecast from a run that is invalid.

use crate::Outcome;
use crate::workload::result::{Cell, Report};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// Processor seconds below which a point says too little: they are told in ticks of 10 ms.
const CPU_MIN: f64 = 0.5;

#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Figures {
    pub measured: Vec<Measured>,
}

/// Of one workload at one server.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Measured {
    pub workload: String,
    /// What load is counted in.
    pub unit: String,
    pub server: String,
    pub store: String,
    pub machine: String,
    /// A unit's operations a second, and MB a second read and written.
    pub operations: f64,
    pub read_mb: f64,
    pub write_mb: f64,
    /// The server's memory at the last point, MiB.
    pub memory_mib: f64,
    /// A call's way there and back in the measurement, ms.
    pub rtt_ms: f64,
    /// Requests to the object store, by kind.
    pub requests: Vec<Requests>,
    /// Rising in units.
    pub points: Vec<Point>,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Requests {
    pub kind: String,
    /// A second, whatever the load: a server looks after its store when nobody asks for anything.
    pub idle: f64,
    /// A second and unit besides.
    pub of_unit: f64,
}

/// A load point.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Point {
    pub units: f64,
    /// Processor seconds of the server a second.
    pub cores: f64,
    pub mean_ms: f64,
}

impl Figures {
    pub fn parse(text: &str) -> Outcome<Figures> {
        let figures: Figures = toml::from_str(text).map_err(|error| error.to_string())?;
        let sound = |measured: &Measured| measured.points.len() >= 2 && measured.operations > 0.0;
        match figures.measured.iter().find(|measured| !sound(measured)) {
            Some(measured) => Err(format!("{}: two load points or more, and operations", measured.workload)),
            None => Ok(figures),
        }
    }

    /// Of the results that count.
    pub fn of(reports: &[Report]) -> Outcome<Figures> {
        let measured: Vec<Measured> = reports.iter().filter_map(Measured::of).collect();
        match measured.is_empty() {
            false => Ok(Figures { measured }),
            true => Err("no result has two load points that count and the server's processor time".to_owned()),
        }
    }

    pub fn text(&self) -> Outcome<String> {
        toml::to_string(self).map_err(|error| error.to_string())
    }

    /// Those of a workload; `-like` may be left out.
    pub fn find(&self, name: &str) -> Outcome<&Measured> {
        let is = |measured: &&Measured| measured.workload == name || measured.workload == format!("{name}-like");
        self.measured.iter().find(is).ok_or_else(|| {
            let known: Vec<&str> = self.measured.iter().map(|measured| measured.workload.as_str()).collect();
            let known = known.join(", ");
            format!("no figures of {name}, only of {known}; measure it and write them with `size --from RESULT`")
        })
    }
}

impl Measured {
    /// Load points of a report that count and whose server was on this machine.
    pub fn points_of(report: &Report) -> Vec<Point> {
        let point = |cell: &Cell| {
            let cores = cell.server_cpu_s.filter(|cpu| *cpu >= CPU_MIN)? / cell.seconds;
            Some(Point { units: cell.load, cores: short(cores), mean_ms: short(cell.latency_ms.mean) })
        };
        counting(report).filter_map(point).collect()
    }

    fn of(report: &Report) -> Option<Measured> {
        let mut points = Measured::points_of(report);
        points.sort_by(|one, other| one.units.total_cmp(&other.units));
        if points.len() < 2 {
            return None;
        }
        let cells = || counting(report);
        // Longer and fuller points tell more.
        let seconds_of_units: f64 = cells().map(|cell| cell.load * cell.seconds).sum();
        let a_unit =
            |value: fn(&Cell) -> f64| cells().map(|cell| value(cell) * cell.seconds).sum::<f64>() / seconds_of_units;
        let kinds: BTreeSet<&str> =
            cells().flat_map(|cell| cell.requests.iter().flatten()).map(|row| row.kind.as_str()).collect();
        let requests = kinds.into_iter().map(|kind| {
            let of = |cell: &Cell| {
                let rows = cell.requests.iter().flatten();
                rows.filter(|row| row.kind == kind).map(|row| row.count as f64).sum::<f64>() / cell.seconds
            };
            let (idle, of_unit) = line(&cells().map(|cell| (cell.load, of(cell))).collect::<Vec<_>>());
            Requests { kind: kind.to_owned(), idle: short(idle), of_unit: short(of_unit) }
        });
        let said = |name: &str| report.configuration[name].as_str().unwrap_or("not told").to_owned();
        Some(Measured {
            workload: report.workload.clone(),
            unit: report.unit.clone(),
            server: said("Server"),
            store: said("Store profile"),
            machine: report.machine.clone(),
            operations: a_unit(|cell| cell.achieved),
            read_mb: a_unit(|cell| cell.read_mb_s),
            write_mb: a_unit(|cell| cell.write_mb_s),
            memory_mib: report.cells.iter().filter_map(|cell| cell.server_rss_mib).fold(0.0, f64::max),
            rtt_ms: report.rtt_us / 1000.0,
            requests: requests.collect(),
            points,
        })
    }

    /// The same as if one point had not been measured.
    #[cfg(test)]
    pub fn without(&self, index: usize) -> Measured {
        let mut rest = self.clone();
        rest.points.remove(index);
        rest
    }

    /// Cores that the server needs.
    pub fn cores(&self, units: f64) -> f64 {
        let points: Vec<(f64, f64)> = self.points.iter().map(|point| (point.units, point.cores)).collect();
        let (idle, slope) = line(&points);
        idle + slope * units
    }

    /// Mean response of the point below whose use of a core this use lies, the last one's beyond it.
    pub fn response_ms(&self, cores: f64) -> f64 {
        let found = self.points.iter().find(|point| point.cores >= cores);
        found.or(self.points.last()).map_or(0.0, |point| point.mean_ms)
    }
}

/// To the sixth decimal: nothing here is known better.
fn short(value: f64) -> f64 {
    (value * 1e6).round() / 1e6
}

/// Load points that count.
fn counting(report: &Report) -> impl Iterator<Item = &Cell> {
    report.cells.iter().filter(|cell| cell.valid && cell.requested > 0.0 && cell.load > 0.0)
}

/// Height at 0 and slope of the straight line through (units, value) by least squares; neither is below 0.
fn line(points: &[(f64, f64)]) -> (f64, f64) {
    let count = points.len() as f64;
    let middle = points.iter().map(|(units, _)| units).sum::<f64>() / count;
    let height = points.iter().map(|(_, value)| value).sum::<f64>() / count;
    let both: f64 = points.iter().map(|(units, value)| (units - middle) * (value - height)).sum();
    let squares: f64 = points.iter().map(|(units, _)| (units - middle).powi(2)).sum();
    let slope = if squares > 0.0 { both / squares } else { 0.0 };
    match height - slope * middle {
        _ if slope < 0.0 => (height, 0.0),
        idle if idle < 0.0 => (0.0, height / middle),
        idle => (idle, slope),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(points: &[(f64, f64)]) -> Measured {
        let points = points.iter().map(|(units, cores)| Point { units: *units, cores: *cores, mean_ms: 1.0 }).collect();
        Measured {
            workload: "w".to_owned(),
            unit: "job".to_owned(),
            server: String::new(),
            store: String::new(),
            machine: String::new(),
            operations: 1.0,
            read_mb: 1.0,
            write_mb: 1.0,
            memory_mib: 1.0,
            rtt_ms: 0.1,
            requests: Vec::new(),
            points,
        }
    }

    #[test]
    fn cores_lie_on_the_line_through_the_points() {
        let straight = measured(&[(1.0, 0.3), (2.0, 0.5), (4.0, 0.9)]);
        assert!((straight.cores(10.0) - 2.1).abs() < 1e-9);
        assert!((straight.cores(0.0) - 0.1).abs() < 1e-9, "it idles");
        let below = measured(&[(1.0, 0.1), (2.0, 0.3)]);
        assert!(below.cores(0.0).abs() < 1e-9, "no server gives time back");
        assert_eq!(line(&[(1.0, 5.0), (3.0, 3.0)]), (4.0, 0.0));
    }

    #[test]
    fn figures_are_read_as_they_are_written() {
        let figures = Figures { measured: vec![measured(&[(1.0, 0.3), (2.0, 0.5)])] };
        let again = Figures::parse(&figures.text().unwrap()).unwrap();
        assert_eq!(again.measured[0].points.len(), 2);
        assert!(Figures::parse("[[measured]]\nworkload = \"w\"").is_err());
        let one = Figures { measured: vec![measured(&[(1.0, 0.3)])] };
        assert!(Figures::parse(&one.text().unwrap()).is_err());
    }
}
