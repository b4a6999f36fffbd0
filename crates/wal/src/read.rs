//! Reading an entry back: from memory while its frame is not durable yet, else from the device, verified.

use bytes::Bytes;

use crate::contract::{LogError, LogPlace};
use crate::frame::Frame;
use crate::log::{Log, State};

impl Log {
    /// The payload at `place`, as [`Log::append`] or recovery gave it. Blocks for the device, if it must read.
    ///
    /// Errors: `Refused` if it was trimmed, `Damaged`, `Device`.
    pub fn read(&self, place: LogPlace) -> Result<Bytes, LogError> {
        let in_memory = {
            let state = self.state.lock();
            if place.frame < state.tail {
                return Err(self.refused("what is read back was trimmed"));
            }
            if place.frame == state.open.offset {
                let open = state.open.body.get(..state.open.len).unwrap_or_default();
                return part(open, place).map(Bytes::copy_from_slice).ok_or_else(|| self.missing(place));
            }
            unflushed(&state, place.frame)
        };
        if let Some(frame) = in_memory {
            return part(&frame.body, place).map(Bytes::copy_from_slice).ok_or_else(|| self.missing(place));
        }
        let body = match self.cache.get(place.frame) {
            Some(body) => body,
            None => self.fetch(place.frame)?,
        };
        match part(&body, place) {
            Some(payload) => Ok(body.slice_ref(payload)),
            None => Err(self.missing(place)),
        }
    }

    fn fetch(&self, offset: u64) -> Result<Bytes, LogError> {
        let read = self.ring.frame_header(offset).and_then(|frame| self.ring.frame_body(&frame));
        match read {
            Ok(body) => {
                let body = Bytes::from(body);
                self.cache.put(offset, body.clone());
                Ok(body)
            }
            // Trimmed while it was read: the room may hold another frame by now.
            Err(_) if offset < self.state.lock().tail => Err(self.refused("what is read back was trimmed")),
            Err(fault) => Err(self.ring.fault(offset, fault)),
        }
    }

    fn missing(&self, place: LogPlace) -> LogError {
        self.refused(&format!("no entry at {place:?}"))
    }
}

fn unflushed(state: &State, offset: u64) -> Option<std::sync::Arc<Frame>> {
    state.flushing.iter().chain(&state.pending).find(|frame| frame.offset == offset).cloned()
}

fn part(body: &[u8], place: LogPlace) -> Option<&[u8]> {
    let start = place.start as usize;
    body.get(start..start.checked_add(place.len as usize)?)
}
