//! How SlateDB is set: every value that is not its default, with the reason; which tables are merged is in [`super::merging`].

use std::time::Duration;

use slatedb::Settings;
use slatedb::config::{
    CompactionWorkerOptions, CompactorOptions, CompressionCodec, GarbageCollectorDirectoryOptions,
    GarbageCollectorOptions, GarbageCollectorScheduleOptions,
};

/// How often an idle database looks at its manifest. Each look is a request that is paid for; a deposed writer finds
/// out at its next commit anyway.
const MANIFEST_POLL: Duration = Duration::from_secs(10);
/// How often compactions are considered. A checkpoint comes every few seconds at most.
const COMPACTION_POLL: Duration = Duration::from_secs(5);
/// Whoever does a compaction and says nothing for so long has given it up.
pub const WORKER_SILENT: Duration = Duration::from_secs(30);
/// Tries of one request on the object store, 0.1 to 1 s apart, before the operation fails.
pub const RETRIES: u32 = 20;
/// SlateDB flushes a memtable of so many bytes by itself.
pub const FLUSHED_AT: usize = 1 << 30;
/// How old garbage must be. Far longer than any read or upload that may still name it.
const GARBAGE_AGE: Duration = Duration::from_secs(15 * 60);

/// Merges at once: tables that come while large ones are merged, which takes minutes, are merged meanwhile.
const COMPACTIONS: usize = 2;

pub fn compactor() -> CompactorOptions {
    let worker = CompactionWorkerOptions {
        compactions_poll_interval: COMPACTION_POLL,
        max_concurrent_compactions: COMPACTIONS,
        max_subcompactions: 1,
        // An SST is built in memory, and sealed in memory once more: so much, three times in each merge. An object of
        // that size is still cheap for what it holds.
        max_sst_size: 8 << 20,
        // Read ahead in each input; there may be some fifty of them.
        bytes_to_fetch: 512 << 10,
        max_fetch_tasks: 1,
        compression_codec: Some(CompressionCodec::Lz4),
        ..CompactionWorkerOptions::default()
    };
    CompactorOptions {
        poll_interval: COMPACTION_POLL,
        max_concurrent_compactions: COMPACTIONS,
        worker_heartbeat_timeout: WORKER_SILENT,
        worker: Some(worker),
        object_store_max_retries: Some(RETRIES),
        ..CompactorOptions::default()
    }
}

/// All but the compactor's.
pub fn settings() -> Settings {
    Settings {
        // The log is ours; what is in SlateDB is a checkpoint.
        wal_enabled: false,
        flush_interval: None,
        manifest_poll_interval: MANIFEST_POLL,
        manifest_update_timeout: Duration::from_secs(60),
        // A memtable is flushed by a commit, never by its size: one commit is one SST.
        l0_sst_size_bytes: FLUSHED_AT,
        max_unflushed_bytes: 2 << 30,
        // A commit must not wait for a compaction.
        l0_max_ssts: 128,
        l0_max_ssts_per_key: 128,
        l0_flush_parallelism: 1,
        compression_codec: Some(CompressionCodec::Lz4),
        object_store_max_retries: Some(RETRIES),
        compactor_options: None,
        garbage_collector_options: Some(garbage_collector()),
        ..Settings::default()
    }
}

fn garbage_collector() -> GarbageCollectorOptions {
    let every = |interval| {
        let interval = Some(interval);
        Some(GarbageCollectorDirectoryOptions { interval, min_age: GARBAGE_AGE, dry_run: false })
    };
    GarbageCollectorOptions {
        manifest_options: every(Duration::from_secs(5 * 60)),
        compacted_options: every(Duration::from_secs(5 * 60)),
        compactions_options: every(Duration::from_secs(5 * 60)),
        // There is no log of SlateDB's.
        wal_options: None,
        wal_fence_options: None,
        detach_options: Some(GarbageCollectorScheduleOptions { interval: Some(Duration::from_secs(60 * 60)) }),
        object_store_max_retries: Some(RETRIES),
        ..GarbageCollectorOptions::default()
    }
}
