//! The tree is the model's: names, attributes, times, links, content.

use tarn_vfs::walk::{WHOLE_MAX, dump};
use tarn_vfs::{Caller, FileSystem, FileType, Node};

use crate::failure::{Checked, Failure};

const NAME: &str = "tree";
/// Differing paths that are shown.
const SHOWN: usize = 6;
/// Bytes compared at once: the smallest record.
const PIECE: u32 = 4096;

/// Compares two trees below their roots. Reading sets access times, so the model is a copy.
pub async fn check(engine: &dyn FileSystem, root: Node, model: &dyn FileSystem, model_root: Node) -> Checked {
    let is = dump(engine, root, true).await.map_err(|(path, errno)| {
        Failure::new(NAME, "a tree that can be read", format!("{errno:?} at /{}", path.escape_ascii()))
    })?;
    let should = dump(model, model_root, true).await.map_err(|(path, errno)| {
        Failure::new(NAME, "a model that can be read", format!("{errno:?} at /{}", path.escape_ascii()))
    })?;
    let differences = should.differences(&is, SHOWN);
    if differences.is_empty() {
        return Ok(());
    }
    let mut lines = differences;
    for (path, line) in is.0.iter().take(2000) {
        let both_files = line.facts.kind == FileType::Regular && should.0.get(path).is_some_and(|other| other != line);
        if both_files && let Some(where_) = ranges((engine, root), (model, model_root), path, line.facts.size).await {
            lines.push(where_);
        }
    }
    let expected = "the model's tree; at each path: the model's / what was found";
    Err(Failure::new(NAME, expected, lines.join("\n          ")))
}

type Tree<'a> = (&'a dyn FileSystem, Node);

/// Where the bytes of two files differ, and whether zeros were found there.
async fn ranges(engine: Tree<'_>, model: Tree<'_>, path: &[u8], size: u64) -> Option<String> {
    let (is, should) = (find(engine, path).await?, find(model, path).await?);
    let mut out = format!("/{}, of inode {:x}:", path.escape_ascii(), is.ino.0);
    for start in (0..size.min(WHOLE_MAX)).step_by(PIECE as usize) {
        let (found, meant) = (read(engine.0, is, start).await?, read(model.0, should, start).await?);
        if found != meant {
            let zeros = if found.iter().all(|byte| *byte == 0) { " are zeros" } else { " differ" };
            out += &format!(" {start}+{}{zeros},", found.len());
        }
    }
    Some(out)
}

async fn find((fs, root): Tree<'_>, path: &[u8]) -> Option<Node> {
    let mut at = root;
    for name in path.split(|byte| *byte == b'/') {
        at = fs.lookup(&Caller::root(), at, name).await.ok()?.value.0.node;
    }
    Some(at)
}

async fn read(fs: &dyn FileSystem, node: Node, start: u64) -> Option<Vec<u8>> {
    Some(fs.read(&Caller::root(), node, start, PIECE).await.ok()?.value.data.concat())
}
