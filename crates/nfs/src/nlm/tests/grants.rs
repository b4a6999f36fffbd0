//! Blocking locks: who is told what, and what a client's answer does.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;

use super::bench::*;
use crate::nlm::proto::{Request, encode_granted};
use crate::peer::fake::{FakeNet, Heard, Say};
use crate::service::Transport;

fn one() -> Owner {
    owner("a", "10.0.0.2", 1)
}

fn two() -> Owner {
    owner("b", "10.0.0.3", 2)
}

fn says(answer: u32) -> impl FnMut(&Heard) -> Say {
    move |heard| Say::Results(status(heard, answer))
}

/// One holds the file, two waits for it.
async fn contended() -> Bench {
    let bench = Bench::new();
    assert_eq!(bench.lock(&one(), ALL).await, GRANTED);
    assert_eq!(bench.lock(&two(), WAIT).await, BLOCKED);
    bench
}

fn held(by: &Owner) -> (String, u32, bool) {
    (format!("{}@{}", by.name, by.address), by.process, false)
}

#[tokio::test]
async fn a_grant_is_told_once_to_the_right_place_in_the_right_words() {
    let bench = contended().await;
    bench.net.script(says(GRANTED));
    assert_eq!(bench.lock(&two(), WAIT).await, BLOCKED, "asking again changes nothing");
    assert_eq!(bench.locks().len(), 2);
    assert_eq!(bench.unlock(&one(), 0, 0).await, GRANTED);
    bench.clock.pass(Duration::from_secs(300)).await;
    let heard = bench.net.take_heard();
    let [heard] = &heard[..] else { panic!("once, not {}", heard.len()) };
    assert_eq!((heard.program, heard.procedure, heard.transport), (100_021, 5, Transport::Udp));
    assert_eq!((heard.to, heard.from), ("10.0.0.3:4045".parse().unwrap(), Some("10.0.0.1".parse().unwrap())));
    let Ok(Some(Request::Granted(ask))) = Request::decode(5, &heard.args) else { panic!("a grant") };
    assert_eq!(heard.args, encode_granted(&ask.cookie, true, &bench.range(&two(), 0, 0)));
    assert_eq!(bench.locks(), [held(&two())]);
    assert!(bench.nlm.waiters.is_empty());
}

#[tokio::test]
async fn a_silent_client_is_told_again_over_either_transport_until_it_answers() {
    let bench = contended().await;
    let mut times = 0;
    bench.net.script(move |heard| {
        times += 1;
        if times < 14 || heard.transport == Transport::Tcp { Say::Silence } else { Say::Results(status(heard, 0)) }
    });
    bench.unlock(&one(), 0, 0).await;
    bench.clock.pass(Duration::from_secs(100)).await;
    let heard = bench.net.take_heard();
    assert!(heard.iter().any(|heard| heard.transport == Transport::Tcp), "the other transport is tried");
    assert!(heard.len() >= 14 && bench.nlm.waiters.is_empty());
    assert_eq!(bench.locks(), [held(&two())]);
}

#[tokio::test]
async fn a_client_that_says_no_loses_the_lock_to_the_next() {
    let bench = contended().await;
    let three = owner("c", "10.0.0.4", 3);
    assert_eq!(bench.lock(&three, WAIT).await, BLOCKED);
    bench.net.script(|heard| {
        let answer = if heard.to.ip().to_string() == "10.0.0.3" { DENIED } else { GRANTED };
        Say::Results(status(heard, answer))
    });
    bench.unlock(&one(), 0, 0).await;
    bench.settle().await;
    assert_eq!(bench.locks(), [held(&three)]);
    assert!(bench.nlm.waiters.is_empty());
}

#[tokio::test]
async fn a_client_that_cannot_be_reached_loses_the_lock() {
    for refused in [false, true] {
        let bench = contended().await;
        if refused {
            bench.net.script(|_| Say::Refuse);
        } else {
            bench.net.dead.lock().push("10.0.0.3".parse().unwrap());
        }
        bench.unlock(&one(), 0, 0).await;
        bench.clock.pass(Duration::from_secs(60)).await;
        assert_eq!(bench.locks(), [held(&two())], "patience");
        bench.clock.pass(Duration::from_secs(120)).await;
        assert!(bench.locks().is_empty() && bench.nlm.waiters.is_empty());
    }
}

#[tokio::test]
async fn a_client_that_asks_again_is_told_by_the_answer_and_keeps_the_lock() {
    let bench = contended().await;
    let release = Arc::new(Notify::new());
    let late = release.clone();
    bench.net.script(move |heard| Say::Held(late.clone(), status(heard, DENIED)));
    bench.unlock(&one(), 0, 0).await;
    bench.settle().await;
    assert_eq!(bench.lock(&two(), WAIT).await, GRANTED, "while the callback is under way");
    release.notify_one();
    bench.clock.pass(Duration::from_secs(300)).await;
    assert_eq!(bench.locks(), [held(&two())], "its no was about something it knew already");
    assert!(bench.nlm.waiters.is_empty());
}

/// The same call again, as after a connection that broke before its answer.
async fn ask_as(bench: &Bench, xid: u32, owner: &Owner) -> u32 {
    let results = bench.call_as(xid, owner, 2, &bench.lock_args(owner, WAIT)).await.unwrap();
    crate::nlm::proto::decode_status(&results).unwrap()
}

#[tokio::test]
async fn a_client_whose_call_came_again_and_was_answered_keeps_the_lock() {
    for silent in [false, true] {
        let bench = Bench::new();
        assert_eq!(bench.lock(&one(), ALL).await, GRANTED);
        assert_eq!(ask_as(&bench, 7, &two()).await, BLOCKED);
        let release = Arc::new(Notify::new());
        let late = release.clone();
        bench.net.script(move |heard| match silent {
            true => Say::Silence,
            false => Say::Held(late.clone(), status(heard, DENIED)),
        });
        bench.unlock(&one(), 0, 0).await;
        bench.settle().await;
        assert_eq!(ask_as(&bench, 7, &two()).await, GRANTED, "while the callback is under way");
        release.notify_one();
        bench.clock.pass(Duration::from_secs(300)).await;
        assert_eq!(bench.locks(), [held(&two())], "it may have heard that answer");
        assert!(!bench.net.take_heard().is_empty(), "it is told all the same");
        assert_eq!(bench.unlock(&two(), 0, 0).await, GRANTED);
        assert!(bench.locks().is_empty() && bench.nlm.waiters.is_empty());
    }
}

#[tokio::test]
async fn a_no_after_an_unanswered_call_does_not_release() {
    let bench = contended().await;
    let mut times = 0;
    bench.net.script(move |heard| {
        times += 1;
        if times == 1 { Say::Silence } else { Say::Results(status(heard, DENIED)) }
    });
    bench.unlock(&one(), 0, 0).await;
    bench.clock.pass(Duration::from_secs(300)).await;
    assert_eq!(bench.net.take_heard().len(), 2);
    assert_eq!(bench.locks(), [held(&two())], "it may have said yes the first time");
    assert_eq!(bench.cancel(&two(), WAIT).await, GRANTED, "it had not");
    assert!(bench.locks().is_empty() && bench.nlm.waiters.is_empty());
}

#[tokio::test]
async fn a_cancel_ends_waiting_wherever_the_grant_is() {
    let bench = contended().await;
    assert_eq!(bench.cancel(&two(), WAIT).await, GRANTED, "queued");
    assert_eq!(bench.locks(), [held(&one())]);
    assert_eq!(bench.cancel(&two(), WAIT).await, DENIED, "nothing to cancel");

    assert_eq!(bench.lock(&two(), WAIT).await, BLOCKED);
    bench.unlock(&one(), 0, 0).await;
    bench.settle().await;
    assert_eq!(bench.locks(), [held(&two())], "granted, not delivered");
    assert_eq!(bench.cancel(&two(), WAIT).await, GRANTED);
    assert!(bench.locks().is_empty());

    assert_eq!(bench.lock(&two(), WAIT).await, GRANTED);
    assert_eq!(bench.cancel(&two(), WAIT).await, GRANTED, "the answer was lost, and the program killed");
    assert!(bench.locks().is_empty());

    let shared = Ask { exclusive: false, ..ALL };
    assert_eq!(bench.lock(&two(), shared).await, GRANTED);
    assert_eq!(bench.cancel(&two(), WAIT).await, DENIED, "what it holds is another lock");
    assert_eq!(bench.locks(), [held(&two())]);
    assert!(bench.nlm.waiters.is_empty());
}

#[tokio::test]
async fn who_waits_is_known_after_a_restart() {
    let before = contended().await;
    let bench = before.restarted();
    bench.net.script(says(GRANTED));
    before.net.take_heard();
    bench.unlock(&one(), 0, 0).await;
    bench.settle().await;
    assert_eq!(bench.net.take_heard().len(), 1);
    assert_eq!(bench.locks(), [held(&two())]);
}

#[tokio::test]
async fn clients_of_ipv6_are_found_by_rpcbind() {
    let bench = Bench::with_exports("* rw", FakeNet::new(says(GRANTED)));
    let six = owner("six", "fd00::6", 6);
    assert_eq!(bench.lock(&one(), ALL).await, GRANTED);
    assert_eq!(bench.lock(&six, WAIT).await, BLOCKED);
    *bench.net.registered.lock() = vec![Transport::Tcp];
    bench.unlock(&one(), 0, 0).await;
    bench.settle().await;
    let heard = bench.net.take_heard();
    assert_eq!(heard.len(), 1);
    assert_eq!((heard[0].to, heard[0].transport), ("[fd00::6]:4045".parse().unwrap(), Transport::Tcp));
}
