//! Writing and committing.

use bytes::Bytes;

use super::place::*;
use crate::error::Errno;
use crate::types::*;

cases![
    bytes_go_where_they_are_sent,
    across_records,
    behind_the_end,
    the_stability_asked_for_or_better,
    the_largest_write,
    before_and_after,
    refusals,
];

async fn bytes_go_where_they_are_sent(place: Place) -> Verdict {
    let node = place.file(&owner(), "f", 0o600).await?.node;
    same!(place.write(node, 0, b"hello world").await?.size, 11);
    same!(place.write(node, 6, b"tarn!").await?.size, 11);
    same!(place.write(node, 3, b"p").await?.size, 11);
    same!(place.read(node, 0, 100).await?, b"helpo tarn!");
    same!(place.write(node, 11, b"!").await?.size, 12);
    same!(place.read(node, 0, 100).await?, b"helpo tarn!!");
    Ok(())
}

async fn across_records(place: Place) -> Verdict {
    let node = place.file(&owner(), "f", 0o600).await?.node;
    let mut expected = vec![0u8; 500_000];
    // Pieces of all lengths at offsets that no record size divides, overlapping.
    for (number, offset) in (0..490_000usize).step_by(37_777).enumerate() {
        let piece: Vec<u8> = (0..5_000 + number * 3_001).map(|at| (at * 7 + number) as u8 | 1).collect();
        let end = (offset + piece.len()).min(expected.len());
        expected[offset..end].copy_from_slice(&piece[..end - offset]);
        place.write(node, offset as u64, &piece[..end - offset]).await?;
    }
    let read = place.read(node, 0, IO_SIZE_MAX).await?;
    that!(read[..] == expected[..read.len()]);
    for (offset, count) in [(65_535, 2), (131_071, 65_538), (4_095, 4_098)] {
        that!(place.read(node, offset as u64, count as u32).await?[..] == expected[offset..offset + count]);
    }
    Ok(())
}

async fn behind_the_end(place: Place) -> Verdict {
    let node = place.file(&owner(), "f", 0o600).await?.node;
    place.write(node, 5, b"x").await?;
    same!(place.read(node, 0, 10).await?, b"\0\0\0\0\0x");
    let attr = place.write(node, 1 << 42, b"far").await?;
    same!(attr.size, (1 << 42) + 3);
    same!(place.read(node, (1 << 42) - 2, 10).await?, b"\0\0far");
    that!(attr.used <= 4 << 20);
    Ok(())
}

async fn the_stability_asked_for_or_better(place: Place) -> Verdict {
    let node = place.file(&owner(), "f", 0o600).await?.node;
    for stability in [Stability::Unstable, Stability::Data, Stability::File] {
        let effect = ok!(place.fs.write(&owner(), node, 0, Bytes::from_static(b"abc"), stability));
        that!(effect.reached >= stability);
        same!(effect.count, 3);
    }
    let reply = place.fs.commit(&owner(), node).await;
    let Ok(done) = reply else { return Err("commit is refused".to_owned()) };
    ok!(place.fs.durable(done.position));
    let attr = place.attr(node).await?;
    same!(done.value.changes[0].before, Some(Before::from(&attr)));
    same!(done.value.changes[0].after.as_ref(), Some(&attr));
    refused!(place.fs.commit(&owner(), place.dir), Errno::IsDirectory);
    Ok(())
}

async fn the_largest_write(place: Place) -> Verdict {
    let node = place.file(&owner(), "f", 0o600).await?.node;
    let data: Vec<u8> = (0..IO_SIZE_MAX).map(|at| (at / 251) as u8).collect();
    place.write(node, 777, &data).await?;
    that!(place.read(node, 777, IO_SIZE_MAX).await? == data);
    same!(place.attr(node).await?.size, 777 + u64::from(IO_SIZE_MAX));
    Ok(())
}

async fn before_and_after(place: Place) -> Verdict {
    let file = place.file(&owner(), "f", 0o600).await?;
    let effect = ok!(place.fs.write(&owner(), file.node, 0, Bytes::from_static(b"x"), Stability::Unstable));
    same!(effect.changes[0].before, Some(Before::from(&file)));
    let after = place.attr(file.node).await?;
    same!(effect.changes[0].after.as_ref(), Some(&after));
    that!(after.change > file.change);
    Ok(())
}

async fn refusals(place: Place) -> Verdict {
    let data = || Bytes::from_static(b"x");
    refused!(place.fs.write(&owner(), place.dir, 0, data(), Stability::File), Errno::IsDirectory);
    let file = place.file(&owner(), "f", 0o400).await?;
    let failure = refused!(place.fs.write(&owner(), file.node, 0, data(), Stability::File), Errno::Access);
    same!(failure.changes[0].before, Some(Before::from(&file)));
    same!(failure.changes[0].after.as_ref(), Some(&file));
    same!(place.attr(file.node).await?, file);
    Ok(())
}
