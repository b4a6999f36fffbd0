//! Dirty records become whole records: the newest bytes over the old content, zeros where there is neither.
//!
//! - Old content is fetched only for records that are not covered entirely, but for what is known to be zeros: what is written
//!   again and again in a sparse file is not.
//! - Records go to the packer in order of volume, map and record, so neighbours in a file are neighbours in a segment.
//! - Old content that is damaged or gone, and stays so ([`super::suspects`]), does not keep the new bytes from the store:
//!   the record says which of its bytes are lost, until they are written again.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use futures::{StreamExt, future, stream};
use tarn_base::ids::SegmentId;
use tarn_base::mutant;
use tarn_data::{LostBytes, RecordPointer, object_name};
use tarn_vfs::Errno;
use tarn_wal::LogPlace;
use tokio::sync::oneshot;

use super::collect::{Collected, Due};
use super::pack::Packer;
use super::stages::Lap;
use super::suspects::{Failure, Moment, SPAN, Verdict};
use super::{CheckpointError, Keeper};
use crate::core::Core;
use crate::key::Key;
use crate::overlay::{DirtyRecord, Extent, Source};
use crate::records::look::Look;
use crate::segments::flight::Name;

/// Records merged at once: bounds the memory that old content takes, of these and as many that are read meanwhile.
const RECORDS_AT_ONCE: usize = 64;

/// Damaged records that are looked at in one attempt once one of them fails.
const LOOKS_MAX: usize = 1024;
/// Of these at once: a far store answers each in a tenth of a second.
const LOOKS_AT_ONCE: usize = 32;
/// Missing objects that are named in one attempt.
const NAMED_MAX: usize = 64;
/// How often what is suspected is looked at while an attempt goes on.
const WATCH: Duration = Duration::from_secs(30);

/// Of the cache for records, the part that whole records which large writes brought may fill with one checkpoint whatever else is there.
const STREAM_SHARE: u64 = 8;

/// What a record was before.
#[derive(Clone, Debug, Default)]
struct Old {
    data: Bytes,
    /// Of its data, at the beginning.
    zeros: u32,
    lost: LostBytes,
}

/// A record as it is stored.
#[derive(Clone, Debug)]
pub struct Merged {
    /// Its data, and the list of what is lost of that.
    pub plain: Bytes,
    /// Its buffer holds nothing else: whoever keeps it keeps no frame of the log.
    pub own: bool,
    /// Bytes of that list; 0: nothing is lost.
    pub lost: u32,
    /// As in [`RecordPointer::zeros`].
    pub zeros: u32,
    /// Readers are likely to ask for it: all of it is new, or they had asked for what it was.
    pub wanted: bool,
}

/// Old content as it was found.
#[derive(Debug, Default)]
struct Found {
    read: BTreeMap<Name, Result<Bytes, Errno>>,
    /// One record may be the old content of several.
    shared: bool,
    /// What does not open, beyond doubt.
    lost: BTreeSet<Name>,
}

impl Found {
    /// What of `part` could not be read, and the store does not say that it only cannot be reached.
    fn failed<'a>(&self, part: &'a [Due]) -> impl Iterator<Item = (&'a Due, RecordPointer)> {
        part.iter().filter_map(|due| {
            let pointer = needed(due)?;
            matches!(self.read.get(&(pointer.segment, pointer.index)), Some(Err(Errno::Io))).then_some((due, pointer))
        })
    }

    /// A record's bytes: the only hold on them, where it can be.
    fn take(&mut self, name: Name) -> Option<Result<Bytes, Errno>> {
        if self.shared { self.read.get(&name).cloned() } else { self.read.remove(&name) }
    }
}

/// Old content on its way; `None`: none is needed.
struct Reading(Option<oneshot::Receiver<Found>>);

impl Reading {
    async fn found(self) -> Result<Found, CheckpointError> {
        match self.0 {
            Some(found) => found.await.map_err(|_| CheckpointError::Read(Errno::TryLater)),
            None => Ok(Found::default()),
        }
    }
}

impl Keeper {
    /// Merges what was collected and hands it to the packer.
    pub(super) async fn store_records(
        &self,
        collected: &Collected,
        packer: &mut Packer<'_>,
    ) -> Result<(), CheckpointError> {
        let mut whole = false;
        if self.watch(&collected.records).await {
            // What else fails is noted now and then, or it would wait after this one.
            if self.core.world.clock.steady() >= *self.full_look.lock() {
                self.note_all(&collected.records).await?;
            }
            return Err(CheckpointError::Read(Errno::Io));
        }
        let mut watch = self.core.world.clock.steady();
        let streams = self.streams(&collected.records);
        let mut parts = collected.records.chunks(RECORDS_AT_ONCE);
        let mut next = parts.next().map(|part| (part, self.begin_reading(part)));
        let mut done = 0;
        while let Some((part, reading)) = next {
            next = parts.next().map(|part| (part, self.begin_reading(part)));
            let mut lap = Lap::new(&self.core.world);
            let mut found = self.looked_at(part, reading.found().await?).await;
            if !found.lost.is_empty() && !std::mem::replace(&mut whole, true) {
                // Of a store that was taken away nothing is lost yet.
                packer.surely_whole().await?;
            }
            packer.stages().read += lap.next();
            for due in part {
                let base = match needed(due) {
                    Some(pointer) => {
                        let base = self.base(due, &pointer, &mut found);
                        if let Err(CheckpointError::Read(Errno::Io)) = base {
                            self.note_all(&collected.records[done..]).await?;
                        }
                        base?
                    }
                    None => Old::default(),
                };
                let merged = merge(&self.core, &due.dirty, base, due.record_size)?;
                let has_place = || merged.own || !streams || self.core.caches.records.has_room(due.record_size);
                let wanted = self.is_wanted(due) && has_place();
                packer.push(due, Merged { wanted, ..merged }).await?;
            }
            done += part.len();
            self.watch_on(&mut watch, &collected.records).await;
            self.core.brake.goes_on(done, collected.records.len(), self.core.world.clock.steady());
        }
        Ok(())
    }

    /// Whether so much was brought by large writes that it may only go where the cache has room.
    fn streams(&self, records: &[Due]) -> bool {
        let extents = records.iter().flat_map(|due| &due.dirty.extents);
        let large = extents
            .filter(|extent| matches!(extent.source, Source::Held(_) | Source::Unlogged { .. } | Source::Log(_)));
        let bytes: u64 = large.map(|extent| u64::from(extent.end - extent.start)).sum();
        bytes > self.core.caches.records.capacity() / STREAM_SHARE
    }

    /// Whether all of it is new, or was in memory for readers.
    fn is_wanted(&self, due: &Due) -> bool {
        due.base.is_none_or(|base| {
            due.dirty.covers(0, base.data()) || self.core.caches.records.holds(&(base.segment, base.index))
        })
    }

    /// Begins to read the old content of `part`, beside whatever else is done.
    fn begin_reading(&self, part: &[Due]) -> Reading {
        let key = |due: &Due| Key::pointer(due.key.0, due.key.1, due.key.2);
        let wanted: Vec<(Key, RecordPointer)> =
            part.iter().filter_map(|due| needed(due).map(|pointer| (key(due), pointer))).collect();
        if wanted.is_empty() {
            return Reading(None);
        }
        let (sender, found) = oneshot::channel();
        let core = self.core.clone();
        self.core.world.spawn.spawn_bulk(
            "old content",
            Box::pin(async move {
                // It is about to be replaced: what readers have asked for must not give way to it.
                let read = core.read_each(&wanted, false).await;
                let shared = read.len() < wanted.len();
                // A checkpoint that was broken off needs nothing.
                let _ = sender.send(Found { read, shared, lost: BTreeSet::new() });
            }),
        );
        Reading(Some(found))
    }

    /// What a record was before: all of it lost, if that is beyond doubt.
    fn base(&self, due: &Due, pointer: &RecordPointer, found: &mut Found) -> Result<Old, CheckpointError> {
        match found.take((pointer.segment, pointer.index)) {
            Some(Ok(plain)) => split(pointer, plain),
            Some(Err(Errno::Io)) if found.lost.contains(&(pointer.segment, pointer.index)) => {
                Ok(self.given_up(due, pointer))
            }
            Some(Err(errno)) => Err(CheckpointError::Read(errno)),
            None => Err(CheckpointError::Read(Errno::TryLater)),
        }
    }

    async fn look_closer(&self, due: &Due, pointer: &RecordPointer) -> Verdict {
        let key = Key::pointer(due.key.0, due.key.1, due.key.2);
        let before = self.core.world.clock.steady();
        let (object, look) = self.core.look(key, pointer).await;
        let moment = Moment { before, after: self.core.world.clock.steady() };
        if look != Look::Fine {
            // Nothing new may hang on what is there no more, unread.
            self.core.dedupe.doubt();
        }
        self.suspects.confirm(&failure(object, pointer, look), moment, self.core.config.missing.max(SPAN))
    }

    /// Looks closer at what of `part` failed. What was read is not suspected any more.
    async fn looked_at(&self, part: &[Due], mut found: Found) -> Found {
        let suspicious = !self.suspects.is_empty();
        for pointer in part.iter().filter_map(needed).filter(|_| suspicious) {
            let name = (pointer.segment, pointer.index);
            if matches!(found.read.get(&name), Some(Ok(_))) {
                self.suspects.read(self.core.lies(&pointer).0, name);
            }
        }
        let looks = found.failed(part).map(async |(due, pointer)| {
            let lost = self.look_closer(due, &pointer).await == Verdict::Lost;
            lost.then_some((pointer.segment, pointer.index))
        });
        let looks = stream::iter(looks.collect::<Vec<_>>()).buffer_unordered(LOOKS_AT_ONCE);
        found.lost = looks.filter_map(future::ready).collect().await;
        found
    }

    /// Looks at all that is suspected; whether some of it fails and may still be put right.
    async fn watch(&self, records: &[Due]) -> bool {
        let names = self.suspects.names();
        if names.is_empty() {
            return false;
        }
        let suspected =
            |due: &&Due| needed(due).is_some_and(|pointer| names.contains(&(pointer.segment, pointer.index)));
        let suspected: Vec<&Due> = records.iter().filter(suspected).collect();
        let (mut doubtful, absent) = self.note_absent(&suspected).await;
        let looks = suspected.iter().filter_map(|due| {
            let pointer = needed(due).filter(|pointer| !absent.contains(&self.core.lies(pointer).0))?;
            Some(async move { self.look_closer(due, &pointer).await })
        });
        let looks = stream::iter(looks.collect::<Vec<_>>()).buffer_unordered(LOOKS_AT_ONCE);
        doubtful |= looks.collect::<Vec<_>>().await.contains(&Verdict::Doubtful);
        doubtful
    }

    /// The same if it is time.
    async fn watch_on(&self, last: &mut Duration, records: &[Due]) {
        if self.core.world.clock.steady().saturating_sub(*last) >= WATCH {
            self.watch(records).await;
            *last = self.core.world.clock.steady();
        }
    }

    /// Notes which objects are not there, and all records that are needed of them; whether some may still be put right.
    async fn note_absent(&self, records: &[&Due]) -> (bool, BTreeSet<SegmentId>) {
        let lies = |pointer: &RecordPointer| self.core.lies(pointer).0;
        let clock = &self.core.world.clock;
        let needed = || records.iter().filter_map(|due| needed(due));
        // Where nothing is known of a segment, its records are looked at one by one.
        let mut known = BTreeSet::new();
        for segment in needed().map(|pointer| pointer.segment).collect::<BTreeSet<_>>() {
            if self.core.find(segment).await {
                known.insert(segment);
            }
        }
        let needed = || needed().filter(|pointer| known.contains(&pointer.segment));
        let objects: BTreeSet<SegmentId> = needed().map(|pointer| lies(&pointer)).collect();
        let absent: BTreeMap<SegmentId, Moment> = stream::iter(objects)
            .map(async |object| {
                let before = clock.steady();
                let absent = self.core.is_absent(object).await;
                absent.then(|| (object, Moment { before, after: clock.steady() }))
            })
            .buffer_unordered(LOOKS_AT_ONCE)
            .filter_map(future::ready)
            .collect()
            .await;
        if !absent.is_empty() {
            self.core.dedupe.doubt();
        }
        for object in absent.keys().take(NAMED_MAX) {
            self.core
                .note_damage(format!("{}: the object is missing, and a checkpoint needs it", object_name(*object)));
        }
        let mut doubtful = false;
        for pointer in needed() {
            if let Some(moment) = absent.get(&lies(&pointer)) {
                let failure = failure(lies(&pointer), &pointer, Look::Incomplete(None));
                let verdict = self.suspects.confirm(&failure, *moment, self.core.config.missing.max(SPAN));
                doubtful |= verdict == Verdict::Doubtful;
            }
        }
        (doubtful, absent.into_keys().collect())
    }

    /// Notes whatever of `records` does not open: one after the other they would keep checkpoints for as many times ten minutes.
    async fn note_all(&self, records: &[Due]) -> Result<(), CheckpointError> {
        let begun = self.core.world.clock.steady();
        let mut watch = begun;
        let (_, absent) = self.note_absent(&records.iter().collect::<Vec<_>>()).await;
        let present = |due: &&Due| needed(due).is_some_and(|at| !absent.contains(&self.core.lies(&at).0));
        let rest: Vec<Due> = records.iter().filter(present).cloned().collect();
        let mut looks = 0;
        for part in rest.chunks(RECORDS_AT_ONCE) {
            let found = self.begin_reading(part).found().await?;
            let found = self.looked_at(part, found).await;
            looks += found.failed(part).count();
            if looks > LOOKS_MAX {
                break;
            }
            self.watch_on(&mut watch, records).await;
        }
        let now = self.core.world.clock.steady();
        // At most half of the time is spent so.
        *self.full_look.lock() = now + (now - begun).max(WATCH);
        Ok(())
    }

    /// Old content that does not open, beyond doubt: all of it is lost, which is told once the checkpoint has succeeded.
    fn given_up(&self, due: &Due, pointer: &RecordPointer) -> Old {
        let mut lost = LostBytes::all(pointer.data());
        due.dirty.extents.iter().for_each(|extent| lost.heal(&(extent.start..extent.end)));
        let (volume, ino, record) = due.key;
        let (segment, index) = (pointer.segment, pointer.index);
        self.losses.lock().push(format!(
            "{} bytes of record {record} of volume {}, inode {}, are lost: record {index} of segment {segment}, in {}, \
             was damaged or gone when it was overwritten in part; reading them is an I/O error until they are written",
            lost.count(),
            volume.0,
            ino.0,
            self.core.record_object(pointer)
        ));
        Old { data: Bytes::from(vec![0; pointer.data() as usize]), zeros: 0, lost: LostBytes::all(pointer.data()) }
    }
}

fn failure(object: SegmentId, pointer: &RecordPointer, look: Look) -> Failure {
    Failure { object, name: (pointer.segment, pointer.index), look }
}

/// Data and lost bytes of a record that opened.
fn split(pointer: &RecordPointer, plain: Bytes) -> Result<Old, CheckpointError> {
    let lost = LostBytes::of(pointer, &plain);
    let lost = lost.map_err(|error| CheckpointError::Damaged(format!("a list of lost bytes ({error})")))?;
    let mut data = plain;
    data.truncate(pointer.data() as usize);
    Ok(Old { data, zeros: pointer.zeros, lost })
}

/// The old record whose bytes show between the new ones.
fn needed(due: &Due) -> Option<RecordPointer> {
    due.base.filter(|base| !due.dirty.covers(base.zeros, base.data()))
}

fn merge(core: &Core, dirty: &DirtyRecord, old: Old, record_size: u32) -> Result<Merged, CheckpointError> {
    let end = dirty.extents.last().map_or(0, |extent| extent.end).min(record_size) as usize;
    if let [Extent { start: 0, end: all, source }] = &dirty.extents[..]
        && *all as usize == end
        && old.data.len() <= end
        && let Some((plain, own)) = as_it_lies(core, source, end)?
    {
        // One write of all of it, which most data is: the buffer that holds it will do.
        return Ok(Merged { plain, own, lost: 0, zeros: 0, wanted: true });
    }
    let Old { data, zeros, mut lost } = old;
    let nothing = data.is_empty() || mutant::on(mutant::OLD_CONTENT_TAKEN_FOR_ZEROS);
    let zeros = if nothing { dirty.zeros() } else { dirty.zeros().min(zeros) };
    let mut out = match data.is_empty() {
        true => vec![0; end],
        // Without a copy, if nobody else has it.
        false => Vec::from(data),
    };
    // One of which all is lost, and that was nothing before, is there all the same: it is charged.
    out.resize(end.max(out.len()).max(1), 0);
    for extent in dirty.extents.iter().filter_map(|extent| extent.clip(0, record_size)) {
        let place = &mut out[extent.start as usize..extent.end as usize];
        match &extent.source {
            Source::Ram(bytes) | Source::Held(bytes) | Source::Unlogged { bytes, .. } => place.copy_from_slice(bytes),
            Source::Log(at) => {
                place.copy_from_slice(&logged(core, *at, place.len())?);
            }
            Source::Zero => place.fill(0),
        }
        lost.heal(&(extent.start..extent.end));
    }
    let (zeros, lost) = match lost.is_empty() {
        true => (zeros.min(out.len() as u32), 0),
        false => (0, lost.append(&mut out)),
    };
    Ok(Merged { plain: out.into(), own: true, lost, zeros, wanted: true })
}

/// `len` dirty bytes without a copy, and whether their buffer holds nothing else.
fn as_it_lies(core: &Core, source: &Source, len: usize) -> Result<Option<(Bytes, bool)>, CheckpointError> {
    Ok(match source {
        Source::Ram(bytes) => Some((bytes.clone(), true)),
        Source::Held(bytes) => Some((bytes.clone(), false)),
        Source::Unlogged { bytes, own } => Some((bytes.clone(), *own)),
        Source::Log(at) => Some((logged(core, *at, len)?, false)),
        Source::Zero => None,
    })
}

/// `len` bytes read back from the log.
fn logged(core: &Core, at: LogPlace, len: usize) -> Result<Bytes, CheckpointError> {
    let bytes = core.log.read(at)?;
    if bytes.len() == len { Ok(bytes) } else { Err(CheckpointError::Damaged("what was read back from the log".into())) }
}
