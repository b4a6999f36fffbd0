//! What portmap 2 (RFC 1833 section 3) and rpcbind 3 and 4 (section 2) say on the wire.
//!
//! - Both directions are here: the server answers with them, calls to clients ask with them.
//! - Universal addresses (RFC 5665 section 5.2.3.3) are `h1.h2.h3.h4.p1.p2`; in IPv6 the address precedes `.p1.p2`.

use std::net::{IpAddr, SocketAddr};

use crate::service::Transport;
use crate::wire::xdr::{Reader, Writer, XdrResult};

/// Program number of portmap and rpcbind.
pub const PROGRAM: u32 = 100_000;
/// The port that everybody knows.
pub const PORT: u16 = 111;
/// Longest string in an rpcbind message, bytes. The RFC sets no limit; a universal address or an owner needs less.
pub const STRING_MAX: usize = 1024;

/// Procedures of portmap 2.
pub const PMAPPROC_GETPORT: u32 = 3;
/// Procedures of rpcbind 3 and 4.
pub const RPCBPROC_GETADDR: u32 = 3;

/// A transport and an address family, by the name that rpcbind gives the pair (RFC 5665).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Netid {
    Udp,
    Tcp,
    Udp6,
    Tcp6,
}

impl Netid {
    pub fn of(transport: Transport, address: IpAddr) -> Netid {
        match (transport, address) {
            (Transport::Udp, IpAddr::V4(_)) => Netid::Udp,
            (Transport::Tcp, IpAddr::V4(_)) => Netid::Tcp,
            (Transport::Udp, IpAddr::V6(_)) => Netid::Udp6,
            (Transport::Tcp, IpAddr::V6(_)) => Netid::Tcp6,
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Netid::Udp => "udp",
            Netid::Tcp => "tcp",
            Netid::Udp6 => "udp6",
            Netid::Tcp6 => "tcp6",
        }
    }

    pub fn parse(name: &[u8]) -> Option<Netid> {
        [Netid::Udp, Netid::Tcp, Netid::Udp6, Netid::Tcp6].into_iter().find(|netid| netid.name().as_bytes() == name)
    }

    /// The number of the IP protocol, which portmap 2 uses.
    pub fn protocol(self) -> u32 {
        match self {
            Netid::Tcp | Netid::Tcp6 => 6,
            Netid::Udp | Netid::Udp6 => 17,
        }
    }

    pub fn is_v4(self) -> bool {
        matches!(self, Netid::Udp | Netid::Tcp)
    }
}

/// `mapping` of portmap 2: what GETPORT asks about and DUMP lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapping {
    pub program: u32,
    pub version: u32,
    /// 6 for TCP, 17 for UDP.
    pub protocol: u32,
    /// 0 in a question.
    pub port: u32,
}

impl Mapping {
    /// The mapping that `args` is, to the last byte.
    pub fn decode(args: &[u8]) -> XdrResult<Mapping> {
        let mut r = Reader::new(args);
        let mapping = Mapping { program: r.u32()?, version: r.u32()?, protocol: r.u32()?, port: r.u32()? };
        r.end()?;
        Ok(mapping)
    }

    pub fn encode(&self, w: &mut Writer) {
        for v in [self.program, self.version, self.protocol, self.port] {
            w.u32(v);
        }
    }
}

/// `rpcb`: what GETADDR asks about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Binding<'a> {
    pub program: u32,
    pub version: u32,
    pub netid: &'a [u8],
    /// In a question: where the caller found this server.
    pub address: &'a [u8],
    pub owner: &'a [u8],
}

impl<'a> Binding<'a> {
    /// The binding that `args` is, to the last byte.
    pub fn decode(args: &'a [u8]) -> XdrResult<Binding<'a>> {
        let mut r = Reader::new(args);
        let binding = Binding {
            program: r.u32()?,
            version: r.u32()?,
            netid: r.opaque(STRING_MAX)?,
            address: r.opaque(STRING_MAX)?,
            owner: r.opaque(STRING_MAX)?,
        };
        r.end()?;
        Ok(binding)
    }

    pub fn encode(&self, w: &mut Writer) {
        w.u32(self.program);
        w.u32(self.version);
        w.opaque(self.netid);
        w.opaque(self.address);
        w.opaque(self.owner);
    }
}

/// The port in the results of GETPORT; `None` if the program is not there.
pub fn decode_port(results: &[u8]) -> XdrResult<Option<u16>> {
    let mut r = Reader::new(results);
    let port = r.u32()?;
    r.end()?;
    Ok(u16::try_from(port).ok().filter(|port| *port != 0))
}

/// The port in the results of GETADDR; `None` if the program is not there.
pub fn decode_address(results: &[u8]) -> XdrResult<Option<u16>> {
    let mut r = Reader::new(results);
    let address = r.opaque(STRING_MAX)?;
    r.end()?;
    Ok(parse_universal(address).map(|address| address.port()).filter(|port| *port != 0))
}

/// `address` as a universal address.
pub fn universal(address: SocketAddr) -> String {
    let port = address.port();
    format!("{}.{}.{}", address.ip(), port >> 8, port & 0xff)
}

/// The address and port that a universal address is.
pub fn parse_universal(text: &[u8]) -> Option<SocketAddr> {
    let text = std::str::from_utf8(text).ok()?;
    let (text, low) = text.rsplit_once('.')?;
    let (ip, high) = text.rsplit_once('.')?;
    let port = u16::from(high.parse::<u8>().ok()?) << 8 | u16::from(low.parse::<u8>().ok()?);
    // A link-local address may carry a scope, which means nothing here.
    let ip = ip.split_once('%').map_or(ip, |(ip, _)| ip);
    Some(SocketAddr::new(ip.parse().ok()?, port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn universal_addresses_are_read_as_they_are_written() {
        for (address, text) in [("10.0.0.1:2049", "10.0.0.1.8.1"), ("[fe80::1]:111", "fe80::1.0.111")] {
            let address: SocketAddr = address.parse().unwrap();
            assert_eq!(universal(address), text);
            assert_eq!(parse_universal(text.as_bytes()), Some(address));
        }
        assert_eq!(parse_universal(b"fe80::1%eth0.8.1"), Some("[fe80::1]:2049".parse().unwrap()));
        for bad in [&b""[..], b"1", b"1.2", b"1.2.3.4.256.1", b"1.2.3.4.8", b"\xff.8.1", b"...."] {
            assert_eq!(parse_universal(bad), None);
        }
    }

    #[test]
    fn answers_are_judged() {
        assert_eq!(decode_port(&[0, 0, 8, 1]), Ok(Some(2049)));
        assert_eq!(decode_port(&[0, 0, 0, 0]), Ok(None));
        assert_eq!(decode_port(&[0, 1, 0, 0]), Ok(None), "no such port");
        assert!(decode_port(&[0, 0, 8]).is_err());
        let mut w = Writer::new();
        w.opaque(b"10.0.0.1.8.1");
        assert_eq!(decode_address(&w.to_vec()), Ok(Some(2049)));
        assert_eq!(decode_address(&[0; 4]), Ok(None));
    }
}
