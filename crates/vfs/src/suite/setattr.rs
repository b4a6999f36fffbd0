//! Setting attributes: mode, owner, size, guard.

use super::place::*;
use crate::error::Errno;
use crate::types::*;

cases![
    modes,
    owners_and_groups,
    set_id_bits_do_not_outlive_a_change,
    sizes,
    cut_bytes_do_not_come_back,
    the_largest_file,
    guards,
    nothing_set,
    before_and_after,
];

fn chown(uid: Option<u32>, gid: Option<u32>) -> SetAttr {
    SetAttr { uid, gid, ..SetAttr::default() }
}

async fn modes(place: Place) -> Verdict {
    let file = place.file(&owner(), "f", 0o600).await?;
    for bits in [0, 0o7777, 0o1000, 0o644] {
        ok!(place.fs.setattr(&owner(), file.node, mode(bits)));
        same!(place.attr(file.node).await?.mode, bits);
    }
    refused!(place.fs.setattr(&stranger(), file.node, mode(0o666)), Errno::NotPermitted);
    refused!(place.fs.setattr(&member(), file.node, mode(0o666)), Errno::NotPermitted);
    ok!(place.fs.setattr(&Caller::root(), file.node, mode(0o4755)));
    // Who is not in the file's group cannot make programs run in it.
    ok!(place.fs.setattr(&Caller::root(), file.node, chown(None, Some(9999))));
    ok!(place.fs.setattr(&owner(), file.node, mode(0o6755)));
    same!(place.attr(file.node).await?.mode, 0o4755);
    Ok(())
}

async fn owners_and_groups(place: Place) -> Verdict {
    let file = place.file(&owner(), "f", 0o600).await?;
    let set = |caller: Caller, uid, gid| place.fs.setattr(&caller, file.node, chown(uid, gid));
    refused!(set(owner(), Some(1002), None), Errno::NotPermitted);
    refused!(set(owner(), None, Some(9999)), Errno::NotPermitted);
    refused!(set(stranger(), Some(1002), None), Errno::NotPermitted);
    refused!(set(stranger(), None, Some(2002)), Errno::NotPermitted);
    ok!(set(owner(), Some(1001), Some(2004)));
    same!(place.attr(file.node).await?.gid, 2004);
    ok!(set(Caller::root(), Some(u32::MAX - 1), Some(u32::MAX - 1)));
    let attr = place.attr(file.node).await?;
    same!((attr.uid, attr.gid), (u32::MAX - 1, u32::MAX - 1));
    refused!(set(owner(), None, Some(2001)), Errno::NotPermitted);
    Ok(())
}

async fn set_id_bits_do_not_outlive_a_change(place: Place) -> Verdict {
    let root = Caller::root();
    let file = place.file(&owner(), "f", 0o666).await?;
    for caller in [owner(), root.clone()] {
        ok!(place.fs.setattr(&root, file.node, mode(0o6775)));
        ok!(place.fs.setattr(&caller, file.node, chown(None, Some(2003))));
        same!(place.attr(file.node).await?.mode, 0o775);
    }
    ok!(place.fs.setattr(&root, file.node, mode(0o6777)));
    let data = bytes::Bytes::from_static(b"x");
    ok!(place.fs.write(&root, file.node, 0, data.clone(), Stability::File));
    same!(place.attr(file.node).await?.mode, 0o6777);
    ok!(place.fs.write(&stranger(), file.node, 0, data, Stability::File));
    same!(place.attr(file.node).await?.mode, 0o777);
    ok!(place.fs.setattr(&root, file.node, mode(0o6777)));
    ok!(place.fs.setattr(&stranger(), file.node, size(0)));
    same!(place.attr(file.node).await?.mode, 0o777);
    let folder = place.folder(&owner(), "d", 0o755).await?;
    ok!(place.fs.setattr(&owner(), folder.node, mode(0o6755)));
    ok!(place.fs.setattr(&owner(), folder.node, chown(None, Some(2003))));
    same!(place.attr(folder.node).await?.mode, 0o6755);
    Ok(())
}

async fn sizes(place: Place) -> Verdict {
    let file = place.file(&owner(), "f", 0o600).await?;
    place.write(file.node, 0, b"0123456789").await?;
    for length in [20, 5, 5, 0, 70_000] {
        let before = place.attr(file.node).await?;
        ok!(place.fs.setattr(&owner(), file.node, size(length)));
        let after = place.attr(file.node).await?;
        same!(after.size, length);
        that!(after.change > before.change && after.mtime >= before.mtime);
        same!(after.mtime, after.ctime);
    }
    same!(place.read(file.node, 69_990, 100).await?, [0; 10]);
    refused!(place.fs.setattr(&stranger(), file.node, size(0)), Errno::Access);
    refused!(place.fs.setattr(&owner(), place.dir, size(0)), Errno::IsDirectory);
    Ok(())
}

async fn cut_bytes_do_not_come_back(place: Place) -> Verdict {
    // Lengths around the borders of records of all usual sizes.
    for (number, cut) in [0u64, 1, 4095, 4096, 4097, 65_535, 65_536, 65_537, 131_072, 199_999].into_iter().enumerate() {
        let file = place.file(&owner(), &format!("f{number}"), 0o600).await?;
        place.write(file.node, 0, &[7; 200_000]).await?;
        ok!(place.fs.setattr(&owner(), file.node, size(cut)));
        ok!(place.fs.setattr(&owner(), file.node, size(200_000)));
        let bytes = place.read(file.node, 0, IO_SIZE_MAX).await?;
        same!(bytes.len(), 200_000);
        that!(bytes[..cut as usize].iter().all(|&byte| byte == 7));
        that!(bytes[cut as usize..].iter().all(|&byte| byte == 0));
        // Nor when a write behind the end makes the file longer.
        ok!(place.fs.setattr(&owner(), file.node, size(cut / 2)));
        place.write(file.node, 199_999, b"\x09").await?;
        let bytes = place.read(file.node, 0, IO_SIZE_MAX).await?;
        that!(bytes[..cut as usize / 2].iter().all(|&byte| byte == 7));
        that!(bytes[cut as usize / 2..199_999].iter().all(|&byte| byte == 0));
        same!(bytes[199_999], 9);
    }
    Ok(())
}

async fn the_largest_file(place: Place) -> Verdict {
    let file = place.file(&owner(), "f", 0o600).await?;
    ok!(place.fs.setattr(&owner(), file.node, size(FILE_SIZE_MAX)));
    same!(place.attr(file.node).await?.size, FILE_SIZE_MAX);
    same!(place.read(file.node, FILE_SIZE_MAX - 3, 10).await?, [0; 3]);
    place.write(file.node, FILE_SIZE_MAX - 2, b"ab").await?;
    same!(place.read(file.node, FILE_SIZE_MAX - 3, 10).await?, b"\0ab");
    refused!(place.fs.setattr(&owner(), file.node, size(FILE_SIZE_MAX + 1)), Errno::FileTooBig);
    refused!(place.fs.setattr(&owner(), file.node, size(u64::MAX)), Errno::FileTooBig);
    for offset in [FILE_SIZE_MAX - 1, FILE_SIZE_MAX, u64::MAX] {
        let data = bytes::Bytes::from_static(b"ab");
        refused!(place.fs.write(&owner(), file.node, offset, data, Stability::Unstable), Errno::FileTooBig);
    }
    ok!(place.fs.setattr(&owner(), file.node, size(0)));
    ok!(place.fs.setattr(&owner(), file.node, size(FILE_SIZE_MAX)));
    same!(place.read(file.node, FILE_SIZE_MAX - 3, 10).await?, [0; 3]);
    Ok(())
}

async fn guards(place: Place) -> Verdict {
    let file = place.file(&owner(), "f", 0o600).await?;
    let other = tarn_base::time::Time { seconds: 1, nanos: 1 };
    let guarded = |guard| SetAttr { guard: Some(guard), ..mode(0o640) };
    let failure = refused!(place.fs.setattr(&owner(), file.node, guarded(other)), Errno::GuardFailed);
    same!(failure.changes[0].after.as_ref(), Some(&file));
    same!(place.attr(file.node).await?, file);
    ok!(place.fs.setattr(&owner(), file.node, guarded(file.ctime)));
    same!(place.attr(file.node).await?.mode, 0o640);
    Ok(())
}

async fn nothing_set(place: Place) -> Verdict {
    let file = place.file(&owner(), "f", 0o600).await?;
    let effect = ok!(place.fs.setattr(&stranger(), file.node, SetAttr::default()));
    same!(effect.changes[0].after.as_ref(), Some(&file));
    same!(place.attr(file.node).await?, file);
    Ok(())
}

async fn before_and_after(place: Place) -> Verdict {
    let file = place.file(&owner(), "f", 0o600).await?;
    let effect = ok!(place.fs.setattr(&owner(), file.node, mode(0o644)));
    same!(effect.changes[0].before, Some(Before::from(&file)));
    let after = place.attr(file.node).await?;
    same!(effect.changes[0].after.as_ref(), Some(&after));
    that!(after.change > file.change && after.ctime >= file.ctime);
    same!((after.mtime, after.atime, after.btime), (file.mtime, file.atime, file.btime));
    let failure = refused!(place.fs.setattr(&stranger(), file.node, mode(0)), Errno::NotPermitted);
    same!(failure.changes[0].after.as_ref(), Some(&after));
    Ok(())
}
