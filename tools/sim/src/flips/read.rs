//! Trees: what was written, and what is read back.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use tarn_vfs::{Attr, Caller, Errno, FileSystem, FileType, IO_SIZE_MAX, ListRequest, Node};

/// What a name stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Item {
    Directory,
    File(Bytes),
    Link(Bytes),
}

/// By path from the root, without a slash before it; the root is not in it.
pub type Tree = BTreeMap<String, Item>;

/// What was read back.
#[derive(Clone, Debug, Default)]
pub struct Reading {
    /// What answered with other than what was written.
    pub wrong: Vec<String>,
    /// Paths that answered with an error, and the inode that it was about, as far as known.
    pub failed: Vec<(String, Errno)>,
    pub inodes: BTreeMap<String, u64>,
}

/// Reads all of `tree` below `root`, by listing, by name and by content.
pub async fn read_back(fs: &dyn FileSystem, root: Node, tree: &Tree) -> Reading {
    let mut reading = Reading::default();
    let mut nodes = BTreeMap::from([(String::new(), root)]);
    reading.inodes.insert(String::new(), root.ino.0);
    // In order of path, so a directory comes before what is in it.
    let directories = std::iter::once(String::new())
        .chain(tree.iter().filter(|(_, item)| **item == Item::Directory).map(|(path, _)| path.clone()));
    for directory in directories.collect::<Vec<_>>() {
        let Some(node) = nodes.get(&directory).copied() else { continue };
        let children = children(tree, &directory);
        let names: BTreeSet<String> = children.keys().cloned().collect();
        match list(fs, node).await {
            Ok(listed) if listed == names => {}
            Ok(listed) => {
                let odd = listed.symmetric_difference(&names).count();
                reading.wrong.push(format!("/{directory}: {odd} names of the listing are wrong"));
            }
            Err(errno) => reading.failed.push((directory.clone(), errno)),
        }
        for (name, (path, item)) in children {
            match look(fs, node, &name, item).await {
                Ok(attr) => {
                    nodes.insert(path.clone(), attr.node);
                    reading.inodes.insert(path.clone(), attr.node.ino.0);
                }
                Err(Bad::Failed(errno)) => reading.failed.push((path.clone(), errno)),
                Err(Bad::Wrong(what)) => reading.wrong.push(format!("/{path}: {what}")),
            }
        }
    }
    for (path, item) in tree {
        let Some(node) = nodes.get(path) else { continue };
        match content(fs, *node, item).await {
            Ok(()) => {}
            Err(Bad::Failed(errno)) => reading.failed.push((path.clone(), errno)),
            Err(Bad::Wrong(what)) => reading.wrong.push(format!("/{path}: {what}")),
        }
    }
    reading
}

enum Bad {
    Failed(Errno),
    Wrong(String),
}

/// Names in a directory, with path and item.
fn children<'a>(tree: &'a Tree, directory: &str) -> BTreeMap<String, (&'a String, &'a Item)> {
    let prefix = if directory.is_empty() { String::new() } else { format!("{directory}/") };
    let below = tree.range(prefix.clone()..).take_while(|(path, _)| path.starts_with(&prefix));
    let named = below.map(|(path, item)| (path[prefix.len()..].to_owned(), (path, item)));
    named.filter(|(name, _)| !name.contains('/')).collect()
}

async fn list(fs: &dyn FileSystem, dir: Node) -> Result<BTreeSet<String>, Errno> {
    let (mut names, mut after) = (BTreeSet::new(), 0);
    loop {
        let request = ListRequest { after, entries_max: 1000, bytes_max: u32::MAX, entry_overhead: 0, attrs: false };
        let reply = fs.list(&Caller::root(), dir, request).await.map_err(|done| done.value.errno)?.value;
        for entry in &reply.entries {
            after = entry.cookie;
            if entry.name != "." && entry.name != ".." {
                names.insert(String::from_utf8_lossy(&entry.name).into_owned());
            }
        }
        if reply.eof || reply.entries.is_empty() {
            return Ok(names);
        }
    }
}

async fn look(fs: &dyn FileSystem, dir: Node, name: &str, item: &Item) -> Result<Attr, Bad> {
    let found = fs.lookup(&Caller::root(), dir, name.as_bytes()).await;
    let attr = match found {
        Ok(found) => found.value.0,
        Err(done) if matches!(done.value.errno, Errno::NotFound | Errno::Stale) => {
            return Err(Bad::Wrong(format!("{:?}", done.value.errno)));
        }
        Err(done) => return Err(Bad::Failed(done.value.errno)),
    };
    let (kind, size) = match item {
        Item::Directory => (FileType::Directory, attr.size),
        Item::File(bytes) => (FileType::Regular, bytes.len() as u64),
        Item::Link(target) => (FileType::Symlink, target.len() as u64),
    };
    if (attr.kind, attr.size) != (kind, size) {
        return Err(Bad::Wrong(format!("{:?} of {} bytes, not {kind:?} of {size}", attr.kind, attr.size)));
    }
    Ok(attr)
}

async fn content(fs: &dyn FileSystem, node: Node, item: &Item) -> Result<(), Bad> {
    let wanted = match item {
        Item::Directory => return Ok(()),
        Item::Link(target) => {
            let read = fs.readlink(&Caller::root(), node).await.map_err(|done| Bad::Failed(done.value.errno))?;
            return if read.value.0 == target { Ok(()) } else { Err(Bad::Wrong("another target".into())) };
        }
        Item::File(bytes) => bytes,
    };
    let mut at = 0;
    loop {
        let reply = fs.read(&Caller::root(), node, at as u64, IO_SIZE_MAX).await;
        let reply = reply.map_err(|done| Bad::Failed(done.value.errno))?.value;
        let mut pieces = reply.data.iter();
        let fits = pieces.try_fold(at, |at, piece| {
            let place = wanted.get(at..at + piece.len())?;
            (place == piece).then_some(at + piece.len())
        });
        match fits {
            None => return Err(Bad::Wrong(format!("other bytes from {at} on"))),
            Some(end) if end == wanted.len() => return Ok(()),
            Some(end) if end == at => return Err(Bad::Wrong(format!("it ends at {at}"))),
            Some(end) => at = end,
        }
    }
}
