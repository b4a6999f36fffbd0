//! Reading an entry back: from memory while its frame is not durable yet, else from the device, verified.
//!
//! - A large frame is read at once into memory that is used again: a stream that is read back needs no memory of its own.

use bytes::Bytes;

use crate::contract::{LogError, LogPlace};
use crate::format::FRAME_HEADER;
use crate::frame::Frame;
use crate::log::{Log, State};
use crate::ring::FrameFault;

/// Frames from this size on are read at once, bytes: they hold little that is not wanted together.
const LARGE: usize = 1 << 20;

impl Log {
    /// The payload at `place`, as [`Log::append`] or recovery gave it. Blocks for the device, if it must read.
    ///
    /// Errors: `Refused` if it was trimmed, `Damaged`, `Device`.
    pub fn read(&self, place: LogPlace) -> Result<Bytes, LogError> {
        let (in_memory, extent) = {
            let state = self.state.lock();
            if place.frame < state.tail {
                return Err(self.refused("what is read back was trimmed"));
            }
            if place.frame == state.open.offset {
                return self.part_of(&state.open, place);
            }
            (unflushed(&state, place.frame), extent_of(&state, place.frame))
        };
        if let Some(frame) = in_memory {
            return self.part_of(&frame, place);
        }
        let body = match self.cache.get(place.frame) {
            Some(body) => body,
            None => self.fetch(place.frame, extent)?,
        };
        match part(&body, place) {
            Some(payload) => Ok(body.slice_ref(payload)),
            None => Err(self.missing(place)),
        }
    }

    fn part_of(&self, frame: &Frame, place: LogPlace) -> Result<Bytes, LogError> {
        frame.copy(place.start as usize, place.len as usize).ok_or_else(|| self.missing(place))
    }

    fn fetch(&self, offset: u64, extent: usize) -> Result<Bytes, LogError> {
        let read = match extent >= LARGE {
            true => self.fetch_large(offset, extent),
            false => {
                let body = self.ring.frame_header(offset).and_then(|frame| self.ring.frame_body(&frame));
                body.map(Bytes::from)
            }
        };
        match read {
            Ok(body) => {
                self.cache.put(offset, body.clone());
                Ok(body)
            }
            // Trimmed while it was read: the room may hold another frame by now.
            Err(_) if offset < self.state.lock().tail => Err(self.refused("what is read back was trimmed")),
            Err(fault) => Err(self.ring.fault(offset, fault)),
        }
    }

    fn fetch_large(&self, offset: u64, extent: usize) -> Result<Bytes, FrameFault> {
        let mut memory = self.reading.take();
        let len = self.ring.whole_frame(offset, extent, &mut memory)?;
        Ok(self.reading.lend(memory, FRAME_HEADER..FRAME_HEADER + len))
    }

    fn missing(&self, place: LogPlace) -> LogError {
        self.refused(&format!("no entry at {place:?}"))
    }
}

fn unflushed(state: &State, offset: u64) -> Option<std::sync::Arc<Frame>> {
    state.flushing.iter().chain(&state.pending).find(|frame| frame.offset == offset).cloned()
}

/// Bytes that the closed frame at `offset` takes; 0 if there is none.
fn extent_of(state: &State, offset: u64) -> usize {
    let at = state.frames.partition_point(|frame| frame.offset < offset);
    state.frames.get(at).filter(|frame| frame.offset == offset).map_or(0, |frame| frame.extent as usize)
}

fn part(body: &[u8], place: LogPlace) -> Option<&[u8]> {
    let start = place.start as usize;
    body.get(start..start.checked_add(place.len as usize)?)
}
