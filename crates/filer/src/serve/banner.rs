//! What a start prints: where the server listens, and commands that then work as they stand.

use std::fmt::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::config::Settings;
use crate::node::Opening;
use crate::sizes::show_size;

/// Who it is started by, and on what.
pub struct Around {
    pub uid: u32,
    /// What is to be said of the cores, in whole lines.
    pub cores: String,
}

impl Around {
    pub fn now() -> Around {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let idle = |what: &str| read(&format!("/sys/devices/system/cpu/cpuidle/current_{what}"));
        Around {
            uid: rustix::process::getuid().as_raw(),
            cores: told_of_cores([&idle("driver"), &idle("governor"), &read(HALT_POLL)]),
        }
    }
}

/// How long an idle core of a virtual machine looks for work before it halts, where driver and governor are of that name.
const HALT_POLL: &str = "/sys/module/haltpoll/parameters/guest_halt_poll_ns";

/// With nothing there the host does not look either, for the driver tells it not to.
fn told_of_cores(driver_governor_ns: [&str; 3]) -> String {
    match driver_governor_ns.map(str::trim) {
        ["haltpoll", "haltpoll", "0"] => format!(
            "  cores  halt as soon as they idle, so that a call made alone takes twice as long and more; better, as root:\n         \
             echo 200000 > {HALT_POLL}\n"
        ),
        _ => String::new(),
    }
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
    around.cores.lines().for_each(|text| line(text.to_owned()));
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
    fn cores_that_halt_at_once_are_told_of_where_nobody_looks_for_work() {
        let told = told_of_cores(["haltpoll\n", "haltpoll\n", "0\n"]);
        assert!(told.starts_with("  cores  halt as soon as they idle"), "{told}");
        assert!(told.ends_with("echo 200000 > /sys/module/haltpoll/parameters/guest_halt_poll_ns\n"), "{told}");
        assert_eq!(told_of_cores(["haltpoll\n", "haltpoll\n", "200000\n"]), "");
        assert_eq!(told_of_cores(["haltpoll\n", "menu\n", "0\n"]), "", "the governor does not go by it");
        assert_eq!(told_of_cores(["none\n", "haltpoll\n", "0\n"]), "", "the host looks");
        assert_eq!(told_of_cores(["", "", ""]), "");
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
