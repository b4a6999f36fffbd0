//! MOUNT: from a path to a handle.

use std::sync::Arc;

use tarn_nfs::wire::mount3::Status;
use tarn_vfs::model::Model;
use tarn_vfs::{Caller, VolumeSettings};

use crate::client::*;

async fn mount(client: &mut Client, path: &str) -> Result<Vec<u8>, u32> {
    let mut r = client.call(MOUNT, 1, |w| w.opaque(path.as_bytes())).await;
    match r.u32() {
        0 => {
            let handle = r.opaque();
            assert_eq!((r.u32(), r.u32()), (1, 1), "one flavor: AUTH_SYS");
            r.end();
            Ok(handle)
        }
        status => {
            r.end();
            Err(status)
        }
    }
}

#[tokio::test]
async fn volumes_and_their_directories_are_mounted() {
    let server = Server::open();
    let mut client = server.client();
    let dir = client.mkdir(&server.root(), "some").await;
    let inner = client.mkdir(&dir, "dir").await;
    client.create(&dir, "file").await;
    assert_eq!(mount(&mut client, "/vol").await, Ok(server.root()));
    assert_eq!(mount(&mut client, "/vol/some/dir/").await, Ok(inner));
    assert_eq!(mount(&mut client, "/").await, Ok(server.root()), "there is one volume");
    let cases = [
        ("/other", Status::NoEnt),
        ("/vol/none", Status::NoEnt),
        ("/vol/some/file", Status::NotDir),
        ("/vol/some/file/x", Status::NotDir),
        ("/vol/../vol", Status::Inval),
        ("vol", Status::Inval),
    ];
    for (path, status) in cases {
        assert_eq!(mount(&mut client, path).await, Err(status as u32), "{path}");
    }
}

#[tokio::test]
async fn a_directory_that_the_client_may_not_enter_is_mounted_all_the_same() {
    let server = Server::new(Arc::new(Model::with_volume()), "* rw,insecure");
    let open = Server::new(server.fs.clone(), "* rw,no_root_squash,insecure");
    let mut root = open.client();
    let mut r = root.nfs(9, |w| dir_op(w, &server.root(), "closed").sattr(Some(0o700), None)).await;
    assert_eq!(r.u32(), 0);
    let closed = r.made().0.unwrap();
    let inner = root.mkdir(&closed, "inner").await;
    assert_eq!(mount(&mut server.client(), "/vol/closed/inner").await, Ok(inner));
}

#[tokio::test]
async fn who_may_not_mount_learns_nothing() {
    let server = Server::new(Arc::new(Model::with_volume()), "10.0.0.1 rw\nbuild.example rw");
    let mut client = server.client().from("10.0.0.2:700");
    assert_eq!(mount(&mut client, "/vol").await, Err(Status::Acces as u32));
    assert_eq!(mount(&mut client, "/vol/none").await, Err(Status::Acces as u32));
    let mut named = server.client().from("192.0.2.7:700");
    assert_eq!(mount(&mut named, "/vol").await, Ok(server.root()), "a mount waits for a name");
}

#[tokio::test]
async fn mounts_and_exports_are_listed() {
    let model = Model::with_volume();
    model.add_volume("a", VolumeSettings { exports: "* ro".into(), ..Default::default() }, &Caller::root());
    let server = Server::new(Arc::new(model), "10.0.0.0/8 rw\nhost.example rw");
    let mut client = server.client().from("10.0.0.2:700");
    assert_eq!(mount(&mut client, "/").await, Err(Status::NoEnt as u32), "there are several volumes");
    mount(&mut client, "/vol").await.unwrap();
    mount(&mut client, "//vol/").await.unwrap();
    mount(&mut client, "/a").await.unwrap();

    let list = async |client: &mut Client| {
        let mut r = client.call(MOUNT, 2, |_| ()).await;
        let mut out = Vec::new();
        while r.bool() {
            out.push((String::from_utf8(r.opaque()).unwrap(), String::from_utf8(r.opaque()).unwrap()));
        }
        r.end();
        out
    };
    let mounted = |path: &str| ("10.0.0.2".to_owned(), path.to_owned());
    assert_eq!(list(&mut client).await, [mounted("/a"), mounted("/vol")]);
    assert_eq!(server.mounts.list().len(), 2);
    client.call(MOUNT, 3, |w| w.opaque(b"/a")).await.end();
    assert_eq!(list(&mut client).await, [mounted("/vol")]);
    client.call(MOUNT, 4, |_| ()).await.end();
    assert_eq!(list(&mut client).await, []);

    let mut r = client.call(MOUNT, 5, |_| ()).await;
    let mut exports = Vec::new();
    while r.bool() {
        let path = String::from_utf8(r.opaque()).unwrap();
        let mut groups = Vec::new();
        while r.bool() {
            groups.push(String::from_utf8(r.opaque()).unwrap());
        }
        exports.push(format!("{path} {}", groups.join(",")));
    }
    r.end();
    assert_eq!(exports, ["/a *", "/vol 10.0.0.0/8,host.example"]);
}
