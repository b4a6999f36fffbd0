//! `tarn status`: how the running server is.

use std::time::Duration;

use clap::Args;

use super::Where;
use crate::admin::client;
use crate::exit::{Outcome, Stop};
use crate::protocol::{Request, StatusView};
use crate::sizes::{show_size, show_span};

#[derive(Debug, Args)]
pub struct Status {
    #[command(flatten)]
    place: Where,
    /// Print everything as JSON
    #[arg(long)]
    json: bool,
}

impl Status {
    pub fn run(self) -> Outcome<()> {
        let status: StatusView = client::ask(&self.place.data()?, &Request::Status)?;
        if self.json {
            let text = serde_json::to_string_pretty(&status).map_err(|error| Stop::Internal(error.to_string()))?;
            say!("{text}");
        } else {
            print(&status);
        }
        Ok(())
    }
}

fn print(status: &StatusView) {
    let up = show_span(Duration::from_secs(status.uptime_seconds));
    say!("tarn {}, process {}, up {up}", status.version, status.process);
    say!("  data         {}", status.data);
    say!("  store        {}", status.store);
    if let Some(shape) = &status.store_shape {
        say!("               SLOWED DOWN for a measurement: measure.store_shape is {shape}");
    }
    say!("  nfs          {}{}", status.nfs, if status.portmap { ", portmap on port 111" } else { "" });
    say!("  admin        {}", status.admin.as_deref().unwrap_or("off"));
    say!("  memory       {} of {}", show_size(status.memory_bytes), show_size(status.memory_limit_bytes));
    let log = &status.log;
    let percent = (log.used_bytes * 100).checked_div(log.capacity_bytes).unwrap_or(0);
    say!(
        "  log          {} of {} ({percent} %), durable to {}",
        show_size(log.used_bytes),
        show_size(log.capacity_bytes),
        log.durable
    );
    if let Some(reason) = &log.poisoned {
        say!("               FAILED: {reason}");
    }
    let overlay = &status.overlay;
    say!(
        "  not stored   {} in {} changes, and {} of the log's frames kept for them",
        show_size(overlay.bytes),
        overlay.keys,
        show_size(overlay.kept_log_bytes)
    );
    let checkpoint = &status.checkpoint;
    say!(
        "  stored       to {}, the last checkpoint had {} in {} objects and took {}",
        checkpoint.position,
        show_size(checkpoint.last_bytes),
        checkpoint.last_segments,
        show_span(Duration::from_millis(checkpoint.last_microseconds.div_ceil(1000)))
    );
    stages(&checkpoint.stages);
    if let Some(reason) = &checkpoint.failing {
        say!("               FAILING: {reason}");
    }
    objects(status);
    for cache in &status.caches {
        say!("  cache        {}: {} of {}", cache.name, show_size(cache.bytes), show_size(cache.capacity_bytes));
    }
    trouble(status);
    say!(
        "  clients      {} with {} connections, {} locks{}",
        status.clients,
        status.connections,
        status.locks,
        if status.in_grace { ", in grace" } else { "" }
    );
    for volume in &status.volumes {
        say!(
            "  volume       {}: {} in {} inodes{}",
            volume.name,
            show_size(volume.used_bytes),
            volume.used_inodes,
            match volume.deleted_ms {
                Some(_) => ", deleted",
                None if volume.write_speed == "high" => ", write speed HIGH (a crash may lose the last 10 s)",
                None => "",
            }
        );
    }
}

/// What lies in the store, and what dedupe saves of it.
fn objects(status: &StatusView) {
    let segments = &status.segments;
    if segments.live > 0 {
        say!(
            "  segments     {} of {}, {} of it in use",
            segments.live,
            show_size(segments.live_object_bytes),
            show_size(segments.live_bytes)
        );
    }
    if segments.collected_bytes > 0 {
        say!("               {} of half-dead ones collected since the start", show_size(segments.collected_bytes));
    }
    if segments.saved_bytes > 0 || status.dedupe.hits > 0 {
        say!(
            "  dedupe       saved {} when last surveyed; since the start {} records of {} were there already",
            show_size(segments.saved_bytes),
            status.dedupe.hits,
            show_size(status.dedupe.hit_bytes)
        );
    }
}

/// What the last checkpoint spent its time on, as far as it is worth a word.
fn stages(all: &[(String, u64, u64)]) {
    let stages = all.iter().filter(|(_, _, last)| *last >= 1000);
    let stages: Vec<String> =
        stages.map(|(name, _, last)| format!("{name} {}", show_span(Duration::from_millis(last / 1000)))).collect();
    if !stages.is_empty() {
        println!("               of which {}", stages.join(", "));
    }
}

/// What an operator must know, loudly.
fn trouble(status: &StatusView) {
    if status.deposed {
        say!("  DEPOSED      another node has taken the store; this one has stopped answering, keep its log");
    }
    if let Some(reason) = &status.read_only {
        say!("  READ ONLY    {reason}");
    }
    if status.store_full {
        say!(
            "  FULL         the object store has no space left for files to grow; make room, what does not fit waits in the log"
        );
    }
    for damage in &status.damage {
        say!("  DAMAGE       {damage}");
    }
}
