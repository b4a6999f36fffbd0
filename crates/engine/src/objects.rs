//! Whole segment objects: read, opened and verified record by record, for those who walk them all.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tarn_base::codec::DecodeError;
use tarn_base::ids::{SegmentId, Uuid};
use tarn_data::{
    DamageError, Directory, DirectoryRecord, FOOTER_SIZE, FamilyKey, Footer, Salt, SegmentValue, object_name,
};
use tarn_meta::MetaError;
use tarn_store::StoreError;

use crate::core::Core;

/// Bytes asked for at once when a directory is read: that of some hundred records, and the footer.
const DIRECTORY_READ: u64 = 64 << 10;
const TRIES: u32 = 4;
const FIRST_PAUSE: Duration = Duration::from_millis(100);

/// Why an object could not be used.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ObjectError {
    #[error("{0}")]
    Store(StoreError),
    #[error("{0}")]
    Damage(#[from] DamageError),
    #[error("{0}")]
    Meta(#[from] MetaError),
    #[error("no volume has the key of its family {0}")]
    Keyless(Uuid),
}

impl ObjectError {
    /// Whether the medium is to blame, rather than the moment.
    pub fn is_damage(&self) -> bool {
        match self {
            ObjectError::Store(error) => matches!(error, StoreError::NotFound(_) | StoreError::Damaged(..)),
            ObjectError::Meta(error) => matches!(error, MetaError::Damaged(_)),
            ObjectError::Damage(_) | ObjectError::Keyless(_) => true,
        }
    }
}

/// The keys of all families whose volumes are still known, by family.
pub type FamilyKeys = BTreeMap<Uuid, Arc<FamilyKey>>;

/// A segment's object, whole.
#[derive(Debug)]
pub struct WholeObject {
    pub segment: SegmentId,
    pub bytes: Bytes,
    pub directory: Directory,
    family: Arc<FamilyKey>,
}

impl WholeObject {
    /// What the directory says of record `index`, and its stored bytes.
    pub fn record(&self, index: u32) -> Result<(&DirectoryRecord, Bytes), DamageError> {
        let missing = DamageError::Format(DecodeError::Range("a record's index"));
        let record = self.directory.records.get(index as usize).ok_or(missing)?;
        let (from, end) = (record.offset as usize, record.offset as usize + record.stored as usize);
        let inside = end <= self.bytes.len();
        if inside { Ok((record, self.bytes.slice(from..end))) } else { Err(missing) }
    }

    /// Verifies record `index`; `salt` is that of the owner epoch in its name.
    pub fn verify(&self, index: u32, salt: &Salt) -> Result<(), DamageError> {
        self.open(index, salt).map(|_| ())
    }

    /// The plaintext of record `index`; `salt` is that of the owner epoch in its name.
    pub fn open(&self, index: u32, salt: &Salt) -> Result<Bytes, DamageError> {
        let (record, stored) = self.record(index)?;
        let (segment, first) = record.origin.map_or((self.segment, index), |from| (from.segment, from.index));
        let key = self.family.segment(salt, segment);
        key.open(first, record.codec, record.plain, &record.tag, &stored)
    }
}

impl Core {
    /// The keys of the families of all volumes, deleted ones included.
    pub fn family_keys(&self) -> FamilyKeys {
        let mut keys: FamilyKeys =
            self.volumes.all().iter().map(|volume| (volume.family.id(), volume.family.clone())).collect();
        for (record, _) in self.deleted.lock().values() {
            if let Ok(key) = self.open_family_key(record) {
                keys.insert(key.id(), Arc::new(key));
            }
        }
        keys
    }

    /// A segment's directory alone, from the end of its object of `size` bytes.
    pub async fn directory(&self, family: &FamilyKey, segment: SegmentId, size: u64) -> Result<Directory, ObjectError> {
        let salt = self.salt(segment.epoch).await?;
        let key = self.segments.keys.get(family, &salt, segment);
        let (store, name) = (&self.segments.store, object_name(segment));
        let read = |from: u64| store.get_range(&name, from..size);
        let mut tail = read(size.saturating_sub(DIRECTORY_READ)).await.map_err(ObjectError::Store)?;
        let footer = Footer::decode(&tail, size).map_err(DamageError::from)?;
        let wanted = footer.directory_len as usize + FOOTER_SIZE;
        if tail.len() < wanted {
            tail = read(u64::from(footer.directory)).await.map_err(ObjectError::Store)?;
        }
        let from = tail.len().checked_sub(wanted).ok_or(DamageError::Format(DecodeError::Short))?;
        Ok(Directory::open(&key, &footer, &tail[from..tail.len() - FOOTER_SIZE])?)
    }

    /// Reads a segment's object and opens its directory.
    pub async fn whole_object(
        &self,
        keys: &FamilyKeys,
        segment: SegmentId,
        value: &SegmentValue,
    ) -> Result<WholeObject, ObjectError> {
        let family = keys.get(&value.family).ok_or(ObjectError::Keyless(value.family))?.clone();
        let name = object_name(segment);
        let mut pause = FIRST_PAUSE;
        let mut tries = 1;
        let bytes = loop {
            match self.segments.store.get(&name).await {
                Ok((bytes, _)) => break bytes,
                Err(StoreError::Unavailable(_) | StoreError::Unknown(_)) if tries < TRIES => {}
                Err(error) => return Err(ObjectError::Store(error)),
            }
            self.world.clock.sleep(pause).await;
            pause *= 2;
            tries += 1;
        };
        let directory = Directory::read(&family, segment, &bytes)?;
        Ok(WholeObject { segment, bytes, directory, family })
    }
}
