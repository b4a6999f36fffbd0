//! What can happen to the table of locks, and how that is written.
//!
//! Format, little-endian: version (1 byte, [`FORMAT_VERSION`]), kind (1 byte), then the fields in the order in
//! which they stand below; byte strings are a length in 32 bits and the bytes.
//!
//! - A node: volume 4, epoch 4, inode 8, generation 8.
//! - An owner: client, owner (byte strings), process 4.
//! - A range: start 8, end 8 (excluded; start < end). A kind of lock: 1 shared, 2 exclusive.

use bytes::Bytes;
use tarn_base::codec::{DecodeError, Decoded, Put, Take};
use tarn_base::ids::{Ino, VolumeId};

use crate::types::{Lock, LockKind, LockOwner, LockRange, Node};

/// Of transitions and of the image.
pub(super) const FORMAT_VERSION: u8 = 1;
/// Longest name, owner or callback, bytes.
pub(super) const OPAQUE_MAX: usize = 4096;

/// A change of the table. Each is complete: applying it asks nothing but the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Transition {
    /// The owner holds this from now on, whatever it held there; the same request, if queued, is not any more.
    Held { lock: Lock, callback: Bytes },
    /// The owner holds nothing within the range.
    Released { node: Node, owner: LockOwner, range: LockRange },
    /// The request waits behind all others of the object.
    Queued { lock: Lock, callback: Bytes },
    /// The request does not wait any more.
    Unqueued { lock: Lock },
    /// The client has no locks and waits for none.
    ClientReleased { client: Bytes },
    /// The object is gone.
    NodeGone { node: Node },
    /// The client is to be told of a restart.
    ToNotify { client: Bytes, callback: Bytes },
    /// The client has been told, or need not be.
    Notified { client: Bytes },
}

impl Transition {
    pub(super) fn is_about_notices(&self) -> bool {
        matches!(self, Transition::ToNotify { .. } | Transition::Notified { .. })
    }

    pub fn encode(&self, out: &mut Vec<u8>) {
        out.put_u8(FORMAT_VERSION);
        match self {
            Transition::Held { lock, callback } => {
                out.put_u8(1);
                put_lock(out, lock);
                out.put_bytes(callback);
            }
            Transition::Released { node, owner, range } => {
                out.put_u8(2);
                put_node(out, *node);
                put_owner(out, owner);
                put_range(out, *range);
            }
            Transition::Queued { lock, callback } => {
                out.put_u8(3);
                put_lock(out, lock);
                out.put_bytes(callback);
            }
            Transition::Unqueued { lock } => {
                out.put_u8(4);
                put_lock(out, lock);
            }
            Transition::ClientReleased { client } => {
                out.put_u8(5);
                out.put_bytes(client);
            }
            Transition::NodeGone { node } => {
                out.put_u8(6);
                put_node(out, *node);
            }
            Transition::ToNotify { client, callback } => {
                out.put_u8(7);
                out.put_bytes(client);
                out.put_bytes(callback);
            }
            Transition::Notified { client } => {
                out.put_u8(8);
                out.put_bytes(client);
            }
        }
    }

    /// Takes one transition from the front; what follows is left.
    pub fn decode(take: &mut Take<'_>) -> Decoded<Transition> {
        check_version(take)?;
        Ok(match take.u8()? {
            1 => Transition::Held { lock: take_lock(take)?, callback: take.owned(OPAQUE_MAX)? },
            2 => Transition::Released { node: take_node(take)?, owner: take_owner(take)?, range: take_range(take)? },
            3 => Transition::Queued { lock: take_lock(take)?, callback: take.owned(OPAQUE_MAX)? },
            4 => Transition::Unqueued { lock: take_lock(take)? },
            5 => Transition::ClientReleased { client: take.owned(OPAQUE_MAX)? },
            6 => Transition::NodeGone { node: take_node(take)? },
            7 => Transition::ToNotify { client: take.owned(OPAQUE_MAX)?, callback: take.owned(OPAQUE_MAX)? },
            8 => Transition::Notified { client: take.owned(OPAQUE_MAX)? },
            _ => return Err(DecodeError::Range("a kind of lock transition")),
        })
    }
}

pub(super) fn check_version(take: &mut Take<'_>) -> Decoded<()> {
    match take.u8()? {
        FORMAT_VERSION => Ok(()),
        newer => Err(DecodeError::Version(u32::from(newer))),
    }
}

pub(super) fn put_node(out: &mut Vec<u8>, node: Node) {
    out.put_u32(node.volume.0);
    out.put_u32(node.epoch);
    out.put_u64(node.ino.0);
    out.put_u64(node.generation);
}

pub(super) fn take_node(take: &mut Take<'_>) -> Decoded<Node> {
    Ok(Node { volume: VolumeId(take.u32()?), epoch: take.u32()?, ino: Ino(take.u64()?), generation: take.u64()? })
}

pub(super) fn put_owner(out: &mut Vec<u8>, owner: &LockOwner) {
    out.put_bytes(&owner.client);
    out.put_bytes(&owner.owner);
    out.put_u32(owner.process);
}

pub(super) fn take_owner(take: &mut Take<'_>) -> Decoded<LockOwner> {
    Ok(LockOwner { client: take.owned(OPAQUE_MAX)?, owner: take.owned(OPAQUE_MAX)?, process: take.u32()? })
}

pub(super) fn put_range(out: &mut Vec<u8>, range: LockRange) {
    out.put_u64(range.start);
    out.put_u64(range.end);
}

pub(super) fn take_range(take: &mut Take<'_>) -> Decoded<LockRange> {
    let range = LockRange { start: take.u64()?, end: take.u64()? };
    if range.start < range.end { Ok(range) } else { Err(DecodeError::Range("a lock's range")) }
}

pub(super) fn put_kind(out: &mut Vec<u8>, kind: LockKind) {
    out.put_u8(match kind {
        LockKind::Shared => 1,
        LockKind::Exclusive => 2,
    });
}

pub(super) fn take_kind(take: &mut Take<'_>) -> Decoded<LockKind> {
    match take.u8()? {
        1 => Ok(LockKind::Shared),
        2 => Ok(LockKind::Exclusive),
        _ => Err(DecodeError::Range("a kind of lock")),
    }
}

fn put_lock(out: &mut Vec<u8>, lock: &Lock) {
    put_node(out, lock.node);
    put_owner(out, &lock.owner);
    put_kind(out, lock.kind);
    put_range(out, lock.range);
}

fn take_lock(take: &mut Take<'_>) -> Decoded<Lock> {
    Ok(Lock { node: take_node(take)?, owner: take_owner(take)?, kind: take_kind(take)?, range: take_range(take)? })
}
