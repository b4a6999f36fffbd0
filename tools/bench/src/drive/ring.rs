//! Reads and writes of files past the page cache (O_DIRECT) through io_uring, as futures.
//!
//! - An operation goes to the kernel at once, as fio's do unless told otherwise: what is gathered first is not in flight
//!   meanwhile, and a disk that is fast enough idles.
//! - A buffer belongs to the ring from submission to completion, whatever becomes of the future that waits.
//! - Buffers, offsets and lengths are multiples of 512 bytes; buffers begin on a page.

use crate::Outcome;
use crate::drive::reactor::{Reactor, Source};
use io_uring::{IoUring, opcode, types::Fd};
use std::cell::RefCell;
use std::fs::File;
use std::future::Future;
use std::io::{Error, Result};
use std::ops::{Deref, Range};
use std::os::fd::AsRawFd;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Instant;

/// Operations in flight at most.
const ENTRIES: u32 = 1024;
const PAGE: usize = 4096;
/// Buffers that are kept, and the largest of them.
const SPARE_MAX: usize = 128;
const SPARE_BYTES_MAX: usize = 256 << 10;

/// Bytes that begin on a page.
pub struct Buffer {
    bytes: Vec<u8>,
    from: usize,
    size: usize,
}

impl Buffer {
    pub fn new(size: usize) -> Buffer {
        let bytes = vec![0; size + PAGE];
        let from = bytes.as_ptr().align_offset(PAGE);
        Buffer { bytes, from, size }
    }

    /// In place of one that has been taken away.
    fn none() -> Buffer {
        Buffer { bytes: Vec::new(), from: 0, size: 0 }
    }

    pub fn bytes(&self) -> &[u8] {
        &self.bytes[self.from..self.from + self.size]
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.from..self.from + self.size]
    }
}

struct Slot {
    task: usize,
    /// The file must stay open as long as the ring uses it.
    _file: Rc<File>,
    buffer: Buffer,
    result: Option<(Result<usize>, Instant)>,
    /// Nobody waits any more: the slot is freed at completion.
    forgotten: bool,
}

struct Shared {
    reactor: Reactor,
    ring: RefCell<IoUring>,
    slots: RefCell<Vec<Option<Slot>>>,
    free: RefCell<Vec<usize>>,
    /// Buffers of operations that ended: memory that is fresh each time costs more than the copy into it.
    spare: RefCell<Vec<Buffer>>,
}

/// A handle; clones are the same ring.
#[derive(Clone)]
pub struct Ring(Rc<Shared>);

/// What an operation moves.
#[derive(Clone, Copy)]
enum Way {
    In,
    Out,
}

impl Ring {
    pub fn new(reactor: &Reactor) -> Outcome<Ring> {
        let ring = IoUring::new(ENTRIES).map_err(|error| format!("io_uring: {error}"))?;
        let descriptor = rustix::io::dup(borrowed(&ring)).map_err(|error| format!("io_uring: {error}"))?;
        let shared = Rc::new(Shared {
            reactor: reactor.clone(),
            ring: RefCell::new(ring),
            slots: RefCell::default(),
            free: RefCell::default(),
            spare: RefCell::default(),
        });
        reactor.add(shared.clone(), &descriptor)?;
        // The registration lives as long as the ring's own descriptor does; the copy was for its lifetime's sake.
        std::mem::drop(descriptor);
        Ok(Ring(shared))
    }

    /// Reads `size` bytes at `offset`; fewer come at the end of the file.
    pub async fn read(&self, file: &Rc<File>, offset: u64, size: usize) -> Result<(Lent, Instant)> {
        let (buffer, count, at) = self.submit(file, offset, self.take(size), Way::In)?.await?;
        Ok((Lent { buffer, range: 0..count, ring: self.clone() }, at))
    }

    /// Writes `size` bytes at `offset`, which `fill` puts straight into the buffer that the kernel takes them from.
    pub async fn write(
        &self,
        file: &Rc<File>,
        offset: u64,
        size: usize,
        fill: impl FnOnce(&mut [u8]),
    ) -> Result<Instant> {
        let mut buffer = self.take(size);
        fill(buffer.bytes_mut());
        let (buffer, written, at) = self.submit(file, offset, buffer, Way::Out)?.await?;
        self.keep(buffer);
        if written == size { Ok(at) } else { Err(Error::other("a write was cut short")) }
    }

    fn take(&self, size: usize) -> Buffer {
        let spare = self.0.spare.borrow_mut().pop();
        spare.filter(|buffer| buffer.size == size).unwrap_or_else(|| Buffer::new(size))
    }

    fn keep(&self, buffer: Buffer) {
        let mut spare = self.0.spare.borrow_mut();
        if spare.len() < SPARE_MAX && buffer.size <= SPARE_BYTES_MAX {
            spare.push(buffer);
        }
    }

    fn submit(&self, file: &Rc<File>, offset: u64, mut buffer: Buffer, way: Way) -> Result<Flight> {
        let shared = &self.0;
        let size = buffer.size as u32;
        let fd = Fd(file.as_raw_fd());
        let bytes = buffer.bytes_mut().as_mut_ptr();
        let entry = match way {
            Way::In => opcode::Read::new(fd, bytes, size).offset(offset).build(),
            Way::Out => opcode::Write::new(fd, bytes, size).offset(offset).build(),
        };
        let task = shared.reactor.current();
        let slot = Slot { task, _file: file.clone(), buffer, result: None, forgotten: false };
        let index = shared.free.borrow_mut().pop().unwrap_or_else(|| {
            shared.slots.borrow_mut().push(None);
            shared.slots.borrow().len() - 1
        });
        shared.slots.borrow_mut()[index] = Some(slot);
        let entry = entry.user_data(index as u64);
        let mut ring = shared.ring.borrow_mut();
        // SAFETY: the slot owns the buffer and the file until the completion of this entry has been taken.
        while unsafe { ring.submission().push(&entry) }.is_err() {
            ring.submit()?;
        }
        ring.submit()?;
        Ok(Flight { shared: shared.clone(), index })
    }
}

/// The ring's descriptor, borrowed for a moment.
fn borrowed(ring: &IoUring) -> rustix::fd::BorrowedFd<'_> {
    // SAFETY: the ring outlives the borrow and keeps its descriptor open.
    unsafe { rustix::fd::BorrowedFd::borrow_raw(ring.as_raw_fd()) }
}

/// What was read, where the kernel put it; the buffer goes back when this is dropped.
pub struct Lent {
    buffer: Buffer,
    range: Range<usize>,
    ring: Ring,
}

impl Lent {
    /// Only so much of it.
    pub fn cut(mut self, range: Range<usize>) -> Lent {
        let end = self.range.end;
        self.range = range.start.min(end)..range.end.min(end);
        self
    }
}

impl Deref for Lent {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.buffer.bytes()[self.range.clone()]
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        self.ring.keep(std::mem::replace(&mut self.buffer, Buffer::none()));
    }
}

struct Flight {
    shared: Rc<Shared>,
    index: usize,
}

impl Future for Flight {
    type Output = Result<(Buffer, usize, Instant)>;

    fn poll(self: Pin<&mut Self>, _: &mut Context) -> Poll<Self::Output> {
        let mut slots = self.shared.slots.borrow_mut();
        let Some(slot) = &mut slots[self.index] else { return Poll::Pending };
        slot.task = self.shared.reactor.current();
        let Some((result, at)) = slot.result.take() else { return Poll::Pending };
        let buffer = std::mem::replace(&mut slot.buffer, Buffer::none());
        Poll::Ready(result.map(|count| (buffer, count, at)))
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        let mut slots = self.shared.slots.borrow_mut();
        let Some(slot) = &mut slots[self.index] else { return };
        // An operation that runs still owns its buffer; its slot is freed when it has ended.
        if slot.buffer.size == 0 || slot.result.is_some() {
            slots[self.index] = None;
            self.shared.free.borrow_mut().push(self.index);
        } else {
            slot.forgotten = true;
        }
    }
}

impl Source for Shared {
    fn ready(&self, reactor: &Reactor) -> bool {
        let at = Instant::now();
        let mut ring = self.ring.borrow_mut();
        for completion in ring.completion() {
            let index = completion.user_data() as usize;
            let mut slots = self.slots.borrow_mut();
            let Some(slot) = &mut slots[index] else { continue };
            let result = completion.result();
            let result = if result < 0 { Err(Error::from_raw_os_error(-result)) } else { Ok(result as usize) };
            slot.result = Some((result, at));
            reactor.wake(slot.task);
            if slot.forgotten {
                slots[index] = None;
                self.free.borrow_mut().push(index);
            }
        }
        false
    }

    fn flush(&self, _: &Reactor) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::OpenOptionsExt;

    #[test]
    fn what_is_written_is_read_past_the_cache() {
        let path = std::env::temp_dir().join(format!("tarn-bench-ring-{}", std::process::id()));
        let options = std::fs::OpenOptions::new().read(true).write(true).create(true).truncate(true).clone();
        // A file system in memory may know no O_DIRECT.
        let direct = options.clone().custom_flags(rustix::fs::OFlags::DIRECT.bits() as i32).open(&path);
        let file = Rc::new(direct.or_else(|_| options.open(&path)).unwrap());
        let reactor = Reactor::new().unwrap();
        let ring = Ring::new(&reactor).unwrap();
        for part in 0..64_u64 {
            let (ring, file) = (ring.clone(), file.clone());
            reactor.spawn(async move {
                let data = vec![part as u8 + 1; 8192];
                ring.write(&file, part * 8192, 8192, |out| out.copy_from_slice(&data)).await.unwrap();
                let (found, _) = ring.read(&file, part * 8192, 8192).await.unwrap();
                assert_eq!(found[..], data);
                assert_eq!(found.cut(512..600)[..], data[..88]);
            });
        }
        reactor.run().unwrap();
        assert_eq!(file.metadata().unwrap().len(), 64 * 8192);
        std::fs::remove_file(&path).unwrap();
    }
}
