//! Group commit: whoever waits shares a flush; the caller's thread drives it.
//!
//! - One flush at a time; it takes everything appended so far. What comes meanwhile waits for the next, unless nobody waits.
//! - `begin` and `finish` hold the state's lock briefly, and so does `run` after each write.
//! - Positions become durable in order, and only after a flush of the device that followed their writes succeeded.
//! - The first error poisons the log for ever; a job that is dropped unfinished counts as one.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc;
use std::task::Waker;

use parking_lot::MutexGuard;
use tarn_base::ids::Position;
use tarn_base::mutant;

use crate::aligned::Aligned;
use crate::frame::Frame;
use crate::log::{Log, State};

/// Bytes of one write, unless one frame is longer: two WRITEs of 1 MiB and what describes them. Enough for a disk that works on
/// parts of a write at once, and little enough to stay in the processor's cache until it is on its way.
const WRITE_MAX: usize = (2 << 20) + (64 << 10);

/// Bytes that a flush takes in after it began: what it holds stays in memory until it is over.
const MORE_MAX: usize = 16 << 20;

/// Frames kept to be used again: as many small ones as a flush often takes, few large ones.
const SPARES_SMALL: usize = 64;
const SPARES_LARGE: usize = 4;

/// Has other threads do what is handed to them, two things at once; lets go of it unrun if there are none.
pub type Beside<'a> = dyn Fn(Box<dyn FnOnce() + Send>) + 'a;

/// Frames on their way to the medium.
#[must_use = "a flush that is not finished poisons the log"]
pub struct FlushJob {
    log: Arc<Log>,
    frames: Vec<Arc<Frame>>,
    /// Everything before this offset is durable: each frame written says so.
    durable_end: u64,
    /// How many of the frames are on their way or written.
    done: usize,
    finished: bool,
}

impl FlushJob {
    /// Seals, writes and flushes; blocks as long as the device does.
    pub fn run(&mut self) -> io::Result<()> {
        self.run_with(None)
    }

    /// As [`FlushJob::run`], and of much seals the next part while two are written: the disk and the processor take about as long,
    /// and whoever is woken by one that is done does not hold the next one up. While nobody waits for it to end it takes what
    /// comes meanwhile, so that neither of them stands still between two flushes.
    pub fn run_beside(&mut self, beside: &Beside<'_>) -> io::Result<()> {
        self.run_with(Some(beside))
    }

    fn run_with(&mut self, beside: Option<&Beside<'_>>) -> io::Result<()> {
        self.reserve()?;
        let log = self.log.clone();
        let mut scratch = log.scratch.lock();
        let much = together(&self.frames) < self.frames.len();
        match beside.filter(|_| much) {
            Some(beside) => self.write_beside(&mut scratch, beside)?,
            None => self.write_in_turn(&mut scratch[0])?,
        }
        if mutant::on(mutant::LOG_FLUSH_OMITTED) {
            return Ok(());
        }
        log.ring.flush()
    }

    /// Sees that a header says how far frames reach, before they do.
    fn reserve(&self) -> io::Result<()> {
        self.frames.last().map_or(Ok(()), |frame| self.log.ring.reserve(frame.offset + frame.extent()))
    }

    /// Seals one part, writes it, and so on.
    fn write_in_turn(&mut self, scratch: &mut Aligned) -> io::Result<()> {
        while let Some(part) = self.part() {
            let count = part.len();
            self.log.write_part(part, self.seal(part, scratch))?;
            self.done += count;
        }
        Ok(())
    }

    /// Seals here and has written there.
    fn write_beside(&mut self, scratch: &mut [Aligned; 3], beside: &Beside<'_>) -> io::Result<()> {
        let mut idle: Vec<Aligned> = scratch.iter_mut().map(std::mem::take).collect();
        let mut writes = VecDeque::new();
        let mut result = Ok(());
        loop {
            let Some(part) = self.part() else {
                if !self.log.take_more(&mut self.frames) {
                    break;
                }
                if let Err(error) = self.reserve() {
                    result = Err(error);
                    break;
                }
                continue;
            };
            let memory = match idle.pop() {
                Some(memory) => Ok(memory),
                None => writes.pop_front().map_or_else(|| Ok(Aligned::default()), outcome),
            };
            let Ok(mut memory) = memory.map_err(|error| result = Err(error)) else { break };
            let len = self.seal(part, &mut memory).len();
            let (log, part) = (self.log.clone(), part.to_vec());
            self.done += part.len();
            let (sender, written) = mpsc::channel();
            beside(Box::new(move || {
                let result = log.write_part(&part, memory.bytes(len));
                // Before anybody hears of it: he may close the log, or use the frames again.
                drop((log, part));
                // Nobody waits for it after an error.
                let _ = sender.send(result.map(|()| memory));
            }));
            writes.push_back(written);
        }
        for write in writes {
            match outcome(write) {
                Ok(memory) => idle.push(memory),
                Err(error) => result = result.and(Err(error)),
            }
        }
        let mut kept = idle.into_iter();
        *scratch = std::array::from_fn(|_| kept.next().unwrap_or_default());
        result
    }

    /// What goes to the device in the next write.
    fn part(&self) -> Option<&[Arc<Frame>]> {
        let rest = &self.frames[self.done..];
        Some(&rest[..together(rest)]).filter(|part| !part.is_empty())
    }

    /// The frames as they go to the device: they follow each other in the ring without a gap.
    fn seal<'a>(&self, frames: &[Arc<Frame>], scratch: &'a mut Aligned) -> &'a [u8] {
        let log = &self.log;
        let sealed = scratch.room(frames.iter().map(|frame| frame.extent() as usize).sum());
        let mut rest = &mut *sealed;
        for frame in frames {
            let (out, after) = rest.split_at_mut(frame.extent() as usize);
            frame.seal(&log.ring.keys, log.id, log.shard, log.opening, self.durable_end, out);
            rest = after;
        }
        sealed
    }

    /// The last position this makes durable.
    pub fn last(&self) -> Position {
        self.frames.last().map_or(Position::ZERO, |frame| frame.last())
    }
}

/// What came of a write that another thread was handed: the memory it was given.
fn outcome(write: mpsc::Receiver<io::Result<Aligned>>) -> io::Result<Aligned> {
    write.recv().unwrap_or_else(|_| Err(io::Error::other("the thread that writes is gone")))
}

/// How many of `frames` go to the device in one write: at least one, if there is one.
fn together(frames: &[Arc<Frame>]) -> usize {
    let mut len = 0;
    let fits = |frame: &&Arc<Frame>| {
        len += frame.extent() as usize;
        len <= WRITE_MAX
    };
    frames.iter().take_while(fits).count().max(frames.len().min(1))
}

impl Drop for FlushJob {
    fn drop(&mut self) {
        if !self.finished {
            self.log.poison("a flush was abandoned");
        }
    }
}

impl Log {
    /// Takes everything that waits, if somebody wants it or a frame is full, and no flush is running.
    pub fn begin_flush(self: &Arc<Log>) -> Option<FlushJob> {
        let mut state = self.state.lock();
        if state.flush_running
            || !state.flush_due(self.durable(), self.options.write_soft)
            || self.ring.condemned().is_some()
        {
            return None;
        }
        state.close_frame();
        let mut frames = state.spare_lists.pop().unwrap_or_default();
        let state = &mut *state;
        frames.extend(state.pending.iter().cloned());
        state.flushing.extend(state.pending.drain(..));
        state.flush_running = true;
        Some(FlushJob { log: self.clone(), frames, durable_end: state.durable_end, done: 0, finished: false })
    }

    /// Adds to the `frames` of the running flush what has come meanwhile, if that is much and nobody waits for the flush to end.
    fn take_more(&self, frames: &mut Vec<Arc<Frame>>) -> bool {
        let mut state = self.state.lock();
        let state = &mut *state;
        let len = |frames: &mut dyn Iterator<Item = &Arc<Frame>>| frames.map(|frame| frame.len).sum::<usize>();
        let more = len(&mut state.pending.iter());
        if more < self.options.write_soft || len(&mut frames.iter()) + more > MORE_MAX || !state.waiters.is_empty() {
            return false;
        }
        frames.extend(state.pending.iter().cloned());
        state.flushing.extend(state.pending.drain(..));
        true
    }

    /// Publishes what `job` made durable, or poisons the log; wakes all whose wait is over. Then `begin_flush` again.
    pub fn finish_flush(&self, mut job: FlushJob, result: io::Result<()>) {
        job.finished = true;
        if let Err(error) = result {
            self.poison(&error.to_string());
            return;
        }
        if self.ring.condemned().is_some() {
            // Another flush of the same device failed: which writes it lost is not known.
            self.tell_all();
            return;
        }
        let last = job.last();
        let mut frames = std::mem::take(&mut job.frames);
        frames.clear();
        let mut state = self.state.lock();
        let state_ref = &mut *state;
        for mut frame in state_ref.flushing.drain(..) {
            state_ref.durable_end = frame.offset + frame.extent();
            // A frame somebody is reading back is left to him; an outsized one is not worth keeping.
            let most = Arc::get_mut(&mut frame).map_or(0, |frame| {
                frame.data.clear();
                self.spares(frame.body.capacity())
            });
            if state_ref.spare.len() < most {
                state_ref.spare.push(frame);
            } else if let Some(frame) = Arc::into_inner(frame) {
                self.pool.memory.give(frame.body);
            }
        }
        state_ref.flush_running = false;
        state_ref.spare_lists.push(frames);
        self.durable.store(last.0, Ordering::Release);
        self.wake_served(state);
    }

    /// Writes `part` as it was sealed, and lets in who waited for room.
    fn write_part(&self, part: &[Arc<Frame>], sealed: &[u8]) -> io::Result<()> {
        self.ring.write(part[0].offset, sealed)?;
        let mut state = self.state.lock();
        state.buffered -= part.iter().map(|frame| frame.len).sum::<usize>();
        self.wake_served(state);
        Ok(())
    }

    /// Wakes those whose wait is over.
    fn wake_served(&self, mut state: MutexGuard<'_, State>) {
        let durable = self.durable();
        // Taken along, so that nobody who is woken waits for this.
        let mut ready = std::mem::take(&mut *self.ready.lock());
        ready.extend(state.waiters.extract_if(.., |waiter| waiter.position <= durable).map(|waiter| waiter.waker));
        state.let_in(&mut ready);
        drop(state);
        ready.drain(..).for_each(Waker::wake);
        *self.ready.lock() = ready;
    }

    /// How many frames are kept to be used again before one of `capacity` bytes joins them.
    fn spares(&self, capacity: usize) -> usize {
        match capacity {
            small if small <= 2 * self.options.frame_soft => SPARES_SMALL,
            large if large <= 2 * self.options.write_soft => SPARES_LARGE,
            _ => 0,
        }
    }

    /// Asks for everything appended so far to be flushed, without waiting for it.
    pub fn request_flush(&self) {
        self.want(self.appended());
    }

    /// Drives flushes on this thread until nothing is due; for callers without a log thread, and tests.
    pub fn flush_now(self: &Arc<Log>) {
        while let Some(mut job) = self.begin_flush() {
            let result = job.run();
            self.finish_flush(job, result);
        }
    }

    /// Notes that `position` is wanted and calls the hook, if a flush has to be begun for it.
    pub(crate) fn want(&self, position: Position) {
        let mut state = self.state.lock();
        state.wanted = state.wanted.max(position);
        let wake = !state.flush_running && state.flush_due(self.durable(), self.options.write_soft);
        drop(state);
        if wake {
            (self.wake)();
        }
    }
}
