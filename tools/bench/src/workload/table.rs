//! A result on the terminal: one line a cell, the operations of the last one, what it comes to.

use crate::workload::result::{Cell, Report};
use std::fmt::Write;

/// The columns' heads.
pub fn head(report: &Report) -> String {
    let unit = &report.unit;
    let mut text = format!("{} against {}\n", report.workload, report.target);
    if !report.notice.is_empty() {
        let _ = writeln!(text, "{}", report.notice);
    }
    let _ = write!(
        text,
        "{:<16} {:>10} {:>10} {:>10} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8} {:>7}  ",
        "cell", unit, "asked op/s", "got op/s", "mean ms", "p50", "p99", "max", "read MB", "write MB", "us/op"
    );
    text
}

/// One cell.
pub fn line(cell: &Cell) -> String {
    let asked = if cell.requested > 0.0 { format!("{:.0}", cell.requested) } else { "-".to_owned() };
    let cpu = cell.cpu_us().map_or_else(|| "-".to_owned(), |us| format!("{us:.1}"));
    let latency = cell.latency_ms;
    let mut text = format!(
        "{:<16} {:>10.0} {asked:>10} {:>10.0} {:>8.3} {:>8.3} {:>8.3} {:>8.1} {:>8.1} {:>8.1} {cpu:>7}",
        cell.name,
        cell.load,
        cell.achieved,
        latency.mean,
        latency.p50,
        latency.p99,
        latency.max,
        cell.read_mb_s,
        cell.write_mb_s
    );
    if !cell.valid {
        let _ = write!(text, "  INVALID: {}", cell.reasons.join("; "));
    }
    text
}

/// The operations of the last cell, and the whole.
pub fn tail(report: &Report) -> String {
    let mut text = String::new();
    if let Some(cell) = report.cells.last() {
        let _ = writeln!(text, "\noperations of {}:", cell.name);
        for operation in &cell.operations {
            let wanted = operation.wanted.map_or_else(String::new, |wanted| format!("of {wanted:.2}"));
            let latency = operation.latency_ms;
            let _ = writeln!(
                text,
                "  {:<10} {:<17} {:>9} {:>6.2} % {wanted:<9} mean {:>8.3} ms, p99 {:>8.3} ms",
                operation.component, operation.operation, operation.count, operation.share, latency.mean, latency.p99
            );
        }
    }
    let _ = writeln!(
        text,
        "\n{} files, {:.1} MB in {} directories (scale {}), {} connections, round trip {:.0} us; durable: {}",
        report.files,
        report.bytes as f64 / 1e6,
        report.directories,
        report.scale,
        report.connections,
        report.rtt_us,
        report.stable_storage
    );
    for generator in &report.generators {
        let _ = writeln!(
            text,
            "agent {}: {:.0} us from here and back, {:.0} us to the target, {} connections; {}",
            generator.address, generator.rtt_us, generator.target_rtt_us, generator.connections, generator.machine
        );
    }
    if let Some(said) = report.configuration.as_object() {
        let value = |value: &serde_json::Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let all: Vec<String> = said.iter().map(|(name, said)| format!("{name}: {}", value(said))).collect();
        let _ = writeln!(text, "{}", all.join("; "));
    }
    if let Some(bill) = &report.bill {
        let row = |row: &crate::workload::bill::Row| {
            let asked = &row.requests;
            format!("{} {} with {:.1} MB", asked.count, asked.kind, asked.bytes as f64 / 1e6)
        };
        let rows: Vec<String> = bill.rows.iter().map(row).collect();
        let _ = writeln!(
            text,
            "store requests: {}; {:.4} USD, {:.4} USD a million operations ({})",
            rows.join(", "),
            bill.usd,
            bill.usd_per_million_operations,
            bill.assumption
        );
    }
    if let Some(ort) = report.ort_ms {
        let _ = writeln!(text, "overall response time {ort:.3} ms");
    }
    let verdict = if report.valid { "valid".to_owned() } else { format!("INVALID: {}", report.reasons.join("\n  ")) };
    let _ = write!(text, "{verdict}");
    text
}
