//! Memory whose pages may be handed to the kernel, which sends what is in them without copying it first.
//!
//! - Nobody is told when the kernel is done with a page: what is under way, or lies with a receiver on this machine that has not
//!   read it, shows what the page holds *then*. So what is kept here is written once, and its pages go back to the kernel rather
//!   than being used again: whoever still has them keeps them.
//! - New pages cost more than copying the bytes that they hold a few times: only what is sent again and again belongs here.
//! - A place costs address space from the beginning, and memory while something is kept there.

use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

use bytes::Bytes;
use rustix::pipe::{IoSliceRaw, PipeFlags, SpliceFlags, pipe_with, vmsplice};

/// Room for pieces of data of some sizes. Where the system has no address space for it, or does not leave alone what it was
/// handed, nothing is kept.
#[derive(Clone, Debug, Default)]
pub struct Pages(Option<Arc<block::Block>>);

impl Pages {
    /// What is shorter is not kept.
    pub const LEAST: usize = 64 << 10;
    /// From so many bytes on it costs less to hand pages over than to copy what is in them.
    pub const WORTH: usize = 32 << 10;

    /// Places of each size for so many bytes, if what is kept there can be handed over.
    pub fn new(bytes: u64) -> Pages {
        let pages = Pages(block::Block::reserve(bytes).map(Arc::new));
        if pages.leave_alone() { pages } else { Pages::default() }
    }

    /// Whether the kernel still has what it was handed once its place is used again. A system that is only imitated may do
    /// nothing for what gives pages back, and say that it has.
    fn leave_alone(&self) -> bool {
        let Ok((out, into)) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK) else { return false };
        let Some(first) = self.keep(&[1; Pages::LEAST]) else { return false };
        let handed = [IoSliceRaw::from_slice(&first[..1])];
        // SAFETY: the kernel reads from the piece.
        if unsafe { vmsplice(&into, &handed, SpliceFlags::NONBLOCK) } != Ok(1) {
            return false;
        }
        let place = first.as_ptr();
        drop(first);
        let second = self.keep(&[2; Pages::LEAST]);
        let same = second.is_some_and(|second| second.as_ptr() == place && second[0] == 2);
        let mut found = [0];
        same && rustix::io::read(&out, &mut found) == Ok(1) && found == [1]
    }

    /// A copy of `data` that lies in such pages; none if it is too short or too long, or no place is free.
    pub fn keep(&self, data: &[u8]) -> Option<Bytes> {
        let block = self.0.as_ref()?;
        Some(Bytes::from_owner(block::Block::keep(block, data)?))
    }

    /// Whether all of `part` lies in such pages.
    pub fn hold(&self, part: &[u8]) -> bool {
        self.0.as_ref().is_some_and(|block| block.holds(part))
    }
}

/// How often the bytes of something are copied before it moves into such pages. New ones and giving them back cost about 400 us for
/// a MiB where a reply's copy costs 95: whatever happens next, it costs about twice what the better choice would have, at most.
const COPIES: usize = 4;

/// What was copied of something for want of its lying in such pages, in parts of [`Pages::WORTH`]: it is counted for every record
/// that waits, and must be small.
#[derive(Debug, Default)]
pub struct Copied(AtomicU16);

impl Copied {
    /// Notes another `bytes`, of something that has `len` of them. True once, when it is time to move it.
    pub fn is_enough(&self, bytes: usize, len: usize) -> bool {
        let parts = |bytes: usize| u16::try_from(bytes / Pages::WORTH).unwrap_or(u16::MAX).min(u16::MAX / 8);
        let enough = parts(len.saturating_mul(COPIES));
        // Beyond that nothing is counted, or it would begin anew.
        if bytes < Pages::WORTH || self.0.load(Ordering::Relaxed) >= enough {
            return false;
        }
        let before = self.0.fetch_add(parts(bytes), Ordering::Relaxed);
        before < enough && before + parts(bytes) >= enough
    }
}

impl Clone for Copied {
    fn clone(&self) -> Copied {
        Copied(AtomicU16::new(self.0.load(Ordering::Relaxed)))
    }
}

mod block {
    use std::ffi::c_void;
    use std::ptr::NonNull;
    use std::sync::Arc;

    use parking_lot::Mutex;
    use rustix::mm::{Advice, MapFlags, MprotectFlags, ProtFlags, madvise, mmap_anonymous, mprotect, munmap};

    use super::Pages;

    /// Of the places: each twice the one before.
    const SIZES: usize = 5;

    /// Address space, a part of it for each size.
    #[derive(Debug)]
    pub struct Block {
        begin: NonNull<u8>,
        /// Bytes of a part.
        part: usize,
        free: [Mutex<Free>; SIZES],
    }

    /// Places where nothing is kept.
    #[derive(Debug, Default)]
    struct Free {
        /// Whether this part of the block may be touched: what may is charged, where the system charges address space.
        opened: bool,
        left: Vec<usize>,
        /// Nothing was ever kept in this one and those after it.
        unused: usize,
    }

    // SAFETY: a place belongs to the one `Kept` that was made of it, and is only read once that is made.
    unsafe impl Send for Block {}
    // SAFETY: as above; what is free is behind locks.
    unsafe impl Sync for Block {}

    fn size(class: usize) -> usize {
        Pages::LEAST << class
    }

    impl Block {
        pub fn reserve(bytes: u64) -> Option<Block> {
            let part = usize::try_from(bytes).ok()?.checked_next_multiple_of(size(SIZES - 1))?;
            let len = part.checked_mul(SIZES).filter(|len| *len > 0)?;
            let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
            // SAFETY: a mapping of its own, wherever the kernel likes.
            let begin = unsafe { mmap_anonymous(std::ptr::null_mut(), len, ProtFlags::empty(), flags) };
            let begin = begin.ok()?;
            // Pages of 2 MiB would hold memory of places where nothing is kept. A kernel without them says no.
            // SAFETY: the whole mapping, and the advice changes none of its bytes.
            let _ = unsafe { madvise(begin, len, Advice::LinuxNoHugepage) };
            Some(Block { begin: NonNull::new(begin.cast())?, part, free: Default::default() })
        }

        fn len(&self) -> usize {
            self.part * SIZES
        }

        /// Where the places of a size begin.
        fn part(&self, class: usize) -> *mut c_void {
            // SAFETY: every part lies within the mapping.
            unsafe { self.begin.as_ptr().add(class * self.part) }.cast()
        }

        pub fn holds(&self, part: &[u8]) -> bool {
            let begin = self.begin.as_ptr() as usize;
            let from = part.as_ptr() as usize;
            from >= begin && from + part.len() <= begin + self.len()
        }

        pub fn keep(this: &Arc<Block>, data: &[u8]) -> Option<Kept> {
            let class = (0..SIZES).find(|class| size(*class) >= data.len()).filter(|_| data.len() >= Pages::LEAST)?;
            let place = {
                let mut free = this.free[class].lock();
                if !free.opened {
                    // SAFETY: this part is within the mapping, and nobody has had any of it.
                    let opened =
                        unsafe { mprotect(this.part(class), this.part, MprotectFlags::READ | MprotectFlags::WRITE) };
                    free.opened = opened.is_ok();
                }
                if !free.opened {
                    return None;
                }
                let unused = free.unused;
                free.left.pop().or_else(|| {
                    let fits = (unused + 1) * size(class) <= this.part;
                    fits.then(|| {
                        free.unused += 1;
                        unused
                    })
                })?
            };
            let kept = Kept { block: this.clone(), class, place, len: data.len() };
            // SAFETY: the place is within the mapping, as long as the data at least, and nobody else's.
            unsafe { std::ptr::copy_nonoverlapping(data.as_ptr(), kept.at(), data.len()) };
            Some(kept)
        }
    }

    impl Drop for Block {
        fn drop(&mut self) {
            // SAFETY: whoever keeps something of it keeps the block.
            let unmapped = unsafe { munmap(self.begin.as_ptr().cast::<c_void>(), self.len()) };
            debug_assert!(unmapped.is_ok());
        }
    }

    /// A place with something in it.
    pub struct Kept {
        block: Arc<Block>,
        class: usize,
        place: usize,
        len: usize,
    }

    impl Kept {
        fn at(&self) -> *mut u8 {
            let part = self.block.part(self.class).cast::<u8>();
            // SAFETY: every place lies within its part.
            unsafe { part.add(self.place * size(self.class)) }
        }
    }

    impl AsRef<[u8]> for Kept {
        fn as_ref(&self) -> &[u8] {
            // SAFETY: so many bytes were written there, and nobody writes again before this is dropped.
            unsafe { std::slice::from_raw_parts(self.at(), self.len) }
        }
    }

    impl Drop for Kept {
        fn drop(&mut self) {
            // SAFETY: the place is nobody else's; its next bytes come into pages that the kernel gives anew.
            let given = unsafe { madvise(self.at().cast::<c_void>(), size(self.class), Advice::LinuxDontNeed) };
            // Pages that are still here may be under way, and must not change: the place is given up.
            if given.is_ok() {
                self.block.free[self.class].lock().left.push(self.place);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    const KIB: usize = 1 << 10;

    #[test]
    fn pieces_are_kept_by_size_while_there_are_places() {
        let pages = Pages::new(1 << 20);
        let data: Vec<u8> = (0..1 << 20).map(|at: u32| (at ^ (at >> 8)) as u8).collect();
        assert!(pages.keep(&data[..Pages::LEAST - 1]).is_none() && pages.keep(&vec![0; (1 << 20) + 1]).is_none());
        let kept: Vec<Bytes> = [64, 100, 128, 500, 1024].map(|kib| pages.keep(&data[..kib * KIB]).unwrap()).into();
        for bytes in &kept {
            assert!(bytes[..] == data[..bytes.len()] && pages.hold(bytes) && pages.hold(&bytes[9..77]));
            assert_eq!(bytes.as_ptr() as usize % 4096, 0);
        }
        assert!(pages.keep(&data).is_none(), "there is one place of this size");
        assert!(!pages.hold(&data) && !Pages::default().hold(&kept[0]));
        let (place, rest) = (kept[4].as_ptr(), kept[4].slice(5..));
        drop(kept);
        assert!(pages.keep(&data).is_none(), "a part of it is still kept");
        assert!(rest[..] == data[5..]);
        drop(rest);
        assert_eq!(pages.keep(&data).unwrap().as_ptr(), place);
        let last = pages.keep(&data[..Pages::LEAST]).unwrap();
        drop(pages);
        assert!(last[..] == data[..Pages::LEAST], "what is kept keeps its memory");
    }

    #[test]
    fn copies_are_enough_once() {
        let copied = Copied::default();
        let notes = |bytes: usize, len: usize, times: usize| {
            (0..times).map(|_| copied.is_enough(bytes, len)).collect::<Vec<bool>>()
        };
        assert_eq!(notes(Pages::WORTH - 1, 64 * KIB, 20), [false; 20], "a little costs nothing");
        assert_eq!(notes(100 * KIB, 100 * KIB, COPIES + 1), [false, false, false, true, false]);
        assert_eq!(notes(usize::MAX, 100 * KIB, 20), [false; 20]);
        assert!(Copied::default().is_enough(usize::MAX, usize::MAX));
        let (shared, many) = (Copied::default(), 8 * COPIES);
        let threads = |_| {
            std::thread::scope(|scope| {
                let note = || (0..many).filter(|_| shared.is_enough(64 * KIB, 1 << 20)).count();
                let threads: Vec<_> = (0..4).map(|_| scope.spawn(note)).collect();
                threads.into_iter().map(|thread| thread.join().unwrap()).sum::<usize>()
            })
        };
        assert_eq!((0..2).map(threads).collect::<Vec<usize>>(), [1, 0], "of those who come at once it is one");
    }

    #[test]
    fn what_the_kernel_has_does_not_change_when_its_place_is_used_again() {
        let pages = Pages::new(1 << 20);
        let (out, into) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK).unwrap();
        let kept = pages.keep(&[1; 1 << 20]).unwrap();
        // SAFETY: the pipe is given the pages to read from.
        let given =
            unsafe { vmsplice(&into, &[IoSliceRaw::from_slice(&kept[100..40 * KIB])], SpliceFlags::NONBLOCK) }.unwrap();
        assert_eq!(given, 40 * KIB - 100);
        drop(kept);
        let again = pages.keep(&[2; 1 << 20]).unwrap();
        let mut found = vec![0; given];
        std::fs::File::from(out).read_exact(&mut found).unwrap();
        assert!(found.iter().all(|byte| *byte == 1), "what was under way");
        assert!(again.iter().all(|byte| *byte == 2));
    }
}
