//! The report as one page: everything in it, nothing fetched, readable in print and by the colour-blind.
//!
//! - Its shape is that of a disclosure: what was measured, on what, how stable, point by point, whether it counts.
//! - Curves differ by dash and mark, not by colour alone; axes have titles and units.

mod plot;
mod svg;

use crate::workload::result::{Cell, Report};
use plot::{Plot, Series};
use std::fmt::Write;

const STYLE: &str = "body{font:15px/1.45 system-ui,sans-serif;max-width:66rem;margin:2rem auto;padding:0 1rem;color:#111}\
h1{font-size:1.5rem}h2{font-size:1.15rem;margin-top:2rem;border-bottom:1px solid #999}\
table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}\
th,td{padding:.2rem .5rem;text-align:right;border-bottom:1px solid #ddd}th:first-child,td:first-child{text-align:left}\
.pairs td:last-child{text-align:left}.pairs td:first-child{width:16rem;vertical-align:top}\
.notice{border:2px solid #111;padding:.4rem .8rem;font-weight:600}.invalid{background:#111;color:#fff;padding:.4rem .8rem}\
.points{font-size:.8rem}.points td,.points th{padding:.15rem .3rem}.points td:first-child{white-space:nowrap}\
.foot{font-size:.8rem;color:#444;margin-top:2rem}\
svg{width:100%;height:auto;break-inside:avoid}@media print{body{margin:0;font-size:11px}h2{break-after:avoid}.foot{position:fixed;bottom:0;margin:0}}";

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
    // In print it stands on every sheet.
    text.push_str("<p class=\"foot\">Made by tarn-bench. Not a SPEC result.</p></body></html>\n");
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
    bill(text, report);
    validity(text, report);
}

fn summary(text: &mut String, report: &Report) {
    text.push_str("<h2>What was measured</h2><table class=\"pairs\">");
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
    for generator in &report.generators {
        let (rtt, of_target) = (generator.rtt_us, generator.target_rtt_us);
        let text = format!("{}; {rtt:.0} us to it and back, {of_target:.0} us to the target", generator.machine);
        row(&format!("Agent {}", escape(&generator.address)), text);
    }
    row("Began", date(report.began));
    row("Seed", report.seed.to_string());
    text.push_str("</table>");
    configuration(text, report);
}

fn configuration(text: &mut String, report: &Report) {
    text.push_str("<h2>The server</h2>");
    let Some(said) = report.configuration.as_object() else {
        text.push_str("<p>It does not tell its configuration: it has no admin port of Tarn's, or none was given.</p>");
        return;
    };
    text.push_str("<table class=\"pairs\">");
    // What it is comes first.
    let (first, rest): (Vec<_>, Vec<_>) = said.iter().partition(|(name, _)| *name == "Server");
    for (name, value) in first.into_iter().chain(rest) {
        let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let _ = write!(text, "<tr><td>{}</td><td>{}</td></tr>", escape(name), escape(&value));
    }
    text.push_str("</table>");
}

fn bill(text: &mut String, report: &Report) {
    let Some(bill) = &report.bill else { return };
    text.push_str(
        "<h2>Requests to the object store</h2><table><tr><th>request</th><th>count</th><th>MB</th><th>USD</th></tr>",
    );
    for row in &bill.rows {
        let asked = &row.requests;
        let _ = write!(
            text,
            "<tr><td>{}</td><td>{}</td><td>{:.1}</td><td>{:.6}</td></tr>",
            escape(&asked.kind),
            asked.count,
            asked.bytes as f64 / 1e6,
            row.usd
        );
    }
    let _ = write!(
        text,
        "</table><p>{:.6} USD, {:.4} USD a million operations; {}. Of all points, their warm-up included, without the \
         preparation of the files; what a point has changed may reach the store during the next.</p>",
        bill.usd,
        bill.usd_per_million_operations,
        escape(&bill.assumption)
    );
}

/// Response time over load, and its percentiles.
fn curves(text: &mut String, report: &Report) {
    if report.cells.len() < 2 {
        return;
    }
    let points = |of: fn(&Cell) -> f64| report.cells.iter().map(|cell| (cell.achieved, of(cell))).collect::<Vec<_>>();
    let series = vec![
        Series { name: "mean", points: points(|cell| cell.latency_ms.mean) },
        Series { name: "99th percentile", points: points(|cell| cell.latency_ms.p99) },
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
        "<h2>Load points</h2><table class=\"points\"><tr><th>cell</th><th>{}</th><th>asked op/s</th><th>got op/s</th><th>mean ms</th>\
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
            "<tr><td>{}</td><td>{}</td><td>{asked}</td><td>{:.0}</td><td>{:.3}</td><td>{:.3}</td><td>{:.3}</td>\
             <td>{:.3}</td><td>{:.3}</td><td>{:.2}</td><td>{:.1}</td><td>{:.1}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
            escape(&cell.name),
            (cell.load * 100.0).round() / 100.0,
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

/// Seconds since 1970 as a date, UTC.
fn date(seconds: u64) -> String {
    // Days since 0000-03-01, so that a leap day ends its year (the algorithm of C++'s chrono).
    let days = seconds / 86_400 + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let (of_month, month) = (day - (153 * month + 2) / 5 + 1, if month < 10 { month + 3 } else { month - 9 });
    let year = era * 400 + year + u64::from(month <= 2);
    let (hour, minute) = (seconds / 3600 % 24, seconds / 60 % 60);
    format!("{year}-{month:02}-{of_month:02} {hour:02}:{minute:02} UTC")
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

#[cfg(test)]
mod tests {
    use super::date;

    #[test]
    fn dates_are_those_of_the_calendar() {
        assert_eq!(date(0), "1970-01-01 00:00 UTC");
        assert_eq!(date(951_868_799), "2000-02-29 23:59 UTC");
        assert_eq!(date(1_795_206_038), "2026-11-20 20:20 UTC");
    }
}
