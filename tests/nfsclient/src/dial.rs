//! Connects from a reserved port if that is permitted, as the kernel's client does: many exports ask for one.

use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, connect, ipproto, socket_with};
use std::io::{Error, Result};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

/// Reserved ports that no service is known for.
const FIRST: u16 = 665;
const COUNT: u16 = 1024 - FIRST;

/// A connection whose making takes at most `wait`.
pub fn dial(address: SocketAddr, wait: Duration) -> Result<TcpStream> {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let any = match address {
        SocketAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        SocketAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    };
    let start = std::process::id() as u16;
    for _ in 0..COUNT {
        let port = FIRST + NEXT.fetch_add(1, Ordering::Relaxed).wrapping_add(start) % COUNT;
        let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let socket = socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, Some(ipproto::TCP))?;
        match bind(&socket, &SocketAddr::new(any, port)) {
            Ok(()) => {}
            Err(rustix::io::Errno::ADDRINUSE) => continue,
            Err(_) => break,
        }
        set_socket_timeout(&socket, Timeout::Send, Some(wait))?;
        match connect(&socket, &address) {
            Ok(()) => return Ok(TcpStream::from(socket)),
            // An earlier connection between the same two ports is still remembered.
            Err(rustix::io::Errno::ADDRNOTAVAIL | rustix::io::Errno::ADDRINUSE) => {}
            Err(error) => return Err(Error::from(error)),
        }
    }
    TcpStream::connect_timeout(&address, wait)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_connections_are_made() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let held: Vec<TcpStream> = (0..20).map(|_| dial(address, Duration::from_secs(5)).unwrap()).collect();
        assert!(held.iter().all(|stream| stream.peer_addr().unwrap() == address));
    }
}
