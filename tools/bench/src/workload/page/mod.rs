//! The report as one page: everything in it, nothing fetched, readable in print and by the colour-blind.
//!
//! - Its shape is that of a disclosure: what was measured, on what, how stable, point by point, whether it counts.
//! - Curves differ by dash and mark, not by colour alone; axes have titles and units.

mod plot;
mod svg;

use crate::workload::result::{Cell, Report};
use plot::{Plot, Series};
use std::fmt::Write;

const STYLE: &str = "body{font:15px/1.45 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#111}\
h1{font-size:1.5rem}h2{font-size:1.15rem;margin-top:2rem;border-bottom:1px solid #999}\
table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}\
th,td{padding:.2rem .5rem;text-align:right;border-bottom:1px solid #ddd}th:first-child,td:first-child{text-align:left}\
.notice{border:2px solid #111;padding:.4rem .8rem;font-weight:600}.invalid{background:#111;color:#fff;padding:.4rem .8rem}\
svg{width:100%;height:auto;break-inside:avoid}@media print{body{margin:0;font-size:11px}h2{break-after:avoid}}";

/// One page of all reports.
pub fn page(reports: &[Report]) -> String {
    let title = reports.first().map_or("Report", |report| report.title.as_str());
    let mut text = format!(
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" \
         content=\"width=device-width\"><title>{}</title><link rel=\"icon\" href=\"data:,\"><style>{STYLE}</style></head><body>",
        escape(title)
    );
    for report in reports {
        section(&mut text, report);
    }
    text.push_str("</body></html>\n");
    text
}

fn section(text: &mut String, report: &Report) {
    let _ = write!(text, "<h1>{}: {}</h1>", escape(&report.workload), escape(&report.title));
    if !report.notice.is_empty() {
        let _ = write!(text, "<p class=\"notice\">{}</p>", escape(&report.notice));
    }
    if !report.valid {
        let _ = write!(text, "<p class=\"invalid\">INVALID: {}</p>", escape(&report.reasons.join("; ")));
    }
    summary(text, report);
    curves(text, report);
    points(text, report);
    operations(text, report);
    validity(text, report);
}

fn summary(text: &mut String, report: &Report) {
    text.push_str("<h2>What was measured</h2><table>");
    let best = report.cells.iter().map(|cell| cell.achieved).fold(0.0, f64::max);
    let mut row = |name: &str, value: String| {
        let _ = write!(text, "<tr><td>{name}</td><td>{}</td></tr>", escape(&value));
    };
    row("Target", report.target.clone());
    row("Follows", report.follows.clone());
    row("Most operations a second", format!("{best:.0}"));
    if let Some(ort) = report.ort_ms {
        row("Overall response time", format!("{ort:.3} ms"));
    }
    row(
        "Data",
        format!("{} files, {:.1} MB, {} directories", report.files, report.bytes as f64 / 1e6, report.directories),
    );
    row("Scale of the data", format!("{}", report.scale));
    row("Connections", report.connections.to_string());
    row("Round trip of a NULL call", format!("{:.0} us", report.rtt_us));
    row("Stable storage", report.stable_storage.clone());
    row("Generator's machine", report.machine.clone());
    row("Began", format!("{} s after 1970-01-01 UTC", report.began));
    row("Seed", report.seed.to_string());
    if !report.configuration.is_null() {
        row("Server's configuration", report.configuration.to_string());
    }
    text.push_str("</table>");
}

/// Response time over load, and its percentiles.
fn curves(text: &mut String, report: &Report) {
    if report.cells.len() < 2 {
        return;
    }
    let points = |of: fn(&Cell) -> f64| report.cells.iter().map(|cell| (cell.achieved, of(cell))).collect::<Vec<_>>();
    let series = vec![
        Series { name: "mean", points: points(|cell| cell.latency_ms.mean) },
        Series { name: "99 %", points: points(|cell| cell.latency_ms.p99) },
    ];
    if report.cells.iter().any(|cell| cell.requested > 0.0) {
        let plot = Plot { title: "Response time", x: "operations a second", y: "response time, ms", series };
        let _ = write!(text, "<h2>Response time over load</h2>{}", svg::draw(&plot));
    } else {
        let cells = || report.cells.iter().map(|cell| cell.name.as_str());
        let values = report.cells.iter().map(|cell| (cell.read_mb_s, cell.write_mb_s)).collect::<Vec<_>>();
        let bars = svg::bars("Throughput", "MB/s", &cells().zip(values).collect::<Vec<_>>());
        let _ = write!(text, "<h2>Throughput by cell</h2>{bars}");
    }
}

fn points(text: &mut String, report: &Report) {
    let _ = write!(
        text,
        "<h2>Load points</h2><table><tr><th>cell</th><th>{}</th><th>asked op/s</th><th>got op/s</th><th>mean ms</th>\
         <th>50 %</th><th>90 %</th><th>99 %</th><th>99.9 %</th><th>max</th><th>read MB/s</th><th>write MB/s</th>\
         <th>server us/op</th><th>server MiB</th><th>counts</th></tr>",
        escape(&report.unit)
    );
    for cell in &report.cells {
        let l = cell.latency_ms;
        let asked = if cell.requested > 0.0 { format!("{:.0}", cell.requested) } else { "closed".to_owned() };
        let or_none = |value: Option<f64>| value.map_or("not local".to_owned(), |value| format!("{value:.1}"));
        let _ = write!(
            text,
            "<tr><td>{}</td><td>{:.2}</td><td>{asked}</td><td>{:.0}</td><td>{:.3}</td><td>{:.3}</td><td>{:.3}</td>\
             <td>{:.3}</td><td>{:.3}</td><td>{:.2}</td><td>{:.1}</td><td>{:.1}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
            escape(&cell.name),
            cell.load,
            cell.achieved,
            l.mean,
            l.p50,
            l.p90,
            l.p99,
            l.p999,
            l.max,
            cell.read_mb_s,
            cell.write_mb_s,
            or_none(cell.cpu_us()),
            or_none(cell.server_rss_mib),
            if cell.valid { "yes" } else { "NO" }
        );
    }
    text.push_str("</table>");
}

fn operations(text: &mut String, report: &Report) {
    let Some(cell) = report.cells.last() else { return };
    let _ = write!(
        text,
        "<h2>Operations of {}</h2><table><tr><th>component</th><th>operation</th><th>count</th><th>share %</th>\
         <th>asked %</th><th>mean ms</th><th>99 % ms</th></tr>",
        escape(&cell.name)
    );
    for operation in &cell.operations {
        let wanted = operation.wanted.map_or("-".to_owned(), |wanted| format!("{wanted:.2}"));
        let latency = operation.latency_ms;
        let _ = write!(
            text,
            "<tr><td>{}</td><td>{}</td><td>{}</td><td>{:.2}</td><td>{wanted}</td><td>{:.3}</td><td>{:.3}</td></tr>",
            escape(&operation.component),
            escape(&operation.operation),
            operation.count,
            operation.share,
            latency.mean,
            latency.p99
        );
    }
    text.push_str("</table>");
}

fn validity(text: &mut String, report: &Report) {
    text.push_str("<h2>Whether it counts</h2>");
    if report.valid {
        text.push_str("<p>Every byte that was read was compared with what had been written; every rule held.</p>");
        return;
    }
    text.push_str("<ul>");
    for reason in &report.reasons {
        let _ = write!(text, "<li>{}</li>", escape(reason));
    }
    text.push_str("</ul>");
}

/// For HTML text and attributes.
fn escape(text: &str) -> String {
    text.chars().fold(String::with_capacity(text.len()), |mut out, letter| {
        match letter {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            _ => out.push(letter),
        }
        out
    })
}
