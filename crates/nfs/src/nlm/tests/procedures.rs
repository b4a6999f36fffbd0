//! What each procedure answers.

use super::bench::*;
use crate::peer::fake::{FakeNet, Say};

#[tokio::test]
async fn a_lock_keeps_others_out_until_it_is_released() {
    let bench = Bench::new();
    // Two machines made from one image, with the same process running.
    let (one, two) = (owner("guest", "10.0.0.2", 7), owner("guest", "10.0.0.3", 7));
    assert_eq!(bench.test(&two, true, 0, 0).await, [0, 0, 0, 0]);
    assert_eq!(bench.lock(&one, Ask { offset: 100, length: 10, ..ALL }).await, GRANTED);
    assert_eq!(bench.lock(&one, Ask { offset: 100, length: 10, ..ALL }).await, GRANTED, "again");
    assert_eq!(bench.lock(&two, ALL).await, DENIED);
    assert_eq!(bench.lock(&two, Ask { offset: 110, length: 10, ..ALL }).await, GRANTED);

    let holder = b"\0\0\0\x01\0\0\0\x01\0\0\0\x07\0\0\0\x077@guest\0\0\0\0\0\0\0\0\x64\0\0\0\0\0\0\0\x0a";
    assert_eq!(bench.test(&two, false, 0, 0).await, holder);
    assert_eq!(bench.test(&one, true, 0, 105).await, [0, 0, 0, 0], "one's own lock is not in the way");

    assert_eq!(bench.unlock(&one, 104, 0).await, GRANTED);
    assert_eq!(bench.lock(&two, Ask { offset: 104, length: 6, ..ALL }).await, GRANTED);
    assert_eq!(bench.lock(&two, Ask { offset: 103, length: 1, ..ALL }).await, DENIED);
    assert_eq!(bench.unlock(&one, 0, 0).await, GRANTED);
    assert_eq!(bench.unlock(&one, 0, 0).await, GRANTED, "nothing there is not an error");
    assert_eq!(bench.unlock(&two, 0, 0).await, GRANTED);
    assert!(bench.locks().is_empty());
}

#[tokio::test]
async fn readers_share() {
    let bench = Bench::new();
    let (one, two) = (owner("a", "10.0.0.2", 1), owner("b", "10.0.0.3", 1));
    let shared = Ask { exclusive: false, ..ALL };
    assert_eq!(bench.lock(&one, shared).await, GRANTED);
    assert_eq!(bench.lock(&two, shared).await, GRANTED);
    assert_eq!(bench.lock(&two, ALL).await, DENIED);
    assert_eq!(bench.unlock(&one, 0, 0).await, GRANTED);
    assert_eq!(bench.lock(&two, ALL).await, GRANTED);
}

#[tokio::test]
async fn refusals_say_why() {
    let bench = Bench::new();
    let one = owner("a", "10.0.0.2", 1);
    assert_eq!(bench.lock(&one, Ask { offset: 1 << 63, ..ALL }).await, 8, "FBIG");
    assert_eq!(bench.lock(&one, Ask { offset: 9, length: u64::MAX, ..ALL }).await, 8, "FBIG");
    let readonly = owner("a", "fd00::2", 1);
    assert_eq!(bench.lock(&readonly, ALL).await, 6, "ROFS");
    assert_eq!(bench.lock(&readonly, Ask { exclusive: false, ..ALL }).await, GRANTED);
    assert_eq!(bench.lock(&owner("a", "192.0.2.1", 1), ALL).await, 9, "FAILED: not in the export list");

    let mut forged = Bench::new();
    forged.handle = bytes::Bytes::from_static(&[7; 32]);
    assert_eq!(forged.lock(&one, ALL).await, 7, "STALE_FH");
    assert_eq!(forged.unlock(&one, 0, 0).await, 7, "STALE_FH");
}

#[tokio::test]
async fn during_grace_only_what_was_held_is_granted() {
    let bench = Bench::new();
    let one = owner("a", "10.0.0.2", 1);
    let reclaim = Ask { reclaim: true, ..ALL };
    assert_eq!(bench.lock(&one, reclaim).await, GRACE, "too late");
    bench.model.set_grace(true);
    assert_eq!(bench.lock(&one, ALL).await, GRACE);
    assert_eq!(bench.lock(&one, WAIT).await, GRACE);
    assert_eq!(bench.test(&one, true, 0, 0).await, [0, 0, 0, 4]);
    assert_eq!(bench.lock(&one, reclaim).await, GRANTED);
    assert_eq!(bench.unlock(&one, 0, 0).await, GRANTED);
    assert!(bench.locks().is_empty() && bench.nlm.waiters.is_empty());
}

#[tokio::test]
async fn asynchronous_requests_are_answered_by_a_call() {
    let bench = Bench::with_exports("* rw,insecure", FakeNet::new(|_| Say::Results(Vec::new())));
    let one = owner("a", "10.0.0.2", 1);
    let args = bench.lock_args(&one, ALL);
    assert_eq!(bench.call(&one, 7, &args).await, Ok(vec![]), "LOCK_MSG");
    bench.settle().await;
    let heard = bench.net.take_heard();
    assert_eq!(heard.len(), 1);
    assert_eq!((heard[0].program, heard[0].procedure), (100_021, 12), "LOCK_RES");
    assert_eq!(heard[0].to, "10.0.0.2:4045".parse().unwrap());
    assert_eq!(heard[0].from, Some("10.0.0.1".parse().unwrap()));
    assert_eq!(heard[0].args, b"\0\0\0\x02ck\0\0\0\0\0\0");
    assert_eq!(bench.locks().len(), 1);
    // And their counterparts are taken without effect.
    assert_eq!(bench.call(&one, 15, &heard[0].args).await, Ok(vec![]), "GRANTED_RES");
}

#[tokio::test]
async fn shares_are_reserved_and_given_up() {
    let bench = Bench::new();
    let ask = async |name: &'static str, procedure: u32, access: u32, deny: u32| {
        let mut w = crate::wire::xdr::Writer::new();
        w.opaque(b"ck");
        w.opaque(name.as_bytes());
        w.opaque(&bench.handle);
        w.opaque(b"owner");
        w.u32(deny);
        w.u32(access);
        w.bool(false);
        bench.call(&owner(name, "10.0.0.2", 1), procedure, &w.to_vec()).await.unwrap()[8..].to_vec()
    };
    assert_eq!(ask("a", 20, 1, 2).await, [0, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(ask("b", 20, 2, 0).await, [0, 0, 0, 1, 0, 0, 0, 0]);
    assert_eq!(ask("a", 21, 1, 2).await, [0, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(ask("b", 20, 2, 0).await, [0, 0, 0, 0, 0, 0, 0, 0]);
    bench.model.set_grace(true);
    assert_eq!(ask("b", 20, 1, 0).await, [0, 0, 0, 4, 0, 0, 0, 0]);
}

#[tokio::test]
async fn a_client_that_starts_anew_frees_all_it_had() {
    let bench = Bench::new();
    let (one, two) = (owner("a", "10.0.0.2", 1), owner("b", "10.0.0.3", 1));
    assert_eq!(bench.lock(&one, Ask { length: 5, ..ALL }).await, GRANTED);
    assert_eq!(bench.lock(&two, Ask { offset: 5, ..ALL }).await, GRANTED);
    assert_eq!(bench.lock(&one, WAIT).await, BLOCKED);
    assert_eq!(bench.call(&one, 23, b"\0\0\0\x01a\0\0\0\0\0\0\0").await, Ok(vec![]));
    assert_eq!(bench.locks(), [("b@10.0.0.3".into(), 1, false)]);
    assert!(bench.nlm.waiters.is_empty());
}

#[tokio::test]
async fn a_late_copy_of_a_call_that_was_answered_changes_nothing() {
    const SHARE: u32 = 20;
    const UNSHARE: u32 = 21;
    let bench = Bench::new();
    let (one, two) = (owner("a", "10.0.0.2", 1), owner("b", "10.0.0.3", 1));
    let share = async |xid, owner: &Owner, procedure: u32| {
        let mut w = crate::wire::xdr::Writer::new();
        w.opaque(b"ck");
        w.opaque(owner.name.as_bytes());
        w.opaque(&bench.handle);
        w.opaque(b"owner");
        w.u32(3);
        w.u32(3);
        w.bool(false);
        bench.call_as(xid, owner, procedure, &w.to_vec()).await.unwrap()[11]
    };
    assert_eq!(share(1, &one, SHARE).await, GRANTED as u8);
    assert_eq!(share(1, &one, SHARE).await, GRANTED as u8, "it stands");
    assert_eq!(share(2, &two, SHARE).await, DENIED as u8);
    assert_eq!(share(3, &one, UNSHARE).await, GRANTED as u8);
    assert_eq!(share(1, &one, SHARE).await, GRACE as u8, "it was given up");
    assert_eq!(share(2, &two, SHARE).await, GRACE as u8, "it was told no");
    assert_eq!(share(4, &one, SHARE).await, GRANTED as u8);
    assert_eq!(share(3, &one, UNSHARE).await, GRACE as u8, "it was reserved anew");
    assert_eq!(share(5, &two, SHARE).await, DENIED as u8);

    let free = async |xid| bench.call_as(xid, &one, 23, b"\0\0\0\x01a\0\0\0\0\0\0\0").await;
    assert_eq!(bench.lock(&one, ALL).await, GRANTED);
    assert_eq!(free(6).await, Ok(vec![]));
    assert!(bench.locks().is_empty());
    assert_eq!(bench.lock(&one, ALL).await, GRANTED);
    assert_eq!(free(6).await, Ok(vec![]));
    assert_eq!(bench.locks().len(), 1, "it was locked anew");

    let args = bench.lock_args(&one, WAIT);
    let cancel = async |xid| {
        let results = bench.call_as(xid, &one, 3, &args[..args.len() - 8]).await.unwrap();
        crate::nlm::proto::decode_status(&results).unwrap()
    };
    assert_eq!(bench.unlock(&one, 0, 0).await, GRANTED);
    assert_eq!(cancel(7).await, DENIED, "nothing waits");
    assert_eq!(bench.lock(&one, ALL).await, GRANTED);
    assert_eq!(cancel(7).await, GRACE, "it was locked since");
    assert_eq!(bench.locks().len(), 1);
    assert_eq!(cancel(8).await, GRANTED, "who cancels does not know that it holds");
    assert!(bench.locks().is_empty());
    assert_eq!(bench.lock(&two, ALL).await, GRANTED);
    assert_eq!(bench.lock(&one, WAIT).await, BLOCKED);
    assert_eq!(cancel(9).await, GRANTED, "it waited");
    assert_eq!(bench.unlock(&two, 0, 0).await, GRANTED);
    assert_eq!(bench.lock(&one, ALL).await, GRANTED);
    assert_eq!(cancel(9).await, GRACE, "it was locked since");
    assert_eq!(bench.locks(), [("a@10.0.0.2".into(), 1, false)]);
}

#[tokio::test]
async fn garbage_is_refused() {
    let bench = Bench::new();
    let one = owner("a", "10.0.0.2", 1);
    let good = bench.lock_args(&one, ALL);
    let mut seed = 7u64;
    for round in 0..6000u32 {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let mut args = good.clone();
        let at = (seed >> 33) as usize % args.len();
        match round % 3 {
            0 => args[at] ^= (seed >> 20) as u8,
            1 => args.truncate(at),
            _ => args = (0..at).map(|i| (seed >> (i % 50)) as u8).collect(),
        }
        let _ = bench.call(&one, round % 26, &args).await;
    }
    assert!(bench.call(&one, 16, b"").await.unwrap_err().contains("Refused(3)"), "no such procedure");
    assert!(bench.call(&one, 2, &good[..20]).await.unwrap_err().contains("Refused(4)"), "garbage");
}
