//! Who gets in, as whom: rules as clients feel them.

use std::sync::Arc;

use tarn_nfs::wire::nfs3::Status;
use tarn_vfs::model::Model;
use tarn_vfs::{Caller, FileSystem, VolumeSettings};

use crate::client::*;

const RULES: &str = "\
    10.0.1.0/24 rw,no_root_squash\n\
    10.0.2.0/24 rw\n\
    10.0.3.0/24 ro,no_root_squash\n\
    10.0.4.0/24 rw,all_squash,anonuid=77,anongid=78,insecure\n\
    build.example rw,no_root_squash\n\
    fd00::/8 rw,no_root_squash\n";

/// A server whose root directory anybody may write.
fn server() -> Server {
    let model = Arc::new(Model::with_volume());
    let root = model.volumes()[0].root;
    let set = tarn_vfs::SetAttr { mode: Some(0o777), ..Default::default() };
    assert!(matches!(model.setattr(&Caller::root(), root, set).now_or_later(), Ok(Ok(_))));
    Server::new(model, RULES)
}

/// The owner of a file that the client makes, or the status.
async fn made_by(mut client: Client) -> Result<(u32, u32), u32> {
    let root = client.server.root();
    let mut r = client.nfs(8, |w| dir_op(w, &root, "file").u32(0).sattr(Some(0o644), None)).await;
    match r.u32() {
        0 => r.made().1.map(|attr| (attr.uid, attr.gid)).ok_or(0),
        status => Err(status),
    }
}

#[tokio::test]
async fn identities_are_squashed_as_the_rule_says() {
    let acces = Err(Status::Acces as u32);
    let rofs = Err(Status::Rofs as u32);
    let cases = [
        ("10.0.1.1:700", 0, Ok((0, 0))),
        ("10.0.1.1:700", 5, Ok((5, 5))),
        ("[::ffff:10.0.1.1]:700", 0, Ok((0, 0))),
        ("10.0.1.1:1024", 0, acces),
        ("10.0.2.1:700", 0, Ok((65_534, 65_534))),
        ("10.0.2.1:700", 5, Ok((5, 5))),
        ("10.0.3.1:700", 0, rofs),
        ("10.0.4.1:50000", 0, Ok((77, 78))),
        ("10.0.4.1:50000", 5, Ok((77, 78))),
        ("10.0.5.1:700", 0, acces),
        ("[fd00::1]:700", 0, Ok((0, 0))),
        ("[fe80::1]:700", 0, acces),
    ];
    for (peer, uid, expected) in cases {
        let server = server();
        let peer = tarn_nfs::service::canonical(peer.parse().unwrap()).to_string();
        // Names are known before the first call of a server that has been up for a moment.
        tokio::time::sleep(std::time::Duration::from_millis(60)).await;
        assert_eq!(made_by(server.client().from(&peer).user(uid, uid)).await, expected, "{peer} as {uid}");
    }
}

#[tokio::test]
async fn a_host_name_lets_in_once_it_is_known() {
    let server = server();
    let mut client = server.client().from("192.0.2.7:700");
    assert_eq!(made_by(client.clone()).await, Err(Status::Jukebox as u32));
    tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    // A client asks again under another number.
    client.xid += 1;
    assert_eq!(made_by(client).await, Ok((0, 0)));
    assert_eq!(made_by(server.client().from("192.0.2.8:700")).await, Err(Status::Acces as u32));
}

#[tokio::test]
async fn a_read_only_export_grants_no_change() {
    let server = server();
    let mut client = server.client().from("10.0.3.1:700");
    let root = server.root();
    let mut r = client
        .nfs(4, |w| {
            w.opaque(&root);
            w.u32(0x3f);
        })
        .await;
    r.u32();
    r.attr();
    assert_eq!(r.u32() & 0x1c, 0);
    assert!(client.lookup(&root, ".").await.is_ok());
}

#[tokio::test]
async fn a_volume_with_rules_of_its_own_does_not_follow_the_default() {
    let model = Model::with_volume();
    let settings = VolumeSettings { exports: "10.9.0.0/16 ro".into(), ..Default::default() };
    let volume = model.add_volume("other", settings, &Caller::root());
    let broken = VolumeSettings { exports: "* perhaps".into(), ..Default::default() };
    let broken = model.add_volume("broken", broken, &Caller::root());
    let key = model.handle_key();
    let server = Server::new(Arc::new(model), "* rw,insecure");
    let status = async |peer: &str, node| {
        let handle = key.sign(node).0;
        server.client().from(peer).nfs(1, |w| w.opaque(&handle)).await.u32()
    };
    assert_eq!(status("10.9.0.1:700", volume.root).await, 0);
    assert_eq!(status("10.8.0.1:700", volume.root).await, Status::Acces as u32);
    assert_eq!(status("10.8.0.1:700", server.fs.volumes()[0].root).await, 0);
    assert_eq!(status("10.9.0.1:700", broken.root).await, Status::Acces as u32, "rules in error let nobody in");
}

#[tokio::test]
async fn without_a_credential_there_is_only_null() {
    use tarn_nfs::wire::rpc::{Call, ReplyBody, decode_reply};
    let server = Server::open();
    for (procedure, expected) in [(0, ReplyBody::Success(&[])), (1, ReplyBody::Denied)] {
        let mut w = Args::new();
        Call::encode(&mut w, 1, NFS.0, NFS.1, procedure, None);
        if procedure == 1 {
            w.opaque(&server.root());
        }
        let reply = server.client().send(w.to_vec()).await.unwrap();
        assert_eq!(decode_reply(&reply).unwrap().1, expected);
    }
}
