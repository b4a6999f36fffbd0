//! The network as it is handed to the protocols: sockets to clients, and addresses of names.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use socket2::{Domain, Protocol, Socket, Type};
use tarn_base::world::BoxFuture;
use tarn_nfs::exports::Resolver;
use tarn_nfs::peer::{Conversation, Datagrams, Dialer, Records};
use tarn_nfs::service::Transport;
use tokio::net::{TcpSocket, UdpSocket};
use tokio::runtime::Handle;

/// Ports that only a privileged program may take and nobody is known by.
const RESERVED_PORTS: std::ops::Range<u16> = 665..1023;
/// How many of them are tried before any other port will do.
const RESERVED_TRIES: u16 = 16;

/// Asks the system's resolver.
pub struct SystemResolver(pub Handle);

impl Resolver for SystemResolver {
    fn resolve(&self, host: &str) -> BoxFuture<Vec<IpAddr>> {
        let host = host.to_owned();
        let look_up = self.0.spawn(async move {
            let found = tokio::net::lookup_host((host.as_str(), 0)).await;
            found.map(|addresses| addresses.map(|address| address.ip().to_canonical()).collect()).unwrap_or_default()
        });
        Box::pin(async move { look_up.await.unwrap_or_default() })
    }
}

/// Makes sockets to clients.
pub struct SystemDialer(pub Handle);

impl Dialer for SystemDialer {
    fn dial(
        &self,
        transport: Transport,
        from: Option<IpAddr>,
        to: SocketAddr,
    ) -> BoxFuture<io::Result<Box<dyn Conversation>>> {
        let _inside = self.0.enter();
        let dialed = self.0.spawn(async move {
            let socket = bound(transport, from, to)?;
            match transport {
                Transport::Tcp => {
                    let stream = TcpSocket::from_std_stream(socket.into()).connect(to).await?;
                    Ok(Box::new(Records(stream)) as Box<dyn Conversation>)
                }
                Transport::Udp => {
                    let socket = UdpSocket::from_std(socket.into())?;
                    socket.connect(to).await?;
                    Ok(Box::new(Datagrams(socket)) as Box<dyn Conversation>)
                }
            }
        });
        Box::pin(async move { dialed.await.unwrap_or_else(|error| Err(io::Error::other(error))) })
    }
}

/// A socket of its own at `from`, with a reserved port if that can be had.
fn bound(transport: Transport, from: Option<IpAddr>, to: SocketAddr) -> io::Result<Socket> {
    let any = match to.ip() {
        IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    };
    let from = from.filter(|ip| ip.is_ipv4() == to.is_ipv4()).unwrap_or(any);
    let (kind, protocol) = match transport {
        Transport::Tcp => (Type::STREAM, Protocol::TCP),
        Transport::Udp => (Type::DGRAM, Protocol::UDP),
    };
    let socket = Socket::new(Domain::for_address(to), kind, Some(protocol))?;
    socket.set_nonblocking(true)?;
    // Where to begin differs from socket to socket, or every one would try the ports of the last.
    let begin = std::os::fd::AsRawFd::as_raw_fd(&socket) as u16 % RESERVED_PORTS.len() as u16;
    for step in 0..RESERVED_TRIES {
        let port = RESERVED_PORTS.start + (begin + step * 7) % RESERVED_PORTS.len() as u16;
        match socket.bind(&SocketAddr::new(from, port).into()) {
            Ok(()) => return Ok(socket),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => break,
            Err(_) => {}
        }
    }
    socket.bind(&SocketAddr::new(from, 0).into())?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_conversation_reaches_its_peer() {
        let peer = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let dialer = SystemDialer(Handle::current());
        let mut talk = dialer.dial(Transport::Udp, None, peer.local_addr().unwrap()).await.unwrap();
        talk.send(b"call").await.unwrap();
        let mut buffer = [0; 16];
        let (len, from) = peer.recv_from(&mut buffer).await.unwrap();
        peer.send_to(&buffer[..len], from).await.unwrap();
        assert_eq!(talk.receive().await.unwrap(), b"call");

        let peer = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = peer.local_addr().unwrap();
        let (talk, accepted) = tokio::join!(dialer.dial(Transport::Tcp, None, address), peer.accept());
        assert!(talk.is_ok() && accepted.is_ok());
    }

    #[tokio::test]
    async fn localhost_has_an_address() {
        let found = SystemResolver(Handle::current()).resolve("localhost").await;
        assert!(found.iter().any(IpAddr::is_loopback), "{found:?}");
        assert!(SystemResolver(Handle::current()).resolve("no-such-host.invalid").await.is_empty());
    }
}
