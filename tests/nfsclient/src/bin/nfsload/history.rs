//! One raw client's history: random changes in a directory of its own, and what the directory must hold.
//!
//! - A call is repeated under its number until it is answered, so every change has exactly one outcome, even when the
//!   server is killed in between; any outcome but success fails the test. A create that was executed, forgotten and
//!   then refused as existing is found here.
//! - Data counts as kept when its WRITE said so, or when COMMIT gave the verifier that the WRITE had given; with
//!   another verifier the data is written again.

use crate::random::Random;
use crate::{Outcome, Server};
use std::collections::BTreeMap;
use tarn_nfsclient::client::How;
use tarn_nfsclient::types::Change;
use tarn_nfsclient::{Client, Error, Handle, Stable};

const NODES_MAX: usize = 60;
const BYTES_MAX: u64 = 200_000;

pub struct History {
    client: Client,
    directory: Handle,
    random: Random,
    nodes: BTreeMap<String, Node>,
    made: u64,
    /// Changes that were acknowledged as durable.
    pub acknowledged: u64,
    /// Unstable data that had to be written again.
    pub rewritten: u64,
}

struct Node {
    handle: Handle,
    kind: Kind,
    /// What was done to it, for whoever must understand a failure.
    story: Vec<String>,
}

enum Kind {
    File(Vec<u8>),
    Directory,
    Link(Vec<u8>),
}

impl History {
    pub fn begin(server: &Server, number: u32, seed: u64) -> Outcome<History> {
        let (mut client, root) = server.connect(number)?;
        let name = format!("raw{number}");
        let directory =
            client.mkdir(&root, name.as_bytes(), 0o755).map_err(|error| format!("mkdir {name}: {error}"))?;
        let random = Random::new(seed ^ u64::from(number));
        Ok(History { client, directory, random, nodes: BTreeMap::new(), made: 0, acknowledged: 0, rewritten: 0 })
    }

    /// Calls that were sent more than once.
    pub fn repeated(&self) -> u64 {
        self.client.repeated
    }

    /// One random change, to its end.
    pub fn step(&mut self) -> Outcome<()> {
        let choice = self.random.below(100);
        if self.nodes.len() < 5 || (choice < 25 && self.nodes.len() < NODES_MAX) {
            return self.make();
        }
        match choice {
            25..=49 => self.write(Stable::FileSync),
            50..=69 => self.write(Stable::Unstable),
            70..=79 => self.rename(),
            80..=87 => self.truncate(),
            _ => self.remove(),
        }
    }

    fn make(&mut self) -> Outcome<()> {
        self.made += 1;
        let name = format!("node{}", self.made);
        let bytes = name.as_bytes();
        let (handle, kind) = match self.random.below(8) {
            0 => (self.client.mkdir(&self.directory, bytes, 0o755), Kind::Directory),
            1 => {
                let target = self.random.path(20);
                (self.client.symlink(&self.directory, bytes, &target), Kind::Link(target))
            }
            2 | 3 => {
                let how = How::Exclusive(self.random.next());
                (self.client.create(&self.directory, bytes, how), Kind::File(Vec::new()))
            }
            _ => (self.client.create(&self.directory, bytes, How::Guarded), Kind::File(Vec::new())),
        };
        let handle = handle.map_err(|error| format!("make {name}: {error}"))?;
        self.nodes.insert(name, Node { handle, kind, story: Vec::new() });
        self.acknowledged += 1;
        Ok(())
    }

    fn write(&mut self, stable: Stable) -> Outcome<()> {
        let Some(name) = self.pick(true) else { return self.make() };
        let offset = self.random.below(BYTES_MAX);
        let size = 1 + self.random.below(30_000) as usize;
        let data = self.random.bytes(size);
        let Some(Node { handle, kind: Kind::File(content), story }) = self.nodes.get_mut(&name) else { return Ok(()) };
        let told = |error: Error| format!("write {name}: {error}");
        loop {
            let written = self.client.write(handle, offset, &data, stable).map_err(told)?;
            if written.count as usize != data.len() {
                return Err(format!("write {name}: {} of {} bytes", written.count, data.len()));
            }
            if stable != Stable::Unstable || written.stable == Stable::FileSync as u32 {
                break;
            }
            if self.client.commit(handle).map_err(told)? == written.verifier {
                break;
            }
            self.rewritten += 1;
        }
        let end = offset as usize + data.len();
        if content.len() < end {
            content.resize(end, 0);
        }
        content[offset as usize..end].copy_from_slice(&data);
        story.push(format!("{stable:?} {offset}+{size}"));
        self.acknowledged += 1;
        Ok(())
    }

    fn rename(&mut self) -> Outcome<()> {
        let Some(name) = self.pick(false) else { return Ok(()) };
        self.made += 1;
        let new = format!("node{}", self.made);
        let (from, to) = ((&self.directory, name.as_bytes()), (&self.directory, new.as_bytes()));
        self.client.rename(from, to).map_err(|error| format!("rename {name} to {new}: {error}"))?;
        if let Some(node) = self.nodes.remove(&name) {
            self.nodes.insert(new, node);
        }
        self.acknowledged += 1;
        Ok(())
    }

    fn truncate(&mut self) -> Outcome<()> {
        let Some(name) = self.pick(true) else { return Ok(()) };
        let size = self.random.below(BYTES_MAX);
        let Some(Node { handle, kind: Kind::File(content), story }) = self.nodes.get_mut(&name) else { return Ok(()) };
        self.client.setattr(handle, Change::size(size)).map_err(|error| format!("truncate {name}: {error}"))?;
        content.resize(size as usize, 0);
        story.push(format!("truncate {size}"));
        self.acknowledged += 1;
        Ok(())
    }

    fn remove(&mut self) -> Outcome<()> {
        let Some(name) = self.pick(false) else { return Ok(()) };
        let directory = matches!(self.nodes.get(&name), Some(Node { kind: Kind::Directory, .. }));
        let outcome = match directory {
            true => self.client.rmdir(&self.directory, name.as_bytes()),
            false => self.client.remove(&self.directory, name.as_bytes()),
        };
        outcome.map_err(|error| format!("remove {name}: {error}"))?;
        self.nodes.remove(&name);
        self.acknowledged += 1;
        Ok(())
    }

    fn pick(&mut self, file: bool) -> Option<String> {
        let fits = |node: &Node| !file || matches!(node.kind, Kind::File(_));
        let names: Vec<&String> = self.nodes.iter().filter(|(_, node)| fits(node)).map(|(name, _)| name).collect();
        let index = self.random.below(names.len() as u64) as usize;
        names.get(index).map(|name| (*name).clone())
    }

    /// The directory holds exactly what was acknowledged; handles of before are still good.
    pub fn verify(&mut self) -> Outcome<()> {
        let told = |error: Error| format!("list: {error}");
        let entries = self.client.readdirplus(&self.directory).map_err(told)?;
        let there: Vec<String> =
            entries.iter().map(|entry| String::from_utf8_lossy(&entry.name).into_owned()).collect();
        if let Some(lost) = self.nodes.keys().find(|name| !there.contains(name)) {
            return Err(format!("{lost} is lost"));
        }
        if let Some(back) = there.iter().find(|name| !self.nodes.contains_key(*name)) {
            return Err(format!("{back} is back, or was never acknowledged"));
        }
        for (name, node) in &self.nodes {
            let told = |error: Error| format!("{name}: {error}");
            let (found, _) = self.client.lookup(&self.directory, name.as_bytes()).map_err(told)?;
            if found != node.handle {
                return Err(format!("{name}: another handle than before"));
            }
            match &node.kind {
                Kind::File(content) => {
                    let there = self.client.read_all(&node.handle).map_err(told)?;
                    if there != *content {
                        let at = there.iter().zip(content).position(|(a, b)| a != b);
                        let at = at.unwrap_or(there.len().min(content.len()));
                        return Err(format!(
                            "{name}: {} bytes, {} acknowledged, different from byte {at} on, after {}",
                            there.len(),
                            content.len(),
                            node.story.join(", ")
                        ));
                    }
                }
                Kind::Link(target) => {
                    if self.client.readlink(&node.handle).map_err(told)? != *target {
                        return Err(format!("{name}: points elsewhere"));
                    }
                }
                Kind::Directory => {
                    self.client.getattr(&node.handle).map_err(told)?;
                }
            }
        }
        Ok(())
    }
}
