//! Memory for records that are kept: it lies in pages of 2 MiB, so that a processor finds a byte of it in one step fewer.
//!
//! - There are places of one size, so that each fits where another was. What is shorter by more than an eighth, or longer, lies
//!   where everything does.
//! - Of an eighth as many places as are in use, and a page of them, the memory is kept when they lie idle. Beyond that whole pages
//!   go back to the system, and where there are none the places that come back.
//! - Where the system has no such pages, or gives none, the memory is of small ones, and all else is the same.

use std::sync::Arc;

use bytes::Bytes;

/// Memory that all who make and keep records share. The default has none of its own: all lies where everything does.
#[derive(Clone, Debug, Default)]
pub struct LargePages(Option<Arc<page::Places>>);

impl LargePages {
    /// Bytes of a place.
    pub const PLACE: usize = 64 << 10;
    /// What is shorter has none.
    pub const LEAST: usize = Self::PLACE - Self::PLACE / 8;

    pub fn new() -> LargePages {
        LargePages(Some(Arc::default()))
    }

    /// Bytes of memory that so many bytes take here.
    pub fn takes(len: usize) -> usize {
        if (Self::LEAST..=Self::PLACE).contains(&len) { Self::PLACE } else { len }
    }

    /// The `len` bytes that `fill` makes; what it is given holds nothing of use.
    pub fn fill<E>(&self, len: usize, fill: impl FnOnce(&mut [u8]) -> Result<(), E>) -> Result<Bytes, E> {
        let places = self.0.as_ref().filter(|_| Self::takes(len) == Self::PLACE);
        match places.and_then(|places| page::take(places, len)) {
            Some(mut place) => {
                fill(place.bytes())?;
                Ok(Bytes::from_owner(place))
            }
            None => {
                let mut bytes = vec![0; len];
                fill(&mut bytes)?;
                Ok(Bytes::from(bytes))
            }
        }
    }

    /// A copy of `data`.
    pub fn copy(&self, data: &[u8]) -> Bytes {
        let copied: Result<Bytes, std::convert::Infallible> = self.fill(data.len(), |out| {
            out.copy_from_slice(data);
            Ok(())
        });
        let Ok(bytes) = copied;
        bytes
    }
}

mod page {
    use std::collections::{BTreeMap, BTreeSet};
    use std::ffi::c_void;
    use std::ptr::NonNull;
    use std::sync::Arc;

    use parking_lot::Mutex;
    use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

    use super::LargePages;

    /// As many places as a word has bits.
    const PLACES: usize = u32::BITS as usize;
    /// Bytes of a page.
    const PAGE: usize = LargePages::PLACE * PLACES;
    /// Pages of one mapping: a process has room for some tens of thousands of these.
    const PAGES: usize = 16;

    #[derive(Debug, Default)]
    pub struct Places(Mutex<Pages>);

    #[derive(Debug, Default)]
    struct Pages {
        /// Of the pages in use, by where they begin: a bit for each place that is free.
        free: BTreeMap<usize, u32>,
        /// Those of which some are.
        open: BTreeSet<usize>,
        /// Those of which all are.
        unused: BTreeSet<usize>,
        /// How many places of theirs are free.
        idle: usize,
        /// Pages that are not in use, and take no memory.
        closed: Vec<usize>,
        /// Where mappings begin.
        mapped: Vec<usize>,
    }

    impl Pages {
        fn take(&mut self) -> Option<usize> {
            let page = self.open.first().copied().or_else(|| self.open_another())?;
            let free = self.free.get_mut(&page)?;
            let place = free.trailing_zeros() as usize;
            *free &= !(1 << place);
            self.unused.remove(&page);
            if *free == 0 {
                self.open.remove(&page);
            }
            self.idle -= 1;
            Some(page + place * LargePages::PLACE)
        }

        fn open_another(&mut self) -> Option<usize> {
            if self.closed.is_empty() {
                self.map()?;
            }
            let page = self.closed.pop()?;
            self.free.insert(page, u32::MAX);
            self.open.insert(page);
            self.unused.insert(page);
            self.idle += PLACES;
            Some(page)
        }

        fn map(&mut self) -> Option<()> {
            let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE | MapFlags::NORESERVE);
            // SAFETY: a mapping of its own, wherever the kernel likes.
            let begin = unsafe { mmap_anonymous(std::ptr::null_mut(), (PAGES + 1) * PAGE, protection, flags) }.ok()?;
            // SAFETY: all of it, and the advice changes none of its bytes.
            let advised = unsafe { madvise(begin, (PAGES + 1) * PAGE, Advice::LinuxHugepage) };
            // A kernel without large pages says no.
            let _ = advised;
            let first = (begin as usize).next_multiple_of(PAGE);
            self.mapped.push(begin as usize);
            self.closed.extend((0..PAGES).rev().map(|page| first + page * PAGE));
            Some(())
        }

        /// Takes a place back, and gives memory back where much is idle.
        fn give(&mut self, at: usize) {
            let page = at / PAGE * PAGE;
            let Some(free) = self.free.get_mut(&page) else { return };
            *free |= 1 << ((at - page) / LargePages::PLACE);
            if *free == u32::MAX {
                self.unused.insert(page);
            }
            self.open.insert(page);
            self.idle += 1;
            while self.idle > PLACES + (self.free.len() * PLACES - self.idle) / 8 {
                let Some(page) = self.unused.pop_last() else {
                    give_back(at, LargePages::PLACE);
                    return;
                };
                if !give_back(page, PAGE) {
                    return;
                }
                self.free.remove(&page);
                self.open.remove(&page);
                self.idle -= PLACES;
                self.closed.push(page);
            }
        }
    }

    /// Gives the memory of free places back; they hold zeros then.
    fn give_back(begin: usize, len: usize) -> bool {
        // SAFETY: nobody has any of it.
        unsafe { madvise(begin as *mut c_void, len, Advice::LinuxDontNeed) }.is_ok()
    }

    impl Drop for Pages {
        fn drop(&mut self) {
            for begin in &self.mapped {
                // SAFETY: whoever has a place keeps the pages.
                let unmapped = unsafe { munmap(*begin as *mut c_void, (PAGES + 1) * PAGE) };
                debug_assert!(unmapped.is_ok());
            }
        }
    }

    /// A place for `len` bytes.
    pub fn take(places: &Arc<Places>, len: usize) -> Option<Place> {
        let at = NonNull::new(places.0.lock().take()? as *mut u8)?;
        Some(Place { places: places.clone(), at, len })
    }

    pub struct Place {
        places: Arc<Places>,
        at: NonNull<u8>,
        len: usize,
    }

    // SAFETY: the memory belongs to the one place that was made of it.
    unsafe impl Send for Place {}
    // SAFETY: as above; it is only read once it is shared.
    unsafe impl Sync for Place {}

    impl Place {
        pub fn bytes(&mut self) -> &mut [u8] {
            // SAFETY: the place is mapped while this is there, holds zeros or what was written before, and is nobody else's.
            unsafe { std::slice::from_raw_parts_mut(self.at.as_ptr(), self.len) }
        }
    }

    impl AsRef<[u8]> for Place {
        fn as_ref(&self) -> &[u8] {
            // SAFETY: as above.
            unsafe { std::slice::from_raw_parts(self.at.as_ptr(), self.len) }
        }
    }

    impl Drop for Place {
        fn drop(&mut self) {
            self.places.0.lock().give(self.at.as_ptr() as usize);
        }
    }

    /// Pages in use.
    #[cfg(test)]
    pub fn pages(places: &Arc<Places>) -> usize {
        places.0.lock().free.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIB: usize = 1 << 10;

    fn numbered(len: usize, seed: usize) -> Vec<u8> {
        (0..len).map(|at| (at ^ (at >> 8) ^ seed.wrapping_mul(97)) as u8).collect()
    }

    fn pages(large: &LargePages) -> usize {
        large.0.as_ref().map_or(0, page::pages)
    }

    /// Whether it lies where a place begins.
    fn has_place(bytes: &Bytes) -> bool {
        (bytes.as_ptr() as usize).is_multiple_of(LargePages::PLACE)
    }

    #[test]
    fn what_is_about_as_long_as_a_place_has_one() {
        let large = LargePages::new();
        for (len, takes) in [(0, 0), (4, 4), (55, 55), (56, 64), (61, 64), (64, 64), (65, 65), (1024, 1024)] {
            let bytes = large.copy(&numbered(len * KIB, len));
            assert!(bytes[..] == numbered(len * KIB, len));
            assert_eq!(LargePages::takes(len * KIB), takes * KIB);
            assert_eq!(has_place(&bytes), (56..=64).contains(&len), "{len} KiB");
        }
        assert!(LargePages::default().copy(&numbered(64 * KIB, 2))[..] == numbered(64 * KIB, 2));
    }

    #[test]
    fn no_piece_is_touched_by_another_and_no_more_is_held_than_said() {
        let large = LargePages::new();
        let mut kept: Vec<(usize, Bytes)> = Vec::new();
        let mut random = 7_u64;
        let mut next = |below: usize| {
            random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            (random >> 33) as usize % below
        };
        // Up, up and down, and down again.
        for (turn, most) in (0..6000).map(|turn| (turn, if turn < 4000 { 1000 } else { 100 })) {
            while kept.len() > most {
                let (seed, bytes) = kept.swap_remove(next(kept.len()));
                assert!(bytes[..] == numbered(bytes.len(), seed), "piece {seed}");
            }
            kept.push((turn, large.copy(&numbered(64 * KIB - next(8 * KIB), turn))));
            assert!(has_place(&kept[kept.len() - 1].1));
            if turn == 3999 {
                assert_eq!(pages(&large), 32, "each fits where another was");
            }
        }
        // Those that are left lie anywhere, some of them on a page each; all else has gone back.
        assert!(pages(&large) < 32);
        for (seed, bytes) in &kept {
            assert!(bytes[..] == numbered(bytes.len(), *seed), "piece {seed}");
        }
        let last = kept.pop().unwrap();
        drop(kept);
        assert_eq!(pages(&large), 1, "pages of which nothing is used go back");
        drop(large);
        assert!(last.1[..] == numbered(last.1.len(), last.0), "what is kept keeps its memory");
    }

    #[test]
    fn of_what_lies_idle_beyond_an_eighth_the_memory_goes_back() {
        let large = LargePages::new();
        let mut kept: Vec<Bytes> = (0..320).map(|_| large.copy(&[7; 64 << 10])).collect();
        assert_eq!(pages(&large), 10);
        // Two of three, on every page.
        let mut at = 0;
        kept.retain(|_| {
            at += 1;
            at % 3 == 0
        });
        assert_eq!(pages(&large), 10, "something is kept on each of them");
        let mut zeros = 0;
        for _ in 0..213 {
            let filled: Result<Bytes, ()> = large.fill(64 << 10, |out| {
                zeros += usize::from(out.iter().all(|byte| *byte == 0));
                Ok(())
            });
            kept.extend(filled);
        }
        assert_eq!((kept.len(), pages(&large)), (319, 10));
        assert_eq!(213 - zeros, 32 + 32, "a page's and an eighth of the 256 in use then keep theirs");
        drop(kept);
        assert_eq!(pages(&large), 1, "in whatever order they come back");
    }

    #[test]
    fn one_page_is_full_before_the_next() {
        let large = LargePages::new();
        let mut kept: Vec<Bytes> = (0..32).map(|seed| large.copy(&numbered(64 * KIB, seed))).collect();
        assert_eq!(pages(&large), 1);
        let begin = kept.iter().map(|bytes| bytes.as_ptr() as usize).min().unwrap();
        assert_eq!(begin % (2 << 20), 0);
        let place = kept.swap_remove(5).as_ptr();
        kept.push(large.copy(&numbered(64 * KIB, 32)));
        assert_eq!((kept[31].as_ptr(), pages(&large)), (place, 1));
        kept.push(large.copy(&numbered(64 * KIB, 33)));
        assert_eq!(pages(&large), 2);
    }

    #[test]
    fn what_cannot_be_made_leaves_nothing() {
        let large = LargePages::new();
        let first = large.copy(&numbered(64 * KIB, 1));
        assert_eq!(large.fill(64 * KIB, |_| Err(9)).unwrap_err(), 9);
        let second = large.copy(&numbered(64 * KIB, 2));
        assert_eq!(second.as_ptr() as usize, first.as_ptr() as usize + 64 * KIB);
    }
}
