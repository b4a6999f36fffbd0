//! Creating regular files: the three modes, names, owners.

use tarn_base::time::Time;

use super::place::*;
use crate::error::Errno;
use crate::types::*;

cases![
    a_new_file,
    guarded_refuses_what_is_there,
    unchecked_takes_what_is_there,
    exclusive_is_repeated_safely,
    names_of_all_kinds,
    refusals,
    a_set_group_id_directory_gives_its_group,
    attributes_at_birth,
    before_and_after,
];

async fn a_new_file(place: Place) -> Verdict {
    let made = place.file(&owner(), "f", 0o6640).await?;
    same!((made.kind, made.mode & 0o777, made.links, made.size), (FileType::Regular, 0o640, 1, 0));
    same!((made.uid, made.gid, made.used), (1001, 2001, 0));
    same!((made.atime, made.mtime, made.ctime), (made.btime, made.btime, made.btime));
    same!(place.find(place.dir, "f").await?, made);
    same!(place.attr(made.node).await?, made);
    Ok(())
}

async fn guarded_refuses_what_is_there(place: Place) -> Verdict {
    let made = place.file(&owner(), "f", 0o600).await?;
    refused!(place.fs.create(&owner(), place.dir, b"f", CreateMode::Guarded, size(0)), Errno::Exists);
    refused!(place.fs.create(&stranger(), place.dir, b"f", CreateMode::Guarded, size(0)), Errno::Exists);
    same!(place.attr(made.node).await?, made);
    Ok(())
}

async fn unchecked_takes_what_is_there(place: Place) -> Verdict {
    let made = place.file(&owner(), "f", 0o600).await?;
    place.write(made.node, 0, b"content").await?;
    let effect = ok!(place.fs.create(&owner(), place.dir, b"f", CreateMode::Unchecked, mode(0o777)));
    let attr = effect.attr.unwrap_or_default();
    same!((attr.node, attr.size, attr.mode), (made.node, 7, 0o600));
    let set = SetAttr { size: Some(0), ..mode(0o777) };
    refused!(place.fs.create(&stranger(), place.dir, b"f", CreateMode::Unchecked, set), Errno::Access);
    let effect = ok!(place.fs.create(&owner(), place.dir, b"f", CreateMode::Unchecked, set));
    let attr = effect.attr.unwrap_or_default();
    same!((attr.node, attr.size, attr.mode), (made.node, 0, 0o600));
    place.folder(&owner(), "d", 0o700).await?;
    refused!(place.fs.create(&owner(), place.dir, b"d", CreateMode::Unchecked, size(0)), Errno::Exists);
    let effect = ok!(place.fs.create(&owner(), place.dir, b"new", CreateMode::Unchecked, mode(0o640)));
    same!(effect.attr.unwrap_or_default().mode, 0o640);
    Ok(())
}

async fn exclusive_is_repeated_safely(place: Place) -> Verdict {
    let create =
        |verifier| place.fs.create(&owner(), place.dir, b"f", CreateMode::Exclusive(verifier), SetAttr::default());
    let made = ok!(create(77)).attr.unwrap_or_default();
    // The client's usual next step must not make the repeat fail.
    ok!(place.fs.setattr(&owner(), made.node, mode(0o640)));
    same!(ok!(create(77)).attr.unwrap_or_default().node, made.node);
    refused!(create(78), Errno::Exists);
    place.file(&owner(), "g", 0o600).await?;
    let other = CreateMode::Exclusive(0);
    refused!(place.fs.create(&owner(), place.dir, b"g", other, SetAttr::default()), Errno::Exists);
    ok!(place.fs.remove(&owner(), place.dir, b"f"));
    that!(ok!(create(77)).attr.unwrap_or_default().node != made.node);
    Ok(())
}

async fn names_of_all_kinds(place: Place) -> Verdict {
    let longest = [b'n'; NAME_MAX];
    let names: [&[u8]; 7] = [&longest, b"\xff\xfe\x80", b" ", b"...", b"a\nb", b"\xc3\xa9", b"e\xcc\x81"];
    let mut nodes = Vec::new();
    for name in names {
        let effect = ok!(place.fs.create(&owner(), place.dir, name, CreateMode::Guarded, mode(0o600)));
        nodes.push(effect.attr.unwrap_or_default().node);
    }
    for (name, node) in names.iter().zip(&nodes) {
        same!(ok!(place.fs.lookup(&owner(), place.dir, name)).0.node, *node);
    }
    // Names are bytes: neither case nor composition is folded.
    ok!(place.fs.create(&owner(), place.dir, b"Case", CreateMode::Guarded, mode(0o600)));
    ok!(place.fs.create(&owner(), place.dir, b"case", CreateMode::Guarded, mode(0o600)));
    same!(place.names(place.dir, 3).await?.len(), 2 + names.len() + 2);
    Ok(())
}

async fn refusals(place: Place) -> Verdict {
    let create = |dir, name: &[u8]| place.fs.create(&owner(), dir, name, CreateMode::Guarded, mode(0o600));
    refused!(create(place.dir, &[b'n'; NAME_MAX + 1]), Errno::NameTooLong);
    refused!(create(place.dir, b""), Errno::Invalid);
    refused!(create(place.dir, b"a/b"), Errno::Invalid);
    refused!(create(place.dir, b"a\0"), Errno::Invalid);
    refused!(create(place.dir, b"."), Errno::Exists);
    refused!(create(place.dir, b".."), Errno::Exists);
    let file = place.file(&owner(), "f", 0o600).await?;
    refused!(create(file.node, b"x"), Errno::NotDirectory);
    let gone = place.folder(&owner(), "d", 0o700).await?;
    ok!(place.fs.rmdir(&owner(), place.dir, b"d"));
    refused!(create(gone.node, b"x"), Errno::Stale);
    let set = size(FILE_SIZE_MAX + 1);
    refused!(place.fs.create(&owner(), place.dir, b"x", CreateMode::Guarded, set), Errno::FileTooBig);
    same!(place.names(place.dir, 9).await?.len(), 3);
    Ok(())
}

async fn a_set_group_id_directory_gives_its_group(place: Place) -> Verdict {
    let folder = place.folder(&Caller::root(), "d", 0o777).await?;
    let set = SetAttr { gid: Some(7), ..mode(0o2777) };
    ok!(place.fs.setattr(&Caller::root(), folder.node, set));
    same!(place.attr(folder.node).await?.mode, 0o2777);
    let file = place.file_in(folder.node, &owner(), "f", 0o2770).await?;
    same!((file.gid, file.mode), (7, 0o770));
    let file = place.file_in(folder.node, &Caller::root(), "g", 0o2770).await?;
    same!((file.gid, file.mode), (7, 0o2770));
    Ok(())
}

async fn attributes_at_birth(place: Place) -> Verdict {
    let (atime, mtime) = (Time { seconds: 11, nanos: 999_999_999 }, Time { seconds: -3, nanos: 1 });
    let set = SetAttr {
        size: Some(12345),
        uid: Some(55),
        gid: Some(66),
        atime: Some(SetTime::To(atime)),
        mtime: Some(SetTime::To(mtime)),
        ..mode(0o604)
    };
    let effect = ok!(place.fs.create(&Caller::root(), place.dir, b"f", CreateMode::Guarded, set));
    let made = effect.attr.unwrap_or_default();
    same!((made.uid, made.gid, made.size, made.mode), (55, 66, 12345, 0o604));
    same!((made.atime, made.mtime), (atime, mtime));
    same!(place.read(made.node, 12340, 100).await?, [0; 5]);
    // Others make files for themselves only, in groups of their own.
    let effect = ok!(place.fs.create(&owner(), place.dir, b"g", CreateMode::Guarded, set));
    let made = effect.attr.unwrap_or_default();
    same!((made.uid, made.gid), (1001, 2001));
    let set = SetAttr { gid: Some(2003), ..mode(0o600) };
    let effect = ok!(place.fs.create(&owner(), place.dir, b"h", CreateMode::Guarded, set));
    same!(effect.attr.unwrap_or_default().gid, 2003);
    Ok(())
}

async fn before_and_after(place: Place) -> Verdict {
    let before = place.attr(place.dir).await?;
    let effect = ok!(place.fs.create(&owner(), place.dir, b"f", CreateMode::Guarded, mode(0o600)));
    check_directory_change(&effect.changes[0], &before)?;
    same!(effect.changes[0].after.as_ref(), Some(&place.attr(place.dir).await?));
    let now = place.attr(place.dir).await?;
    let failure = refused!(place.fs.create(&owner(), place.dir, b"f", CreateMode::Guarded, mode(0)), Errno::Exists);
    same!(failure.changes[0].before, Some(Before::from(&now)));
    same!(failure.changes[0].after.as_ref(), Some(&now));
    Ok(())
}
