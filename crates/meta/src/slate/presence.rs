//! Whether the objects that a manifest needs are in the store.
//!
//! - What the newest manifest names is there, or has been taken away by somebody else. What an open database knows may be some
//!   seconds older, and an SST that only that names may be gone as garbage: who finds one missing inspects the store itself
//!   before he believes it. An open database does not know the number of its own last manifest either: the bridge does.
//! - SlateDB itself would go on over what is left, and publish manifests that name what is not there.

use std::collections::BTreeSet;

use slatedb::VersionedManifest;
use tarn_store::sequence::Sequence;
use tarn_store::{Store, StoreError};

use crate::contract::{MetaError, MetaResult};

/// How many missing objects a message names.
const NAMED: usize = 3;

/// The manifests of the database under `path`.
pub fn manifests(path: &str) -> Sequence {
    Sequence::new(format!("{path}/manifest/"), ".manifest")
}

/// Whether the newest manifest that was seen is there; one request.
pub async fn glance(store: &dyn Store, manifests: &Sequence) -> MetaResult<()> {
    let name = manifests.name(manifests.seen());
    match store.head(&name).await {
        Ok(_) => Ok(()),
        Err(StoreError::NotFound(_)) => Err(MetaError::Gone(format!("the object {name}"))),
        Err(error) => Err(MetaError::Unavailable(error.to_string())),
    }
}

/// Whether the newest manifest that is there is not before the newest that was `seen`: that one stays until a newer one is
/// there.
pub fn not_before(manifests: &Sequence, newest: u64, seen: u64) -> MetaResult<()> {
    if newest >= seen {
        return Ok(());
    }
    let last = manifests.name(seen);
    let missing = match seen - newest {
        1 => format!("the object {last}"),
        _ => format!("the objects {} to {last}", manifests.name(newest + 1)),
    };
    Err(MetaError::Gone(format!("{missing}: it is in an earlier state")))
}

/// Whether every SST that the manifest names is there, and a manifest that is not before the newest that was `seen`; one
/// listing.
pub async fn verify(
    store: &dyn Store,
    path: &str,
    manifest: &VersionedManifest,
    (manifests, seen): (&Sequence, u64),
) -> MetaResult<()> {
    let listed = store.list(&format!("{path}/")).await;
    let listed = listed.map_err(|error| MetaError::Unavailable(error.to_string()))?;
    let present: BTreeSet<&str> = listed.iter().map(|object| object.name.as_str()).collect();
    not_before(manifests, manifests.newest(present.iter().copied()), seen)?;
    let needed: BTreeSet<String> =
        manifest.all_sst_views().map(|view| format!("{path}/compacted/{}.sst", view.sst.id.value())).collect();
    let missing: Vec<&String> = needed.iter().filter(|name| !present.contains(name.as_str())).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let named: Vec<&str> = missing.iter().take(NAMED).map(|name| name.as_str()).collect();
    let more = if missing.len() > NAMED { " and others" } else { "" };
    let (missing, needed) = (missing.len(), needed.len());
    Err(MetaError::Gone(format!("{missing} of the {needed} objects that it needs: {}{more}", named.join(", "))))
}

/// Whether the newest list of compactions, if there is one, can be read; once their collector has said up to where it has
/// deleted them, there is one. SlateDB would pass one over that is damaged, and find its name taken.
pub async fn compactions(store: &dyn Store, path: &str) -> MetaResult<()> {
    let unavailable = |error: StoreError| MetaError::Unavailable(error.to_string());
    let listed = store.list(&format!("{path}/compactions/")).await.map_err(unavailable)?;
    let lists = Sequence::new(format!("{path}/compactions/"), ".compactions");
    let newest = lists.newest(listed.iter().map(|object| object.name.as_str()));
    if newest == 0 {
        return match store.head(&format!("{path}/gc/compactions.boundary")).await {
            Ok(_) => Err(MetaError::Gone(format!("every list of compactions, below {path}/compactions/"))),
            Err(StoreError::NotFound(_)) => Ok(()),
            Err(error) => Err(unavailable(error)),
        };
    }
    match store.get(&lists.name(newest)).await {
        Err(error @ StoreError::Damaged(..)) => Err(MetaError::Damaged(error.to_string())),
        // Another one has come, and this one was too old.
        Err(StoreError::NotFound(_)) => Ok(()),
        read => read.map(|_| ()).map_err(unavailable),
    }
}
