//! An entry of the log: what one operation changed. The bits are in `docs/format/entry.md`.
//!
//! - An entry is the whole of an operation: keys, data, counters, session state. There is no second entry.
//! - Positions that the entry itself decides (an inode's change and generation, those in the outcome) are
//!   written as [`Inode::PENDING`] and stamped when the log has given the position.
//! - Replaying entries in order of position over the store's state at P gives the state after the last one.

use std::ops::Range;

use bytes::Bytes;
use smallvec::SmallVec;
use tarn_base::codec::{DecodeError, Decoded, Put, Take};
use tarn_base::ids::{Ino, Position, VolumeId};
use tarn_vfs::{Effect, OnceToken};

use crate::key::{KEY_SIZE, Key, Kind};
use crate::overlay::DataKey;
use crate::value::Inode;
use crate::value::outcome::{put_effect, put_token, take_effect, take_token};

const VERSION: u8 = 2;
/// Without data that is not in the log.
const VERSION_FIRST: u8 = 1;

/// Bytes written into one record, or zeros.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DataChange {
    pub key: DataKey,
    /// The map's generation.
    pub generation: u32,
    /// Whether this write charges the record.
    pub new: bool,
    /// Where in the record.
    pub start: u32,
    pub payload: Payload,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Payload {
    Bytes(Bytes),
    /// The same in memory that is counted as [`Log::held`](tarn_wal::Log::held): log and overlay keep it where it lies.
    Kept(Bytes),
    /// This many zeros.
    Zero(u32),
    /// Bytes that pass the log by (engine rule 5).
    Unlogged(Bytes),
    /// This many bytes that passed it by, as the entry is read again: they are in the store, in a later entry, or lost.
    Lost(u32),
}

impl Payload {
    pub fn len(&self) -> u32 {
        match self {
            Payload::Bytes(bytes) | Payload::Kept(bytes) | Payload::Unlogged(bytes) => bytes.len() as u32,
            Payload::Zero(len) | Payload::Lost(len) => *len,
        }
    }

    /// The bytes of it that follow an entry's head.
    pub fn logged(&self) -> Option<&Bytes> {
        match self {
            Payload::Bytes(bytes) | Payload::Kept(bytes) => Some(bytes),
            Payload::Zero(_) | Payload::Unlogged(_) | Payload::Lost(_) => None,
        }
    }
}

/// A change of session state: what is in the log and not in the bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SessionChange {
    /// A call that must not run twice did run, with this outcome.
    Outcome(OnceToken, Box<Effect>),
    /// A transition of the lock table, encoded by `vfs`.
    Lock(Bytes),
    /// A piece of the image of all session state. The last piece makes it the state.
    Image { piece: u32, last: bool, bytes: Bytes },
}

/// What one operation changes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    /// Differences of usage: volume, bytes, inodes.
    pub usage: Vec<(VolumeId, i64, i64)>,
    /// In order of key; `None` removes.
    pub keys: Vec<(Key, Option<Bytes>)>,
    /// Dirty records that a cut hides: volume, map, records.
    pub discards: Vec<(VolumeId, Ino, Range<u64>)>,
    pub session: Vec<SessionChange>,
    /// The open generation ends with this entry.
    pub closes: bool,
    pub data: Vec<DataChange>,
    /// What data was cut from: it can be handed on in one piece, if it is all of it, in order. Not part of what is encoded.
    pub whole: Bytes,
    /// Of the changed keys those that nothing showed before. Not part of what is encoded.
    pub new: SmallVec<[Key; 3]>,
}

/// An encoded entry before it has its position: all but the data, which follows it.
#[derive(Debug)]
pub struct Encoded {
    pub head: Vec<u8>,
    /// Where positions are to be stamped.
    stamps: SmallVec<[usize; 8]>,
    /// Where the values of the changed keys stand in `head`, in the order of [`Entry::keys`].
    pub values: SmallVec<[Range<usize>; 8]>,
}

impl Encoded {
    /// Puts the position where the entry left it open.
    pub fn stamp(&mut self, position: Position) {
        for &at in &self.stamps {
            self.head[at..at + 8].copy_from_slice(&position.0.to_le_bytes());
        }
    }
}

impl Entry {
    /// The halves of what looks like a rename, for the mutant that logs it as two.
    pub(crate) fn torn(&self) -> Option<(Entry, Entry)> {
        let middle = self.keys.len() / 2;
        let first = Entry { keys: self.keys[..middle].to_vec(), ..Entry::default() };
        let rest = Entry { keys: self.keys[middle..].to_vec(), ..self.clone() };
        (self.keys.len() >= 6 && self.data.is_empty()).then_some((first, rest))
    }

    /// Whether it changes anything that belongs into the store, and not session state only.
    pub fn changes_store(&self) -> bool {
        !(self.keys.is_empty() && self.data.is_empty() && self.usage.is_empty() && self.discards.is_empty())
    }

    /// Bytes of data that follow the head.
    pub fn data_len(&self) -> usize {
        self.logged().map(|bytes| bytes.len()).sum()
    }

    /// The data that follows the head, in order.
    pub fn logged(&self) -> impl Iterator<Item = &Bytes> {
        self.data.iter().filter_map(|change| change.payload.logged())
    }

    /// As [`Entry::logged`], in as few pieces as are known.
    pub fn pieces(&self) -> Vec<Bytes> {
        let mut rest = &self.whole[..];
        let next = |part: &Bytes| match rest.split_at_checked(part.len()) {
            Some((same, after)) if std::ptr::eq(same, &part[..]) => {
                rest = after;
                true
            }
            _ => false,
        };
        if !self.whole.is_empty() && self.logged().all(next) && rest.is_empty() {
            return vec![self.whole.clone()];
        }
        self.logged().cloned().collect()
    }

    /// Whether some of it is in memory that may be kept.
    pub fn is_kept(&self) -> bool {
        self.data.iter().any(|change| matches!(change.payload, Payload::Kept(_)))
    }

    /// Bytes of data, in the log or not.
    pub fn bytes(&self) -> usize {
        self.data_len() + self.unlogged_len()
    }

    /// Bytes of data that pass the log by.
    pub fn unlogged_len(&self) -> usize {
        let unlogged = self.data.iter().filter(|change| matches!(change.payload, Payload::Unlogged(_)));
        unlogged.map(|change| change.payload.len() as usize).sum()
    }

    pub fn encode(&self) -> Encoded {
        let mut out = Vec::with_capacity(512);
        let mut values = SmallVec::new();
        out.put(&[VERSION, u8::from(self.closes)]);
        out.put_u32(self.usage.len() as u32);
        for (volume, bytes, inodes) in &self.usage {
            out.put_u32(volume.0);
            out.put_i64(*bytes);
            out.put_i64(*inodes);
        }
        out.put_u32(self.keys.len() as u32);
        let mut stamps = SmallVec::new();
        for (key, value) in &self.keys {
            out.put(&key.encode());
            out.put_bool(value.is_some());
            let value = value.as_deref().unwrap_or_default();
            out.put_u32(value.len() as u32);
            values.push(out.len()..out.len() + value.len());
            inode_stamps(key, value, out.len(), &mut stamps);
            out.put(value);
        }
        out.put_u32(self.discards.len() as u32);
        for (volume, map, records) in &self.discards {
            out.put_u32(volume.0);
            out.put_u64(map.0);
            out.put_u64(records.start);
            out.put_u64(records.end);
        }
        out.put_u32(self.session.len() as u32);
        for change in &self.session {
            put_session(&mut out, change, &mut stamps);
        }
        out.put_u32(self.data.len() as u32);
        for change in &self.data {
            put_data(&mut out, change);
        }
        Encoded { head: out, stamps, values }
    }

    /// Decodes an entry; data payloads are slices of `bytes`. Gives also where the data begins.
    pub fn decode(bytes: &Bytes) -> Decoded<(Entry, usize)> {
        let mut take = Take::new(bytes);
        let version = take.u8()?;
        if !(VERSION_FIRST..=VERSION).contains(&version) {
            return Err(DecodeError::Version(u32::from(version)));
        }
        let mut entry = Entry { closes: take.bool()?, ..Entry::default() };
        for _ in 0..take.count(20)? {
            entry.usage.push((VolumeId(take.u32()?), take.i64()?, take.i64()?));
        }
        for _ in 0..take.count(KEY_SIZE + 5)? {
            let key = Key::decode(take.take(KEY_SIZE)?).ok_or(DecodeError::Range("a key"))?;
            let set = take.bool()?;
            let value = bytes.slice_ref(take.bytes()?);
            // A copy, so that the overlay does not hold the frame.
            entry.keys.push((key, set.then(|| Bytes::copy_from_slice(&value))));
        }
        for _ in 0..take.count(28)? {
            let (volume, map, records) = (VolumeId(take.u32()?), Ino(take.u64()?), take.u64()?..take.u64()?);
            if records.start > records.end {
                return Err(DecodeError::Range("records to be discarded"));
            }
            entry.discards.push((volume, map, records));
        }
        for _ in 0..take.count(1)? {
            entry.session.push(take_session(&mut take)?);
        }
        let mut lens = Vec::new();
        for _ in 0..take.count(34)? {
            let (change, len) = take_data(&mut take)?;
            entry.data.push(change);
            lens.push(len);
        }
        let data_at = bytes.len() - take.rest().len();
        for (change, len) in entry.data.iter_mut().zip(lens) {
            if let Payload::Bytes(payload) = &mut change.payload {
                *payload = bytes.slice_ref(take.take(len as usize)?);
            }
        }
        take.end()?;
        Ok((entry, data_at))
    }
}

/// Notes where an inode, encoded at `base` of the entry, waits for its position.
fn inode_stamps(key: &Key, value: &[u8], base: usize, stamps: &mut SmallVec<[usize; 8]>) {
    if key.kind != Kind::Inode {
        return;
    }
    for at in [Inode::CHANGE_AT, Inode::GENERATION_AT] {
        if value.get(at..at + 8) == Some(&Inode::PENDING.0.to_le_bytes()[..]) {
            stamps.push(base + at);
        }
    }
}

pub(crate) fn put_session(out: &mut Vec<u8>, change: &SessionChange, stamps: &mut SmallVec<[usize; 8]>) {
    match change {
        SessionChange::Outcome(token, effect) => {
            out.put_u8(1);
            put_token(out, token);
            put_effect(out, effect, stamps);
        }
        SessionChange::Lock(bytes) => {
            out.put_u8(2);
            out.put_bytes(bytes);
        }
        SessionChange::Image { piece, last, bytes } => {
            out.put_u8(3);
            out.put_u32(*piece);
            out.put_bool(*last);
            out.put_bytes(bytes);
        }
    }
}

pub(crate) fn take_session(take: &mut Take<'_>) -> Decoded<SessionChange> {
    Ok(match take.u8()? {
        1 => SessionChange::Outcome(take_token(take)?, Box::new(take_effect(take)?)),
        2 => SessionChange::Lock(take.owned(1 << 20)?),
        3 => SessionChange::Image { piece: take.u32()?, last: take.bool()?, bytes: take.owned(4 << 20)? },
        _ => return Err(DecodeError::Range("a session change")),
    })
}

fn put_data(out: &mut Vec<u8>, change: &DataChange) {
    out.put_u32(change.key.0.0);
    out.put_u64(change.key.1.0);
    out.put_u64(change.key.2);
    out.put_u32(change.generation);
    out.put_u32(change.start);
    let kind = match change.payload {
        Payload::Bytes(_) | Payload::Kept(_) => 0,
        Payload::Zero(_) => 1,
        Payload::Unlogged(_) | Payload::Lost(_) => 2,
    };
    out.put(&[u8::from(change.new), kind]);
    out.put_u32(change.payload.len());
}

fn take_data(take: &mut Take<'_>) -> Decoded<(DataChange, u32)> {
    let key = (VolumeId(take.u32()?), Ino(take.u64()?), take.u64()?);
    let (generation, start) = (take.u32()?, take.u32()?);
    let (new, kind) = (take.bool()?, take.u8()?);
    let len = take.u32()?;
    if start.checked_add(len).is_none_or(|end| end > 1 << 20) {
        return Err(DecodeError::Range("bytes of a record"));
    }
    let payload = match kind {
        0 => Payload::Bytes(Bytes::new()),
        1 => Payload::Zero(len),
        2 => Payload::Lost(len),
        _ => return Err(DecodeError::Range("where bytes of a record are")),
    };
    Ok((DataChange { key, generation, new, start, payload }, len))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tarn_vfs::ClientId;

    #[test]
    fn an_entry_survives_encoding_and_is_stamped_where_it_is_pending() {
        let volume = VolumeId(1);
        let pending = Bytes::copy_from_slice(&[&[1u8; 5][..], &[0xff; 8], &[2; 3]].concat());
        let token = OnceToken { client: ClientId(7), number: 8, digest: 9 };
        let entry = Entry {
            usage: vec![(volume, -4, 1)],
            keys: vec![(Key::inode(volume, Ino(5)), Some(pending)), (Key::inode(volume, Ino(6)), None)],
            discards: vec![(volume, Ino(5), 1..u64::MAX)],
            session: vec![
                SessionChange::Outcome(token, Box::default()),
                SessionChange::Lock(Bytes::from_static(b"lock")),
                SessionChange::Image { piece: 1, last: true, bytes: Bytes::from_static(b"image") },
            ],
            closes: true,
            data: vec![
                DataChange {
                    key: (volume, Ino(5), 0),
                    generation: 2,
                    new: true,
                    start: 100,
                    payload: Payload::Bytes(Bytes::from_static(b"data")),
                },
                DataChange { key: (volume, Ino(5), 1), generation: 2, new: false, start: 0, payload: Payload::Zero(9) },
                DataChange {
                    key: (volume, Ino(5), 2),
                    generation: 2,
                    new: true,
                    start: 0,
                    payload: Payload::Lost(4096),
                },
            ],
            ..Entry::default()
        };
        let mut encoded = entry.encode();
        encoded.stamp(Position(0x55));
        let value = &encoded.head[encoded.values[0].clone()];
        assert_eq!(value[5..13], 0x55u64.to_le_bytes());
        let head = encoded.head.len();
        let mut bytes = encoded.head;
        bytes.extend_from_slice(b"data");
        assert_eq!(entry.data_len(), 4);
        let (decoded, data_at) = Entry::decode(&Bytes::from(bytes.clone())).unwrap();
        assert_eq!(data_at, head);
        assert_eq!(decoded.data, entry.data);
        assert_eq!(decoded.session, entry.session);
        assert_eq!(decoded.discards, entry.discards);
        for len in 0..bytes.len() {
            assert!(Entry::decode(&Bytes::copy_from_slice(&bytes[..len])).is_err());
        }
    }

    #[test]
    fn what_was_cut_in_order_is_handed_on_in_one_piece() {
        let whole = Bytes::from(vec![7; 100]);
        let cut = |range| Payload::Kept(whole.slice(range));
        let pieces = |payloads: Vec<Payload>| {
            let change =
                |payload| DataChange { key: (VolumeId(1), Ino(5), 0), generation: 2, new: true, start: 0, payload };
            let data = payloads.into_iter().map(change).collect();
            Entry { data, whole: whole.clone(), ..Entry::default() }.pieces()
        };
        assert_eq!(pieces(vec![cut(0..60), Payload::Zero(5), cut(60..100)]), std::slice::from_ref(&whole));
        assert_eq!(pieces(vec![cut(60..100), cut(0..60)]), [whole.slice(60..), whole.slice(..60)]);
        assert_eq!(pieces(vec![cut(0..60)]), [whole.slice(..60)]);
        assert_eq!(pieces(vec![cut(0..60), cut(60..100), cut(0..60)]).len(), 3);
        assert_eq!(pieces(vec![Payload::Kept(vec![7; 100].into())]).len(), 1);
        assert!(pieces(vec![]).is_empty());
        assert!(Entry::default().pieces().is_empty());
    }

    #[test]
    fn a_discard_that_ends_before_it_begins_is_refused() {
        let discard = |records| Entry { discards: vec![(VolumeId(1), Ino(5), records)], ..Entry::default() };
        let decoded = |records| Entry::decode(&Bytes::from(discard(records).encode().head)).map(|(entry, _)| entry);
        assert_eq!(decoded(7..7), Ok(discard(7..7)));
        let reversed = Range { start: 8, end: 7 };
        assert_eq!(decoded(reversed), Err(DecodeError::Range("records to be discarded")));
    }
}
