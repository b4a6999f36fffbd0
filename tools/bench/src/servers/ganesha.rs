//! NFS-Ganesha, stock and tuned, over a directory of the same disk (FSAL VFS).
//!
//! - Stock: the package's defaults; only ports, the export and what a machine without a port mapper's friends needs.
//! - Tuned: what its documentation offers for speed: no duplicate request cache, no statistics, attributes trusted for
//!   long, more memory for handles, log at errors only, and no more threads than one core feeds (which gains most).
//!   Everything that is measured fits its caches either way.
//! - Runs in a space of its own ([`super::space`]), because it wants a port mapper and many open files.
//! - Debian: nfs-ganesha, nfs-ganesha-vfs, rpcbind.

use super::{Place, Server};
use crate::Outcome;
use crate::target::Target;
use std::path::Path;

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Variant {
    Stock,
    Tuned,
}

impl Variant {
    fn name(self) -> &'static str {
        match self {
            Variant::Stock => "Ganesha",
            Variant::Tuned => "Ganesha tuned",
        }
    }
}

/// The port mapper that Ganesha registers with.
pub fn port_mapper(place: &Place) -> Outcome<Server> {
    let server = place.start("rpcbind", Path::new("/usr/sbin/rpcbind"), &["-w", "-f"])?;
    std::thread::sleep(std::time::Duration::from_millis(500));
    Ok(server)
}

/// Starts Ganesha; NFS answers on `port` and MOUNT on the next.
pub fn start(place: &Place, variant: Variant, port: u16) -> Outcome<Server> {
    let label = variant.name().replace(' ', "-").to_lowercase();
    let export = place.directory.join(format!("{label}-export"));
    std::fs::create_dir_all(&export).map_err(|error| format!("{}: {error}", export.display()))?;
    let export = export.display().to_string();
    let settings = place.text(&format!("{label}.conf"));
    std::fs::write(&settings, configuration(variant, &export, port)).map_err(|error| format!("{settings}: {error}"))?;
    let (log, pid) = (place.text(&format!("{label}.log")), place.text(&format!("{label}.pid")));
    let arguments = ["-F", "-f", &settings, "-L", &log, "-p", &pid];
    let server = place.start(&label, Path::new("/usr/bin/ganesha.nfsd"), &arguments)?;
    let url = format!("{}=nfs://127.0.0.1:{port}{export}?mountport={}", variant.name(), port + 1);
    let mut target = Target::parse(&url)?;
    target.durability = "FILE_SYNC and COMMIT: fsync of the file; CREATE: not durable, in the page cache".to_owned();
    server.ready(target, place)
}

fn configuration(variant: Variant, export: &str, port: u16) -> String {
    let (core, cache, more) = match variant {
        Variant::Stock => ("", "", ""),
        Variant::Tuned => (
            "DRC_Disabled = true; Enable_NFS_Stats = false; Enable_Fast_Stats = false; \
             Enable_FULLV3_Stats = false; MaxRPCSendBufferSize = 2097152; MaxRPCRecvBufferSize = 2097152; RPC_Ioq_ThrdMin = 2; RPC_Ioq_ThrdMax = 24;",
            "MDCACHE { Entries_HWMark = 1000000; Chunks_HWMark = 1000000; } \
             LOG { Default_Log_Level = CRIT; }\n",
            "Attr_Expiration_Time = 3600; ",
        ),
    };
    format!(
        "NFS_CORE_PARAM {{ Protocols = 3; NFS_Port = {port}; MNT_Port = {}; Enable_NLM = false; \
         Enable_RQUOTA = false; {core} }}\n{cache}EXPORT {{ Export_Id = 1; Path = {export}; Pseudo = /export; \
         Access_Type = RW; Squash = No_Root_Squash; Protocols = 3; Transports = TCP; SecType = sys; \
         PrivilegedPort = false; {more}FSAL {{ Name = VFS; }} }}\n",
        port + 1
    )
}
