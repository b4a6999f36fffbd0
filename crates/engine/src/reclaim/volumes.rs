//! Taking down volumes that have been deleted for long enough.
//!
//! - First its name is emptied, durably: from then on it cannot be brought back, and its tree need not be whole.
//! - Then its keys go in bounded entries; the checkpoints that carry their pointers' removal empty the segments.
//! - Its record goes last, when the view holds nothing else of it, so that a crash anywhere leaves it to be found.

use std::time::Duration;

use bytes::Bytes;
use tarn_base::ids::VolumeId;
use tarn_base::time::Time;

use super::{KEYS_AT_ONCE, Reclaim, ReclaimError, Reclaimed};
use crate::key::Key;
use crate::pages::Pages;
use crate::run::{Operation, Stamp};
use crate::stripes::LockSet;
use crate::tx::{Step, Tx};
use crate::value::VolumeRecord;

/// Changes keys of a deleted volume, on which no other operation works.
#[derive(Clone)]
struct Change {
    volume: VolumeId,
    remove: Vec<Key>,
    record: Option<VolumeRecord>,
}

/// Keys removed.
struct Changed(u64);

impl Stamp for Changed {}

impl Operation for Change {
    type Out = Changed;

    fn locks(&self) -> LockSet {
        LockSet::exclusive(VolumeId(0), u64::from(self.volume.0))
    }

    fn run(&self, tx: &mut Tx<'_>) -> Step<Changed> {
        let mut removed = 0;
        let stack = tx.stack.clone();
        for key in &self.remove {
            let gone = stack.get(key).is_some_and(|held| held.value.is_none());
            if !gone {
                tx.remove(*key);
                removed += 1;
            }
        }
        if let Some(record) = &self.record {
            tx.put(Key::volume(self.volume), |out| record.encode(out));
        }
        Ok(Changed(removed))
    }
}

impl Reclaim {
    /// Goes on with every volume whose time is over.
    pub(crate) async fn take_volumes_down(&self, done: &mut Reclaimed) -> Result<(), ReclaimError> {
        for (id, _) in self.volumes_due() {
            self.take_down(id, done).await?;
        }
        Ok(())
    }

    /// Volumes whose time is over, and whether taking them down has begun.
    pub(super) fn volumes_due(&self) -> Vec<(VolumeId, bool)> {
        let (now, keep) = (self.core.world.clock.now(), self.core.config.volume_keep);
        let deleted = self.core.deleted.lock();
        let due = deleted.iter().filter(|(_, (record, _))| is_due(record, now, keep));
        due.map(|(id, (record, _))| (*id, record.name.is_empty())).collect()
    }

    async fn take_down(&self, id: VolumeId, done: &mut Reclaimed) -> Result<(), ReclaimError> {
        let view = self.core.stack.load().view.clone();
        // Once its deletion is in the view, so is everything that was changed before.
        let held = view.get(&Key::volume(id).encode()).await?.and_then(|value| VolumeRecord::decode(&value).ok());
        if held.is_none_or(|record| record.deleted.is_none()) {
            return Ok(());
        }
        if !self.unname(id).await? {
            return Ok(());
        }
        let mut pages = Pages::volume(view, id);
        let mut empty = true;
        while let Some(entries) = pages.next().await? {
            let keys: Vec<Key> = entries.iter().filter_map(|(key, _)| Key::decode(key)).collect();
            empty &= keys.is_empty();
            for part in keys.chunks(KEYS_AT_ONCE) {
                let change = Change { volume: id, remove: part.to_vec(), record: None };
                done.volume_keys += self.execute(change).await?.0;
            }
        }
        if empty { self.remove_record(id, done).await } else { Ok(()) }
    }

    /// Makes sure that the volume cannot come back; false if it just did.
    async fn unname(&self, id: VolumeId) -> Result<bool, ReclaimError> {
        let _admin = self.core.admin.lock().await;
        let held = self.core.deleted.lock().get(&id).map(|(record, _)| record.clone());
        let Some(held) = held else { return Ok(false) };
        if held.name.is_empty() {
            return Ok(true);
        }
        let record = VolumeRecord { name: Bytes::new(), ..held };
        self.execute(Change { volume: id, remove: Vec::new(), record: Some(record.clone()) }).await?;
        if let Some(held) = self.core.deleted.lock().get_mut(&id) {
            held.0 = record;
        }
        Ok(true)
    }

    async fn remove_record(&self, id: VolumeId, done: &mut Reclaimed) -> Result<(), ReclaimError> {
        let _admin = self.core.admin.lock().await;
        // Before its keys go: a generation that closes in between must not write its usage again.
        let held = self.core.deleted.lock().remove(&id);
        let remove = vec![Key::volume(id), Key::usage(id)];
        match self.execute(Change { volume: id, remove, record: None }).await {
            Ok(Changed(removed)) => {
                done.volumes += u64::from(removed > 0);
                Ok(())
            }
            Err(error) => {
                self.core.deleted.lock().extend(held.map(|held| (id, held)));
                Err(error)
            }
        }
    }
}

fn is_due(record: &VolumeRecord, now: Time, keep: Duration) -> bool {
    let since = record.deleted.map(|at| now.as_millis().saturating_sub(at.as_millis()));
    since.is_some_and(|since| i128::from(since) >= keep.as_millis() as i128)
}
