//! What the shard itself remembers: how far its store has come, and counters.

use bytes::Bytes;
use tarn_base::codec::{Decoded, Put, Take};
use tarn_base::ids::Position;

use super::{put_head, take_head};

/// The `Kind::Shard` value, in every checkpoint's batch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ShardState {
    /// P: every entry up to it is in the store.
    pub position: Position,
    /// The next inode number of partition 0.
    pub next_inode: u64,
    /// The next volume number; never used again.
    pub next_volume: u32,
    /// Counts openings that may have lost answered entries (engine rule 18); directories' cookies go by it.
    pub lineage: u32,
    /// Segment numbers of `epoch` below this are reserved: in use, or free to be deleted by name.
    pub reserved_epoch: u32,
    pub reserved_counter: u32,
    /// Segment numbers of `reserved_epoch` below this have keys, or their objects are known to be deleted.
    pub settled_counter: u32,
}

impl ShardState {
    pub fn encode(&self, out: &mut Vec<u8>) {
        put_head(out, 0);
        out.put_u64(self.position.0);
        out.put_u64(self.next_inode);
        out.put_u32(self.next_volume);
        out.put_u32(self.lineage);
        out.put_u32(self.reserved_epoch);
        out.put_u32(self.reserved_counter);
        out.put_u32(self.settled_counter);
    }

    pub fn decode(bytes: &[u8]) -> Decoded<ShardState> {
        let mut take = Take::new(bytes);
        take_head(&mut take)?;
        let state = ShardState {
            position: Position(take.u64()?),
            next_inode: take.u64()?,
            next_volume: take.u32()?,
            lineage: take.u32()?,
            reserved_epoch: take.u32()?,
            reserved_counter: take.u32()?,
            settled_counter: take.u32()?,
        };
        take.end()?;
        Ok(state)
    }
}

/// What a volume is charged for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Bytes of allocated records.
    pub bytes: u64,
    pub inodes: u64,
}

impl Usage {
    pub fn encode(&self, out: &mut Vec<u8>) {
        put_head(out, 0);
        out.put_u64(self.bytes);
        out.put_u64(self.inodes);
    }

    pub fn decode(bytes: &[u8]) -> Decoded<Usage> {
        let mut take = Take::new(bytes);
        take_head(&mut take)?;
        let usage = Usage { bytes: take.u64()?, inodes: take.u64()? };
        take.end()?;
        Ok(usage)
    }
}

/// The salt of an owner epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SaltRecord(pub [u8; 16]);

impl SaltRecord {
    pub fn encode(&self, out: &mut Vec<u8>) {
        put_head(out, 0);
        out.put(&self.0);
    }

    pub fn decode(bytes: &[u8]) -> Decoded<SaltRecord> {
        let mut take = Take::new(bytes);
        take_head(&mut take)?;
        let salt = SaltRecord(take.array()?);
        take.end()?;
        Ok(salt)
    }
}

/// A client that holds locks, to be told if the log that knows them is lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotifyRecord {
    pub client: Bytes,
    pub callback: Bytes,
}

impl NotifyRecord {
    pub fn encode(&self, out: &mut Vec<u8>) {
        put_head(out, 0);
        out.put_bytes(&self.client);
        out.put_bytes(&self.callback);
    }

    pub fn decode(bytes: &[u8]) -> Decoded<NotifyRecord> {
        let mut take = Take::new(bytes);
        take_head(&mut take)?;
        let record = NotifyRecord { client: take.owned(4096)?, callback: take.owned(4096)? };
        take.end()?;
        Ok(record)
    }
}
