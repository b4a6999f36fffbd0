//! The tree is the model's: names, attributes, times, links, content.

use tarn_vfs::walk::dump;
use tarn_vfs::{FileSystem, Node};

use crate::failure::{Checked, Failure};

const NAME: &str = "tree";
/// Differing paths that are shown.
const SHOWN: usize = 6;

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
    Err(Failure::new(NAME, "the model's tree; at each path: the model's / what was found", differences.join("\n          ")))
}
