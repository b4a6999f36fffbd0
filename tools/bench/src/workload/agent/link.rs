//! Frames over one TCP connection, the same for both sides, and whether the other side lives.
//!
//! - A frame is its length in four bytes, the greatest first, and so many bytes. One of length 0 says "I live".
//! - Lengths are bounded before anything is allocated, and memory grows with what has come, not with what was announced.
//! - Each side says that it lives once a second, from a thread of its own; who is silent for [`SILENCE`] has stalled.

use std::io::{Error, ErrorKind, Read, Result, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Longest frame: a cell's histograms of all operations.
pub const FRAME_MAX: usize = 32 << 20;
/// Longest frame before the other side has shown that it may say more.
pub const GREETING_MAX: usize = 4 << 10;
/// After so long without a byte the other side counts as stalled.
pub const SILENCE: Duration = Duration::from_secs(5);
const BEAT: Duration = Duration::from_secs(1);

/// Reads one frame of at most `most` bytes.
pub fn read_frame(from: &mut impl Read, most: usize) -> Result<Vec<u8>> {
    let mut length = [0; 4];
    from.read_exact(&mut length)?;
    let length = u32::from_be_bytes(length) as usize;
    if length > most {
        return Err(Error::new(ErrorKind::InvalidData, format!("a frame of {length} bytes; {most} at most")));
    }
    let mut frame = Vec::new();
    if from.take(length as u64).read_to_end(&mut frame)? < length {
        return Err(ErrorKind::UnexpectedEof.into());
    }
    Ok(frame)
}

/// Writes one frame.
pub fn write_frame(mut to: impl Write, bytes: &[u8]) -> Result<()> {
    let length = u32::try_from(bytes.len()).ok().filter(|length| *length as usize <= FRAME_MAX);
    let length = length.ok_or_else(|| Error::new(ErrorKind::InvalidInput, "a frame that is too long"))?;
    let mut frame = Vec::with_capacity(4 + bytes.len());
    frame.extend_from_slice(&length.to_be_bytes());
    frame.extend_from_slice(bytes);
    to.write_all(&frame)
}

/// What came: whose link it was, when, and a frame or why there will be no more.
pub struct News {
    pub link: usize,
    pub at: Instant,
    pub frame: std::result::Result<Vec<u8>, String>,
}

/// A connection whose greetings have been exchanged. Dropping it closes it.
pub struct Link {
    socket: TcpStream,
    writer: Arc<Mutex<TcpStream>>,
    gone: Arc<AtomicBool>,
}

impl Link {
    /// Takes over the connection: what comes goes to `news` as that of `number`.
    pub fn new(socket: TcpStream, number: usize, news: Sender<News>) -> Result<Link> {
        socket.set_read_timeout(Some(SILENCE))?;
        socket.set_write_timeout(Some(SILENCE))?;
        socket.set_nodelay(true)?;
        let (mut reader, writer) = (socket.try_clone()?, Arc::new(Mutex::new(socket.try_clone()?)));
        let gone = Arc::new(AtomicBool::new(false));
        let (at_end, beats, beating) = (gone.clone(), writer.clone(), gone.clone());
        std::thread::spawn(move || {
            read_all(&mut reader, number, &news);
            at_end.store(true, Ordering::Relaxed);
        });
        std::thread::spawn(move || {
            while !beating.load(Ordering::Relaxed) && write_frame(&*lock(&beats), &[]).is_ok() {
                std::thread::sleep(BEAT);
            }
        });
        Ok(Link { socket, writer, gone })
    }

    pub fn send(&self, bytes: &[u8]) -> Result<()> {
        write_frame(&*lock(&self.writer), bytes)
    }

    /// Set once nothing comes any more.
    pub fn gone(&self) -> Arc<AtomicBool> {
        self.gone.clone()
    }

    /// Tells the other side that nothing follows.
    pub fn finish(&self) {
        let _ = self.socket.shutdown(Shutdown::Write);
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.gone.store(true, Ordering::Relaxed);
        let _ = self.socket.shutdown(Shutdown::Both);
    }
}

fn lock(writer: &Mutex<TcpStream>) -> std::sync::MutexGuard<'_, TcpStream> {
    writer.lock().unwrap_or_else(PoisonError::into_inner)
}

fn read_all(reader: &mut TcpStream, link: usize, news: &Sender<News>) {
    loop {
        let frame = read_frame(reader, FRAME_MAX).map_err(|error| match error.kind() {
            ErrorKind::WouldBlock | ErrorKind::TimedOut => format!("silent for {} s", SILENCE.as_secs()),
            ErrorKind::UnexpectedEof => "the connection was closed".to_owned(),
            _ => error.to_string(),
        });
        if frame.as_ref().is_ok_and(Vec::is_empty) {
            continue;
        }
        let over = frame.is_err();
        if news.send(News { link, at: Instant::now(), frame }).is_err() || over {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn frames_are_bounded_and_whole() {
        let mut bytes = Vec::new();
        write_frame(&mut bytes, b"one").unwrap();
        write_frame(&mut bytes, b"").unwrap();
        let mut from = &bytes[..];
        assert_eq!(read_frame(&mut from, 3).unwrap(), b"one");
        assert_eq!(read_frame(&mut from, 3).unwrap(), b"");
        assert_eq!(read_frame(&mut from, 3).unwrap_err().kind(), ErrorKind::UnexpectedEof);
        assert_eq!(read_frame(&mut &bytes[..], 2).unwrap_err().kind(), ErrorKind::InvalidData);
        assert_eq!(read_frame(&mut &bytes[..6], 3).unwrap_err().kind(), ErrorKind::UnexpectedEof);
        assert_eq!(read_frame(&mut &[0xff; 8][..], FRAME_MAX).unwrap_err().kind(), ErrorKind::InvalidData);
        assert!(write_frame(&mut bytes, &vec![0; FRAME_MAX + 1]).is_err());
    }

    #[test]
    fn who_is_idle_lives_and_who_is_silent_has_stalled() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (sender, news) = std::sync::mpsc::channel();
        let link = Link::new(TcpStream::connect(listener.local_addr().unwrap()).unwrap(), 7, sender).unwrap();
        let mut silent = listener.accept().unwrap().0;
        assert!(read_frame(&mut silent, 0).unwrap().is_empty(), "it says that it lives");
        write_frame(&mut silent, b"x").unwrap();
        let first = news.recv().unwrap();
        assert_eq!((first.link, first.frame.unwrap()), (7, b"x".to_vec()));
        let began = Instant::now();
        let last = news.recv().unwrap().frame.unwrap_err();
        assert!(last.contains("silent") && began.elapsed() >= SILENCE - BEAT, "{last}");
        assert!(news.recv().is_err());
        assert!(link.gone().load(Ordering::Relaxed));
    }
}
