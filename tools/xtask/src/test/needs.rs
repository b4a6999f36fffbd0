//! What tests need beyond a Rust toolchain and a C compiler: how to see that it is there and how to get it.
//!
//! - Programs of the distribution come by apt; the rest goes below the tools directory, outside the checkout.
//! - A version is pinned, so that two machines run the same test.

use crate::workspace::Workspace;
use std::path::Path;

pub struct Need {
    pub name: &'static str,
    found: Found,
    pub by: By,
}

/// How to see that it is there.
enum Found {
    Program(&'static str),
    Root,
    Device(&'static str),
    Guest,
}

pub enum By {
    /// The package.
    Apt(&'static str),
    /// Crates, with their programs.
    Cargo(&'static str),
    Go(&'static str),
    Npm(&'static str),
    /// The rig's own script.
    Guest,
    /// No installation gives this.
    Operator(&'static str),
}

pub const NEEDS: &[Need] = &[
    Need { name: "root", found: Found::Root, by: By::Operator("run as root") },
    Need {
        name: "/dev/net/tun",
        found: Found::Device("/dev/net/tun"),
        by: By::Operator("a host that has /dev/net/tun"),
    },
    Need {
        name: "/dev/loop-control",
        found: Found::Device("/dev/loop-control"),
        by: By::Operator("a host that has loop devices"),
    },
    Need { name: "ip", found: Found::Program("ip"), by: By::Apt("iproute2") },
    Need { name: "ps", found: Found::Program("ps"), by: By::Apt("procps") },
    Need { name: "strings", found: Found::Program("strings"), by: By::Apt("binutils") },
    Need { name: "nfs-ls", found: Found::Program("nfs-ls"), by: By::Apt("libnfs-utils") },
    Need { name: "gcc", found: Found::Program("gcc"), by: By::Apt("gcc") },
    Need { name: "mke2fs", found: Found::Program("mke2fs"), by: By::Apt("e2fsprogs") },
    Need { name: "setpriv", found: Found::Program("setpriv"), by: By::Apt("util-linux") },
    Need { name: "mmdebstrap", found: Found::Program("mmdebstrap"), by: By::Apt("mmdebstrap") },
    Need {
        name: "chromium-headless-shell",
        found: Found::Program("chromium-headless-shell"),
        by: By::Apt("chromium-headless-shell"),
    },
    Need { name: "guest", found: Found::Guest, by: By::Guest },
    Need { name: "pjdfstest", found: Found::Program("pjdfstest"), by: By::Cargo("pjdfstest@0.2.2") },
    Need { name: "fsx", found: Found::Program("fsx"), by: By::Cargo("fsx@0.3.2") },
    Need {
        name: "versitygw",
        found: Found::Program("versitygw"),
        by: By::Go("github.com/versity/versitygw/cmd/versitygw@v1.8.0"),
    },
    Need { name: "azurite", found: Found::Program("azurite"), by: By::Npm("azurite@3.35.0") },
];

pub fn missing(workspace: &Workspace) -> Vec<&'static Need> {
    NEEDS.iter().filter(|need| !is_there(workspace, need)).collect()
}

pub fn is_missing(workspace: &Workspace, name: &str) -> bool {
    NEEDS.iter().find(|need| need.name == name).is_none_or(|need| !is_there(workspace, need))
}

fn is_there(workspace: &Workspace, need: &Need) -> bool {
    match need.found {
        Found::Program(name) => workspace.path().split(':').any(|folder| Path::new(folder).join(name).is_file()),
        Found::Root => is_root(),
        Found::Device(path) => Path::new(path).exists(),
        Found::Guest => {
            std::env::var_os("TARN_RIG").map_or(workspace.tools.join("rig"), Into::into).join("built").exists()
        }
    }
}

fn is_root() -> bool {
    // The fifth word of the Uid line is the file-system user, which follows the effective one.
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    status.lines().any(|line| line.starts_with("Uid:") && line.split_whitespace().nth(2) == Some("0"))
}

/// One line of shell that installs everything given.
pub fn line(workspace: &Workspace, needs: &[&Need]) -> String {
    steps(workspace, needs).join(" && ")
}

fn steps(workspace: &Workspace, needs: &[&Need]) -> Vec<String> {
    let tools = workspace.tools.display();
    let packages = |choose: fn(&By) -> Option<&'static str>| -> String {
        needs.iter().filter_map(|need| choose(&need.by)).collect::<Vec<_>>().join(" ")
    };
    let apt = packages(|by| if let By::Apt(package) = by { Some(package) } else { None });
    let cargo = packages(|by| if let By::Cargo(name) = by { Some(name) } else { None });
    let npm = packages(|by| if let By::Npm(name) = by { Some(name) } else { None });
    let go = packages(|by| if let By::Go(name) = by { Some(name) } else { None });
    let mut steps = Vec::new();
    if !apt.is_empty() {
        steps.push("apt-get update -q".to_owned());
        steps.push(format!("DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends {apt}"));
    }
    if !cargo.is_empty() {
        steps.push(format!("CARGO_TARGET_DIR={tools}/build cargo install --locked --root {tools} {cargo}"));
    }
    steps.extend(go.split_whitespace().map(|module| format!("GOBIN={tools}/bin go install {module}")));
    if !npm.is_empty() {
        steps.push(format!("npm install --no-fund --no-audit --prefix {tools} {npm}"));
    }
    if needs.iter().any(|need| matches!(need.by, By::Guest)) {
        steps.push("tests/rig/build-guest.sh".to_owned());
    }
    steps
}

/// Installs what is missing, and says what cannot be installed.
pub fn install(workspace: &Workspace) -> Result<(), String> {
    let missing = missing(workspace);
    for need in &missing {
        if let By::Operator(what) = need.by {
            return Err(format!("{} is missing: {what}", need.name));
        }
    }
    std::fs::create_dir_all(&workspace.tools).map_err(|error| format!("{}: {error}", workspace.tools.display()))?;
    for step in steps(workspace, &missing) {
        println!("+ {step}");
        let status = workspace.command("sh").args(["-c", &step]).status().map_err(|error| format!("sh: {error}"))?;
        if !status.success() {
            return Err(format!("failed: {step}"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    #[test]
    fn what_is_missing_is_one_line() {
        let workspace = Workspace {
            root: PathBuf::from("/nowhere"),
            target: PathBuf::from("/nowhere/target"),
            tools: PathBuf::from("/tools"),
            packages: Vec::new(),
        };
        let all: Vec<&Need> = NEEDS.iter().collect();
        let line = line(&workspace, &all);
        assert!(!line.contains('\n'));
        for part in
            ["libnfs-utils", "pjdfstest@0.2.2 fsx@0.3.2", "GOBIN=/tools/bin go install", "--prefix /tools azurite"]
        {
            assert!(line.contains(part), "{part} in {line}");
        }
    }
}
