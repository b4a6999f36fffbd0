//! One non-blocking connection that carries records (RFC 5531, 11): what has come, what is to go.
//!
//! - Nothing is allocated per record in steady state.
//! - Of most long records only the head may be taken ([`Input::take_whole`]); the kernel drops the rest, uncopied.
//! - File content goes out from where it lies, without a copy: the null server is a floor.

use crate::content;
use rustix::net::{RecvFlags, recv};
use std::collections::VecDeque;
use std::io::{Error, ErrorKind, IoSlice, Read, Result, Write};
use std::net::TcpStream;
use std::ops::Range;

/// Longest record that is taken: 1 MiB of data and a generous rest.
const RECORD_BYTES_MAX: usize = 4 << 20;
/// Bytes asked for at once, beyond what the present record still needs.
const READ_AHEAD: usize = 256 << 10;
/// Bytes that one read copies at most: whoever asks looks at the clock between two.
const READ_MAX: usize = 128 << 10;
/// Of a record whose rest is dropped, about so much is taken; one that is no longer is taken whole.
const HEAD_BYTES: usize = 16 << 10;
/// A piece of output that is so long is followed by another: it goes when it is sent, not when everything is.
const PIECE_BYTES: usize = 64 << 10;
/// The mark of a record's last fragment.
pub const LAST: u32 = 0x8000_0000;

pub struct Stream {
    pub socket: TcpStream,
    pub input: Input,
    pub output: Output,
}

impl Stream {
    pub fn new(socket: TcpStream) -> Result<Stream> {
        socket.set_nodelay(true)?;
        socket.set_nonblocking(true)?;
        Ok(Stream { socket, input: Input::new(), output: Output::default() })
    }

    /// Reads once. True if there may be more.
    pub fn fill(&mut self) -> Result<bool> {
        self.input.fill(&self.socket)
    }

    /// Writes what the socket takes.
    pub fn flush(&mut self) -> Result<()> {
        self.output.flush(&self.socket)
    }
}

/// Bytes that came; those before `start` have been looked at.
pub struct Input {
    bytes: Vec<u8>,
    start: usize,
    end: usize,
    /// Of so many long records one is taken whole.
    whole: u32,
    /// Records that have been looked at.
    count: u32,
    /// Bytes of the record at `start` that were dropped behind `end`.
    dropped: usize,
}

impl Input {
    fn new() -> Input {
        Input { bytes: vec![0; READ_AHEAD], start: 0, end: 0, whole: 1, count: 0, dropped: 0 }
    }

    /// Of `one_in` long records one is taken whole from now on, and of the others the head.
    pub fn take_whole(&mut self, one_in: u32) {
        self.whole = one_in.max(1);
    }

    fn fill(&mut self, mut socket: &TcpStream) -> Result<bool> {
        self.make_room();
        let droppable = self.droppable();
        if droppable > 0 {
            return self.drop_unseen(socket, droppable);
        }
        let most = if self.drops() { HEAD_BYTES } else { READ_MAX };
        let room = (self.bytes.len() - self.end).min(most);
        let space = &mut self.bytes[self.end..self.end + room];
        match socket.read(space) {
            Ok(0) => Err(Error::new(ErrorKind::UnexpectedEof, "the connection was closed")),
            Ok(read) => {
                self.end += read;
                Ok(read == room)
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Whether of the record at `start` only the head is wanted, if it is long.
    fn drops(&self) -> bool {
        !self.count.is_multiple_of(self.whole)
    }

    /// Bytes still to come of a record whose head is there and enough.
    fn droppable(&self) -> usize {
        let held = self.end - self.start;
        match self.mark() {
            Some(mark) if self.drops() && held >= HEAD_BYTES => {
                (4 + (mark & !LAST) as usize).min(RECORD_BYTES_MAX).saturating_sub(held + self.dropped)
            }
            _ => 0,
        }
    }

    /// Has the kernel forget up to `size` bytes. True if there may be more.
    fn drop_unseen(&mut self, socket: &TcpStream, size: usize) -> Result<bool> {
        // What is asked for is not written to: the flag makes a stream's bytes go nowhere (tcp(7)).
        let space = &mut self.bytes[self.end..];
        let asked = size.min(space.len());
        match recv(socket, &mut space[..asked], RecvFlags::TRUNC) {
            Ok((_, 0)) => Err(Error::new(ErrorKind::UnexpectedEof, "the connection was closed")),
            Ok((_, dropped)) => {
                self.dropped += dropped;
                Ok(dropped == asked)
            }
            Err(rustix::io::Errno::AGAIN) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Room for the rest of the record that has begun, and a good read.
    fn make_room(&mut self) {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
        let record = self.mark().map_or(0, |mark| 4 + (mark & !LAST) as usize).min(RECORD_BYTES_MAX);
        if self.start + record + READ_AHEAD / 4 > self.bytes.len() {
            self.bytes.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
            let wanted = record + READ_AHEAD;
            if wanted > self.bytes.len() {
                self.bytes.resize(wanted, 0);
            }
        }
    }

    fn mark(&self) -> Option<u32> {
        let mark = self.bytes[self.start..self.end].first_chunk::<4>()?;
        Some(u32::from_be_bytes(*mark))
    }

    /// The next record, without its mark, and how many of its bytes were dropped behind what is given.
    pub fn next_head(&mut self) -> Result<Option<(&[u8], usize)>> {
        let Some(mark) = self.mark() else { return Ok(None) };
        let size = (mark & !LAST) as usize;
        if mark & LAST == 0 || size > RECORD_BYTES_MAX {
            return Err(Error::new(ErrorKind::InvalidData, "a record is too long or in several fragments"));
        }
        if self.end - self.start + self.dropped < 4 + size {
            return Ok(None);
        }
        let dropped = std::mem::take(&mut self.dropped);
        let from = self.start + 4;
        self.start = from + size - dropped;
        self.count = self.count.wrapping_add(1);
        Ok(Some((&self.bytes[from..self.start], dropped)))
    }

    /// The next record, without its mark, where all are taken whole.
    pub fn next_record(&mut self) -> Result<Option<&[u8]>> {
        debug_assert_eq!(self.whole, 1, "who drops asks for heads");
        Ok(self.next_head()?.map(|(record, _)| record))
    }
}

enum Piece {
    Own(Vec<u8>),
    /// A range of [`content::content`].
    Content(Range<usize>),
}

impl Piece {
    fn bytes(&self) -> &[u8] {
        match self {
            Piece::Own(bytes) => bytes,
            Piece::Content(range) => &content::content()[range.clone()],
        }
    }
}

/// Bytes to go, in order.
#[derive(Default)]
pub struct Output {
    pieces: VecDeque<Piece>,
    /// Bytes of the first piece that are gone already.
    gone: usize,
    spare: Vec<Vec<u8>>,
}

impl Output {
    /// Where the next bytes are appended.
    pub fn tail(&mut self) -> &mut Vec<u8> {
        let has_room = |piece: &Piece| matches!(piece, Piece::Own(bytes) if bytes.len() < PIECE_BYTES);
        if !self.pieces.back().is_some_and(has_room) {
            self.pieces.push_back(Piece::Own(self.spare.pop().unwrap_or_default()));
        }
        match self.pieces.back_mut() {
            Some(Piece::Own(bytes)) => bytes,
            _ => unreachable!("the last piece was made an own one above"),
        }
    }

    /// Appends `size` bytes of file content as they stand at `offset`; at most [`content::PERIOD`].
    pub fn content(&mut self, offset: u64, size: usize) {
        let from = (offset % content::PERIOD as u64) as usize;
        self.pieces.push_back(Piece::Content(from..from + size.min(content::PERIOD)));
    }

    pub fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    fn flush(&mut self, mut socket: &TcpStream) -> Result<()> {
        while !self.pieces.is_empty() {
            let mut slices: [IoSlice; 32] = std::array::from_fn(|_| IoSlice::new(&[]));
            let mut count = 0;
            for (slice, piece) in slices.iter_mut().zip(&self.pieces) {
                *slice = IoSlice::new(&piece.bytes()[if count == 0 { self.gone } else { 0 }..]);
                count += 1;
            }
            match socket.write_vectored(&slices[..count]) {
                Ok(written) => self.forget(written),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn forget(&mut self, written: usize) {
        self.gone += written;
        while let Some(first) = self.pieces.front() {
            let size = first.bytes().len();
            if self.gone < size {
                return;
            }
            self.gone -= size;
            if let Some(Piece::Own(mut bytes)) = self.pieces.pop_front() {
                bytes.clear();
                self.spare.push(bytes);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    /// A connection's two ends; the first has records of these sizes to send, of the content from 7 on.
    fn sending(sizes: &[usize]) -> (Stream, Stream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut sender = Stream::new(TcpStream::connect(listener.local_addr().unwrap()).unwrap()).unwrap();
        for size in sizes {
            sender.output.tail().extend_from_slice(&(*size as u32 | LAST).to_be_bytes());
            sender.output.content(7, *size);
        }
        (sender, Stream::new(listener.accept().unwrap().0).unwrap())
    }

    #[test]
    fn records_pass_whole_however_long() {
        let sizes = [0, 1, 4096, content::PERIOD, 3, content::PERIOD];
        let (mut sender, mut receiver) = sending(&sizes);
        let mut got = Vec::new();
        while got.len() < sizes.len() {
            sender.flush().unwrap();
            receiver.fill().unwrap();
            while let Some(record) = receiver.input.next_record().unwrap() {
                assert_eq!(record, content::at(7, record.len()));
                got.push(record.len());
            }
        }
        assert_eq!(got, sizes);
        assert!(sender.output.is_empty());
    }

    #[test]
    fn of_long_records_the_head_is_taken_and_each_is_told_by_its_size() {
        let sizes =
            [content::PERIOD, 5, content::PERIOD, content::PERIOD, content::PERIOD, HEAD_BYTES - 4, content::PERIOD, 0];
        let (mut sender, mut receiver) = sending(&sizes);
        receiver.input.take_whole(3);
        let mut got = Vec::new();
        while got.len() < sizes.len() {
            sender.flush().unwrap();
            receiver.fill().unwrap();
            while let Some((record, dropped)) = receiver.input.next_head().unwrap() {
                assert_eq!(record, content::at(7, record.len()));
                got.push((record.len() + dropped, dropped > 0));
            }
        }
        let told = [false, false, true, false, true, false, false, false];
        assert_eq!(got, sizes.into_iter().zip(told).collect::<Vec<_>>());
    }
}
