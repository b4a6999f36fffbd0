//! The section as text: a table, how it was measured, and why a figure in brackets does not count.

use super::SERVERS;
use super::measure::{PLANS, read};
use super::rows::{Beside, CLAIMS, Claim, Figure};
use crate::Outcome;
use crate::report::thousands;
use crate::workload::result::Report;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

/// Reports by plan.
type Results = BTreeMap<&'static str, Vec<Report>>;

/// Of all results in the directory.
pub fn text(directory: &Path) -> Outcome<String> {
    let mut results = Results::new();
    for plan in PLANS {
        if let Some(reports) = read(&directory.join(format!("{}.json", plan.name)))? {
            results.insert(plan.name, reports);
        }
    }
    let mut out = String::new();
    let _ = writeln!(out, "| workload | figure | seed | aim | {} |", SERVERS.join(" | "));
    let _ = writeln!(out, "|---|---|---|---:|---:|---:|---:|");
    for claim in CLAIMS {
        let Some(reports) = results.get(claim.plan) else { continue };
        let cells: Vec<String> = SERVERS.iter().map(|server| cell(claim, reports, server)).collect();
        let (plan, what, seed, aim) = (claim.plan, claim.what, claim.seed, claim.aim);
        let _ = writeln!(out, "| {plan} | {what} | {seed} | {aim} | {} |", cells.join(" | "));
    }
    let _ = write!(out, "\n{}", how(&results).ok_or("no results; give --tarn BINARY to measure")?);
    let notes = notes(&results);
    if !notes.is_empty() {
        let _ = writeln!(out, "\nFigures in brackets are of runs that do not count, because:\n\n{}", notes.join("\n"));
    }
    Ok(out)
}

/// The rounds of a server.
fn rounds<'a>(reports: &'a [Report], server: &'a str) -> impl Iterator<Item = &'a Report> {
    reports.iter().filter(move |report| report.target == server)
}

fn cell(claim: &Claim, reports: &[Report], server: &str) -> String {
    let nth = |server, round| rounds(reports, server).nth(round);
    let all = || rounds(reports, server).enumerate();
    let beside = |(round, own)| Beside { own, ram: nth(SERVERS[0], round), ganesha: nth(SERVERS[2], round) };
    let valid = all().filter(|(_, report)| report.valid).count();
    // Rounds that do not count are left out, unless they are the most.
    let counts = 2 * valid > all().count();
    let used = || all().filter(|(_, report)| report.valid || !counts).map(beside);
    let figure = match claim.figure {
        Figure::Median(of) => median(used().filter_map(|beside| of(&beside)).collect()),
        Figure::Variation(of) => variation(&used().filter_map(|beside| of(&beside)).collect::<Vec<_>>()),
    };
    match figure {
        Some(figure) if counts => show(figure),
        Some(figure) => format!("({})", show(figure)),
        None => "-".to_owned(),
    }
}

/// The machine, the rounds, and what else went on.
fn how(results: &Results) -> Option<String> {
    let all = || results.values().flatten();
    let machine = &all().next()?.machine;
    let most_rounds = |reports: &Vec<Report>| rounds(reports, SERVERS[0]).count();
    let several: Vec<&str> =
        results.iter().filter(|(_, reports)| most_rounds(reports) > 1).map(|(name, _)| *name).collect();
    let often = results.values().map(most_rounds).max()?;
    let seconds =
        || all().flat_map(|report| &report.cells).filter(|cell| cell.requested > 0.0).map(|cell| cell.seconds);
    let (least, most) = (seconds().fold(f64::INFINITY, f64::min), seconds().fold(0.0, f64::max));
    let mut text = format!("Machine: {machine}. Server on one core, generator on the other, in turns.");
    if most > 0.0 {
        let _ = write!(text, " A load point is measured for {least} to {most} s.");
    }
    if several.is_empty() {
        text.push_str(" Everything once.");
    } else {
        let _ = write!(text, " Medians of {often} rounds for {}; the others once.", several.join(", "));
    }
    let loads = || all().filter_map(|report| report.load_average);
    if loads().count() == 0 {
        text.push_str(" How busy the machine was otherwise was not recorded.");
    } else {
        let (least, most) = (loads().fold(f64::INFINITY, f64::min), loads().fold(0.0, f64::max));
        let _ = write!(
            text,
            " Load average before each run {least:.1} to {most:.1}, of which the run before it is some 2: what is above \
             was other work on the same cores, and figures by wall clock carry it."
        );
    }
    text.push('\n');
    Some(text)
}

/// Why runs do not count: one line for a server and its first reason.
fn notes(results: &Results) -> Vec<String> {
    let mut notes = Vec::new();
    for (plan, reports) in results {
        for server in SERVERS {
            let all = rounds(reports, server).count();
            let bad: Vec<&Report> = rounds(reports, server).filter(|report| !report.valid).collect();
            let Some(first) = bad.first() else { continue };
            let reason = first.reasons.first().map_or("", String::as_str);
            let more = first.reasons.len().saturating_sub(1);
            let and = if more > 0 { format!(" (and {more} more)") } else { String::new() };
            notes.push(format!("- {plan}, {server}, {} of {all} rounds: {reason}{and}", bad.len()));
        }
    }
    notes
}

fn median(mut values: Vec<f64>) -> Option<f64> {
    values.retain(|value| value.is_finite());
    values.sort_by(f64::total_cmp);
    let (low, high) = (values.len().checked_sub(1)? / 2, values.len() / 2);
    Some(f64::midpoint(values[low], values[high]))
}

/// Standard deviation over mean, per cent; `None` of fewer than three.
fn variation(values: &[f64]) -> Option<f64> {
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    (values.len() >= 3).then(|| (squares / (count - 1.0)).sqrt() / mean * 100.0)
}

fn show(figure: f64) -> String {
    match figure {
        large if large >= 1000.0 => thousands(large),
        middle if middle >= 100.0 => format!("{middle:.0}"),
        small => format!("{small:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(target: &str, valid: bool, ort_ms: f64, load_average: Option<f64>) -> Report {
        let text = serde_json::json!({
            "version": 1, "workload": "sfs2008-like", "title": "", "follows": "", "notice": "", "target": target,
            "unit": "op/s", "began": 0, "seed": 1, "scale": 1.0, "peak": 1.0, "files": 1, "bytes": 1,
            "directories": 1, "connections": 1, "rtt_us": 1.0, "stable_storage": "", "configuration": null,
            "machine": "a machine", "load_average": load_average, "cells": [], "ort_ms": ort_ms, "valid": valid,
            "reasons": if valid { vec![] } else { vec!["too late"] },
        });
        serde_json::from_value(text).unwrap()
    }

    fn text_of(reports: &[Report]) -> String {
        let directory = std::env::temp_dir().join(format!("tarn-bench-claims-{:?}", std::thread::current().id()));
        std::fs::create_dir_all(&directory).unwrap();
        std::fs::write(directory.join("sfs2008-like.json"), serde_json::to_string(reports).unwrap()).unwrap();
        let text = text(&directory);
        std::fs::remove_dir_all(&directory).unwrap();
        text.unwrap()
    }

    #[test]
    fn results_without_a_load_say_so() {
        let text = text_of(&[report(SERVERS[0], true, 0.5, None)]);
        assert!(!text.contains("inf") && text.contains("was not recorded"), "{text}");
        let text = text_of(&[report(SERVERS[0], true, 0.5, Some(1.25)), report(SERVERS[1], true, 0.5, None)]);
        assert!(text.contains("1.2 to 1.2"), "{text}");
    }

    #[test]
    fn medians_leave_out_what_does_not_count_unless_it_is_the_most() {
        let rounds = |valid: [bool; 3]| {
            let reports: Vec<Report> =
                valid.iter().zip([1.0, 2.0, 9.0]).map(|(valid, ort)| report(SERVERS[1], *valid, ort, None)).collect();
            let text = text_of(&reports);
            let line = text.lines().find(|line| line.contains("ORT, ms")).unwrap().to_owned();
            (line, text)
        };
        assert!(rounds([true; 3]).0.contains("| 2.00 |"));
        let (line, text) = rounds([true, true, false]);
        assert!(line.contains("| 1.50 |") && text.contains("1 of 3 rounds: too late"), "{text}");
        assert!(rounds([true, false, false]).0.contains("| (2.00) |"));
    }

    #[test]
    fn variation_is_of_the_mean() {
        assert!((variation(&[9.0, 10.0, 11.0]).unwrap() - 10.0).abs() < 1e-9);
        assert_eq!(variation(&[9.0, 10.0]), None);
    }
}
