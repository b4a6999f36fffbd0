//! What a generation changes, with the old values that matter: one ordered pass over sorted keys (engine rule 16).
//!
//! - The view is the state right before the generation: it is the oldest.
//! - Pointers of an inode created in the generation are not looked for: the view cannot hold any.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use tarn_base::ids::{Ino, VolumeId};
use tarn_data::RecordPointer;
use tarn_meta::MetaView;

use super::CheckpointError;
use crate::core::Core;
use crate::key::{Key, Kind};
use crate::overlay::{DataKey, DirtyRecord, Generation};
use crate::value::{Inode, MapState};

/// Keys asked of the view at once.
const KEYS_AT_ONCE: usize = 4096;

/// A map with dirty data, as of the generation's end.
#[derive(Clone, Debug)]
pub struct MapEnd {
    pub inode: Inode,
    /// `None`: everything counts.
    pub cuts: Option<MapState>,
}

/// A dirty record that is to be stored.
#[derive(Clone, Debug)]
pub struct Due {
    pub key: DataKey,
    pub dirty: DirtyRecord,
    /// Where its older content is, if that counts.
    pub base: Option<RecordPointer>,
    /// Of the inode.
    pub record_size: u32,
}

/// Everything a generation changes.
#[derive(Debug, Default)]
pub struct Collected {
    /// In order of key.
    pub keys: Vec<(Key, Option<Bytes>)>,
    /// In order of volume, map and record.
    pub records: Vec<Due>,
    /// Records that no pointer names any more.
    pub dead: Vec<RecordPointer>,
}

pub async fn collect(
    core: &Core,
    view: &Arc<dyn MetaView>,
    generation: &Generation,
) -> Result<Collected, CheckpointError> {
    let keys = generation.sorted_keys();
    let records = generation.sorted_records();
    let changed = |key: &Key| keys.binary_search_by_key(key, |(held, _)| *held).ok().map(|at| keys[at].1.clone());
    let maps = map_ends(core, view, generation, &changed, &records).await?;

    let mut wanted: BTreeSet<Key> =
        keys.iter().filter(|(key, _)| key.kind == Kind::Pointer).map(|(key, _)| *key).collect();
    for ((volume, map, record), _) in &records {
        let fresh = maps.get(&(*volume, *map)).is_some_and(|end| end.inode.generation > generation.after);
        if !fresh {
            wanted.insert(Key::pointer(*volume, *map, *record));
        }
    }
    let old = old_values(view, wanted).await?;
    let old_pointer = |key: &Key| match old.get(key) {
        Some(bytes) => RecordPointer::decode(bytes).map(Some).map_err(|error| damaged(core, key, &error.to_string())),
        None => Ok(None),
    };

    let mut out = Collected::default();
    for (key, dirty) in records {
        let pointer_key = Key::pointer(key.0, key.1, key.2);
        let Some(end) = maps.get(&(key.0, key.1)) else { continue };
        let counts = |generation| end.cuts.as_ref().is_none_or(|cuts| cuts.counts(key.2, generation));
        if !counts(dirty.generation) {
            continue;
        }
        let old = old_pointer(&pointer_key)?;
        if changed(&pointer_key).is_none() {
            out.dead.extend(old);
        }
        // A pointer that this generation removes was hidden by a cut.
        let base = old.filter(|old| changed(&pointer_key).is_none() && counts(old.generation));
        out.records.push(Due { key, dirty, base, record_size: 1 << end.inode.record_bits });
    }
    for (key, _) in keys.iter().filter(|(key, _)| key.kind == Kind::Pointer) {
        out.dead.extend(old_pointer(key)?);
    }
    out.keys = keys;
    Ok(out)
}

/// The inodes and cuts of all maps with dirty data, as of the generation's end. An inode that is gone has none.
async fn map_ends(
    core: &Core,
    view: &Arc<dyn MetaView>,
    generation: &Generation,
    changed: &impl Fn(&Key) -> Option<Option<Bytes>>,
    records: &[(DataKey, DirtyRecord)],
) -> Result<BTreeMap<(VolumeId, Ino), MapEnd>, CheckpointError> {
    let owners: BTreeSet<(VolumeId, Ino)> = records.iter().map(|((volume, map, _), _)| (*volume, *map)).collect();
    let both = owners.iter().flat_map(|(volume, map)| [Key::inode(*volume, *map), Key::map(*volume, *map)]);
    let missing = both.filter(|key| generation.get(key).is_none()).collect();
    let old = old_values(view, missing).await?;
    let value = |key: &Key| changed(key).unwrap_or_else(|| old.get(key).cloned());
    let mut out = BTreeMap::new();
    for (volume, map) in owners {
        let (inode_key, map_key) = (Key::inode(volume, map), Key::map(volume, map));
        let Some(bytes) = value(&inode_key) else { continue };
        let inode = Inode::decode(&bytes).map_err(|error| damaged(core, &inode_key, &error.to_string()))?;
        let cuts = value(&map_key).map(|bytes| MapState::decode(&bytes)).transpose();
        let cuts = cuts.map_err(|error| damaged(core, &map_key, &error.to_string()))?;
        out.insert((volume, map), MapEnd { inode, cuts });
    }
    Ok(out)
}

/// Present values of `keys` in the view.
pub(super) async fn old_values(
    view: &Arc<dyn MetaView>,
    keys: BTreeSet<Key>,
) -> Result<BTreeMap<Key, Bytes>, CheckpointError> {
    let keys: Vec<Key> = keys.into_iter().collect();
    let mut out = BTreeMap::new();
    for part in keys.chunks(KEYS_AT_ONCE) {
        let encoded: Vec<Bytes> = part.iter().map(Key::bytes).collect();
        let values = view.get_sorted(&encoded).await?;
        out.extend(part.iter().zip(values).filter_map(|(key, value)| Some((*key, value?))));
    }
    Ok(out)
}

pub(super) fn damaged(core: &Core, key: &Key, what: &str) -> CheckpointError {
    core.damaged(key, what);
    CheckpointError::Damaged(format!("{:?} {:x}/{:x} of volume {}", key.kind, key.a, key.b, key.volume.0))
}
