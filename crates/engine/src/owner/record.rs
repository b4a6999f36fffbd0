//! The owner record: who may write this shard, and what is needed to open it. The bits are in
//! `docs/format/owner.md`.
//!
//! - The shard's secrets are sealed under a key derived from the master key; everything else stands in the clear and
//!   is bound by a tag under the same key, so that nobody without it can change the record unnoticed.
//! - Every writing of the record has its own salt, so no key seals twice.
//! - Nothing here does IO.

use tarn_base::codec::{DecodeError, Decoded, Put, Take};
use tarn_base::crc32c;
use tarn_base::crypto::{Key, nonce};
use tarn_base::ids::{Position, Uuid};
use zeroize::Zeroizing;

/// Name of the record's object below the shard's prefix.
pub const NAME: &str = "owner";
const MAGIC: [u8; 8] = *b"TARNOWN\0";
/// Version of the whole store's format: a program that does not know it touches nothing.
pub const FORMAT: u32 = 4;
const SECRETS_SIZE: usize = 32 + 16;

/// Whether the shard is in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum OwnerState {
    /// Its creation has begun and is not known to have ended.
    New = 0,
    /// In use by `node`, or left behind by it.
    Open = 1,
    /// Everything is in the store: anybody may open it.
    Closed = 2,
}

/// Somebody takes the shard over without its log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim {
    /// Log of the claimant.
    pub node: Uuid,
    /// Drawn at random: tells one claim from another.
    pub nonce: u64,
}

/// What the record says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    /// Of the store, drawn at its creation.
    pub store: Uuid,
    pub state: OwnerState,
    /// Counts openings for writing.
    pub epoch: u32,
    /// Counts openings that do not follow a clean close; half of every position.
    pub incarnation: u32,
    /// Id of the log that holds what the store does not.
    pub node: Uuid,
    /// Counts openings that gave a log up.
    pub lineage: u32,
    /// Where the present lineage begins: what the lineage before answered after this may be lost.
    pub lineage_from: Position,
    /// While closed: the last position ever given out.
    pub closed: Position,
    /// P of the store when this was written: a store that has not come so far was put back to an earlier state.
    pub stored: Position,
    /// How often the log had been opened for writing when the last opening began to serve.
    pub opening: u32,
    pub claim: Option<Claim>,
}

/// The shard's secrets.
#[derive(Clone)]
pub struct Secrets {
    /// Seals metadata objects and family keys.
    pub shard: Key,
    /// Signs file handles.
    pub handle: [u8; 16],
}

impl std::fmt::Debug for Secrets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secrets(..)")
    }
}

/// Why a record could not be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    #[error("it is of format version {0}")]
    Newer(u32),
    #[error("it is of format version {0}, which is not read any more")]
    Older(u32),
    #[error("the master key does not open it")]
    WrongKey,
    #[error("it is damaged: {0}")]
    Damaged(DecodeError),
}

impl From<DecodeError> for RecordError {
    fn from(error: DecodeError) -> RecordError {
        RecordError::Damaged(error)
    }
}

impl Owner {
    /// The record's bytes; `salt` is 16 random bytes, new for every writing.
    pub fn encode(&self, master: &Key, secrets: &Secrets, salt: [u8; 16]) -> Vec<u8> {
        let mut out = Vec::with_capacity(256);
        out.put(&MAGIC);
        out.put_u32(FORMAT);
        out.put(&self.store.0);
        out.put_u8(self.state as u8);
        out.put_u32(self.epoch);
        out.put_u32(self.incarnation);
        out.put(&self.node.0);
        out.put_u32(self.lineage);
        out.put_u64(self.lineage_from.0);
        out.put_u64(self.closed.0);
        out.put_u64(self.stored.0);
        out.put_u32(self.opening);
        out.put_bool(self.claim.is_some());
        let claim = self.claim.unwrap_or(Claim { node: Uuid::default(), nonce: 0 });
        out.put(&claim.node.0);
        out.put_u64(claim.nonce);
        out.put(&salt);
        let mut plain = Zeroizing::new(Vec::with_capacity(SECRETS_SIZE));
        plain.put(secrets.shard.expose());
        plain.put(&secrets.handle);
        let mut sealed = Vec::new();
        cipher(master, &self.store, &salt).seal_to(nonce(0, 0), &out, &plain, &mut sealed);
        out.put_bytes(&sealed);
        let crc = crc32c(&out);
        out.put_u32(crc);
        out
    }

    /// What `bytes` say, and the secrets in them.
    pub fn decode(bytes: &[u8], master: &Key) -> Result<(Owner, Secrets), RecordError> {
        let mut take = Take::new(bytes);
        if take.array::<8>()? != MAGIC {
            return Err(DecodeError::Range("the magic of an owner record").into());
        }
        // Before the version, so that damage is not taken for a newer format: every later one ends in it too.
        let (body, crc) = bytes.split_last_chunk::<4>().ok_or(DecodeError::Short)?;
        if crc32c(body) != u32::from_le_bytes(*crc) {
            return Err(DecodeError::Range("the checksum of an owner record").into());
        }
        let format = take.u32()?;
        if format > FORMAT {
            return Err(RecordError::Newer(format));
        }
        if format < FORMAT {
            return Err(RecordError::Older(format));
        }
        let owner = take_owner(&mut take)?;
        let salt = take.array::<16>()?;
        let bound = bytes.len() - take.rest().len();
        let sealed = take.bytes()?;
        take.u32()?;
        take.end()?;
        let cipher = cipher(master, &owner.store, &salt);
        let plain = cipher.open(nonce(0, 0), &bytes[..bound], sealed).map_err(|_| RecordError::WrongKey)?;
        let plain = Zeroizing::new(plain);
        let mut take = Take::new(&plain);
        let secrets = Secrets { shard: Key::new(take.array()?), handle: take.array()? };
        take.end()?;
        Ok((owner, secrets))
    }
}

fn take_owner(take: &mut Take<'_>) -> Decoded<Owner> {
    let store = Uuid(take.array()?);
    let state = match take.u8()? {
        0 => OwnerState::New,
        1 => OwnerState::Open,
        2 => OwnerState::Closed,
        _ => return Err(DecodeError::Range("the state of an owner record")),
    };
    let (epoch, incarnation) = (take.u32()?, take.u32()?);
    let node = Uuid(take.array()?);
    let lineage = take.u32()?;
    let (lineage_from, closed) = (Position(take.u64()?), Position(take.u64()?));
    let stored = Position(take.u64()?);
    let opening = take.u32()?;
    let claimed = take.bool()?;
    let claim = Claim { node: Uuid(take.array()?), nonce: take.u64()? };
    let claim = claimed.then_some(claim);
    Ok(Owner { store, state, epoch, incarnation, node, lineage, lineage_from, closed, stored, opening, claim })
}

fn cipher(master: &Key, store: &Uuid, salt: &[u8; 16]) -> tarn_base::crypto::Cipher {
    master.derive(salt, &[b"tarn owner 1", &store.0]).cipher()
}

/// A new log's id: the first half of its store's, then random bytes, so that a log says which store it is of.
pub fn log_id(store: &Uuid, random: [u8; 8]) -> Uuid {
    let mut id = store.0;
    id[8..].copy_from_slice(&random);
    Uuid(id)
}

/// Whether a log of this id belongs to the store.
pub fn is_log_of(store: &Uuid, id: &Uuid) -> bool {
    store.0[..8] == id.0[..8]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner() -> Owner {
        Owner {
            store: Uuid([7; 16]),
            state: OwnerState::Open,
            epoch: 3,
            incarnation: 2,
            node: log_id(&Uuid([7; 16]), [1; 8]),
            lineage: 1,
            lineage_from: Position::new(1, 9),
            closed: Position::new(2, 5),
            stored: Position::new(2, 4),
            opening: 6,
            claim: Some(Claim { node: Uuid([9; 16]), nonce: 4 }),
        }
    }

    #[test]
    fn a_record_opens_under_its_key_only_and_no_byte_of_it_can_be_changed() {
        let master = Key::new([1; 32]);
        let secrets = Secrets { shard: Key::new([2; 32]), handle: [3; 16] };
        let bytes = owner().encode(&master, &secrets, [4; 16]);
        let (decoded, opened) = Owner::decode(&bytes, &master).unwrap();
        assert_eq!((decoded, opened.shard.expose(), opened.handle), (owner(), &[2; 32], [3; 16]));
        assert_eq!(Owner::decode(&bytes, &Key::new([9; 32])).unwrap_err(), RecordError::WrongKey);
        for at in 0..bytes.len() {
            let mut bad = bytes.clone();
            bad[at] ^= 1;
            assert!(Owner::decode(&bad, &master).is_err());
            let body = bad.len() - 4;
            let crc = crc32c(&bad[..body]).to_le_bytes();
            bad[body..].copy_from_slice(&crc);
            assert!(at >= body || Owner::decode(&bad, &master).is_err(), "byte {at}");
            assert!(Owner::decode(&bytes[..at], &master).is_err());
        }
        assert!(is_log_of(&owner().store, &owner().node) && !is_log_of(&owner().store, &Uuid([9; 16])));
    }

    #[test]
    fn a_damaged_version_is_damage_and_not_a_newer_format() {
        let secrets = Secrets { shard: Key::new([2; 32]), handle: [3; 16] };
        let mut bytes = owner().encode(&Key::new([1; 32]), &secrets, [5; 16]);
        bytes[10] ^= 1;
        assert!(matches!(Owner::decode(&bytes, &Key::new([1; 32])), Err(RecordError::Damaged(_))));
    }

    #[test]
    fn a_record_of_another_format_is_told_as_such_whatever_follows() {
        let of = |format| {
            let mut bytes = MAGIC.to_vec();
            bytes.put_u32(format);
            bytes.put(b"whatever");
            let crc = crc32c(&bytes);
            bytes.put_u32(crc);
            Owner::decode(&bytes, &Key::new([1; 32])).unwrap_err()
        };
        assert_eq!(of(FORMAT + 1), RecordError::Newer(FORMAT + 1));
        assert_eq!(of(FORMAT - 1), RecordError::Older(FORMAT - 1));
    }
}
