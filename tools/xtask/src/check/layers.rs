//! Law 1 and the picture: which crate may see which.
//!
//! - Front ends see `vfs` and `base`, never each other and never `engine`.
//! - Development dependencies obey too: a front end is tested over the model.
//! - Every package of the workspace has a row; a new one says where it stands.

use super::{Finding, Tree};
use crate::workspace::Package;

/// Package and what it may depend on.
const ALLOWED: &[(&str, &[&str])] = &[
    ("tarn-base", &[]),
    ("tarn-store", &["tarn-base"]),
    ("tarn-wal", &["tarn-base"]),
    ("tarn-meta", &["tarn-base", "tarn-store"]),
    ("tarn-data", &["tarn-base"]),
    ("tarn-vfs", &["tarn-base"]),
    ("tarn-engine", &["tarn-base", "tarn-store", "tarn-wal", "tarn-meta", "tarn-data", "tarn-vfs"]),
    ("tarn-nfs", &["tarn-base", "tarn-vfs"]),
    ("tarn-filer", ALL),
    ("tarn-sim", ALL),
    (
        "tarn-fuzz",
        &["tarn-base", "tarn-store", "tarn-wal", "tarn-data", "tarn-vfs", "tarn-engine", "tarn-nfs", "tarn-filer"],
    ),
    ("tarn-nfsclient", &[]),
    ("tarn-bench", &["tarn-nfsclient"]),
    ("xtask", &[]),
];

/// `filer` and `sim` choose implementations: they see everything below them.
const ALL: &[&str] =
    &["tarn-base", "tarn-store", "tarn-wal", "tarn-meta", "tarn-data", "tarn-vfs", "tarn-engine", "tarn-nfs"];

pub fn check(tree: &Tree) -> Result<Vec<Finding>, String> {
    Ok(findings(tree.packages()))
}

fn findings(packages: &[Package]) -> Vec<Finding> {
    let mut found = Vec::new();
    for package in packages {
        let manifest = format!("{}/Cargo.toml", package.folder);
        let Some((_, allowed)) = ALLOWED.iter().find(|(name, _)| *name == package.name) else {
            found.push(Finding::new(&manifest, 0, format!("{} has no row in the layer table", package.name)));
            continue;
        };
        for dependency in package.internal.iter().filter(|name| !allowed.contains(&name.as_str())) {
            let may = if allowed.is_empty() { "nothing of ours".to_owned() } else { allowed.join(", ") };
            found.push(Finding::new(&manifest, 0, format!("depends on {dependency}; it may see {may}")));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(name: &str, internal: &[&str]) -> Package {
        let internal = internal.iter().map(|name| (*name).to_owned()).collect();
        Package { name: name.to_owned(), folder: format!("crates/{name}"), internal }
    }

    #[test]
    fn a_front_end_that_sees_the_engine_is_found() {
        let packages = [package("tarn-nfs", &["tarn-base", "tarn-engine"]), package("tarn-wal", &["tarn-base"])];
        assert_eq!(findings(&packages)[0].what, "depends on tarn-engine; it may see tarn-base, tarn-vfs");
        assert_eq!(findings(&packages).len(), 1);
    }

    #[test]
    fn a_package_without_a_row_is_found() {
        assert_eq!(findings(&[package("tarn-new", &[])]).len(), 1);
    }
}
