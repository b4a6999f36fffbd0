//! Hard links.

use super::place::*;
use crate::error::Errno;
use crate::types::*;

cases![names_of_one_file, what_cannot_be_linked, the_last_name_ends_it, special_files_too];

async fn names_of_one_file(place: Place) -> Verdict {
    let file = place.file(&owner(), "a", 0o600).await?;
    let folder = place.folder(&owner(), "d", 0o700).await?;
    let before = place.attr(folder.node).await?;
    let effect = ok!(place.fs.link(&owner(), file.node, folder.node, b"b"));
    check_directory_change(&effect.changes[0], &before)?;
    let attr = effect.attr.unwrap_or_default();
    same!((attr.node, attr.links), (file.node, 2));
    that!(attr.change > file.change && attr.ctime >= file.ctime);
    same!(attr.mtime, file.mtime);
    same!(place.attr(folder.node).await?.links, before.links);
    place.write(file.node, 0, b"shared").await?;
    let found = place.find(folder.node, "b").await?;
    same!((found.node, found.size, found.links), (file.node, 6, 2));
    Ok(())
}

async fn what_cannot_be_linked(place: Place) -> Verdict {
    let file = place.file(&owner(), "a", 0o600).await?;
    let folder = place.folder(&owner(), "d", 0o755).await?;
    let link = |node, dir, name: &[u8]| place.fs.link(&owner(), node, dir, name);
    refused!(link(folder.node, place.dir, b"x"), Errno::NotPermitted);
    refused!(place.fs.link(&Caller::root(), folder.node, place.dir, b"x"), Errno::NotPermitted);
    refused!(link(file.node, place.dir, b"a"), Errno::Exists);
    refused!(link(file.node, place.dir, b"d"), Errno::Exists);
    refused!(link(file.node, place.dir, b".."), Errno::Exists);
    refused!(link(file.node, place.dir, &[b'n'; NAME_MAX + 1]), Errno::NameTooLong);
    refused!(link(file.node, file.node, b"x"), Errno::NotDirectory);
    let failure = refused!(place.fs.link(&stranger(), file.node, folder.node, b"x"), Errno::Access);
    same!(failure.changes[0].after.as_ref().map(|attr| attr.node), Some(folder.node));
    same!(place.attr(file.node).await?, file);
    ok!(place.fs.remove(&owner(), place.dir, b"a"));
    refused!(link(file.node, place.dir, b"x"), Errno::Stale);
    Ok(())
}

async fn the_last_name_ends_it(place: Place) -> Verdict {
    let file = place.file(&owner(), "a", 0o600).await?;
    ok!(place.fs.link(&owner(), file.node, place.dir, b"b"));
    ok!(place.fs.link(&owner(), file.node, place.dir, b"c"));
    ok!(place.fs.remove(&owner(), place.dir, b"a"));
    let attr = place.attr(file.node).await?;
    same!(attr.links, 2);
    that!(attr.change > file.change);
    // Renaming over the second name takes that name away.
    let other = place.file(&owner(), "o", 0o600).await?;
    ok!(place.fs.rename(&owner(), place.dir, b"o", place.dir, b"b"));
    same!(place.attr(file.node).await?.links, 1);
    same!(place.find(place.dir, "b").await?.node, other.node);
    ok!(place.fs.remove(&owner(), place.dir, b"c"));
    refused!(place.fs.getattr(&owner(), file.node), Errno::Stale);
    Ok(())
}

async fn special_files_too(place: Place) -> Verdict {
    let target = Special::Symlink(bytes::Bytes::from_static(b"nowhere"));
    for (name, what) in [("s", target), ("p", Special::Fifo), ("k", Special::Socket)] {
        let effect = ok!(place.fs.make(&owner(), place.dir, name.as_bytes(), what, mode(0o600)));
        let made = effect.attr.unwrap_or_default();
        let second = format!("{name}2");
        let effect = ok!(place.fs.link(&owner(), made.node, place.dir, second.as_bytes()));
        same!(effect.attr.unwrap_or_default().links, 2);
    }
    Ok(())
}
