//! Removing names and directories.

use super::place::*;
use crate::error::Errno;
use crate::types::*;

cases![files, directories, types_do_not_mix, sticky_directories, dots_and_bad_names];

async fn files(place: Place) -> Verdict {
    let file = place.file(&owner(), "f", 0).await?;
    let before = place.attr(place.dir).await?;
    // It takes no permission of the file's.
    let effect = ok!(place.fs.remove(&stranger(), place.dir, b"f"));
    check_directory_change(&effect.changes[0], &before)?;
    same!(effect.changes[0].after.as_ref().map(|attr| attr.links), Some(before.links));
    refused!(place.fs.getattr(&owner(), file.node), Errno::Stale);
    refused!(place.fs.setattr(&owner(), file.node, mode(0o600)), Errno::Stale);
    let data = bytes::Bytes::from_static(b"x");
    refused!(place.fs.write(&owner(), file.node, 0, data, Stability::Unstable), Errno::Stale);
    let failure = refused!(place.fs.remove(&owner(), place.dir, b"f"), Errno::NotFound);
    same!(failure.changes[0].after.as_ref(), Some(&place.attr(place.dir).await?));
    Ok(())
}

async fn directories(place: Place) -> Verdict {
    let before = place.attr(place.dir).await?;
    let folder = place.folder(&owner(), "d", 0o700).await?;
    place.file_in(folder.node, &owner(), "f", 0o600).await?;
    refused!(place.fs.rmdir(&owner(), place.dir, b"d"), Errno::NotEmpty);
    ok!(place.fs.remove(&owner(), folder.node, b"f"));
    let effect = ok!(place.fs.rmdir(&owner(), place.dir, b"d"));
    same!(effect.changes[0].after.as_ref().map(|attr| attr.links), Some(before.links));
    refused!(place.fs.getattr(&owner(), folder.node), Errno::Stale);
    refused!(place.fs.lookup(&owner(), folder.node, b".."), Errno::Stale);
    refused!(place.fs.rmdir(&owner(), place.dir, b"d"), Errno::NotFound);
    Ok(())
}

async fn types_do_not_mix(place: Place) -> Verdict {
    place.file(&owner(), "f", 0o600).await?;
    place.folder(&owner(), "d", 0o700).await?;
    refused!(place.fs.remove(&owner(), place.dir, b"d"), Errno::IsDirectory);
    refused!(place.fs.rmdir(&owner(), place.dir, b"f"), Errno::NotDirectory);
    let what = Special::Symlink(bytes::Bytes::from_static(b"d"));
    ok!(place.fs.make(&owner(), place.dir, b"s", what, mode(0o777)));
    refused!(place.fs.rmdir(&owner(), place.dir, b"s"), Errno::NotDirectory);
    ok!(place.fs.remove(&owner(), place.dir, b"s"));
    ok!(place.fs.lookup(&owner(), place.dir, b"d"));
    Ok(())
}

async fn sticky_directories(place: Place) -> Verdict {
    let folder = place.folder(&member(), "d", 0o1777).await?;
    for name in ["a", "b", "c"] {
        place.file_in(folder.node, &owner(), name, 0o666).await?;
        refused!(place.fs.remove(&stranger(), folder.node, name.as_bytes()), Errno::NotPermitted);
    }
    place.folder_in(folder.node, &owner(), "e", 0o777).await?;
    refused!(place.fs.rmdir(&stranger(), folder.node, b"e"), Errno::NotPermitted);
    // The file's owner, the directory's, the superuser.
    ok!(place.fs.remove(&owner(), folder.node, b"a"));
    ok!(place.fs.remove(&member(), folder.node, b"b"));
    ok!(place.fs.remove(&Caller::root(), folder.node, b"c"));
    ok!(place.fs.rmdir(&member(), folder.node, b"e"));
    Ok(())
}

async fn dots_and_bad_names(place: Place) -> Verdict {
    refused!(place.fs.rmdir(&owner(), place.dir, b"."), Errno::Invalid);
    refused!(place.fs.rmdir(&owner(), place.dir, b".."), Errno::NotEmpty);
    refused!(place.fs.remove(&owner(), place.dir, b"."), Errno::IsDirectory);
    refused!(place.fs.remove(&owner(), place.dir, &[b'n'; NAME_MAX + 1]), Errno::NameTooLong);
    refused!(place.fs.remove(&owner(), place.dir, b"a/b"), Errno::Invalid);
    let file = place.file(&owner(), "f", 0o600).await?;
    refused!(place.fs.remove(&owner(), file.node, b"x"), Errno::NotDirectory);
    let closed = place.folder(&owner(), "d", 0o755).await?;
    place.file_in(closed.node, &owner(), "f", 0o666).await?;
    refused!(place.fs.remove(&stranger(), closed.node, b"f"), Errno::Access);
    refused!(place.fs.remove(&stranger(), closed.node, b"g"), Errno::NotFound);
    Ok(())
}
