//! Between what an administrator writes and what a volume is set to.

use tarn_engine::{FsckReport, ScrubReport, SegmentTotals, Stages, VolumeStatus};
use tarn_vfs::{CompressionSetting, LockInfo, LockKind, VolumeSettings, WriteSpeed};

use crate::protocol::{CacheStatus, LockView, SegmentStatus, VolumeChange, VolumeView, WalkView};

/// Longest write-back delay, milliseconds: 12 hours.
const DELAY_MAX_MS: u64 = 12 * 3_600_000;

/// `settings` with what `change` names.
pub fn apply(change: &VolumeChange, settings: &VolumeSettings) -> Result<VolumeSettings, String> {
    let mut out = settings.clone();
    if let Some(size) = change.record_size {
        if !size.is_power_of_two() || !(4 << 10..=1 << 20).contains(&size) {
            return Err(format!("a record size of {size} bytes; use a power of two from 4KiB to 1MiB"));
        }
        out.record_size = size;
    }
    if let Some(speed) = &change.write_speed {
        out.write_speed = match speed.as_str() {
            "normal" => WriteSpeed::Normal,
            "high" => WriteSpeed::High,
            _ => return Err(format!("write speed {speed:?}; use normal or high")),
        };
    }
    if let Some(delay) = change.write_back_delay_ms {
        if delay > DELAY_MAX_MS {
            return Err("a write-back delay above 12h; shorten it".to_owned());
        }
        out.write_back_delay_ms = delay;
    }
    if let Some(kind) = &change.compression {
        out.compression = compression(kind)?;
    }
    if let Some(dedupe) = change.dedupe {
        out.dedupe = dedupe;
    }
    if let Some(limit) = change.size_limit {
        out.size_limit = (limit > 0).then_some(limit);
    }
    if let Some(rules) = &change.exports {
        out.exports.clone_from(rules);
    }
    Ok(out)
}

fn compression(kind: &str) -> Result<CompressionSetting, String> {
    match kind {
        "none" => Ok(CompressionSetting::None),
        "lz4" => Ok(CompressionSetting::Lz4),
        // The level at which zstd still keeps up with a disk.
        "zstd" => Ok(CompressionSetting::Zstd(3)),
        other => match other.strip_prefix("zstd-").and_then(|level| level.parse().ok()) {
            Some(level @ 1..=19) => Ok(CompressionSetting::Zstd(level)),
            _ => Err(format!("compression {other:?}; use none, lz4, zstd or zstd-1 to zstd-19")),
        },
    }
}

/// What checkpoints spent their time on: all of them, and the last.
pub fn stages(all: &Stages, last: &Stages) -> Vec<(String, u64, u64)> {
    let pairs = all.named().into_iter().zip(last.named());
    pairs.map(|((name, all), (_, last))| (name.to_owned(), all.as_micros() as u64, last.as_micros() as u64)).collect()
}

/// A volume as listings show it.
pub fn volume(volume: &VolumeStatus) -> VolumeView {
    let settings = &volume.settings;
    VolumeView {
        id: volume.id.0,
        name: volume.name.clone(),
        export: format!("/{}", volume.name),
        record_size: settings.record_size,
        write_speed: match settings.write_speed {
            WriteSpeed::Normal => "normal".to_owned(),
            WriteSpeed::High => "high".to_owned(),
        },
        write_back_delay_ms: settings.write_back_delay_ms,
        compression: match settings.compression {
            CompressionSetting::None => "none".to_owned(),
            CompressionSetting::Lz4 => "lz4".to_owned(),
            CompressionSetting::Zstd(level) => format!("zstd-{level}"),
        },
        dedupe: settings.dedupe,
        size_limit: settings.size_limit,
        used_bytes: volume.usage.bytes,
        used_inodes: volume.usage.inodes,
        stored_bytes: volume.stored.map(|stored| stored.stored_bytes),
        saved_bytes: volume.stored.map_or(0, |stored| stored.saved_bytes),
        exports: settings.exports.clone(),
        deleted_ms: volume.deleted.map(|time| time.as_millis()),
    }
}

/// A lock as listings show it; `volume` is the name of its volume.
pub fn lock(info: &LockInfo, volume: &str) -> LockView {
    let lock = &info.lock;
    LockView {
        client: client_name(&lock.owner.client),
        process: lock.owner.process,
        volume: volume.to_owned(),
        inode: lock.node.ino.0,
        kind: match lock.kind {
            LockKind::Shared => "shared".to_owned(),
            LockKind::Exclusive => "exclusive".to_owned(),
        },
        start: lock.range.start,
        end: (lock.range.end != u64::MAX).then_some(lock.range.end),
        waiting: info.waiting,
    }
}

/// The name a client gave itself, as text that names it uniquely: printable or in hexadecimal.
pub fn client_name(name: &[u8]) -> String {
    match std::str::from_utf8(name) {
        Ok(text) if !text.is_empty() && text.chars().all(|c| !c.is_control()) && !text.starts_with("0x") => {
            text.to_owned()
        }
        _ => format!("0x{}", data_encoding::HEXLOWER.encode(name)),
    }
}

pub fn cache(name: &str, status: &tarn_engine::CacheStatus) -> CacheStatus {
    CacheStatus {
        name: name.to_owned(),
        entries: status.entries,
        bytes: status.bytes,
        capacity_bytes: status.capacity_bytes,
    }
}

pub fn segments(totals: &SegmentTotals) -> SegmentStatus {
    SegmentStatus {
        live: totals.live,
        live_object_bytes: totals.live_object_bytes,
        live_bytes: totals.live_bytes,
        condemned: totals.condemned,
        condemned_bytes: totals.condemned_bytes,
        saved_bytes: totals.saved_bytes,
        ..SegmentStatus::default()
    }
}

/// Faults that are passed on; more are counted.
const FAULTS_MAX: usize = 100;

/// A consistency walk as its command shows it.
pub fn fsck(report: FsckReport) -> WalkView {
    let counts = report.counts;
    let counted = [
        ("keys", counts.keys),
        ("volumes", counts.volumes),
        ("inodes", counts.inodes),
        ("names", counts.entries),
        ("pointers", counts.pointers),
        ("segments", counts.segments),
        ("objects", counts.objects),
        ("records read", counts.records),
    ];
    walk(&counted, report.findings, report.more)
}

/// A scrub as its command shows it. What could not be read is not known to be whole.
pub fn scrub(report: ScrubReport) -> WalkView {
    let counted = [("segments", report.segments), ("records", report.records), ("bytes", report.bytes)];
    walk(&counted, [report.damage, report.unread].concat(), 0)
}

fn walk(counted: &[(&str, u64)], mut faults: Vec<String>, more: u64) -> WalkView {
    let fault_count = faults.len() as u64 + more;
    faults.truncate(FAULTS_MAX);
    WalkView { counts: counted.iter().map(|(what, count)| ((*what).to_owned(), *count)).collect(), faults, fault_count }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_changes_what_it_names() {
        let old = VolumeSettings::default();
        assert_eq!(apply(&VolumeChange::default(), &old).unwrap(), old);
        let change = VolumeChange {
            record_size: Some(4096),
            write_speed: Some("high".into()),
            compression: Some("zstd-9".into()),
            dedupe: Some(true),
            size_limit: Some(1 << 40),
            ..VolumeChange::default()
        };
        let new = apply(&change, &old).unwrap();
        assert_eq!((new.record_size, new.write_speed, new.size_limit), (4096, WriteSpeed::High, Some(1 << 40)));
        assert!(new.dedupe && !old.dedupe);
        assert_eq!(new.compression, CompressionSetting::Zstd(9));
        let freed = VolumeChange { size_limit: Some(0), ..VolumeChange::default() };
        assert_eq!(apply(&freed, &new).unwrap().size_limit, None);
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let refused = |change: VolumeChange| apply(&change, &VolumeSettings::default()).unwrap_err();
        refused(VolumeChange { record_size: Some(5000), ..VolumeChange::default() });
        refused(VolumeChange { record_size: Some(2 << 20), ..VolumeChange::default() });
        refused(VolumeChange { write_speed: Some("fast".into()), ..VolumeChange::default() });
        refused(VolumeChange { compression: Some("zstd-20".into()), ..VolumeChange::default() });
        refused(VolumeChange { write_back_delay_ms: Some(DELAY_MAX_MS + 1), ..VolumeChange::default() });
    }

    #[test]
    fn client_names_are_shown_without_doubt() {
        assert_eq!(client_name(b"host.example"), "host.example");
        assert_eq!(client_name(b"a\x1b[2J"), "0x611b5b324a");
        assert_eq!(client_name(b""), "0x");
        assert_eq!(client_name(b"0x61"), "0x30783631");
    }
}
