//! What a span of generations changes, with the old values that matter: one ordered pass over sorted keys (engine rule 16).
//!
//! - The view is the state right before the span: it begins with the oldest generation.
//! - What the span's end does not show is not stored: data of files that are gone, or that was cut off or written over. But what a
//!   partial cut hides is charged until reclaim has removed its pointer ([`crate::ops::data`]): it gets one, of a single zero.
//! - Pointers of an inode created in the span are not looked for: the view cannot hold any. Nor are those behind the end
//!   that a file had before it, unless it had cuts: what a stream appends has none.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use tarn_base::ids::{Ino, VolumeId};
use tarn_base::mutant;
use tarn_data::RecordPointer;
use tarn_meta::MetaView;

use super::CheckpointError;
use crate::core::Core;
use crate::key::{Key, Kind};
use crate::overlay::{DataKey, DirtyRecord, Extent, Source, Span};
use crate::value::{Inode, MapState};

/// Keys asked of the view at once.
const KEYS_AT_ONCE: usize = 4096;

/// So many dirty records of a file are worth a look at where it ended before.
const WORTH_A_LOOK: usize = 16;

/// A volume and an inode of it.
type Owner = (VolumeId, Ino);

/// A map with dirty data, as of the span's end.
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

/// Everything a span changes.
#[derive(Debug, Default)]
pub struct Collected {
    /// In order of key.
    pub keys: Vec<(Key, Option<Bytes>)>,
    /// In order of volume, map and record.
    pub records: Vec<Due>,
    /// Pointers that go, each once: several may have named one record, and others still do.
    pub dead: Vec<RecordPointer>,
}

pub async fn collect(core: &Core, view: &Arc<dyn MetaView>, span: &Span) -> Result<Collected, CheckpointError> {
    let keys = span.sorted_keys();
    let records = span.sorted_records();
    let maps = map_ends(core, view, &keys, &records).await?;

    let mut pointers = Walk::over(&keys);
    let mut ends = Walk::over(&maps);
    let mut wanted: Vec<Key> = keys.iter().filter(|(key, _)| key.kind == Kind::Pointer).map(|(key, _)| *key).collect();
    let maps_of = || records.chunk_by(|(one, _), (other, _)| (one.0, one.1) == (other.0, other.1));
    let many = maps_of().filter(|of_map| of_map.len() >= WORTH_A_LOOK);
    let before = records_before(view, many.filter_map(|of_map| of_map.first())).await?;
    for of_map in maps_of() {
        let Some(((volume, map, _), _)) = of_map.first() else { continue };
        let end = ends.to(&(*volume, *map));
        if end.is_some_and(|end| end.inode.generation > span.after()) {
            continue;
        }
        let before = before.get(&(*volume, *map)).copied().unwrap_or(u64::MAX);
        let old = of_map.iter().filter(|((.., record), _)| *record < before);
        wanted.extend(old.map(|((.., record), _)| Key::pointer(*volume, *map, *record)));
    }
    wanted.sort_unstable();
    wanted.dedup();
    let old = old_pointers(core, view, wanted).await?;
    let pointer_of = |walk: &mut Walk<'_, Key, Bytes>, key: &Key| match walk.to(key) {
        Some(bytes) => RecordPointer::decode(bytes).map(Some).map_err(|error| damaged(core, key, &error.to_string())),
        None => Ok(None),
    };

    let mut out = Collected::default();
    let mut ends = Walk::over(&maps);
    let mut olds = Walk::over(&old);
    for (key, mut dirty) in records {
        let pointer_key = Key::pointer(key.0, key.1, key.2);
        let Some(end) = ends.to(&(key.0, key.1)) else { continue };
        let counts = |generation| end.cuts.as_ref().is_none_or(|cuts| cuts.counts(key.2, generation));
        if !counts(dirty.generation) {
            if end.cuts.as_ref().is_some_and(|cuts| cuts.drops_charge(dirty.generation)) {
                continue;
            }
            dirty.extents = vec![Extent { start: 0, end: 1, source: Source::Zero }];
        }
        if let Some(earlier) = out.records.last_mut().filter(|earlier| earlier.key == key) {
            if !mutant::on(mutant::OLDER_OVER_NEWER) {
                earlier.dirty.write_later(dirty);
            }
            continue;
        }
        let old = pointer_of(&mut olds, &pointer_key)?;
        let changed = pointers.to(&pointer_key).is_some();
        if !changed {
            out.dead.extend(old);
        }
        // A pointer that the span removes was hidden by a cut.
        let base = old.filter(|old| !changed && counts(old.generation));
        out.records.push(Due { key, dirty, base, record_size: 1 << end.inode.record_bits });
    }
    let mut olds = Walk::over(&old);
    for (key, _) in keys.iter().filter(|(key, _)| key.kind == Kind::Pointer) {
        out.dead.extend(pointer_of(&mut olds, key)?);
    }
    out.keys = keys;
    Ok(out)
}

/// What the view has of the pointers `wanted`, which are in order: the key cache knows many of them. It shows the present view, which
/// stays what it is until this checkpoint is shown. Where the store was opened again and turned out to be a batch further than the
/// cache, that generation was adopted and the cache cleared before anything is collected.
async fn old_pointers(
    core: &Core,
    view: &Arc<dyn MetaView>,
    wanted: Vec<Key>,
) -> Result<Vec<(Key, Bytes)>, CheckpointError> {
    debug_assert!(Arc::ptr_eq(&core.stack.load().view, view));
    let all = wanted.len();
    let mut old = Vec::with_capacity(all);
    let mut missing = BTreeSet::new();
    for key in wanted {
        match core.caches.keys.peek(&key) {
            Some(value) => old.push((key, value)),
            None => drop(missing.insert(key)),
        }
    }
    if cfg!(debug_assertions) {
        agree(view, &old).await?;
    }
    let known = all - missing.len();
    let found = old_values_told(view, missing, |done, _| core.brake.prepares(known + done, all)).await?;
    let mut old: Vec<(Key, Bytes)> = old.into_iter().filter_map(|(key, value)| Some((key, value?))).collect();
    old.extend(found);
    old.sort_unstable_by_key(|(key, _)| *key);
    Ok(old)
}

/// What is cached is what the view has: a record that is taken for another would be lost.
async fn agree(view: &Arc<dyn MetaView>, cached: &[(Key, Option<Bytes>)]) -> Result<(), CheckpointError> {
    let stored = old_values(view, cached.iter().map(|(key, _)| *key).collect()).await?;
    for (key, value) in cached {
        assert_eq!(value.as_ref(), stored.get(key), "{key:?} is not in the cache as it is in the store");
    }
    Ok(())
}

/// How many records of each map may have had pointers before the span, where that is known: nothing else hangs on it, so
/// what is damaged is for whoever needs it to find.
async fn records_before<'a>(
    view: &Arc<dyn MetaView>,
    first: impl Iterator<Item = &'a (DataKey, DirtyRecord)>,
) -> Result<BTreeMap<Owner, u64>, CheckpointError> {
    let keys = first.map(|((volume, map, _), _)| Key::inode(*volume, *map)).collect();
    let values = match old_values(view, keys).await {
        Err(CheckpointError::Damaged(_)) => BTreeMap::new(),
        values => values?,
    };
    let inodes = values.iter().filter_map(|(key, value)| Some((key, Inode::decode(value).ok()?)));
    // What a cut took away may have its pointers still.
    let whole = inodes.filter(|(_, inode)| !inode.has_cuts);
    Ok(whole.map(|(key, inode)| ((key.volume, Ino(key.a)), inode.size.div_ceil(1 << inode.record_bits))).collect())
}

/// The inodes and cuts of all maps with dirty data, as of the span's end, in order. An inode that is gone has none.
async fn map_ends(
    core: &Core,
    view: &Arc<dyn MetaView>,
    keys: &[(Key, Option<Bytes>)],
    records: &[(DataKey, DirtyRecord)],
) -> Result<Vec<(Owner, MapEnd)>, CheckpointError> {
    let mut owners: Vec<Owner> = records.iter().map(|((volume, map, _), _)| (*volume, *map)).collect();
    owners.dedup();
    let mut out = Vec::with_capacity(owners.len());
    let inodes = owners.iter().map(|(volume, map)| Key::inode(*volume, *map));
    for (owner, (key, value)) in owners.iter().zip(ends_of(view, keys, inodes.collect()).await?) {
        let Some(value) = value else { continue };
        let inode = Inode::decode(&value).map_err(|error| damaged(core, &key, &error.to_string()))?;
        out.push((*owner, MapEnd { inode, cuts: None }));
    }
    let cut = || out.iter().filter(|(_, end)| end.inode.has_cuts);
    let maps = cut().map(|((volume, map), _)| Key::map(*volume, *map)).collect();
    let mut cuts = ends_of(view, keys, maps).await?.into_iter();
    for (_, end) in out.iter_mut().filter(|(_, end)| end.inode.has_cuts) {
        let Some((key, Some(value))) = cuts.next() else { continue };
        let state = MapState::decode(&value).map_err(|error| damaged(core, &key, &error.to_string()))?;
        end.cuts = Some(state);
    }
    Ok(out)
}

/// Values of `wanted`, which is in order, as of the span's end: what it changed, else what the view has.
async fn ends_of(
    view: &Arc<dyn MetaView>,
    keys: &[(Key, Option<Bytes>)],
    wanted: Vec<Key>,
) -> Result<Vec<(Key, Option<Bytes>)>, CheckpointError> {
    let mut walk = Walk::over(keys);
    let missing = wanted.iter().filter(|key| walk.to(key).is_none()).copied().collect();
    let mut old = old_values(view, missing).await?;
    let mut walk = Walk::over(keys);
    Ok(wanted.into_iter().map(|key| (key, walk.to(&key).cloned().unwrap_or_else(|| old.remove(&key)))).collect())
}

/// Looks keys up that rise, in entries that are sorted: the next is near.
struct Walk<'a, K, V> {
    rest: &'a [(K, V)],
}

impl<'a, K: Ord, V> Walk<'a, K, V> {
    fn over(entries: &'a [(K, V)]) -> Walk<'a, K, V> {
        Walk { rest: entries }
    }

    /// The value of `key`, which is not below the one asked for last.
    fn to(&mut self, key: &K) -> Option<&'a V> {
        let mut step = 1;
        while self.rest.get(step).is_some_and(|(held, _)| held < key) {
            self.rest = &self.rest[step..];
            step *= 2;
        }
        let near = &self.rest[..self.rest.len().min(step + 1)];
        self.rest = &self.rest[near.partition_point(|(held, _)| held < key)..];
        self.rest.first().filter(|(held, _)| held == key).map(|(_, value)| value)
    }
}

/// Present values of `keys` in the view.
pub(super) async fn old_values(
    view: &Arc<dyn MetaView>,
    keys: BTreeSet<Key>,
) -> Result<BTreeMap<Key, Bytes>, CheckpointError> {
    old_values_told(view, keys, |_, _| {}).await
}

/// The same, telling how many of all have been asked for.
async fn old_values_told(
    view: &Arc<dyn MetaView>,
    keys: BTreeSet<Key>,
    tell: impl Fn(usize, usize),
) -> Result<BTreeMap<Key, Bytes>, CheckpointError> {
    let keys: Vec<Key> = keys.into_iter().collect();
    let mut out = BTreeMap::new();
    let mut done = 0;
    for part in keys.chunks(KEYS_AT_ONCE) {
        let encoded: Vec<Bytes> = part.iter().map(Key::bytes).collect();
        let values = view.get_sorted(&encoded).await?;
        out.extend(part.iter().zip(values).filter_map(|(key, value)| Some((*key, value?))));
        done += part.len();
        tell(done, keys.len());
    }
    Ok(out)
}

pub(super) fn damaged(core: &Core, key: &Key, what: &str) -> CheckpointError {
    core.damaged(key, what);
    CheckpointError::Damaged(format!("{:?} {:x}/{:x} of volume {}", key.kind, key.a, key.b, key.volume.0))
}
