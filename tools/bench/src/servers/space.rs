//! A network and a mount table of the measurement's own, so that Ganesha's port mapper meets no other.
//!
//! - The program runs itself again inside; what it starts there ends with it, and the machine's own ports, /run and
//!   /var/lib/nfs are not touched. Needs root, unshare, mount and ip.

use crate::Outcome;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Set inside.
const INSIDE: &str = "TARN_BENCH_SPACE";

const PREPARE: &str = "mount -t tmpfs tmpfs /run && mkdir -p /run/rpcbind /run/ganesha && \
    mkdir -p /var/lib/nfs && mount -t tmpfs tmpfs /var/lib/nfs && mkdir -p /var/lib/nfs/ganesha && \
    ip link set lo up && exec \"$0\" \"$@\"";

/// Goes on only inside.
pub fn enter() -> Outcome<()> {
    if std::env::var_os(INSIDE).is_some() {
        return Ok(());
    }
    let program = std::env::current_exe().map_err(|error| format!("this program's path: {error}"))?;
    let error = Command::new("unshare")
        .args(["--net", "--mount", "--", "sh", "-c", PREPARE])
        .arg(program)
        .args(std::env::args_os().skip(1))
        .env(INSIDE, "1")
        .exec();
    Err(format!("unshare: {error}"))
}
