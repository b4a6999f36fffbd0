//! How full a volume is.

use tarn_base::ids::{Ino, VolumeId};
use tarn_vfs::FsStat;

use crate::run::Operation;
use crate::stripes::LockSet;
use crate::tx::{Step, Tx};

/// What is shown where nothing limits a volume: 1 EiB.
const UNLIMITED: u64 = 1 << 60;

pub struct StatFs {
    pub volume: VolumeId,
}

impl Operation for StatFs {
    type Out = FsStat;

    fn locks(&self) -> LockSet {
        LockSet::default()
    }

    fn run(&self, tx: &mut Tx<'_>) -> Step<FsStat> {
        let volume = tx.volume(self.volume)?;
        let usage = volume.usage.get();
        let store_free = tx.core.room_for_growth();
        let limit = volume.record.settings.size_limit;
        let limit_free = limit.map_or(UNLIMITED, |limit| limit.saturating_sub(usage.bytes));
        let bytes_free = limit_free.min(store_free.unwrap_or(UNLIMITED));
        let bytes_total = limit.unwrap_or_else(|| match store_free {
            // The store is shared by all volumes: what this one holds and what is free.
            Some(free) => usage.bytes.saturating_add(free),
            None => UNLIMITED,
        });
        Ok(FsStat {
            bytes_total,
            bytes_free,
            bytes_used: usage.bytes,
            inodes_total: Ino::NUMBER_MAX,
            inodes_free: Ino::NUMBER_MAX - usage.inodes.min(Ino::NUMBER_MAX),
            inodes_used: usage.inodes,
        })
    }
}
