//! Figures as a table that reads well as text and as markdown, and as JSON.

use crate::Outcome;
use crate::compare::{Ratio, Row, Seen};

const HEAD: [&str; 11] = [
    "operation",
    "connections x depth",
    "server",
    "rate",
    "process us/op",
    "core us/op",
    "p50 us",
    "p99 us",
    "p99 / p50 of 0.1 s",
    "first's rate / this",
    "first's op/CPU-s / this",
];

/// A table whose columns are aligned. What the generator limited is void, and says so.
pub fn table(rows: &[Row]) -> String {
    let mut cells: Vec<Vec<String>> = vec![HEAD.map(str::to_owned).to_vec()];
    cells.extend(rows.iter().map(cells_of));
    let width = |column: usize| cells.iter().map(|row| row[column].len()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..HEAD.len()).map(width).collect();
    let line = |row: &Vec<String>| -> String {
        let padded = row.iter().zip(&widths).enumerate().map(|(column, (cell, width))| match column < 3 {
            true => format!(" {cell:<width$} |"),
            false => format!(" {cell:>width$} |"),
        });
        format!("|{}\n", padded.collect::<String>())
    };
    let rule = widths.iter().enumerate().map(|(column, width)| match column < 3 {
        true => format!("{}|", "-".repeat(width + 2)),
        false => format!("{}:|", "-".repeat(width + 1)),
    });
    let rule = format!("|{}\n", rule.collect::<String>());
    let body: String = cells[1..].iter().map(line).collect();
    format!("{}{rule}{body}", line(&cells[0]))
}

fn cells_of(row: &Row) -> Vec<String> {
    let Seen { rate, process_us, core_us, p50_us, p99_us, tail, .. } = row.seen;
    let void = row.seen.is_void();
    let limited = if void { " void" } else { "" };
    let rate = match row.shape.operation.bytes() {
        0 => format!("{}/s{limited}", thousands(rate)),
        bytes => format!("{} MiB/s{limited}", thousands(rate * bytes as f64 / (1 << 20) as f64)),
    };
    vec![
        row.shape.operation.name().to_owned(),
        format!("{} x {}{}", row.shape.connections, row.shape.depth, if row.shape.half { ", half load" } else { "" }),
        row.server.clone(),
        rate,
        number(process_us),
        number(core_us),
        number(p50_us),
        number(p99_us),
        number(tail),
        if void { "void".to_owned() } else { ratio(&row.rate_ratio) },
        ratio(&row.cpu_ratio),
    ]
}

/// The median and its interval; alone where it is one by definition.
fn ratio(ratio: &Ratio) -> String {
    let Ratio { median, low, high } = ratio;
    if low == high { number(*median) } else { format!("{} ({} to {})", number(*median), number(*low), number(*high)) }
}

/// Three digits that matter; a dash for what is not known.
fn number(value: f64) -> String {
    match value {
        value if !value.is_finite() => "-".to_owned(),
        value if value >= 100.0 => thousands(value),
        value if value >= 10.0 => format!("{value:.1}"),
        value => format!("{value:.2}"),
    }
}

pub fn thousands(value: f64) -> String {
    let digits = format!("{value:.0}");
    let mut out = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index) % 3 == 0 {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// The rows as JSON, for programs.
pub fn json(rows: &[Row]) -> String {
    let one = |row: &Row| {
        serde_json::json!({
            "operation": row.shape.operation.name(),
            "connections": row.shape.connections,
            "depth": row.shape.depth,
            "server": row.server,
            "calls_per_second": row.seen.rate,
            "process_us_per_call": row.seen.process_us,
            "core_us_per_call": row.seen.core_us,
            "p50_us": row.seen.p50_us,
            "p99_us": row.seen.p99_us,
            "p99_by_p50_of_a_window": row.seen.tail,
            "counted_us_per_call": row.seen.counted_us(),
            "half_load": row.shape.half,
            "generator_busy": row.seen.generator,
            "void": row.seen.is_void(),
            "first_rate_by_this": row.rate_ratio.median,
            "first_calls_per_cpu_second_by_this": row.cpu_ratio.median,
        })
    };
    serde_json::Value::Array(rows.iter().map(one).collect()).to_string()
}

/// What stands between the markers of a document becomes `text`.
pub fn replace(document: &str, text: &str) -> Outcome<String> {
    replace_between(document, "start-figures", text)
}

/// The same between the markers of another name.
pub fn replace_between(document: &str, name: &str, text: &str) -> Outcome<String> {
    let (begin, end) = (format!("<!-- {name}: begin -->"), format!("<!-- {name}: end -->"));
    let missing = |marker: &str| format!("the document has no line {marker}");
    let (before, rest) = document.split_once(&begin).ok_or_else(|| missing(&begin))?;
    let (_, after) = rest.split_once(&end).ok_or_else(|| missing(&end))?;
    Ok(format!("{before}{begin}\n\n{}\n\n{end}{after}", text.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        assert_eq!(thousands(1_234_567.4), "1,234,567");
        assert_eq!(thousands(999.0), "999");
        assert_eq!((number(0.1234), number(12.34), number(f64::NAN)), ("0.12".into(), "12.3".into(), "-".into()));
    }

    #[test]
    fn only_what_is_between_the_markers_changes() {
        let (begin, end) = ("<!-- start-figures: begin -->", "<!-- start-figures: end -->");
        let document = format!("a\n{begin}\nold\n{end}\nb\n");
        assert_eq!(replace(&document, "new\n").unwrap(), format!("a\n{begin}\n\nnew\n\n{end}\nb\n"));
        assert!(replace("a", "new").is_err());
    }
}
