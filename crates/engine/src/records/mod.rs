//! Reading records: which key opens them, where their bytes are, shared reads.
//!
//! - A record is named for ever by (segment, index); where its bytes lie is asked of the object first and, when that
//!   is gone, of the segment's forwarding (engine rule 22).
//! - What is handed out was verified against the tag in its pointer. What does not verify is told as damage.
//! - Misses of one record share one read.

pub mod look;
mod read;

use std::sync::Arc;

use tarn_base::ids::VolumeId;
use tarn_data::{FamilyKey, Salt};
use tarn_meta::MetaError;
use tarn_vfs::CompressionSetting;

use crate::core::Core;
use crate::key::Key;
use crate::value::{SaltRecord, VolumeRecord};

/// What sealing a volume's records needs.
#[derive(Clone, Debug)]
pub struct Family {
    pub key: Arc<FamilyKey>,
    pub compression: CompressionSetting,
    /// Whether records are looked for that are there already.
    pub dedupe: bool,
}

impl Core {
    /// Key and compression of a volume, deleted ones included.
    pub async fn family(&self, volume: VolumeId) -> Result<Option<Family>, MetaError> {
        if let Some(present) = self.volumes.get(volume) {
            let settings = &present.record.settings;
            let (compression, dedupe) = (settings.compression, settings.dedupe);
            return Ok(Some(Family { key: present.family.clone(), compression, dedupe }));
        }
        let held = self.segments.families.read().get(&volume).cloned();
        if let Some(key) = held {
            return Ok(Some(Family { key, compression: CompressionSetting::default(), dedupe: false }));
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
        Ok(Some(Family { key: opened, compression: record.settings.compression, dedupe: false }))
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
