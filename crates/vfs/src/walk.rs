//! A whole tree as text, through the contract: to compare two file systems, or one before and after.
//!
//! - Two right file systems with the same history give the same lines: no numbers, positions or cookies. Hard
//!   links show as the first path that names the object. Times are shown on request; the access time never.
//! - Files are read to their end if they are at most [`WHOLE_MAX`] bytes; of longer ones that much at either end.
//! - The walk is not atomic: nobody may change the tree meanwhile.

use std::collections::BTreeMap;
use std::fmt;
use std::hash::Hasher;

use bytes::Bytes;
use siphasher::sip::SipHasher24;
use tarn_base::time::Time;

use crate::contract::FileSystem;
use crate::error::Errno;
use crate::types::*;

/// Bytes read from either end of a long file.
pub const WHOLE_MAX: u64 = 8 << 20;
/// Entries asked for at once: few, so that walks try paging.
const PAGE: u32 = 100;

/// A hash of bytes that come in pieces; how they are cut does not matter.
pub fn hash<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> u64 {
    let mut hasher = SipHasher24::new();
    for piece in pieces {
        hasher.write(piece);
    }
    hasher.finish()
}

/// What two file systems must agree on about an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Facts {
    pub kind: FileType,
    pub mode: u16,
    pub links: u32,
    pub uid: u32,
    pub gid: u32,
    pub size: u64,
    pub device: (u32, u32),
}

impl From<&Attr> for Facts {
    fn from(attr: &Attr) -> Facts {
        let Attr { kind, mode, links, uid, gid, size, device, .. } = *attr;
        Facts { kind, mode, links, uid, gid, size, device }
    }
}

/// An object at a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    pub facts: Facts,
    /// mtime and ctime.
    pub times: Option<(Time, Time)>,
    pub content: Content,
}

/// What an object holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// [`hash`] of the bytes.
    Bytes(u64),
    Target(Bytes),
    /// The object is the one at this path.
    SameAs(Bytes),
    Nothing,
}

/// A tree, by path from the volume's root (which is empty).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Dump(pub BTreeMap<Bytes, Line>);

impl Dump {
    /// Up to `max` paths at which two trees differ, legibly; none if they are the same.
    pub fn differences(&self, other: &Dump, max: usize) -> Vec<String> {
        let paths: std::collections::BTreeSet<&Bytes> = self.0.keys().chain(other.0.keys()).collect();
        let differing = paths.into_iter().filter(|path| self.0.get(*path) != other.0.get(*path));
        let show = |line: Option<&Line>| line.map_or("nothing".to_owned(), Line::to_string);
        let lines = differing
            .map(|path| format!("/{}: {} / {}", path.escape_ascii(), show(self.0.get(path)), show(other.0.get(path))));
        lines.take(max).collect()
    }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Facts { kind, mode, links, uid, gid, size, device } = self.facts;
        write!(f, "{kind:?} {mode:04o} links {links} {uid}:{gid} size {size} device {}.{}", device.0, device.1)?;
        if let Some((mtime, ctime)) = self.times {
            write!(f, " mtime {}.{:09} ctime {}.{:09}", mtime.seconds, mtime.nanos, ctime.seconds, ctime.nanos)?;
        }
        match &self.content {
            Content::Bytes(hash) => write!(f, " bytes {hash:016x}"),
            Content::Target(target) => write!(f, " -> {}", target.escape_ascii()),
            Content::SameAs(path) => write!(f, " same as /{}", path.escape_ascii()),
            Content::Nothing => Ok(()),
        }
    }
}

impl fmt::Display for Dump {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|(path, line)| writeln!(f, "/{} {line}", path.escape_ascii()))
    }
}

/// The tree below `root`, as the superuser sees it. An error names the path it met; a directory that lists what
/// cannot be looked up, or the same name twice, is an error.
pub async fn dump(fs: &dyn FileSystem, root: Node, times: bool) -> Result<Dump, (Bytes, Errno)> {
    let caller = Caller::root();
    let mut dump = Dump::default();
    let mut seen: BTreeMap<Node, Bytes> = BTreeMap::new();
    let attr = fs.getattr(&caller, root).await.map_err(|done| (Bytes::new(), done.value.errno))?.value;
    let mut todo = vec![(Bytes::new(), attr)];
    while let Some((path, attr)) = todo.pop() {
        let at = |errno| (path.clone(), errno);
        let content = match seen.get(&attr.node) {
            Some(first) => Content::SameAs(first.clone()),
            None => content(fs, &caller, &attr).await.map_err(at)?,
        };
        seen.entry(attr.node).or_insert_with(|| path.clone());
        if attr.kind == FileType::Directory {
            for (name, attr) in entries(fs, &caller, attr.node).await.map_err(at)? {
                let below = if path.is_empty() { name } else { [&path[..], b"/", &name].concat().into() };
                todo.push((below, attr));
            }
            // The stack gives the smallest path first, so that the first name of a hard link is the same one
            // whatever order a listing has.
            todo.sort_by(|a, b| b.0.cmp(&a.0));
        }
        let times = times.then_some((attr.mtime, attr.ctime));
        dump.0.insert(path, Line { facts: Facts::from(&attr), times, content });
    }
    Ok(dump)
}

async fn content(fs: &dyn FileSystem, caller: &Caller, attr: &Attr) -> Result<Content, Errno> {
    match attr.kind {
        FileType::Regular => {
            let mut hasher = SipHasher24::new();
            let head = attr.size.min(WHOLE_MAX);
            read_into(fs, caller, attr.node, 0, head, &mut hasher).await?;
            let tail = (attr.size - head).min(WHOLE_MAX);
            read_into(fs, caller, attr.node, attr.size - tail, attr.size, &mut hasher).await?;
            Ok(Content::Bytes(hasher.finish()))
        }
        FileType::Symlink => {
            let reply = fs.readlink(caller, attr.node).await.map_err(|done| done.value.errno)?;
            Ok(Content::Target(reply.value.0))
        }
        _ => Ok(Content::Nothing),
    }
}

async fn read_into(
    fs: &dyn FileSystem,
    caller: &Caller,
    node: Node,
    mut from: u64,
    to: u64,
    hasher: &mut SipHasher24,
) -> Result<(), Errno> {
    while from < to {
        let count = (to - from).min(u64::from(IO_SIZE_MAX)) as u32;
        let reply = fs.read(caller, node, from, count).await.map_err(|done| done.value.errno)?.value;
        if reply.is_empty() {
            return Err(Errno::Io);
        }
        reply.data.iter().for_each(|piece| hasher.write(piece));
        from += reply.len() as u64;
    }
    Ok(())
}

/// Names and attributes of a directory but "." and "..", looked up one by one.
async fn entries(fs: &dyn FileSystem, caller: &Caller, dir: Node) -> Result<Vec<(Bytes, Attr)>, Errno> {
    let (mut names, mut after) = (BTreeMap::new(), 0);
    loop {
        let request = ListRequest { after, entries_max: PAGE, bytes_max: u32::MAX, entry_overhead: 0, attrs: false };
        let reply = fs.list(caller, dir, request).await.map_err(|done| done.value.errno)?.value;
        if reply.entries.is_empty() && !reply.eof {
            return Err(Errno::Io);
        }
        for entry in reply.entries {
            after = entry.cookie;
            if entry.name == "." || entry.name == ".." {
                continue;
            }
            let attr = fs.lookup(caller, dir, &entry.name).await.map_err(|done| done.value.errno)?.value.0;
            if attr.node.ino != entry.ino || attr.kind != entry.kind || names.insert(entry.name, attr).is_some() {
                return Err(Errno::Io);
            }
        }
        if reply.eof {
            return Ok(names.into_iter().collect());
        }
    }
}
