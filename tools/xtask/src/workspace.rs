//! Where the checkout, its packages, its built programs and the tools are.
//!
//! - The tools directory lies outside the checkout (`TARN_TOOLS`, default `/var/tmp/tarn-tools`), so that clones
//!   share it; its programs come before the machine's own in `PATH`.

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

pub struct Workspace {
    pub root: PathBuf,
    /// Cargo's target directory.
    pub target: PathBuf,
    /// Programs that tests need and that no package of the distribution has.
    pub tools: PathBuf,
    pub packages: Vec<Package>,
}

pub struct Package {
    pub name: String,
    /// Folder of the package, relative to the root.
    pub folder: String,
    /// Names of the workspace's packages that this one depends on, development and build dependencies included.
    pub internal: Vec<String>,
}

impl Workspace {
    pub fn find() -> Result<Workspace, String> {
        let output = Command::new(cargo())
            .args(["metadata", "--format-version", "1", "--no-deps", "--offline"])
            .output()
            .map_err(|error| format!("cargo metadata: {error}"))?;
        if !output.status.success() {
            return Err(format!("cargo metadata: {}", String::from_utf8_lossy(&output.stderr).trim()));
        }
        let metadata: Value =
            serde_json::from_slice(&output.stdout).map_err(|error| format!("cargo metadata: {error}"))?;
        let root = PathBuf::from(text(&metadata, "workspace_root"));
        let tools = std::env::var_os("TARN_TOOLS").unwrap_or_else(|| "/var/tmp/tarn-tools".into());
        Ok(Workspace {
            packages: packages(&metadata, &root),
            target: PathBuf::from(text(&metadata, "target_directory")),
            tools: PathBuf::from(tools),
            root,
        })
    }

    /// A program that the one test profile built.
    pub fn program(&self, name: &str) -> PathBuf {
        self.target.join("debug").join(name)
    }

    /// `PATH` with the tools first.
    pub fn path(&self) -> String {
        let own = self.tools.join("bin");
        let node = self.tools.join("node_modules/.bin");
        let rest = std::env::var("PATH").unwrap_or_default();
        format!("{}:{}:{rest}:/usr/sbin:/sbin", own.display(), node.display())
    }

    /// A command run at the root with the tools in its `PATH`.
    pub fn command(&self, program: impl AsRef<Path>) -> Command {
        let mut command = Command::new(program.as_ref());
        command.current_dir(&self.root).env("PATH", self.path()).env("TARN_TOOLS", &self.tools);
        command
    }

    pub fn cargo(&self) -> Command {
        self.command(cargo())
    }
}

fn cargo() -> String {
    std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned())
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_default()
}

fn packages(metadata: &Value, root: &Path) -> Vec<Package> {
    let listed = metadata["packages"].as_array().map(Vec::as_slice).unwrap_or_default();
    let names: Vec<&str> = listed.iter().map(|package| text(package, "name")).collect();
    listed
        .iter()
        .map(|package| {
            let manifest = Path::new(text(package, "manifest_path"));
            let folder = manifest.parent().and_then(|folder| folder.strip_prefix(root).ok()).unwrap_or(root);
            let dependencies = package["dependencies"].as_array().map(Vec::as_slice).unwrap_or_default();
            let mut internal: Vec<String> = dependencies
                .iter()
                .map(|dependency| text(dependency, "name").to_owned())
                .filter(|name| names.contains(&name.as_str()))
                .collect();
            internal.sort();
            internal.dedup();
            Package { name: text(package, "name").to_owned(), folder: folder.display().to_string(), internal }
        })
        .collect()
}
