//! Rewriting segments with little live data: live records are copied as they are stored into a new segment.
//!
//! - No pointer changes: the old segments' keys become forwardings in the batch that condemns their objects, and
//!   forwardings to what is moved again are rewritten (engine rule 22).
//! - A segment is moved whole, by one change: never does a condemned object hold a live record.
//! - Every record is verified before it is copied; a damaged segment stays where it is, and is told.
//! - The new object is written under a number that is durably reserved; an object whose PUT was not confirmed gives
//!   its number up.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use tarn_base::ids::{SegmentId, Uuid};
use tarn_base::turns::Turns;
use tarn_data::{DirectoryRecord, Origin, SegmentBuilder, SegmentValue, object_name};

use super::survey::Survey;
use super::{Memory, Pace, Reclaim, ReclaimError, Reclaimed};
use crate::admission::{BEYOND, ROOM};
use crate::key::Key;
use crate::objects::{FamilyKeys, ObjectError};
use crate::segments::{Moved, NewObject, SegmentChange};

/// A new segment of one family, in the making.
struct Target {
    family: Uuid,
    builder: SegmentBuilder,
    sources: Vec<SegmentId>,
    /// Bytes of their objects.
    source_bytes: u64,
    records: Vec<Moved>,
}

type Targets = BTreeMap<Uuid, Target>;

impl Reclaim {
    /// Rewrites what the survey found.
    pub(super) async fn compact(
        &self,
        memory: &mut Memory,
        survey: &Survey,
        pace: &mut Pace,
        done: &mut Reclaimed,
    ) -> Result<(), ReclaimError> {
        let mut targets = Targets::new();
        let mut outcome = self.copy_all(memory, survey, &mut targets, pace, done).await;
        for target in targets.into_values() {
            if outcome.is_ok() {
                outcome = self.write(memory, target, pace, done).await;
            } else {
                self.keeper.surrender(target.builder.segment()).await;
            }
        }
        outcome
    }

    async fn copy_all(
        &self,
        memory: &mut Memory,
        survey: &Survey,
        targets: &mut Targets,
        pace: &mut Pace,
        done: &mut Reclaimed,
    ) -> Result<(), ReclaimError> {
        let keys = self.core.family_keys();
        for (segment, value) in &survey.sparse {
            self.go_on()?;
            // Copies lie beside what they are of for as long as that is held.
            let room = ROOM + BEYOND + (targets.len() as u64 + 1) * u64::from(self.core.config.segment_bytes);
            if self.core.space().is_some_and(|space| space.free < room) {
                break;
            }
            pace.take(value.object_size, self.core.log_is_filling()).await;
            match self.copy(&keys, targets, *segment, value).await? {
                Ok(()) => {}
                Err(error) if error.is_damage() => {
                    self.core.damaged(&Key::segment(*segment), &format!("{}: {error}", object_name(*segment)));
                    memory.immovable.insert(*segment);
                    self.core.dedupe.doubt();
                }
                Err(error) => tracing::warn!(%segment, %error, "a segment could not be rewritten"),
            }
            if let Some(target) = targets.remove(&value.family) {
                if target.builder.full() {
                    self.write(memory, target, pace, done).await?;
                } else {
                    targets.insert(value.family, target);
                }
            }
        }
        Ok(())
    }

    /// Copies a segment's live records into its family's target; all of them or, on an error, none.
    async fn copy(
        &self,
        keys: &FamilyKeys,
        targets: &mut Targets,
        segment: SegmentId,
        value: &SegmentValue,
    ) -> Result<Result<(), ObjectError>, ReclaimError> {
        let found = match self.live_records(keys, segment, value).await {
            Ok(found) => found,
            Err(error) => return Ok(Err(error)),
        };
        let Some(family) = keys.get(&value.family) else { return Ok(Err(ObjectError::Keyless(value.family))) };
        let target = match targets.entry(value.family) {
            Entry::Occupied(held) => held.into_mut(),
            Entry::Vacant(place) => {
                let builder = self.keeper.begin_segment(family.clone()).await?;
                place.insert(Target {
                    family: value.family,
                    builder,
                    sources: Vec::new(),
                    source_bytes: 0,
                    records: Vec::new(),
                })
            }
        };
        let begun = target.records.len();
        for (from, record, stored) in found {
            match target.builder.push_moved(from, &record, &stored) {
                Ok(placed) => target.records.push(Moved {
                    from: from.segment,
                    index: from.index,
                    salt: from.salt,
                    source: segment,
                    stored: record.stored,
                    new_index: placed.index,
                    new_offset: placed.offset,
                }),
                Err(error) => {
                    // What is there of it already stays behind as dead bytes.
                    target.records.truncate(begun);
                    return Ok(Err(ObjectError::Damage(error.into())));
                }
            }
        }
        target.sources.push(segment);
        target.source_bytes += value.object_size;
        Ok(Ok(()))
    }

    /// A segment's live records, verified: name, place and bytes of each.
    async fn live_records(
        &self,
        keys: &FamilyKeys,
        segment: SegmentId,
        value: &SegmentValue,
    ) -> Result<Vec<(Origin, DirectoryRecord, Bytes)>, ObjectError> {
        let object = self.core.whole_object(keys, segment, value).await?;
        let own = self.core.salt(segment.epoch).await?;
        let mut found = Vec::with_capacity(value.live.count() as usize);
        let mut turns = Turns::default();
        for index in value.live.iter() {
            let (record, stored) = object.record(index)?;
            let from = record.origin.unwrap_or(Origin { segment, index, salt: own });
            object.verify(index, &from.salt)?;
            turns.worked(stored.len());
            found.push((from, record.clone(), stored));
        }
        Ok(found)
    }

    /// Writes a target and hands the moves to the next checkpoint.
    async fn write(
        &self,
        memory: &mut Memory,
        target: Target,
        pace: &mut Pace,
        done: &mut Reclaimed,
    ) -> Result<(), ReclaimError> {
        let Target { family, builder, sources, source_bytes, records } = target;
        let segment = builder.segment();
        if records.is_empty() {
            self.keeper.surrender(segment).await;
            return Ok(());
        }
        let object = builder.finish();
        pace.take(object.bytes.len() as u64, self.core.log_is_filling()).await;
        self.core.config.crash_point("before moved records are written").await;
        if let Err(error) = self.core.segments.store.create(&object.name(), object.bytes.clone()).await {
            tracing::warn!(%segment, %error, "moved records could not be written");
            self.keeper.surrender(segment).await;
            return Ok(());
        }
        self.core.config.crash_point("moved records are written").await;
        done.moved += records.len() as u64;
        done.moved_bytes += object.stored_bytes;
        self.collected.fetch_add(source_bytes, Ordering::Relaxed);
        let object = NewObject::new(family, &object);
        self.core.segments.queue(SegmentChange::Move { object, records });
        memory.moved.extend(sources);
        Ok(())
    }
}
