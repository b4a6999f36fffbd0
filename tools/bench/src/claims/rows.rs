//! What is held against the systems that Tarn follows: a row a claim.
//!
//! - Absolute rates of other machines are no measure of ours: figures are a core's, ratios, or shapes of a curve.

use crate::workload::result::{Cell, Report};

/// A claim: the workload, what is compared, the seed's figure in words, and how ours is taken.
pub struct Claim {
    /// The plan whose results it is taken from.
    pub plan: &'static str,
    pub what: &'static str,
    pub seed: &'static str,
    pub aim: &'static str,
    pub figure: Figure,
}

/// How a figure is taken of several rounds.
#[derive(Clone, Copy)]
pub enum Figure {
    /// Of each; the median counts.
    Median(fn(&Beside) -> Option<f64>),
    /// The coefficient of variation over the rounds, per cent.
    Variation(fn(&Beside) -> Option<f64>),
}

/// One round of a server, and the same round of two others.
#[derive(Clone, Copy)]
pub struct Beside<'a> {
    pub own: &'a Report,
    /// Tarn over a store in memory.
    pub ram: Option<&'a Report>,
    pub ganesha: Option<&'a Report>,
}

fn peak(report: &Report) -> Option<&Cell> {
    report.cells.last()
}

fn named<'a>(report: &'a Report, name: &str) -> Option<&'a Cell> {
    report.cells.iter().find(|cell| cell.name == name)
}

fn per_cpu_second(report: &Report) -> Option<f64> {
    peak(report)?.cpu_us().filter(|us| *us > 0.0).map(|us| 1e6 / us)
}

fn moved(cell: &Cell) -> f64 {
    cell.read_mb_s + cell.write_mb_s
}

fn mb_per_cpu_second(report: &Report) -> Option<f64> {
    let cell = peak(report)?;
    Some(moved(cell) * cell.seconds / cell.server_cpu_s.filter(|seconds| *seconds > 0.0)?)
}

fn rate(beside: &Beside) -> Option<f64> {
    peak(beside.own).map(|cell| cell.achieved)
}

fn megabytes(beside: &Beside) -> Option<f64> {
    peak(beside.own).map(moved)
}

fn mean_ms(beside: &Beside) -> Option<f64> {
    peak(beside.own).map(|cell| cell.latency_ms.mean)
}

fn cpu_us(beside: &Beside) -> Option<f64> {
    peak(beside.own)?.cpu_us()
}

fn ort(beside: &Beside) -> Option<f64> {
    beside.own.ort_ms
}

/// The mean response at one point over that at another.
fn response_over(report: &Report, high: &str, low: &str) -> Option<f64> {
    let mean = |name| named(report, name).map(|cell| cell.latency_ms.mean);
    Some(mean(high)? / mean(low).filter(|low| *low > 0.0)?)
}

/// Greatest over least of a value of the cells whose names begin so.
fn spread(report: &Report, begin: &str, value: fn(&Cell) -> f64) -> Option<(f64, f64)> {
    let values = || report.cells.iter().filter(|cell| cell.name.starts_with(begin)).map(value);
    (values().count() > 0).then(|| (values().fold(f64::INFINITY, f64::min), values().fold(0.0, f64::max)))
}

/// The lowest cell of a mixture grid as a share of what lies on the line between its ends.
fn lowest_of_grid(report: &Report) -> Option<f64> {
    let mut lowest = f64::INFINITY;
    for way in ["random", "sequential"] {
        let at = |reads: u32| named(report, &format!("{way} {reads}")).map(|cell| cell.achieved);
        let (none, all) = (at(0)?, at(100)?);
        for reads in [20, 50, 80] {
            let line = none + (all - none) * f64::from(reads) / 100.0;
            lowest = lowest.min(at(reads)? / line);
        }
    }
    Some(lowest)
}

/// What each job of the last cell gets as a share of what the only job of the first one got.
fn efficiency(report: &Report) -> Option<f64> {
    let of = |cell: &Cell| moved(cell) / cell.load;
    Some(of(report.cells.last()?) / of(report.cells.first()?))
}

fn files_per_second(report: &Report, name: &str) -> Option<f64> {
    named(report, name).map(|cell| cell.achieved)
}

fn write_p99(report: &Report) -> Option<f64> {
    let operation = peak(report)?.operations.iter().find(|operation| operation.operation.starts_with("write"))?;
    Some(operation.latency_ms.p99).filter(|ms| *ms > 0.0)
}

const CURVE: &str = "sfs2008-like";
const FIXED: &str = "sfs2008-like-fixed";
const IMAGES: &str = "ai-image-like";
const SMALL: &str = "small-files";

pub const CLAIMS: &[Claim] = &[
    Claim {
        plan: CURVE,
        what: "op/s on one core",
        seed: "Avere: 5,006 a core",
        aim: "30,000",
        figure: Figure::Median(rate),
    },
    Claim { plan: CURVE, what: "ORT, ms", seed: "Avere: 0.95", aim: "0.95", figure: Figure::Median(ort) },
    Claim { plan: CURVE, what: "response at peak, ms", seed: "Avere: 3.0", aim: "20", figure: Figure::Median(mean_ms) },
    Claim {
        plan: CURVE,
        what: "response at 60 % over that at 10 %",
        seed: "Avere: 3.0",
        aim: "3.0",
        figure: Figure::Median(|beside| response_over(beside.own, "60 %", "10 %")),
    },
    Claim {
        plan: CURVE,
        what: "response at 100 % over that at 10 %",
        seed: "Avere: 10",
        aim: "10",
        figure: Figure::Median(|beside| response_over(beside.own, "100 %", "10 %")),
    },
    Claim {
        plan: CURVE,
        what: "ORT over that with the store in memory",
        seed: "Avere, four back ends: 1.105",
        aim: "1.105",
        figure: Figure::Median(|beside| Some(beside.own.ort_ms? / beside.ram?.ort_ms?)),
    },
    Claim {
        plan: CURVE,
        what: "op per CPU-second at each one's peak, over Ganesha's",
        seed: "-",
        aim: "1.5",
        figure: Figure::Median(|beside| Some(per_cpu_second(beside.own)? / per_cpu_second(beside.ganesha?)?)),
    },
    Claim {
        plan: FIXED,
        what: "server, us of processor an operation",
        seed: "-",
        aim: "33",
        figure: Figure::Median(cpu_us),
    },
    Claim {
        plan: FIXED,
        what: "op per CPU-second, object store included",
        seed: "Avere, whole system: 1,802 a core",
        aim: "1,802",
        figure: Figure::Median(|beside| per_cpu_second(beside.own)),
    },
    Claim {
        plan: FIXED,
        what: "the same over Ganesha's at that load",
        seed: "-",
        aim: "1.5",
        figure: Figure::Median(|beside| Some(per_cpu_second(beside.own)? / per_cpu_second(beside.ganesha?)?)),
    },
    Claim {
        plan: FIXED,
        what: "us an operation, variation over the rounds, %",
        seed: "means of repeated runs",
        aim: "5",
        figure: Figure::Variation(cpu_us),
    },
    Claim { plan: IMAGES, what: "ORT, ms", seed: "Qumulo: 0.84", aim: "0.84", figure: Figure::Median(ort) },
    Claim {
        plan: IMAGES,
        what: "mean latency at the peak over the least of a point",
        seed: "Qumulo: 1.26",
        aim: "1.27",
        figure: Figure::Median(|beside| {
            let (least, _) = spread(beside.own, "", |cell| cell.latency_ms.mean)?;
            mean_ms(beside).map(|peak| peak / least)
        }),
    },
    Claim {
        plan: IMAGES,
        what: "greatest mean latency of a point over the least",
        seed: "Qumulo: 1.26",
        aim: "1.27, accepted 1.5",
        figure: Figure::Median(|beside| {
            spread(beside.own, "", |cell| cell.latency_ms.mean).map(|(least, most)| most / least)
        }),
    },
    Claim {
        plan: IMAGES,
        what: "MB per CPU-second",
        seed: "SoftNAS sizing: 32 MB/s a core",
        aim: "32",
        figure: Figure::Median(|beside| mb_per_cpu_second(beside.own)),
    },
    Claim {
        plan: IMAGES,
        what: "jobs of 97.8 MB/s a core",
        seed: "-",
        aim: "-",
        figure: Figure::Median(|beside| Some(mb_per_cpu_second(beside.own)? / 97.8)),
    },
    Claim {
        plan: "oltp",
        what: "IOPS on one core, 128 outstanding",
        seed: "ONTAP: 3,939 a vCPU",
        aim: "15,000",
        figure: Figure::Median(rate),
    },
    Claim { plan: "oltp", what: "mean latency, ms", seed: "ONTAP: 7 to 9", aim: "8", figure: Figure::Median(mean_ms) },
    Claim {
        plan: "stream-read",
        what: "MB/s on one core",
        seed: "ONTAP: 85 a vCPU",
        aim: "85",
        figure: Figure::Median(megabytes),
    },
    Claim {
        plan: "stream-write",
        what: "MB/s on one core, durable",
        seed: "ONTAP: 32 a vCPU",
        aim: "32",
        figure: Figure::Median(megabytes),
    },
    Claim {
        plan: "stream-write",
        what: "p99 of a write over that with the store in memory",
        seed: "Qumulo: writes do not wait for Blob",
        aim: "1.2",
        figure: Figure::Median(|beside| Some(write_p99(beside.own)? / write_p99(beside.ram?)?)),
    },
    Claim {
        plan: "analytics",
        what: "MB/s on one core",
        seed: "ONTAP: 22.5 a vCPU",
        aim: "22.5",
        figure: Figure::Median(megabytes),
    },
    Claim {
        plan: "analytics",
        what: "mean latency, ms",
        seed: "ONTAP: 9 to 20",
        aim: "14",
        figure: Figure::Median(mean_ms),
    },
    Claim {
        plan: "vdbench-grid",
        what: "reads, 64 KiB to 1 MiB: best MB/s",
        seed: "PowerScale: 98 % of its link",
        aim: "-",
        figure: Figure::Median(|beside| spread(beside.own, "read", moved).map(|(_, most)| most)),
    },
    Claim {
        plan: "vdbench-grid",
        what: "writes, 64 KiB to 1 MiB: best MB/s",
        seed: "PowerScale: best at 256 KiB",
        aim: "-",
        figure: Figure::Median(|beside| spread(beside.own, "write", moved).map(|(_, most)| most)),
    },
    Claim {
        plan: "vdbench-grid",
        what: "worst over best size, reads",
        seed: "PowerScale: 64 KiB worst",
        aim: "0.8",
        figure: Figure::Median(|beside| spread(beside.own, "read", moved).map(|(least, most)| least / most)),
    },
    Claim {
        plan: "vdbench-grid",
        what: "worst over best size, writes",
        seed: "PowerScale: 64 KiB worst",
        aim: "0.8",
        figure: Figure::Median(|beside| spread(beside.own, "write", moved).map(|(least, most)| least / most)),
    },
    Claim {
        plan: SMALL,
        what: "files of 1 MB written a second, over Ganesha's",
        seed: "PowerScale: 3 to 4 times EFS",
        aim: "-",
        figure: Figure::Median(|beside| {
            Some(files_per_second(beside.own, "write 1 MB")? / files_per_second(beside.ganesha?, "write 1 MB")?)
        }),
    },
    Claim {
        plan: SMALL,
        what: "files of 1 MB read a second, over Ganesha's",
        seed: "PowerScale: twice EFS",
        aim: "-",
        figure: Figure::Median(|beside| {
            Some(files_per_second(beside.own, "read 1 MB")? / files_per_second(beside.ganesha?, "read 1 MB")?)
        }),
    },
    Claim {
        plan: SMALL,
        what: "files of 10 MB written a second",
        seed: "-",
        aim: "-",
        figure: Figure::Median(|beside| files_per_second(beside.own, "write 10 MB")),
    },
    Claim {
        plan: SMALL,
        what: "files of 10 MB read a second",
        seed: "-",
        aim: "-",
        figure: Figure::Median(|beside| files_per_second(beside.own, "read 10 MB")),
    },
    Claim {
        plan: "softnas-matrix",
        what: "32 KiB reads a second, random",
        seed: "SoftNAS: 12,800 on 4 to 16 cores",
        aim: "-",
        figure: Figure::Median(|beside| named(beside.own, "random 100").map(|cell| cell.achieved)),
    },
    Claim {
        plan: "softnas-matrix",
        what: "32 KiB writes a second, random",
        seed: "SoftNAS: 5,400 on 4 to 16 cores",
        aim: "-",
        figure: Figure::Median(|beside| named(beside.own, "random 0").map(|cell| cell.achieved)),
    },
    Claim {
        plan: "softnas-matrix",
        what: "lowest mixture over the line between reads and writes",
        seed: "SoftNAS: no cliff",
        aim: "0.5",
        figure: Figure::Median(|beside| lowest_of_grid(beside.own)),
    },
    Claim {
        plan: "render",
        what: "twice the tasks, over the time of the single",
        seed: "PowerScale: 1.17, link not full",
        aim: "1.25",
        figure: Figure::Median(|beside| {
            Some(named(beside.own, "2N tasks")?.seconds / named(beside.own, "N tasks")?.seconds)
        }),
    },
    Claim {
        plan: "bowtie",
        what: "8 jobs that write 17 MB/s, each one's share of the only one's",
        seed: "PowerScale, 5 to 40 jobs: 0.92",
        aim: "0.92",
        figure: Figure::Median(|beside| efficiency(beside.own)),
    },
];
