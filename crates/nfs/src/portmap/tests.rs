//! The port mapper as clients meet it, byte for byte.

use std::net::SocketAddr;
use std::sync::Arc;

use tarn_vfs::model::Model;

use super::proto::{Binding, Mapping};
use super::{PROGRAM, Portmap, Table};
use crate::peer::fake;
use crate::server::{Settings, Shared, answer_datagram};
use crate::service::Transport;
use crate::wire::rpc::{self, Call, ReplyBody};
use crate::wire::xdr::Writer;

const NFS: u32 = 100_003;
const NLM: u32 = 100_021;

fn shared() -> Arc<Shared> {
    let mut table = Table::new();
    let (nfs, port): (SocketAddr, SocketAddr) = ("[::]:2049".parse().unwrap(), "127.0.0.1:111".parse().unwrap());
    table.register(PROGRAM, 2..=2, Transport::Udp, port);
    table.register(NFS, 3..=3, Transport::Tcp, nfs);
    table.register(NLM, 4..=4, Transport::Tcp, nfs);
    let (world, _) = fake::world();
    let portmap = Arc::new(Portmap::new(table, world.clone()));
    Shared::new(Arc::new(Model::with_volume()), vec![portmap], world, Settings::default())
}

async fn send(shared: &Shared, peer: &str, message: &[u8]) -> Option<Vec<u8>> {
    answer_datagram(shared, peer.parse().unwrap(), message.to_vec().into()).await
}

async fn ask(version: u32, procedure: u32, args: &[u8]) -> Result<Vec<u8>, String> {
    let mut w = Writer::new();
    Call::encode(&mut w, 5, PROGRAM, version, procedure, None);
    let message = [&w.to_vec()[..], args].concat();
    let peer = if version == 2 { "10.0.0.9:800" } else { "[fd00::9]:800" };
    let reply = send(&shared(), peer, &message).await.ok_or("no reply")?;
    match rpc::decode_reply(&reply) {
        Ok((5, ReplyBody::Success(results))) => Ok(results.to_vec()),
        other => Err(format!("{other:?}")),
    }
}

#[tokio::test]
async fn rpcinfo_is_given_the_list() {
    // What `rpcinfo -p` sends: DUMP of version 2, no credentials.
    let question =
        b"\x12\x34\x56\x78\0\0\0\0\0\0\0\x02\0\x01\x86\xa0\0\0\0\x02\0\0\0\x04\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0";
    let answer = b"\x12\x34\x56\x78\0\0\0\x01\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\
        \0\0\0\x01\0\x01\x86\xa0\0\0\0\x02\0\0\0\x11\0\0\0\x6f\
        \0\0\0\x01\0\x01\x86\xa3\0\0\0\x03\0\0\0\x06\0\0\x08\x01\
        \0\0\0\x01\0\x01\x86\xb5\0\0\0\x04\0\0\0\x06\0\0\x08\x01\
        \0\0\0\0";
    assert_eq!(send(&shared(), "127.0.0.1:700", question).await.unwrap(), answer);
}

#[tokio::test]
async fn getport_finds_what_is_served_and_nothing_else() {
    let port = async |program, version, protocol| {
        let mut w = Writer::new();
        Mapping { program, version, protocol, port: 0 }.encode(&mut w);
        ask(2, 3, &w.to_vec()).await.unwrap()
    };
    assert_eq!(port(NLM, 4, 6).await, [0, 0, 8, 1]);
    assert_eq!(port(NLM, 4, 17).await, [0; 4], "not over UDP");
    assert_eq!(port(NFS, 4, 6).await, [0, 0, 8, 1], "the program itself says which versions it has");
    assert_eq!(port(100_005, 3, 6).await, [0; 4]);
    assert_eq!(port(NFS, 3, 99).await, [0; 4]);
}

#[tokio::test]
async fn getaddr_answers_with_the_address_that_the_caller_used() {
    let address = async |procedure, version, netid: &str, address: &str| {
        let mut w = Writer::new();
        let (netid, address) = (netid.as_bytes(), address.as_bytes());
        Binding { program: NFS, version, netid, address, owner: b"" }.encode(&mut w);
        ask(4, procedure, &w.to_vec()).await.map(|results| String::from_utf8(results[4..].to_vec()).unwrap())
    };
    let is = |text: &str| Ok(format!("{text}{}", "\0".repeat(text.len().wrapping_neg() & 3)));
    assert_eq!(address(3, 3, "tcp6", "fd00::1.0.111").await, is("fd00::1.8.1"));
    assert_eq!(address(3, 3, "tcp", "10.0.0.1.0.111").await, is("10.0.0.1.8.1"));
    assert_eq!(address(3, 3, "tcp", "fd00::1.0.111").await, is("0.0.0.0.8.1"), "a hint of the wrong family");
    assert_eq!(address(3, 3, "udp", "10.0.0.1.0.111").await, is(""));
    assert_eq!(address(3, 3, "local", "").await, is(""));
    assert_eq!(address(3, 4, "tcp", "10.0.0.1.0.111").await, is("10.0.0.1.8.1"));
    assert_eq!(address(9, 4, "tcp", "10.0.0.1.0.111").await, is(""), "GETVERSADDR asks for that version only");
}

#[tokio::test]
async fn nobody_changes_the_list_or_hides_behind_us() {
    let mut w = Writer::new();
    Mapping { program: NFS, version: 3, protocol: 6, port: 9 }.encode(&mut w);
    let mapping = w.to_vec();
    assert_eq!(ask(2, 1, &mapping).await, Ok(vec![0; 4]), "SET");
    assert_eq!(ask(2, 2, &mapping).await, Ok(vec![0; 4]), "UNSET");
    assert_eq!(ask(2, 5, &mapping).await, Err("Ok((5, Refused(3)))".into()), "CALLIT");
    assert_eq!(ask(4, 5, &mapping).await, Err("Ok((5, Refused(3)))".into()), "BCAST");
    assert_eq!(ask(4, 10, &mapping).await, Err("Ok((5, Refused(3)))".into()), "INDIRECT");
    assert_eq!(ask(3, 9, &mapping).await, Err("Ok((5, Refused(3)))".into()), "GETVERSADDR is version 4's");
    assert_eq!(ask(2, 0, b"").await, Ok(vec![]));
    assert_eq!(ask(3, 6, b"").await, Ok(1_000_000_000u32.to_be_bytes().to_vec()), "GETTIME");
    assert_eq!(ask(5, 0, b"").await, Err("Ok((5, Refused(2)))".into()));
}

#[tokio::test]
async fn garbage_is_refused_or_dropped() {
    let shared = shared();
    let mut seed = 1u64;
    for round in 0..5000u32 {
        let mut w = Writer::new();
        Call::encode(&mut w, round, PROGRAM, 2 + round % 3, round % 12, None);
        let mut message = w.to_vec();
        for _ in 0..round % 40 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            message.push((seed >> 33) as u8 & if seed & 64 == 0 { 0x0f } else { 0xff });
        }
        if round % 7 == 0 {
            let at = seed as usize % message.len();
            message.truncate(at);
        }
        send(&shared, "10.0.0.9:800", &message).await;
    }
    assert_eq!(send(&shared, "10.0.0.9:800", b"").await, None);
    assert_eq!(ask(2, 3, &[0; 15]).await, Err("Ok((5, Refused(4)))".into()));
    assert_eq!(ask(4, 3, &[0xff; 40]).await, Err("Ok((5, Refused(4)))".into()));
}
