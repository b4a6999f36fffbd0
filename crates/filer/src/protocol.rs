//! What a command asks a running server, and what it hears: one JSON object a line, over the Unix socket.
//!
//! - One request a connection. Any number of progress lines, then one answer or one refusal, then the end.
//! - Nothing secret travels here.

use serde::{Deserialize, Serialize};

/// A request.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(tag = "do", rename_all = "kebab-case")]
pub enum Request {
    Status,
    Clients,
    Locks,
    /// Releases every lock of the client of this name.
    BreakLocks {
        client: String,
    },
    Volumes,
    CreateVolume {
        name: String,
        change: VolumeChange,
        /// The root directory's owner.
        uid: u32,
        gid: u32,
    },
    SetVolume {
        name: String,
        change: VolumeChange,
    },
    DeleteVolume {
        name: String,
    },
    UndeleteVolume {
        name: String,
        new_name: String,
    },
    Checkpoint,
    Fsck {
        /// Also read and verify every record.
        deep: bool,
    },
    Scrub,
}

/// What an administrator sets; what is absent stays as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default)]
pub struct VolumeChange {
    /// Bytes.
    pub record_size: Option<u32>,
    /// "normal" or "high".
    pub write_speed: Option<String>,
    pub write_back_delay_ms: Option<u64>,
    /// "none", "lz4", "zstd" or "zstd-LEVEL".
    pub compression: Option<String>,
    pub dedupe: Option<bool>,
    /// Bytes; 0 takes the limit away.
    pub size_limit: Option<u64>,
    /// Export rules as text; empty goes back to the default.
    pub exports: Option<String>,
}

/// A line of the server's.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Line {
    Progress(Progress),
    Done(serde_json::Value),
    Refused(String),
}

/// How far a long walk has come.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct Progress {
    pub done: u64,
    /// 0 if not known.
    pub total: u64,
    /// What is counted: "segments", "inodes".
    pub unit: String,
}

/// A volume in a listing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct VolumeView {
    pub id: u32,
    pub name: String,
    pub export: String,
    pub record_size: u32,
    pub write_speed: String,
    pub write_back_delay_ms: u64,
    pub compression: String,
    #[serde(default)]
    pub dedupe: bool,
    pub size_limit: Option<u64>,
    /// Bytes of logical data.
    pub used_bytes: u64,
    pub used_inodes: u64,
    /// Bytes that its records take in the store, compressed and each content once, as the last survey saw them.
    #[serde(default)]
    pub stored_bytes: Option<u64>,
    /// Bytes that they would take beyond that without dedupe.
    #[serde(default)]
    pub saved_bytes: u64,
    pub exports: String,
    /// When it was deleted, milliseconds since 1970; it can still be brought back.
    pub deleted_ms: Option<i64>,
}

/// A client in a listing.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct ClientView {
    pub address: String,
    pub exports: Vec<String>,
    pub connections: u64,
    pub operations: u64,
    /// Seconds since its last call.
    pub idle_seconds: u64,
}

/// A lock in a listing.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct LockView {
    pub client: String,
    pub process: u32,
    pub volume: String,
    pub inode: u64,
    pub kind: String,
    pub start: u64,
    /// None: to the end of the file.
    pub end: Option<u64>,
    pub waiting: bool,
}

/// What a consistency walk found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct WalkView {
    /// What was looked at: (what, how many).
    pub counts: Vec<(String, u64)>,
    /// One sentence each; the first hundred.
    pub faults: Vec<String>,
    pub fault_count: u64,
}

/// How a server is: what `tarn status` shows and what the metrics are made of.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default)]
pub struct StatusView {
    pub version: String,
    pub process: u32,
    pub uptime_seconds: u64,
    pub data: String,
    pub store: String,
    /// The slowness that the store was given for a measurement.
    pub store_shape: Option<String>,
    /// What seals objects and log.
    pub encryption: String,
    /// The log was accepted although a power loss may lose it.
    pub unsafe_log: bool,
    /// Threads that serve.
    pub cores: u64,
    pub nfs: String,
    pub admin: Option<String>,
    pub portmap: bool,
    /// Bytes resident.
    pub memory_bytes: u64,
    /// Bytes this process may use.
    pub memory_limit_bytes: u64,
    pub incarnation: u32,
    pub in_grace: bool,
    /// Why no change is taken any more.
    pub read_only: Option<String>,
    /// Another node has taken the store.
    pub deposed: bool,
    pub store_full: bool,
    /// Damage found so far, one sentence each; the first hundred.
    pub damage: Vec<String>,
    pub segments: SegmentStatus,
    pub dedupe: DedupeStatus,
    pub log: LogStatus,
    pub overlay: OverlayStatus,
    pub checkpoint: CheckpointStatus,
    pub caches: Vec<CacheStatus>,
    pub store_requests: Vec<RequestStatus>,
    pub operations: Vec<OperationStatus>,
    pub volumes: Vec<VolumeView>,
    pub clients: u64,
    pub connections: u64,
    pub locks: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default)]
pub struct LogStatus {
    pub path: String,
    pub capacity_bytes: u64,
    pub used_bytes: u64,
    /// UNSTABLE data that is neither in it nor in the store.
    pub unlogged_bytes: u64,
    /// "incarnation.sequence"
    pub durable: String,
    pub appended: String,
    /// Why nothing more becomes durable.
    pub poisoned: Option<String>,
}

/// Changes that the store does not hold yet, and the memory they take.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default)]
pub struct OverlayStatus {
    pub bytes: u64,
    /// The log's frames that are kept for them.
    pub kept_log_bytes: u64,
    pub keys: u64,
    pub generations: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default)]
pub struct CheckpointStatus {
    /// Why the last try failed, if it did.
    pub failing: Option<String>,
    /// The store holds everything up to here.
    pub position: String,
    /// Since the start.
    pub count: u64,
    pub failures: u64,
    /// Sums over those that succeeded.
    pub microseconds: u64,
    pub bytes: u64,
    pub last_microseconds: u64,
    /// What the last one brought to the store.
    pub last_keys: u64,
    pub last_records: u64,
    pub last_segments: u64,
    pub last_bytes: u64,
    /// Microseconds of each stage: (name, of all that succeeded, of the last).
    pub stages: Vec<(String, u64, u64)>,
}

/// Objects of file data, as the last survey saw them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default)]
pub struct SegmentStatus {
    pub live: u64,
    pub live_object_bytes: u64,
    pub live_bytes: u64,
    /// Those that await deletion.
    pub condemned: u64,
    pub condemned_bytes: u64,
    /// What dedupe saves in them.
    pub saved_bytes: u64,
    /// Bytes of objects that collection has emptied, and that scrubs have read, since the start: not only up to the survey.
    pub collected_bytes: u64,
    pub scrubbed_bytes: u64,
}

/// Records that were pointed to rather than stored, since the start.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default)]
pub struct DedupeStatus {
    pub hits: u64,
    /// Bytes that they would have taken.
    pub hit_bytes: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default)]
pub struct CacheStatus {
    pub name: String,
    pub entries: u64,
    pub bytes: u64,
    pub capacity_bytes: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default)]
pub struct RequestStatus {
    /// "get", "put", ...
    pub kind: String,
    pub count: u64,
    /// All of `troubles`.
    pub errors: u64,
    /// (what, how often), of those that occurred.
    pub troubles: Vec<(String, u64)>,
    pub bytes: u64,
    /// Sum over those that were answered, with success or without.
    pub microseconds: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default)]
pub struct OperationStatus {
    pub program: String,
    pub procedure: String,
    pub count: u64,
    pub errors: u64,
    /// Sum over all calls.
    pub microseconds: u64,
    /// Calls that took at most 2^index microseconds, for each index; not summed up.
    pub buckets: Vec<u64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_one_line_and_comes_back() {
        let change = VolumeChange { exports: Some("a\nb".into()), ..VolumeChange::default() };
        for request in [
            Request::Status,
            Request::BreakLocks { client: "c".into() },
            Request::CreateVolume { name: "v".into(), change, uid: 1, gid: 2 },
        ] {
            let text = serde_json::to_string(&request).unwrap();
            assert!(!text.contains('\n'));
            assert_eq!(serde_json::from_str::<Request>(&text).unwrap(), request);
        }
        assert!(serde_json::from_str::<Request>("{\"do\":\"rm\"}").is_err());
    }
}
