//! Which operation changes which time, and who may set them.

use bytes::Bytes;
use tarn_base::time::Time;

use super::place::*;
use crate::error::Errno;
use crate::types::*;

cases![values_are_kept_exactly, who_may_set_them, writes_and_sizes, entries_and_links, the_change_counter_only_grows,];

const OLD: Time = Time { seconds: 1000, nanos: 123_456_789 };

fn times(time: SetTime) -> SetAttr {
    SetAttr { atime: Some(time), mtime: Some(time), ..SetAttr::default() }
}

impl Place {
    /// Makes an object old, and gives its attributes.
    async fn age(&self, node: Node) -> Result<Attr, String> {
        ok!(self.fs.setattr(&Caller::root(), node, times(SetTime::To(OLD))));
        self.attr(node).await
    }
}

async fn values_are_kept_exactly(place: Place) -> Verdict {
    let file = place.file(&owner(), "f", 0o600).await?;
    // The range of RFC 1813 and of later protocols: before 1970, after 2038.
    for (seconds, nanos) in [(0, 0), (-1, 999_999_999), (1 << 33, 1), (4_294_967_295, 999_999_999)] {
        let time = Time { seconds, nanos };
        ok!(place.fs.setattr(&owner(), file.node, times(SetTime::To(time))));
        let attr = place.attr(file.node).await?;
        same!((attr.atime, attr.mtime), (time, time));
        that!(attr.ctime >= file.ctime);
    }
    let one = SetAttr { mtime: Some(SetTime::To(OLD)), ..SetAttr::default() };
    ok!(place.fs.setattr(&owner(), file.node, one));
    let attr = place.attr(file.node).await?;
    same!((attr.atime.seconds, attr.mtime, attr.btime), (4_294_967_295, OLD, file.btime));
    let bad = Time { seconds: 0, nanos: 1_000_000_000 };
    refused!(place.fs.setattr(&owner(), file.node, times(SetTime::To(bad))), Errno::Invalid);
    Ok(())
}

async fn who_may_set_them(place: Place) -> Verdict {
    let file = place.file(&owner(), "f", 0o620).await?;
    let set = |caller: Caller, time| place.fs.setattr(&caller, file.node, times(time));
    refused!(set(member(), SetTime::To(OLD)), Errno::NotPermitted);
    refused!(set(stranger(), SetTime::To(OLD)), Errno::NotPermitted);
    refused!(set(stranger(), SetTime::Now), Errno::Access);
    ok!(set(owner(), SetTime::To(OLD)));
    ok!(set(member(), SetTime::Now));
    that!(place.attr(file.node).await?.mtime > OLD);
    ok!(place.fs.setattr(&owner(), file.node, mode(0)));
    ok!(set(owner(), SetTime::Now));
    ok!(set(Caller::root(), SetTime::To(OLD)));
    Ok(())
}

async fn writes_and_sizes(place: Place) -> Verdict {
    let node = place.file(&owner(), "f", 0o600).await?.node;
    let old = place.age(node).await?;
    let after = place.write(node, 0, b"x").await?;
    that!(after.mtime > OLD && after.ctime >= old.ctime);
    same!((after.atime, after.mtime), (OLD, after.ctime));
    let old = place.age(node).await?;
    same!(place.write(node, 100, b"").await?, old);
    ok!(place.fs.setattr(&owner(), node, size(0)));
    that!(place.attr(node).await?.mtime > OLD);
    let old = place.age(node).await?;
    ok!(place.fs.setattr(&owner(), node, mode(0o644)));
    let after = place.attr(node).await?;
    same!((after.mtime, after.atime), (OLD, OLD));
    that!(after.ctime >= old.ctime);
    // A read of what has changed since the last one shows.
    ok!(place.fs.read(&owner(), node, 0, 1));
    same!(place.attr(node).await?.mtime, OLD);
    // Size and time in one call: the time asked for stands.
    let set = SetAttr { mtime: Some(SetTime::To(OLD)), ..size(7) };
    ok!(place.fs.setattr(&owner(), node, set));
    same!(place.attr(node).await?.mtime, OLD);
    Ok(())
}

async fn entries_and_links(place: Place) -> Verdict {
    let dir = place.folder(&owner(), "d", 0o700).await?.node;
    let mut old = place.age(dir).await?;
    let file = place.file_in(dir, &owner(), "f", 0o600).await?.node;
    for step in 0..5 {
        let after = place.attr(dir).await?;
        that!(after.mtime > OLD && after.ctime >= old.ctime && after.change > old.change);
        same!(after.atime, OLD);
        old = place.age(dir).await?;
        let old_file = place.age(file).await?;
        match step {
            0 => ok!(place.fs.link(&owner(), file, dir, b"g")),
            1 => ok!(place.fs.remove(&owner(), dir, b"g")),
            2 => ok!(place.fs.rename(&owner(), dir, b"f", dir, b"h")),
            3 => ok!(place.fs.mkdir(&owner(), dir, b"d", mode(0o700))),
            _ => ok!(place.fs.rmdir(&owner(), dir, b"d")),
        };
        let after = place.attr(file).await?;
        same!((after.mtime, after.atime), (OLD, OLD));
        same!(after.change > old_file.change, step < 3);
    }
    that!(place.attr(dir).await?.mtime > OLD);
    Ok(())
}

async fn the_change_counter_only_grows(place: Place) -> Verdict {
    let node = place.file(&owner(), "f", 0o600).await?.node;
    let mut last = place.attr(node).await?.change;
    for step in 0..6 {
        match step {
            0 => ok!(place.fs.write(&owner(), node, 0, Bytes::from_static(b"x"), Stability::Unstable)),
            1 => ok!(place.fs.write(&owner(), node, 0, Bytes::from_static(b"x"), Stability::Data)),
            2 => ok!(place.fs.setattr(&owner(), node, mode(0o600))),
            3 => ok!(place.fs.setattr(&owner(), node, size(1))),
            4 => ok!(place.fs.link(&owner(), node, place.dir, b"g")),
            _ => ok!(place.fs.rename(&owner(), place.dir, b"g", place.dir, b"h")),
        };
        let now = place.attr(node).await?.change;
        that!(now > last);
        last = now;
    }
    Ok(())
}
