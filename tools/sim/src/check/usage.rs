//! What a volume is charged for is what is there, once the background has settled everything.

use tarn_base::ids::VolumeId;
use tarn_vfs::{Caller, FileSystem};

use crate::failure::{Checked, Failure};

/// `engine`: bytes and inodes as the engine's listing of volumes has them.
pub async fn check(engine: (u64, u64), model: &dyn FileSystem, volume: VolumeId) -> Checked {
    let stat = model.statfs(&Caller::root(), volume).await.map(|done| done.value);
    let stat = stat.map_err(|done| Failure::new("usage", "a model that answers", format!("{:?}", done.value.errno)))?;
    if (stat.bytes_used, stat.inodes_used) == engine {
        return Ok(());
    }
    let line = |(bytes, inodes): (u64, u64)| format!("{bytes} bytes, {inodes} inodes in volume {}", volume.0);
    Err(Failure::new("usage", line((stat.bytes_used, stat.inodes_used)), line(engine)))
}
