//! How full a volume is.

use super::place::*;
use crate::error::Errno;
use crate::types::*;

cases![usage_is_counted, verifiers_stand_still, volumes_are_listed];

async fn usage_is_counted(place: Place) -> Verdict {
    let id = place.volume.id;
    let stat = || place.fs.statfs(&owner(), id);
    let before = ok!(stat());
    that!(before.bytes_used <= before.bytes_total && before.bytes_free <= before.bytes_total);
    let file = place.file(&owner(), "f", 0o600).await?;
    place.write(file.node, 0, &[1; 100_000]).await?;
    let after = ok!(stat());
    that!(after.bytes_used >= before.bytes_used + 100_000);
    same!(after.inodes_used, before.inodes_used + 1);
    that!(place.attr(file.node).await?.used >= 100_000);
    ok!(place.fs.remove(&owner(), place.dir, b"f"));
    same!(ok!(stat()).inodes_used, before.inodes_used);
    refused!(place.fs.statfs(&owner(), tarn_base::ids::VolumeId(u32::MAX)), Errno::Stale);
    Ok(())
}

async fn verifiers_stand_still(place: Place) -> Verdict {
    let (verifier, incarnation) = (place.fs.write_verifier(), place.fs.incarnation());
    let file = place.file(&owner(), "f", 0o600).await?;
    place.write(file.node, 0, b"x").await?;
    same!((place.fs.write_verifier(), place.fs.incarnation()), (verifier, incarnation));
    Ok(())
}

async fn volumes_are_listed(place: Place) -> Verdict {
    let volumes = place.fs.volumes();
    that!(volumes.iter().any(|volume| volume.id == place.volume.id && volume.root == place.volume.root));
    let root = place.attr(place.volume.root).await?;
    same!((root.kind, root.node), (FileType::Directory, place.volume.root));
    Ok(())
}
