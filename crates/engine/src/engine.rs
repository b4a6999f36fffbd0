//! The engine as programs hold it.

use std::sync::Arc;

use tarn_wal::Log;

use crate::core::Core;

/// One shard, open for writing. Implements [`tarn_vfs::FileSystem`].
#[derive(Clone, Debug)]
pub struct Engine {
    pub(crate) core: Arc<Core>,
}

impl Engine {
    /// The write log, for whoever drives its flushes.
    pub fn log(&self) -> &Arc<Log> {
        &self.core.log
    }
}
