//! Objects under reserved segment numbers that nothing names: what a crash leaves of a checkpoint.
//!
//! - Found by name, never by listing (engine rule 24): only numbers that were reserved and have no key.
//! - Runs before the opening batch forgets which numbers those are, and after the store's former writer is fenced.
//! - No entry of the log names a segment, so none has to be asked.

use std::collections::BTreeSet;
use std::sync::Arc;

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use tarn_base::ids::SegmentId;
use tarn_data::object_name;
use tarn_meta::MetaView;
use tarn_store::Store;

use crate::error::OpenError;
use crate::key::{Key, segment_id};
use crate::value::ShardState;

const DELETES_MAX: usize = 16;

/// Deletes them and says how many names that were.
pub async fn remove_orphans(
    store: &Arc<dyn Store>,
    view: &Arc<dyn MetaView>,
    state: &ShardState,
) -> Result<u64, OpenError> {
    let of = |counter| SegmentId { epoch: state.reserved_epoch, counter };
    let (from, to) = (state.settled_counter, state.reserved_counter);
    if from >= to {
        return Ok(0);
    }
    let page =
        view.scan(&Key::segment(of(from)).encode(), &Key::segment(of(to)).encode(), (to - from) as usize).await?;
    let keys = page.entries.iter().filter_map(|(key, _)| Key::decode(key));
    let named: BTreeSet<SegmentId> = keys.map(|key| segment_id(key.a)).collect();
    let mut orphans = (from..to).map(of).filter(|segment| !named.contains(segment));
    let mut deletes = FuturesUnordered::new();
    let mut count = 0;
    loop {
        while deletes.len() < DELETES_MAX
            && let Some(segment) = orphans.next()
        {
            let name = object_name(segment);
            deletes.push(async move { store.delete(&name).await });
        }
        match deletes.next().await {
            Some(outcome) => {
                outcome.map_err(OpenError::Store)?;
                count += 1;
            }
            None => return Ok(count),
        }
    }
}
