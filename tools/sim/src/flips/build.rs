//! The data set: a store and a log as a crash left them, what is in them, and which of their bytes live.
//!
//! - Files of many sizes, removed, overwritten and cut off; several checkpoints; segments that reclaim has moved.
//! - The log holds changes that no checkpoint has taken; the last of them are its last group.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tarn_base::world::Clock;
use tarn_engine::{Engine, VolumeSpec};
use tarn_vfs::{Caller, CreateMode, FileSystem, Node as Inode, SetAttr, Special, Stability, VolumeSettings};
use tarn_wal::Log;
use tarn_wal::faulty::FaultyDisk;

use super::node::{LOG_BYTES, Node};
use super::read::{Item, Tree};
use super::{Class, Flip};
use crate::chance::Chance;

/// Begins the ring on the log's device.
const RING_START: u64 = 8192;
/// Bytes of a frame's header.
const FRAME_HEADER: u64 = 96;
/// Longer than objects are held that nothing needs any more, virtual time.
const HOLD: Duration = Duration::from_secs(20 * 60);

/// Bytes of an object, or of the log's device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Span {
    pub object: Option<String>,
    pub bytes: Range<u64>,
}

/// See the head of the file.
pub struct Image {
    pub objects: Vec<(String, Bytes)>,
    pub log: Vec<u8>,
    /// By how much the wall clock had moved on, milliseconds.
    pub passed_ms: i64,
    /// Files that the log changes over what the store has of them.
    pub changed: BTreeSet<String>,
    /// Without the last group, and with it.
    pub before: Tree,
    pub after: Tree,
    live: BTreeMap<Class, Vec<Span>>,
    /// Log's device bytes of the last group.
    last_group: Vec<Range<u64>>,
}

impl fmt::Display for Image {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let files = self.after.values().filter(|item| **item != Item::Directory).count();
        write!(f, "{files} files, {} objects; live bytes:", self.objects.len())?;
        for (class, spans) in &self.live {
            let bytes: u64 = spans.iter().map(|span| span.bytes.end - span.bytes.start).sum();
            write!(f, " {class} {bytes},")?;
        }
        let last: u64 = self.last_group.iter().map(|bytes| bytes.end - bytes.start).sum();
        write!(f, " of them in the last group {last}")
    }
}

impl Image {
    pub fn build(seed: u64) -> Result<Image, String> {
        super::trial::runtime().block_on(build(seed))
    }

    /// A bit of a live byte of `class`.
    pub fn draw(&self, class: Class, chance: &mut Chance) -> Result<Flip, String> {
        let spans = self.live.get(&class).map(Vec::as_slice).unwrap_or_default();
        let size: u64 = spans.iter().map(|span| span.bytes.end - span.bytes.start).sum();
        let mut at = chance.below(size.max(1));
        let bit = chance.below(8) as u8;
        for span in spans {
            let size = span.bytes.end - span.bytes.start;
            if at < size {
                let byte = span.bytes.start + at;
                let last = class == Class::Log && self.last_group.iter().any(|bytes| bytes.contains(&byte));
                let class = if last { Class::LastGroup } else { class };
                return Ok(Flip { class, object: span.object.clone(), byte, bit });
            }
            at -= size;
        }
        Err(format!("nothing lives of the class {class}"))
    }
}

/// Writes files and remembers them.
struct Writer {
    fs: Arc<Engine>,
    tree: Tree,
    nodes: BTreeMap<String, Inode>,
    chance: Chance,
}

type Done = Result<(), String>;

fn refused<T: fmt::Debug>(error: T) -> String {
    format!("the data set could not be written: {error:?}")
}

impl Writer {
    fn place<'a>(&self, path: &'a str) -> (Inode, &'a str) {
        let (dir, name) = path.rsplit_once('/').unwrap_or(("", path));
        (self.nodes[dir], name)
    }

    /// Bytes that compress, or not.
    fn bytes(&mut self, size: u64) -> Bytes {
        let noise = self.chance.percent(60);
        let word = self.chance.next().to_le_bytes();
        let bytes = (0..size).map(|at| if noise { self.chance.next() as u8 } else { word[(at / 5 % 8) as usize] });
        bytes.collect::<Vec<u8>>().into()
    }

    async fn directory(&mut self, path: &str) -> Done {
        let (dir, name) = self.place(path);
        let made = self.fs.mkdir(&Caller::root(), dir, name.as_bytes(), SetAttr::default()).await.map_err(refused)?;
        self.nodes.insert(path.to_owned(), made.value.attr.ok_or("no attributes")?.node);
        self.tree.insert(path.to_owned(), Item::Directory);
        Ok(())
    }

    async fn file(&mut self, path: &str, size: u64) -> Done {
        let (dir, name) = self.place(path);
        let (caller, set) = (Caller::root(), SetAttr::default());
        let made = self.fs.create(&caller, dir, name.as_bytes(), CreateMode::Guarded, set).await.map_err(refused)?;
        self.nodes.insert(path.to_owned(), made.value.attr.ok_or("no attributes")?.node);
        self.tree.insert(path.to_owned(), Item::File(Bytes::new()));
        if size > 0 { self.write(path, 0, size).await } else { Ok(()) }
    }

    async fn link(&mut self, path: &str, target: &str) -> Done {
        let (dir, name) = self.place(path);
        let what = Special::Symlink(Bytes::copy_from_slice(target.as_bytes()));
        let made = self.fs.make(&Caller::root(), dir, name.as_bytes(), what, SetAttr::default()).await;
        self.nodes.insert(path.to_owned(), made.map_err(refused)?.value.attr.ok_or("no attributes")?.node);
        self.tree.insert(path.to_owned(), Item::Link(Bytes::copy_from_slice(target.as_bytes())));
        Ok(())
    }

    /// Writes so that it is durable when this returns.
    async fn write(&mut self, path: &str, at: u64, size: u64) -> Done {
        let data = self.bytes(size);
        let node = self.nodes[path];
        let done = self.fs.write(&Caller::root(), node, at, data.clone(), Stability::File).await.map_err(refused)?;
        self.fs.durable(done.position).await.map_err(refused)?;
        if let Some(Item::File(held)) = self.tree.get_mut(path) {
            let mut bytes = held.to_vec();
            bytes.resize(bytes.len().max((at + size) as usize), 0);
            bytes[at as usize..(at + size) as usize].copy_from_slice(&data);
            *held = bytes.into();
        }
        Ok(())
    }

    async fn cut(&mut self, path: &str, size: u64) -> Done {
        let set = SetAttr { size: Some(size), ..SetAttr::default() };
        self.fs.setattr(&Caller::root(), self.nodes[path], set).await.map_err(refused)?;
        if let Some(Item::File(held)) = self.tree.get_mut(path) {
            let mut bytes = held.to_vec();
            bytes.resize(size as usize, 0);
            *held = bytes.into();
        }
        Ok(())
    }

    async fn remove(&mut self, path: &str) -> Done {
        let (dir, name) = self.place(path);
        self.fs.remove(&Caller::root(), dir, name.as_bytes()).await.map_err(refused)?;
        self.nodes.remove(path);
        self.tree.remove(path);
        Ok(())
    }

    async fn checkpoint(&self) -> Done {
        self.fs.checkpoint().await.map(drop).map_err(refused)
    }

    /// Files of a tree of `from..to`, as homes are: most are small.
    async fn homes(&mut self, directories: Range<u64>) -> Done {
        for number in directories {
            let home = format!("home{number}");
            self.directory(&home).await?;
            for file in 0..40 {
                let size = match self.chance.below(10) {
                    0 => self.chance.below(200),
                    1..=7 => self.chance.range(500, 12_000),
                    _ => self.chance.range(12_000, 100_000),
                };
                self.file(&format!("{home}/file{file}"), size).await?;
            }
            self.link(&format!("{home}/link"), "file0").await?;
        }
        self.checkpoint().await
    }

    /// Many names, so that the metadata has some size.
    async fn names(&mut self, directory: &str, count: u64) -> Done {
        self.directory(directory).await?;
        for number in 0..count {
            let (a, b) = (self.chance.next(), self.chance.next());
            let size = if number % 8 == 0 { self.chance.range(1, 300) } else { 0 };
            self.file(&format!("{directory}/{number:05} {a:016x}{b:016x}{:016x}", a ^ b.rotate_left(7)), size).await?;
        }
        self.checkpoint().await
    }

    /// Removes, overwrites and cuts off some of what is there; bytes in segments die, records are written again.
    async fn churn(&mut self, one_in: u64) -> Done {
        let files = self.tree.iter().filter_map(|(path, item)| match item {
            Item::File(bytes) if path.starts_with("home") => Some((path.clone(), bytes.len() as u64)),
            _ => None,
        });
        for (path, size) in files.collect::<Vec<_>>() {
            if self.chance.below(one_in) > 0 {
                continue;
            }
            match self.chance.below(5) {
                0 | 1 => self.remove(&path).await?,
                2 => self.cut(&path, size / 2).await?,
                _ => {
                    let (at, more) = (self.chance.range(0, size), self.chance.range(1, 5000));
                    self.write(&path, at, more).await?;
                }
            }
        }
        Ok(())
    }
}

async fn build(seed: u64) -> Result<Image, String> {
    let node = Node::new(FaultyDisk::new(LOG_BYTES, seed), seed, "build");
    let settings = VolumeSettings { record_size: 16 << 10, ..VolumeSettings::default() };
    let first = VolumeSpec { name: "vol".into(), settings, uid: 0, gid: 0, mode: 0o755 };
    let fs = node.open(Some(first)).await.map_err(refused)?;
    let nodes = BTreeMap::from([(String::new(), fs.volumes()[0].root)]);
    let mut writer = Writer { fs: fs.clone(), tree: Tree::new(), nodes, chance: Chance::new(seed, "data") };
    writer.homes(0..4).await?;
    writer.names("names", 1500).await?;
    writer.homes(4..8).await?;
    writer.churn(2).await?;
    writer.checkpoint().await?;
    tokio::time::sleep(HOLD).await;
    fs.reclaim_now().await.map_err(refused)?;
    writer.names("more", 500).await?;
    writer.churn(4).await?;
    writer.checkpoint().await?;
    tokio::time::sleep(HOLD).await;
    fs.reclaim_now().await.map_err(refused)?;
    writer.checkpoint().await?;
    let extents = fs.extents().await.map_err(refused)?;
    // From here on only the log has it.
    let stored = writer.tree.clone();
    writer.churn(6).await?;
    writer.directory("late").await?;
    for number in 0..10 {
        writer.file(&format!("late/file{number}"), 3000).await?;
    }
    let before = writer.tree.clone();
    writer.write("late/file7", 1000, 9000).await?;
    let passed_ms = node.clock.steady().as_millis() as i64;
    node.kill().await;
    drop((writer.nodes, fs));
    let mut live = BTreeMap::new();
    let spans = |extents: Vec<tarn_engine::extents::Extent>| -> Vec<Span> {
        extents.into_iter().map(|extent| Span { object: Some(extent.object), bytes: extent.bytes }).collect()
    };
    live.insert(Class::Records, spans(extents.records));
    live.insert(Class::Directories, spans(extents.frames));
    metadata(&node, &mut live).await?;
    let last_group = log(&node, &mut live)?;
    let objects = node.memory.contents();
    let changed = writer.tree.iter().filter(|(path, item)| stored.get(*path).is_some_and(|held| held != *item));
    let changed = changed.map(|(path, _)| path.clone()).collect();
    Ok(Image { changed, objects, log: node.disk.image(), passed_ms, before, after: writer.tree, live, last_group })
}

/// The objects of the metadata store that count, and the owner record.
async fn metadata(node: &Node, live: &mut BTreeMap<Class, Vec<Span>>) -> Result<(), String> {
    let sizes: BTreeMap<String, u64> =
        node.memory.contents().into_iter().map(|(name, bytes)| (name, bytes.len() as u64)).collect();
    let whole = |name: &String| Span { object: Some(name.clone()), bytes: 0..sizes[name] };
    let tables = tarn_meta::slate::tables("meta", node.sealed()?).await.map_err(refused)?;
    let tables: BTreeSet<String> = tables.into_iter().collect();
    live.insert(Class::Tables, tables.iter().map(whole).collect());
    let newest = |prefix: &str| sizes.keys().rfind(|name| name.starts_with(prefix)).map(whole);
    let manifests = ["meta/manifest/", "meta/compactions/"].into_iter().filter_map(newest);
    live.insert(Class::Manifests, manifests.collect());
    live.insert(Class::Owner, vec![whole(&tarn_engine::OWNER_RECORD.to_owned())]);
    Ok(())
}

/// The header slots and the frames of the log; gives the device bytes of the last group.
fn log(node: &Node, live: &mut BTreeMap<Class, Vec<Span>>) -> Result<Vec<Range<u64>>, String> {
    let device = node.disk.device();
    let ring = LOG_BYTES - RING_START;
    let mut opened = Log::open(device, &Node::master()).map_err(refused)?;
    let mut frames: BTreeMap<u64, u64> = BTreeMap::new();
    let replayed = opened.replay(|entry| {
        let end = frames.entry(entry.place.frame).or_default();
        *end = (*end).max(u64::from(entry.place.start + entry.place.len));
        Ok::<(), tarn_wal::LogError>(())
    });
    let durable = replayed.map_err(refused)?.durable;
    let mut spans = Vec::new();
    spans.push(0..RING_START);
    let mut last = Vec::new();
    for (offset, body) in frames {
        let (from, size) = (RING_START + offset % ring, FRAME_HEADER + body);
        if from + size > LOG_BYTES {
            return Err("a frame lies across the end of the ring; choose another seed".into());
        }
        spans.push(from..from + size);
        if offset >= durable {
            last.push(from..from + size);
        }
    }
    live.insert(Class::Log, spans.into_iter().map(|bytes| Span { object: None, bytes }).collect());
    if last.is_empty() { Err("the log has no last group".into()) } else { Ok(last) }
}
