//! Directories, symbolic links and special files.

use bytes::Bytes;

use super::place::*;
use crate::error::Errno;
use crate::types::*;

cases![directories, a_set_group_id_directory_begets_its_like, symbolic_links, special_files, refusals];

async fn directories(place: Place) -> Verdict {
    let before = place.attr(place.dir).await?;
    let effect = ok!(place.fs.mkdir(&owner(), place.dir, b"d", mode(0o1750)));
    check_directory_change(&effect.changes[0], &before)?;
    let made = effect.attr.unwrap_or_default();
    same!((made.kind, made.mode, made.links), (FileType::Directory, 0o1750, 2));
    same!((made.uid, made.gid), (1001, 2001));
    same!(place.attr(place.dir).await?.links, before.links + 1);
    place.folder_in(made.node, &owner(), "below", 0o700).await?;
    same!(place.attr(made.node).await?.links, 3);
    same!(place.attr(place.dir).await?.links, before.links + 1);
    Ok(())
}

async fn a_set_group_id_directory_begets_its_like(place: Place) -> Verdict {
    let folder = place.folder(&Caller::root(), "d", 0o777).await?;
    let set = SetAttr { gid: Some(7), ..mode(0o2777) };
    ok!(place.fs.setattr(&Caller::root(), folder.node, set));
    let below = place.folder_in(folder.node, &stranger(), "b", 0o700).await?;
    same!((below.gid, below.mode, below.uid), (7, 0o2700, 1002));
    let what = Special::Symlink(Bytes::from_static(b"x"));
    let effect = ok!(place.fs.make(&stranger(), folder.node, b"s", what, mode(0o777)));
    same!(effect.attr.unwrap_or_default().gid, 7);
    Ok(())
}

async fn symbolic_links(place: Place) -> Verdict {
    let link = |name: &'static [u8], target: Vec<u8>| {
        place.fs.make(&owner(), place.dir, name, Special::Symlink(target.into()), mode(0o777))
    };
    let made = ok!(link(b"s", b"../a//b \xff".to_vec())).attr.unwrap_or_default();
    same!((made.kind, made.size, made.mode, made.links), (FileType::Symlink, 9, 0o777, 1));
    let (target, attr) = ok!(place.fs.readlink(&stranger(), made.node));
    same!(target, &b"../a//b \xff"[..]);
    same!((attr.node, attr.change), (made.node, made.change));
    let longest = vec![b't'; SYMLINK_MAX];
    let made = ok!(link(b"longest", longest.clone())).attr.unwrap_or_default();
    same!(ok!(place.fs.readlink(&owner(), made.node)).0, longest);
    refused!(link(b"longer", vec![b't'; SYMLINK_MAX + 1]), Errno::NameTooLong);
    refused!(link(b"nul", b"a\0b".to_vec()), Errno::Invalid);
    // A link is not followed here.
    refused!(place.fs.lookup(&owner(), made.node, b"x"), Errno::NotDirectory);
    refused!(place.fs.read(&owner(), made.node, 0, 1), Errno::Invalid);
    let file = place.file(&owner(), "f", 0o600).await?;
    refused!(place.fs.readlink(&owner(), file.node), Errno::Invalid);
    refused!(place.fs.readlink(&owner(), place.dir), Errno::Invalid);
    Ok(())
}

async fn special_files(place: Place) -> Verdict {
    let kinds = [
        (Special::Block { major: 8, minor: u32::MAX }, FileType::Block, (8, u32::MAX)),
        (Special::Character { major: 1, minor: 3 }, FileType::Character, (1, 3)),
        (Special::Socket, FileType::Socket, (0, 0)),
        (Special::Fifo, FileType::Fifo, (0, 0)),
    ];
    for (number, (what, kind, device)) in kinds.into_iter().enumerate() {
        let name = format!("n{number}");
        let before = place.attr(place.dir).await?;
        let effect = ok!(place.fs.make(&Caller::root(), place.dir, name.as_bytes(), what, mode(0o4711)));
        check_directory_change(&effect.changes[0], &before)?;
        let made = effect.attr.unwrap_or_default();
        same!((made.kind, made.device, made.size, made.mode), (kind, device, 0, 0o4711));
        same!(place.find(place.dir, &name).await?, made);
        refused!(place.fs.read(&Caller::root(), made.node, 0, 1), Errno::Invalid);
        let data = Bytes::from_static(b"x");
        refused!(place.fs.write(&Caller::root(), made.node, 0, data, Stability::File), Errno::Invalid);
        refused!(place.fs.setattr(&Caller::root(), made.node, size(0)), Errno::Invalid);
    }
    Ok(())
}

async fn refusals(place: Place) -> Verdict {
    place.file(&owner(), "f", 0o600).await?;
    for name in [&b"f"[..], b".", b".."] {
        refused!(place.fs.mkdir(&owner(), place.dir, name, mode(0o700)), Errno::Exists);
        refused!(place.fs.make(&owner(), place.dir, name, Special::Fifo, mode(0o700)), Errno::Exists);
    }
    refused!(place.fs.mkdir(&owner(), place.dir, &[b'n'; NAME_MAX + 1], mode(0o700)), Errno::NameTooLong);
    let closed = place.folder(&owner(), "d", 0o555).await?;
    refused!(place.fs.mkdir(&stranger(), closed.node, b"x", mode(0o700)), Errno::Access);
    refused!(place.fs.make(&owner(), closed.node, b"x", Special::Fifo, mode(0o700)), Errno::Access);
    Ok(())
}
