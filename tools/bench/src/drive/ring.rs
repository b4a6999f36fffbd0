//! Reads and writes of files past the page cache (O_DIRECT) through io_uring, as futures.
//!
//! - An operation goes to the kernel at once, as fio's do unless told otherwise: what is gathered first is not in flight
//!   meanwhile, and a disk that is fast enough idles.
//! - A completion is taken, and told the time, when what waits for it goes on next, as fio's: those behind it are still in
//!   flight for the program.
//! - A buffer belongs to the ring from submission to completion, whatever becomes of the future that waits.
//! - Buffers, offsets and lengths are multiples of 512 bytes; buffers begin on a page.

use crate::Outcome;
use crate::drive::reactor::{Reactor, Source};
use io_uring::types::{Fd, SubmitArgs, Timespec};
use io_uring::{IoUring, opcode};
use rustix::io::Errno;
use rustix::mm::{Advice, madvise};
use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs::File;
use std::future::Future;
use std::io::{Error, Result};
use std::ops::{Deref, Range};
use std::os::fd::AsRawFd;
use std::pin::Pin;
use std::ptr::NonNull;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

/// Operations in flight at most.
const ENTRIES: u32 = 1024;
const PAGE: usize = 4096;
/// Bytes of the buffers of one size that are kept.
const SPARE_BYTES_MAX: usize = 32 << 20;

/// A huge page, which is one piece of the machine's memory.
const HUGE: usize = 2 << 20;

/// Memory that buffers are cut from: what is one piece for the disk too takes one of its descriptors instead of one a page.
struct Slab {
    begin: NonNull<u8>,
    layout: Layout,
}

impl Slab {
    fn new(size: usize) -> Slab {
        let layout = Layout::from_size_align(size.next_multiple_of(HUGE), HUGE).expect("less than the address space");
        // SAFETY: the layout's size is not zero.
        let begin = unsafe { alloc(layout) };
        let Some(begin) = NonNull::new(begin) else { handle_alloc_error(layout) };
        // SAFETY: these bytes were just taken; the advice changes how they are backed, not what they are. Where the kernel
        // has no huge pages to give it is as before.
        unsafe {
            let _ = madvise(begin.as_ptr().cast(), layout.size(), Advice::LinuxHugepage);
            begin.as_ptr().write_bytes(0, layout.size());
        }
        Slab { begin, layout }
    }
}

impl Drop for Slab {
    fn drop(&mut self) {
        // SAFETY: taken with this layout; the last buffer cut from it is gone.
        unsafe { dealloc(self.begin.as_ptr(), self.layout) }
    }
}

/// Bytes that begin on a page.
pub struct Buffer {
    slab: Option<Rc<Slab>>,
    from: usize,
    size: usize,
}

impl Buffer {
    /// As many of `step` bytes, a power of two of at least a page, as a huge page holds; at least one.
    fn cut(step: usize) -> impl Iterator<Item = Buffer> {
        let slab = Rc::new(Slab::new(step));
        let count = slab.layout.size() / step;
        (0..count).map(move |index| Buffer { slab: Some(slab.clone()), from: index * step, size: step })
    }

    /// In place of one that has been taken away.
    fn none() -> Buffer {
        Buffer { slab: None, from: 0, size: 0 }
    }

    pub fn bytes(&self) -> &[u8] {
        let Some(slab) = &self.slab else { return &[] };
        // SAFETY: within the slab, all of whose bytes were written, and of this buffer alone.
        unsafe { std::slice::from_raw_parts(slab.begin.as_ptr().add(self.from), self.size) }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        let Some(slab) = &self.slab else { return &mut [] };
        // SAFETY: as above.
        unsafe { std::slice::from_raw_parts_mut(slab.begin.as_ptr().add(self.from), self.size) }
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
    /// Buffers of operations that ended, by what was cut for them: memory that is fresh each time costs more than the copy into it.
    spare: RefCell<BTreeMap<usize, Vec<Buffer>>>,
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
        // As fio sets its own up; kernels before 6.0 know no such ring.
        let mut builder = IoUring::builder();
        let ring = builder.setup_coop_taskrun().setup_single_issuer().build(ENTRIES);
        let ring = ring.or_else(|_| IoUring::new(ENTRIES)).map_err(|error| format!("io_uring: {error}"))?;
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
        let step = size.next_power_of_two().max(PAGE);
        let mut all = self.0.spare.borrow_mut();
        let spare = all.entry(step).or_default();
        if spare.is_empty() {
            spare.extend(Buffer::cut(step));
        }
        let mut buffer = spare.pop().unwrap_or_else(Buffer::none);
        buffer.size = size;
        buffer
    }

    fn keep(&self, buffer: Buffer) {
        let mut all = self.0.spare.borrow_mut();
        let spare = all.entry(buffer.size.next_power_of_two().max(PAGE)).or_default();
        if buffer.slab.is_some() && spare.len() * buffer.size < SPARE_BYTES_MAX {
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
        let mut ring = self.ring.borrow_mut();
        let mut completions = ring.completion();
        let Some(completion) = completions.next() else { return false };
        let index = completion.user_data() as usize;
        let mut slots = self.slots.borrow_mut();
        if let Some(slot) = &mut slots[index] {
            let result = completion.result();
            let result = if result < 0 { Err(Error::from_raw_os_error(-result)) } else { Ok(result as usize) };
            slot.result = Some((result, Instant::now()));
            reactor.wake(slot.task);
            if slot.forgotten {
                slots[index] = None;
                self.free.borrow_mut().push(index);
            }
        }
        !completions.is_empty()
    }

    fn flush(&self, _: &Reactor) {}

    /// In the ring itself: one call of the system, not three.
    fn sleep(&self, most: Duration) -> Outcome<bool> {
        let mut ring = self.ring.borrow_mut();
        if !ring.completion().is_empty() {
            return Ok(true);
        }
        let most = Timespec::from(most);
        match ring.submitter().submit_with_args(1, &SubmitArgs::new().timespec(&most)) {
            Ok(_) => Ok(true),
            Err(error) if error.raw_os_error() == Some(Errno::TIME.raw_os_error()) => Ok(true),
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => Ok(true),
            Err(error) => Err(format!("io_uring: {error}")),
        }
    }
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
