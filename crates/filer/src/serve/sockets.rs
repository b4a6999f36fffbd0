//! The sockets of a server, bound before anything is made: an address that cannot be had stops the start untouched.

use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener, UdpSocket};

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
    pub admin: Option<TcpListener>,
    pub portmap: Option<PortmapSockets>,
}

/// What `--portmap` adds.
pub struct PortmapSockets {
    pub tcp: TcpListener,
    pub udp: UdpSocket,
    /// MOUNT and NLM by datagram, on the NFS port, for clients that portmap sends there.
    pub nfs_udp: UdpSocket,
}

impl Sockets {
    pub fn bind(settings: &Settings) -> Outcome<Sockets> {
        let nfs = tcp("the NFS", settings.nfs, "--nfs")?;
        let admin = settings.admin.map(|address| tcp("the admin", address, "--admin")).transpose()?;
        let portmap = settings.portmap.then(|| PortmapSockets::bind(settings, &nfs)).transpose()?;
        Ok(Sockets { nfs, admin, portmap })
    }

    /// Where NFS answers; the port is known even if 0 was asked for.
    pub fn nfs_address(&self) -> Outcome<SocketAddr> {
        self.nfs.local_addr().map_err(|error| Stop::Internal(error.to_string()))
    }

    pub fn admin_address(&self) -> Option<SocketAddr> {
        self.admin.as_ref().and_then(|listener| listener.local_addr().ok())
    }
}

impl PortmapSockets {
    /// On the address of NFS, so that loopback stays loopback.
    fn bind(settings: &Settings, nfs: &TcpListener) -> Outcome<PortmapSockets> {
        let flag = "--nfs, or leave --portmap out";
        let address = SocketAddr::new(settings.nfs.ip(), PORTMAP_PORT);
        let nfs = nfs.local_addr().unwrap_or(settings.nfs);
        // Its port is fixed: advice to take another would be none.
        let refused = |stop: Stop| match stop {
            Stop::AddressNotPermitted { .. } => Stop::PortmapNotPermitted { address: address.ip().to_string() },
            other => other,
        };
        Ok(PortmapSockets {
            tcp: tcp("the portmap", address, flag).map_err(refused)?,
            udp: udp("the portmap", address, flag).map_err(refused)?,
            nfs_udp: udp("the NFS", nfs, "--nfs")?,
        })
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
