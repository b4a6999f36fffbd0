//! What can be said of a store before anything is made for it. Changes nothing.

use std::sync::Arc;

use tarn_base::crypto::Key;
use tarn_base::world::World;
use tarn_store::{Store, StoreError};

use crate::error::OpenError;
use crate::owner::{OwnerState, Register};

/// Name of the object whose presence tells that a store holds something of ours.
pub const OWNER_RECORD: &str = crate::owner::record::NAME;

/// Whether the store in `store` can be opened or created by somebody who has none of its logs:
/// [`OpenError::Elsewhere`] if it was left open, [`OpenError::WrongKey`] and others as an opening would say.
pub async fn judge_without_log(store: Arc<dyn Store>, master: &Key, world: &World) -> Result<(), OpenError> {
    match Register::new(store, master.clone(), world.clone()).read().await? {
        Some(held) if held.owner.state == OwnerState::Open => Err(OpenError::Elsewhere { owner: held.owner.node }),
        _ => Ok(()),
    }
}

/// How many objects of a store are there, its owner record not counted; for a store that seems to be new.
pub async fn remains(store: &dyn Store) -> Result<usize, StoreError> {
    let mut count = 0;
    for below in ["meta/", "segments/"] {
        count += store.list(below).await?.len();
    }
    Ok(count)
}
