//! Reading everything that lives in the object store, to find damage before somebody needs the bytes.
//!
//! - Every live segment is read whole, once, and each of its live records verified; slowly enough to be no burden.
//! - Damage is told with its object, and with the files it belongs to.
//! - Nothing is changed. What leaves the store meanwhile is skipped.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::Arc;

use bytes::Bytes;
use tarn_base::ids::{Ino, SegmentId, VolumeId};
use tarn_data::{LostBytes, RecordPointer, SegmentState, SegmentValue, object_name};
use tarn_meta::{MetaError, MetaView};
use tarn_vfs::FileType;

use crate::core::Core;
use crate::key::{Key, Kind, segment_id};
use crate::objects::{FamilyKeys, ObjectError};
use crate::pages::Pages;
use crate::reclaim::Pace;
use crate::value::{CookieEntry, Inode};

/// Bytes per second: a terabyte in about nine hours.
const RATE: u64 = 32 << 20;
/// Parents followed to a root.
const DEPTH_MAX: usize = 4096;

/// How far a scrub has come, bytes of objects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScrubProgress {
    pub done: u64,
    pub total: u64,
}

/// What a scrub read and found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScrubReport {
    pub segments: u64,
    /// Live records verified.
    pub records: u64,
    pub bytes: u64,
    /// What is damaged: record, object, file.
    pub damage: Vec<String>,
    /// Segments that could not be read now, and why; they may be whole.
    pub unread: Vec<String>,
    /// The caller ended it before it had read everything.
    pub canceled: bool,
}

/// A damaged record: its name, the object it lies in, what is wrong.
struct Damaged {
    name: (SegmentId, u32),
    object: String,
    what: String,
}

/// Scrubs until all is read or `progress` says to break off.
pub(crate) async fn scrub(
    core: &Arc<Core>,
    progress: &mut (dyn FnMut(ScrubProgress) -> ControlFlow<()> + Send),
) -> Result<ScrubReport, MetaError> {
    let segments = live_segments(&core.stack.load().view).await?;
    let mut at = ScrubProgress { done: 0, total: segments.iter().map(|(_, size)| size).sum() };
    let mut pace = Pace::limited(&core.world, RATE);
    let keys = core.family_keys();
    let mut report = ScrubReport::default();
    let mut damaged = Vec::new();
    for (segment, size) in segments {
        if progress(at).is_break() {
            report.canceled = true;
            break;
        }
        pace.take(size).await;
        one(core, &keys, segment, &mut report, &mut damaged).await?;
        at.done += size;
    }
    let _ = progress(at);
    if !damaged.is_empty() {
        let files = files(&core.stack.load().view, damaged.iter().map(|damaged| damaged.name).collect()).await?;
        for Damaged { name: (segment, index), object, what } in damaged {
            let file = files.get(&(segment, index)).cloned().unwrap_or_else(|| "no file's any more".into());
            report.damage.push(format!("record {index} of segment {segment}, in {object}: {what}; {file}"));
        }
    }
    report.damage.extend(lost(core).await?);
    for text in &report.damage {
        tracing::error!(damage = %text, "damaged data");
        let mut known = core.health.damage.lock();
        if known.len() < 100 && !known.contains(text) {
            known.push(text.clone());
        }
    }
    Ok(report)
}

/// Bytes that were damaged when others of their record were overwritten: the record is whole, and says so.
async fn lost(core: &Core) -> Result<Vec<String>, MetaError> {
    let view = core.stack.load().view.clone();
    let mut found = Vec::new();
    let mut pages = Pages::all(view.clone());
    while let Some(entries) = pages.next().await? {
        for (key, value) in entries {
            let Some(key) = Key::decode(&key).filter(|key| key.kind == Kind::Pointer) else { continue };
            let Ok(pointer) = RecordPointer::decode(&value) else { continue };
            if pointer.lost != 0 {
                found.push((key, pointer));
            }
        }
    }
    let owners = found.iter().map(|(key, _)| (key.volume, Ino(key.a))).collect();
    let names = if found.is_empty() { Names::new() } else { names(&view, &owners).await? };
    let mut out = Vec::new();
    for (key, pointer) in found {
        let path = path(&view, &names, key.volume, Ino(key.a)).await?;
        let plain = core.read_records(&[(key.volume, pointer)]).await;
        // What cannot be read is told by the walk over the objects.
        let lost = plain.ok().and_then(|mut plain| plain.pop()).and_then(|plain| LostBytes::of(&pointer, &plain).ok());
        let count = lost.map_or_else(String::new, |lost| format!("{} ", lost.count()));
        let (record, volume, ino) = (key.b, key.volume.0, key.a);
        out.push(format!("{count}bytes of record {record} of volume {volume}, inode {ino:x}, {path}: lost earlier"));
    }
    Ok(out)
}

/// Live segments and the sizes of their objects.
async fn live_segments(view: &Arc<dyn MetaView>) -> Result<Vec<(SegmentId, u64)>, MetaError> {
    let mut out = Vec::new();
    let mut pages = Pages::kind(view.clone(), VolumeId(0), Kind::Segment);
    while let Some(entries) = pages.next().await? {
        for (key, value) in entries {
            let (Some(key), Ok(value)) = (Key::decode(&key), SegmentValue::decode(&value)) else { continue };
            if value.state == SegmentState::Live {
                out.push((segment_id(key.a), value.object_size));
            }
        }
    }
    Ok(out)
}

/// The segment's value, if it still lives.
async fn present(core: &Core, segment: SegmentId) -> Result<Option<SegmentValue>, MetaError> {
    let view = core.stack.load().view.clone();
    let value = view.get(&Key::segment(segment).encode()).await?;
    let value = value.and_then(|value| SegmentValue::decode(&value).ok());
    Ok(value.filter(|value| value.state == SegmentState::Live))
}

async fn one(
    core: &Core,
    keys: &FamilyKeys,
    segment: SegmentId,
    report: &mut ScrubReport,
    damaged: &mut Vec<Damaged>,
) -> Result<(), MetaError> {
    let Some(value) = present(core, segment).await? else { return Ok(()) };
    let name = object_name(segment);
    let object = match core.whole_object(keys, segment, &value).await {
        Ok(object) => object,
        Err(_) if present(core, segment).await?.is_none() => return Ok(()),
        Err(error) if error.is_damage() => {
            let what = error.to_string();
            let lost = value.live.iter().map(|index| Damaged {
                name: (segment, index),
                object: name.clone(),
                what: what.clone(),
            });
            damaged.extend(lost);
            return Ok(());
        }
        Err(error) => {
            report.unread.push(format!("{name}: {error}"));
            return Ok(());
        }
    };
    report.segments += 1;
    report.bytes += object.bytes.len() as u64;
    for index in value.live.iter() {
        let record = object.record(index).map(|(record, _)| record.origin);
        let origin = record.ok().flatten();
        let (first, salt) = match origin {
            Some(origin) => ((origin.segment, origin.index), origin.salt),
            None => ((segment, index), core.salt(segment.epoch).await?),
        };
        report.records += 1;
        if let Err(error) = object.verify(index, &salt) {
            let what = ObjectError::Damage(error).to_string();
            damaged.push(Damaged { name: first, object: name.clone(), what });
        }
    }
    Ok(())
}

/// To whom records belong, in words. One walk over all pointers and names, for damage only.
async fn files(
    view: &Arc<dyn MetaView>,
    wanted: BTreeSet<(SegmentId, u32)>,
) -> Result<BTreeMap<(SegmentId, u32), String>, MetaError> {
    let mut found = Vec::new();
    let mut pages = Pages::all(view.clone());
    while let Some(entries) = pages.next().await? {
        for (key, value) in entries {
            let Some(key) = Key::decode(&key).filter(|key| key.kind == Kind::Pointer) else { continue };
            let Ok(pointer) = RecordPointer::decode(&value) else { continue };
            if wanted.contains(&(pointer.segment, pointer.index)) {
                found.push(((pointer.segment, pointer.index), key));
            }
        }
    }
    let mut out = BTreeMap::new();
    let owners: BTreeSet<(VolumeId, Ino)> = found.iter().map(|(_, key)| (key.volume, Ino(key.a))).collect();
    let names = names(view, &owners).await?;
    for (record, key) in found {
        let path = path(view, &names, key.volume, Ino(key.a)).await?;
        out.insert(record, format!("record {} of volume {}, inode {:x}, {path}", key.b, key.volume.0, key.a));
    }
    Ok(out)
}

/// Where an inode is named: its directory, and the name there.
type Names = BTreeMap<(VolumeId, Ino), (Ino, Bytes)>;

/// A name of each of `wanted`, and of every directory.
async fn names(view: &Arc<dyn MetaView>, wanted: &BTreeSet<(VolumeId, Ino)>) -> Result<Names, MetaError> {
    let mut out = Names::new();
    let volumes: BTreeSet<VolumeId> = wanted.iter().map(|(volume, _)| *volume).collect();
    for volume in volumes {
        let mut pages = Pages::kind(view.clone(), volume, Kind::EntryCookie);
        while let Some(entries) = pages.next().await? {
            for (key, value) in entries {
                let (Some(key), Ok(entry)) = (Key::decode(&key), CookieEntry::decode(&value)) else { continue };
                if entry.kind == FileType::Directory || wanted.contains(&(volume, entry.ino)) {
                    out.insert((volume, entry.ino), (Ino(key.a), entry.name));
                }
            }
        }
    }
    Ok(out)
}

async fn path(view: &Arc<dyn MetaView>, names: &Names, volume: VolumeId, ino: Ino) -> Result<String, MetaError> {
    let mut parts = Vec::new();
    let mut at = ino;
    while let Some((parent, name)) = names.get(&(volume, at)) {
        parts.push(String::from_utf8_lossy(name).into_owned());
        at = *parent;
        if parts.len() > DEPTH_MAX {
            break;
        }
    }
    let top = view.get(&Key::inode(volume, at).encode()).await?.and_then(|value| Inode::decode(&value).ok());
    let rooted = top.is_some_and(|inode| inode.parent == at);
    parts.reverse();
    Ok(if rooted && !parts.is_empty() { format!("/{}", parts.join("/")) } else { "without a name".into() })
}
