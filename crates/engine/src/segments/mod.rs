//! Reading and naming segments: salts, keys, forwardings, shared reads.
//!
//! - A record is named for ever by (segment, index); where its bytes lie is asked of the object first and, when that
//!   is gone, of the segment's forwarding (engine rule 22).
//! - What is handed out was verified against the tag in its pointer. What does not verify is told as damage.
//! - Misses of one record share one read.

mod change;
mod flight;
mod read;

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::{Mutex, RwLock};
use tarn_base::ids::{SegmentId, VolumeId};
use tarn_data::{FamilyKey, Forwarding, Salt, SegmentKeyCache};
use tarn_store::Store;
use tarn_vfs::CompressionSetting;

use crate::core::Core;
use crate::key::Key;
use crate::value::{SaltRecord, VolumeRecord};
use tarn_meta::MetaError;

pub use change::{Moved, NewObject, SegmentChange};

/// Prepared keys kept: one per segment that is being read.
const KEYS_MAX: usize = 4096;

/// What reading and making segments needs beside the metadata.
pub struct Segments {
    pub store: Arc<dyn Store>,
    keys: SegmentKeyCache,
    salts: RwLock<BTreeMap<u32, Salt>>,
    /// Of volumes that are not in the table any more.
    families: RwLock<BTreeMap<VolumeId, Arc<FamilyKey>>>,
    /// Forwardings met so far.
    forwarded: RwLock<BTreeMap<SegmentId, Arc<Forwarding>>>,
    flights: flight::Flights,
    /// Changes of segment keys that wait for the next batch.
    changes: Mutex<Vec<SegmentChange>>,
}

impl std::fmt::Debug for Segments {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Segments({:?})", self.store)
    }
}

impl Segments {
    /// `store`: where the shard's segments are.
    pub fn new(store: Arc<dyn Store>) -> Segments {
        Segments {
            store,
            keys: SegmentKeyCache::new(KEYS_MAX),
            salts: RwLock::default(),
            families: RwLock::default(),
            forwarded: RwLock::default(),
            flights: flight::Flights::default(),
            changes: Mutex::default(),
        }
    }

    /// Notes the salt of an owner epoch.
    pub fn note_salt(&self, epoch: u32, salt: Salt) {
        self.salts.write().insert(epoch, salt);
    }

    /// The forwarding of a segment has changed.
    pub fn forget_forwarding(&self, segment: SegmentId) {
        self.forwarded.write().remove(&segment);
    }
}

/// What sealing a volume's records needs.
#[derive(Clone, Debug)]
pub struct Family {
    pub key: Arc<FamilyKey>,
    pub compression: CompressionSetting,
}

impl Core {
    /// Key and compression of a volume, deleted ones included.
    pub async fn family(&self, volume: VolumeId) -> Result<Option<Family>, MetaError> {
        if let Some(present) = self.volumes.get(volume) {
            let compression = present.record.settings.compression;
            return Ok(Some(Family { key: present.family.clone(), compression }));
        }
        let held = self.segments.families.read().get(&volume).cloned();
        if let Some(key) = held {
            return Ok(Some(Family { key, compression: CompressionSetting::default() }));
        }
        let key = Key::volume(volume);
        let stack = self.stack.load();
        let value = match stack.get(&key) {
            Some(held) => held.value,
            None => stack.view.get(&key.encode()).await?,
        };
        let Some(value) = value else { return Ok(None) };
        let record = VolumeRecord::decode(&value)
            .map_err(|error| MetaError::Damaged(format!("the record of volume {}: {error}", volume.0)))?;
        let opened = self.open_family_key(&record);
        let opened = opened.map_err(|_| MetaError::Damaged(format!("the key of volume {}", volume.0)))?;
        let opened = Arc::new(opened);
        self.segments.families.write().insert(volume, opened.clone());
        Ok(Some(Family { key: opened, compression: record.settings.compression }))
    }

    /// The salt of an owner epoch.
    pub async fn salt(&self, epoch: u32) -> Result<Salt, MetaError> {
        if let Some(salt) = self.segments.salts.read().get(&epoch) {
            return Ok(*salt);
        }
        let view = self.stack.load().view.clone();
        let value = view.get(&Key::salt(epoch).encode()).await?;
        let value = value.ok_or_else(|| MetaError::Damaged(format!("no salt of owner epoch {epoch}")))?;
        let SaltRecord(salt) = SaltRecord::decode(&value)
            .map_err(|error| MetaError::Damaged(format!("the salt of owner epoch {epoch}: {error}")))?;
        self.segments.note_salt(epoch, salt);
        Ok(salt)
    }
}
