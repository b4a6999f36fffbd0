//! Calls sent twice: what must not run twice does not, and is answered as it was.

use tarn_nfs::wire::nfs3::Status;

use crate::client::*;

/// Encodes arguments.
type Encode<'a> = Box<dyn FnOnce(&mut Args) + 'a>;

/// Sends a call twice; gives both replies.
async fn twice(client: &mut Client, procedure: u32, args: impl FnOnce(&mut Args)) -> (Vec<u8>, Vec<u8>) {
    let message = client.encode(NFS, procedure, args);
    (client.send(message.clone()).await.unwrap(), client.send(message).await.unwrap())
}

/// Status of an encoded reply.
fn status(reply: &[u8]) -> u32 {
    u32::from_be_bytes(reply[24..28].try_into().unwrap())
}

#[tokio::test]
async fn a_repeated_change_gives_the_first_outcome() {
    let server = Server::open();
    let (mut client, root) = (server.client(), server.root());
    let file = client.create(&root, "file").await;
    let calls: Vec<(u32, Encode<'_>)> = vec![
        (8, Box::new(|w| dir_op(w, &root, "guarded").u32(1).sattr(None, None))),
        (9, Box::new(|w| dir_op(w, &root, "dir").sattr(Some(0o755), None))),
        (
            10,
            Box::new(|w| {
                dir_op(w, &root, "symlink").sattr(None, None);
                w.opaque(b"target");
            }),
        ),
        (11, Box::new(|w| dir_op(w, &root, "fifo").u32(7).sattr(None, None))),
        (
            15,
            Box::new(|w| {
                w.opaque(&file);
                dir_op(w, &root, "hard");
            }),
        ),
        (
            14,
            Box::new(|w| {
                dir_op(w, &root, "hard");
                dir_op(w, &root, "renamed");
            }),
        ),
        (12, Box::new(|w| dir_op(w, &root, "renamed").end())),
        (13, Box::new(|w| dir_op(w, &root, "dir").end())),
    ];
    for (procedure, args) in calls {
        let (first, second) = twice(&mut client, procedure, args).await;
        assert_eq!(status(&first), 0, "procedure {procedure}");
        assert_eq!(first, second, "procedure {procedure}");
    }
}

#[tokio::test]
async fn a_repeated_refusal_stays_one() {
    let server = Server::open();
    let (mut client, root) = (server.client(), server.root());
    let message = client.encode(NFS, 12, |w| dir_op(w, &root, "file").end());
    let first = client.send(message.clone()).await.unwrap();
    assert_eq!(status(&first), Status::NoEnt as u32);
    let mut other = server.client().from("10.0.0.9:700");
    other.create(&root, "file").await;
    assert_eq!(status(&client.send(message).await.unwrap()), Status::NoEnt as u32);
    assert!(other.lookup(&root, "file").await.is_ok());
}

#[tokio::test]
async fn a_repeat_is_known_by_address_number_and_arguments() {
    let server = Server::open();
    let (mut client, root) = (server.client(), server.root());
    let guarded = |name: &'static str| {
        let root = root.clone();
        move |w: &mut Args| dir_op(w, &root, name).u32(1).sattr(None, None)
    };
    let message = client.encode(NFS, 8, guarded("a"));
    assert_eq!(status(&client.send(message.clone()).await.unwrap()), 0);
    let moved = client.clone().from("127.0.0.1:999");
    assert_eq!(status(&moved.send(message.clone()).await.unwrap()), 0, "another port is the same client");
    let stranger = client.clone().from("127.0.0.2:700");
    assert_eq!(status(&stranger.send(message).await.unwrap()), Status::Exist as u32);
    client.xid -= 1;
    let other = client.encode(NFS, 8, guarded("b"));
    assert_eq!(status(&client.send(other).await.unwrap()), 0, "the number alone is not the call");
    assert!(client.lookup(&root, "b").await.is_ok());
    let again = client.encode(NFS, 8, guarded("a"));
    assert_eq!(status(&client.send(again).await.unwrap()), Status::Exist as u32, "another number is another call");
}

#[tokio::test]
async fn a_copy_of_a_call_that_the_rules_refused_does_not_run_when_they_have_changed() {
    let model = std::sync::Arc::new(tarn_vfs::model::Model::with_volume());
    let readonly = Server::new(model.clone(), "* ro,no_root_squash,insecure");
    let writable = Server::new(model, "* rw,no_root_squash,insecure");
    let (mut before, root) = (readonly.client(), readonly.root());
    let mut after = writable.client();
    let file = after.create(&root, "file").await;
    before.xid += 1000;
    let write = before.encode(NFS, 7, |w| {
        w.opaque(&file);
        w.u64(0);
        w.u32(3);
        w.u32(2);
        w.opaque(b"old");
    });
    let remove = before.encode(NFS, 12, |w| dir_op(w, &root, "file").end());
    let rename = before.encode(NFS, 14, |w| {
        dir_op(w, &root, "file");
        dir_op(w, &root, "other");
    });
    for message in [write, remove, rename] {
        assert_eq!(status(&before.send(message.clone()).await.unwrap()), Status::Rofs as u32);
        assert_eq!(status(&after.send(message).await.unwrap()), Status::Jukebox as u32);
    }
    assert!(after.lookup(&root, "file").await.is_ok());
}
