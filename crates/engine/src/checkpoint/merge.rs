//! Dirty records become whole records: the newest bytes over the old content, zeros where there is neither.
//!
//! - Old content is fetched only for records that are not covered entirely.
//! - Records go to the packer in order of volume, map and record, so neighbours in a file are neighbours in a segment.

use bytes::{Bytes, BytesMut};
use tarn_base::ids::VolumeId;
use tarn_data::RecordPointer;

use super::CheckpointError;
use super::collect::{Collected, Due};
use super::pack::Packer;
use crate::core::Core;
use crate::overlay::{DirtyRecord, Source};

/// Records merged at once: bounds the memory that old content takes.
const RECORDS_AT_ONCE: usize = 64;

pub async fn store_records(core: &Core, collected: &Collected, packer: &mut Packer<'_>) -> Result<(), CheckpointError> {
    for part in collected.records.chunks(RECORDS_AT_ONCE) {
        let wanted: Vec<(VolumeId, RecordPointer)> =
            part.iter().filter_map(|due| needed(due).map(|pointer| (due.key.0, pointer))).collect();
        let mut old = core.read_records(&wanted).await.map_err(CheckpointError::Read)?.into_iter();
        for due in part {
            let base = if needed(due).is_some() { old.next() } else { None };
            let plain = merge(core, &due.dirty, base, due.record_size)?;
            packer.push(due, plain).await?;
        }
    }
    Ok(())
}

/// The old record whose bytes show between the new ones.
fn needed(due: &Due) -> Option<RecordPointer> {
    due.base.filter(|base| !due.dirty.covers(base.plain))
}

fn merge(core: &Core, dirty: &DirtyRecord, base: Option<Bytes>, record_size: u32) -> Result<Bytes, CheckpointError> {
    let end = dirty.extents.last().map_or(0, |extent| extent.end).min(record_size) as usize;
    let base = base.unwrap_or_default();
    let mut out = BytesMut::zeroed(end.max(base.len()));
    out[..base.len()].copy_from_slice(&base);
    for extent in dirty.extents.iter().filter_map(|extent| extent.clip(0, record_size)) {
        let place = &mut out[extent.start as usize..extent.end as usize];
        match &extent.source {
            Source::Ram(bytes) => place.copy_from_slice(bytes),
            Source::Log(at) => {
                let bytes = core.log.read(*at)?;
                if bytes.len() != place.len() {
                    return Err(CheckpointError::Damaged("what was read back from the log".into()));
                }
                place.copy_from_slice(&bytes);
            }
            Source::Zero => place.fill(0),
        }
    }
    Ok(out.freeze())
}
