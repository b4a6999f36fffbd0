//! A handle of what a crash has taken away names nothing, for ever.

use tarn_vfs::{Caller, Errno, FileSystem, Node};

use crate::failure::{Checked, Failure};

pub async fn check(engine: &dyn FileSystem, lost: &[Node]) -> Checked {
    for node in lost {
        match engine.getattr(&Caller::root(), *node).await {
            Err(done) if done.value.errno == Errno::Stale => {}
            other => {
                let found = other.map(|done| done.value).map_err(|done| done.value.errno);
                return Err(Failure::new("lost", format!("{node:?} is stale: it never was"), format!("{found:?}")));
            }
        }
    }
    Ok(())
}
