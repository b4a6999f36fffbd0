//! Which bytes of the segments' objects somebody reads: for those who damage them on purpose.
//!
//! - Stored bytes of records that a pointer names, where they lie now.
//! - What frames them: header, directory and footer, which scrub and reclaim read.
//! - Bytes of records that no pointer names any more are in neither.

use std::ops::Range;

use tarn_base::ids::VolumeId;
use tarn_data::{SegmentState, SegmentValue, object_name};

use crate::engine::Engine;
use crate::key::{Key, Kind, segment_id};
use crate::objects::ObjectError;
use crate::pages::Pages;

/// Bytes of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Extent {
    pub object: String,
    pub bytes: Range<u64>,
}

/// See the head of the file.
#[derive(Clone, Debug, Default)]
pub struct Extents {
    pub records: Vec<Extent>,
    pub frames: Vec<Extent>,
}

impl Engine {
    /// Of all live segments, as the last checkpoint left them.
    pub async fn extents(&self) -> Result<Extents, ObjectError> {
        let core = &self.core;
        let keys = core.family_keys();
        let mut out = Extents::default();
        let mut pages = Pages::kind(core.stack.load().view.clone(), VolumeId(0), Kind::Segment);
        while let Some(entries) = pages.next().await? {
            for (key, value) in entries {
                let (Some(key), Ok(value)) = (Key::decode(&key), SegmentValue::decode(&value)) else { continue };
                if value.state != SegmentState::Live {
                    continue;
                }
                let segment = segment_id(key.a);
                let object = object_name(segment);
                let whole = core.whole_object(&keys, segment, &value).await?;
                let extent = |bytes| Extent { object: object.clone(), bytes };
                let placed = whole.directory.records.iter().map(|record| {
                    let from = u64::from(record.offset);
                    from..from + u64::from(record.stored)
                });
                let placed: Vec<Range<u64>> = placed.collect();
                let first = placed.iter().map(|bytes| bytes.start).min().unwrap_or(0);
                let last = placed.iter().map(|bytes| bytes.end).max().unwrap_or(0);
                out.frames.extend([extent(0..first), extent(last..whole.bytes.len() as u64)]);
                let live = value.live.iter().filter_map(|index| placed.get(index as usize).cloned());
                out.records.extend(live.map(extent));
            }
        }
        Ok(out)
    }
}
