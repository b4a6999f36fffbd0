//! A tree that a seed decides: written, and later compared with what a server has.
//!
//! - Files of many sizes, overwritten in part, truncated, sparse, linked, renamed and removed; symbolic links;
//!   directories with many entries.
//! - Checking lists every directory: what is there and not expected fails as what is missing does.

use crate::random::Random;
use crate::{Outcome, Server};
use std::collections::BTreeMap;
use tarn_nfsclient::client::How;
use tarn_nfsclient::types::Change;
use tarn_nfsclient::{Client, Error, Handle, Kind, Stable};

#[derive(clap::Args)]
pub struct Arguments {
    #[command(flatten)]
    server: Server,
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Files
    #[arg(long, default_value_t = 300)]
    files: u64,
    /// The directory below the export's root that holds the tree
    #[arg(long, default_value = "tree")]
    top: String,
}

/// What a name stands for.
enum Node {
    File { content: Vec<u8>, links: u32 },
    Link(Vec<u8>),
}

/// Directory, name, node.
type Plan = BTreeMap<String, BTreeMap<String, Node>>;

pub fn fill(arguments: &Arguments) -> Outcome<String> {
    let (mut client, root) = arguments.server.connect(1)?;
    let top = make(&mut client, &root, &arguments.top)?;
    let mut random = Random::new(arguments.seed);
    let (mut files, mut bytes) = (0, 0);
    for (directory, nodes) in plan(arguments) {
        let folder = make(&mut client, &top, &directory)?;
        for (name, node) in nodes {
            let problem = |error: Error| format!("{directory}/{name}: {error}");
            match node {
                Node::Link(target) => {
                    client.symlink(&folder, name.as_bytes(), &target).map_err(problem)?;
                }
                Node::File { content, links } => {
                    put(&mut client, &mut random, &folder, &name, &content, links).map_err(problem)?;
                    files += 1;
                    bytes += content.len();
                }
            }
        }
    }
    Ok(format!("filled {files} files, {} KiB, seed {}", bytes / 1024, arguments.seed))
}

fn make(client: &mut Client, parent: &Handle, name: &str) -> Outcome<Handle> {
    client.mkdir(parent, name.as_bytes(), 0o755).map_err(|error| format!("mkdir {name}: {error}"))
}

/// Writes a file by a way that leaves `content`, but not in one stroke.
fn put(
    client: &mut Client,
    random: &mut Random,
    folder: &Handle,
    name: &str,
    content: &[u8],
    links: u32,
) -> Result<(), Error> {
    let draft = format!("{name}.draft");
    let file = client.create(folder, draft.as_bytes(), How::Guarded)?;
    // Rubbish first, some of it beyond the end; a WRITE holds at most 1 MiB.
    let rubbish = random.bytes((content.len() / 2 + 100).min(1 << 20));
    client.write(&file, content.len() as u64 / 2, &rubbish, Stable::Unstable)?;
    client.setattr(&file, Change::size(0))?;
    // Then the content; runs of zeros stay holes.
    for (index, chunk) in content.chunks(50_000).enumerate() {
        if chunk.iter().any(|byte| *byte != 0) {
            let stable = if random.below(4) == 0 { Stable::FileSync } else { Stable::Unstable };
            client.write(&file, index as u64 * 50_000, chunk, stable)?;
        }
    }
    client.setattr(&file, Change::size(content.len() as u64))?;
    client.commit(&file)?;
    client.rename((folder, draft.as_bytes()), (folder, name.as_bytes()))?;
    for link in 1..links {
        client.link(&file, folder, format!("{name}.link{link}").as_bytes())?;
    }
    let gone = format!("{name}.gone");
    client.create(folder, gone.as_bytes(), How::Exclusive(random.next()))?;
    client.remove(folder, gone.as_bytes())
}

fn plan(arguments: &Arguments) -> Plan {
    let mut random = Random::new(arguments.seed ^ 0x7ee7);
    let mut plan = Plan::new();
    for index in 0..arguments.files {
        let directory = format!("directory{}", random.below(1 + arguments.files / 40));
        let nodes = plan.entry(directory).or_default();
        if random.below(10) == 0 {
            let size = 1 + random.below(200) as usize;
            nodes.insert(format!("link{index}"), Node::Link(random.path(size)));
            continue;
        }
        let size = match random.below(10) {
            0 => 0,
            1..=5 => random.below(10_000) as usize,
            6..=8 => random.below(200_000) as usize,
            _ => random.below(3_000_000) as usize,
        };
        let mut content = random.bytes(size);
        if random.below(3) == 0 {
            // A hole, and text that compresses.
            let middle = size / 2;
            content[size / 4..middle].fill(0);
            content[middle..].iter_mut().enumerate().for_each(|(at, byte)| *byte = b"compressible "[at % 13]);
        }
        let links = 1 + u32::from(random.below(8) == 0);
        nodes.insert(format!("file{index}"), Node::File { content, links });
    }
    plan
}

pub fn check(arguments: &Arguments) -> Outcome<String> {
    let (mut client, root) = arguments.server.connect(2)?;
    let problem = |error: Error| format!("{}: {error}", arguments.top);
    let (top, _) = client.lookup(&root, arguments.top.as_bytes()).map_err(problem)?;
    let plan = plan(arguments);
    let there = names(&mut client, &top).map_err(problem)?;
    let expected: Vec<String> = plan.keys().cloned().collect();
    same_names(&arguments.top, expected, there)?;
    let mut files = 0;
    for (directory, nodes) in &plan {
        let (folder, _) = client.lookup(&top, directory.as_bytes()).map_err(|error| format!("{directory}: {error}"))?;
        let there = names(&mut client, &folder).map_err(|error| format!("{directory}: {error}"))?;
        same_names(directory, nodes.iter().flat_map(|(name, node)| all_names(name, node)).collect(), there)?;
        for (name, node) in nodes {
            compare(&mut client, &folder, name, node).map_err(|what| format!("{directory}/{name}: {what}"))?;
            files += 1;
        }
    }
    Ok(format!("checked {files} files and links in {} directories, seed {}: identical", plan.len(), arguments.seed))
}

fn all_names(name: &str, node: &Node) -> Vec<String> {
    let links = if let Node::File { links, .. } = node { *links } else { 1 };
    let others = (1..links).map(|link| format!("{name}.link{link}"));
    std::iter::once(name.to_owned()).chain(others).collect()
}

fn names(client: &mut Client, folder: &Handle) -> Result<Vec<String>, Error> {
    let entries = client.readdirplus(folder)?;
    Ok(entries.into_iter().map(|entry| String::from_utf8_lossy(&entry.name).into_owned()).collect())
}

fn same_names(place: &str, mut expected: Vec<String>, mut there: Vec<String>) -> Outcome<()> {
    expected.sort();
    there.sort();
    if let Some(missing) = expected.iter().find(|name| !there.contains(name)) {
        return Err(format!("{place}: {missing} is missing"));
    }
    if let Some(more) = there.iter().find(|name| !expected.contains(name)) {
        return Err(format!("{place}: {more} should not be there"));
    }
    if there.len() != expected.len() {
        return Err(format!("{place}: a name is listed twice"));
    }
    Ok(())
}

fn compare(client: &mut Client, folder: &Handle, name: &str, node: &Node) -> Outcome<()> {
    let told = |error: Error| error.to_string();
    let (handle, _) = client.lookup(folder, name.as_bytes()).map_err(told)?;
    let attributes = client.getattr(&handle).map_err(told)?;
    match node {
        Node::Link(target) => {
            let there = client.readlink(&handle).map_err(told)?;
            if attributes.kind != Kind::Symlink || there != *target {
                return Err("points elsewhere".to_owned());
            }
        }
        Node::File { content, links } => {
            if attributes.size != content.len() as u64 || attributes.links != *links {
                let (size, count) = (attributes.size, attributes.links);
                return Err(format!("has {size} bytes and {count} links, not {} and {links}", content.len()));
            }
            let there = client.read_all(&handle).map_err(told)?;
            if let Some(at) = there.iter().zip(content).position(|(a, b)| a != b) {
                return Err(format!("differs from byte {at} on"));
            }
            if there.len() != content.len() {
                return Err(format!("gives {} bytes of {}", there.len(), content.len()));
            }
        }
    }
    Ok(())
}
