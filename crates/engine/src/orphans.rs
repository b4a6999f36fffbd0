//! Objects under reserved segment numbers that nothing names: what a crash leaves of a checkpoint.
//!
//! - Found by name, never by listing (engine rule 24): only numbers that were reserved and have no key.
//! - Runs before the opening batch forgets which numbers those are, and after the store's former writer is fenced.
//! - No entry of the log names a segment, so none has to be asked.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt, TryStreamExt};
use tarn_base::ids::SegmentId;
use tarn_base::mutant;
use tarn_base::world::World;
use tarn_data::object_name;
use tarn_meta::MetaView;
use tarn_store::Store;

use crate::error::OpenError;
use crate::key::{Key, segment_id};
use crate::value::ShardState;

const DELETES_MAX: usize = 16;

/// Deletes them and gives their names.
pub async fn remove_orphans(
    store: &Arc<dyn Store>,
    view: &Arc<dyn MetaView>,
    state: &ShardState,
) -> Result<Vec<SegmentId>, OpenError> {
    let of = |counter| SegmentId { epoch: state.reserved_epoch, counter };
    let (from, to) = (state.settled_counter, state.reserved_counter);
    if from >= to {
        return Ok(Vec::new());
    }
    let page =
        view.scan(&Key::segment(of(from)).encode(), &Key::segment(of(to)).encode(), (to - from) as usize).await?;
    let keys = page.entries.iter().filter_map(|(key, _)| Key::decode(key));
    let named: BTreeSet<SegmentId> = keys.map(|key| segment_id(key.a)).collect();
    // The mutant stops one short.
    let kept = |segment: &SegmentId| {
        named.contains(segment) && !(mutant::on(mutant::RESERVED_DELETED) && named.last() == Some(segment))
    };
    let orphans: Vec<SegmentId> = (from..to).map(of).filter(|segment| !kept(segment)).collect();
    let deletes = futures::stream::iter(orphans.clone()).map(|segment| {
        let name = object_name(segment);
        async move { store.delete(&name).await }
    });
    deletes.buffer_unordered(DELETES_MAX).try_collect::<()>().await.map_err(OpenError::Store)?;
    Ok(orphans)
}

/// Deletes them once more after `hold`: a PUT of a node that is no more may still have been on its way. Their numbers are
/// of an owner epoch that is over, so nobody uses them again.
pub async fn remove_late(store: Arc<dyn Store>, world: World, hold: Duration, orphans: Vec<SegmentId>) {
    world.clock.sleep(hold).await;
    for segment in orphans {
        if let Err(error) = store.delete(&object_name(segment)).await {
            tracing::debug!(%error, %segment, "an object that nothing names could not be deleted");
        }
    }
}
