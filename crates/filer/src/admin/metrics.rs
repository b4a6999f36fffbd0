//! The server's state as Prometheus reads it (OpenMetrics text).
//!
//! - Everything is taken from one [`StatusView`] at the moment of the scrape; nothing is counted here.
//! - Names end in their unit; counters are totals since the start.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;

use crate::protocol::StatusView;

/// The text of a scrape.
pub fn render(status: StatusView) -> Result<String, fmt::Error> {
    let mut registry = Registry::with_prefix("tarn");
    registry.register_collector(Box::new(Scrape(status)));
    let mut text = String::new();
    encode(&mut text, &registry)?;
    Ok(text)
}

#[derive(Debug)]
struct Scrape(StatusView);

type Labels = Vec<(&'static str, String)>;

impl Collector for Scrape {
    fn encode(&self, mut encoder: DescriptorEncoder) -> fmt::Result {
        let status = &self.0;
        let out = &mut encoder;
        gauges(out, status)?;
        let volumes = |value: fn(&crate::protocol::VolumeView) -> u64| {
            // Of volumes that were deleted several may have one name, and a scrape with a row twice is refused whole.
            let present = status.volumes.iter().filter(|volume| volume.deleted_ms.is_none());
            present.map(move |volume| (vec![("volume", volume.name.clone())], value(volume))).collect()
        };
        family(out, "volume_used_bytes", "Logical bytes of a volume", true, volumes(|view| view.used_bytes))?;
        family(
            out,
            "volume_limit_bytes",
            "Size limit of a volume, 0 if none",
            true,
            volumes(|view| view.size_limit.unwrap_or(0)),
        )?;
        let stored = |view: &crate::protocol::VolumeView| view.stored_bytes.unwrap_or(0);
        family(out, "volume_stored_bytes", "Bytes its records take in the store", true, volumes(stored))?;
        family(out, "volume_saved_bytes", "Bytes that dedupe saves it", true, volumes(|view| view.saved_bytes))?;
        family(out, "volume_used_inodes", "Files and directories of a volume", true, volumes(|view| view.used_inodes))?;
        let caches = |value: fn(&crate::protocol::CacheStatus) -> u64| {
            status.caches.iter().map(move |cache| (vec![("cache", cache.name.clone())], value(cache))).collect()
        };
        family(out, "cache_entries", "What a cache holds", true, caches(|cache| cache.entries))?;
        family(out, "cache_bytes", "Memory of a cache", true, caches(|cache| cache.bytes))?;
        family(out, "cache_capacity_bytes", "Memory it may use", true, caches(|cache| cache.capacity_bytes))?;
        checkpoints(out, status)?;
        requests(out, status)?;
        operations(out, status)
    }
}

fn gauges(out: &mut DescriptorEncoder, status: &StatusView) -> fmt::Result {
    let (log, overlay, checkpoint, segments) = (&status.log, &status.overlay, &status.checkpoint, &status.segments);
    let rows: &[(&str, &str, u64)] = &[
        ("uptime_seconds", "Time since the start", status.uptime_seconds),
        ("memory_bytes", "Resident memory", status.memory_bytes),
        ("memory_limit_bytes", "Memory this process may use", status.memory_limit_bytes),
        ("log_capacity_bytes", "Size of the write log", log.capacity_bytes),
        ("log_used_bytes", "What of it a checkpoint has not yet freed", log.used_bytes),
        ("log_unlogged_bytes", "UNSTABLE data that is neither in it nor in the store", log.unlogged_bytes),
        ("log_poisoned", "1 if the log's device has failed", u64::from(log.poisoned.is_some())),
        ("overlay_bytes", "Memory of changes that the store does not hold yet", overlay.bytes),
        ("overlay_kept_log_bytes", "Memory that messages came in, kept for these changes", overlay.kept_log_bytes),
        ("overlay_keys", "Changes that the store does not hold yet", overlay.keys),
        ("overlay_generations", "Generations of changes, the open one included", overlay.generations),
        ("checkpoint_failing", "1 if the last checkpoint failed", u64::from(checkpoint.failing.is_some())),
        ("checkpoint_last_keys", "Keys of the last checkpoint", checkpoint.last_keys),
        ("checkpoint_last_records", "Records of the last checkpoint", checkpoint.last_records),
        ("checkpoint_last_segments", "Objects of data of the last checkpoint", checkpoint.last_segments),
        ("checkpoint_last_bytes", "Bytes of these objects", checkpoint.last_bytes),
        ("segments", "Objects of data", segments.live),
        ("segments_bytes", "Bytes of these objects", segments.live_object_bytes),
        ("segments_live_bytes", "Bytes in them that count", segments.live_bytes),
        ("segments_saved_bytes", "Bytes that dedupe saves in them", segments.saved_bytes),
        ("segments_condemned", "Objects that await deletion", segments.condemned),
        ("segments_condemned_bytes", "Bytes of these objects", segments.condemned_bytes),
        (
            "segments_collected_bytes",
            "Bytes of objects emptied by collection since the start",
            segments.collected_bytes,
        ),
        ("segments_scrubbed_bytes", "Bytes of objects read by scrubs since the start", segments.scrubbed_bytes),
        ("store_full", "1 if the store has no space left for files to grow", u64::from(status.store_full)),
        ("deposed", "1 if another node has taken the store", u64::from(status.deposed)),
        ("read_only", "1 if no change is taken any more", u64::from(status.read_only.is_some())),
        ("damage", "Damaged places found since the start, at most 100", status.damage.len() as u64),
        ("incarnation", "Openings that did not follow a clean close", u64::from(status.incarnation)),
        ("grace", "1 while only locks from before a restart are granted", u64::from(status.in_grace)),
        ("clients", "Connected clients", status.clients),
        ("connections", "Open connections", status.connections),
        ("locks", "Locks held and waiting", status.locks),
    ];
    for (name, help, value) in rows {
        let gauge = ConstGauge::new(clamped(*value));
        gauge.encode(out.encode_descriptor(name, help, None, gauge.metric_type())?)?;
    }
    Ok(())
}

fn checkpoints(out: &mut DescriptorEncoder, status: &StatusView) -> fmt::Result {
    let checkpoint = &status.checkpoint;
    let counters: &[(&str, &str, u64)] = &[
        ("checkpoints", "Checkpoints that succeeded", checkpoint.count),
        ("checkpoint_failures", "Checkpoints that failed", checkpoint.failures),
        ("checkpoint_bytes", "Bytes of data that they brought to the store", checkpoint.bytes),
        ("dedupe_hits", "Records that were pointed to rather than stored", status.dedupe.hits),
        ("dedupe_hit_bytes", "Bytes that they would have taken", status.dedupe.hit_bytes),
    ];
    for (name, help, value) in counters {
        let counter = ConstCounter::new(*value);
        counter.encode(out.encode_descriptor(name, help, None, counter.metric_type())?)?;
    }
    let took = ConstCounter::new(checkpoint.microseconds as f64 / 1e6);
    took.encode(out.encode_descriptor("checkpoint_seconds", "Time they took", None, took.metric_type())?)?;
    let stages = checkpoint.stages.iter().map(|(name, all, _)| (vec![("stage", name.clone())], *all)).collect();
    seconds(out, "checkpoint_stage_seconds", "Time they took, by stage", stages)?;
    let last = ConstGauge::new(checkpoint.last_microseconds as f64 / 1e6);
    last.encode(out.encode_descriptor("checkpoint_last_seconds", "Time the last one took", None, last.metric_type())?)
}

/// Sums of time, given in microseconds.
fn seconds(out: &mut DescriptorEncoder, name: &str, help: &str, rows: Vec<(Labels, u64)>) -> fmt::Result {
    let mut family = out.encode_descriptor(name, help, None, MetricType::Counter)?;
    for (labels, micros) in &rows {
        ConstCounter::new(*micros as f64 / 1e6).encode(family.encode_family(labels)?)?;
    }
    Ok(())
}

fn requests(out: &mut DescriptorEncoder, status: &StatusView) -> fmt::Result {
    let rows = |value: fn(&crate::protocol::RequestStatus) -> u64| {
        status.store_requests.iter().map(move |row| (vec![("kind", row.kind.clone())], value(row))).collect()
    };
    family(out, "store_requests", "Requests to the object store", false, rows(|row| row.count))?;
    let troubles = status.store_requests.iter().flat_map(|row| {
        let labels = |trouble: &str| vec![("kind", row.kind.clone()), ("trouble", trouble.to_owned())];
        row.troubles.iter().map(move |(trouble, count)| (labels(trouble), *count))
    });
    // Objects that are looked for and not there are part of daily life: told apart.
    family(out, "store_errors", "Requests that were not answered as wished", false, troubles.collect())?;
    let micros = status.store_requests.iter().map(|row| (vec![("kind", row.kind.clone())], row.microseconds));
    seconds(out, "store_seconds", "Time of requests that were answered", micros.collect())?;
    family(out, "store_bytes", "Bytes to and from the object store", false, rows(|row| row.bytes))
}

fn operations(out: &mut DescriptorEncoder, status: &StatusView) -> fmt::Result {
    let used = || status.operations.iter().filter(|row| row.count > 0);
    let labels = |row: &crate::protocol::OperationStatus| {
        vec![("program", row.program.clone()), ("procedure", row.procedure.clone())]
    };
    let errors = used().map(|row| (labels(row), row.errors)).collect();
    family(out, "operation_errors", "Calls that were answered with an error", false, errors)?;
    let mut family = out.encode_descriptor("operation_seconds", "How long calls took", None, MetricType::Histogram)?;
    for row in used() {
        let labels = labels(row);
        let bound = |index: usize| (1u64 << index.min(62)) as f64 / 1e6;
        let mut buckets: Vec<(f64, u64)> =
            row.buckets.iter().enumerate().map(|(index, count)| (bound(index), *count)).collect();
        let counted: u64 = row.buckets.iter().sum();
        buckets.push((f64::INFINITY, row.count.saturating_sub(counted)));
        let sum = row.microseconds as f64 / 1e6;
        family.encode_family(&labels)?.encode_histogram::<NoLabelSet>(sum, row.count, &buckets, None)?;
    }
    Ok(())
}

fn family(out: &mut DescriptorEncoder, name: &str, help: &str, gauge: bool, rows: Vec<(Labels, u64)>) -> fmt::Result {
    if rows.is_empty() {
        return Ok(());
    }
    let kind = if gauge { MetricType::Gauge } else { MetricType::Counter };
    let mut family = out.encode_descriptor(name, help, None, kind)?;
    for (labels, value) in &rows {
        let encoder = family.encode_family(labels)?;
        if gauge {
            ConstGauge::new(clamped(*value)).encode(encoder)?
        } else {
            ConstCounter::new(*value).encode(encoder)?
        }
    }
    Ok(())
}

fn clamped(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::{CacheStatus, CheckpointStatus, OperationStatus, RequestStatus, VolumeView};

    #[test]
    fn a_scrape_holds_what_the_status_says() {
        let mut status = StatusView::default();
        status.log.used_bytes = 4096;
        let stages = vec![("pack".to_owned(), 250_000, 1)];
        status.checkpoint =
            CheckpointStatus { count: 5, microseconds: 1_500_000, stages, ..CheckpointStatus::default() };
        status.store_requests = vec![RequestStatus {
            kind: "get".into(),
            count: 4,
            microseconds: 250_000,
            troubles: vec![("not_found".into(), 2)],
            ..RequestStatus::default()
        }];
        let volume = |deleted_ms| VolumeView { name: "vol".into(), used_bytes: 9, deleted_ms, ..VolumeView::default() };
        status.volumes = vec![volume(Some(1)), volume(Some(2)), volume(None)];
        status.caches = vec![CacheStatus { name: "data".into(), bytes: 7, ..CacheStatus::default() }];
        status.operations = vec![OperationStatus {
            program: "nfs".into(),
            procedure: "GETATTR".into(),
            count: 3,
            errors: 1,
            microseconds: 12,
            buckets: vec![0, 0, 2, 1],
        }];
        let text = render(status).unwrap();
        assert!(text.contains("\ntarn_log_used_bytes 4096\n"), "{text}");
        assert!(text.contains("tarn_cache_bytes{cache=\"data\"} 7\n"), "{text}");
        assert!(text.contains("tarn_operation_seconds_count{program=\"nfs\",procedure=\"GETATTR\"} 3\n"), "{text}");
        assert!(text.contains("{le=\"0.000004\",program=\"nfs\",procedure=\"GETATTR\"} 2\n"), "{text}");
        assert!(text.contains("{le=\"+Inf\",program=\"nfs\",procedure=\"GETATTR\"} 3\n"), "{text}");
        assert!(text.contains("\ntarn_checkpoints_total 5\n"), "{text}");
        assert!(text.contains("\ntarn_checkpoint_seconds_total 1.5\n"), "{text}");
        assert!(text.contains("\ntarn_checkpoint_stage_seconds_total{stage=\"pack\"} 0.25\n"), "{text}");
        assert!(text.contains("tarn_store_errors_total{kind=\"get\",trouble=\"not_found\"} 2\n"), "{text}");
        assert!(text.contains("tarn_store_seconds_total{kind=\"get\"} 0.25\n"), "{text}");
        assert_eq!(text.matches("tarn_volume_used_bytes{").count(), 1, "{text}");
        assert!(text.ends_with("# EOF\n"));
    }
}
