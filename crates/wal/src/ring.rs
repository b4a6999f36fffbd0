//! The device as a ring of frames with two header slots before it.
//!
//! - A log offset never wraps; its place on the device does.
//! - Header slots are written in turn, each flushed before anybody acts on it, so one is always whole.
//! - All flushes go through one lock, with the verdict on the device: the host's file system reports a failed
//!   write-back once, to whichever flush comes first, and no later success may be believed.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use tarn_base::codec::DecodeError;
use tarn_base::crc32c;
use tarn_base::crypto::TAG_SIZE;
use tarn_base::ids::Uuid;

use crate::aligned::Aligned;
use crate::contract::LogError;
use crate::device::LogDevice;
use crate::format::{BLOCK, FRAME_HEADER, FrameHeader, Header, LogKeys, RING_START, SLOT_SIZE};

/// The part of the ring that a header is ahead of what is written, and at most so many bytes.
const AHEAD: u64 = 16;
const AHEAD_MAX: u64 = 256 << 20;

pub(crate) struct Ring {
    pub device: Arc<dyn LogDevice>,
    pub keys: LogKeys,
    /// Bytes of the ring.
    pub size: u64,
    /// As the header has them: they never change.
    id: Uuid,
    shard: u32,
    header: Mutex<Header>,
    /// As the header has it.
    limit: AtomicU64,
    /// Held during every flush of the device, so that its verdict is known to the next.
    flushes: Mutex<()>,
    /// Why the device is not to be believed any more.
    verdict: OnceLock<String>,
}

/// Why a frame could not be read.
#[derive(Debug)]
pub(crate) enum FrameFault {
    Io(io::Error),
    /// No whole frame is there: never written, or torn.
    Bad(&'static str),
    /// A whole frame is there that does not open.
    Sealed,
    Newer(u32),
}

impl From<io::Error> for FrameFault {
    fn from(error: io::Error) -> FrameFault {
        FrameFault::Io(error)
    }
}

impl Ring {
    pub fn new(device: Arc<dyn LogDevice>, keys: LogKeys, header: Header) -> Ring {
        Ring {
            device,
            keys,
            size: header.ring,
            id: header.id,
            shard: header.shard,
            limit: AtomicU64::new(header.limit),
            header: Mutex::new(header),
            flushes: Mutex::new(()),
            verdict: OnceLock::new(),
        }
    }

    pub fn header(&self) -> Header {
        self.header.lock().clone()
    }

    /// The parts of the device that hold `len` bytes from `offset`: one, or two where the ring wraps.
    fn parts(&self, offset: u64, len: usize) -> ((u64, usize), usize) {
        let at = offset % self.size;
        let first = len.min((self.size - at) as usize);
        ((RING_START + at, first), len - first)
    }

    pub fn read(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let ((at, first), _) = self.parts(offset, buf.len());
        let (head, wrapped) = buf.split_at_mut(first);
        self.device.read(at, head)?;
        if wrapped.is_empty() { Ok(()) } else { self.device.read(RING_START, wrapped) }
    }

    pub fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let ((at, first), _) = self.parts(offset, data.len());
        let (head, wrapped) = data.split_at(first);
        self.device.write(at, head)?;
        if wrapped.is_empty() { Ok(()) } else { self.device.write(RING_START, wrapped) }
    }

    /// Makes durable that frames may reach up to `end`, before one does.
    pub fn reserve(&self, end: u64) -> io::Result<()> {
        if end <= self.limit.load(Ordering::Acquire) {
            return Ok(());
        }
        let reaches = |header: &mut Header| header.limit = header.limit.max(end + self.ahead());
        self.update_header(reaches).map_err(|error| io::Error::other(error.to_string()))
    }

    /// Bytes that a header is ahead of what is written: each so many cost another one, and a recovery looks through as many.
    fn ahead(&self) -> u64 {
        (self.size / AHEAD / BLOCK * BLOCK).clamp(BLOCK, AHEAD_MAX)
    }

    /// Whether what is written from now on will be read back soon.
    pub fn expect_reads(&self, soon: bool) {
        self.device.expect_reads(soon);
    }

    /// `len` bytes from `offset` on are read next.
    pub fn read_ahead(&self, offset: u64, len: u64) {
        let ((at, first), wrapped) = self.parts(offset, len.min(self.size) as usize);
        self.device.read_ahead(at, first as u64);
        if wrapped > 0 {
            self.device.read_ahead(RING_START, wrapped as u64);
        }
    }

    /// Flushes the device; after the first error every call fails, without asking the device again.
    pub fn flush(&self) -> io::Result<()> {
        let _one_at_a_time = self.flushes.lock();
        if let Some(reason) = self.verdict.get() {
            return Err(io::Error::other(reason.clone()));
        }
        self.device.flush().inspect_err(|error| self.condemn(&error.to_string()))
    }

    /// Condemns the device; the first reason stays.
    pub fn condemn(&self, reason: &str) {
        self.verdict.get_or_init(|| reason.to_owned());
    }

    /// The verdict, if it has fallen.
    pub fn condemned(&self) -> Option<LogError> {
        let reason = self.verdict.get()?.clone();
        Some(LogError::Poisoned { device: self.device.name(), reason })
    }

    /// Changes the header and makes it durable; on an error the device is condemned.
    pub fn update_header(&self, change: impl FnOnce(&mut Header)) -> Result<(), LogError> {
        let mut header = self.header.lock();
        if let Some(poisoned) = self.condemned() {
            return Err(poisoned);
        }
        let mut next = header.clone();
        change(&mut next);
        next.generation += 1;
        next.limit = next.limit.max(next.end + self.ahead());
        let slot = (next.generation % 2) * SLOT_SIZE as u64;
        let written = self.device.write(slot, &next.encode(&self.keys)).and_then(|()| self.flush());
        if let Err(error) = written {
            self.condemn(&error.to_string());
        }
        match self.condemned() {
            Some(poisoned) => Err(poisoned),
            None => {
                self.limit.store(next.limit, Ordering::Release);
                *header = next;
                Ok(())
            }
        }
    }

    /// The frame header at `offset`, judged by itself and by where it lies.
    pub fn frame_header(&self, offset: u64) -> Result<FrameHeader, FrameFault> {
        let mut block = [0u8; FRAME_HEADER];
        self.read(offset, &mut block)?;
        self.judge(offset, &block)
    }

    /// What `block`, read at `offset`, is.
    fn judge(&self, offset: u64, block: &[u8]) -> Result<FrameHeader, FrameFault> {
        let frame = match FrameHeader::decode(block) {
            Ok(frame) => frame,
            Err(DecodeError::Version(version)) => return Err(FrameFault::Newer(version)),
            Err(DecodeError::Range(reason)) => return Err(FrameFault::Bad(reason)),
            Err(_) => return Err(FrameFault::Bad("no frame")),
        };
        if frame.id != self.id || frame.shard != self.shard {
            return Err(FrameFault::Bad("a frame of another log"));
        }
        if frame.offset != offset || frame.extent() > self.size {
            return Err(FrameFault::Bad("a frame of another place"));
        }
        Ok(frame)
    }

    /// The plain body of `frame`, checked twice: by its CRC (whole?) and by its tag (ours?).
    pub fn frame_body(&self, frame: &FrameHeader) -> Result<Vec<u8>, FrameFault> {
        let len = frame.len as usize;
        let mut body = vec![0; len + TAG_SIZE];
        self.read(frame.offset + FRAME_HEADER as u64, &mut body[..len])?;
        if crc32c(&body[..len]) != frame.body_crc {
            return Err(FrameFault::Bad("the checksum of a frame's body"));
        }
        body[len..].copy_from_slice(&frame.tag);
        let opened = self.keys.frames.open_in_place(frame.nonce(), &frame.bare(), &mut body);
        opened.map_err(|_| FrameFault::Sealed)?;
        body.truncate(len);
        Ok(body)
    }

    /// As both, of the frame at `offset` that takes `extent` bytes: read at once, and opened where it was read. Gives how long
    /// its plain body is, which begins behind the header.
    pub fn whole_frame(&self, offset: u64, extent: usize, memory: &mut Aligned) -> Result<usize, FrameFault> {
        let room = memory.room(extent + TAG_SIZE);
        self.read(offset, &mut room[..extent])?;
        let frame = self.judge(offset, room)?;
        if frame.extent() != extent as u64 {
            return Err(FrameFault::Bad("a frame of another length"));
        }
        let len = frame.len as usize;
        let body = &mut room[FRAME_HEADER..FRAME_HEADER + len + TAG_SIZE];
        if crc32c(&body[..len]) != frame.body_crc {
            return Err(FrameFault::Bad("the checksum of a frame's body"));
        }
        body[len..].copy_from_slice(&frame.tag);
        let opened = self.keys.frames.open_in_place(frame.nonce(), &frame.bare(), body);
        opened.map(|()| len).map_err(|_| FrameFault::Sealed)
    }

    /// An error of reading, as the log reports it.
    pub fn unreadable(&self, error: &io::Error) -> LogError {
        LogError::Device { device: self.device.name(), reason: error.to_string() }
    }

    /// A frame that should be there is not.
    pub fn fault(&self, offset: u64, fault: FrameFault) -> LogError {
        match fault {
            FrameFault::Io(error) => self.unreadable(&error),
            FrameFault::Bad(reason) => LogError::Damaged { offset, reason: reason.to_owned() },
            FrameFault::Sealed => LogError::Damaged { offset, reason: "a frame does not open".to_owned() },
            FrameFault::Newer(version) => LogError::Newer { device: self.device.name(), version },
        }
    }
}
