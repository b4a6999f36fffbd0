//! Giving room back, and closing.
//!
//! - The header with the new tail is durable before the room before it is used again.
//! - Only whole, durable frames go.
//! - A log closed cleanly says so only after everything in it is durable.

use std::sync::Arc;

use tarn_base::ids::Position;

use crate::contract::LogError;
use crate::format::Header;
use crate::log::Log;

impl Log {
    /// Gives back the frames whose every entry is at or before `upto`. Writes and flushes the header; blocks for that.
    pub fn trim(&self, upto: Position) -> Result<(), LogError> {
        let ((tail, trimmed), durable_end, durable) = {
            let state = self.state.lock();
            let mut reached = None;
            for frame in &state.frames {
                let end = frame.offset + frame.extent;
                if frame.last > upto || end > state.durable_end {
                    break;
                }
                reached = Some((end, frame.last));
            }
            match reached {
                Some(reached) => (reached, state.durable_end, self.durable()),
                None => return Ok(()),
            }
        };
        // Two trims at once are put in order by the header's lock; an older tail never replaces a newer one.
        self.update_header(|header| {
            if tail > header.tail {
                header.tail = tail;
                header.trimmed = trimmed;
            }
            // What is durable by now can no longer end the log without being damage.
            if durable_end > header.end {
                header.end = durable_end;
                header.last = durable;
            }
        })?;
        let mut state = self.state.lock();
        while state.frames.front().is_some_and(|frame| frame.offset < tail) {
            state.frames.pop_front();
        }
        state.tail = state.tail.max(tail);
        self.note_used(&state);
        Ok(())
    }

    /// Flushes everything and marks the log closed cleanly at `position`, which must be the last one given out.
    ///
    /// The caller has stopped its own flushing (`Busy` if not). Afterwards the log takes nothing more.
    pub fn close_clean(self: &Arc<Log>, position: Position) -> Result<(), LogError> {
        {
            let mut state = self.state.lock();
            if position != self.appended() {
                return Err(self.refused("it is not closed at its last position"));
            }
            if let Some(poisoned) = self.poisoned() {
                return Err(poisoned);
            }
            if state.flush_running {
                return Err(LogError::Busy);
            }
            state.closed = true;
            state.wanted = position;
        }
        self.flush_now();
        if let Some(poisoned) = self.poisoned() {
            return Err(poisoned);
        }
        let end = self.state.lock().durable_end;
        self.update_header(|header| {
            header.clean = true;
            header.end = end;
            header.last = position;
        })
    }

    fn update_header(&self, change: impl FnOnce(&mut Header)) -> Result<(), LogError> {
        self.ring.update_header(change).inspect_err(|_| self.tell_all())
    }
}
