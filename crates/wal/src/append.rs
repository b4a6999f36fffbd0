//! Appending: one copy into the open frame, under a short lock; of what is large, none.
//!
//! - Positions are given out in the order entries lie in the log.
//! - An entry that is refused takes no position and leaves no bytes.

use std::sync::atomic::Ordering;

use bytes::Bytes;
use tarn_base::ids::Position;
use tarn_base::memory::Memory;

use crate::contract::{Appended, LogError, LogPlace};
use crate::format::ENTRY_HEADER;
use crate::log::{Log, State};
use crate::pool::Pool;

/// The longest payload: one operation's 4 MiB of keys or data (engine rule 8) and 64 KiB for what describes it.
pub const ENTRY_SIZE_MAX: usize = (4 << 20) + (64 << 10);

/// Memory is kept for what lies in it if not more than this part of it is something else.
const WASTE: usize = 4;

impl Log {
    /// Appends the concatenation of `parts` as one entry.
    ///
    /// It is durable once [`Log::durable`] has reached the position. Errors: [`LogError::Full`] (trim),
    /// [`LogError::Busy`] (wait for a flush), `Poisoned`, `Refused` (too long, or closed).
    pub fn append(&self, parts: &[&[u8]]) -> Result<Appended, LogError> {
        let len = parts.iter().map(|part| part.len()).sum();
        self.append_with(len, |_, out| parts.iter().for_each(|part| out.extend_from_slice(part)))
    }

    /// Appends one entry of at most `max` bytes that `encode` writes, knowing its own position.
    ///
    /// `encode` only appends to the buffer; it runs under the log's lock and must be quick. It is not called when
    /// there is no room.
    pub fn append_with(&self, max: usize, encode: impl FnOnce(Position, &mut Vec<u8>)) -> Result<Appended, LogError> {
        self.append_within(max, self.limits(), encode, Vec::new())
    }

    /// As [`Log::append_with`], and `data` follows what `encode` writes. It is not copied: it stays where it lies until it is on
    /// the medium, in a frame of its own.
    pub fn append_before(
        &self,
        max: usize,
        encode: impl FnOnce(Position, &mut Vec<u8>),
        data: Vec<Bytes>,
    ) -> Result<Appended, LogError> {
        self.append_within(max, self.limits(), encode, data)
    }

    /// Bytes of the ring, and of memory, that all but the reserve's users keep to.
    fn limits(&self) -> (u64, usize) {
        (self.capacity() - self.reserve(), self.options.buffered_max)
    }

    /// As [`Log::append_with`], and may use the reserve: for what makes room - session images, a checkpoint's notes.
    /// Never [`LogError::Busy`].
    pub fn append_reserved(
        &self,
        max: usize,
        encode: impl FnOnce(Position, &mut Vec<u8>),
    ) -> Result<Appended, LogError> {
        self.append_within(max, (self.capacity(), usize::MAX), encode, Vec::new())
    }

    fn append_within(
        &self,
        max: usize,
        limits: (u64, usize),
        encode: impl FnOnce(Position, &mut Vec<u8>),
        data: Vec<Bytes>,
    ) -> Result<Appended, LogError> {
        let data_len: usize = data.iter().map(|part| part.len()).sum();
        if max + data_len > ENTRY_SIZE_MAX {
            return Err(self.refused("an entry is longer than an entry may be"));
        }
        let alone = data_len > 0;
        let mut state = self.state.lock();
        self.make_room(&mut state, max + data_len, alone, limits)?;
        if max >= Memory::LEAST && state.open.body.capacity() < ENTRY_HEADER + max && state.open.entries == 0 {
            let body = self.pool.memory.take(ENTRY_HEADER + max);
            self.pool.memory.give(std::mem::replace(&mut state.open.body, body));
        }
        let position = Position(state.open.first.0 + u64::from(state.open.entries));
        let pushed = state.open.push(max, |out| encode(position, out), data);
        let (start, len) = pushed.map_err(|_| self.refused("an entry is longer than was said"))?;
        state.buffered += ENTRY_HEADER + len as usize;
        let place = LogPlace { frame: state.open.offset, start, len };
        self.appended.store(position.0, Ordering::Release);
        self.note_used(&state);
        if alone || state.open.len >= self.options.frame_soft {
            state.close_frame();
        }
        let wake = !state.flush_running && state.buffered >= self.options.write_soft;
        drop(state);
        if wake {
            (self.wake)();
        }
        Ok(Appended { position, place })
    }

    /// `bytes` in memory that is counted as [`Log::held`] and used again: where they lie, if that is [`Log::memory`] and they
    /// take most of it, or a copy. Nothing is appended.
    pub fn hold(&self, bytes: &Bytes) -> Bytes {
        let Pool { memory, .. } = &*self.pool;
        let fills = |size: usize| bytes.len() >= size - size / WASTE;
        if let Some(size) = memory.lent(bytes).filter(|size| fills(*size)) {
            return self.pool.keep(bytes.clone(), size);
        }
        let mut body = memory.take(bytes.len());
        if !fills(body.capacity()) {
            // What would count for much more than it is has memory of its own.
            memory.give(std::mem::replace(&mut body, Vec::with_capacity(bytes.len())));
        }
        body.extend_from_slice(bytes);
        let size = body.capacity();
        self.pool.keep(memory.lend(body), size)
    }

    /// Sees to it that the open frame can take `len` more bytes, `alone` or not, within `limits` of the ring and of memory.
    fn make_room(&self, state: &mut State, len: usize, alone: bool, limits: (u64, usize)) -> Result<(), LogError> {
        let (ring_max, buffered_max) = limits;
        if state.closed {
            return Err(self.refused("it is closed"));
        }
        // The verdict is read under the state's lock: nothing is taken in after the waiters were told.
        if let Some(poisoned) = self.ring.condemned() {
            return Err(poisoned);
        }
        if state.open.first.sequence() + u64::from(state.open.entries) >= Position::SEQUENCE_MAX {
            return Err(self.refused("its sequence numbers are used up; start again"));
        }
        if state.buffered + ENTRY_HEADER + len > buffered_max {
            return Err(LogError::Busy);
        }
        // Closing a frame early costs what its rounding costs, so room is judged for the case at hand.
        let close = state.open.entries > 0 && (alone || state.open.len + ENTRY_HEADER + len > self.options.frame_soft);
        let end = match close {
            true => state.end() + crate::format::frame_extent(ENTRY_HEADER + len),
            false => state.open.offset + state.open.extent_with(len),
        };
        if end - state.tail > ring_max {
            return Err(LogError::Full);
        }
        if close {
            state.close_frame();
        }
        Ok(())
    }
}
