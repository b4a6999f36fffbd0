//! What a connection has received and not yet taken.
//!
//! - Memory follows what has arrived, not what a peer announces: a connection that is silent between two messages holds
//!   none, and one that has sent little of a message holds little. The rest is the next connection's of the same thread.
//! - A message in one fragment is taken without a copy. A large one comes to lie in memory of its own, for whoever keeps its data.

use std::cell::Cell;
use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll};

use bytes::{BufMut, BytesMut};
use tarn_base::memory::Memory;
use tokio::io::{AsyncRead, AsyncReadExt};

use crate::session::record::{Framed, Framer, RecordError};

/// Bytes that one read has room for at least: many small calls, or the head of a large one.
pub(super) const READ_SIZE: usize = 64 << 10;
/// So much of a message must have arrived before memory for all of it is taken.
const TRUST_SIZE: usize = READ_SIZE / 2;
/// From this size on a message lies alone.
const ALONE_SIZE: usize = 128 << 10;
/// Less than this is put into memory of its own size before more of it is waited for.
const SMALL_SIZE: usize = 4 << 10;

thread_local! {
    /// Memory that no connection of this thread uses at present.
    static SPARE: Cell<BytesMut> = Cell::default();
}

/// A large message that comes.
struct Large {
    body: Vec<u8>,
    size: usize,
}

/// What has been received.
pub(super) struct Inbox {
    buffer: BytesMut,
    framer: Framer,
    /// Nothing is in the buffer then.
    large: Option<Large>,
    memory: Memory,
    /// The buffer has no memory beyond its content.
    rests: bool,
}

impl Inbox {
    /// Large messages are received in `memory`.
    pub(super) fn new(memory: &Memory) -> Inbox {
        Inbox { buffer: BytesMut::new(), framer: Framer::default(), large: None, memory: memory.clone(), rests: true }
    }

    /// Takes the next message.
    pub(super) fn next(&mut self) -> Result<Framed, RecordError> {
        match self.large.take() {
            Some(large) if large.body.len() == large.size => Ok(Framed::Message(self.memory.lend(large.body))),
            Some(large) => {
                let missing = large.size - large.body.len();
                self.large = Some(large);
                Ok(Framed::Missing(missing))
            }
            None => self.framer.next(&mut self.buffer),
        }
    }

    /// Bytes of the message that comes next, as far as that is known.
    pub(super) fn announced(&self) -> usize {
        self.large.as_ref().map_or_else(|| self.framer.announced(&self.buffer), |large| large.size)
    }

    /// Whether everything received has been taken.
    pub(super) fn is_empty(&self) -> bool {
        self.buffer.is_empty() && self.large.is_none()
    }

    /// Bytes of memory that part of a message holds; 0 if none is here.
    pub(super) fn holds(&self) -> usize {
        let large = self.large.as_ref().map_or(0, |large| large.body.capacity());
        if self.is_amid() { self.buffer.capacity() + self.framer.taken() + large } else { 0 }
    }

    /// Whether part of a message is here.
    pub(super) fn is_amid(&self) -> bool {
        !self.is_empty() || self.framer.is_amid()
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
        self.begin_large();
        if let Some(Large { body, size }) = &mut self.large {
            // What comes behind it has its place elsewhere.
            let most = most.min(*size - body.len());
            let read = pin!(stream.read_buf(&mut body.limit(most))).poll(cx);
            if read.is_pending() && !self.rests {
                self.rest();
            }
            return read;
        }
        self.make_room(missing);
        let read = pin!(stream.read_buf(&mut (&mut self.buffer).limit(most))).poll(cx);
        if read.is_pending() {
            self.rest();
        }
        read
    }

    /// Gives a message that is large, and of which enough has come, memory of its own.
    fn begin_large(&mut self) {
        let begun = self.framer.single(&self.buffer).filter(|(begun, size)| {
            self.large.is_none() && *size >= ALONE_SIZE && begun.len() >= TRUST_SIZE && begun.len() < *size
        });
        if let Some((begun, size)) = begun {
            let mut body = self.memory.take(size);
            body.extend_from_slice(begun);
            self.large = Some(Large { body, size });
            self.buffer.clear();
        }
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
        let mut inbox = Inbox::new(&Memory::default());
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
            assert!(inbox.is_amid());
            assert!(inbox.holds() >= sent - 4 && inbox.holds() <= most, "{} bytes for {sent}", inbox.holds());
        }
        peer.write_all(&vec![1; (1 << 20) + 4 - sent]).await.unwrap();
        let found = fill(&mut inbox, &mut stream).await;
        assert!(found.len() == 1 && found[0][..] == [1; 1 << 20]);
        assert_eq!((inbox.buffer.capacity(), inbox.is_amid(), inbox.holds()), (0, false, 0));
    }

    #[tokio::test]
    async fn a_large_message_lies_in_memory_of_its_own_and_what_follows_it_does_not() {
        let (mut peer, mut stream) = tokio::io::duplex(4 << 20);
        let memory = Memory::default();
        let mut inbox = Inbox::new(&memory);
        let content = |size: usize| (0..size).map(|at| (at / 7) as u8).collect::<Vec<u8>>();
        let sizes = [9, 700_000, 5000, ALONE_SIZE, ALONE_SIZE - 1, RECORD_SIZE_MAX, 1 << 20, 0, READ_SIZE, 300_000];
        let sent: Vec<u8> = sizes.iter().flat_map(|size| [&mark(*size)[..], &content(*size)].concat()).collect();
        let mut found = Vec::new();
        for step in [1000, 33_333, 100_000, 1 << 20, sent.len()] {
            for piece in sent.chunks(step) {
                peer.write_all(piece).await.unwrap();
                found.extend(fill(&mut inbox, &mut stream).await);
            }
            assert!(!inbox.is_amid());
            assert_eq!(found.iter().map(bytes::Bytes::len).collect::<Vec<_>>(), sizes);
            for message in found.drain(..) {
                assert!(message[..] == content(message.len()));
                assert_eq!(memory.lent(&message).is_some(), message.len() >= ALONE_SIZE, "{}", message.len());
            }
        }
        // In two fragments.
        let half = [&(1u32 << 19).to_be_bytes()[..], &[1; 1 << 19]].concat();
        peer.write_all(&[half, mark(1 << 19).to_vec(), vec![2; 1 << 19], mark(1).to_vec(), vec![3]].concat())
            .await
            .unwrap();
        let found = fill(&mut inbox, &mut stream).await;
        assert_eq!(found.iter().map(bytes::Bytes::len).collect::<Vec<_>>(), [1 << 20, 1]);
        assert!(found[0][..1 << 19] == [1; 1 << 19] && found[0][1 << 19..] == [2; 1 << 19] && found[1][..] == [3]);
    }

    #[tokio::test]
    async fn memory_is_shared_and_messages_are_not() {
        let (mut peer, mut stream) = tokio::io::duplex(1 << 20);
        let (mut one, mut other) = (Inbox::new(&Memory::default()), Inbox::new(&Memory::default()));
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
