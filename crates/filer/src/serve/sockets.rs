//! The sockets of a server, bound before anything is made: an address that cannot be had stops the start untouched.

use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, UdpSocket};

use socket2::{Domain, Protocol, Socket, Type};

use crate::config::Settings;
use crate::exit::{Outcome, Stop};

/// Connections that wait to be accepted; more are refused by the kernel.
const BACKLOG: i32 = 1024;
/// Port of portmap and rpcbind.
pub const PORTMAP_PORT: u16 = 111;

/// Everything that a server listens on.
pub struct Sockets {
    pub nfs: TcpListener,
    /// MOUNT, NLM and NFS by datagram, for clients that portmap sends here.
    pub nfs_udp: Option<UdpSocket>,
    pub admin: Option<TcpListener>,
    pub portmap: Option<(TcpListener, UdpSocket)>,
}

impl Sockets {
    pub fn bind(settings: &Settings) -> Outcome<Sockets> {
        let nfs = tcp("the NFS", settings.nfs, "--nfs")?;
        let admin = settings.admin.map(|address| tcp("the admin", address, "--admin")).transpose()?;
        let mut sockets = Sockets { nfs, nfs_udp: None, admin, portmap: None };
        if settings.portmap {
            let flag = "--nfs, or leave --portmap out";
            let address = SocketAddr::new(portmap_ip(settings.nfs.ip()), PORTMAP_PORT);
            sockets.portmap = Some((tcp("the portmap", address, flag)?, udp("the portmap", address, flag)?));
            let nfs = sockets.nfs.local_addr().unwrap_or(settings.nfs);
            sockets.nfs_udp = Some(udp("the NFS", nfs, "--nfs")?);
        }
        Ok(sockets)
    }

    /// Where NFS answers; the port is known even if 0 was asked for.
    pub fn nfs_address(&self) -> Outcome<SocketAddr> {
        self.nfs.local_addr().map_err(|error| Stop::Internal(error.to_string()))
    }

    pub fn admin_address(&self) -> Option<SocketAddr> {
        self.admin.as_ref().and_then(|listener| listener.local_addr().ok())
    }
}

/// Portmap answers on the address of NFS, so that loopback stays loopback.
fn portmap_ip(nfs: IpAddr) -> IpAddr {
    match nfs {
        IpAddr::V4(ip) if ip.is_loopback() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        other => other,
    }
}

fn tcp(what: &'static str, address: SocketAddr, flag: &'static str) -> Outcome<TcpListener> {
    let bind = || -> std::io::Result<TcpListener> {
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
        // A restart must not wait for connections of the last run to be forgotten.
        socket.set_reuse_address(true)?;
        socket.set_nonblocking(true)?;
        socket.bind(&address.into())?;
        socket.listen(BACKLOG)?;
        Ok(socket.into())
    };
    bind().map_err(|error| stop(what, address, flag, &error))
}

fn udp(what: &'static str, address: SocketAddr, flag: &'static str) -> Outcome<UdpSocket> {
    let bind = || -> std::io::Result<UdpSocket> {
        let socket = Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))?;
        socket.set_nonblocking(true)?;
        socket.bind(&address.into())?;
        Ok(socket.into())
    };
    bind().map_err(|error| stop(what, address, flag, &error))
}

fn stop(what: &'static str, address: SocketAddr, flag: &'static str, error: &std::io::Error) -> Stop {
    let address = address.to_string();
    match error.kind() {
        ErrorKind::AddrInUse => Stop::AddressInUse { what, address, flag },
        ErrorKind::PermissionDenied => Stop::AddressNotPermitted { what, address, flag },
        _ => Stop::AddressUnusable { what, address, flag, reason: error.to_string() },
    }
}
