//! Between what an administrator writes and what a volume is set to.

use tarn_vfs::{CompressionSetting, LockInfo, LockKind, VolumeInfo, VolumeSettings, WriteSpeed};

use crate::protocol::{LockView, VolumeChange, VolumeView};

/// Longest write-back delay, milliseconds: 12 hours.
const DELAY_MAX_MS: u64 = 12 * 3_600_000;
/// Longest name of a volume: it is a part of a path that clients type.
const NAME_MAX: usize = 64;

/// Refuses a name that could not be mounted as `/NAME`.
pub fn check_name(name: &str) -> Result<(), String> {
    let letter = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    let begins = name.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric());
    if begins && name.len() <= NAME_MAX && name.bytes().all(letter) {
        return Ok(());
    }
    Err(format!("{name:?} is no name for a volume; use up to 64 letters, digits, and - _ . after the first"))
}

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

/// A volume as listings show it; usage in bytes and inodes.
pub fn volume(info: &VolumeInfo, used_bytes: u64, used_inodes: u64, deleted_until_ms: Option<i64>) -> VolumeView {
    let settings = &info.settings;
    VolumeView {
        id: info.id.0,
        name: info.name.clone(),
        export: format!("/{}", info.name),
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
        size_limit: settings.size_limit,
        used_bytes,
        used_inodes,
        exports: settings.exports.clone(),
        deleted_until_ms,
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
            size_limit: Some(1 << 40),
            ..VolumeChange::default()
        };
        let new = apply(&change, &old).unwrap();
        assert_eq!((new.record_size, new.write_speed, new.size_limit), (4096, WriteSpeed::High, Some(1 << 40)));
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
        for name in ["", "a/b", ".", "-x", "é", &"x".repeat(65)] {
            assert!(check_name(name).is_err(), "{name:?}");
        }
        check_name("vol-1.old_2").unwrap();
    }

    #[test]
    fn client_names_are_shown_without_doubt() {
        assert_eq!(client_name(b"host.example"), "host.example");
        assert_eq!(client_name(b"a\x1b[2J"), "0x611b5b324a");
        assert_eq!(client_name(b""), "0x");
        assert_eq!(client_name(b"0x61"), "0x30783631");
    }
}
