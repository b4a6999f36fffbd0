//! Conversations with clients, over sockets that the program makes.
//!
//! - A conversation sends and receives whole RPC messages; framing is done here.
//! - Nothing here has a timeout: whoever calls has.

use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;

use tarn_base::world::BoxFuture;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::UdpSocket;

use crate::service::Transport;

/// Largest answer taken from a client, bytes. Answers to what we ask are a few dozen.
const ANSWER_SIZE_MAX: usize = 8192;
/// The bit of a record mark that ends a record (RFC 5531 section 11).
const LAST_FRAGMENT: u32 = 1 << 31;

/// One step of a conversation.
pub type Step<'a, T> = Pin<Box<dyn Future<Output = io::Result<T>> + Send + 'a>>;

/// Makes sockets.
pub trait Dialer: Send + Sync {
    /// A socket connected to `to`, from the address `from` if that is given. A source port below 1024 is welcome
    /// where the program may take one: some clients ask for it.
    fn dial(
        &self,
        transport: Transport,
        from: Option<IpAddr>,
        to: SocketAddr,
    ) -> BoxFuture<io::Result<Box<dyn Conversation>>>;
}

/// Whole messages to and from one peer.
pub trait Conversation: Send {
    fn send<'a>(&'a mut self, message: &'a [u8]) -> Step<'a, ()>;

    /// The next message. Given up halfway, the conversation is over.
    fn receive(&mut self) -> Step<'_, Vec<u8>>;
}

/// A connected UDP socket.
pub struct Datagrams(pub UdpSocket);

impl Conversation for Datagrams {
    fn send<'a>(&'a mut self, message: &'a [u8]) -> Step<'a, ()> {
        Box::pin(async move { self.0.send(message).await.map(|_| ()) })
    }

    fn receive(&mut self) -> Step<'_, Vec<u8>> {
        Box::pin(async move {
            let mut buffer = vec![0; ANSWER_SIZE_MAX];
            let len = self.0.recv(&mut buffer).await?;
            buffer.truncate(len);
            Ok(buffer)
        })
    }
}

/// A stream with record marking, such as a TCP connection.
pub struct Records<S>(pub S);

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Conversation for Records<S> {
    fn send<'a>(&'a mut self, message: &'a [u8]) -> Step<'a, ()> {
        Box::pin(async move {
            let mark = LAST_FRAGMENT | message.len() as u32;
            self.0.write_all(&[&mark.to_be_bytes()[..], message].concat()).await?;
            self.0.flush().await
        })
    }

    fn receive(&mut self) -> Step<'_, Vec<u8>> {
        Box::pin(async move {
            let mut record = Vec::new();
            loop {
                let mark = self.0.read_u32().await?;
                let len = (mark & !LAST_FRAGMENT) as usize;
                // An empty fragment that is not the last would let a peer keep us here without end.
                if record.len() + len > ANSWER_SIZE_MAX || (len == 0 && mark & LAST_FRAGMENT == 0) {
                    return Err(io::Error::new(io::ErrorKind::InvalidData, "the client's answer is malformed"));
                }
                let start = record.len();
                record.resize(start + len, 0);
                self.0.read_exact(&mut record[start..]).await?;
                if mark & LAST_FRAGMENT != 0 {
                    return Ok(record);
                }
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn records_are_framed_joined_and_bounded() {
        let (ours, mut theirs) = tokio::io::duplex(64);
        let mut records = Records(ours);
        records.send(b"call").await.unwrap();
        let mut sent = [0; 8];
        theirs.read_exact(&mut sent).await.unwrap();
        assert_eq!(&sent, b"\x80\0\0\x04call");

        theirs.write_all(b"\0\0\0\x02an\x80\0\0\x04swer").await.unwrap();
        assert_eq!(records.receive().await.unwrap(), b"answer");
        theirs.write_all(b"\xff\xff\xff\xff").await.unwrap();
        assert!(records.receive().await.is_err(), "too long");
        theirs.write_all(b"\0\0\0\0").await.unwrap();
        assert!(records.receive().await.is_err(), "empty and not the last");
        drop(theirs);
        assert!(records.receive().await.is_err());
    }
}
