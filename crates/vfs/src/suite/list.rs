//! Listings: pages, cookies, and directories that change meanwhile.

use std::collections::BTreeSet;

use bytes::Bytes;

use super::place::*;
use crate::error::Errno;
use crate::types::*;

cases![
    an_empty_directory,
    attributes_with_entries,
    many_entries_in_small_pages,
    cookies_stay_where_they_are,
    a_directory_emptied_while_read,
    a_directory_filled_while_read,
    pages_end_where_asked,
    what_cannot_be_listed,
];

async fn an_empty_directory(place: Place) -> Verdict {
    let folder = place.folder(&owner(), "d", 0o700).await?;
    let reply = ok!(place.fs.list(&owner(), folder.node, page(0, 100)));
    that!(reply.eof);
    let entries: Vec<_> = reply.entries.iter().map(|entry| (&entry.name[..], entry.ino, entry.cookie)).collect();
    same!(entries, [(&b"."[..], folder.node.ino, 1), (&b".."[..], place.dir.ino, 2)]);
    same!(reply.dir.node, folder.node);
    // The root of a volume is above itself.
    let reply = ok!(place.fs.list(&Caller::root(), place.volume.root, page(0, 2)));
    same!(reply.entries[1].ino, place.volume.root.ino);
    Ok(())
}

async fn attributes_with_entries(place: Place) -> Verdict {
    let file = place.file(&owner(), "f", 0o600).await?;
    let folder = place.folder(&owner(), "d", 0o700).await?;
    let reply = ok!(place.fs.list(&owner(), place.dir, page(2, 100)));
    let attrs: Vec<_> = reply.entries.iter().filter_map(|entry| entry.attr.clone()).collect();
    same!(attrs, [file.clone(), folder]);
    same!(reply.entries[0].kind, FileType::Regular);
    same!(reply.entries[1].kind, FileType::Directory);
    let reply = ok!(place.fs.list(&owner(), place.dir, ListRequest { attrs: false, ..page(0, 100) }));
    that!(reply.entries.iter().all(|entry| entry.attr.is_none()));
    Ok(())
}

async fn many_entries_in_small_pages(place: Place) -> Verdict {
    let mut expected = BTreeSet::from([Bytes::from_static(b"."), Bytes::from_static(b"..")]);
    for number in 0..3000 {
        let name = format!("entry {number}");
        place.file(&owner(), &name, 0o600).await?;
        expected.insert(Bytes::from(name));
    }
    for entries in [7, 1000] {
        let names = place.names(place.dir, entries).await?;
        same!(names.len(), expected.len());
        same!(names.into_iter().collect::<BTreeSet<_>>(), expected);
    }
    Ok(())
}

async fn cookies_stay_where_they_are(place: Place) -> Verdict {
    for name in ["a", "b", "c", "d"] {
        place.file(&owner(), name, 0o600).await?;
    }
    let before = ok!(place.fs.list(&owner(), place.dir, page(0, 100))).entries;
    ok!(place.fs.remove(&owner(), place.dir, b"b"));
    place.file(&owner(), "e", 0o600).await?;
    let after = ok!(place.fs.list(&owner(), place.dir, page(0, 100))).entries;
    for old in before.iter().filter(|entry| entry.name != "b") {
        that!(after.iter().any(|entry| entry.name == old.name && entry.cookie == old.cookie));
    }
    // What is new comes behind, and a cookie whose entry is gone still marks its place.
    let Some(gone) = before.iter().find(|entry| entry.name == "b") else { return Err("b is not listed".into()) };
    let rest = ok!(place.fs.list(&owner(), place.dir, page(gone.cookie, 100)));
    same!(rest.entries.iter().map(|entry| &entry.name[..]).collect::<Vec<_>>(), [b"c", b"d", b"e"]);
    let Some(last) = rest.entries.last() else { return Err("nothing is listed".into()) };
    for beyond in [last.cookie, last.cookie + 1000, u64::MAX] {
        let reply = ok!(place.fs.list(&owner(), place.dir, page(beyond, 100)));
        that!(reply.eof && reply.entries.is_empty());
    }
    Ok(())
}

async fn a_directory_emptied_while_read(place: Place) -> Verdict {
    // As `rm -r` does it: remove what was listed, ask for more.
    for number in 0..200 {
        place.file(&owner(), &format!("f{number}"), 0o600).await?;
    }
    let (mut after, mut seen) = (2, 0);
    loop {
        let reply = ok!(place.fs.list(&owner(), place.dir, page(after, 9)));
        for entry in &reply.entries {
            ok!(place.fs.remove(&owner(), place.dir, &entry.name));
            after = entry.cookie;
            seen += 1;
        }
        if reply.eof {
            break;
        }
    }
    same!(seen, 200);
    same!(place.names(place.dir, 100).await?.len(), 2);
    Ok(())
}

async fn a_directory_filled_while_read(place: Place) -> Verdict {
    for number in 0..50 {
        place.file(&owner(), &format!("old{number}"), 0o600).await?;
    }
    let (mut after, mut names, mut pages) = (0, Vec::new(), 0);
    loop {
        let reply = ok!(place.fs.list(&owner(), place.dir, page(after, 5)));
        after = reply.entries.last().map_or(after, |entry| entry.cookie);
        names.extend(reply.entries.into_iter().map(|entry| entry.name));
        if reply.eof {
            break;
        }
        if pages < 20 {
            place.file(&owner(), &format!("new{pages}"), 0o600).await?;
            ok!(place.fs.remove(&owner(), place.dir, format!("old{}", 49 - pages).as_bytes()));
        }
        pages += 1;
        that!(pages < 100);
    }
    let distinct: BTreeSet<_> = names.iter().collect();
    same!(distinct.len(), names.len());
    // What was there all the time has been seen.
    for number in 0..30 {
        that!(distinct.contains(&Bytes::from(format!("old{number}"))));
    }
    Ok(())
}

async fn pages_end_where_asked(place: Place) -> Verdict {
    for name in ["aaaa", "bbbb", "cccc"] {
        place.file(&owner(), name, 0o600).await?;
    }
    // Each entry counts 4 + 6 bytes.
    let request = ListRequest { after: 2, entries_max: 100, bytes_max: 20, entry_overhead: 6, attrs: false };
    let reply = ok!(place.fs.list(&owner(), place.dir, request));
    same!((reply.entries.len(), reply.eof), (2, false));
    let reply = ok!(place.fs.list(&owner(), place.dir, ListRequest { bytes_max: 19, ..request }));
    same!((reply.entries.len(), reply.eof), (1, false));
    let reply = ok!(place.fs.list(&owner(), place.dir, ListRequest { bytes_max: 9, ..request }));
    same!((reply.entries.len(), reply.eof), (0, false));
    let reply = ok!(place.fs.list(&owner(), place.dir, ListRequest { bytes_max: 30, ..request }));
    same!((reply.entries.len(), reply.eof), (3, true));
    Ok(())
}

async fn what_cannot_be_listed(place: Place) -> Verdict {
    let file = place.file(&owner(), "f", 0o600).await?;
    let failure = refused!(place.fs.list(&owner(), file.node, page(0, 10)), Errno::NotDirectory);
    same!(failure.changes[0].after.as_ref().map(|attr| attr.node), Some(file.node));
    let folder = place.folder(&owner(), "d", 0o300).await?;
    refused!(place.fs.list(&owner(), folder.node, page(0, 10)), Errno::Access);
    ok!(place.fs.rmdir(&owner(), place.dir, b"d"));
    refused!(place.fs.list(&owner(), folder.node, page(0, 10)), Errno::Stale);
    Ok(())
}
