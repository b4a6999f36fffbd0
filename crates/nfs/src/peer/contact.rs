//! Where a client can be told something: kept by the file system, opaque to it, with each lock.
//!
//! Layout, little-endian, 38 bytes: format 1, transport 1 (0 TCP, 1 UDP), client's address 16, our address 16 (zeros
//! if unknown), state 4. IPv4 is mapped into IPv6. The layout is in logs that outlive the program: change it under
//! another format number only.

use std::net::{IpAddr, Ipv6Addr};

use bytes::Bytes;
use tarn_base::codec::{DecodeError, Decoded, Put, Take};

use crate::service::Transport;

const FORMAT: u8 = 1;

/// A client, and how it reached us.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Contact {
    /// The client's address, canonical.
    pub client: IpAddr,
    /// The address it called: what we say must come from there, or it is not believed. `None` if unknown.
    pub server: Option<IpAddr>,
    /// The transport it used, tried first.
    pub transport: Transport,
    /// The number of the client's present life, as its status monitor counts them; 0 if unknown.
    pub state: u32,
}

impl Contact {
    pub fn encode(&self) -> Bytes {
        let mut out = Vec::with_capacity(38);
        out.put_u8(FORMAT);
        out.put_u8(match self.transport {
            Transport::Tcp => 0,
            Transport::Udp => 1,
        });
        out.put(&mapped(self.client).octets());
        out.put(&self.server.map_or(Ipv6Addr::UNSPECIFIED, mapped).octets());
        out.put_u32(self.state);
        out.into()
    }

    pub fn decode(bytes: &[u8]) -> Decoded<Contact> {
        let mut take = Take::new(bytes);
        let format = take.u8()?;
        if format != FORMAT {
            return Err(DecodeError::Version(u32::from(format)));
        }
        let transport = match take.u8()? {
            0 => Transport::Tcp,
            1 => Transport::Udp,
            _ => return Err(DecodeError::Range("a transport")),
        };
        let client = Ipv6Addr::from(take.array::<16>()?).to_canonical();
        let server = Ipv6Addr::from(take.array::<16>()?);
        let state = take.u32()?;
        if !take.rest().is_empty() {
            return Err(DecodeError::Trailing);
        }
        let server = (!server.is_unspecified()).then(|| server.to_canonical());
        Ok(Contact { client, server, transport, state })
    }
}

fn mapped(address: IpAddr) -> Ipv6Addr {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        IpAddr::V6(v6) => v6,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_contact_is_read_as_it_was_written_and_its_bytes_never_change() {
        let contact = Contact {
            client: "10.0.0.7".parse().unwrap(),
            server: Some("fd00::1".parse().unwrap()),
            transport: Transport::Udp,
            state: 5,
        };
        let bytes = contact.encode();
        let golden = b"\x01\x01\0\0\0\0\0\0\0\0\0\0\xff\xff\x0a\0\0\x07\xfd\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x01\x05\0\0\0";
        assert_eq!(&bytes[..], golden);
        assert_eq!(Contact::decode(&bytes), Ok(contact));
        let unknown = Contact { server: None, transport: Transport::Tcp, ..contact };
        assert_eq!(Contact::decode(&unknown.encode()), Ok(unknown));
        for len in 0..bytes.len() {
            assert!(Contact::decode(&bytes[..len]).is_err());
        }
        assert!(Contact::decode(b"\x02").is_err() && Contact::decode(&[&bytes[..], b"x"].concat()).is_err());
    }
}
