//! What every case works with: a directory of its own, people, and checks that say where they failed.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;

use crate::contract::{EventSink, FileSystem};
use crate::types::*;

/// What is wrong, and where the suite noticed.
pub type Verdict = Result<(), String>;

/// A case of the suite.
#[derive(Clone, Copy)]
pub struct Case {
    /// Module and function.
    pub name: &'static str,
    pub run: fn(Place) -> Pin<Box<dyn Future<Output = Verdict> + Send>>,
}

/// Keeps what the file system tells.
#[derive(Debug, Default)]
pub(super) struct Heard(Mutex<Vec<Event>>);

impl EventSink for Heard {
    fn event(&self, event: Event) {
        self.0.lock().push(event);
    }
}

impl Heard {
    /// Owners that were granted a lock of this object since the last time.
    pub fn granted(&self, node: Node) -> Vec<Bytes> {
        let mut events = self.0.lock();
        let is_of = |event: &mut Event| matches!(event, Event::LockGranted(info) if info.lock.node == node);
        let granted = events.extract_if(.., is_of);
        granted.map(|Event::LockGranted(info)| info.lock.owner.owner).collect()
    }
}

/// Where a case works.
#[derive(Clone)]
pub struct Place {
    pub fs: Arc<dyn FileSystem>,
    pub volume: VolumeInfo,
    /// Events of the file system.
    pub(super) heard: Arc<Heard>,
    /// An empty directory of the case's own, open to everybody.
    pub dir: Node,
}

/// The value of an answer that must not be a refusal.
macro_rules! ok {
    ($answer:expr) => {
        match $answer.await {
            Ok(done) => done.value,
            Err(done) => {
                let place = concat!(file!(), ":", line!(), ": ", stringify!($answer));
                return Err(format!("{place}: refused: {:?}", done.value.errno));
            }
        }
    };
}

/// The failure of an answer that must be this refusal.
macro_rules! refused {
    ($answer:expr, $errno:expr) => {
        match $answer.await {
            Err(done) if done.value.errno == $errno => done.value,
            other => {
                let place = concat!(file!(), ":", line!(), ": ", stringify!($answer));
                let errno = other.map(|done| done.value).map_err(|done| done.value.errno);
                return Err(format!("{place}: not refused with {:?} but {errno:?}", $errno));
            }
        }
    };
}

/// Both sides are equal.
macro_rules! same {
    ($left:expr, $right:expr) => {
        match (&$left, &$right) {
            (left, right) => {
                if left != right {
                    let place = concat!(file!(), ":", line!(), ": ", stringify!($left));
                    return Err(format!("{place}: is {left:?}, not {right:?}"));
                }
            }
        }
    };
}

/// It is so.
macro_rules! that {
    ($condition:expr) => {
        if !$condition {
            return Err(concat!(file!(), ":", line!(), ": not so: ", stringify!($condition)).to_owned());
        }
    };
}

/// The cases of a file.
macro_rules! cases {
    ($($name:ident),* $(,)?) => {
        pub(super) const CASES: &[Case] = &[$(Case {
            name: concat!(module_path!(), "::", stringify!($name)),
            run: |place| Box::pin($name(place)),
        }),*];
    };
}

pub(super) use {cases, ok, refused, same, that};

/// The owner of most objects, with two further groups.
pub(super) fn owner() -> Caller {
    Caller { groups: [2003, 2004].into_iter().collect(), ..Caller::user(1001, 2001) }
}

/// Somebody in none of the owner's groups.
pub(super) fn stranger() -> Caller {
    Caller::user(1002, 2002)
}

/// Somebody in the owner's first group by a supplementary one.
pub(super) fn member() -> Caller {
    Caller { groups: [5, 2001].into_iter().collect(), ..Caller::user(1003, 2005) }
}

pub(super) fn mode(mode: u16) -> SetAttr {
    SetAttr { mode: Some(mode), ..SetAttr::default() }
}

pub(super) fn size(size: u64) -> SetAttr {
    SetAttr { size: Some(size), ..SetAttr::default() }
}

pub(super) fn page(after: u64, entries_max: u32) -> ListRequest {
    ListRequest { after, entries_max, bytes_max: 1 << 20, entry_overhead: 24, attrs: true }
}

impl Place {
    /// A new file in the case's directory.
    pub async fn file(&self, caller: &Caller, name: &str, bits: u16) -> Result<Attr, String> {
        self.file_in(self.dir, caller, name, bits).await
    }

    pub async fn file_in(&self, dir: Node, caller: &Caller, name: &str, bits: u16) -> Result<Attr, String> {
        let effect = ok!(self.fs.create(caller, dir, name.as_bytes(), CreateMode::Guarded, mode(bits)));
        effect.attr.ok_or_else(|| format!("create of {name} gave no attributes"))
    }

    /// A new directory in the case's directory.
    pub async fn folder(&self, caller: &Caller, name: &str, bits: u16) -> Result<Attr, String> {
        self.folder_in(self.dir, caller, name, bits).await
    }

    pub async fn folder_in(&self, dir: Node, caller: &Caller, name: &str, bits: u16) -> Result<Attr, String> {
        let effect = ok!(self.fs.mkdir(caller, dir, name.as_bytes(), mode(bits)));
        effect.attr.ok_or_else(|| format!("mkdir of {name} gave no attributes"))
    }

    pub async fn attr(&self, node: Node) -> Result<Attr, String> {
        Ok(ok!(self.fs.getattr(&Caller::root(), node)))
    }

    pub async fn find(&self, dir: Node, name: &str) -> Result<Attr, String> {
        Ok(ok!(self.fs.lookup(&Caller::root(), dir, name.as_bytes())).0)
    }

    pub async fn write(&self, node: Node, offset: u64, data: &[u8]) -> Result<Attr, String> {
        let root = Caller::root();
        let mut effect = ok!(self.fs.write(&root, node, offset, Bytes::copy_from_slice(data), Stability::File));
        same!(effect.count as usize, data.len());
        effect.changes[0].after.take().ok_or_else(|| "a write gave no attributes".to_owned())
    }

    pub async fn read(&self, node: Node, offset: u64, count: u32) -> Result<Vec<u8>, String> {
        let reply = ok!(self.fs.read(&Caller::root(), node, offset, count));
        Ok(reply.data.concat())
    }

    /// All names of a directory, "." and ".." included, in listing order, `entries` at a time.
    pub async fn names(&self, dir: Node, entries: u32) -> Result<Vec<Bytes>, String> {
        let (mut names, mut after) = (Vec::new(), 0);
        loop {
            let reply = ok!(self.fs.list(&Caller::root(), dir, page(after, entries)));
            that!(reply.eof || !reply.entries.is_empty());
            for entry in reply.entries {
                that!(entry.cookie > after);
                after = entry.cookie;
                names.push(entry.name);
            }
            if reply.eof {
                return Ok(names);
            }
        }
    }
}

/// Before and after of a directory that an entry was added to or taken from are right.
pub(super) fn check_directory_change(change: &Change, before: &Attr) -> Verdict {
    same!(change.before, Some(Before::from(before)));
    let Some(after) = &change.after else { return Err("no attributes after".to_owned()) };
    that!(after.change > before.change);
    that!(after.mtime >= before.mtime && after.ctime >= before.ctime);
    same!(after.mtime, after.ctime);
    same!(after.node, before.node);
    Ok(())
}
