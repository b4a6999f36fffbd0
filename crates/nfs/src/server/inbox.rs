//! What a connection has received and not yet taken.
//!
//! - Memory follows what has arrived, not what a peer announces: a connection that is silent between two messages holds
//!   none, and one that has sent little of a message holds little. The rest is the next connection's of the same thread.
//! - A message in one fragment is taken without a copy.

use std::cell::Cell;
use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll};

use bytes::{BufMut, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt};

use crate::session::record::{Framed, Framer, RecordError};

/// Bytes that one read has room for at least: many small calls, or the head of a large one.
pub(super) const READ_SIZE: usize = 64 << 10;
/// So much of a message must have arrived before memory for all of it is taken.
const TRUST_SIZE: usize = READ_SIZE / 2;
/// Less than this is put into memory of its own size before more of it is waited for.
const SMALL_SIZE: usize = 4 << 10;

thread_local! {
    /// Memory that no connection of this thread uses at present.
    static SPARE: Cell<BytesMut> = Cell::default();
}

/// What has been received.
#[derive(Default)]
pub(super) struct Inbox {
    buffer: BytesMut,
    framer: Framer,
    /// The buffer has no memory beyond its content.
    rests: bool,
}

impl Inbox {
    pub(super) fn new() -> Inbox {
        Inbox { rests: true, ..Inbox::default() }
    }

    /// Takes the next message.
    pub(super) fn next(&mut self) -> Result<Framed, RecordError> {
        self.framer.next(&mut self.buffer)
    }

    /// Bytes of the message that comes next, as far as that is known.
    pub(super) fn announced(&self) -> usize {
        self.framer.announced(&self.buffer)
    }

    /// Whether everything received has been taken.
    pub(super) fn is_empty(&self) -> bool {
        self.buffer.is_empty()
    }

    /// Bytes of memory that part of a message holds; 0 if none is here.
    pub(super) fn holds(&self) -> usize {
        if self.is_amid() { self.buffer.capacity() + self.framer.taken() } else { 0 }
    }

    /// Whether part of a message is here.
    pub(super) fn is_amid(&self) -> bool {
        !self.buffer.is_empty() || self.framer.is_amid()
    }

    /// Reads what has arrived of a message of which `missing` bytes are missing, `most` bytes at most; how much, 0 if the peer
    /// has closed.
    pub(super) fn poll_read<S: AsyncRead + Unpin>(
        &mut self,
        stream: &mut S,
        cx: &mut Context<'_>,
        missing: usize,
        most: usize,
    ) -> Poll<std::io::Result<usize>> {
        self.make_room(missing);
        let read = pin!(stream.read_buf(&mut (&mut self.buffer).limit(most))).poll(cx);
        if read.is_pending() {
            self.rest();
        }
        read
    }

    fn make_room(&mut self, missing: usize) {
        if self.rests {
            self.rests = false;
            let few = std::mem::replace(&mut self.buffer, SPARE.take());
            self.buffer.reserve(few.len() + READ_SIZE);
            self.buffer.extend_from_slice(&few);
        }
        let trusted = self.buffer.len() >= TRUST_SIZE;
        self.buffer.reserve(if trusted { missing.max(READ_SIZE) } else { READ_SIZE });
    }

    /// Lets go of memory that waits for what may never come.
    fn rest(&mut self) {
        if self.buffer.len() > SMALL_SIZE {
            return;
        }
        let few = BytesMut::from(&self.buffer[..]);
        let mut room = std::mem::replace(&mut self.buffer, few);
        room.clear();
        SPARE.set(room);
        self.rests = true;
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncWriteExt, DuplexStream};

    use super::*;
    use crate::session::record::RECORD_SIZE_MAX;

    /// The beginning of a message of so many bytes.
    fn mark(size: usize) -> [u8; 4] {
        (size as u32 | 1 << 31).to_be_bytes()
    }

    /// Reads all that has arrived, until nothing more does.
    async fn fill(inbox: &mut Inbox, stream: &mut DuplexStream) -> Vec<bytes::Bytes> {
        let mut found = Vec::new();
        std::future::poll_fn(|cx| {
            loop {
                match inbox.next().expect("a record") {
                    Framed::Message(message) => found.push(message),
                    Framed::Missing(missing) => {
                        if inbox.poll_read(stream, cx, missing, usize::MAX).is_pending() {
                            return Poll::Ready(());
                        }
                    }
                }
            }
        })
        .await;
        found
    }

    #[tokio::test]
    async fn a_silent_connection_holds_nothing_and_one_amid_a_message_little() {
        let (mut peer, mut stream) = tokio::io::duplex(2 << 20);
        let mut inbox = Inbox::new();
        assert!(fill(&mut inbox, &mut stream).await.is_empty());
        assert_eq!((inbox.buffer.capacity(), inbox.is_amid()), (0, false));
        let message = [&mark(100)[..], &[7; 100]].concat();
        peer.write_all(&message).await.unwrap();
        assert_eq!(fill(&mut inbox, &mut stream).await, [&[7; 100][..]]);
        assert_eq!((inbox.buffer.capacity(), inbox.is_amid()), (0, false));
        // It says that a mebibyte comes.
        peer.write_all(&mark(1 << 20)).await.unwrap();
        let mut sent = 4;
        for (more, most) in [(0, 64), (300, 400), (20_000, 2 * READ_SIZE), (100_000, RECORD_SIZE_MAX + READ_SIZE)] {
            peer.write_all(&vec![1; more]).await.unwrap();
            sent += more;
            assert!(fill(&mut inbox, &mut stream).await.is_empty());
            assert!(inbox.is_amid() && inbox.buffer.len() == sent);
            assert!(inbox.buffer.capacity() <= most, "{} bytes for {sent}", inbox.buffer.capacity());
        }
        peer.write_all(&vec![1; (1 << 20) + 4 - sent]).await.unwrap();
        let found = fill(&mut inbox, &mut stream).await;
        assert!(found.len() == 1 && found[0][..] == [1; 1 << 20]);
        assert_eq!((inbox.buffer.capacity(), inbox.is_amid()), (0, false));
    }

    #[tokio::test]
    async fn memory_is_shared_and_messages_are_not() {
        let (mut peer, mut stream) = tokio::io::duplex(1 << 20);
        let (mut one, mut other) = (Inbox::new(), Inbox::new());
        let (mut second_peer, mut second) = tokio::io::duplex(1 << 20);
        peer.write_all(&[&mark(5000)[..], &[1; 5000]].concat()).await.unwrap();
        let kept = fill(&mut one, &mut stream).await;
        second_peer.write_all(&[&mark(5000)[..], &[2; 5000], &mark(9)].concat()).await.unwrap();
        let found = fill(&mut other, &mut second).await;
        peer.write_all(&[&mark(4)[..], &[3; 4]].concat()).await.unwrap();
        assert_eq!(fill(&mut one, &mut stream).await, [&[3; 4][..]]);
        assert!(kept[0][..] == [1; 5000] && found[0][..] == [2; 5000] && other.is_amid());
    }
}
