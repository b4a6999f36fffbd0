//! The words that front ends and file system share.

use std::sync::Arc;

use bytes::Bytes;
use smallvec::SmallVec;
use tarn_base::ids::{Ino, Position, VolumeId};
use tarn_base::time::Time;

/// Longest name, bytes.
pub const NAME_MAX: usize = 255;
/// Longest target of a symbolic link, bytes.
pub const SYMLINK_MAX: usize = 4095;
/// Largest file, bytes: 2^63 - 1.
pub const FILE_SIZE_MAX: u64 = i64::MAX as u64;
/// Most hard links of one file.
pub const LINK_MAX: u32 = 65_000;
/// Most bytes of one read or write.
pub const IO_SIZE_MAX: u32 = 1 << 20;
/// First cookie of an entry; 1 is ".", 2 is "..".
pub const COOKIE_FIRST: u64 = 3;

/// A file-system object, for ever: its number is never used again, and the generation proves it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Node {
    pub volume: VolumeId,
    /// Snapshot epoch, or 0 for the present.
    pub epoch: u32,
    pub ino: Ino,
    /// Position at which the object was created.
    pub generation: u64,
}

/// POSIX file types.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum FileType {
    #[default]
    Regular = 1,
    Directory = 2,
    Symlink = 3,
    Block = 4,
    Character = 5,
    Socket = 6,
    Fifo = 7,
}

/// Attributes of an object, as they were inside the operation that answers with them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Attr {
    pub node: Node,
    pub kind: FileType,
    /// Permission bits, set-id and sticky: 12 bits.
    pub mode: u16,
    pub links: u32,
    pub uid: u32,
    pub gid: u32,
    /// Bytes.
    pub size: u64,
    /// Bytes charged for it: records that hold data, rounded up to the record.
    pub used: u64,
    /// Major and minor number of a device.
    pub device: (u32, u32),
    pub atime: Time,
    pub mtime: Time,
    pub ctime: Time,
    pub btime: Time,
    /// Position of the last change: grows with every change, never repeats.
    pub change: Position,
}

/// What weak cache consistency tells of the state before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Before {
    pub size: u64,
    pub mtime: Time,
    pub ctime: Time,
    pub change: Position,
}

impl From<&Attr> for Before {
    fn from(attr: &Attr) -> Before {
        Before { size: attr.size, mtime: attr.mtime, ctime: attr.ctime, change: attr.change }
    }
}

/// An object before and after an operation, both taken inside it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Change {
    pub before: Option<Before>,
    pub after: Option<Attr>,
}

/// What a changing operation did. Which fields are set depends on the operation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Effect {
    /// The object made, linked or found.
    pub attr: Option<Attr>,
    /// The object changed or the directory changed; for rename the source and the target directory.
    pub changes: [Change; 2],
    /// Bytes written.
    pub count: u32,
    /// How durable the data is when the reply's position is.
    pub reached: Stability,
}

/// How durable a write is asked to be, and how durable it became. In order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Stability {
    /// May be lost by a crash, and then the write verifier changes.
    #[default]
    Unstable = 0,
    /// The data, and what is needed to find it.
    Data = 1,
    /// Data and all attributes.
    File = 2,
}

/// Who asks.
#[derive(Debug)]
pub struct Caller {
    pub uid: u32,
    pub gid: u32,
    /// Supplementary groups.
    pub groups: SmallVec<[u32; 16]>,
    /// Where the call came from; names the client in locks, listings and remembered outcomes.
    pub client: ClientId,
    /// Set when the call must not run twice.
    pub once: Option<OnceToken>,
    /// Set when a copy of the call may come after it ran.
    pub sent: Option<Sent>,
    /// The owner of a file may read and write it whatever its mode says (the client checked at open).
    pub owner_override: bool,
}

impl Clone for Caller {
    fn clone(&self) -> Caller {
        // Bit by bit, as a derived one would not.
        let groups = SmallVec::from_slice(&self.groups);
        Caller { groups, ..*self }
    }
}

impl Caller {
    /// The superuser of this machine.
    pub fn root() -> Caller {
        Caller::user(0, 0)
    }

    pub fn user(uid: u32, gid: u32) -> Caller {
        Caller { uid, gid, groups: SmallVec::new(), client: ClientId(0), once: None, sent: None, owner_override: false }
    }

    pub fn is_superuser(&self) -> bool {
        self.uid == 0
    }

    pub fn in_group(&self, gid: u32) -> bool {
        self.gid == gid || self.groups.contains(&gid)
    }
}

/// A client, opaque to the file system: an address in 128 bits, or a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientId(pub u128);

/// Names one call of one client, so that a repeat is recognised.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OnceToken {
    pub client: ClientId,
    pub number: u64,
    /// Of the procedure and its arguments: another call under the same number is another call.
    pub digest: u64,
}

/// A call that may come more than once, and may run twice as long as nothing came after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sent {
    pub client: ClientId,
    /// The same for all copies of one call, and for two calls of one client hardly ever.
    pub name: u64,
}

impl Sent {
    /// The second change that comes of the same call.
    pub fn second(self) -> Sent {
        Sent { name: !self.name, ..self }
    }
}

/// Rights asked for and granted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Access(pub u8);

impl Access {
    pub const READ: Access = Access(1);
    /// Look up a name in a directory.
    pub const LOOKUP: Access = Access(2);
    /// Overwrite existing bytes.
    pub const MODIFY: Access = Access(4);
    /// Write new bytes, or add entries.
    pub const EXTEND: Access = Access(8);
    /// Remove an entry of a directory.
    pub const DELETE: Access = Access(16);
    pub const EXECUTE: Access = Access(32);

    pub fn contains(self, other: Access) -> bool {
        self.0 & other.0 == other.0
    }
}

impl std::ops::BitOr for Access {
    type Output = Access;
    fn bitor(self, other: Access) -> Access {
        Access(self.0 | other.0)
    }
}

/// A time to be set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetTime {
    /// The server's clock. Whoever may write the file may ask for it.
    Now,
    /// Only the owner may ask for it.
    To(Time),
}

/// Attributes to be set; `None` leaves one as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SetAttr {
    pub mode: Option<u16>,
    pub uid: Option<u32>,
    pub gid: Option<u32>,
    pub size: Option<u64>,
    pub atime: Option<SetTime>,
    pub mtime: Option<SetTime>,
    /// Change only if the ctime is this.
    pub guard: Option<Time>,
}

/// What `create` does when the name is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CreateMode {
    /// An existing regular file is taken; of the attributes only the size is applied to it.
    Unchecked,
    /// It is an error.
    Guarded,
    /// It is an error unless it was made by a call with the same verifier, which is kept durably.
    Exclusive(u64),
}

/// What `make` makes besides regular files and directories.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Special {
    Symlink(Bytes),
    Block { major: u32, minor: u32 },
    Character { major: u32, minor: u32 },
    Socket,
    Fifo,
}

/// Bytes read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReadReply {
    pub data: SmallVec<[Bytes; 2]>,
    /// Whether the read reached the end of the file.
    pub eof: bool,
    pub attr: Attr,
}

impl ReadReply {
    /// Sum of the pieces, bytes.
    pub fn len(&self) -> usize {
        self.data.iter().map(Bytes::len).sum()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// What a listing asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListRequest {
    /// Entries after this cookie; 0 from the beginning.
    pub after: u64,
    /// Most entries.
    pub entries_max: u32,
    /// Stop before the names with `entry_overhead` each take more than this many bytes.
    pub bytes_max: u32,
    pub entry_overhead: u32,
    /// Whether attributes are wanted with each entry.
    pub attrs: bool,
}

/// One entry of a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirEntry {
    pub name: Bytes,
    pub ino: Ino,
    pub kind: FileType,
    pub cookie: u64,
    /// Set if asked for.
    pub attr: Option<Attr>,
}

/// A page of a directory: "." and ".." first, then the order of creation. Cookies are stable for ever.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListReply {
    pub entries: Vec<DirEntry>,
    pub eof: bool,
    pub dir: Attr,
}

/// How full a volume is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FsStat {
    /// Bytes: the volume's limit, or what the store can hold.
    pub bytes_total: u64,
    pub bytes_free: u64,
    pub bytes_used: u64,
    pub inodes_total: u64,
    pub inodes_free: u64,
    pub inodes_used: u64,
}

/// When an acknowledgement leaves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WriteSpeed {
    /// On the log's medium.
    #[default]
    Normal,
    /// In memory; a crash may lose those of the last 10 s (see `docs/durability.md`).
    High,
}

/// How data is compressed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CompressionSetting {
    None,
    #[default]
    Lz4,
    /// Level 1 to 19.
    Zstd(u8),
}

/// What an administrator sets of a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeSettings {
    /// Bytes, a power of two from 4 KiB to 1 MiB; of files made from now on.
    pub record_size: u32,
    pub write_speed: WriteSpeed,
    /// How long changes may wait before they go to the object store, milliseconds (0 to 12 hours).
    pub write_back_delay_ms: u64,
    pub compression: CompressionSetting,
    /// Whether content that the volume holds already is pointed to rather than stored again.
    pub dedupe: bool,
    /// Bytes of logical data; none is no limit.
    pub size_limit: Option<u64>,
    /// Rules of the front ends, opaque here.
    pub exports: String,
}

impl Default for VolumeSettings {
    fn default() -> VolumeSettings {
        VolumeSettings {
            record_size: 64 << 10,
            write_speed: WriteSpeed::Normal,
            // Short enough that a lost log costs little, long enough to coalesce a busy file.
            write_back_delay_ms: 30_000,
            compression: CompressionSetting::Lz4,
            // It costs memory and a lookup for each record, and most volumes hold little twice.
            dedupe: false,
            size_limit: None,
            exports: String::new(),
        }
    }
}

/// A volume as front ends see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeInfo {
    pub id: VolumeId,
    pub name: String,
    /// Its root directory.
    pub root: Node,
    /// Distinguishes file systems to clients.
    pub fsid: u64,
    pub settings: VolumeSettings,
}

/// All volumes, as of one moment.
pub type Volumes = Arc<Vec<VolumeInfo>>;

/// Shared or exclusive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LockKind {
    Shared,
    Exclusive,
}

/// Who holds a lock: a client, by the name it gave itself, and an owner within it; both opaque.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LockOwner {
    /// The name by which the client is notified of a restart.
    pub client: Bytes,
    pub owner: Bytes,
    /// The owner's number at the client (a process), for listings and conflicts.
    pub process: u32,
}

/// Bytes `start` to `end`, `end` excluded; to the end of any file with `u64::MAX`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LockRange {
    pub start: u64,
    pub end: u64,
}

/// A lock, held or asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lock {
    pub node: Node,
    pub owner: LockOwner,
    pub kind: LockKind,
    pub range: LockRange,
}

/// How a lock is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockRequest {
    pub lock: Lock,
    /// Queue it if it is not free; the grant comes out as an event.
    pub wait: bool,
    /// Held before a restart: granted also during grace.
    pub reclaim: bool,
    /// Where the client can be told; opaque, kept with the lock and in the list of clients to notify.
    pub callback: Bytes,
}

/// What came of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LockOutcome {
    Granted,
    /// Not free; this lock is in the way.
    Denied(Lock),
    /// Queued.
    Waiting,
}

/// A lock in a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockInfo {
    pub lock: Lock,
    /// Queued, not held.
    pub waiting: bool,
    pub callback: Bytes,
}

/// What the file system tells front ends unasked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A queued lock is held now, durably. A front end that cannot deliver it releases the lock.
    LockGranted(LockInfo),
}
