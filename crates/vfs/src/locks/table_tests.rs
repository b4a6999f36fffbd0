use super::*;
use crate::types::LockKind::{Exclusive, Shared};
use crate::types::{LockKind, Node};
use tarn_base::codec::Take;
use tarn_base::ids::Ino;

const END: u64 = u64::MAX;

fn owner(name: &str) -> LockOwner {
    let (client, owner) = name.split_at(1);
    LockOwner { client: client.to_owned().into(), owner: owner.to_owned().into(), process: 1 }
}

fn node(number: u64) -> Node {
    Node { ino: Ino(number), ..Node::default() }
}

fn lock(name: &str, kind: LockKind, start: u64, end: u64) -> Lock {
    Lock { node: node(1), owner: owner(name), kind, range: LockRange { start, end } }
}

fn request(lock: Lock, wait: bool) -> LockRequest {
    LockRequest { lock, wait, reclaim: false, callback: Bytes::from_static(b"callback") }
}

/// A table that keeps everything that was applied to it, and proves each step: transitions survive their
/// encoding, and image and replay give the same table.
#[derive(Default)]
struct Proven {
    table: LockTable,
    log: Vec<u8>,
}

impl Proven {
    fn take<T>(&mut self, decision: Decision<T>) -> (T, Vec<LockInfo>) {
        for transition in &decision.transitions {
            transition.encode(&mut self.log);
            self.table.apply(transition);
        }
        let mut replayed = LockTable::new();
        let mut take = Take::new(&self.log);
        while !take.rest().is_empty() {
            replayed.apply(&Transition::decode(&mut take).unwrap());
        }
        assert_eq!(replayed, self.table);
        let mut image = Vec::new();
        self.table.encode(&mut image);
        let mut take = Take::new(&image);
        assert_eq!(LockTable::decode(&mut take).unwrap(), self.table);
        take.end().unwrap();
        (decision.value, decision.granted)
    }

    fn ask(&mut self, lock: Lock, wait: bool) -> LockOutcome {
        let decision = self.table.decide_lock(&request(lock, wait), false).unwrap();
        self.take(decision).0
    }

    fn hold(&mut self, lock: Lock) {
        assert_eq!(self.ask(lock, false), LockOutcome::Granted);
    }

    /// Unlocks and gives the owners that were granted something, in order.
    fn unlock(&mut self, name: &str, start: u64, end: u64) -> Vec<String> {
        let decision = self.table.decide_unlock(node(1), &owner(name), LockRange { start, end }).unwrap();
        names(&self.take(decision).1)
    }

    /// What is held: owner, kind, start, end.
    fn held(&self) -> Vec<(String, LockKind, u64, u64)> {
        let held = self.table.list().into_iter().filter(|info| !info.waiting);
        held.map(|info| (name(&info), info.lock.kind, info.lock.range.start, info.lock.range.end)).collect()
    }
}

fn name(info: &LockInfo) -> String {
    let owner = &info.lock.owner;
    format!("{}{}", String::from_utf8_lossy(&owner.client), String::from_utf8_lossy(&owner.owner))
}

fn names(infos: &[LockInfo]) -> Vec<String> {
    infos.iter().map(name).collect()
}

fn row(name: &str, kind: LockKind, start: u64, end: u64) -> (String, LockKind, u64, u64) {
    (name.to_owned(), kind, start, end)
}

#[test]
fn shared_locks_share_and_exclusive_ones_do_not() {
    for (held, asked, free) in
        [(Shared, Shared, true), (Shared, Exclusive, false), (Exclusive, Shared, false), (Exclusive, Exclusive, false)]
    {
        let mut table = Proven::default();
        table.hold(lock("a1", held, 0, 10));
        let outcome = table.ask(lock("b1", asked, 9, 11), false);
        assert_eq!(outcome == LockOutcome::Granted, free);
        if !free {
            assert_eq!(outcome, LockOutcome::Denied(lock("a1", held, 0, 10)));
        }
        assert_eq!(table.ask(lock("b2", asked, 10, END), false), LockOutcome::Granted);
    }
}

#[test]
fn owners_of_one_client_conflict_and_an_owner_with_itself_does_not() {
    let mut table = Proven::default();
    table.hold(lock("a1", Exclusive, 0, END));
    assert!(matches!(table.ask(lock("a2", Shared, 5, 6), false), LockOutcome::Denied(_)));
    table.hold(lock("a1", Exclusive, 3, 4));
    assert_eq!(table.held(), [row("a1", Exclusive, 0, END)]);
}

#[test]
fn ranges_split_and_join() {
    let mut table = Proven::default();
    table.hold(lock("a1", Exclusive, 0, 100));
    table.unlock("a1", 40, 60);
    assert_eq!(table.held(), [row("a1", Exclusive, 0, 40), row("a1", Exclusive, 60, 100)]);
    table.hold(lock("a1", Shared, 40, 60));
    assert_eq!(table.held().len(), 3);
    table.hold(lock("a1", Exclusive, 40, 60));
    assert_eq!(table.held(), [row("a1", Exclusive, 0, 100)]);
    table.hold(lock("a1", Shared, 90, 110));
    assert_eq!(table.held(), [row("a1", Exclusive, 0, 90), row("a1", Shared, 90, 110)]);
    table.unlock("a1", 0, END);
    assert_eq!(table.table, LockTable::new());
}

#[test]
fn the_queue_is_served_in_order_as_far_as_it_is_free() {
    let mut table = Proven::default();
    table.hold(lock("a1", Exclusive, 0, 10));
    for waiter in [lock("b1", Shared, 0, 10), lock("c1", Exclusive, 0, 10), lock("d1", Shared, 5, 6)] {
        assert_eq!(table.ask(waiter, true), LockOutcome::Waiting);
    }
    assert_eq!(table.unlock("a1", 0, 3), Vec::<String>::new());
    assert_eq!(table.unlock("a1", 0, 10), ["b1", "d1"]);
    assert_eq!(table.unlock("b1", 0, 10), Vec::<String>::new());
    assert_eq!(table.unlock("d1", 0, 10), ["c1"]);
    assert_eq!(table.held(), [row("c1", Exclusive, 0, 10)]);
}

#[test]
fn asking_again_while_queued_keeps_the_place() {
    let mut table = Proven::default();
    table.hold(lock("a1", Exclusive, 0, 10));
    table.ask(lock("b1", Exclusive, 0, 10), true);
    table.ask(lock("c1", Exclusive, 0, 10), true);
    table.ask(lock("b1", Exclusive, 0, 10), true);
    assert_eq!(table.table.list().len(), 3);
    assert_eq!(table.unlock("a1", 0, 10), ["b1"]);
}

#[test]
fn a_shared_lock_becomes_exclusive_once_the_others_are_gone() {
    let mut table = Proven::default();
    table.hold(lock("a1", Shared, 0, 10));
    table.hold(lock("b1", Shared, 0, 10));
    assert_eq!(table.ask(lock("a1", Exclusive, 0, 10), true), LockOutcome::Waiting);
    assert_eq!(table.unlock("b1", 0, 10), ["a1"]);
    assert_eq!(table.held(), [row("a1", Exclusive, 0, 10)]);
}

#[test]
fn a_downgrade_lets_readers_in() {
    let mut table = Proven::default();
    table.hold(lock("a1", Exclusive, 0, 10));
    table.ask(lock("b1", Shared, 2, 3), true);
    let decision = table.table.decide_lock(&request(lock("a1", Shared, 0, 10), false), false).unwrap();
    assert_eq!(names(&table.take(decision).1), ["b1"]);
}

#[test]
fn a_cancelled_request_is_not_granted() {
    let mut table = Proven::default();
    table.hold(lock("a1", Exclusive, 0, 10));
    table.ask(lock("b1", Exclusive, 0, 10), true);
    let decision = table.table.decide_cancel(&lock("b1", Shared, 0, 10));
    assert!(!table.take(decision).0);
    let decision = table.table.decide_cancel(&lock("b1", Exclusive, 0, 10));
    assert!(table.take(decision).0);
    assert_eq!(table.unlock("a1", 0, 10), Vec::<String>::new());
}

#[test]
fn a_client_that_restarted_holds_and_awaits_nothing() {
    let mut table = Proven::default();
    table.hold(lock("a1", Exclusive, 0, 10));
    table.hold(Lock { node: node(2), ..lock("a2", Exclusive, 0, 10) });
    table.ask(lock("a2", Exclusive, 0, 10), true);
    table.ask(lock("b1", Exclusive, 0, 10), true);
    assert!(table.table.is_holder(b"a") && !table.table.is_holder(b"b"));
    let decision = table.table.decide_release_client(b"a");
    assert_eq!(names(&table.take(decision).1), ["b1"]);
    assert_eq!(table.table.list().len(), 1);
    assert_eq!(table.table.holders(), [(Bytes::from_static(b"b"), Bytes::from_static(b"callback"))]);
}

#[test]
fn during_grace_only_reclaims_are_granted_and_after_it_only_of_what_is_held() {
    let mut table = Proven::default();
    let fresh = request(lock("a1", Exclusive, 0, 10), false);
    let reclaim = LockRequest { reclaim: true, ..fresh.clone() };
    assert_eq!(table.table.decide_lock(&fresh, true), Err(Errno::Grace));
    assert_eq!(table.table.decide_lock(&reclaim, false), Err(Errno::Grace));
    let decision = table.table.decide_lock(&reclaim, true).unwrap();
    assert_eq!(table.take(decision).0, LockOutcome::Granted);
    assert_eq!(table.table.decide_lock(&reclaim, false).unwrap().value, LockOutcome::Granted);
    let other = LockRequest { lock: lock("b1", Shared, 5, 6), ..reclaim };
    assert!(matches!(table.table.decide_lock(&other, true).unwrap().value, LockOutcome::Denied(_)));
}

#[test]
fn locks_of_a_removed_object_vanish() {
    let mut table = Proven::default();
    table.hold(lock("a1", Exclusive, 0, 10));
    table.ask(lock("b1", Exclusive, 0, 10), true);
    let decision = table.table.decide_node_gone(node(1));
    assert!(table.take(decision).1.is_empty());
    assert_eq!(table.table, LockTable::new());
}

#[test]
fn clients_to_notify_are_kept_until_told() {
    let mut table = Proven::default();
    let client = (Bytes::from_static(b"a"), Bytes::from_static(b"callback"));
    let decision = table.table.decide_notify([client.clone()]);
    table.take(decision);
    assert_eq!(table.table.to_notify(), [client]);
    let decision = table.table.decide_notified(b"a");
    table.take(decision);
    assert!(table.table.to_notify().is_empty() && table.table.decide_notified(b"a").transitions.is_empty());
}

#[test]
fn an_empty_range_and_bytes_that_lie_are_refused() {
    let table = LockTable::new();
    assert_eq!(table.decide_lock(&request(lock("a1", Shared, 5, 5), false), false), Err(Errno::Invalid));
    assert_eq!(table.decide_unlock(node(1), &owner("a1"), LockRange { start: 2, end: 1 }), Err(Errno::Invalid));
    let mut bytes = Vec::new();
    Transition::Held { lock: lock("a1", Shared, 0, 1), callback: Bytes::new() }.encode(&mut bytes);
    for length in 0..bytes.len() {
        assert!(Transition::decode(&mut Take::new(&bytes[..length])).is_err());
    }
    assert!(LockTable::decode(&mut Take::new(&[1, 255, 255, 255, 255])).is_err());
    assert!(LockTable::decode(&mut Take::new(&[2])).is_err());
}

/// Random requests over 24 bytes, against an array that says who holds each byte and how.
#[test]
fn any_history_is_what_byte_by_byte_bookkeeping_says() {
    const BYTES: usize = 24;
    const OWNERS: [&str; 4] = ["a1", "a2", "b1", "c1"];
    for seed in 1..40u64 {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut draw = |below: u64| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state % below
        };
        let mut table = Proven::default();
        let mut bytes = [[None::<LockKind>; BYTES]; OWNERS.len()];
        for _ in 0..60 {
            let who = draw(OWNERS.len() as u64) as usize;
            let start = draw(BYTES as u64 - 1) as usize;
            let end = start + 1 + draw((BYTES - start) as u64) as usize;
            let kind = match draw(3) {
                0 => None,
                1 => Some(Shared),
                _ => Some(Exclusive),
            };
            let Some(kind) = kind else {
                table.unlock(OWNERS[who], start as u64, end as u64);
                bytes[who][start..end].fill(None);
                continue;
            };
            let free = (0..OWNERS.len()).filter(|other| *other != who).all(|other| {
                bytes[other][start..end].iter().all(|held| held.is_none() || (kind == Shared && *held == Some(Shared)))
            });
            let outcome = table.ask(lock(OWNERS[who], kind, start as u64, end as u64), false);
            assert_eq!(outcome == LockOutcome::Granted, free, "seed {seed}");
            if free {
                bytes[who][start..end].fill(Some(kind));
            }
            let mut held = [[None; BYTES]; OWNERS.len()];
            for (name, kind, start, end) in table.held() {
                let who = OWNERS.iter().position(|owner| *owner == name).unwrap();
                held[who][start as usize..end as usize].fill(Some(kind));
            }
            assert_eq!(held, bytes, "seed {seed}");
        }
    }
}
