//! Whether the objects that a manifest needs are in the store.
//!
//! - What the newest manifest names is there, or has been taken away by somebody else. The newest one that an open database
//!   knows may be some seconds older, and an SST that only that one names may be gone as garbage: who finds one missing
//!   inspects the store itself before he believes it.
//! - SlateDB itself would go on over what is left, and publish manifests that name what is not there.

use std::collections::BTreeSet;

use slatedb::VersionedManifest;
use tarn_store::{Store, StoreError};

use crate::contract::{MetaError, MetaResult};

/// How many missing objects a message names.
const NAMED: usize = 3;

/// The manifest's own object.
fn manifest_name(path: &str, id: u64) -> String {
    format!("{path}/manifest/{id:020}.manifest")
}

/// Whether the manifest's own object is there; one request.
pub async fn glance(store: &dyn Store, path: &str, manifest: &VersionedManifest) -> MetaResult<()> {
    let name = manifest_name(path, manifest.id());
    match store.head(&name).await {
        Ok(_) => Ok(()),
        Err(StoreError::NotFound(_)) => Err(MetaError::Gone(format!("the object {name}"))),
        Err(error) => Err(MetaError::Unavailable(error.to_string())),
    }
}

/// Whether the newest manifest is not older than one that was whole, which stays until a newer one is there.
pub fn not_before(newest: &VersionedManifest, whole: u64) -> MetaResult<()> {
    let id = newest.id();
    if id >= whole {
        return Ok(());
    }
    Err(MetaError::Gone(format!("what manifests {} to {whole} say, for it was put back to an earlier state", id + 1)))
}

/// Whether the manifest's own object and every SST it names are there; one listing.
pub async fn verify(store: &dyn Store, path: &str, manifest: &VersionedManifest) -> MetaResult<()> {
    let listed = store.list(&format!("{path}/")).await;
    let listed = listed.map_err(|error| MetaError::Unavailable(error.to_string()))?;
    let present: BTreeSet<&str> = listed.iter().map(|object| object.name.as_str()).collect();
    let ssts = manifest.all_sst_views().map(|view| format!("{path}/compacted/{}.sst", view.sst.id.value()));
    let needed: BTreeSet<String> = ssts.chain([manifest_name(path, manifest.id())]).collect();
    let missing: Vec<&String> = needed.iter().filter(|name| !present.contains(name.as_str())).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let named: Vec<&str> = missing.iter().take(NAMED).map(|name| name.as_str()).collect();
    let more = if missing.len() > NAMED { " and others" } else { "" };
    let (missing, needed) = (missing.len(), needed.len());
    Err(MetaError::Gone(format!("{missing} of the {needed} objects that it needs: {}{more}", named.join(", "))))
}

/// Whether the newest list of compactions, if there is one, can be read. SlateDB would pass one over that is damaged, and find
/// its name taken.
pub async fn compactions(store: &dyn Store, path: &str) -> MetaResult<()> {
    let unavailable = |error: StoreError| MetaError::Unavailable(error.to_string());
    let listed = store.list(&format!("{path}/compactions/")).await.map_err(unavailable)?;
    let Some(newest) = listed.iter().map(|object| &object.name).max() else { return Ok(()) };
    match store.get(newest).await {
        Err(error @ StoreError::Damaged(..)) => Err(MetaError::Damaged(error.to_string())),
        // Another one has come, and this one was too old.
        Err(StoreError::NotFound(_)) => Ok(()),
        read => read.map(|_| ()).map_err(unavailable),
    }
}
