//! Walking a range of the store's keys, page by page.

use std::sync::Arc;

use bytes::Bytes;
use tarn_base::ids::VolumeId;
use tarn_meta::{MetaResult, MetaView};

use crate::key::{Key, Kind};

/// Entries of one page.
const PAGE: usize = 1000;

/// What is left of a range.
#[derive(Debug)]
pub struct Pages {
    view: Arc<dyn MetaView>,
    from: Vec<u8>,
    to: Vec<u8>,
    complete: bool,
}

impl Pages {
    pub fn new(view: Arc<dyn MetaView>, from: &[u8], to: &[u8]) -> Pages {
        Pages { view, from: from.to_vec(), to: to.to_vec(), complete: false }
    }

    /// Everything there is.
    pub fn all(view: Arc<dyn MetaView>) -> Pages {
        Pages::new(view, &[0], &[0xff; 64])
    }

    /// All keys of a kind in partition 0 of a volume; volume 0 for those of the shard.
    pub fn kind(view: Arc<dyn MetaView>, volume: VolumeId, kind: Kind) -> Pages {
        let first = Key { volume, partition: 0, kind, a: 0, b: 0 };
        let last = Key { a: u64::MAX, b: u64::MAX, ..first };
        Pages::new(view, &first.encode(), &last.encode())
    }

    /// All keys of a volume.
    pub fn volume(view: Arc<dyn MetaView>, volume: VolumeId) -> Pages {
        Pages::new(view, &volume.0.to_be_bytes(), &volume.0.saturating_add(1).to_be_bytes())
    }

    /// The next entries in order of key; `None` at the end.
    pub async fn next(&mut self) -> MetaResult<Option<Vec<(Bytes, Bytes)>>> {
        if self.complete {
            return Ok(None);
        }
        let page = self.view.scan(&self.from, &self.to, PAGE).await?;
        self.complete = page.complete;
        if let Some((last, _)) = page.entries.last() {
            // The least key behind the last.
            self.from = last.to_vec();
            self.from.push(0);
        }
        Ok(Some(page.entries))
    }
}
