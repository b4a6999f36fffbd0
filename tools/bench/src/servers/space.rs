//! A network of the measurement's own, and for Ganesha a mount table, so that its port mapper meets no other.
//!
//! - The program runs itself again inside; what it starts there ends with it, and the machine's own ports, /run and
//!   /var/lib/nfs are not touched. Needs root, unshare and ip, and mount for the mount table.
//! - Servers beside Ganesha and itself may have as many open files there as systemd grants a service: Ganesha keeps each file
//!   open that it made, and answers NFS3ERR_JUKEBOX near its limit, up to which it goes by itself.
//! - TCP's congestion control is cubic there, whatever the machine's is: one that paces, such as bbr, measures itself on a
//!   loopback, whose round trip takes microseconds. Where a network of one's own may not have that, it is reno.

use crate::Outcome;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

/// Set inside.
const INSIDE: &str = "TARN_BENCH_SPACE";

const NETWORK: &str = "ip link set lo up && {
    control=/proc/sys/net/ipv4/tcp_congestion_control
    { echo cubic > $control || echo reno > $control; } 2> /dev/null
    exec \"$0\" \"$@\"; }";

const OPEN_FILES: &str = "most=$(ulimit -Hn)
    [ $most = unlimited ] || [ $most -ge 524288 ] || ulimit -n 524288 2> /dev/null ||
        echo 'Ganesha may answer NFS3ERR_JUKEBOX: raise the hard limit of open files to 524288' >&2";

const MOUNTS: &str = "mount -t tmpfs tmpfs /run && mkdir -p /run/rpcbind /run/ganesha && \
    mkdir -p /var/lib/nfs && mount -t tmpfs tmpfs /var/lib/nfs && mkdir -p /var/lib/nfs/ganesha";

/// Goes on only inside, with all of it.
pub fn enter() -> Outcome<()> {
    run_inside(&["--net", "--mount"], &format!("{OPEN_FILES}\n{MOUNTS} && {NETWORK}"))
}

/// Goes on inside, with a network, if it may have one; else where it is.
pub fn enter_network() -> Outcome<()> {
    let mut probe = Command::new("unshare");
    probe.args(["--net", "--", "ip", "link", "set", "lo", "up"]).stdout(Stdio::null()).stderr(Stdio::null());
    match probe.status() {
        Ok(status) if status.success() => run_inside(&["--net"], NETWORK),
        _ => Ok(()),
    }
}

fn run_inside(unshared: &[&str], prepare: &str) -> Outcome<()> {
    if std::env::var_os(INSIDE).is_some() {
        return Ok(());
    }
    let program = std::env::current_exe().map_err(|error| format!("this program's path: {error}"))?;
    let error = Command::new("unshare")
        .args(unshared)
        .args(["--", "sh", "-c", prepare])
        .arg(program)
        .args(std::env::args_os().skip(1))
        .env(INSIDE, "1")
        .exec();
    Err(format!("unshare: {error}"))
}
