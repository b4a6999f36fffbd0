//! Reading.

use super::place::*;
use crate::error::Errno;
use crate::types::*;

cases![ends_and_offsets, holes_are_zeros, reading_changes_nothing_but_the_access_time, refusals];

async fn ends_and_offsets(place: Place) -> Verdict {
    let file = place.file(&owner(), "f", 0o600).await?;
    place.write(file.node, 0, b"0123456789").await?;
    let cases: [(u64, u32, &[u8], bool); 8] = [
        (0, 10, b"0123456789", true),
        (0, 9, b"012345678", false),
        (0, 100, b"0123456789", true),
        (9, 1, b"9", true),
        (10, 1, b"", true),
        (u64::MAX, 5, b"", true),
        (3, 0, b"", false),
        (4, 2, b"45", false),
    ];
    for (offset, count, expected, eof) in cases {
        let reply = ok!(place.fs.read(&owner(), file.node, offset, count));
        same!((offset, count, reply.data.concat(), reply.eof), (offset, count, expected.to_vec(), eof));
        same!(reply.attr.size, 10);
    }
    let empty = place.file(&owner(), "e", 0o600).await?;
    let reply = ok!(place.fs.read(&owner(), empty.node, 0, 10));
    that!(reply.is_empty() && reply.eof);
    Ok(())
}

async fn holes_are_zeros(place: Place) -> Verdict {
    let file = place.file(&owner(), "f", 0o600).await?;
    place.write(file.node, 1_000_000, b"end").await?;
    place.write(file.node, 100, b"begin").await?;
    let bytes = place.read(file.node, 0, IO_SIZE_MAX).await?;
    same!(bytes.len(), 1_000_003);
    same!(&bytes[95..110], b"\0\0\0\0\0begin\0\0\0\0\0");
    that!(bytes[110..1_000_000].iter().all(|&byte| byte == 0));
    same!(&bytes[1_000_000..], b"end");
    // Far away, where no record is.
    ok!(place.fs.setattr(&owner(), file.node, size(1 << 40)));
    same!(place.read(file.node, (1 << 40) - 5, 100).await?, [0; 5]);
    that!(place.attr(file.node).await?.used <= 4 << 20);
    Ok(())
}

async fn reading_changes_nothing_but_the_access_time(place: Place) -> Verdict {
    let file = place.file(&owner(), "f", 0o600).await?;
    let before = place.write(file.node, 0, b"content").await?;
    let reply = ok!(place.fs.read(&owner(), file.node, 0, 10));
    let after = place.attr(file.node).await?;
    same!((after.mtime, after.ctime, after.change), (before.mtime, before.ctime, before.change));
    that!(after.atime >= before.atime);
    same!(reply.attr.change, before.change);
    Ok(())
}

async fn refusals(place: Place) -> Verdict {
    refused!(place.fs.read(&owner(), place.dir, 0, 10), Errno::IsDirectory);
    let file = place.file(&owner(), "f", 0o600).await?;
    let failure = refused!(place.fs.read(&stranger(), file.node, 0, 10), Errno::Access);
    same!(failure.changes[0].after.as_ref(), Some(&file));
    ok!(place.fs.remove(&owner(), place.dir, b"f"));
    refused!(place.fs.read(&owner(), file.node, 0, 10), Errno::Stale);
    Ok(())
}
