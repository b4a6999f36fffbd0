//! Every procedure, called as a client calls it: status, shape of the results, and what they say.

use tarn_nfs::wire::nfs3::{Status, Type};

use crate::client::*;

fn code(status: Status) -> u32 {
    status as u32
}

#[tokio::test]
async fn null_answers_with_nothing() {
    let mut client = Server::open().client();
    client.nfs(0, |_| ()).await.end();
    client.call(MOUNT, 0, |_| ()).await.end();
}

#[tokio::test]
async fn getattr_tells_the_root() {
    let server = Server::open();
    let root = server.root();
    let attr = server.client().getattr(&root).await;
    assert_eq!((attr.kind, attr.fsid), (Type::Directory, server.fs.volumes()[0].fsid));
    assert_eq!(attr.fileid, server.fs.volumes()[0].root.ino.0);
}

#[tokio::test]
async fn a_handle_that_is_not_ours_is_bad_and_one_of_what_is_gone_is_stale() {
    let server = Server::open();
    let mut client = server.client();
    for bad in [vec![], vec![1; 32], vec![0; 64], server.root()[..31].to_vec()] {
        let mut r = client.nfs(1, |w| w.opaque(&bad)).await;
        assert_eq!(r.u32(), code(Status::BadHandle));
        r.end();
    }
    let file = client.create(&server.root(), "gone").await;
    client.nfs(12, |w| dir_op(w, &server.root(), "gone").end()).await;
    assert_eq!(client.nfs(1, |w| w.opaque(&file)).await.u32(), code(Status::Stale));
}

#[tokio::test]
async fn setattr_changes_what_it_is_told_and_obeys_its_guard() {
    let server = Server::open();
    let mut client = server.client();
    let file = client.create(&server.root(), "file").await;
    let before = client.getattr(&file).await;
    let mut r = client
        .nfs(2, |w| {
            w.opaque(&file);
            sattr(w, Some(0o600), Some(10));
            w.bool(true);
            before.ctime.encode(w);
        })
        .await;
    assert_eq!(r.u32(), 0);
    let wcc = r.wcc();
    r.end();
    assert_eq!((wcc.before.unwrap().size, wcc.after.unwrap().size), (0, 10));
    assert_eq!(wcc.after.unwrap().mode, 0o600);

    let mut r = client
        .nfs(2, |w| {
            w.opaque(&file);
            sattr(w, Some(0o644), None);
            w.bool(true);
            w.u32(1);
            w.u32(1);
        })
        .await;
    assert_eq!(r.u32(), code(Status::NotSync));
    assert_eq!(r.wcc().after.unwrap().mode, 0o600, "weak-cache data comes with an error too");
    r.end();
}

#[tokio::test]
async fn lookup_gives_handle_and_both_attributes_or_the_directorys() {
    let server = Server::open();
    let mut client = server.client();
    let file = client.create(&server.root(), "file").await;
    let mut r = client.nfs(3, |w| dir_op(w, &server.root(), "file").end()).await;
    assert_eq!(r.u32(), 0);
    assert_eq!(r.opaque(), file);
    assert_eq!(r.attr().unwrap().kind, Type::Regular);
    assert_eq!(r.attr().unwrap().kind, Type::Directory);
    r.end();

    let mut r = client.nfs(3, |w| dir_op(w, &server.root(), "none").end()).await;
    assert_eq!(r.u32(), code(Status::NoEnt));
    assert_eq!(r.attr().unwrap().kind, Type::Directory);
    r.end();
    let long = "x".repeat(256);
    assert_eq!(client.lookup(&server.root(), &long).await, Err(code(Status::NameTooLong)));
    assert_eq!(client.lookup(&file, "x").await, Err(code(Status::NotDir)));
    assert_eq!(client.lookup(&server.root(), "..").await, Ok(server.root()));
}

#[tokio::test]
async fn access_grants_what_the_mode_grants() {
    let server = Server::open();
    let mut client = server.client();
    let file = client.create(&server.root(), "file").await;
    let granted = async |client: &mut Client, want: u32| {
        let mut r = client
            .nfs(4, |w| {
                w.opaque(&file);
                w.u32(want);
            })
            .await;
        assert_eq!(r.u32(), 0);
        assert!(r.attr().is_some());
        let granted = r.u32();
        r.end();
        granted
    };
    assert_eq!(granted(&mut server.client(), 0x0d).await, 0x0d);
    assert_eq!(granted(&mut server.client().user(5, 5), 0xffff_ffff).await & 0x2d, 0x01);
}

#[tokio::test]
async fn links_of_both_kinds() {
    let server = Server::open();
    let (mut client, root) = (server.client(), server.root());
    let mut r = client
        .nfs(10, |w| {
            dir_op(w, &root, "symlink").sattr(Some(0o777), None);
            w.opaque(b"some/where");
        })
        .await;
    assert_eq!(r.u32(), 0);
    let (symlink, attr) = r.made();
    assert_eq!(attr.unwrap().kind, Type::Link);
    assert!(r.wcc().after.is_some());
    r.end();
    let mut r = client.nfs(5, |w| w.opaque(&symlink.unwrap())).await;
    assert_eq!(r.u32(), 0);
    assert_eq!(r.attr().unwrap().size, 10);
    assert_eq!(r.opaque(), b"some/where");
    r.end();

    let file = client.create(&root, "file").await;
    assert_eq!(client.nfs(5, |w| w.opaque(&file)).await.u32(), code(Status::Inval));
    let mut r = client
        .nfs(15, |w| {
            w.opaque(&file);
            dir_op(w, &root, "hard");
        })
        .await;
    assert_eq!(r.u32(), 0);
    assert_eq!(r.attr().unwrap().links, 2);
    assert!(r.wcc().before.is_some());
    r.end();
    assert_eq!(client.lookup(&root, "hard").await, Ok(file.clone()));
    let mut r = client
        .nfs(15, |w| {
            w.opaque(&file);
            dir_op(w, &root, "hard");
        })
        .await;
    assert_eq!(r.u32(), code(Status::Exist));
    r.attr();
    assert!(r.wcc().after.is_some());
    r.end();
}

#[tokio::test]
async fn what_is_written_is_read_and_stability_is_honest() {
    let server = Server::open();
    let mut client = server.client();
    let file = client.create(&server.root(), "file").await;
    let data: Vec<u8> = (0..100_000u32).map(|i| i as u8).collect();
    for stable in 0..3 {
        let mut r = client.write(&file, u64::from(stable) * 100_000, stable, &data).await;
        assert_eq!(r.u32(), 0);
        let wcc = r.wcc();
        assert_eq!(wcc.after.unwrap().size, u64::from(stable + 1) * 100_000);
        assert_eq!(r.u32(), 100_000);
        assert!(r.u32() >= stable);
        assert_eq!(r.u64().to_be_bytes(), server.fs.write_verifier());
        r.end();
    }
    let mut r = client
        .nfs(6, |w| {
            w.opaque(&file);
            w.u64(299_990);
            w.u32(1 << 20);
        })
        .await;
    assert_eq!(r.u32(), 0);
    assert_eq!(r.attr().unwrap().size, 300_000);
    assert_eq!((r.u32(), r.bool()), (10, true));
    assert_eq!(r.opaque(), data[99_990..]);
    r.end();
    let mut r = client
        .nfs(6, |w| {
            w.opaque(&file);
            w.u64(100_000);
            w.u32(100_000);
        })
        .await;
    r.u32();
    r.attr();
    assert_eq!((r.u32(), r.bool()), (100_000, false));
    assert_eq!(r.opaque(), data);
    r.end();

    let mut r = client
        .nfs(21, |w| {
            w.opaque(&file);
            w.u64(0);
            w.u32(0);
        })
        .await;
    assert_eq!(r.u32(), 0);
    assert!(r.wcc().after.is_some());
    assert_eq!(r.u64().to_be_bytes(), server.fs.write_verifier());
    r.end();
}

#[tokio::test]
async fn the_owner_writes_a_file_that_it_may_not() {
    let server = Server::open();
    let mut root = server.client();
    let dir = root.mkdir(&server.root(), "dir").await;
    root.nfs(2, |w| {
        w.opaque(&dir);
        sattr(w, Some(0o777), None);
        w.bool(false);
    })
    .await;
    let mut owner = server.client().user(5, 5);
    let mut r = owner.nfs(8, |w| dir_op(w, &dir, "file").u32(1).sattr(Some(0o444), None)).await;
    assert_eq!(r.u32(), 0);
    let file = r.made().0.unwrap();
    assert_eq!(owner.write(&file, 0, 2, b"mine").await.u32(), 0);
    let cut = |w: &mut Args| {
        w.opaque(&file);
        sattr(w, None, Some(1));
        w.bool(false);
    };
    assert_eq!(owner.nfs(2, cut).await.u32(), 0);
    let mut other = server.client().user(6, 6);
    assert_eq!(other.write(&file, 0, 2, b"theirs").await.u32(), code(Status::Acces));
    assert_eq!(other.nfs(2, cut).await.u32(), code(Status::Acces));
}

#[tokio::test]
async fn create_in_its_three_ways() {
    let server = Server::open();
    let (mut client, root) = (server.client(), server.root());
    let exclusive = |verifier: u64| {
        let root = root.clone();
        move |w: &mut Args| {
            dir_op(w, &root, "exclusive").u32(2);
            w.u64(verifier);
        }
    };
    let mut r = client.nfs(8, exclusive(7)).await;
    assert_eq!(r.u32(), 0);
    let (handle, _) = r.made();
    assert!(r.wcc().after.is_some());
    r.end();
    let mut r = client.nfs(8, exclusive(7)).await;
    assert_eq!((r.u32(), r.made().0), (0, handle), "the same verifier finds the same file");
    assert_eq!(client.nfs(8, exclusive(8)).await.u32(), code(Status::Exist));

    client.create(&root, "there").await;
    let mut r = client.nfs(8, |w| dir_op(w, &root, "there").u32(1).sattr(None, None)).await;
    assert_eq!(r.u32(), code(Status::Exist));
    assert!(r.wcc().after.is_some());
    r.end();
    assert_eq!(client.nfs(8, |w| dir_op(w, &root, "there").u32(0).sattr(None, Some(5))).await.u32(), 0);
    let there = client.lookup(&root, "there").await.unwrap();
    assert_eq!(client.getattr(&there).await.size, 5);
}

#[tokio::test]
async fn mknod_makes_what_is_special_and_nothing_else() {
    let server = Server::open();
    let (mut client, root) = (server.client(), server.root());
    for (kind, name) in [(3, "block"), (4, "character"), (6, "socket"), (7, "fifo")] {
        let mut r = client
            .nfs(11, |w| {
                dir_op(w, &root, name).u32(kind).sattr(Some(0o600), None);
                if kind < 5 {
                    w.u32(8);
                    w.u32(1);
                }
            })
            .await;
        assert_eq!(r.u32(), 0);
        let attr = r.made().1.unwrap();
        assert_eq!(attr.kind as u32, kind);
        assert_eq!(attr.device, if kind < 5 { (8, 1) } else { (0, 0) });
        r.wcc();
        r.end();
    }
    let mut r = client.nfs(11, |w| dir_op(w, &root, "regular").u32(1).end()).await;
    assert_eq!(r.u32(), code(Status::BadType));
    r.wcc();
    r.end();
}

#[tokio::test]
async fn names_are_removed_and_renamed() {
    let server = Server::open();
    let (mut client, root) = (server.client(), server.root());
    let dir = client.mkdir(&root, "dir").await;
    let file = client.create(&root, "file").await;
    let mut r = client
        .nfs(14, |w| {
            dir_op(w, &root, "file");
            dir_op(w, &dir, "moved");
        })
        .await;
    assert_eq!(r.u32(), 0);
    let (from, to) = (r.wcc(), r.wcc());
    r.end();
    assert_eq!((from.after.unwrap().links, to.after.unwrap().links), (3, 2));
    assert_eq!(client.lookup(&dir, "moved").await, Ok(file));

    let status = async |client: &mut Client, procedure, dir: &[u8], name: &str| {
        let mut r = client.nfs(procedure, |w| dir_op(w, dir, name).end()).await;
        let status = r.u32();
        assert!(r.wcc().after.is_some());
        r.end();
        status
    };
    assert_eq!(status(&mut client, 13, &root, "dir").await, code(Status::NotEmpty));
    assert_eq!(status(&mut client, 13, &dir, "moved").await, code(Status::NotDir));
    assert_eq!(status(&mut client, 12, &dir, "moved").await, 0);
    assert_eq!(status(&mut client, 12, &dir, "moved").await, code(Status::NoEnt));
    assert_eq!(status(&mut client, 13, &root, "dir").await, 0);
}

#[tokio::test]
async fn limits_are_told_as_they_are() {
    let server = Server::open();
    let mut client = server.client();
    let root = server.root();
    let mut r = client.nfs(19, |w| w.opaque(&root)).await;
    assert_eq!(r.u32(), 0);
    assert!(r.attr().is_some());
    let sizes: Vec<u32> = (0..7).map(|_| r.u32()).collect();
    assert_eq!(sizes, [1 << 20, 1 << 20, 4096, 1 << 20, 1 << 20, 4096, 65536]);
    assert_eq!(r.u64(), i64::MAX as u64);
    assert_eq!((r.u32(), r.u32(), r.u32()), (0, 1, 0x1b));
    r.end();

    let mut r = client.nfs(20, |w| w.opaque(&root)).await;
    assert_eq!(r.u32(), 0);
    assert!(r.attr().is_some());
    assert_eq!((r.u32(), r.u32()), (65_000, 255));
    assert_eq!([r.bool(), r.bool(), r.bool(), r.bool()], [true, true, false, true]);
    r.end();

    let mut r = client.nfs(18, |w| w.opaque(&root)).await;
    assert_eq!(r.u32(), 0);
    assert!(r.attr().is_some());
    let (total, free, available) = (r.u64(), r.u64(), r.u64());
    assert!(total >= free && free == available && total > 0);
    let (total, free, available) = (r.u64(), r.u64(), r.u64());
    assert!(total > free && free == available);
    assert_eq!(r.u32(), 0);
    r.end();
}
