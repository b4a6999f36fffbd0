//! Where a load's files lie: a server's export, or a directory of this machine. One set of operations for both.
//!
//! - Every answer is looked at; what is odd is an error with its text, and the run fails.
//! - A node is what an operation is done to: a file handle, or a path with an open file.

mod local;
mod nfs;

pub use local::Local;
pub use nfs::Nfs;

use crate::Outcome;
use crate::drive::connection::Answer;
use crate::drive::ring::Lent;
use crate::workload::definition::Stability;
use std::fs::File;
use std::ops::{Deref, Range};
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Instant;
use tarn_nfsclient::Handle;

/// A file, directory or link that exists.
#[derive(Clone, Debug)]
pub enum Node {
    Remote { handle: Rc<Handle>, fileid: u64 },
    Path { path: Rc<PathBuf>, file: Option<Rc<File>> },
}

/// A range that was written UNSTABLE and awaits its COMMIT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pending {
    pub offset: u64,
    pub size: u64,
    pub verifier: u64,
}

/// What was read.
pub enum Data {
    Own(Vec<u8>),
    Lent(Lent),
    /// These bytes of a reply.
    Part(Answer, Range<usize>),
}

impl Deref for Data {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Data::Own(bytes) => bytes,
            Data::Lent(bytes) => bytes,
            Data::Part(answer, range) => &answer.results()[range.clone()],
        }
    }
}

pub enum Place {
    Nfs(Nfs),
    Local(Local),
}

/// One of the two does it.
macro_rules! either {
    ($place:expr, $inner:ident => $call:expr) => {
        match $place {
            Place::Nfs($inner) => $call,
            Place::Local($inner) => $call,
        }
    };
}

impl Place {
    /// Bytes of one READ and one WRITE on the wire at most.
    pub fn transfer_max(&self) -> (u64, u64) {
        either!(self, place => place.transfer_max())
    }

    /// The directory that was made for the run.
    pub fn root(&self) -> Node {
        either!(self, place => place.root())
    }

    /// Size of a file; an error if it is not what is asked for.
    pub async fn getattr(&self, node: &Node) -> Outcome<(u64, Instant)> {
        either!(self, place => place.getattr(node).await)
    }

    pub async fn lookup(&self, directory: &Node, name: &str) -> Outcome<(Node, Instant)> {
        either!(self, place => place.lookup(directory, name).await)
    }

    pub async fn access(&self, node: &Node) -> Outcome<Instant> {
        either!(self, place => place.access(node).await)
    }

    /// Sets mode bits.
    pub async fn setattr(&self, node: &Node, mode: u32) -> Outcome<Instant> {
        either!(self, place => place.setattr(node, mode).await)
    }

    pub async fn readlink(&self, node: &Node) -> Outcome<(Vec<u8>, Instant)> {
        either!(self, place => place.readlink(node).await)
    }

    /// One call's worth of names from the beginning; with attributes and handles or without.
    pub async fn readdir(&self, directory: &Node, plus: bool) -> Outcome<(Vec<String>, Instant)> {
        either!(self, place => place.readdir(directory, plus).await)
    }

    pub async fn fsstat(&self) -> Outcome<Instant> {
        either!(self, place => place.fsstat().await)
    }

    pub async fn create(&self, directory: &Node, name: &str) -> Outcome<(Node, Instant)> {
        either!(self, place => place.create(directory, name).await)
    }

    pub async fn mkdir(&self, directory: &Node, name: &str) -> Outcome<(Node, Instant)> {
        either!(self, place => place.mkdir(directory, name).await)
    }

    pub async fn symlink(&self, directory: &Node, name: &str, to: &str) -> Outcome<(Node, Instant)> {
        either!(self, place => place.symlink(directory, name, to).await)
    }

    pub async fn remove(&self, directory: &Node, name: &str) -> Outcome<Instant> {
        either!(self, place => place.remove(directory, name).await)
    }

    pub async fn rename(&self, directory: &Node, from: &str, to: &str) -> Outcome<Instant> {
        either!(self, place => place.rename(directory, from, to).await)
    }

    /// `size` bytes at `offset`, in as many transfers as it takes; fewer only at the end of the file.
    pub async fn read(&self, node: &Node, offset: u64, size: u64) -> Outcome<(Data, Instant)> {
        either!(self, place => place.read(node, offset, size).await)
    }

    /// Writes `size` bytes at `offset` in as many transfers as it takes. `fill` is told from what offset on it is to put
    /// bytes into a buffer. What is not durable yet is appended to `pending`.
    pub async fn write(
        &self,
        node: &Node,
        range: (u64, u64),
        fill: &dyn Fn(u64, &mut [u8]),
        stable: Stability,
        pending: &mut Vec<Pending>,
    ) -> Outcome<Instant> {
        either!(self, place => place.write(node, range, fill, stable, pending).await)
    }

    /// Makes what is pending durable. Returns the ranges that must be written again: the server restarted meanwhile.
    pub async fn commit(&self, node: &Node, pending: &[Pending]) -> Outcome<(Vec<Pending>, Instant)> {
        either!(self, place => place.commit(node, pending).await)
    }
}
