//! A directory of this machine: file content past the page cache, names by system calls.

use super::{Data, Node, Pending};
use crate::Outcome;
use crate::drive::reactor::Reactor;
use crate::drive::ring::Ring;
use crate::workload::definition::Stability;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Instant;

/// Longest read or write of the ring.
const TRANSFER: u64 = 1 << 20;
/// Smallest unit that O_DIRECT takes everywhere.
const UNIT: u64 = 4096;

pub struct Local {
    ring: Ring,
    root: PathBuf,
}

impl Local {
    /// `root` was made by the caller.
    pub fn open(reactor: &Reactor, root: &Path) -> Outcome<Local> {
        Ok(Local { ring: Ring::new(reactor)?, root: root.to_owned() })
    }

    pub fn transfer_max(&self) -> (u64, u64) {
        (TRANSFER, TRANSFER)
    }

    pub fn root(&self) -> Node {
        Node::Path { path: Rc::new(self.root.clone()), file: None }
    }

    pub async fn getattr(&self, node: &Node) -> Outcome<(u64, Instant)> {
        let path = path(node)?;
        let size = std::fs::symlink_metadata(path).map_err(|error| failed(path, &error))?.size();
        Ok((size, Instant::now()))
    }

    pub async fn lookup(&self, directory: &Node, name: &str) -> Outcome<(Node, Instant)> {
        let path = path(directory)?.join(name);
        let metadata = std::fs::symlink_metadata(&path).map_err(|error| failed(&path, &error))?;
        let file = if metadata.is_file() { Some(Rc::new(direct(&path, false)?)) } else { None };
        Ok((Node::Path { path: Rc::new(path), file }, Instant::now()))
    }

    pub async fn access(&self, node: &Node) -> Outcome<Instant> {
        let path = path(node)?;
        rustix::fs::access(path, rustix::fs::Access::READ_OK).map_err(|error| failed(path, &error.into()))?;
        Ok(Instant::now())
    }

    pub async fn setattr(&self, node: &Node, mode: u32) -> Outcome<Instant> {
        let path = path(node)?;
        let permissions = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(path, permissions).map_err(|error| failed(path, &error))?;
        Ok(Instant::now())
    }

    pub async fn readlink(&self, node: &Node) -> Outcome<(Vec<u8>, Instant)> {
        let path = path(node)?;
        let to = std::fs::read_link(path).map_err(|error| failed(path, &error))?;
        Ok((to.into_os_string().into_encoded_bytes(), Instant::now()))
    }

    pub async fn readdir(&self, directory: &Node, plus: bool) -> Outcome<(Vec<String>, Instant)> {
        let path = path(directory)?;
        let mut names = Vec::new();
        for entry in std::fs::read_dir(path).map_err(|error| failed(path, &error))?.take(1000) {
            let entry = entry.map_err(|error| failed(path, &error))?;
            if plus {
                entry.metadata().map_err(|error| failed(path, &error))?;
            }
            names.push(entry.file_name().to_string_lossy().into_owned());
        }
        Ok((names, Instant::now()))
    }

    pub async fn fsstat(&self) -> Outcome<Instant> {
        rustix::fs::statvfs(&self.root).map_err(|error| failed(&self.root, &error.into()))?;
        Ok(Instant::now())
    }

    pub async fn create(&self, directory: &Node, name: &str) -> Outcome<(Node, Instant)> {
        let path = path(directory)?.join(name);
        let file = Some(Rc::new(direct(&path, true)?));
        Ok((Node::Path { path: Rc::new(path), file }, Instant::now()))
    }

    pub async fn mkdir(&self, directory: &Node, name: &str) -> Outcome<(Node, Instant)> {
        let path = path(directory)?.join(name);
        std::fs::create_dir(&path).map_err(|error| failed(&path, &error))?;
        Ok((Node::Path { path: Rc::new(path), file: None }, Instant::now()))
    }

    pub async fn symlink(&self, directory: &Node, name: &str, to: &str) -> Outcome<(Node, Instant)> {
        let path = path(directory)?.join(name);
        std::os::unix::fs::symlink(to, &path).map_err(|error| failed(&path, &error))?;
        Ok((Node::Path { path: Rc::new(path), file: None }, Instant::now()))
    }

    pub async fn remove(&self, directory: &Node, name: &str) -> Outcome<Instant> {
        let path = path(directory)?.join(name);
        std::fs::remove_file(&path).map_err(|error| failed(&path, &error))?;
        Ok(Instant::now())
    }

    pub async fn rename(&self, directory: &Node, from: &str, to: &str) -> Outcome<Instant> {
        let directory = path(directory)?;
        std::fs::rename(directory.join(from), directory.join(to)).map_err(|error| failed(directory, &error))?;
        Ok(Instant::now())
    }

    pub async fn read(&self, node: &Node, offset: u64, size: u64) -> Outcome<(Data, Instant)> {
        // O_DIRECT takes whole units: what lies around is read too and cut off.
        let (from, to) = (offset / UNIT * UNIT, (offset + size).next_multiple_of(UNIT));
        let (first, end) = ((offset - from) as usize, (offset - from + size) as usize);
        if to - from <= TRANSFER {
            let read = self.ring.read(file(node)?, from, (to - from) as usize).await;
            let (lent, at) = read.map_err(|error| failed(path2(node), &error))?;
            return Ok((Data::Lent(lent.cut(first..end)), at));
        }
        let mut data = Vec::with_capacity((to - from) as usize);
        let mut last = Instant::now();
        while (data.len() as u64) < to - from {
            let at = from + data.len() as u64;
            let wanted = (to - at).min(TRANSFER) as usize;
            let read = self.ring.read(file(node)?, at, wanted).await;
            let (lent, when) = read.map_err(|error| failed(path2(node), &error))?;
            data.extend_from_slice(&lent);
            last = when;
            if lent.len() < wanted {
                break;
            }
        }
        data.truncate(end);
        data.drain(..first.min(data.len()));
        Ok((Data::Own(data), last))
    }

    pub async fn write(
        &self,
        node: &Node,
        (offset, size): (u64, u64),
        fill: &dyn Fn(u64, &mut [u8]),
        stable: Stability,
        pending: &mut Vec<Pending>,
    ) -> Outcome<Instant> {
        if !offset.is_multiple_of(UNIT) || !size.is_multiple_of(UNIT) {
            return Err(format!("{}: O_DIRECT writes whole units of {UNIT} bytes", path(node)?.display()));
        }
        let mut last = Instant::now();
        for at in (offset..offset + size).step_by(TRANSFER as usize) {
            let part = TRANSFER.min(offset + size - at) as usize;
            let written = self.ring.write(file(node)?, at, part, |out| fill(at, out)).await;
            last = written.map_err(|error| failed(path2(node), &error))?;
        }
        // O_DSYNC is not set: as fio does unless told otherwise, what passed the cache is at the device.
        if stable != Stability::File {
            pending.push(Pending { offset, size, verifier: 0 });
        }
        Ok(last)
    }

    pub async fn commit(&self, node: &Node, _: &[Pending]) -> Outcome<(Vec<Pending>, Instant)> {
        file(node)?.sync_data().map_err(|error| failed(path2(node), &error))?;
        Ok((Vec::new(), Instant::now()))
    }
}

fn direct(path: &Path, create: bool) -> Outcome<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create_new(create).custom_flags(rustix::fs::OFlags::DIRECT.bits() as i32);
    let no_direct = |error: &std::io::Error| error.kind() == std::io::ErrorKind::InvalidInput;
    options.open(path).map_err(|error| match no_direct(&error) {
        true => format!("{}: this file system knows no O_DIRECT; choose a disk", path.display()),
        false => failed(path, &error),
    })
}

fn failed(path: &Path, error: &std::io::Error) -> String {
    format!("{}: {error}", path.display())
}

fn path(node: &Node) -> Outcome<&Path> {
    match node {
        Node::Path { path, .. } => Ok(path),
        Node::Remote { .. } => Err("a server's file has no path here".to_owned()),
    }
}

/// For messages.
fn path2(node: &Node) -> &Path {
    path(node).unwrap_or(Path::new("?"))
}

fn file(node: &Node) -> Outcome<&Rc<File>> {
    match node {
        Node::Path { file: Some(file), .. } => Ok(file),
        _ => Err("not an open file".to_owned()),
    }
}
