//! Renaming, over everything that may be replaced and nothing else.

use super::place::*;
use crate::error::Errno;
use crate::types::*;

cases![
    within_a_directory,
    between_directories,
    a_directory_moves_with_its_dots,
    over_a_file,
    over_a_directory,
    kinds_do_not_replace_each_other,
    two_names_of_one_file,
    into_itself,
    over_what_is_above,
    sticky_directories,
    permissions,
    dots_and_bad_names,
];

impl Place {
    fn mv(&self, from: &str, to: &str) -> crate::answer::Answer<Effect> {
        self.fs.rename(&owner(), self.dir, from.as_bytes(), self.dir, to.as_bytes())
    }
}

async fn within_a_directory(place: Place) -> Verdict {
    let file = place.file(&owner(), "a", 0o600).await?;
    let before = place.attr(place.dir).await?;
    let effect = ok!(place.mv("a", "b"));
    check_directory_change(&effect.changes[0], &before)?;
    check_directory_change(&effect.changes[1], &before)?;
    same!(effect.changes[0].after.as_ref(), Some(&place.attr(place.dir).await?));
    refused!(place.fs.lookup(&owner(), place.dir, b"a"), Errno::NotFound);
    let found = place.find(place.dir, "b").await?;
    same!((found.node, found.links, found.mtime), (file.node, 1, file.mtime));
    that!(found.change > file.change && found.ctime >= file.ctime);
    same!(place.names(place.dir, 9).await?.len(), 3);
    let failure = refused!(place.mv("a", "c"), Errno::NotFound);
    same!(failure.changes[1].after.as_ref().map(|attr| attr.node), Some(place.dir));
    Ok(())
}

async fn between_directories(place: Place) -> Verdict {
    let (from, to) = (place.folder(&owner(), "from", 0o700).await?, place.folder(&owner(), "to", 0o700).await?);
    let file = place.file_in(from.node, &owner(), "f", 0o600).await?;
    let before = (place.attr(from.node).await?, place.attr(to.node).await?);
    let effect = ok!(place.fs.rename(&owner(), from.node, b"f", to.node, b"g"));
    check_directory_change(&effect.changes[0], &before.0)?;
    check_directory_change(&effect.changes[1], &before.1)?;
    same!(place.find(to.node, "g").await?.node, file.node);
    refused!(place.fs.lookup(&owner(), from.node, b"f"), Errno::NotFound);
    same!((place.attr(from.node).await?.links, place.attr(to.node).await?.links), (2, 2));
    Ok(())
}

async fn a_directory_moves_with_its_dots(place: Place) -> Verdict {
    let (from, to) = (place.folder(&owner(), "from", 0o700).await?, place.folder(&owner(), "to", 0o700).await?);
    let moved = place.folder_in(from.node, &owner(), "d", 0o700).await?;
    place.file_in(moved.node, &owner(), "inside", 0o600).await?;
    ok!(place.fs.rename(&owner(), from.node, b"d", to.node, b"d"));
    same!(ok!(place.fs.lookup(&owner(), moved.node, b"..")).0.node, to.node);
    let reply = ok!(place.fs.list(&owner(), moved.node, page(0, 10)));
    same!(reply.entries[1].ino, to.node.ino);
    same!((place.attr(from.node).await?.links, place.attr(to.node).await?.links), (2, 3));
    same!(place.attr(moved.node).await?.links, 2);
    place.find(moved.node, "inside").await?;
    ok!(place.fs.rmdir(&owner(), place.dir, b"from"));
    Ok(())
}

async fn over_a_file(place: Place) -> Verdict {
    let (source, over) = (place.file(&owner(), "a", 0o600).await?, place.file(&owner(), "b", 0).await?);
    ok!(place.fs.link(&owner(), over.node, place.dir, b"kept"));
    ok!(place.mv("a", "b"));
    same!(place.find(place.dir, "b").await?.node, source.node);
    let kept = place.find(place.dir, "kept").await?;
    same!((kept.node, kept.links), (over.node, 1));
    that!(kept.change > over.change);
    place.file(&owner(), "c", 0o600).await?;
    ok!(place.mv("c", "kept"));
    refused!(place.fs.getattr(&owner(), over.node), Errno::Stale);
    // A symbolic link is replaced itself, and replaces itself.
    let what = Special::Symlink(bytes::Bytes::from_static(b"b"));
    let link = ok!(place.fs.make(&owner(), place.dir, b"s", what, mode(0o777))).attr.unwrap_or_default();
    ok!(place.mv("s", "kept"));
    same!(place.find(place.dir, "kept").await?.node, link.node);
    ok!(place.mv("b", "kept"));
    refused!(place.fs.getattr(&owner(), link.node), Errno::Stale);
    Ok(())
}

async fn over_a_directory(place: Place) -> Verdict {
    let to = place.folder(&owner(), "to", 0o700).await?;
    let source = place.folder(&owner(), "a", 0o700).await?;
    place.file_in(source.node, &owner(), "inside", 0o600).await?;
    let over = place.folder_in(to.node, &owner(), "b", 0o700).await?;
    place.file_in(over.node, &owner(), "x", 0o600).await?;
    let links = place.attr(place.dir).await?.links;
    let rename = || place.fs.rename(&owner(), place.dir, b"a", to.node, b"b");
    refused!(rename(), Errno::NotEmpty);
    ok!(place.fs.remove(&owner(), over.node, b"x"));
    ok!(rename());
    same!(place.find(to.node, "b").await?.node, source.node);
    refused!(place.fs.getattr(&owner(), over.node), Errno::Stale);
    same!((place.attr(place.dir).await?.links, place.attr(to.node).await?.links), (links - 1, 3));
    place.find(source.node, "inside").await?;
    Ok(())
}

async fn kinds_do_not_replace_each_other(place: Place) -> Verdict {
    place.file(&owner(), "f", 0o600).await?;
    place.folder(&owner(), "d", 0o700).await?;
    let what = Special::Symlink(bytes::Bytes::from_static(b"d"));
    ok!(place.fs.make(&owner(), place.dir, b"s", what, mode(0o777)));
    refused!(place.mv("f", "d"), Errno::IsDirectory);
    refused!(place.mv("s", "d"), Errno::IsDirectory);
    refused!(place.mv("d", "f"), Errno::NotDirectory);
    refused!(place.mv("d", "s"), Errno::NotDirectory);
    same!(place.names(place.dir, 9).await?.len(), 5);
    Ok(())
}

async fn two_names_of_one_file(place: Place) -> Verdict {
    let file = place.file(&owner(), "a", 0o600).await?;
    ok!(place.fs.link(&owner(), file.node, place.dir, b"b"));
    let (before, dir) = (place.attr(file.node).await?, place.attr(place.dir).await?);
    ok!(place.mv("a", "b"));
    ok!(place.mv("a", "a"));
    same!(place.attr(file.node).await?, before);
    same!(place.attr(place.dir).await?, dir);
    same!(place.names(place.dir, 9).await?.len(), 4);
    let folder = place.folder(&owner(), "d", 0o700).await?;
    ok!(place.mv("d", "d"));
    same!(place.attr(folder.node).await?, folder);
    Ok(())
}

async fn into_itself(place: Place) -> Verdict {
    let a = place.folder(&owner(), "a", 0o700).await?;
    let b = place.folder_in(a.node, &owner(), "b", 0o700).await?;
    let c = place.folder_in(b.node, &owner(), "c", 0o700).await?;
    for to in [a.node, b.node, c.node] {
        refused!(place.fs.rename(&owner(), place.dir, b"a", to, b"x"), Errno::Invalid);
    }
    refused!(place.fs.rename(&owner(), a.node, b"b", c.node, b"x"), Errno::Invalid);
    ok!(place.fs.rename(&owner(), b.node, b"c", place.dir, b"c"));
    ok!(place.fs.rename(&owner(), place.dir, b"a", c.node, b"a"));
    same!(ok!(place.fs.lookup(&owner(), a.node, b"..")).0.node, c.node);
    Ok(())
}

async fn over_what_is_above(place: Place) -> Verdict {
    let a = place.folder(&owner(), "a", 0o700).await?;
    let b = place.folder_in(a.node, &owner(), "b", 0o700).await?;
    place.folder_in(b.node, &owner(), "c", 0o700).await?;
    place.file_in(b.node, &owner(), "f", 0o600).await?;
    refused!(place.fs.rename(&owner(), b.node, b"c", place.dir, b"a"), Errno::NotEmpty);
    refused!(place.fs.rename(&owner(), b.node, b"f", place.dir, b"a"), Errno::NotEmpty);
    refused!(place.fs.rename(&owner(), b.node, b"c", a.node, b"b"), Errno::NotEmpty);
    Ok(())
}

async fn sticky_directories(place: Place) -> Verdict {
    let (open, sticky) = (place.folder(&member(), "o", 0o777).await?, place.folder(&member(), "s", 0o1777).await?);
    place.file_in(sticky.node, &owner(), "mine", 0o666).await?;
    place.file_in(open.node, &stranger(), "theirs", 0o666).await?;
    let rename =
        |caller: &Caller, from: Node, name: &[u8], to: Node, new: &[u8]| place.fs.rename(caller, from, name, to, new);
    // Neither out of it nor over what is in it.
    refused!(rename(&stranger(), sticky.node, b"mine", open.node, b"x"), Errno::NotPermitted);
    refused!(rename(&stranger(), open.node, b"theirs", sticky.node, b"mine"), Errno::NotPermitted);
    ok!(rename(&stranger(), open.node, b"theirs", sticky.node, b"theirs"));
    ok!(rename(&owner(), sticky.node, b"mine", open.node, b"mine"));
    ok!(rename(&member(), sticky.node, b"theirs", open.node, b"mine"));
    Ok(())
}

async fn permissions(place: Place) -> Verdict {
    let (from, to) = (place.folder(&owner(), "from", 0o755).await?, place.folder(&owner(), "to", 0o755).await?);
    place.file_in(from.node, &owner(), "f", 0o666).await?;
    let folder = place.folder_in(from.node, &owner(), "d", 0o755).await?;
    let rename = |name: &[u8], to| place.fs.rename(&stranger(), from.node, name, to, b"x");
    refused!(rename(b"f", place.dir), Errno::Access);
    refused!(rename(b"g", place.dir), Errno::NotFound);
    ok!(place.fs.setattr(&owner(), from.node, mode(0o777)));
    refused!(rename(b"f", to.node), Errno::Access);
    ok!(rename(b"f", place.dir));
    // A directory that gets another parent is itself written to.
    refused!(place.fs.rename(&stranger(), from.node, b"d", place.dir, b"d"), Errno::Access);
    ok!(place.fs.rename(&stranger(), from.node, b"d", from.node, b"e"));
    ok!(place.fs.setattr(&owner(), folder.node, mode(0o777)));
    ok!(place.fs.rename(&stranger(), from.node, b"e", place.dir, b"d"));
    Ok(())
}

async fn dots_and_bad_names(place: Place) -> Verdict {
    let file = place.file(&owner(), "f", 0o600).await?;
    place.folder(&owner(), "d", 0o700).await?;
    for (from, to) in [(".", "x"), ("..", "x"), ("d", "."), ("d", ".."), ("", "x"), ("f", ""), ("f", "a/b")] {
        refused!(place.mv(from, to), Errno::Invalid);
    }
    let long = "n".repeat(NAME_MAX + 1);
    refused!(place.mv("f", &long), Errno::NameTooLong);
    refused!(place.mv(&long, "x"), Errno::NameTooLong);
    refused!(place.fs.rename(&owner(), file.node, b"x", place.dir, b"y"), Errno::NotDirectory);
    refused!(place.fs.rename(&owner(), place.dir, b"f", file.node, b"y"), Errno::NotDirectory);
    let elsewhere = Node { volume: tarn_base::ids::VolumeId(u32::MAX), ..place.dir };
    refused!(place.fs.rename(&owner(), place.dir, b"f", elsewhere, b"y"), Errno::Stale);
    Ok(())
}
