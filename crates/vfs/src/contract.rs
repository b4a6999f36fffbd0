//! The file system, as every front end sees it.
//!
//! - A call is decided, logged and applied inside the method, in one run without waiting, or it returns
//!   [`Answer::Later`] and does the same on the background runtime. Nothing happens half.
//! - Names are checked here: empty, longer than [`crate::NAME_MAX`], with `/` or NUL, "." and ".." where they
//!   cannot be.
//! - Permissions are checked here, as POSIX says, from the [`Caller`]; squashing identities is the front end's.
//! - A reply's [`crate::Done::position`] must be durable before the reply leaves.
//! - With [`Caller::once`] set, a repeat of a call gives the first outcome again, also after a restart; a repeat
//!   of a call in progress joins it.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tarn_base::ids::{Position, VolumeId};
use tarn_base::memory::Memory;
use tarn_base::pages::Pages;

use crate::answer::Answer;
use crate::handle::HandleKey;
use crate::types::*;

/// Hears what the file system tells unasked. Called without locks held; must not block.
pub trait EventSink: Send + Sync {
    fn event(&self, event: Event);
}

pub trait FileSystem: Send + Sync + 'static {
    // --- the whole ---

    fn volumes(&self) -> Volumes;

    /// Whether that gives this list still. Asked at every call.
    fn lists(&self, volumes: &Volumes) -> bool {
        // Two pointers to one list are equal without a look at it.
        self.volumes() == *volumes
    }

    /// Signs file handles; the same after every restart and takeover.
    fn handle_key(&self) -> HandleKey;

    /// Changes whenever UNSTABLE data may have been lost: (shard, incarnation).
    fn write_verifier(&self) -> [u8; 8];

    /// Openings that lost session state change it; grows.
    fn incarnation(&self) -> u32;

    /// Completes once `position` is on the log's medium; an error when the log has failed.
    fn durable(&self, position: Position) -> Answer<()>;

    /// What a front end waits for before it goes on at the steady time `now`: the node was stopped for so long that another
    /// may have its store. An error then says that another has.
    fn awake(&self, _now: Duration) -> Option<Answer<()>> {
        None
    }

    /// Ready when a change of `bytes` may come; waits, not for ever, while earlier ones crowd the log. A front end asks
    /// before it takes a large change from the network, so that one client's stream does not stand before everybody's
    /// small changes. Who does not ask is served all the same.
    fn room(&self, _bytes: usize) -> Answer<()> {
        Answer::ok(())
    }

    /// Where large data is best received: [`FileSystem::write`] need not copy what [`Memory::lend`] has made of it.
    fn memory(&self) -> Memory {
        Memory::default()
    }

    /// What the data of a [`FileSystem::read`] may lie in that need not be copied to be sent.
    fn pages(&self) -> Pages {
        Pages::default()
    }

    fn statfs(&self, caller: &Caller, volume: VolumeId) -> Answer<FsStat>;

    // --- one object ---

    fn getattr(&self, caller: &Caller, node: Node) -> Answer<Attr>;

    fn setattr(&self, caller: &Caller, node: Node, set: SetAttr) -> Answer<Effect>;

    /// Which of `want` the caller has.
    fn access(&self, caller: &Caller, node: Node, want: Access) -> Answer<(Access, Attr)>;

    fn readlink(&self, caller: &Caller, node: Node) -> Answer<(Bytes, Attr)>;

    /// At most [`IO_SIZE_MAX`] bytes from `offset`; holes are zeros.
    fn read(&self, caller: &Caller, node: Node, offset: u64, count: u32) -> Answer<ReadReply>;

    /// `effect.count` bytes are written, `effect.reached` as asked or better.
    fn write(&self, caller: &Caller, node: Node, offset: u64, data: Bytes, stability: Stability) -> Answer<Effect>;

    /// The reply's position covers every write to the object answered so far.
    fn commit(&self, caller: &Caller, node: Node) -> Answer<Effect>;

    // --- names ---

    /// The object that `name` names, and the directory's attributes. "." and ".." are understood; ".." of a
    /// volume's root is the root.
    fn lookup(&self, caller: &Caller, dir: Node, name: &[u8]) -> Answer<(Attr, Attr)>;

    /// As [`FileSystem::lookup`]; a refusal carries the directory's attributes in `changes[0].after`. A page that
    /// has no room for even one entry is empty, and not the end.
    fn list(&self, caller: &Caller, dir: Node, request: ListRequest) -> Answer<ListReply>;

    fn create(&self, caller: &Caller, dir: Node, name: &[u8], mode: CreateMode, set: SetAttr) -> Answer<Effect>;

    fn mkdir(&self, caller: &Caller, dir: Node, name: &[u8], set: SetAttr) -> Answer<Effect>;

    fn make(&self, caller: &Caller, dir: Node, name: &[u8], what: Special, set: SetAttr) -> Answer<Effect>;

    /// Another name for `node`. `effect.attr` is the object's, `changes[0]` the directory's; a refusal has the
    /// object in `changes[1]`.
    fn link(&self, caller: &Caller, node: Node, dir: Node, name: &[u8]) -> Answer<Effect>;

    /// Removes a name that is not a directory's.
    fn remove(&self, caller: &Caller, dir: Node, name: &[u8]) -> Answer<Effect>;

    fn rmdir(&self, caller: &Caller, dir: Node, name: &[u8]) -> Answer<Effect>;

    /// Replaces what POSIX says may be replaced. `changes` are the source and the target directory's.
    fn rename(&self, caller: &Caller, from: Node, name: &[u8], to: Node, new_name: &[u8]) -> Answer<Effect>;

    // --- locks ---

    /// Held locks are durable when the reply's position is.
    fn lock(&self, caller: &Caller, request: LockRequest) -> Answer<LockOutcome>;

    /// Releases `range` of what `owner` holds; nothing there is not an error.
    fn unlock(&self, caller: &Caller, node: Node, owner: LockOwner, range: LockRange) -> Answer<()>;

    /// The lock that would be in the way of this one.
    fn test_lock(&self, caller: &Caller, lock: Lock) -> Answer<Option<Lock>>;

    /// Takes a queued request back. `true` if it was still queued.
    fn cancel_lock(&self, caller: &Caller, lock: Lock) -> Answer<bool>;

    /// Releases everything that the client of this name holds or waits for: it has restarted.
    fn release_client(&self, client: &[u8]) -> Answer<()>;

    /// Held and queued locks.
    fn locks(&self) -> Vec<LockInfo>;

    /// What must be durable before anybody is told what [`FileSystem::locks`] has shown.
    fn locks_position(&self) -> Position;

    /// Name and callback of each client that held locks when the log that knew them was lost; to be told that
    /// we restarted, once.
    fn clients_to_notify(&self) -> Vec<(Bytes, Bytes)>;

    /// Takes one client off that list for good.
    fn client_notified(&self, client: &[u8]) -> Answer<()>;

    /// The front end has answered a call that changes something without asking here: a copy of it that comes later may change
    /// nothing.
    fn answered(&self, _call: &Sent) {}

    /// Whether the call was answered, as far as that is known.
    fn was_answered(&self, _call: &Sent) -> bool {
        false
    }

    /// Whether only reclaims are granted at present.
    fn in_grace(&self) -> bool;

    /// Where events go; set once, before the first call.
    fn set_event_sink(&self, sink: Arc<dyn EventSink>);
}
