//! What `--portmap` makes reachable on port 111: asked as clients ask. Needs root, and the port to itself.

mod common;

use std::net::UdpSocket;
use std::time::Duration;

use common::Place;
use common::server::Server;
use tarn_nfs::wire::rpc::{Call, ReplyBody, decode_reply};
use tarn_nfs::wire::xdr::{Reader, Writer};

/// The port of a program over a protocol (6 is TCP, 17 UDP), 0 if there is none.
fn port_of(socket: &UdpSocket, program: u32, version: u32, protocol: u32) -> u32 {
    let mut w = Writer::new();
    Call::encode(&mut w, program ^ protocol, 100_000, 2, 3, None);
    for v in [program, version, protocol, 0] {
        w.u32(v);
    }
    socket.send_to(&w.to_vec(), "127.0.0.1:111").unwrap();
    let mut buffer = [0; 1024];
    let len = socket.recv(&mut buffer).unwrap();
    match decode_reply(&buffer[..len]).unwrap() {
        (xid, ReplyBody::Success(bytes)) if xid == program ^ protocol => Reader::new(bytes).u32().unwrap(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn every_program_is_found_and_answers() {
    if UdpSocket::bind("127.0.0.1:111").is_err() {
        println!("SKIPPED every_program_is_found_and_answers: needs root, and port 111 to itself");
        return;
    }
    let place = Place::new();
    let server = Server::start(&place, &["--portmap"]);
    assert!(!server.banner.contains("nolock"), "{}", server.banner);
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let nfs = u32::from(server.nfs.port());
    for (program, version, tcp, udp) in [
        (100_003, 3, nfs, 0),
        (100_005, 3, nfs, nfs),
        (100_021, 4, nfs, nfs),
        (100_024, 1, 111, 111),
        (100_000, 2, 111, 111),
    ] {
        assert_eq!(port_of(&socket, program, version, 6), tcp, "{program} by TCP");
        assert_eq!(port_of(&socket, program, version, 17), udp, "{program} by UDP");
        if udp != 0 {
            let mut w = Writer::new();
            Call::encode(&mut w, 1, program, version, 0, None);
            socket.send_to(&w.to_vec(), ("127.0.0.1", udp as u16)).unwrap();
            let mut buffer = [0; 1024];
            let len = socket.recv(&mut buffer).unwrap();
            assert!(matches!(decode_reply(&buffer[..len]), Ok((1, ReplyBody::Success(b"")))), "NULL of {program}");
        }
    }
    server.stop();
}
