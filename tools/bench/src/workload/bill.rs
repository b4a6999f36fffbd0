//! What the requests to an object store would cost: counted by the server, priced by an assumption that the report states.

use crate::workload::admin::Requests;
use crate::workload::result::Report;
use serde::{Deserialize, Serialize};

/// The assumption in words.
pub const ASSUMPTION: &str = "assumed: 5 USD a million PUT and LIST, 0.40 USD a million GET and HEAD, DELETE and traffic \
                              within the region free (list price of S3 Standard, us-east-1); storage not included";

/// USD of a million requests.
pub fn price(kind: &str) -> f64 {
    match kind {
        "put" | "list" => 5.0,
        "get" | "get_range" | "head" => 0.4,
        _ => 0.0,
    }
}

/// Of all cells of a run, their warm-up included, without the preparation of files.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct Bill {
    pub rows: Vec<Row>,
    pub usd: f64,
    /// Of the operations that the cells counted; their warm-up makes this an upper bound.
    pub usd_per_million_operations: f64,
    pub assumption: String,
}

#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct Row {
    pub requests: Requests,
    pub usd: f64,
}

/// Sums the cells' requests; `None` if no cell has any count.
pub fn of(report: &Report) -> Option<Bill> {
    let mut rows: Vec<Row> = Vec::new();
    let counted: Vec<&Vec<Requests>> = report.cells.iter().filter_map(|cell| cell.requests.as_ref()).collect();
    if counted.is_empty() {
        return None;
    }
    for requests in counted.into_iter().flatten() {
        let found = rows.iter().position(|row| row.requests.kind == requests.kind);
        let index = found.unwrap_or_else(|| {
            let requests = Requests { kind: requests.kind.clone(), ..Requests::default() };
            rows.push(Row { requests, usd: 0.0 });
            rows.len() - 1
        });
        rows[index].requests.count += requests.count;
        rows[index].requests.bytes += requests.bytes;
        rows[index].usd += requests.count as f64 * price(&requests.kind) / 1e6;
    }
    let usd = rows.iter().map(|row| row.usd).sum();
    let operations: f64 = report.cells.iter().map(|cell| cell.achieved * cell.seconds).sum();
    let usd_per_million_operations = if operations > 0.0 { usd * 1e6 / operations } else { 0.0 };
    Some(Bill { rows, usd, usd_per_million_operations, assumption: ASSUMPTION.to_owned() })
}
