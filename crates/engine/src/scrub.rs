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
use tarn_base::turns::Turns;
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
/// Files named for an object whose frame is damaged.
const FRAME_FILES_MAX: usize = 20;
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

/// A record, by the segment whose object it lies in and its place in that object's order.
type Place = (SegmentId, u32);

/// What is wrong with an object.
struct Damaged {
    what: String,
    /// The records that are concerned.
    records: Vec<Place>,
    /// The bytes around the records are damaged; the records themselves are found through their pointers.
    frame: bool,
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
        pace.take(size, core.log_is_filling()).await;
        one(core, &keys, segment, &mut report, &mut damaged).await?;
        at.done += size;
    }
    let _ = progress(at);
    if !damaged.is_empty() {
        let places = damaged.iter().flat_map(|damaged| damaged.records.iter().copied()).collect();
        mistrust(core, &places).await?;
        let files = files(&core.stack.load().view, places).await?;
        report.damage = damaged.iter().flat_map(|damaged| damaged.words(&files)).collect();
    }
    report.damage.extend(lost(core).await?);
    report.damage.iter().for_each(|text| core.health.damaged(text.clone()));
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
        let plain = core.read_records(&[(key, pointer)]).await;
        // What cannot be read is told by the walk over the objects.
        let lost = plain.ok().and_then(|mut plain| plain.pop()).and_then(|plain| LostBytes::of(&pointer, &plain).ok());
        let count = lost.map_or_else(String::new, |lost| format!("{} ", lost.count()));
        let (record, volume, ino) = (key.b, key.volume.0, key.a);
        out.push(format!("{count}bytes of record {record} of volume {volume}, inode {ino}, {path}: lost earlier"));
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
            let records = value.live.iter().map(|index| (segment, index)).collect();
            damaged.push(Damaged { what: error.to_string(), records, frame: matches!(error, ObjectError::Damage(_)) });
            return Ok(());
        }
        Err(error) => {
            report.unread.push(format!("{name}: {error}"));
            return Ok(());
        }
    };
    report.segments += 1;
    report.bytes += object.bytes.len() as u64;
    let mut turns = Turns::default();
    let each = object.bytes.len() / value.live.iter().count().max(1);
    for index in value.live.iter() {
        turns.worked(each);
        let record = object.record(index).map(|(record, _)| record.origin);
        let salt = match record.ok().flatten() {
            Some(origin) => origin.salt,
            None => core.salt(segment.epoch).await?,
        };
        report.records += 1;
        if let Err(error) = object.verify(index, &salt) {
            let what = ObjectError::Damage(error).to_string();
            damaged.push(Damaged { what, records: vec![(segment, index)], frame: false });
        }
    }
    Ok(())
}

/// To whom records belong, in words, by where they lie.
type Files = BTreeMap<Place, String>;

impl Damaged {
    /// A line for each record that is damaged or lost; one for an object whose frame is.
    fn words(&self, files: &Files) -> Vec<String> {
        let file = |place: &Place| files.get(place).map_or("no file's any more", String::as_str);
        if !self.frame {
            let line = |place: &Place| {
                let (segment, index) = *place;
                format!("record {index} in {}: {}; {}", object_name(segment), self.what, file(place))
            };
            return self.records.iter().map(line).collect();
        }
        let Some((segment, _)) = self.records.first() else { return Vec::new() };
        let mut text = format!("{}: around its records: {}; these are in it", object_name(*segment), self.what);
        for place in self.records.iter().take(FRAME_FILES_MAX) {
            text.push_str("; ");
            text.push_str(file(place));
        }
        if self.records.len() > FRAME_FILES_MAX {
            text.push_str(&format!("; and {} records more", self.records.len() - FRAME_FILES_MAX));
        }
        vec![text]
    }
}

/// What is damaged is not shared any further, under whatever name dedupe knows it.
async fn mistrust(core: &Core, places: &BTreeSet<Place>) -> Result<(), MetaError> {
    let moved = forwarded(&core.stack.load().view, places).await?;
    places.iter().chain(moved.keys()).for_each(|(segment, index)| core.dedupe.damaged(*segment, *index));
    Ok(())
}

/// One walk over all segments, pointers and names, for damage only.
async fn files(view: &Arc<dyn MetaView>, wanted: BTreeSet<Place>) -> Result<Files, MetaError> {
    let forwarded = forwarded(view, &wanted).await?;
    let mut found = Vec::new();
    let mut pages = Pages::all(view.clone());
    while let Some(entries) = pages.next().await? {
        for (key, value) in entries {
            let Some(key) = Key::decode(&key).filter(|key| key.kind == Kind::Pointer) else { continue };
            let Ok(pointer) = RecordPointer::decode(&value) else { continue };
            let name = (pointer.segment, pointer.index);
            let place = forwarded.get(&name).copied().unwrap_or(name);
            if wanted.contains(&place) {
                found.push((place, key));
            }
        }
    }
    let mut out = Files::new();
    let owners: BTreeSet<(VolumeId, Ino)> = found.iter().map(|(_, key)| (key.volume, Ino(key.a))).collect();
    let names = names(view, &owners).await?;
    for (place, key) in found {
        let path = path(view, &names, key.volume, Ino(key.a)).await?;
        let text = format!("record {} of volume {}, inode {}, {path}", key.b, key.volume.0, key.a);
        // A record that dedupe shares belongs to several.
        out.entry(place).and_modify(|held: &mut String| held.extend(["; ", &text])).or_insert(text);
    }
    Ok(out)
}

/// Where the records that were moved to one of `wanted` were first: their names in pointers.
async fn forwarded(view: &Arc<dyn MetaView>, wanted: &BTreeSet<Place>) -> Result<BTreeMap<Place, Place>, MetaError> {
    let mut out = BTreeMap::new();
    let mut pages = Pages::kind(view.clone(), VolumeId(0), Kind::Segment);
    while let Some(entries) = pages.next().await? {
        for (key, value) in entries {
            let (Some(key), Ok(value)) = (Key::decode(&key), SegmentValue::decode(&value)) else { continue };
            let SegmentState::Forwarding(forwarding) = value.state else { continue };
            let moved = forwarding.records.iter().map(|(index, to)| (*index, (to.segment, to.index)));
            let moved = moved.filter(|(_, to)| wanted.contains(to));
            out.extend(moved.map(|(index, to)| ((segment_id(key.a), index), to)));
        }
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
