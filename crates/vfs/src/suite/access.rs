//! Permissions: the mode, groups, the superuser, and files that a client has open.

use bytes::Bytes;

use super::place::*;
use crate::error::Errno;
use crate::types::*;

cases![the_mode_decides, the_superuser, an_open_file_stays_usable, search_permission, rights_of_a_directory];

const ALL: Access = Access(63);

async fn the_mode_decides(place: Place) -> Verdict {
    let file = place.file(&owner(), "f", 0o640).await?;
    let has = |has: Access, right| has.contains(right);
    let (mine, attr) = ok!(place.fs.access(&owner(), file.node, ALL));
    that!(has(mine, Access::READ | Access::MODIFY | Access::EXTEND) && !has(mine, Access::EXECUTE));
    same!(attr.node, file.node);
    same!(ok!(place.fs.access(&member(), file.node, ALL)).0, Access::READ);
    same!(ok!(place.fs.access(&stranger(), file.node, ALL)).0, Access(0));
    same!(ok!(place.fs.access(&owner(), file.node, Access::MODIFY)).0, Access::MODIFY);
    refused!(place.fs.read(&stranger(), file.node, 0, 1), Errno::Access);
    ok!(place.fs.read(&member(), file.node, 0, 1));
    let data = Bytes::from_static(b"x");
    refused!(place.fs.write(&member(), file.node, 0, data, Stability::File), Errno::Access);
    // The owner's digit binds the owner, even if all others may.
    let file = place.file(&owner(), "g", 0o066).await?;
    refused!(place.fs.read(&owner(), file.node, 0, 1), Errno::Access);
    ok!(place.fs.read(&stranger(), file.node, 0, 1));
    Ok(())
}

async fn the_superuser(place: Place) -> Verdict {
    let file = place.file(&owner(), "f", 0).await?;
    let root = Caller::root();
    let has = ok!(place.fs.access(&root, file.node, ALL)).0;
    that!(has.contains(Access::READ | Access::MODIFY) && !has.contains(Access::EXECUTE));
    ok!(place.fs.setattr(&root, file.node, mode(0o001)));
    that!(ok!(place.fs.access(&root, file.node, ALL)).0.contains(Access::EXECUTE));
    let folder = place.folder(&owner(), "d", 0).await?;
    that!(ok!(place.fs.access(&root, folder.node, ALL)).0.contains(Access::LOOKUP | Access::DELETE));
    place.file_in(folder.node, &root, "f", 0).await?;
    Ok(())
}

async fn an_open_file_stays_usable(place: Place) -> Verdict {
    let file = place.file(&owner(), "f", 0).await?;
    let opened = Caller { owner_override: true, ..owner() };
    let data = Bytes::from_static(b"x");
    ok!(place.fs.write(&opened, file.node, 0, data.clone(), Stability::File));
    same!(ok!(place.fs.read(&opened, file.node, 0, 9)).data.concat(), b"x");
    ok!(place.fs.setattr(&opened, file.node, size(0)));
    refused!(place.fs.write(&owner(), file.node, 0, data.clone(), Stability::File), Errno::Access);
    // Opening is what ACCESS is asked for, so it says what the mode says.
    same!(ok!(place.fs.access(&opened, file.node, ALL)).0, Access(0));
    let other = Caller { owner_override: true, ..stranger() };
    refused!(place.fs.write(&other, file.node, 0, data, Stability::File), Errno::Access);
    // A program is read in order to run it.
    ok!(place.fs.setattr(&owner(), file.node, mode(0o711)));
    ok!(place.fs.read(&other, file.node, 0, 1));
    Ok(())
}

async fn search_permission(place: Place) -> Verdict {
    let folder = place.folder(&owner(), "d", 0o700).await?;
    place.file_in(folder.node, &owner(), "f", 0o666).await?;
    let failure = refused!(place.fs.lookup(&stranger(), folder.node, b"f"), Errno::Access);
    same!(failure.changes[0].after.as_ref().map(|attr| attr.node), Some(folder.node));
    refused!(place.fs.list(&stranger(), folder.node, page(0, 10)), Errno::Access);
    ok!(place.fs.setattr(&owner(), folder.node, mode(0o711)));
    ok!(place.fs.lookup(&stranger(), folder.node, b"f"));
    refused!(place.fs.list(&stranger(), folder.node, page(0, 10)), Errno::Access);
    refused!(place.fs.remove(&stranger(), folder.node, b"f"), Errno::Access);
    refused!(place.fs.mkdir(&stranger(), folder.node, b"n", mode(0o700)), Errno::Access);
    // To write into a directory takes searching it.
    ok!(place.fs.setattr(&owner(), folder.node, mode(0o702)));
    refused!(place.fs.mkdir(&stranger(), folder.node, b"n", mode(0o700)), Errno::Access);
    Ok(())
}

async fn rights_of_a_directory(place: Place) -> Verdict {
    let folder = place.folder(&owner(), "d", 0o731).await?;
    let rights = |caller: Caller| place.fs.access(&caller, folder.node, ALL);
    same!(ok!(rights(stranger())).0, Access::LOOKUP);
    let has = ok!(rights(member())).0;
    same!(has, Access::LOOKUP | Access::MODIFY | Access::EXTEND | Access::DELETE);
    Ok(())
}
