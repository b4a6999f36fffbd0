//! Looking names up.

use super::place::*;
use crate::error::Errno;
use crate::types::*;

cases![names_and_dots, refusals, a_handle_names_one_object_for_ever];

async fn names_and_dots(place: Place) -> Verdict {
    let folder = place.folder(&owner(), "d", 0o700).await?;
    let (attr, dir) = ok!(place.fs.lookup(&owner(), place.dir, b"d"));
    same!((attr, dir.node), (folder.clone(), place.dir));
    same!(ok!(place.fs.lookup(&owner(), folder.node, b".")).0.node, folder.node);
    same!(ok!(place.fs.lookup(&owner(), folder.node, b"..")).0.node, place.dir);
    let root = place.volume.root;
    same!(ok!(place.fs.lookup(&Caller::root(), root, b"..")).0.node, root);
    same!(ok!(place.fs.lookup(&Caller::root(), place.dir, b"..")).0.node, root);
    Ok(())
}

async fn refusals(place: Place) -> Verdict {
    let file = place.file(&owner(), "f", 0o600).await?;
    let lookup = |dir, name: &[u8]| place.fs.lookup(&owner(), dir, name);
    let failure = refused!(lookup(place.dir, b"g"), Errno::NotFound);
    same!(failure.changes[0].after.as_ref().map(|attr| attr.node), Some(place.dir));
    refused!(lookup(place.dir, b"F"), Errno::NotFound);
    refused!(lookup(file.node, b"x"), Errno::NotDirectory);
    refused!(lookup(file.node, b"."), Errno::NotDirectory);
    refused!(lookup(place.dir, b""), Errno::Invalid);
    refused!(lookup(place.dir, b"a/b"), Errno::Invalid);
    refused!(lookup(place.dir, &[b'n'; NAME_MAX + 1]), Errno::NameTooLong);
    refused!(lookup(place.dir, &[b'n'; NAME_MAX]), Errno::NotFound);
    // What was not there is found once it is, and not any more once it is gone.
    place.file(&owner(), "g", 0o600).await?;
    ok!(lookup(place.dir, b"g"));
    ok!(place.fs.remove(&owner(), place.dir, b"g"));
    refused!(lookup(place.dir, b"g"), Errno::NotFound);
    Ok(())
}

async fn a_handle_names_one_object_for_ever(place: Place) -> Verdict {
    let first = place.file(&owner(), "f", 0o600).await?;
    ok!(place.fs.remove(&owner(), place.dir, b"f"));
    let second = place.file(&owner(), "f", 0o600).await?;
    that!(first.node != second.node);
    refused!(place.fs.getattr(&owner(), first.node), Errno::Stale);
    let forged = Node { generation: second.node.generation + 1, ..second.node };
    refused!(place.fs.getattr(&owner(), forged), Errno::Stale);
    let handle = place.fs.handle_key().sign(second.node);
    same!(place.fs.handle_key().verify(&handle.0), Ok(second.node));
    Ok(())
}
