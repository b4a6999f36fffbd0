//! A client's connection, over which what lies in [`Pages`] is sent without being copied.
//!
//! - Its pages go into a pipe (vmsplice), and from there to the socket (splice). What lies elsewhere, and little of it, is copied
//!   as ever.
//! - What the socket did not take stays in the pipe, and is the first to go when it takes more; nothing overtakes it.
//! - A kernel that does not know how, or pipes enough in use, and it is copied. What is in a pipe is always what comes next, so
//!   that it can be copied instead at any time.

use std::io::{ErrorKind, IoSlice, Result};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tarn_base::pages::Pages;
use tarn_nfs::server::Socket;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::TcpStream;

use self::pipe::Piped;

/// A client's connection.
pub struct ClientSocket {
    stream: TcpStream,
    pages: Pages,
    /// What the socket is still to take of what was handed over.
    piped: Option<Piped>,
}

impl ClientSocket {
    pub fn new(stream: TcpStream, pages: Pages) -> ClientSocket {
        ClientSocket { stream, pages, piped: None }
    }
}

impl Socket for ClientSocket {
    fn has_left(&self) -> bool {
        self.stream.has_left()
    }

    fn poll_send(&mut self, cx: &mut Context<'_>, slices: &[IoSlice<'_>]) -> Poll<Result<usize>> {
        let handed = |slice: &IoSlice<'_>| slice.len() >= Pages::WORTH && self.pages.hold(slice);
        if self.piped.is_none() && !slices.iter().any(handed) {
            return Pin::new(&mut self.stream).poll_write_vectored(cx, slices);
        }
        let copied = slices.iter().take_while(|slice| !handed(slice)).count();
        let run = slices[copied..].iter().take_while(|slice| handed(slice)).count();
        let (stream, piped) = (&self.stream, &mut self.piped);
        loop {
            ready!(stream.poll_write_ready(cx))?;
            let sent = stream.try_io(Interest::WRITABLE, || {
                if piped.is_none() && copied == 0 {
                    *piped = pipe::fill(&slices[..run]);
                }
                let most = slices.iter().map(|slice| slice.len()).sum();
                match pipe::drain(stream, piped, most) {
                    Some(drained) => drained,
                    None if copied > 0 => pipe::copy(stream, &slices[..copied], copied < slices.len()),
                    None => pipe::copy(stream, &slices[..run], run < slices.len()),
                }
            });
            match sent {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                sent => return Poll::Ready(sent),
            }
        }
    }
}

impl AsyncRead for ClientSocket {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl AsyncWrite for ClientSocket {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<Result<usize>> {
        self.poll_send(cx, &[IoSlice::new(bytes)])
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

mod pipe {
    use std::cell::RefCell;
    use std::io::{IoSlice, Result};
    use std::os::fd::OwnedFd;
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

    use rustix::io::{Errno, retry_on_intr};
    use rustix::net::{SendAncillaryBuffer, SendFlags, sendmsg};
    use rustix::pipe::{IoSliceRaw, PipeFlags, SpliceFlags, fcntl_setpipe_size, pipe_with, splice, vmsplice};
    use tokio::net::TcpStream;

    /// Bytes that a pipe has room for: more than a turn of a connection.
    const SIZE: usize = 1 << 20;
    /// Pipes that there may be. A user has memory for 64 of this size by default, and files are for connections first.
    const PIPES_MAX: usize = 48;
    /// Pieces handed over at a time.
    const PIECES: usize = 16;
    /// Empty pipes that a thread keeps.
    const SPARE_MAX: usize = 4;

    /// Pipes that there are.
    static PIPES: AtomicUsize = AtomicUsize::new(0);
    /// It was tried, and the system does not do it.
    static REFUSED: AtomicBool = AtomicBool::new(false);

    struct Pipe {
        from: OwnedFd,
        to: OwnedFd,
    }

    /// A pipe with something in it.
    pub struct Piped {
        pipe: Pipe,
        bytes: usize,
        /// More follows at once.
        more: bool,
    }

    #[cfg(test)]
    impl Piped {
        pub fn bytes(&self) -> usize {
            self.bytes
        }
    }

    thread_local! {
        static SPARE: RefCell<Vec<Pipe>> = const { RefCell::new(Vec::new()) };
    }

    impl Pipe {
        fn get() -> Option<Pipe> {
            if REFUSED.load(Ordering::Relaxed) {
                return None;
            }
            if let Some(pipe) = SPARE.with_borrow_mut(Vec::pop) {
                return Some(pipe);
            }
            if PIPES.load(Ordering::Relaxed) >= PIPES_MAX {
                return None;
            }
            let (from, to) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK).ok()?;
            PIPES.fetch_add(1, Ordering::Relaxed);
            let pipe = Pipe { from, to };
            // A small one would take more calls than copying is worth.
            fcntl_setpipe_size(&pipe.to, SIZE).is_ok().then_some(pipe)
        }

        /// For the next one; nothing is in it.
        fn put(self) {
            SPARE.with_borrow_mut(|spare| {
                if spare.len() < SPARE_MAX {
                    spare.push(self);
                }
            });
        }
    }

    impl Drop for Pipe {
        fn drop(&mut self) {
            PIPES.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Hands over pages of `run`, from its begin on and as far as a pipe has room. None if that cannot be done.
    pub fn fill(run: &[IoSlice<'_>]) -> Option<Piped> {
        let pipe = Pipe::get()?;
        let pieces: [IoSliceRaw<'_>; PIECES] =
            std::array::from_fn(|index| IoSliceRaw::from_slice(run.get(index).map_or(&[], |piece| piece)));
        // SAFETY: the kernel reads from the pieces. That it may do so later is what `Pages` are for: they do not change.
        let filled = unsafe { vmsplice(&pipe.to, &pieces[..run.len().min(PIECES)], SpliceFlags::NONBLOCK) };
        let bytes = filled.ok().filter(|bytes| *bytes > 0)?;
        let all: usize = run.iter().map(|piece| piece.len()).sum();
        Some(Piped { pipe, bytes, more: bytes < all })
    }

    /// Moves what is in the pipe to the socket, `most` bytes of it; once it is empty there is no pipe. None without one, and where
    /// the system does not do this: then all of it is still to be sent.
    pub fn drain(stream: &TcpStream, piped: &mut Option<Piped>, most: usize) -> Option<Result<usize>> {
        let held = piped.as_mut()?;
        let more = if held.more { SpliceFlags::MORE } else { SpliceFlags::empty() };
        let flags = SpliceFlags::NONBLOCK | more;
        let taken = retry_on_intr(|| splice(&held.pipe.from, None, stream, None, held.bytes.min(most), flags));
        match taken {
            Ok(taken) => {
                held.bytes -= taken;
                if let Some(Piped { pipe, .. }) = piped.take_if(|held| held.bytes == 0) {
                    pipe.put();
                }
                Some(Ok(taken))
            }
            Err(Errno::PERM | Errno::NOSYS | Errno::INVAL | Errno::ACCESS) => {
                REFUSED.store(true, Ordering::Relaxed);
                *piped = None;
                None
            }
            Err(error) => Some(Err(error.into())),
        }
    }

    /// Copies; `more` says that something follows at once, and one packet may hold both.
    pub fn copy(stream: &TcpStream, slices: &[IoSlice<'_>], more: bool) -> Result<usize> {
        let flags = SendFlags::NOSIGNAL | if more { SendFlags::MORE } else { SendFlags::empty() };
        Ok(sendmsg(stream, slices, &mut SendAncillaryBuffer::default(), flags)?)
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use tokio::io::AsyncReadExt;
    use tokio::net::TcpListener;

    use super::*;

    const MIB: usize = 1 << 20;

    async fn pair(pages: &Pages) -> (ClientSocket, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (theirs, ours) = tokio::join!(TcpStream::connect(listener.local_addr().unwrap()), listener.accept());
        (ClientSocket::new(ours.unwrap().0, pages.clone()), theirs.unwrap())
    }

    /// Bytes of which no two stretches are alike.
    fn noise(len: usize, seed: u64) -> Vec<u8> {
        let word = |at: u64| (at + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15 ^ (seed << 7)).to_be_bytes();
        (0..len as u64).map(|at| word(at / 8)[(at % 8) as usize]).collect()
    }

    /// Sends what is left of `pieces` behind `sent` until nothing is or the peer takes no more, at most `most` bytes at a time.
    async fn send(socket: &mut ClientSocket, pieces: &[Bytes], sent: &mut usize, most: usize) -> bool {
        std::future::poll_fn(|cx| {
            loop {
                let (mut skip, mut room) = (*sent, most);
                let mut slices = Vec::new();
                for piece in pieces {
                    let rest = &piece[skip.min(piece.len())..];
                    skip -= skip.min(piece.len());
                    let part = &rest[..rest.len().min(room)];
                    room -= part.len();
                    if !part.is_empty() {
                        slices.push(IoSlice::new(part));
                    }
                }
                if slices.is_empty() {
                    return Poll::Ready(true);
                }
                match socket.poll_send(cx, &slices) {
                    Poll::Ready(count) => *sent += count.unwrap(),
                    Poll::Pending => return Poll::Ready(false),
                }
            }
        })
        .await
    }

    #[tokio::test]
    async fn what_is_handed_over_and_what_is_copied_arrive_in_order() {
        let pages = Pages::new(64 << 20);
        for most in [usize::MAX, 512 << 10, 100_003] {
            let (mut socket, mut peer) = pair(&pages).await;
            let mut pieces = Vec::new();
            for round in 0..20 {
                let kept = |len, seed| pages.keep(&noise(len, seed)).unwrap();
                pieces.push(Bytes::from(noise(100 + round * 977, 1)));
                pieces.push(kept(MIB, round as u64));
                pieces.push(kept(64 << 10, 50 + round as u64).slice(round * 1001..));
                pieces.push(kept(100_000, 90 + round as u64).slice(..round * 4000 + 1));
                pieces.push(Bytes::from(noise(40_000, 2)));
            }
            let whole = pieces.concat();
            let expected = whole.clone();
            let read = tokio::spawn(async move {
                let mut found = vec![0; expected.len()];
                peer.read_exact(&mut found).await.unwrap();
                assert!(found == expected);
                peer
            });
            let mut sent = 0;
            while !send(&mut socket, &pieces, &mut sent, most).await {
                tokio::task::yield_now().await;
            }
            assert_eq!(sent, whole.len());
            drop(socket);
            assert_eq!(read.await.unwrap().read(&mut [0; 10]).await.unwrap(), 0, "nothing follows");
        }
    }

    #[tokio::test]
    async fn what_a_peer_has_not_read_does_not_change_when_its_place_is_used_again() {
        let pages = Pages::new(8 << 20);
        let (mut socket, mut peer) = pair(&pages).await;
        let old: Vec<Bytes> = (0..8).map(|seed| pages.keep(&noise(MIB, seed)).unwrap()).collect();
        let places: Vec<_> = old.iter().map(|bytes| bytes.as_ptr()).collect();
        let expected = old.concat();
        let mut sent = 0;
        assert!(!send(&mut socket, &old, &mut sent, usize::MAX).await, "more than a socket takes");
        assert!(socket.piped.is_some());
        // What is still in the pipe counts as not sent, and comes from there.
        let piped = socket.piped.as_ref().unwrap().bytes();
        let rest = Bytes::copy_from_slice(&expected[sent..]);
        drop(old);
        let new: Vec<Bytes> = (0..8).map(|seed| pages.keep(&noise(MIB, 100 + seed)).unwrap()).collect();
        assert!(new.iter().all(|bytes| places.contains(&bytes.as_ptr())), "the same places");
        let reading = expected.clone();
        let read = tokio::spawn(async move {
            let mut found = vec![0; reading.len()];
            peer.read_exact(&mut found).await.unwrap();
            assert!(found == reading);
        });
        let (mut gone, rest) = (0, [rest]);
        while !send(&mut socket, &rest, &mut gone, usize::MAX).await {
            tokio::task::yield_now().await;
        }
        assert!(gone == expected.len() - sent && piped > 0);
        read.await.unwrap();
    }

    #[tokio::test]
    async fn a_peer_that_is_gone_is_an_error() {
        let pages = Pages::new(8 << 20);
        let (mut socket, peer) = pair(&pages).await;
        let piece = pages.keep(&noise(MIB, 1)).unwrap();
        drop(peer);
        for _ in 0..100 {
            let sent = std::future::poll_fn(|cx| socket.poll_send(cx, &[IoSlice::new(&piece)])).await;
            if let Err(error) = sent {
                assert!(matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset), "{error}");
                return;
            }
        }
        panic!("it took 100 MiB");
    }
}
