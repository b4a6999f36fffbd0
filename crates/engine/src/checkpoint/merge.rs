//! Dirty records become whole records: the newest bytes over the old content, zeros where there is neither.
//!
//! - Old content is fetched only for records that are not covered entirely.
//! - Records go to the packer in order of volume, map and record, so neighbours in a file are neighbours in a segment.
//! - Old content that is damaged or gone, and stays so ([`super::suspects`]), does not keep the new bytes from the store:
//!   the record says which of its bytes are lost, until they are written again.

use bytes::Bytes;
use tarn_data::{LostBytes, RecordPointer, object_name};
use tarn_vfs::Errno;

use super::collect::{Collected, Due};
use super::pack::Packer;
use super::stages::Lap;
use super::suspects::SPAN;
use super::{CheckpointError, Keeper};
use crate::core::Core;
use crate::key::Key;
use crate::overlay::{DirtyRecord, Extent, Source};

/// Records merged at once: bounds the memory that old content takes.
const RECORDS_AT_ONCE: usize = 64;

/// What a record was before.
#[derive(Clone, Debug, Default)]
struct Old {
    data: Bytes,
    lost: LostBytes,
}

/// A record as it is stored.
#[derive(Clone, Debug)]
pub struct Merged {
    /// Its data, and the list of what is lost of that.
    pub plain: Bytes,
    /// Bytes of that list; 0: nothing is lost.
    pub lost: u32,
}

impl Keeper {
    /// Merges what was collected and hands it to the packer.
    pub(super) async fn store_records(
        &self,
        collected: &Collected,
        packer: &mut Packer<'_>,
    ) -> Result<(), CheckpointError> {
        let mut ours = false;
        for part in collected.records.chunks(RECORDS_AT_ONCE) {
            let key = |due: &Due| Key::pointer(due.key.0, due.key.1, due.key.2);
            let wanted: Vec<(Key, RecordPointer)> =
                part.iter().filter_map(|due| needed(due).map(|pointer| (key(due), pointer))).collect();
            let mut lap = Lap::new(&self.core.world);
            let old = self.core.read_each(&wanted).await;
            packer.stages().read += lap.next();
            for due in part {
                let base = match needed(due) {
                    Some(pointer) => match old.get(&(pointer.segment, pointer.index)) {
                        Some(Ok(plain)) => split(&pointer, plain)?,
                        Some(Err(Errno::Io)) if !self.beyond_doubt(key(due), &pointer).await => {
                            return Err(CheckpointError::Read(Errno::Io));
                        }
                        Some(Err(Errno::Io)) => {
                            // Of a store that was taken away nothing is lost yet.
                            if !std::mem::replace(&mut ours, true) {
                                self.surely_ours().await?;
                            }
                            self.given_up(due, &pointer)
                        }
                        Some(Err(errno)) => return Err(CheckpointError::Read(*errno)),
                        None => return Err(CheckpointError::Read(Errno::TryLater)),
                    },
                    None => Old::default(),
                };
                let merged = merge(&self.core, &due.dirty, base, due.record_size)?;
                packer.push(due, merged).await?;
            }
        }
        Ok(())
    }

    async fn beyond_doubt(&self, key: Key, pointer: &RecordPointer) -> bool {
        let span = match self.core.is_missing(key, pointer).await {
            true => self.core.config.missing.max(SPAN),
            false => SPAN,
        };
        self.suspects.confirm((pointer.segment, pointer.index), self.core.world.clock.steady(), span)
    }

    /// Old content that does not open, beyond doubt: all of it is lost.
    fn given_up(&self, due: &Due, pointer: &RecordPointer) -> Old {
        let mut lost = LostBytes::all(pointer.data());
        due.dirty.extents.iter().for_each(|extent| lost.heal(&(extent.start..extent.end)));
        let (volume, ino, record) = due.key;
        let (segment, index) = (pointer.segment, pointer.index);
        self.core.note_damage(format!(
            "{} bytes of record {record} of volume {}, inode {}, are lost: record {index} of segment {segment}, in {}, \
             was damaged or gone when it was overwritten in part; reading them is an I/O error until they are written",
            lost.count(),
            volume.0,
            ino.0,
            object_name(segment)
        ));
        Old { data: Bytes::from(vec![0; pointer.data() as usize]), lost: LostBytes::all(pointer.data()) }
    }
}

/// Data and lost bytes of a record that opened.
fn split(pointer: &RecordPointer, plain: &Bytes) -> Result<Old, CheckpointError> {
    let lost = LostBytes::of(pointer, plain);
    let lost = lost.map_err(|error| CheckpointError::Damaged(format!("a list of lost bytes ({error})")))?;
    Ok(Old { data: plain.slice(..pointer.data() as usize), lost })
}

/// The old record whose bytes show between the new ones.
fn needed(due: &Due) -> Option<RecordPointer> {
    due.base.filter(|base| !due.dirty.covers(base.data()))
}

fn merge(core: &Core, dirty: &DirtyRecord, old: Old, record_size: u32) -> Result<Merged, CheckpointError> {
    let end = dirty.extents.last().map_or(0, |extent| extent.end).min(record_size) as usize;
    if let [Extent { start: 0, source: Source::Ram(bytes) | Source::Held(bytes), .. }] = &dirty.extents[..]
        && bytes.len() == end
        && old.data.len() <= end
    {
        // One write of all of it, which most data is: the buffer that holds it will do, if it is its own. The caches would
        // keep a frame of the log for a part of it.
        let own = matches!(dirty.extents[0].source, Source::Ram(_));
        let plain = if own { bytes.clone() } else { Bytes::copy_from_slice(bytes) };
        return Ok(Merged { plain, lost: 0 });
    }
    let Old { data, mut lost } = old;
    let mut out = vec![0; end.max(data.len())];
    out[..data.len()].copy_from_slice(&data);
    for extent in dirty.extents.iter().filter_map(|extent| extent.clip(0, record_size)) {
        let place = &mut out[extent.start as usize..extent.end as usize];
        match &extent.source {
            Source::Ram(bytes) | Source::Held(bytes) => place.copy_from_slice(bytes),
            Source::Log(at) => {
                let bytes = core.log.read(*at)?;
                if bytes.len() != place.len() {
                    return Err(CheckpointError::Damaged("what was read back from the log".into()));
                }
                place.copy_from_slice(&bytes);
            }
            Source::Zero => place.fill(0),
        }
        lost.heal(&(extent.start..extent.end));
    }
    let lost = if lost.is_empty() { 0 } else { lost.append(&mut out) };
    Ok(Merged { plain: out.into(), lost })
}
