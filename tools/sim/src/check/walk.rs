//! The full consistency walk, every record read, finds nothing.

use std::sync::Arc;

use tarn_engine::Engine;

use crate::failure::{Checked, Failure};

/// Findings that are shown.
const SHOWN: usize = 8;

pub async fn check(engine: &Arc<Engine>) -> Checked {
    let failed = |found: String| Err(Failure::new("walk", "a consistency walk that finds nothing", found));
    match engine.fsck(true, |_| ()).await {
        Ok(report) if report.is_clean() => Ok(()),
        Ok(report) => {
            let count = report.findings.len() as u64 + report.more;
            let first: Vec<String> = report.findings.into_iter().take(SHOWN).collect();
            failed(format!("{count} findings:\n          {}", first.join("\n          ")))
        }
        Err(error) => failed(error.to_string()),
    }
}
