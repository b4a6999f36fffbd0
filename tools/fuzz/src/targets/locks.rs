//! Lock state as the log holds it: transitions, applied as recovery does, and the image of the whole table.

use bytes::Bytes;
use tarn_base::codec::Take;
use tarn_base::ids::{Ino, VolumeId};
use tarn_vfs::locks::{LockTable, Transition};
use tarn_vfs::{Lock, LockKind, LockOwner, LockRange, Node};

use super::Target;

pub fn targets() -> Vec<Target> {
    vec![Target::new("lock-transitions", transitions, transition_seeds), Target::new("lock-image", image, image_seeds)]
}

/// Many in a row: recovery applies what it reads to what it has.
fn transitions(bytes: &[u8]) -> bool {
    let mut take = Take::new(bytes);
    let mut table = LockTable::new();
    while !take.rest().is_empty() {
        let Ok(transition) = Transition::decode(&mut take) else { return false };
        let mut out = Vec::new();
        transition.encode(&mut out);
        assert_eq!(Transition::decode(&mut Take::new(&out)).as_ref(), Ok(&transition));
        table.apply(&transition);
    }
    survives(&table);
    !bytes.is_empty()
}

/// An image of the table gives the same table.
fn survives(table: &LockTable) {
    let mut out = Vec::new();
    table.encode(&mut out);
    assert_eq!(LockTable::decode(&mut Take::new(&out)).as_ref(), Ok(table));
    table.list();
    table.holders();
    table.to_notify();
}

fn image(bytes: &[u8]) -> bool {
    let Ok(table) = LockTable::decode(&mut Take::new(bytes)) else { return false };
    survives(&table);
    let clients: Vec<Bytes> = table.holders().into_iter().map(|(client, _)| client).collect();
    for client in &clients {
        let mut left = table.clone();
        left.apply_all(&left.decide_release_client(client).transitions);
        assert!(!left.is_holder(client), "a released client holds locks");
    }
    true
}

/// Every kind of transition, some of them in each other's way.
fn samples() -> Vec<Transition> {
    let node = |ino| Node { volume: VolumeId(1), epoch: 0, ino: Ino(ino), generation: 3 };
    let lock = |ino, client: &'static [u8], start, end, kind| Lock {
        node: node(ino),
        owner: LockOwner { client: Bytes::from_static(client), owner: Bytes::from_static(b"7@x"), process: 7 },
        kind,
        range: LockRange { start, end },
    };
    let callback = Bytes::from_static(b"callback");
    let (shared, exclusive) = (LockKind::Shared, LockKind::Exclusive);
    let held = |lock| Transition::Held { lock, callback: callback.clone() };
    let owner = lock(5, b"one", 0, 1, shared).owner;
    vec![
        held(lock(5, b"one", 0, 100, shared)),
        held(lock(5, b"two", 50, 150, shared)),
        held(lock(6, b"one", 0, u64::MAX, exclusive)),
        Transition::Queued { lock: lock(6, b"two", 10, 20, exclusive), callback: callback.clone() },
        Transition::Queued { lock: lock(6, b"three", 10, 20, shared), callback: callback.clone() },
        Transition::Released { node: node(5), owner, range: LockRange { start: 20, end: 30 } },
        Transition::Unqueued { lock: lock(6, b"three", 10, 20, shared) },
        Transition::ToNotify { client: Bytes::from_static(b"four"), callback },
        Transition::Notified { client: Bytes::from_static(b"five") },
        Transition::ClientReleased { client: Bytes::from_static(b"two") },
        Transition::NodeGone { node: node(9) },
    ]
}

fn transition_seeds() -> Vec<Vec<u8>> {
    let encoded = |transition: &Transition| {
        let mut out = Vec::new();
        transition.encode(&mut out);
        out
    };
    let mut seeds: Vec<Vec<u8>> = samples().iter().map(encoded).collect();
    seeds.push(seeds.concat());
    seeds
}

fn image_seeds() -> Vec<Vec<u8>> {
    let mut table = LockTable::new();
    let mut seeds = Vec::new();
    for transition in samples() {
        table.apply(&transition);
        let mut out = Vec::new();
        table.encode(&mut out);
        seeds.push(out);
    }
    seeds
}
