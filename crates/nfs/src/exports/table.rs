//! The export lists of all volumes.
//!
//! - Follows the file system's list of volumes: a new list is noticed at the next call.
//! - A list that cannot be read lets nobody in.

use std::net::SocketAddr;
use std::sync::Arc;

use parking_lot::RwLock;
use tarn_base::ids::VolumeId;
use tarn_vfs::{FileSystem, VolumeInfo, Volumes};

use super::names::Names;
use super::rules::{RuleSet, Verdict};

/// A volume and who may mount it.
pub struct Export {
    pub volume: VolumeInfo,
    pub rules: Arc<RuleSet>,
}

impl Export {
    /// The path under which it is mounted.
    pub fn path(&self) -> String {
        format!("/{}", self.volume.name)
    }
}

/// All exports as of one moment.
pub struct Table {
    volumes: Volumes,
    /// By volume id.
    exports: Vec<Export>,
}

impl Table {
    pub fn find(&self, volume: VolumeId) -> Option<&Export> {
        let index = self.exports.binary_search_by_key(&volume, |export| export.volume.id).ok()?;
        self.exports.get(index)
    }

    pub fn by_name(&self, name: &[u8]) -> Option<&Export> {
        self.exports.iter().find(|export| export.volume.name.as_bytes() == name)
    }

    /// In the order of their names.
    pub fn by_path(&self) -> Vec<&Export> {
        let mut out: Vec<&Export> = self.exports.iter().collect();
        out.sort_by(|a, b| a.volume.name.cmp(&b.volume.name));
        out
    }
}

/// The exports, kept up to date.
pub struct Exports {
    fs: Arc<dyn FileSystem>,
    names: Arc<Names>,
    /// For volumes without a list of their own.
    default: Arc<RuleSet>,
    table: RwLock<Arc<Table>>,
}

impl Exports {
    pub fn new(fs: Arc<dyn FileSystem>, names: Arc<Names>, default: RuleSet) -> Exports {
        let default = Arc::new(default);
        let table = RwLock::new(Arc::new(build(fs.volumes(), &default, &names)));
        Exports { fs, names, default, table }
    }

    /// The exports as they are now.
    pub fn current(&self) -> Arc<Table> {
        self.with(Arc::clone)
    }

    /// Shows `see` the exports as they are now. They are locked meanwhile.
    pub fn with<T>(&self, see: impl FnOnce(&Arc<Table>) -> T) -> T {
        let table = self.table.read();
        if self.fs.lists(&table.volumes) {
            return see(&table);
        }
        drop(table);
        let table = Arc::new(build(self.fs.volumes(), &self.default, &self.names));
        *self.table.write() = table.clone();
        see(&table)
    }

    /// What the list of `export` says of a call from `peer`.
    pub fn judge(&self, export: &Export, peer: SocketAddr) -> Verdict {
        export.rules.judge(peer.ip(), peer.port(), |host, address| self.names.has(host, address))
    }
}

fn build(volumes: Volumes, default: &Arc<RuleSet>, names: &Arc<Names>) -> Table {
    let mut exports: Vec<Export> =
        volumes.iter().map(|volume| Export { volume: volume.clone(), rules: rules_of(volume, default) }).collect();
    exports.sort_by_key(|export| export.volume.id);
    for host in exports.iter().flat_map(|export| export.rules.hosts()) {
        names.ask(host);
    }
    Table { volumes, exports }
}

fn rules_of(volume: &VolumeInfo, default: &Arc<RuleSet>) -> Arc<RuleSet> {
    let text = &volume.settings.exports;
    if text.trim().is_empty() {
        return default.clone();
    }
    match text.parse() {
        Ok(rules) => Arc::new(rules),
        Err(error) => {
            tracing::error!(volume = %volume.name, %error, "nobody may mount the volume until its export rules are set again");
            Arc::default()
        }
    }
}
