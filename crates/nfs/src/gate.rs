//! From a handle and a credential to an object and a caller, or a refusal.
//!
//! - No call reaches the file system but through here, so no export rule can be forgotten.
//! - A handle proves that the server gave it out, not that this client may use it: the rules are asked at every
//!   call.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use tarn_vfs::{Caller, FileSystem, HandleKey, Node};

use crate::exports::rules::Verdict;
use crate::exports::{Export, Exports, Grant};
use crate::service::CallContext;
use crate::wire::rpc::AuthSys;

/// What a call is going to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Intent {
    Read,
    Change,
}

/// A call that may go on.
#[derive(Clone, Debug)]
pub struct Admitted {
    pub node: Node,
    grant: Grant,
    /// The id of the file system that clients see the object in.
    pub fsid: u64,
    /// Whether the export may be changed.
    pub writable: bool,
}

impl Admitted {
    /// Who calls, squashed as the export's rule says.
    #[inline]
    pub fn caller(&self, cx: &CallContext<'_>, sys: &AuthSys<'_>) -> Caller {
        self.grant.caller(cx.client(), sys.uid, sys.gid, &sys.gids)
    }
}

/// Why a call may not go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("the handle is not one of ours")]
    BadHandle,
    #[error("the handle's volume is gone")]
    Stale,
    #[error("no export rule lets this client in")]
    Denied,
    #[error("the volume is exported read-only to this client")]
    ReadOnly,
    #[error("a host name in the export rules is still being looked up")]
    TryLater,
}

impl Refusal {
    /// Whether the same call of the same client may pass later. Strangers' calls are not to fill the memory of calls that
    /// were answered; who lets one in lets its copies in.
    pub fn may_change(self) -> bool {
        matches!(self, Refusal::ReadOnly | Refusal::TryLater)
    }
}

/// The way in; one for all programs.
pub struct Gate {
    pub fs: Arc<dyn FileSystem>,
    pub exports: Exports,
    key: HandleKey,
}

impl Gate {
    pub fn new(fs: Arc<dyn FileSystem>, exports: Exports) -> Gate {
        let key = fs.handle_key();
        Gate { fs, exports, key }
    }

    pub fn key(&self) -> HandleKey {
        self.key
    }

    /// Whether a client at this address may have something here. Strangers' calls fill no memory.
    pub fn lets_in(&self, address: IpAddr) -> bool {
        // As the machine's own programs ask.
        let peer = SocketAddr::new(address, 1);
        let table = self.exports.current();
        table.by_path().into_iter().any(|export| self.exports.judge(export, peer) != Verdict::Denied)
    }

    /// Admits a call on the object that `handle` names.
    #[inline]
    pub fn admit(&self, cx: &CallContext<'_>, handle: &[u8], intent: Intent) -> Result<Admitted, Refusal> {
        let node = self.key.verify(handle).map_err(|_| Refusal::BadHandle)?;
        let judge = |export: &Export| (self.exports.judge(export, cx.peer), export.volume.fsid);
        let judged = self.exports.with(|table| table.find(node.volume).map(judge));
        let (verdict, volume) = judged.ok_or(Refusal::Stale)?;
        let grant = match verdict {
            Verdict::Allowed(grant) => grant,
            Verdict::Denied => return Err(Refusal::Denied),
            Verdict::Unresolved => return Err(Refusal::TryLater),
        };
        // A snapshot never changes, whoever asks.
        let writable = grant.writable && node.epoch == 0;
        if intent == Intent::Change && !writable {
            return Err(Refusal::ReadOnly);
        }
        Ok(Admitted { node, grant, fsid: fsid(volume, node.epoch), writable })
    }
}

/// Each snapshot is a file system of its own to clients, or they would take its inodes for the present ones.
fn fsid(volume: u64, epoch: u32) -> u64 {
    volume ^ (u64::from(epoch).wrapping_mul(0x9e37_79b9_7f4a_7c15))
}
