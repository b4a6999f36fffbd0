//! The log at work: its state, shared by the files that append, flush, wait, trim and read.
//!
//! - `tail <= durable end <= end of pending frames <= end of the open frame <= tail + ring`.
//! - Frames leave memory only once durable, or never, when the log is poisoned.
//! - The state's lock is held for copying one entry at most, or for looking at those who wait; never during IO, never while
//!   waking.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Waker;

use parking_lot::Mutex;
use tarn_base::ids::{Position, Uuid};
use tarn_base::memory::Memory;

use crate::aligned::Aligned;
use crate::cache::{FrameCache, Reading};
use crate::contract::LogError;
use crate::frame::Frame;
use crate::pool::Pool;
use crate::ring::Ring;

/// Called when a flush is wanted and none is running; must not block and must not call the log.
pub type Wake = Arc<dyn Fn() + Send + Sync>;

/// Sizes, in bytes.
#[derive(Clone, Copy, Debug)]
pub struct LogOptions {
    /// A frame that has reached this is closed.
    ///
    /// 32 KiB: large enough that rounding to blocks costs little, small enough that an entry of some KiB is read back at
    /// the cost of a few.
    pub frame_soft: usize,
    /// So much is written without anybody waiting for it.
    ///
    /// 1 MiB: a write and a flush of so much cost little more than of less.
    pub write_soft: usize,
    /// No more than this waits in memory to be written, besides what of a running flush is written already; above it appending
    /// answers [`LogError::Busy`].
    pub buffered_max: usize,
    /// The part of the ring, one in so many, that only [`Log::append_reserved`] may use.
    pub reserve_share: u64,
}

impl Default for LogOptions {
    fn default() -> LogOptions {
        LogOptions { frame_soft: 32 << 10, write_soft: 1 << 20, buffered_max: 64 << 20, reserve_share: 16 }
    }
}

/// A frame that lies in the ring, or soon will.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FramePlace {
    pub offset: u64,
    pub extent: u64,
    pub last: Position,
}

pub(crate) struct Waiter {
    pub id: u64,
    pub position: Position,
    pub waker: Waker,
}

/// Somebody who waits until `bytes` more are no more than `most` with those that wait to be written.
pub(crate) struct RoomWaiter {
    pub id: u64,
    pub bytes: usize,
    pub most: usize,
    /// It stands before all who did not ask for that.
    pub first: bool,
    pub waker: Waker,
}

pub(crate) struct State {
    /// The frame that takes entries. Nobody else holds it.
    pub open: Frame,
    /// Closed, not yet given to a flush; in order.
    pub pending: VecDeque<Arc<Frame>>,
    /// With the flush that is running; in order, all before `pending`.
    pub flushing: Vec<Arc<Frame>>,
    pub flush_running: bool,
    /// Somebody waits for this position.
    pub wanted: Position,
    /// Plaintext bytes in `open`, `pending` and `flushing` that are not written yet.
    pub buffered: usize,
    /// Closed frames from the tail on, durable or not.
    pub frames: VecDeque<FramePlace>,
    pub tail: u64,
    pub durable_end: u64,
    pub closed: bool,
    pub waiters: Vec<Waiter>,
    /// In the order in which they are let in; who has left was let in.
    pub rooms: VecDeque<RoomWaiter>,
    pub next_waiter: u64,
    /// Buffers to use again.
    pub spare: Vec<Arc<Frame>>,
    pub spare_lists: Vec<Vec<Arc<Frame>>>,
}

impl State {
    /// Where the ring is used up to, were the open frame closed now.
    pub fn end(&self) -> u64 {
        self.open.offset + self.open.extent()
    }

    /// Closes the open frame, if it holds anything, and opens the next.
    pub fn close_frame(&mut self) {
        if self.open.entries == 0 {
            return;
        }
        let (offset, extent, last) = (self.open.offset, self.open.extent(), self.open.last());
        self.frames.push_back(FramePlace { offset, extent, last });
        let mut closed = self.spare.pop().unwrap_or_default();
        match Arc::get_mut(&mut closed) {
            Some(frame) => std::mem::swap(frame, &mut self.open),
            None => closed = Arc::new(std::mem::take(&mut self.open)),
        }
        self.open.begin(offset + extent, last.next());
        self.pending.push_back(closed);
    }

    /// Whether `bytes` more may come: no more than `most` with those that wait to be written, or nothing waits.
    pub fn has_room(&self, bytes: usize, most: usize) -> bool {
        self.buffered == 0 || self.buffered + bytes <= most
    }

    /// Lets in as many of the first who wait for room as there is room for; `ready` is theirs to be woken with. What they bring
    /// counts once it is appended: those let in a moment ago are not in the sum.
    pub fn let_in(&mut self, ready: &mut Vec<Waker>) {
        let mut coming = 0;
        while let Some(first) = self.rooms.front()
            && (self.buffered + coming == 0 || self.buffered + coming + first.bytes <= first.most)
        {
            coming += first.bytes;
            ready.extend(self.rooms.pop_front().map(|first| first.waker));
        }
    }

    /// Whether a flush, while none is running, has something to do that somebody wants, or `write_soft` bytes.
    pub fn flush_due(&self, durable: Position, write_soft: usize) -> bool {
        let some = !self.pending.is_empty() || self.open.entries > 0;
        self.buffered >= write_soft || (self.wanted > durable && some)
    }
}

/// The durable write log of one shard. Shared by everybody; see the crate's contract.
pub struct Log {
    pub(crate) ring: Ring,
    pub(crate) id: Uuid,
    pub(crate) shard: u32,
    pub(crate) opening: u32,
    pub(crate) options: LogOptions,
    pub(crate) state: Mutex<State>,
    pub(crate) durable: AtomicU64,
    pub(crate) appended: AtomicU64,
    /// As the state has it: end less tail.
    pub(crate) used: AtomicU64,
    pub(crate) wake: Wake,
    /// The sealed form of a few frames, and of the next ones; only a running flush uses it.
    pub(crate) scratch: Mutex<[Aligned; 3]>,
    /// Those whose wait is over, on their way to being woken; only a running flush uses it.
    pub(crate) ready: Mutex<Vec<Waker>>,
    pub(crate) cache: FrameCache,
    pub(crate) reading: Reading,
    pub(crate) pool: Arc<Pool>,
}

/// What recovery knows and a log begins with.
pub(crate) struct Beginning {
    pub frames: VecDeque<FramePlace>,
    pub tail: u64,
    pub end: u64,
    /// The last position in the log, or the last that was ever trimmed from it.
    pub last: Position,
    /// The position of the next entry.
    pub next: Position,
}

impl Log {
    pub(crate) fn begin(ring: Ring, beginning: Beginning, options: LogOptions, wake: Wake) -> Arc<Log> {
        let header = ring.header();
        let mut open = Frame::default();
        open.begin(beginning.end, beginning.next);
        let state = State {
            open,
            pending: VecDeque::new(),
            flushing: Vec::new(),
            flush_running: false,
            wanted: beginning.last,
            buffered: 0,
            frames: beginning.frames,
            tail: beginning.tail,
            durable_end: beginning.end,
            closed: false,
            waiters: Vec::new(),
            rooms: VecDeque::new(),
            next_waiter: 0,
            spare: Vec::new(),
            spare_lists: Vec::new(),
        };
        Arc::new(Log {
            ring,
            id: header.id,
            shard: header.shard,
            opening: header.opening,
            options,
            state: Mutex::new(state),
            durable: AtomicU64::new(beginning.last.0),
            appended: AtomicU64::new(beginning.last.0),
            used: AtomicU64::new(beginning.end - beginning.tail),
            wake,
            scratch: Mutex::new([Aligned::default(), Aligned::default(), Aligned::default()]),
            ready: Mutex::new(Vec::new()),
            cache: FrameCache::default(),
            reading: Reading::default(),
            pool: Arc::default(),
        })
    }

    /// The log's identity: what the owner record calls `node`.
    pub fn id(&self) -> Uuid {
        self.id
    }

    /// How messages name the device.
    pub fn name(&self) -> String {
        self.ring.device.name()
    }

    /// Everything up to and including this position is on the medium.
    #[inline]
    pub fn durable(&self) -> Position {
        Position(self.durable.load(Ordering::Acquire))
    }

    /// The last position given out; before the first of this opening, the last recovered.
    #[inline]
    pub fn appended(&self) -> Position {
        Position(self.appended.load(Ordering::Acquire))
    }

    /// Bytes of the ring.
    #[inline]
    pub fn capacity(&self) -> u64 {
        self.ring.size
    }

    /// Bytes of the ring that hold what is not trimmed, the open frame included.
    #[inline]
    pub fn used(&self) -> u64 {
        self.used.load(Ordering::Acquire)
    }

    /// Tells others what the state has come to.
    pub(crate) fn note_used(&self, state: &State) {
        self.used.store(state.end() - state.tail, Ordering::Release);
    }

    /// As [`Log::used`], by the frames up to the one that holds `position`.
    pub fn used_up_to(&self, position: Position) -> u64 {
        let state = self.state.lock();
        let before = state.frames.partition_point(|frame| frame.last < position);
        let end = state.frames.get(before).map_or(state.end(), |frame| frame.offset + frame.extent);
        end.saturating_sub(state.tail)
    }

    /// Bytes that [`Log::append`](Log::append) may still use, headers and rounding included.
    #[inline]
    pub fn room(&self) -> u64 {
        (self.capacity() - self.reserve()).saturating_sub(self.used())
    }

    /// How many wait for a flush.
    pub fn waiting(&self) -> usize {
        self.state.lock().waiters.len()
    }

    /// Bytes that wait in memory to be written.
    pub fn buffered(&self) -> usize {
        self.state.lock().buffered
    }

    /// Whether `bytes` more are no more than `most` with those, and nobody waits for room; if nothing waits to be written they
    /// may be as many as they like.
    pub fn has_room(&self, bytes: usize, most: usize) -> bool {
        let state = self.state.lock();
        state.rooms.is_empty() && state.has_room(bytes, most)
    }

    /// Memory of large data. What is received in it is held where it lies ([`Log::hold`](Log::hold)).
    pub fn memory(&self) -> &Memory {
        &self.pool.memory
    }

    /// Bytes of memory that callers keep of the log's, through [`Log::hold`](Log::hold).
    #[inline]
    pub fn held(&self) -> usize {
        self.pool.held()
    }

    /// Gives memory back that was kept once and not needed again since the last call.
    pub fn rest(&self) {
        self.pool.memory.rest();
    }

    /// Whether what is appended from now on will be read back before it is trimmed. Only speed hangs on it.
    pub fn expect_reads(&self, soon: bool) {
        self.ring.expect_reads(soon);
    }

    /// Bytes that only [`Log::append_reserved`](Log::append_reserved) may use.
    #[inline]
    pub fn reserve(&self) -> u64 {
        match self.options.reserve_share {
            0 => 0,
            share => self.capacity() / share,
        }
    }

    /// Why nothing becomes durable any more, if so.
    pub fn poisoned(&self) -> Option<LogError> {
        self.ring.condemned()
    }

    /// Refuses everything from now on and tells whoever waits; the first reason stays.
    pub fn poison(&self, reason: &str) {
        self.ring.condemn(reason);
        self.tell_all();
    }

    /// Wakes all who wait, so that they see the verdict.
    pub(crate) fn tell_all(&self) {
        let mut state = self.state.lock();
        let (waiters, rooms) = (std::mem::take(&mut state.waiters), std::mem::take(&mut state.rooms));
        drop(state);
        waiters.into_iter().for_each(|waiter| waiter.waker.wake());
        rooms.into_iter().for_each(|waiter| waiter.waker.wake());
    }

    pub(crate) fn refused(&self, reason: &str) -> LogError {
        LogError::Refused(format!("the log {}: {reason}", self.name()))
    }
}

impl std::fmt::Debug for Log {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Log").field("id", &self.id).field("device", &self.name()).finish_non_exhaustive()
    }
}
