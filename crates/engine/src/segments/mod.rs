//! What is known of segments in RAM: salts, keys, forwardings, reads under way, changes that wait for a batch.
//!
//! - Salts, keys and forwardings are caches: what is not here is in the metadata ([`crate::records`] asks it).
//! - A change of a segment's key waits here until the batch that holds it is durable.

mod change;
pub mod flight;

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::{Mutex, RwLock};
use tarn_base::ids::{SegmentId, VolumeId};
use tarn_data::{FamilyKey, Forwarding, Salt, SegmentKeyCache};
use tarn_store::Store;

pub use change::{Moved, NewObject, SegmentChange};

/// Prepared keys kept: one per segment that is being read.
const KEYS_MAX: usize = 4096;

/// What reading and making segments needs beside the metadata.
pub struct Segments {
    pub store: Arc<dyn Store>,
    pub(crate) keys: SegmentKeyCache,
    pub(crate) salts: RwLock<BTreeMap<u32, Salt>>,
    /// Of volumes that are not in the table any more.
    pub(crate) families: RwLock<BTreeMap<VolumeId, Arc<FamilyKey>>>,
    /// Forwardings met so far.
    pub(crate) forwarded: RwLock<BTreeMap<SegmentId, Arc<Forwarding>>>,
    pub(crate) flights: flight::Flights,
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
