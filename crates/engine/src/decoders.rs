//! Every decoder of bytes from the log and the store, and valid bytes to begin from, for fuzzing.
//!
//! - A judge says whether it takes the bytes for valid; it never panics but when what it took does not survive
//!   encoding.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt;
use smallvec::SmallVec;
use tarn_base::codec::{Decoded, Put, Take};
use tarn_base::crypto::Key as Secret;
use tarn_base::ids::{Ino, Position, SegmentId, Uuid, VolumeId};
use tarn_base::time::Time;
use tarn_meta::mem::{MemDisk, MemOpener};
use tarn_meta::{Batch, MetaOpener};
use tarn_vfs::locks::{LockTable, Transition};
use tarn_vfs::{Attr, Change, ClientId, Effect, FileType, OnceToken, Stability, VolumeSettings};

use crate::entry::{DataChange, Entry, Payload, SessionChange, put_session, take_session};
use crate::image::encode_image;
use crate::key::{KEY_SIZE, Key};
use crate::once::OnceTable;
use crate::overlay::Generation;
use crate::owner::{Claim, Owner, OwnerState, Secrets};
use crate::recovery::Base;
use crate::run::apply_data;
use crate::session::Session;
use crate::value::outcome::{put_effect, put_token, take_effect, take_token};
use crate::value::{
    Bucket, CookieEntry, CountRecord, Cut, HashEntry, Inode, MapState, NotifyRecord, SaltRecord, ShardState, Usage,
    VolumeRecord,
};

/// A decoder.
#[derive(Clone, Copy, Debug)]
pub struct Decoder {
    pub name: &'static str,
    pub judge: fn(&[u8]) -> bool,
    pub samples: fn() -> Vec<Vec<u8>>,
    /// Whether the last four bytes are the CRC-32C of the rest.
    pub checksum: bool,
}

/// All of them.
pub const ALL: &[Decoder] = &[
    row("metadata-key", key, key_samples),
    row("metadata-inode", inode, inode_samples),
    row("metadata-bucket", bucket, bucket_samples),
    row("metadata-cookie", cookie, cookie_samples),
    row("metadata-map", map, map_samples),
    row("metadata-shard", shard, shard_samples),
    row("metadata-usage", usage, usage_samples),
    row("metadata-count", count, count_samples),
    row("metadata-salt", salt, salt_samples),
    row("metadata-notify", notify, notify_samples),
    row("metadata-volume", volume, volume_samples),
    row("log-entry", entry, entry_samples),
    row("log-replay", replay, entry_samples),
    row("log-outcome", outcome, outcome_samples),
    row("log-session", session, session_samples),
    row("metadata-scan", scan, scan_samples),
    Decoder { checksum: true, ..row("owner-record", owner, owner_samples) },
];

const fn row(name: &'static str, judge: fn(&[u8]) -> bool, samples: fn() -> Vec<Vec<u8>>) -> Decoder {
    Decoder { name, judge, samples, checksum: false }
}

fn encoded(encode: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = Vec::new();
    encode(&mut out);
    out
}

/// What is taken for valid, once it is known to survive encoding.
fn taken<T: PartialEq + std::fmt::Debug>(
    bytes: &[u8],
    decode: impl Fn(&[u8]) -> Decoded<T>,
    encode: impl Fn(&T, &mut Vec<u8>),
) -> Option<T> {
    let value = decode(bytes).ok()?;
    let again = decode(&encoded(|out| encode(&value, out)));
    assert_eq!(again.as_ref(), Ok(&value), "a value does not survive encoding");
    Some(value)
}

fn key(bytes: &[u8]) -> bool {
    let Some(key) = Key::decode(bytes) else { return false };
    assert_eq!(key.encode(), bytes, "a key has two encodings");
    true
}

fn key_samples() -> Vec<Vec<u8>> {
    let (volume, ino) = (VolumeId(1), Ino::new(3, 7));
    let keys = [
        Key::shard(),
        Key::volume(volume),
        Key::usage(volume),
        Key::salt(4),
        Key::segment(SegmentId { epoch: 1, counter: 2 }),
        Key::count(SegmentId { epoch: 1, counter: 2 }, 9),
        Key::notify(5),
        Key::inode(volume, ino),
        Key::entry_hash(volume, ino, u64::MAX),
        Key::entry_cookie(volume, ino, 3),
        Key::map(volume, ino),
        Key::pointer(volume, ino, 1 << 40),
    ];
    keys.iter().map(|key| key.encode().to_vec()).collect()
}

fn inode(bytes: &[u8]) -> bool {
    let Some(inode) = taken(bytes, Inode::decode, Inode::encode) else { return false };
    assert!(inode.record_size().is_power_of_two());
    inode.attr(VolumeId(1), Ino(2));
    true
}

fn inode_samples() -> Vec<Vec<u8>> {
    let kinds = [
        FileType::Regular,
        FileType::Directory,
        FileType::Symlink,
        FileType::Block,
        FileType::Character,
        FileType::Socket,
        FileType::Fifo,
    ];
    let of = |kind| Inode {
        born: 1,
        change: Position::new(1, 9),
        generation: Position::new(1, 8),
        kind,
        mode: 0o644,
        links: 1,
        uid: 1000,
        gid: 100,
        size: 70_000,
        records: 2,
        record_bits: 16,
        device: (8, 1),
        atime: Time { seconds: -1, nanos: 999_999_999 },
        mtime: Time { seconds: 2, nanos: 3 },
        ctime: Time::EPOCH,
        btime: Time { seconds: i64::MAX, nanos: 0 },
        parent: Ino(1),
        next_cookie: 900,
        cookie_lineage: 2,
        map_generation: 6,
        has_cuts: kind == FileType::Regular,
        distinct: kind == FileType::Directory,
        verifier: (kind == FileType::Regular).then_some(42),
        domain: 7,
        target: Bytes::from_static(b"../x"),
    };
    kinds.iter().map(|kind| encoded(|out| of(*kind).encode(out))).collect()
}

fn bucket(bytes: &[u8]) -> bool {
    let Some(bucket) = taken(bytes, Bucket::decode, Bucket::encode) else { return false };
    bucket.entries.iter().all(|entry| bucket.find(&entry.name).is_some())
}

fn bucket_samples() -> Vec<Vec<u8>> {
    let entry = |name: &'static [u8]| HashEntry {
        name: Bytes::from_static(name),
        ino: Ino(9),
        kind: FileType::Regular,
        cookie: 1 << 40,
    };
    let buckets = [vec![], vec![entry(b"a name")], vec![entry(b"a name"), entry(&[0xff; 255]), entry(b"b")]];
    buckets.map(|entries| encoded(|out| Bucket { born: 1, entries }.encode(out))).to_vec()
}

fn cookie(bytes: &[u8]) -> bool {
    taken(bytes, CookieEntry::decode, CookieEntry::encode).is_some()
}

fn cookie_samples() -> Vec<Vec<u8>> {
    let entry = CookieEntry { born: 2, name: Bytes::from_static(b"a name"), ino: Ino(5), kind: FileType::Directory };
    vec![encoded(|out| entry.encode(out))]
}

fn map(bytes: &[u8]) -> bool {
    let Some(mut map) = taken(bytes, MapState::decode, MapState::encode) else { return false };
    map.counts(5, 1);
    map.drops_charge(1);
    map.cut(Cut { from: 0, to: u64::MAX, generation: 9 });
    true
}

fn map_samples() -> Vec<Vec<u8>> {
    let cut = |from, to| Cut { from, to, generation: 3 };
    let maps = [
        MapState { born: 1, dead: true, cuts: vec![] },
        MapState { born: 1, dead: false, cuts: vec![cut(4, 8), cut(100, u64::MAX)] },
    ];
    maps.map(|map| encoded(|out| map.encode(out))).to_vec()
}

fn shard(bytes: &[u8]) -> bool {
    taken(bytes, ShardState::decode, ShardState::encode).is_some()
}

fn shard_samples() -> Vec<Vec<u8>> {
    vec![encoded(|out| ShardState { next_inode: 7, next_volume: 2, lineage: 1, ..ShardState::default() }.encode(out))]
}

fn count(bytes: &[u8]) -> bool {
    taken(bytes, CountRecord::decode, CountRecord::encode).is_some()
}

fn count_samples() -> Vec<Vec<u8>> {
    vec![encoded(|out| CountRecord { pointers: 2 }.encode(out))]
}

fn usage(bytes: &[u8]) -> bool {
    taken(bytes, Usage::decode, Usage::encode).is_some()
}

fn usage_samples() -> Vec<Vec<u8>> {
    vec![encoded(|out| Usage { bytes: 1 << 40, inodes: 7 }.encode(out))]
}

fn salt(bytes: &[u8]) -> bool {
    taken(bytes, SaltRecord::decode, SaltRecord::encode).is_some()
}

fn salt_samples() -> Vec<Vec<u8>> {
    vec![encoded(|out| SaltRecord([7; 16]).encode(out))]
}

fn notify(bytes: &[u8]) -> bool {
    taken(bytes, NotifyRecord::decode, NotifyRecord::encode).is_some()
}

fn notify_samples() -> Vec<Vec<u8>> {
    let record = NotifyRecord { client: Bytes::from_static(b"client"), callback: Bytes::from_static(b"callback") };
    vec![encoded(|out| record.encode(out))]
}

fn volume(bytes: &[u8]) -> bool {
    taken(bytes, VolumeRecord::decode, VolumeRecord::encode).is_some()
}

fn volume_samples() -> Vec<Vec<u8>> {
    let record = |deleted, settings| VolumeRecord {
        name: Bytes::from_static(b"vol"),
        root: Ino(1),
        root_generation: Position(5),
        fsid: 77,
        epoch: 1,
        family: 1,
        family_key: Bytes::from_static(&[3; 64]),
        name_secret: [9; 16],
        unicode: (16, 0),
        created: Time { seconds: 1, nanos: 2 },
        deleted,
        settings,
    };
    let limited = VolumeSettings { size_limit: Some(1 << 30), exports: "* ro\n".into(), ..Default::default() };
    vec![
        encoded(|out| record(None, VolumeSettings::default()).encode(out)),
        encoded(|out| record(Some(Time { seconds: 3, nanos: 4 }), limited).encode(out)),
    ]
}

/// The whole of an entry: its head, then the data.
fn entry_bytes(entry: &Entry) -> Bytes {
    let mut out = entry.encode().head;
    for change in &entry.data {
        if let Payload::Bytes(bytes) = &change.payload {
            out.extend_from_slice(bytes);
        }
    }
    out.into()
}

fn entry(bytes: &[u8]) -> bool {
    let Ok((entry, data_at)) = Entry::decode(&Bytes::copy_from_slice(bytes)) else { return false };
    assert_eq!(data_at + entry.data_len(), bytes.len(), "an entry's data are not its end");
    let again = Entry::decode(&entry_bytes(&entry)).map(|(entry, _)| entry);
    assert_eq!(again.as_ref(), Ok(&entry), "an entry does not survive encoding");
    true
}

/// Applies what an entry says of data, as recovery does.
fn replay(bytes: &[u8]) -> bool {
    let Ok((entry, data_at)) = Entry::decode(&Bytes::copy_from_slice(bytes)) else { return false };
    let open = Generation::new(1, Position::ZERO, Duration::ZERO);
    for spill in [false, true] {
        let place = tarn_wal::LogPlace { frame: 4096, start: 4, len: bytes.len() as u32 };
        apply_data(&open, &entry, place, data_at as u32, spill);
    }
    open.count();
    true
}

fn entry_samples() -> Vec<Vec<u8>> {
    let (volume, token) = (VolumeId(1), OnceToken { client: ClientId(7), number: 8, digest: 9 });
    let data =
        |record, payload| DataChange { key: (volume, Ino(5), record), generation: 2, new: true, start: 0, payload };
    let logged = Payload::Bytes(Bytes::from_static(&[7; 700]));
    let data = vec![data(0, logged), data(1, Payload::Zero(9)), data(2, Payload::Lost(65_536))];
    let keys = vec![
        (Key::inode(volume, Ino(5)), Some(Bytes::from(inode_samples().swap_remove(0)))),
        (Key::entry_hash(volume, Ino(1), 77), None),
    ];
    let session = vec![
        SessionChange::Outcome(token, Box::new(effect())),
        SessionChange::Lock(Bytes::from_static(b"lock")),
        SessionChange::Image { piece: 1, last: true, bytes: Bytes::from_static(b"image") },
    ];
    let usage = vec![(volume, -4, 1)];
    let discards = vec![(volume, Ino(5), 1..u64::MAX)];
    let entries = [
        Entry::default(),
        Entry { usage: usage.clone(), keys: keys.clone(), ..Entry::default() },
        Entry { data: data.clone(), ..Entry::default() },
        Entry { session: session.clone(), ..Entry::default() },
        Entry { usage, keys, discards, session, closes: true, data, ..Entry::default() },
    ];
    entries.iter().map(|entry| entry_bytes(entry).to_vec()).collect()
}

fn effect() -> Effect {
    let attr = Attr { mode: 0o644, size: 9, change: Position(77), device: (1, 2), ..Default::default() };
    let change = Change { before: Some((&attr).into()), after: Some(attr.clone()) };
    Effect { attr: Some(attr), changes: [change, Change::default()], count: 5, reached: Stability::File }
}

/// A token and its effect, as a repeat finds them.
fn outcome(bytes: &[u8]) -> bool {
    let decode = |bytes: &[u8]| -> Decoded<(OnceToken, Effect)> {
        let mut take = Take::new(bytes);
        let outcome = (take_token(&mut take)?, take_effect(&mut take)?);
        take.end()?;
        Ok(outcome)
    };
    let encode = |(token, effect): &(OnceToken, Effect), out: &mut Vec<u8>| {
        put_token(out, token);
        put_effect(out, effect, &mut SmallVec::new());
    };
    taken(bytes, decode, encode).is_some()
}

fn outcome_samples() -> Vec<Vec<u8>> {
    let token = OnceToken { client: ClientId(7), number: 8, digest: 9 };
    let of = |effect: &Effect| {
        encoded(|out| {
            put_token(out, &token);
            put_effect(out, effect, &mut SmallVec::new());
        })
    };
    vec![of(&Effect::default()), of(&effect())]
}

/// Session changes one after another, as recovery meets them, the last of which ends an image.
fn session(bytes: &[u8]) -> bool {
    let (session, once) = (Session::default(), OnceTable::default());
    let (mut take, mut ended) = (Take::new(bytes), false);
    while !take.rest().is_empty() {
        let Ok(change) = take_session(&mut take) else { return false };
        if session.replay(&change, Position(9), &once).is_err() {
            return false;
        }
        ended = matches!(change, SessionChange::Image { last: true, .. });
    }
    ended
}

fn session_samples() -> Vec<Vec<u8>> {
    let token = OnceToken { client: ClientId(7), number: 8, digest: 9 };
    let image = encode_image(&LockTable::new(), &[(token, effect(), Position(5)), (token, effect(), Position(6))]);
    let (first, rest) = image.split_at(30);
    let piece = |piece, last, bytes: &[u8]| SessionChange::Image { piece, last, bytes: Bytes::copy_from_slice(bytes) };
    let client = Bytes::from_static(b"client");
    let released = encoded(|out| Transition::ClientReleased { client }.encode(out));
    let sequences = [
        vec![piece(0, true, &image)],
        vec![
            SessionChange::Outcome(token, Box::new(effect())),
            SessionChange::Lock(released.into()),
            piece(0, false, first),
            piece(1, true, rest),
        ],
    ];
    sequences
        .map(|changes| encoded(|out| changes.iter().for_each(|change| put_session(out, change, &mut SmallVec::new()))))
        .to_vec()
}

/// Keys, each with its value's length in 16 bits and its value: a whole store, read as an opening reads it.
fn scan(bytes: &[u8]) -> bool {
    let (mut take, mut changes) = (Take::new(bytes), BTreeMap::new());
    while !take.rest().is_empty() {
        let Ok(key) = take.array::<KEY_SIZE>() else { return false };
        let Ok(value) = take.u16().and_then(|len| take.take(usize::from(len))) else { return false };
        changes.insert(Bytes::copy_from_slice(&key), Some(Bytes::copy_from_slice(value)));
    }
    let reading = async {
        let store = MemOpener::new(MemDisk::new()).open().await.ok()?;
        store.commit(Batch { changes: changes.into_iter().collect() }).await.ok()?;
        Base::read(&store.view()).await.ok()?
    };
    // In memory everything is ready at once.
    reading.now_or_never().flatten().is_some()
}

fn scan_samples() -> Vec<Vec<u8>> {
    let volume = VolumeId(1);
    let entry = |out: &mut Vec<u8>, key: Key, value: &[u8]| {
        out.put(&key.encode());
        out.put_u16(value.len() as u16);
        out.put(value);
    };
    let whole = encoded(|out| {
        entry(out, Key::volume(volume), &volume_samples()[0]);
        entry(out, Key::usage(volume), &usage_samples()[0]);
        entry(out, Key { b: u64::MAX, ..Key::notify(7) }, &notify_samples()[0]);
        entry(out, Key::shard(), &shard_samples()[0]);
    });
    vec![whole]
}

const MASTER: [u8; 32] = [1; 32];

fn owner(bytes: &[u8]) -> bool {
    Owner::decode(bytes, &Secret::new(MASTER)).is_ok()
}

fn owner_samples() -> Vec<Vec<u8>> {
    let record = |state, claim| Owner {
        store: Uuid([7; 16]),
        state,
        epoch: 3,
        incarnation: 2,
        node: Uuid([8; 16]),
        lineage: 1,
        lineage_from: Position::new(1, 9),
        closed: Position::new(2, 5),
        stored: Position::new(2, 4),
        opening: 6,
        claim,
    };
    let secrets = Secrets { shard: Secret::new([2; 32]), handle: [3; 16] };
    let claim = Claim { node: Uuid([9; 16]), nonce: 4 };
    [record(OwnerState::Open, None), record(OwnerState::Closed, Some(claim))]
        .map(|owner| owner.encode(&Secret::new(MASTER), &secrets, [4; 16]))
        .to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_decoder_takes_its_samples_and_refuses_them_cut_short() {
        for decoder in ALL {
            for sample in (decoder.samples)() {
                assert!((decoder.judge)(&sample), "{}", decoder.name);
                assert!((0..sample.len()).all(|len| !(decoder.judge)(&sample[..len])), "{} cut short", decoder.name);
            }
        }
    }
}
