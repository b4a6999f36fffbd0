//! Messages byte for byte, laid out by hand from RFC 5531 and RFC 1813.

use std::sync::Arc;

use tarn_base::ids::Ino;
use tarn_vfs::Node;
use tarn_vfs::model::Model;

use crate::client::*;

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

/// xid 0x11223344, CALL, RPC 2, and then AUTH_SYS: stamp 9, "ab", uid 0, gid 0, groups 0 and 4; AUTH_NONE.
fn call(program: u32, version: u32, procedure: u32) -> Vec<u8> {
    [
        words(&[0x1122_3344, 0, 2, program, version, procedure, 1, 32, 9, 2]),
        b"ab\0\0".to_vec(),
        words(&[0, 0, 2, 0, 4, 0, 0]),
    ]
    .concat()
}

const ACCEPTED: [u32; 5] = [0x1122_3344, 1, 0, 0, 0];

#[tokio::test]
async fn null() {
    let reply = Server::open().client().send(call(100_003, 3, 0)).await.unwrap();
    assert_eq!(reply, words(&[&ACCEPTED[..], &[0]].concat()));
}

#[tokio::test]
async fn refusals_of_rpc() {
    let client = Server::open().client();
    let reply = async |message: Vec<u8>| client.send(message).await.unwrap();
    assert_eq!(reply(call(100_227, 3, 0)).await, words(&[&ACCEPTED[..], &[1]].concat()), "NFSACL");
    assert_eq!(reply(call(100_003, 4, 1)).await, words(&[&ACCEPTED[..], &[2, 3, 3]].concat()), "NFSv4");
    assert_eq!(reply(call(100_003, 3, 22)).await, words(&[&ACCEPTED[..], &[3]].concat()));
    assert_eq!(reply(call(100_003, 3, 1)).await, words(&[&ACCEPTED[..], &[4]].concat()), "no arguments");
    let mut other = call(100_003, 3, 0);
    other[11] = 3;
    assert_eq!(reply(other).await, words(&[0x1122_3344, 1, 1, 0, 2, 2]), "RPC version 3");
    let gss = words(&[0x1122_3344, 0, 2, 100_003, 3, 1, 6, 0, 0, 0]);
    assert_eq!(reply(gss).await, words(&[0x1122_3344, 1, 1, 1, 1]), "RPCSEC_GSS: AUTH_BADCRED");
    let none = words(&[0x1122_3344, 0, 2, 100_003, 3, 1, 0, 0, 0, 0]);
    assert_eq!(reply(none).await, words(&[0x1122_3344, 1, 1, 1, 5]), "AUTH_NONE: AUTH_TOOWEAK");
}

#[tokio::test]
async fn getattr_of_a_root() {
    let server = Server::new(Arc::new(Model::with_volume()), "* rw,no_root_squash,insecure");
    let volume = &server.fs.volumes()[0];
    let attr = server.client().getattr(&server.root()).await;
    let message = [call(100_003, 3, 1), words(&[32]), server.root()].concat();
    let reply = server.client().send(message).await.unwrap();
    let high_low = |v: u64| [(v >> 32) as u32, v as u32];
    let [fsid_high, fsid_low] = high_low(volume.fsid);
    let [ino_high, ino_low] = high_low(volume.root.ino.0);
    let [size_high, size_low] = high_low(attr.size);
    let [used_high, used_low] = high_low(attr.used);
    let expected = [
        &ACCEPTED[..],
        &[0],                                              // SUCCESS
        &[0],                                              // NFS3_OK
        &[2, attr.mode, attr.links, 0, 0],                 // NF3DIR, mode, nlink, uid, gid
        &[size_high, size_low, used_high, used_low, 0, 0], // size, used, rdev
        &[fsid_high, fsid_low, ino_high, ino_low],
        &[attr.atime.seconds, attr.atime.nanos],
        &[attr.mtime.seconds, attr.mtime.nanos],
        &[attr.ctime.seconds, attr.ctime.nanos],
    ]
    .concat();
    assert_eq!(reply, words(&expected));
}

#[tokio::test]
async fn getattr_of_what_never_was() {
    let server = Server::open();
    let root = server.fs.volumes()[0].root;
    let handle = server.fs.handle_key().sign(Node { ino: Ino(999_999), ..root }).0;
    let message = [call(100_003, 3, 1), words(&[32]), handle.to_vec()].concat();
    let reply = server.client().send(message).await.unwrap();
    assert_eq!(reply, words(&[&ACCEPTED[..], &[0, 70]].concat()));
}

#[tokio::test]
async fn lookup_of_nothing_with_the_directorys_attributes() {
    let server = Server::open();
    let message = [call(100_003, 3, 3), words(&[32]), server.root(), words(&[3]), b"abc\0".to_vec()].concat();
    let reply = server.client().send(message).await.unwrap();
    assert_eq!(reply[..36], words(&[&ACCEPTED[..], &[0, 2, 1, 2]].concat()));
    assert_eq!(reply.len(), 24 + 4 + 4 + 84);
}

#[tokio::test]
async fn mount_of_a_volume() {
    let server = Server::open();
    let message = [call(100_005, 3, 1), words(&[4]), b"/vol".to_vec()].concat();
    let reply = server.client().send(message).await.unwrap();
    let expected = [words(&[&ACCEPTED[..], &[0, 0, 32]].concat()), server.root(), words(&[1, 1])].concat();
    assert_eq!(reply, expected);
}
