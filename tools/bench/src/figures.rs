//! The figures that Tarn's speed is judged from, as one table.
//!
//! - Everything of one operation is measured in turns, so servers meet the same machine.
//! - Durability of each side stands beside the figures, since a flush is what most of them cost.

use crate::Outcome;
use crate::compare::{Rounds, Row, Shape, compare};
use crate::load::{Operation, Site};
use crate::measure::disk::Disk;
use crate::measure::{RealTime, machine};
use crate::report;

/// What is measured, in the order of the table.
pub const SHAPES: &[(Operation, usize, usize)] = &[
    (Operation::Getattr, 1, 1),
    (Operation::Getattr, 8, 16),
    (Operation::Lookup, 8, 16),
    (Operation::Access, 8, 16),
    (Operation::Read4k, 8, 16),
    (Operation::Write4kFilesync, 1, 1),
    (Operation::Write4kFilesync, 1, 16),
    (Operation::Write4kFilesync, 16, 16),
    (Operation::Create, 1, 16),
    (Operation::Create, 4, 16),
    (Operation::Read1m, 4, 4),
    (Operation::Read1mWritten, 4, 4),
    (Operation::Write1m, 4, 4),
];

/// A server takes part where its floor is meant: the null server without a log where nothing must be durable.
fn takes_part(site: &Site, operation: Operation) -> bool {
    match site.target.name.as_str() {
        "null server" => !operation.is_durable(),
        "null server with log" => operation.is_durable(),
        _ => true,
    }
}

/// What the generator must be able to make, or its figures are its own.
pub const CEILING_MIN: f64 = 700_000.0;

/// The generator's own limit: GETATTR at 8 x 16 against the null server, calls a second.
pub fn ceiling(sites: &mut [Site], rounds: Rounds) -> Outcome<Option<f64>> {
    let shape = Shape::closed((Operation::Getattr, 8, 16));
    let mut null: Vec<&mut Site> = sites.iter_mut().filter(|site| site.target.name == "null server").collect();
    Ok(compare(&mut null, shape, rounds, None)?.first().map(|row| row.seen.rate))
}

/// Measures every shape at every site, telling each table as it is there.
pub fn measure(sites: &mut [Site], rounds: Rounds, tell: &mut dyn FnMut(&[Row])) -> Outcome<Vec<Row>> {
    let mut rows = Vec::new();
    for shape in SHAPES {
        let shape = Shape::closed(*shape);
        let mut taking: Vec<&mut Site> = sites.iter_mut().filter(|site| takes_part(site, shape.operation)).collect();
        let mut of_shape = compare(&mut taking, shape, rounds, None)?;
        if shape.operation.is_looking() && shape.connections > 1 {
            let paces: Vec<f64> = of_shape.iter().map(|row| row.seen.rate / 2.0).collect();
            of_shape.extend(compare(&mut taking, Shape { half: true, ..shape }, at_half_load(rounds), Some(&paces))?);
        }
        tell(&of_shape);
        rows.extend(of_shape);
    }
    Ok(rows)
}

/// More rounds than of a closed loop: where the machine stands still for a hundredth of one, the 99th percentile is that.
fn at_half_load(rounds: Rounds) -> Rounds {
    Rounds { count: rounds.count * 2 + 1, ..rounds }
}

/// Said where the machine had other work before the measurement began.
const SHARED: &str = "The machine was shared with other work (load average above): rates and latencies carry that, and \
    where core is far above process a row was disturbed; process us/op and the last column move least.\n";

/// What the machine did besides.
#[derive(Clone, Debug)]
pub struct Around {
    /// Load average before and after.
    pub loads: (f64, f64),
    /// Share of the busy time that the host took.
    pub stolen: f64,
    /// How late its cores wake, what pauses them and who ran meanwhile, in lines of their own.
    pub cores: String,
}

/// Where most interrupts came to while the disk was measured, and whose core that is.
fn told_of_ends(core: Option<usize>, server: Option<usize>) -> String {
    let Some(core) = core else { return String::new() };
    let whose = match server {
        Some(server) if server == core => ", the servers'",
        Some(_) => ", not the servers'",
        None => "",
    };
    format!(" Meanwhile most interrupts came to core {core}{whose}.")
}

/// The whole text: how it was measured, what is durable, the table.
pub fn text(sites: &[Site], rounds: Rounds, alone: (&Disk, Option<f64>), around: &Around, rows: &[Row]) -> String {
    let (disk, ceiling) = alone;
    let ceiling = match ceiling {
        Some(rate) => format!("The generator's ceiling: {rate:.0} GETATTR/s at 8 x 16 against the null server.\n"),
        None => String::new(),
    };
    let durability: String =
        sites.iter().map(|site| format!("- {}: {}\n", site.target.name, site.target.durability)).collect();
    let pinned = sites.iter().all(|site| site.meter.core.is_some());
    format!(
        "Machine: {}; load average {:.2} before and {:.2} after, the measurement included; the host took {:.2} % of the \
         time that its cores were busy.\n\
         Medians of {} rounds (at half load {}) of {:.1} s after {:.1} s of warm-up, the servers in turns; a round of \
         1 MiB writes moves {} MiB and ends with the last COMMIT's reply. {} {}\n\
         The disk alone, same file system: 4 KiB pwrite and fdatasync {:.0} us (median); 1 MiB pwrites and one fdatasync \
         over a file written before {:.0} MiB/s.{}\n{}{ceiling}{}\n{}\nDurable when the reply leaves:\n\n{durability}\n{}",
        machine::describe(),
        around.loads.0,
        around.loads.1,
        around.stolen * 100.0,
        rounds.count,
        at_half_load(rounds).count,
        rounds.length.as_secs_f64(),
        rounds.warm_up.as_secs_f64(),
        rounds.bytes >> 20,
        if pinned { "Servers on one core, the generator on another." } else { "Nothing was pinned." },
        RealTime::words(),
        disk.flush.as_secs_f64() * 1e6,
        disk.stream / (1 << 20) as f64,
        told_of_ends(disk.core, sites.iter().find_map(|site| site.meter.core)),
        around.cores,
        crate::servers::group::words(),
        if around.loads.0 > 1.0 { SHARED } else { "" },
        report::table(rows),
    )
}
