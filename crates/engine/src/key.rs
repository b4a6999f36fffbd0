//! Every key of a shard's metadata store, in one file. The bits are in `docs/format/metadata.md`.
//!
//! - Keys sort as their fields do: volume, partition, kind, then two numbers.
//! - Keys hold no names: names stand in values, which are sealed.
//! - The history of a key sorts as the key it shadows, its epoch last (engine rule 27).

use tarn_base::ids::{Ino, SegmentId, VolumeId};

/// What a key names. The numbers are part of the format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Kind {
    /// Present state of the shard: the position its store has reached, counters. Volume 0.
    Shard = 0x01,
    /// A volume's record. Volume 0; a = volume.
    Volume = 0x02,
    /// Usage counters of a volume. Volume 0; a = volume.
    Usage = 0x03,
    /// Salt of an owner epoch, for ever. Volume 0; a = epoch.
    Salt = 0x04,
    /// A segment: place, live set. Volume 0; a = epoch << 32 | counter.
    Segment = 0x05,
    /// How many pointers name a record that more than one names. Volume 0; a = segment, b = index.
    Count = 0x06,
    /// A client to be notified after a restart that lost its locks. Volume 0; a = hash of its name.
    Notify = 0x07,
    /// An inode; a = inode number.
    Inode = 0x10,
    /// All entries of a directory whose names have one hash; a = directory, b = hash.
    EntryHash = 0x11,
    /// One entry in listing order; a = directory, b = cookie.
    EntryCookie = 0x12,
    /// Cuts of a map that has any, until they are worked off; a = map.
    Map = 0x13,
    /// The extent pointer of a record; a = map, b = record number.
    Pointer = 0x14,
    /// Reserved: what changed in an epoch; a = epoch, then the key.
    Index = 0x20,
}

/// Bytes of an encoded key that is not history.
pub const KEY_SIZE: usize = 23;

/// A key. Its order is the order of its encoding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    pub volume: VolumeId,
    pub partition: u16,
    pub kind: Kind,
    pub a: u64,
    pub b: u64,
}

impl Key {
    fn shard_wide(kind: Kind, a: u64, b: u64) -> Key {
        Key { volume: VolumeId(0), partition: 0, kind, a, b }
    }

    fn of(volume: VolumeId, ino: Ino, kind: Kind, b: u64) -> Key {
        Key { volume, partition: ino.partition(), kind, a: ino.0, b }
    }

    pub fn shard() -> Key {
        Key::shard_wide(Kind::Shard, 0, 0)
    }

    pub fn volume(id: VolumeId) -> Key {
        Key::shard_wide(Kind::Volume, u64::from(id.0), 0)
    }

    pub fn usage(id: VolumeId) -> Key {
        Key::shard_wide(Kind::Usage, u64::from(id.0), 0)
    }

    pub fn salt(epoch: u32) -> Key {
        Key::shard_wide(Kind::Salt, u64::from(epoch), 0)
    }

    pub fn segment(id: SegmentId) -> Key {
        Key::shard_wide(Kind::Segment, segment_number(id), 0)
    }

    pub fn count(id: SegmentId, index: u32) -> Key {
        Key::shard_wide(Kind::Count, segment_number(id), u64::from(index))
    }

    pub fn notify(name_hash: u64) -> Key {
        Key::shard_wide(Kind::Notify, name_hash, 0)
    }

    pub fn inode(volume: VolumeId, ino: Ino) -> Key {
        Key::of(volume, ino, Kind::Inode, 0)
    }

    pub fn entry_hash(volume: VolumeId, dir: Ino, hash: u64) -> Key {
        Key::of(volume, dir, Kind::EntryHash, hash)
    }

    pub fn entry_cookie(volume: VolumeId, dir: Ino, cookie: u64) -> Key {
        Key::of(volume, dir, Kind::EntryCookie, cookie)
    }

    /// A map has the number of the inode it was made for.
    pub fn map(volume: VolumeId, map: Ino) -> Key {
        Key::of(volume, map, Kind::Map, 0)
    }

    pub fn pointer(volume: VolumeId, map: Ino, record: u64) -> Key {
        Key::of(volume, map, Kind::Pointer, record)
    }

    /// The first key after this one of its volume, partition and kind; `None` after the last.
    pub fn after(&self) -> Option<Key> {
        match self.b.checked_add(1) {
            Some(b) => Some(Key { b, ..*self }),
            None => Some(Key { a: self.a.checked_add(1)?, b: 0, ..*self }),
        }
    }

    pub fn encode(&self) -> [u8; KEY_SIZE] {
        let mut out = [0u8; KEY_SIZE];
        out[..4].copy_from_slice(&self.volume.0.to_be_bytes());
        out[4..6].copy_from_slice(&self.partition.to_be_bytes());
        out[6] = self.kind as u8;
        out[7..15].copy_from_slice(&self.a.to_be_bytes());
        out[15..].copy_from_slice(&self.b.to_be_bytes());
        out
    }

    pub fn bytes(&self) -> bytes::Bytes {
        bytes::Bytes::copy_from_slice(&self.encode())
    }

    /// The key that `bytes` encode; `None` for what is not a present key of this version.
    pub fn decode(bytes: &[u8]) -> Option<Key> {
        let bytes: &[u8; KEY_SIZE] = bytes.try_into().ok()?;
        let word = |at: usize| u64::from_be_bytes(bytes[at..at + 8].try_into().unwrap_or_default());
        Some(Key {
            volume: VolumeId(u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])),
            partition: u16::from_be_bytes([bytes[4], bytes[5]]),
            kind: Kind::decode(bytes[6])?,
            a: word(7),
            b: word(15),
        })
    }
}

impl Kind {
    fn decode(byte: u8) -> Option<Kind> {
        const ALL: [Kind; 13] = [
            Kind::Shard,
            Kind::Volume,
            Kind::Usage,
            Kind::Salt,
            Kind::Segment,
            Kind::Count,
            Kind::Notify,
            Kind::Inode,
            Kind::EntryHash,
            Kind::EntryCookie,
            Kind::Map,
            Kind::Pointer,
            Kind::Index,
        ];
        ALL.into_iter().find(|kind| *kind as u8 == byte)
    }
}

/// A key in words: whose it is, as an administrator would look for it.
pub fn words(key: &Key) -> String {
    let (volume, a, b) = (key.volume.0, key.a, key.b);
    match key.kind {
        Kind::Inode => format!("volume {volume}, inode {a}"),
        Kind::EntryHash => format!("volume {volume}, directory {a}, entries of hash {b:016x}"),
        Kind::EntryCookie => format!("volume {volume}, directory {a}, entry {b}"),
        Kind::Map => format!("volume {volume}, map {a}"),
        Kind::Pointer => format!("volume {volume}, map {a}, record {b}"),
        Kind::Segment => format!("segment {}", segment_id(a)),
        kind => format!("volume {volume}, {kind:?} {a:x}/{b:x}"),
    }
}

/// A segment's number in one word, as keys hold it.
pub fn segment_number(id: SegmentId) -> u64 {
    (u64::from(id.epoch) << 32) | u64::from(id.counter)
}

/// The counterpart of [`segment_number`].
pub fn segment_id(number: u64) -> SegmentId {
    SegmentId { epoch: (number >> 32) as u32, counter: number as u32 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_sort_as_their_bytes_do() {
        let v = VolumeId(1);
        let mut keys = [
            Key::shard(),
            Key::volume(VolumeId(9)),
            Key::segment(SegmentId { epoch: 1, counter: 2 }),
            Key::inode(v, Ino::new(0, 1)),
            Key::inode(v, Ino::new(3, 1)),
            Key::entry_hash(v, Ino::new(0, 1), u64::MAX),
            Key::entry_cookie(v, Ino::new(0, 1), 3),
            Key::pointer(v, Ino::new(0, 7), 1 << 40),
            Key::pointer(VolumeId(2), Ino::new(0, 7), 0),
        ];
        keys.sort();
        let encoded: Vec<_> = keys.iter().map(Key::encode).collect();
        assert!(encoded.is_sorted());
        for key in keys {
            assert_eq!(Key::decode(&key.encode()), Some(key));
        }
        assert_eq!(Key::decode(&[0xee; KEY_SIZE]), None);
        assert_eq!(Key::decode(b"short"), None);
    }
}
