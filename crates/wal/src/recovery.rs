//! Making, opening, reading back and starting a log.
//!
//! - Opening and replaying write nothing.
//! - Replay gives a prefix: it ends at the first place that holds no whole frame continuing the one before.
//! - A place that was ever durable and now holds no such frame is damage, not an end. It was durable if the header
//!   says so, or any later frame does, wherever in the ring there may be one.
//! - From `header.end` on only frames of the header's opening count: what older openings left there never comes back.
//! - No frame is written before the header with a higher opening count is durable, so no nonce is used twice.
//! - What is read back but not known durable is written again, unchanged, and flushed before it is believed: a
//!   failed write-back may have left it in the host's cache only.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use tarn_base::codec::DecodeError;
use tarn_base::crypto::{Key, NONCE_SIZE};
use tarn_base::ids::{Position, Uuid};
use tarn_base::mutant;

use crate::contract::{Entry, LogError, LogPlace};
use crate::device::LogDevice;
use crate::format::{
    BLOCK, BODY_SIZE_MAX, FRAME_HEADER, FrameHeader, Header, LogKeys, RING_START, SLOT_SIZE, WrappedKey, entries,
};
use crate::log::{Beginning, FramePlace, Log, LogOptions, Wake};
use crate::ring::{FrameFault, Ring};

/// The smallest ring; a server's is larger than its longest entry by far.
const RING_MIN: u64 = 64 << 10;
const SCAN_CHUNK: usize = 1 << 20;
/// What a replay asks the device for before it comes to it, bytes: at least half of it is on its way at any time.
const READ_AHEAD: u64 = 16 << 20;

/// What a new log is made of.
pub struct CreateOptions<'a> {
    /// Drawn at random.
    pub id: Uuid,
    pub shard: u32,
    pub master: &'a Key,
    /// The log's own key: 32 random bytes, used for nothing else.
    pub log_key: Key,
    /// 12 random bytes.
    pub wrap_nonce: [u8; NONCE_SIZE],
}

/// What replay found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Replayed {
    pub frames: u64,
    pub entries: u64,
    /// Payload bytes.
    pub bytes: u64,
    /// Log offset after the last whole frame.
    pub end: u64,
    /// The last entry's position; without one, that of the last entry ever trimmed.
    pub last: Position,
    /// Everything before this log offset is known to have been durable.
    pub durable: u64,
}

/// A log that is open for reading back, and can be started.
pub struct Recovery {
    ring: Ring,
    frames: VecDeque<FramePlace>,
    replayed: Option<Replayed>,
    /// What looks torn or damaged and keeps nobody from going on: of the header, of the end.
    header_doubt: Option<String>,
    end_doubt: Option<String>,
}

/// What stands at a place of the ring.
enum Found {
    Frame(FrameHeader, Bytes),
    End(&'static str),
}

impl Log {
    /// Makes an empty log on `device`: writes and flushes its first header.
    ///
    /// The device must be zeroed. Refuses a device that holds a log, or anything else.
    pub fn create(device: Arc<dyn LogDevice>, options: CreateOptions<'_>) -> Result<(), LogError> {
        let name = device.name();
        let ring = device.size().saturating_sub(RING_START) / BLOCK * BLOCK;
        if ring < RING_MIN {
            return Err(LogError::Refused(format!("{name} is too small for a log")));
        }
        match read_header(&*device) {
            Err(LogError::Blank { .. }) => {}
            Ok(_) => return Err(LogError::Refused(format!("{name} holds a log already"))),
            Err(error) => return Err(error),
        }
        let header = Header {
            generation: 1,
            id: options.id,
            ring,
            shard: options.shard,
            opening: 0,
            incarnation: 0,
            clean: true,
            tail: 0,
            trimmed: Position::ZERO,
            end: 0,
            last: Position::ZERO,
            limit: ring,
            key: WrappedKey::wrap(&options.log_key, options.master, options.id, options.wrap_nonce),
        };
        let slot = header.encode(&LogKeys::new(&options.log_key, options.id));
        let written = device.write(SLOT_SIZE as u64, &slot).and_then(|()| device.flush());
        written.map_err(|error| LogError::Poisoned { device: name, reason: error.to_string() })
    }

    /// Opens the log on `device` for reading back. Writes nothing.
    pub fn open(device: Arc<dyn LogDevice>, master: &Key) -> Result<Recovery, LogError> {
        let (header, slot, header_doubt) = read_header(&*device)?;
        let name = device.name();
        let log_key = header.key.unwrap(master, header.id).map_err(|_| LogError::WrongKey { device: name })?;
        let keys = LogKeys::new(&log_key, header.id);
        if !Header::authentic(&slot, &keys) {
            return Err(damaged(0, "the header was changed by somebody without the key"));
        }
        if device.size() < RING_START + header.ring {
            return Err(damaged(header.end, "the device is shorter than its log"));
        }
        let ring = Ring::new(device, keys, header);
        Ok(Recovery { ring, frames: VecDeque::new(), replayed: None, header_doubt, end_doubt: None })
    }

    /// Reads the whole log and judges it. Writes nothing; the log must not be in use.
    pub fn verify(device: Arc<dyn LogDevice>, master: &Key) -> Result<Replayed, LogError> {
        Log::open(device, master)?.replay(|_| Ok::<(), LogError>(()))
    }
}

fn damaged(offset: u64, reason: &str) -> LogError {
    LogError::Damaged { offset, reason: reason.to_owned() }
}

/// The header that holds, its slot's bytes, and what is to be said of the other slot.
fn read_header(device: &dyn LogDevice) -> Result<(Header, Vec<u8>, Option<String>), LogError> {
    let name = device.name();
    let mut slots = [vec![0u8; SLOT_SIZE], vec![0u8; SLOT_SIZE]];
    if device.size() < RING_START {
        return Err(damaged(0, &format!("{name} is too short for a log's headers")));
    }
    for (index, slot) in slots.iter_mut().enumerate() {
        let read = device.read((index * SLOT_SIZE) as u64, slot);
        read.map_err(|error| LogError::Device { device: name.clone(), reason: error.to_string() })?;
    }
    // The second header ever written goes to slot 0, before the first frame: while that slot is all zeros, nothing
    // was ever in this log, whatever became of the first header. Frames without it mean that it was wiped.
    let never_started = slots[0].iter().all(|&byte| byte == 0);
    let wiped = never_started && !is_zero(device, RING_START, BLOCK)?;
    let mut best: Option<(Header, Vec<u8>)> = None;
    let (mut doubt, mut blank) = (None, None);
    for (index, slot) in slots.into_iter().enumerate() {
        match Header::decode(&slot) {
            Ok(header) if best.as_ref().is_none_or(|(other, _)| other.generation < header.generation) => {
                best = Some((header, slot));
            }
            Err(DecodeError::Version(version)) => return Err(LogError::Newer { device: name, version }),
            Ok(_) => {}
            Err(_) if slot.iter().all(|&byte| byte == 0) => blank = Some(index),
            Err(error) => doubt = Some(format!("header slot {index} is torn by a crash, or damaged: {error}")),
        }
    }
    // The second header ever written fills the second slot.
    if let Some(index) = blank.filter(|_| best.as_ref().is_some_and(|(header, _)| header.generation > 1)) {
        doubt = Some(format!("header slot {index} was wiped"));
    }
    match best {
        Some((header, slot)) => Ok((header, slot, doubt)),
        None if wiped => Err(damaged(0, "both headers were wiped, and there are frames after them")),
        None if never_started => Err(LogError::Blank { device: name }),
        None => Err(damaged(0, "neither header is whole")),
    }
}

/// Whether `len` bytes from `at` are zero, or beyond the device.
fn is_zero(device: &dyn LogDevice, at: u64, len: u64) -> Result<bool, LogError> {
    let mut bytes = vec![0u8; len.min(device.size().saturating_sub(at)) as usize];
    let read = device.read(at, &mut bytes);
    read.map_err(|error| LogError::Device { device: device.name(), reason: error.to_string() })?;
    Ok(bytes.iter().all(|&byte| byte == 0))
}

impl Recovery {
    /// The log's identity: what the owner record calls `node`.
    pub fn id(&self) -> Uuid {
        self.ring.header().id
    }

    pub fn shard(&self) -> u32 {
        self.ring.header().shard
    }

    /// Whether the log was closed cleanly: its last incarnation may go on.
    pub fn clean(&self) -> bool {
        self.ring.header().clean
    }

    /// How often it was opened for writing.
    pub fn opening(&self) -> u32 {
        self.ring.header().opening
    }

    /// The incarnation of the last opening for writing; 0 if there was none.
    pub fn incarnation(&self) -> u32 {
        self.ring.header().incarnation
    }

    /// The position of the last entry that was trimmed: the first that replay gives continues it.
    pub fn trimmed(&self) -> Position {
        self.ring.header().trimmed
    }

    /// The last position in the log, once replayed.
    pub fn last(&self) -> Option<Position> {
        self.replayed.map(|replayed| replayed.last)
    }

    /// What looks torn by a crash, which is no harm, or damaged, which cannot be told apart: in words, once replayed.
    pub fn doubts(&self) -> impl Iterator<Item = &str> {
        self.header_doubt.iter().chain(&self.end_doubt).map(String::as_str)
    }

    /// Gives every entry from the tail on, in order, to `each`; its error ends the replay and is returned.
    ///
    /// A payload shares its frame's memory (up to 1 MiB and one entry): copy what is kept for long.
    /// Errors: `Damaged`, `Device`, `Newer`.
    pub fn replay<E: From<LogError>>(&mut self, mut each: impl FnMut(Entry) -> Result<(), E>) -> Result<Replayed, E> {
        let header = self.ring.header();
        let mut found = Replayed { end: header.tail, last: header.trimmed, durable: header.end, ..Replayed::default() };
        let mut opening = 0;
        self.frames.clear();
        self.replayed = None;
        self.end_doubt = None;
        let mut ahead = found.end;
        let reason = loop {
            if found.end + READ_AHEAD / 2 >= ahead {
                self.ring.read_ahead(ahead, READ_AHEAD);
                ahead += READ_AHEAD;
            }
            let (frame, body) = match self.frame_at(&header, &found, opening)? {
                Found::Frame(frame, body) => (frame, body),
                Found::End(reason) => break reason,
            };
            let bounds = entries(&body, frame.entries)
                .map_err(|error| damaged(frame.offset, &format!("a frame's entries: {error}")))?;
            for (index, (start, len)) in (0..).zip(bounds) {
                let payload = body.slice(start as usize..(start + len) as usize);
                let place = LogPlace { frame: frame.offset, start, len };
                each(Entry { position: Position(frame.first.0 + index), place, payload })?;
                found.bytes += u64::from(len);
            }
            self.frames.push_back(FramePlace { offset: frame.offset, extent: frame.extent(), last: frame.last() });
            opening = frame.opening;
            found.frames += 1;
            found.entries += u64::from(frame.entries);
            found.end += frame.extent();
            found.last = frame.last();
            found.durable = found.durable.max(frame.durable);
        };
        self.judge_end(&header, found.end, reason)?;
        self.end_doubt = if header.clean { None } else { self.torn(&header, found.end, reason)? };
        self.replayed = Some(found);
        Ok(found)
    }

    /// The frame that continues what was `found`, or why there is none.
    fn frame_at(&self, header: &Header, found: &Replayed, opening: u32) -> Result<Found, LogError> {
        let offset = found.end;
        if header.clean && offset == header.end {
            return Ok(Found::End("the log was closed here"));
        }
        if offset - header.tail == header.ring {
            return Ok(Found::End("the ring is full"));
        }
        let frame = match self.ring.frame_header(offset) {
            Ok(frame) => frame,
            Err(FrameFault::Bad(reason)) => return Ok(Found::End(reason)),
            Err(fault) => return Err(self.ring.fault(offset, fault)),
        };
        if frame.opening > header.opening {
            return Err(damaged(offset, "the log's newer header is lost: a frame is of a later opening"));
        }
        if frame.opening < opening || (offset >= header.end && frame.opening != header.opening) {
            return Ok(Found::End("a frame of an opening that ended before"));
        }
        let end = offset + frame.extent();
        if end - header.tail > header.ring || (offset < header.end && end > header.end) {
            return Ok(Found::End("a frame reaches beyond its place"));
        }
        let previous = found.last;
        let continues = previous == Position::ZERO
            || frame.first.incarnation() > previous.incarnation()
            || frame.first.0.checked_sub(1) == Some(previous.0) && frame.first.incarnation() == previous.incarnation();
        if !continues {
            return Ok(Found::End("a frame does not continue the one before"));
        }
        match self.ring.frame_body(&frame) {
            Ok(body) => Ok(Found::Frame(frame, Bytes::from(body))),
            Err(FrameFault::Bad(reason)) => Ok(Found::End(reason)),
            Err(fault) => Err(self.ring.fault(offset, fault)),
        }
    }

    /// Whether the log may end at `end`: not if that place was ever durable, or a later header is missing.
    fn judge_end(&self, header: &Header, end: u64, reason: &str) -> Result<(), LogError> {
        if mutant::on(mutant::DAMAGE_READ_AS_TORN_TAIL) {
            return Ok(());
        }
        if end < header.end {
            return Err(damaged(end, &format!("{reason}, before the end that the header knows")));
        }
        if header.clean {
            return match self.ring.frame_header(end) {
                Ok(frame) if frame.opening > header.opening => {
                    Err(damaged(end, "the log's newer header is lost: a frame is of a later opening"))
                }
                _ => Ok(()),
            };
        }
        self.scan(header, end, reason)
    }

    /// Whether a frame was begun at `end`, where none is whole: two of its three marks suffice.
    fn torn(&self, header: &Header, end: u64, reason: &str) -> Result<Option<String>, LogError> {
        let mut block = [0u8; FRAME_HEADER];
        self.ring.read(end, &mut block).map_err(|error| self.ring.unreadable(&error))?;
        let begun = match FrameHeader::decode(&block) {
            Ok(frame) => frame.id == header.id && frame.offset == end && frame.opening == header.opening,
            Err(_) => FrameHeader::marks(&block, header.id, end) >= 2,
        };
        let said = || format!("the last frame, at offset {end}, is torn by a crash, or damaged: {reason}");
        Ok(begun.then(said))
    }

    /// Looks for a frame that calls the place `end` durable, as far as there may be frames: through the whole ring if the header
    /// may not be the last.
    fn scan(&self, header: &Header, end: u64, reason: &str) -> Result<(), LogError> {
        let mut chunk = vec![0u8; SCAN_CHUNK.min(header.ring as usize)];
        let all = end + header.ring;
        // Beyond the limit, what would have been written with a later header begins.
        let bound = (header.limit + u64::from(BODY_SIZE_MAX).min(header.ring / 16)).clamp(end, all);
        let mut until = if self.header_doubt.is_some() || end > header.limit { all } else { bound };
        let mut at = end;
        while at < until {
            let len = chunk.len().min((until - at) as usize);
            self.ring.read(at, &mut chunk[..len]).map_err(|error| self.ring.unreadable(&error))?;
            for (block, place) in chunk[..len].chunks(BLOCK as usize).zip((at..).step_by(BLOCK as usize)) {
                let Ok(frame) = FrameHeader::decode(block) else { continue };
                let here = frame.id == header.id && frame.offset % header.ring == place % header.ring;
                if !here || frame.offset <= end {
                    continue;
                }
                if frame.durable > end {
                    let later = frame.offset;
                    return Err(damaged(end, &format!("{reason}, but the frame at {later} knows it was durable")));
                }
                if frame.opening > header.opening {
                    return Err(damaged(frame.offset, "the log's newer header is lost: a frame is of a later opening"));
                }
                if frame.opening == header.opening && frame.offset + frame.extent() > header.limit {
                    // A later header allowed it.
                    until = all;
                }
            }
            at += len as u64;
        }
        Ok(())
    }

    /// Starts the log with default [`LogOptions`]; see [`Recovery::start_with`].
    pub fn start(self, incarnation: u32, first_sequence: u64, wake: Wake) -> Result<Arc<Log>, LogError> {
        self.start_with(incarnation, first_sequence, wake, LogOptions::default())
    }

    /// Makes the log ready to append; its first entry gets (`incarnation`, `first_sequence`). Replays first, if that
    /// was not done.
    ///
    /// Writes again what was read back but not known durable, then the header with the next opening count, each
    /// flushed. The incarnation must be at least 1 and, after anything but a clean close, higher than every one
    /// before; within one incarnation the first entry continues the last.
    pub fn start_with(
        mut self,
        incarnation: u32,
        first_sequence: u64,
        wake: Wake,
        options: LogOptions,
    ) -> Result<Arc<Log>, LogError> {
        let found = match self.replayed {
            Some(found) => found,
            None => self.replay(|_| Ok::<(), LogError>(()))?,
        };
        let next = self.first_position(incarnation, first_sequence, found.last)?;
        self.settle(&found)?;
        let raised = u32::from(!mutant::on(mutant::NONCE_REUSED));
        let opening = self.ring.header().opening.checked_add(raised);
        let opening =
            opening.ok_or_else(|| LogError::Refused("the log's openings are used up; make a new one".into()))?;
        self.ring.update_header(|header| {
            header.opening = opening;
            header.incarnation = incarnation;
            header.clean = false;
            header.end = found.end;
            header.last = found.last;
            // What was written beyond it does not count any more.
            header.limit = found.end;
        })?;
        let tail = self.ring.header().tail;
        let beginning = Beginning { frames: self.frames, tail, end: found.end, last: found.last, next };
        Ok(Log::begin(self.ring, beginning, options, wake))
    }

    fn first_position(&self, incarnation: u32, first_sequence: u64, last: Position) -> Result<Position, LogError> {
        let header = self.ring.header();
        let refused = |reason: &str| Err(LogError::Refused(format!("the log cannot start: {reason}")));
        if incarnation == 0 || incarnation > Position::INCARNATION_MAX || first_sequence >= Position::SEQUENCE_MAX {
            return refused("an incarnation or sequence is out of range");
        }
        let known = header.incarnation.max(last.incarnation());
        if incarnation < known || (incarnation == known && !header.clean && !mutant::on(mutant::POSITION_REUSED)) {
            return refused("its incarnation is not new, and it was not closed cleanly");
        }
        let first = Position::new(incarnation, first_sequence);
        if incarnation == last.incarnation() && first != last.next() {
            return refused("its first entry does not continue the last");
        }
        Ok(first)
    }

    /// Makes durable what was read back but not known to be.
    fn settle(&self, found: &Replayed) -> Result<(), LogError> {
        let mut sealed = Vec::new();
        for frame in self.frames.iter().filter(|frame| frame.offset >= found.durable) {
            sealed.resize(frame.extent as usize, 0);
            self.ring.read(frame.offset, &mut sealed).map_err(|error| self.ring.unreadable(&error))?;
            let written = self.ring.write(frame.offset, &sealed);
            written.unwrap_or_else(|error| self.ring.condemn(&error.to_string()));
        }
        // The reason of a failure is the verdict.
        let _ = self.ring.flush();
        self.ring.condemned().map_or(Ok(()), Err)
    }
}
