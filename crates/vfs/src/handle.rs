//! File handles: 32 bytes that name an object for ever and cannot be forged (engine rule 20).
//!
//! Layout, little-endian: volume 4, epoch 4, inode 8, generation 8, check 8. The check is SipHash-2-4 of the
//! rest under a key of the shard. A handle survives restart, recovery elsewhere and attach.

use std::hash::Hasher;

use siphasher::sip::SipHasher24;
use tarn_base::codec::Take;
use tarn_base::ids::{Ino, VolumeId};

use crate::error::Errno;
use crate::types::Node;

/// Bytes of a handle.
pub const HANDLE_SIZE: usize = 32;

/// The key that signs handles.
#[derive(Clone, Copy)]
pub struct HandleKey(pub [u8; 16]);

impl std::fmt::Debug for HandleKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("HandleKey(..)")
    }
}

/// A handle as it travels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Handle(pub [u8; HANDLE_SIZE]);

impl HandleKey {
    pub fn sign(&self, node: Node) -> Handle {
        let mut out = [0u8; HANDLE_SIZE];
        out[..4].copy_from_slice(&node.volume.0.to_le_bytes());
        out[4..8].copy_from_slice(&node.epoch.to_le_bytes());
        out[8..16].copy_from_slice(&node.ino.0.to_le_bytes());
        out[16..24].copy_from_slice(&node.generation.to_le_bytes());
        let check = self.check(&out[..24]);
        out[24..].copy_from_slice(&check.to_le_bytes());
        Handle(out)
    }

    /// The node a handle names, or [`Errno::BadHandle`] if it is not one of ours.
    pub fn verify(&self, handle: &[u8]) -> Result<Node, Errno> {
        if handle.len() != HANDLE_SIZE {
            return Err(Errno::BadHandle);
        }
        let mut take = Take::new(handle);
        let mut fields = || -> tarn_base::codec::Decoded<(Node, u64)> {
            let node = Node {
                volume: VolumeId(take.u32()?),
                epoch: take.u32()?,
                ino: Ino(take.u64()?),
                generation: take.u64()?,
            };
            Ok((node, take.u64()?))
        };
        let (node, check) = fields().map_err(|_| Errno::BadHandle)?;
        if check == self.check(&handle[..24]) { Ok(node) } else { Err(Errno::BadHandle) }
    }

    fn check(&self, bytes: &[u8]) -> u64 {
        let mut hasher = SipHasher24::new_with_key(&self.0);
        hasher.write(bytes);
        hasher.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_names_its_node_and_a_changed_one_names_nothing() {
        let key = HandleKey([3; 16]);
        let node = Node { volume: VolumeId(1), epoch: 0, ino: Ino(77), generation: 99 };
        let handle = key.sign(node);
        assert_eq!(key.verify(&handle.0), Ok(node));
        for at in 0..HANDLE_SIZE {
            let mut bad = handle;
            bad.0[at] ^= 0x40;
            assert_eq!(key.verify(&bad.0), Err(Errno::BadHandle));
        }
        assert_eq!(HandleKey([4; 16]).verify(&handle.0), Err(Errno::BadHandle));
    }
}
