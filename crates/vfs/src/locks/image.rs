//! The whole table as bytes, for the head of the log (what is alive when the log is trimmed).
//!
//! Format, little-endian: version (1 byte); count 4 of objects, each a node, then count 4 of held pieces and
//! count 4 of waiting requests in order, each an owner, a kind, a range and a callback; count 4 of clients to
//! be told of a restart, each name and callback. Pieces as in [`super::transition`].

use tarn_base::codec::{DecodeError, Decoded, Put, Take};

use super::ranges::{ObjectLocks, Piece};
use super::table::LockTable;
use super::transition::{
    FORMAT_VERSION, OPAQUE_MAX, check_version, put_kind, put_node, put_owner, put_range, take_kind, take_node,
    take_owner, take_range,
};

/// Bytes that a piece takes at least.
const PIECE_SIZE_MIN: usize = 4 + 4 + 4 + 1 + 16 + 4;
/// Bytes that an object takes at least.
const OBJECT_SIZE_MIN: usize = 24 + 4 + 4;

impl LockTable {
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.put_u8(FORMAT_VERSION);
        out.put_u32(self.objects.len() as u32);
        for (node, object) in &self.objects {
            put_node(out, *node);
            put_pieces(out, &object.held);
            put_pieces(out, &object.waiting);
        }
        out.put_u32(self.notify.len() as u32);
        for (client, callback) in &self.notify {
            out.put_bytes(client);
            out.put_bytes(callback);
        }
    }

    /// The table that was encoded, from the front of `take`; what follows is left.
    pub fn decode(take: &mut Take<'_>) -> Decoded<LockTable> {
        check_version(take)?;
        let mut table = LockTable::new();
        for _ in 0..take.count(OBJECT_SIZE_MIN)? {
            let node = take_node(take)?;
            let object = ObjectLocks { held: take_pieces(take)?, waiting: take_pieces(take)? };
            if object.is_empty() || table.objects.contains_key(&node) {
                return Err(DecodeError::Range("an object with locks"));
            }
            table.insert(node, object);
        }
        for _ in 0..take.count(8)? {
            let client = take.owned(OPAQUE_MAX)?;
            table.notify.insert(client, take.owned(OPAQUE_MAX)?);
        }
        Ok(table)
    }
}

fn put_pieces(out: &mut Vec<u8>, pieces: &[Piece]) {
    out.put_u32(pieces.len() as u32);
    for piece in pieces {
        put_owner(out, &piece.owner);
        put_kind(out, piece.kind);
        put_range(out, piece.range);
        out.put_bytes(&piece.callback);
    }
}

fn take_pieces(take: &mut Take<'_>) -> Decoded<Vec<Piece>> {
    let count = take.count(PIECE_SIZE_MIN)?;
    let mut pieces = Vec::with_capacity(count);
    for _ in 0..count {
        let (owner, kind, range) = (take_owner(take)?, take_kind(take)?, take_range(take)?);
        pieces.push(Piece { owner, kind, range, callback: take.owned(OPAQUE_MAX)? });
    }
    Ok(pieces)
}
