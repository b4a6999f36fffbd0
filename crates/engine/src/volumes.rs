//! The volumes of a shard, as operations need them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering};

use parking_lot::RwLock;
use tarn_base::ids::VolumeId;
use tarn_data::FamilyKey;
use tarn_vfs::{Errno, Node, VolumeInfo, Volumes};

use crate::value::{Usage, VolumeRecord};

/// One volume that is not deleted.
#[derive(Debug)]
pub struct Volume {
    pub id: VolumeId,
    pub record: VolumeRecord,
    pub family: Arc<FamilyKey>,
    /// Shared by all versions of the record.
    pub usage: Arc<UsageCounter>,
}

/// What a volume is charged for, counted as operations change it.
#[derive(Debug, Default)]
pub struct UsageCounter {
    bytes: AtomicI64,
    inodes: AtomicI64,
}

impl UsageCounter {
    pub fn new(usage: Usage) -> UsageCounter {
        UsageCounter { bytes: AtomicI64::new(usage.bytes as i64), inodes: AtomicI64::new(usage.inodes as i64) }
    }

    pub fn get(&self) -> Usage {
        Usage {
            bytes: self.bytes.load(Ordering::Relaxed).max(0) as u64,
            inodes: self.inodes.load(Ordering::Relaxed).max(0) as u64,
        }
    }

    pub fn add(&self, bytes: i64, inodes: i64) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.inodes.fetch_add(inodes, Ordering::Relaxed);
    }

    /// Adds unless that would go past `limit` bytes; giving back is always possible.
    pub fn try_add(&self, bytes: i64, inodes: i64, limit: Option<u64>) -> Result<(), Errno> {
        let limit = limit.map_or(i64::MAX, |limit| i64::try_from(limit).unwrap_or(i64::MAX));
        // In one step: what is refused is never seen as used by somebody for whom there is room.
        let fits = |now: i64| Some(now + bytes).filter(|after| bytes <= 0 || *after <= limit);
        if self.bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).is_err() {
            return Err(Errno::NoSpace);
        }
        self.inodes.fetch_add(inodes, Ordering::Relaxed);
        Ok(())
    }
}

impl Volume {
    pub fn root(&self) -> Node {
        Node { volume: self.id, epoch: 0, ino: self.record.root, generation: self.record.root_generation.0 }
    }

    pub fn info(&self) -> VolumeInfo {
        VolumeInfo {
            id: self.id,
            name: String::from_utf8_lossy(&self.record.name).into_owned(),
            root: self.root(),
            fsid: self.record.fsid,
            settings: self.record.settings.clone(),
        }
    }

    pub fn record_bits(&self) -> u8 {
        self.record.settings.record_size.trailing_zeros() as u8
    }
}

#[derive(Debug, Default)]
struct Table {
    present: BTreeMap<VolumeId, Arc<Volume>>,
    listed: Volumes,
}

/// Volumes that a look at one word tells of.
const BITS: usize = 2048;

/// All volumes that are not deleted.
#[derive(Debug, Default)]
pub struct VolumeTable {
    table: RwLock<Table>,
    /// Where the present list lies: nobody who has an older one will find the next there.
    listed_at: AtomicUsize,
    /// A bit for each of the first volumes, set while it is there: every call asks.
    has: [AtomicU64; BITS / 64],
}

impl VolumeTable {
    pub fn get(&self, id: VolumeId) -> Option<Arc<Volume>> {
        self.table.read().present.get(&id).cloned()
    }

    pub fn has(&self, id: VolumeId) -> bool {
        match self.has.get(id.0 as usize / 64) {
            Some(word) => word.load(Ordering::Acquire) >> (id.0 % 64) & 1 == 1,
            None => self.table.read().present.contains_key(&id),
        }
    }

    pub fn all(&self) -> Vec<Arc<Volume>> {
        self.table.read().present.values().cloned().collect()
    }

    pub fn listed(&self) -> Volumes {
        self.table.read().listed.clone()
    }

    /// Whether that is the present list.
    pub fn lists(&self, volumes: &Volumes) -> bool {
        Arc::as_ptr(volumes).addr() == self.listed_at.load(Ordering::Acquire)
    }

    /// Puts a volume or its new record.
    pub fn put(&self, volume: Volume) {
        self.change(volume.id, |present| present.insert(volume.id, Arc::new(volume)));
    }

    pub fn remove(&self, id: VolumeId) {
        self.change(id, |present| present.remove(&id));
    }

    fn change(&self, id: VolumeId, change: impl FnOnce(&mut BTreeMap<VolumeId, Arc<Volume>>) -> Option<Arc<Volume>>) {
        let mut table = self.table.write();
        change(&mut table.present);
        if let Some(word) = self.has.get(id.0 as usize / 64) {
            let bit = 1 << (id.0 % 64);
            match table.present.contains_key(&id) {
                true => word.fetch_or(bit, Ordering::Release),
                false => word.fetch_and(!bit, Ordering::Release),
            };
        }
        table.listed = Arc::new(table.present.values().map(|volume| volume.info()).collect());
        self.listed_at.store(Arc::as_ptr(&table.listed).addr(), Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use tarn_base::crypto::Key as Secret;
    use tarn_base::ids::Uuid;

    use super::*;
    use crate::value::volume::tests::example;

    #[test]
    fn a_list_is_the_present_one_until_the_next_change() {
        let table = VolumeTable::default();
        let mut lists = Vec::new();
        for _ in 0..3 {
            table.remove(VolumeId(1));
            lists.push(table.listed());
            let present: Vec<bool> = lists.iter().map(|list| table.lists(list)).collect();
            assert_eq!(present.iter().position(|present| *present), Some(lists.len() - 1), "no other");
        }
    }

    #[test]
    fn a_volume_is_there_from_its_coming_to_its_going() {
        let table = VolumeTable::default();
        let ids = [0, 1, 63, 64, BITS as u32 - 1, BITS as u32, u32::MAX].map(VolumeId);
        let family = Arc::new(FamilyKey::new(Uuid([1; 16]), Secret::new([2; 32])));
        let volume = |id| Volume { id, record: example(), family: family.clone(), usage: Arc::default() };
        for (at, id) in ids.into_iter().enumerate() {
            table.put(volume(id));
            table.put(volume(id));
            assert_eq!(ids.map(|id| table.has(id)), std::array::from_fn(|index| index <= at));
        }
        for (at, id) in ids.into_iter().enumerate() {
            table.remove(id);
            table.remove(id);
            assert_eq!(ids.map(|id| table.has(id)), std::array::from_fn(|index| index > at));
        }
    }

    #[test]
    fn a_limit_is_exact_however_many_try_beside_what_does_not_fit() {
        for _ in 0..20 {
            let usage = UsageCounter::default();
            std::thread::scope(|scope| {
                // Never fits.
                scope.spawn(|| (0..2000).for_each(|_| assert!(usage.try_add(2000, 0, Some(1000)).is_err())));
                // Always does.
                scope.spawn(|| (0..1000).for_each(|_| assert!(usage.try_add(1, 1, Some(1000)).is_ok())));
            });
            assert_eq!(usage.get(), Usage { bytes: 1000, inodes: 1000 });
            assert!(usage.try_add(1, 0, Some(1000)).is_err() && usage.try_add(-1, 0, Some(0)).is_ok());
        }
    }
}
