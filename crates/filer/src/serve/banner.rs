//! What a start prints: where the server listens, and commands that then work as they stand.

use std::fmt::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::config::Settings;
use crate::node::Opening;
use crate::sizes::show_size;

/// Who it is started by, and where.
pub struct Around {
    pub uid: u32,
    /// Nobody looks for work before an idle core halts.
    pub halts_at_once: bool,
}

impl Around {
    pub fn now() -> Around {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        Around {
            uid: rustix::process::getuid().as_raw(),
            halts_at_once: halts_at_once(&read("/sys/devices/system/cpu/cpuidle/current_governor"), &read(HALT_POLL)),
        }
    }
}

/// How long an idle core looks for work, where the governor goes by it.
const HALT_POLL: &str = "/sys/module/haltpoll/parameters/guest_halt_poll_ns";

/// The host does not look either, for the driver of this governor has told it not to.
fn halts_at_once(governor: &str, halt_poll_ns: &str) -> bool {
    governor.trim() == "haltpoll" && halt_poll_ns.trim() == "0"
}

/// The whole text, ended by a line end.
pub fn text(
    settings: &Settings,
    nfs: SocketAddr,
    admin: Option<SocketAddr>,
    opening: &Opening,
    around: &Around,
) -> String {
    let mut out = String::new();
    let mut line = |text: String| {
        let _ = writeln!(out, "{text}");
    };
    line(format!("tarn {} serves at {nfs}", env!("CARGO_PKG_VERSION")));
    line(format!("  data   {}", settings.data.display()));
    line(format!("  log    {}, {}", settings.log_dir.display(), show_size(opening.log_bytes)));
    line(format!("  store  {}", settings.store.show()));
    if let Some(profile) = settings.store_shape {
        line(format!("         SLOWED DOWN for a measurement: measure.store_shape is {}", profile.label()));
    }
    line(format!("  key    from {}", opening.key_source));
    if let Some(admin) = admin {
        line(format!("  admin  http://{admin}/"));
    }
    if around.halts_at_once {
        line("  cores  halt as soon as they idle, which doubles a call's time and more; better, as root:".to_owned());
        line(format!("         echo 200000 > {HALT_POLL}"));
    }
    line(opening.words.clone());
    if let Some(code) = &opening.recovery_code {
        line(String::new());
        line("Recovery code of the master key. Without key and code the data cannot be read by anybody.".to_owned());
        line("Write it down now; `tarn key export` shows it again, `tarn key verify` checks it.".to_owned());
        line(format!("\n    {}\n", code.as_str()));
    }
    let sudo = if around.uid == 0 { "" } else { "sudo " };
    for volume in &opening.exports {
        line(format!("    {sudo}{}", mount_command(nfs, settings.portmap, volume)));
    }
    if !opening.exports.is_empty() {
        line("    touch /mnt/hello".to_owned());
    }
    if !nfs.ip().is_loopback() {
        line("Other machines may mount what `tarn volume set NAME --exports RULES` lets them.".to_owned());
    }
    out
}

/// The command that mounts `export` on this machine.
fn mount_command(nfs: SocketAddr, portmap: bool, export: &str) -> String {
    let ip = match nfs.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        // A socket on "::" answers IPv4 too, but the kernel may be set otherwise: what was asked for works surely.
        IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
        ip => ip,
    };
    let (host, tcp) = match ip {
        IpAddr::V4(ip) => (ip.to_string(), "tcp"),
        IpAddr::V6(ip) => (format!("[{ip}]"), "tcp6"),
    };
    let port = nfs.port();
    let locks = if portmap { "" } else { ",nolock" };
    format!(
        "mount -t nfs -o vers=3,proto={tcp},port={port},mountproto={tcp},mountport={port}{locks} {host}:{export} /mnt"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_core_halts_at_once_where_neither_guest_nor_host_looks_for_work() {
        assert!(halts_at_once("haltpoll\n", "0\n"));
        assert!(!halts_at_once("haltpoll\n", "200000\n"));
        assert!(!halts_at_once("menu\n", "0\n"), "the host looks");
        assert!(!halts_at_once("", ""));
    }

    #[test]
    fn the_command_mounts_what_is_served() {
        assert_eq!(
            mount_command("127.0.0.1:2049".parse().unwrap(), false, "/vol"),
            "mount -t nfs -o vers=3,proto=tcp,port=2049,mountproto=tcp,mountport=2049,nolock 127.0.0.1:/vol /mnt"
        );
        assert_eq!(
            mount_command("[::]:20490".parse().unwrap(), true, "/vol"),
            "mount -t nfs -o vers=3,proto=tcp6,port=20490,mountproto=tcp6,mountport=20490 [::1]:/vol /mnt"
        );
    }
}
