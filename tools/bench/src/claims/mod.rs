//! The section "Workloads" of `docs/performance.md`: what the systems that Tarn follows claim, beside what is measured here.
//!
//! - [`measure`]: servers in turns. [`rows`]: the claims. [`text`]: the section.
//! - Results are kept as the reports' JSON, one file a plan, so that a document can be written of what was measured in
//!   several goes.
//! - A run that does not count is shown as such with its reason, and its figure in brackets.

mod measure;
mod rows;
mod text;

use crate::{Outcome, report};
use std::path::PathBuf;

#[derive(clap::Args)]
pub struct Arguments {
    /// Tarn's binary; without it nothing is measured and the document is written of the results there are
    #[arg(long, value_name = "BINARY")]
    pub tarn: Option<PathBuf>,
    /// Where results are kept; what is there already, of the same program, is not measured again
    #[arg(long)]
    pub results: PathBuf,
    /// Only these; `list` names them [default: all]
    #[arg(long, value_delimiter = ',')]
    pub workload: Vec<String>,
    /// Also NFS-Ganesha (root; in a network of its own)
    #[arg(long)]
    pub ganesha: bool,
    /// A disk for logs and directories
    #[arg(long, default_value = "/var/tmp")]
    pub directory: PathBuf,
    /// Seconds and rounds, as a share of the plans': below 1 for a trial; above, the same rounds take longer
    #[arg(long, default_value_t = 1.0)]
    pub share: f64,
    /// The document that the section is written into, between its markers
    #[arg(long, value_name = "FILE")]
    pub document: Option<PathBuf>,
}

/// In the order of the columns.
const SERVERS: [&str; 3] = ["Tarn over ram", "Tarn over blob", "Ganesha"];

/// Measures what was asked for, and writes the section.
pub fn run(arguments: &Arguments) -> Outcome<()> {
    if arguments.workload == ["list"] {
        measure::PLANS.iter().for_each(|plan| println!("{}", plan.name));
        return Ok(());
    }
    if !(0.01..=100.0).contains(&arguments.share) {
        return Err("--share is from 0.01 to 100".to_owned());
    }
    let measured = arguments.tarn.as_ref().map_or(Ok(()), |binary| measure::measure(arguments, binary));
    let text = text::text(&arguments.results).map_err(|error| measured.clone().err().unwrap_or(error))?;
    println!("{text}");
    if let Some(path) = &arguments.document {
        let failed = |error| format!("{}: {error}", path.display());
        let old = std::fs::read_to_string(path).map_err(failed)?;
        std::fs::write(path, report::replace_between(&old, "workloads", &text)?).map_err(failed)?;
    }
    measured
}
