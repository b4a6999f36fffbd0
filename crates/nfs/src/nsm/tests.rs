//! Notices of restarts, in both directions.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tarn_vfs::FileSystem;

use super::proto::Notice;
use super::{Nsm, PROGRAM, VERSION, notify_clients, state_number};
use crate::nlm::bench::{ALL, Ask, BLOCKED, Bench, GRANTED, Owner, WAIT, owner};
use crate::peer::Outbound;
use crate::peer::fake::{Say, settle};
use crate::server::{Settings, Shared, answer_datagram};
use crate::service::Transport;
use crate::wire::rpc::{self, Call, ReplyBody};
use crate::wire::xdr::Writer;

struct Monitor {
    bench: Bench,
    shared: Arc<Shared>,
}

fn monitor() -> Monitor {
    let bench = Bench::new();
    let nsm = Arc::new(Nsm::new(bench.model.clone(), bench.nlm.clone()));
    let shared = Shared::new(bench.model.clone(), vec![nsm], bench.world.clone(), Settings::default());
    Monitor { bench, shared }
}

impl Monitor {
    async fn call(&self, from: &str, procedure: u32, args: &[u8]) -> Result<Vec<u8>, String> {
        let mut w = Writer::new();
        Call::encode(&mut w, 3, PROGRAM, VERSION, procedure, None);
        let message = [&w.to_vec()[..], args].concat();
        let from: SocketAddr = from.parse().unwrap();
        let reply = answer_datagram(&self.shared, from, message.into()).await.ok_or("no reply")?;
        match rpc::decode_reply(&reply) {
            Ok((3, ReplyBody::Success(results))) => Ok(results.to_vec()),
            other => Err(format!("{other:?}")),
        }
    }

    async fn notice(&self, from: &str, name: &str, state: u32) {
        let args = Notice { name: name.as_bytes(), state }.encode();
        assert_eq!(self.call(from, 6, &args).await, Ok(vec![]));
        settle().await;
    }
}

fn guest(state: u32) -> Owner {
    Owner { state, ..owner("guest", "10.0.0.2", 7) }
}

const FIRST: Ask = Ask { length: 10, ..ALL };
const SECOND: Ask = Ask { offset: 20, length: 10, ..ALL };

#[tokio::test]
async fn a_restarted_client_loses_its_old_locks_and_no_others() {
    let m = monitor();
    let clone = owner("guest", "10.0.0.3", 7);
    assert_eq!(m.bench.lock(&guest(3), FIRST).await, GRANTED);
    assert_eq!(m.bench.lock(&clone, SECOND).await, GRANTED);
    assert_eq!(m.bench.lock(&guest(3), Ask { block: true, ..SECOND }).await, BLOCKED);
    m.notice("10.0.0.2:800", "guest.example.org", 5).await;
    assert_eq!(m.bench.locks(), [("guest@10.0.0.3".into(), 7, false)]);

    assert_eq!(m.bench.lock(&guest(5), FIRST).await, GRANTED);
    m.notice("10.0.0.2:801", "guest", 5).await;
    assert_eq!(m.bench.locks().len(), 2, "a late notice does not touch the new life's locks");
}

#[tokio::test]
async fn locks_of_two_lives_are_told_apart() {
    let m = monitor();
    assert_eq!(m.bench.lock(&guest(3), FIRST).await, GRANTED);
    let reborn = Owner { process: 8, ..guest(5) };
    assert_eq!(m.bench.lock(&reborn, SECOND).await, GRANTED, "before the notice arrives");
    m.notice("10.0.0.2:800", "guest", 5).await;
    assert_eq!(m.bench.locks(), [("guest@10.0.0.2".into(), 8, false)]);
}

#[tokio::test]
async fn a_repeated_notice_does_nothing_even_if_locks_bear_no_number() {
    let m = monitor();
    assert_eq!(m.bench.lock(&guest(0), FIRST).await, GRANTED);
    m.notice("10.0.0.2:800", "guest", 5).await;
    assert!(m.bench.locks().is_empty());
    assert_eq!(m.bench.lock(&guest(0), FIRST).await, GRANTED);
    m.notice("10.0.0.2:800", "guest", 5).await;
    assert_eq!(m.bench.locks().len(), 1);
    m.notice("10.0.0.2:800", "guest", 7).await;
    assert!(m.bench.locks().is_empty());
}

#[tokio::test]
async fn a_client_that_moved_is_believed_when_its_old_address_is_silent() {
    for (port, alive, left) in [(800, true, 1), (1024, false, 1), (800, false, 0)] {
        let m = monitor();
        assert_eq!(m.bench.lock(&guest(3), FIRST).await, GRANTED);
        if alive {
            m.bench.net.script(|_| Say::Results(Vec::new()));
        } else {
            m.bench.net.dead.lock().push("10.0.0.2".parse().unwrap());
        }
        m.notice(&format!("10.0.0.77:{port}"), "guest", 5).await;
        assert_eq!(m.bench.locks().len(), left, "port {port}, old address alive: {alive}");
    }
}

#[tokio::test]
async fn nobody_makes_us_monitor_or_forget() {
    let m = monitor();
    assert_eq!(m.bench.lock(&guest(3), FIRST).await, GRANTED);
    let state = state_number(m.bench.model.as_ref());
    let answer = [1u32.to_be_bytes(), state.to_be_bytes()].concat();
    assert_eq!(m.call("10.0.0.9:800", 1, b"\0\0\0\0").await, Ok(answer.clone()), "STAT");
    assert_eq!(m.call("10.0.0.9:800", 2, b"").await, Ok(answer), "MON");
    assert_eq!(m.call("10.0.0.9:800", 4, b"").await, Ok(state.to_be_bytes().to_vec()), "UNMON_ALL");
    assert_eq!(m.call("127.0.0.1:800", 5, b"").await, Err("Ok((3, Denied))".into()), "SIMU_CRASH");
    assert_eq!(m.call("10.0.0.9:800", 6, b"\0\0\0\x09x").await, Err("Ok((3, Refused(4)))".into()));
    assert_eq!(m.call("10.0.0.9:800", 7, b"").await, Err("Ok((3, Refused(3)))".into()));
    assert_eq!(m.bench.locks().len(), 1);
}

#[tokio::test]
async fn after_a_loss_every_holder_is_told_until_it_hears() {
    let bench = Bench::new();
    assert_eq!(bench.lock(&guest(3), FIRST).await, GRANTED);
    assert_eq!(bench.lock(&owner("deaf", "10.0.0.5", 1), SECOND).await, GRANTED);
    assert_eq!(bench.lock(&owner("waits", "10.0.0.6", 1), WAIT).await, BLOCKED);
    let before = state_number(bench.model.as_ref());
    bench.model.lose_session_state();
    let state = state_number(bench.model.as_ref());
    assert!(state > before && state % 2 == 1);

    let mut lost = 0;
    bench.net.script(move |heard| {
        lost += 1;
        let deaf = heard.to.ip().to_string() == "10.0.0.5";
        if deaf || lost < 8 { Say::Silence } else { Say::Results(Vec::new()) }
    });
    let outbound = Arc::new(Outbound::new(Arc::new(bench.net.clone()), bench.world.clone()));
    let told = notify_clients(bench.model.clone(), outbound, bench.world.clone(), vec!["filer".into()]);
    #[allow(clippy::disallowed_methods)]
    let told = tokio::spawn(told);
    bench.clock.pass(Duration::from_secs(120)).await;
    let left: Vec<_> = bench.model.clients_to_notify().into_iter().map(|(client, _)| client).collect();
    assert_eq!(left, ["deaf@10.0.0.5"]);
    assert!(!told.is_finished());
    let heard = bench.net.take_heard();
    let to_guest = |name: &[u8]| {
        let args = Notice { name, state }.encode();
        let asked = (100_024, 6, Transport::Udp);
        heard.iter().any(|h| {
            (h.program, h.procedure, h.transport) == asked
                && h.args == args
                && h.to == "10.0.0.2:4045".parse().unwrap()
                && h.from == Some("10.0.0.1".parse().unwrap())
        })
    };
    assert!(to_guest(b"filer") && to_guest(b"10.0.0.1"));

    bench.clock.pass(Duration::from_secs(1000)).await;
    assert!(told.is_finished(), "given up");
    assert!(bench.model.clients_to_notify().is_empty());
}
