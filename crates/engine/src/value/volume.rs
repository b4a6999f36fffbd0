//! A volume's record: name, settings, secrets of its family.

use bytes::Bytes;
use tarn_base::codec::{DecodeError, Decoded, Put, Take};
use tarn_base::ids::{Ino, Position, Uuid};
use tarn_base::time::Time;
use tarn_vfs::{CompressionSetting, VolumeSettings, WriteSpeed};

use super::{put_head, take_head};

/// The `Kind::Volume` value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeRecord {
    pub name: Bytes,
    pub root: Ino,
    pub root_generation: Position,
    pub fsid: u64,
    /// Present epoch; counts snapshots.
    pub epoch: u32,
    /// The family whose key seals its records: the volume it was first cloned from, or itself.
    pub family: u32,
    /// The family's key, sealed by the shard's (16 bytes of salt, then ciphertext and tag).
    pub family_key: Bytes,
    /// Secret under which names are hashed.
    pub name_secret: [u8; 16],
    /// Unicode version of the folding, major and minor.
    pub unicode: (u8, u8),
    pub created: Time,
    /// Set when it was deleted; its data stays 24 hours.
    pub deleted: Option<Time>,
    pub settings: VolumeSettings,
}

impl VolumeRecord {
    /// Names the family: the salt that its key is sealed with was drawn for it alone.
    pub fn family_id(&self) -> Option<Uuid> {
        self.family_key.first_chunk().map(|salt| Uuid(*salt))
    }

    pub fn encode(&self, out: &mut Vec<u8>) {
        put_head(out, self.epoch);
        out.put_bytes(&self.name);
        out.put_u64(self.root.0);
        out.put_u64(self.root_generation.0);
        out.put_u64(self.fsid);
        out.put_u32(self.family);
        out.put_bytes(&self.family_key);
        out.put(&self.name_secret);
        out.put(&[self.unicode.0, self.unicode.1]);
        put_time(out, self.created);
        out.put_bool(self.deleted.is_some());
        put_time(out, self.deleted.unwrap_or_default());
        put_settings(out, &self.settings);
    }

    pub fn decode(bytes: &[u8]) -> Decoded<VolumeRecord> {
        let mut take = Take::new(bytes);
        let epoch = take_head(&mut take)?;
        let name = take.owned(255)?;
        let root = Ino(take.u64()?);
        let root_generation = Position(take.u64()?);
        let fsid = take.u64()?;
        let family = take.u32()?;
        let family_key = take.owned(256)?;
        let name_secret = take.array()?;
        let unicode = (take.u8()?, take.u8()?);
        let created = take_time(&mut take)?;
        let deleted = take.bool()?;
        let deleted_at = take_time(&mut take)?;
        let settings = take_settings(&mut take)?;
        take.end()?;
        Ok(VolumeRecord {
            name,
            root,
            root_generation,
            fsid,
            epoch,
            family,
            family_key,
            name_secret,
            unicode,
            created,
            deleted: deleted.then_some(deleted_at),
            settings,
        })
    }
}

fn put_time(out: &mut Vec<u8>, time: Time) {
    out.put_i64(time.seconds);
    out.put_u32(time.nanos);
}

fn take_time(take: &mut Take<'_>) -> Decoded<Time> {
    Ok(Time { seconds: take.i64()?, nanos: take.u32()? })
}

fn put_settings(out: &mut Vec<u8>, settings: &VolumeSettings) {
    out.put_u32(settings.record_size);
    out.put_bool(settings.write_speed == WriteSpeed::High);
    out.put_u64(settings.write_back_delay_ms);
    let (codec, level) = match settings.compression {
        CompressionSetting::None => (0, 0),
        CompressionSetting::Lz4 => (1, 0),
        CompressionSetting::Zstd(level) => (2, level),
    };
    out.put(&[codec, level]);
    out.put_bool(settings.dedupe);
    out.put_bool(settings.size_limit.is_some());
    out.put_u64(settings.size_limit.unwrap_or_default());
    out.put_bytes(settings.exports.as_bytes());
}

fn take_settings(take: &mut Take<'_>) -> Decoded<VolumeSettings> {
    let record_size = take.u32()?;
    if !record_size.is_power_of_two() || !(4096..=1 << 20).contains(&record_size) {
        return Err(DecodeError::Range("a record size"));
    }
    let write_speed = if take.bool()? { WriteSpeed::High } else { WriteSpeed::Normal };
    let write_back_delay_ms = take.u64()?;
    let compression = match (take.u8()?, take.u8()?) {
        (0, _) => CompressionSetting::None,
        (1, _) => CompressionSetting::Lz4,
        (2, level) => CompressionSetting::Zstd(level),
        _ => return Err(DecodeError::Range("a compression")),
    };
    let dedupe = take.bool()?;
    let limited = take.bool()?;
    let limit = take.u64()?;
    let exports = String::from_utf8(take.bytes()?.to_vec()).map_err(|_| DecodeError::Range("export rules"))?;
    Ok(VolumeSettings {
        record_size,
        write_speed,
        write_back_delay_ms,
        compression,
        dedupe,
        size_limit: limited.then_some(limit),
        exports,
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn example() -> VolumeRecord {
        VolumeRecord {
            name: Bytes::from_static(b"vol"),
            root: Ino(1),
            root_generation: Position(5),
            fsid: 77,
            epoch: 1,
            family: 1,
            family_key: Bytes::from_static(b"sealed"),
            name_secret: [9; 16],
            unicode: (16, 0),
            created: Time { seconds: 1, nanos: 2 },
            deleted: Some(Time { seconds: 3, nanos: 4 }),
            settings: VolumeSettings {
                dedupe: true,
                size_limit: Some(1 << 30),
                exports: "*".into(),
                ..Default::default()
            },
        }
    }

    #[test]
    fn a_volume_survives_encoding() {
        let record = example();
        let mut out = Vec::new();
        record.encode(&mut out);
        assert_eq!(VolumeRecord::decode(&out), Ok(record));
        assert!((0..out.len()).all(|len| VolumeRecord::decode(&out[..len]).is_err()));
    }
}
