//! Byte-range locks, as a front end sees them.

use bytes::Bytes;

use super::place::*;
use crate::error::Errno;
use crate::types::LockKind::{Exclusive, Shared};
use crate::types::*;

cases![
    who_excludes_whom,
    ranges_are_split_and_joined,
    waiting_requests_are_granted_in_order,
    a_restarted_client_loses_its_locks,
    tests_and_cancels,
    locks_end_with_their_file,
    refusals,
];

fn who(client: &'static str, owner: &'static str) -> LockOwner {
    LockOwner { client: Bytes::from_static(client.as_bytes()), owner: owner.into(), process: 1 }
}

fn range(start: u64, end: u64) -> LockRange {
    LockRange { start, end }
}

fn request(node: Node, owner: LockOwner, kind: LockKind, range: LockRange, wait: bool) -> LockRequest {
    let lock = Lock { node, owner, kind, range };
    LockRequest { lock, wait, reclaim: false, callback: Bytes::from_static(b"callback") }
}

impl Place {
    async fn lock(
        &self,
        node: Node,
        owner: LockOwner,
        kind: LockKind,
        range: LockRange,
        wait: bool,
    ) -> Result<LockOutcome, String> {
        Ok(ok!(self.fs.lock(&Caller::root(), request(node, owner, kind, range, wait))))
    }

    fn locks_of(&self, node: Node) -> Vec<LockInfo> {
        self.fs.locks().into_iter().filter(|info| info.lock.node == node).collect()
    }

    /// Owners that were granted something since the last time: waits for as many as are expected, for events come
    /// once what they tell of is durable.
    async fn granted(&self, node: Node, expected: usize) -> Result<Vec<Bytes>, String> {
        let mut granted = self.heard.granted(node);
        for _ in 0..200 {
            if granted.len() >= expected {
                break;
            }
            for made in [true, false] {
                let probe = if made {
                    self.fs.mkdir(&owner(), self.dir, b"probe", mode(0o700)).await
                } else {
                    self.fs.rmdir(&owner(), self.dir, b"probe").await
                };
                let probe = probe.map_err(|done| format!("the probe: {}", done.value.errno))?;
                ok!(self.fs.durable(probe.position));
            }
            granted.extend(self.heard.granted(node));
        }
        Ok(granted)
    }
}

async fn who_excludes_whom(place: Place) -> Verdict {
    let kinds =
        [(Shared, Shared, true), (Shared, Exclusive, false), (Exclusive, Shared, false), (Exclusive, Exclusive, false)];
    for (number, (held, asked, free)) in kinds.into_iter().enumerate() {
        let node = place.file(&owner(), &format!("f{number}"), 0o600).await?.node;
        let (one, two) = (who("client", "one"), who("client", "two"));
        same!(place.lock(node, one.clone(), held, range(10, 20), false).await?, LockOutcome::Granted);
        let outcome = place.lock(node, two.clone(), asked, range(19, 21), false).await?;
        let in_the_way = Lock { node, owner: one.clone(), kind: held, range: range(10, 20) };
        same!(outcome, if free { LockOutcome::Granted } else { LockOutcome::Denied(in_the_way) });
        same!(place.lock(node, two, Exclusive, range(20, u64::MAX), false).await?, LockOutcome::Granted);
        same!(place.lock(node, one, Exclusive, range(0, 19), false).await?, LockOutcome::Granted);
    }
    Ok(())
}

async fn ranges_are_split_and_joined(place: Place) -> Verdict {
    let node = place.file(&owner(), "f", 0o600).await?.node;
    let one = who("client", "one");
    place.lock(node, one.clone(), Exclusive, range(0, u64::MAX), false).await?;
    ok!(place.fs.unlock(&Caller::root(), node, one.clone(), range(10, 20)));
    place.lock(node, one.clone(), Shared, range(5, 10), false).await?;
    let held = |place: &Place| {
        place.locks_of(node).into_iter().map(|info| (info.lock.kind, info.lock.range)).collect::<Vec<_>>()
    };
    let pieces = [(Exclusive, range(0, 5)), (Shared, range(5, 10)), (Exclusive, range(20, u64::MAX))];
    same!(held(&place), pieces);
    place.lock(node, one.clone(), Exclusive, range(5, 20), false).await?;
    same!(held(&place), [(Exclusive, range(0, u64::MAX))]);
    // Nothing there is not an error.
    ok!(place.fs.unlock(&Caller::root(), node, one, range(0, u64::MAX)));
    ok!(place.fs.unlock(&Caller::root(), node, who("client", "two"), range(0, u64::MAX)));
    that!(place.locks_of(node).is_empty());
    Ok(())
}

async fn waiting_requests_are_granted_in_order(place: Place) -> Verdict {
    let node = place.file(&owner(), "f", 0o600).await?.node;
    let (all, one) = (range(0, u64::MAX), who("client", "one"));
    place.lock(node, one.clone(), Exclusive, all, false).await?;
    for (name, kind) in [("two", Shared), ("three", Exclusive), ("four", Shared)] {
        same!(place.lock(node, who("client", name), kind, all, true).await?, LockOutcome::Waiting);
    }
    // Asking again keeps the place in the queue.
    same!(place.lock(node, who("client", "two"), Shared, all, true).await?, LockOutcome::Waiting);
    same!(place.locks_of(node).iter().filter(|info| info.waiting).count(), 3);
    ok!(place.fs.unlock(&Caller::root(), node, one, all));
    same!(place.granted(node, 2).await?, ["two", "four"]);
    ok!(place.fs.unlock(&Caller::root(), node, who("client", "two"), all));
    ok!(place.fs.unlock(&Caller::root(), node, who("client", "four"), all));
    same!(place.granted(node, 1).await?, ["three"]);
    that!(place.locks_of(node).iter().all(|info| !info.waiting && info.callback == "callback"));
    Ok(())
}

async fn a_restarted_client_loses_its_locks(place: Place) -> Verdict {
    let node = place.file(&owner(), "f", 0o600).await?.node;
    let all = range(0, u64::MAX);
    place.lock(node, who("restarting", "one"), Exclusive, all, false).await?;
    place.lock(node, who("restarting", "two"), Exclusive, all, true).await?;
    place.lock(node, who("steady", "three"), Exclusive, all, true).await?;
    ok!(place.fs.release_client(b"restarting"));
    same!(place.granted(node, 1).await?, ["three"]);
    same!(place.locks_of(node).len(), 1);
    ok!(place.fs.release_client(b"nobody has this name"));
    Ok(())
}

async fn tests_and_cancels(place: Place) -> Verdict {
    let node = place.file(&owner(), "f", 0o600).await?.node;
    let held = Lock { node, owner: who("client", "one"), kind: Shared, range: range(0, 10) };
    place.lock(node, held.owner.clone(), Shared, held.range, false).await?;
    let root = Caller::root();
    let asked = |name, kind, range| Lock { node, owner: who("client", name), kind, range };
    same!(ok!(place.fs.test_lock(&root, asked("two", Exclusive, range(9, 10)))), Some(held));
    same!(ok!(place.fs.test_lock(&root, asked("two", Shared, range(9, 10)))), None);
    same!(ok!(place.fs.test_lock(&root, asked("two", Exclusive, range(10, 11)))), None);
    same!(ok!(place.fs.test_lock(&root, asked("one", Exclusive, range(0, 10)))), None);
    place.lock(node, who("client", "two"), Exclusive, range(0, 1), true).await?;
    that!(ok!(place.fs.cancel_lock(&root, asked("two", Exclusive, range(0, 1)))));
    that!(!ok!(place.fs.cancel_lock(&root, asked("two", Exclusive, range(0, 1)))));
    ok!(place.fs.unlock(&root, node, who("client", "one"), range(0, 10)));
    that!(place.locks_of(node).is_empty());
    Ok(())
}

async fn locks_end_with_their_file(place: Place) -> Verdict {
    let node = place.file(&owner(), "f", 0o600).await?.node;
    ok!(place.fs.link(&owner(), node, place.dir, b"g"));
    place.lock(node, who("client", "one"), Exclusive, range(0, 1), false).await?;
    ok!(place.fs.remove(&owner(), place.dir, b"f"));
    same!(place.locks_of(node).len(), 1);
    place.file(&owner(), "h", 0o600).await?;
    ok!(place.fs.rename(&owner(), place.dir, b"h", place.dir, b"g"));
    that!(place.locks_of(node).is_empty());
    let request = request(node, who("client", "one"), Shared, range(0, 1), false);
    refused!(place.fs.lock(&Caller::root(), request), Errno::Stale);
    Ok(())
}

async fn refusals(place: Place) -> Verdict {
    let node = place.file(&owner(), "f", 0o600).await?.node;
    let request =
        |range, reclaim| LockRequest { reclaim, ..request(node, who("client", "one"), Exclusive, range, false) };
    refused!(place.fs.lock(&Caller::root(), request(range(3, 3), false)), Errno::Invalid);
    refused!(place.fs.lock(&Caller::root(), request(range(0, 1), true)), Errno::Grace);
    ok!(place.fs.lock(&Caller::root(), request(range(0, 10), false)));
    // Reclaiming what is held anyway does no harm.
    same!(ok!(place.fs.lock(&Caller::root(), request(range(0, 10), true))), LockOutcome::Granted);
    Ok(())
}
