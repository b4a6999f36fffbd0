//! A UDP socket: one datagram is one call, one datagram is its reply.
//!
//! - Calls run in tasks of their own, so that one that waits for the log holds up no other; beyond [`CALLS_MAX`] of
//!   them further ones are dropped, and the client repeats them.
//! - What is not a call is dropped without an answer.

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use tarn_base::world::World;
use tokio::net::UdpSocket;
use tokio::sync::Semaphore;

use crate::server::{Shared, answer_datagram};

/// Most calls of one socket in progress at a time.
const CALLS_MAX: usize = 256;
/// Largest datagram that is taken, bytes: no call served over UDP is longer.
const DATAGRAM_SIZE_MAX: usize = 9000;

/// Serves the programs of `shared` on `socket` until the socket fails for good. Run it on any runtime with IO; drop
/// it to stop.
pub async fn serve_udp(socket: UdpSocket, shared: Arc<Shared>, world: World) -> io::Result<()> {
    let socket = Arc::new(socket);
    let calls = Arc::new(Semaphore::new(CALLS_MAX));
    let mut buffer = vec![0u8; DATAGRAM_SIZE_MAX];
    loop {
        let (len, peer) = match socket.recv_from(&mut buffer).await {
            Ok(received) => received,
            // An ICMP error about an earlier reply is reported here; the socket itself is well.
            Err(error) if is_about_a_peer(&error) => continue,
            Err(error) => return Err(error),
        };
        let Ok(permit) = calls.clone().try_acquire_owned() else { continue };
        let message = Bytes::copy_from_slice(&buffer[..len]);
        let (socket, shared) = (socket.clone(), shared.clone());
        let task = async move {
            if let Some(reply) = answer_datagram(&shared, peer, message).await {
                // A reply that cannot be sent is a lost datagram: the client repeats its call.
                let _ = socket.send_to(&reply, peer).await;
            }
            drop(permit);
        };
        world.spawn.spawn("datagram", Box::pin(task));
    }
}

fn is_about_a_peer(error: &io::Error) -> bool {
    use io::ErrorKind::*;
    matches!(error.kind(), ConnectionRefused | ConnectionReset | HostUnreachable | NetworkUnreachable | Interrupted)
}
