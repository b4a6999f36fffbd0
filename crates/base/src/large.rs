//! Memory for what is kept in pieces of some 64 KiB and read a little here and a little there: it lies in pages of 2 MiB, so that
//! finding a byte takes the processor one step fewer, and what follows it is fetched across 4 KiB.
//!
//! - A place is used again at once; a page of which nothing is used goes back to the system, but for one.
//! - Where the system has no such pages, the memory is of small ones, and all else is the same.

use std::sync::Arc;

use bytes::Bytes;

/// Places of 64 KiB, as many as are asked for. The default has none: what is made then lies where everything does.
#[derive(Clone, Debug, Default)]
pub struct LargePages(Option<Arc<page::Places>>);

impl LargePages {
    /// Bytes of a place.
    const PLACE: usize = 64 << 10;
    /// A piece takes so many places at most.
    const MOST: usize = 16;

    pub fn new() -> LargePages {
        LargePages(Some(Arc::default()))
    }

    /// Bytes of memory that a piece of `len` bytes takes here. What would leave more than an eighth of it idle lies elsewhere.
    pub fn takes(len: usize) -> usize {
        Self::places(len).map_or(len, |count| count * Self::PLACE)
    }

    fn places(len: usize) -> Option<usize> {
        let count = len.div_ceil(Self::PLACE);
        let idle = count * Self::PLACE - len;
        (len > 0 && count <= Self::MOST && idle <= len / 8).then_some(count)
    }

    /// The `len` bytes that `fill` makes; what it is given holds nothing of use.
    pub fn fill<E>(&self, len: usize, fill: impl FnOnce(&mut [u8]) -> Result<(), E>) -> Result<Bytes, E> {
        let place = self.0.as_ref().zip(Self::places(len)).and_then(|(places, count)| page::take(places, count, len));
        match place {
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

    /// Bytes of a page: as many places as a word has bits.
    const PAGE: usize = LargePages::PLACE * u32::BITS as usize;
    /// Of the pages with free places so many are looked at for several in a row.
    const LOOKED_AT: usize = 16;

    /// Pages, and which of their places are free.
    #[derive(Debug, Default)]
    pub struct Places(Mutex<Pages>);

    #[derive(Debug, Default)]
    struct Pages {
        /// By where they begin: a bit for each place that is free.
        free: BTreeMap<usize, u32>,
        /// Those of which some are.
        open: BTreeSet<usize>,
        /// One of which all are.
        spare: Option<usize>,
    }

    impl Pages {
        /// Where `count` free places follow each other, which are taken.
        fn take(&mut self, count: usize) -> Option<usize> {
            let (page, first) = self
                .open
                .iter()
                .take(LOOKED_AT)
                .find_map(|page| Some((*page, row(self.free[page], count)?)))
                .or_else(|| self.spare.or_else(map).map(|page| (page, 0)))?;
            if self.spare == Some(page) {
                self.spare = None;
            }
            let free = self.free.entry(page).or_insert(u32::MAX);
            *free &= !bits(first, count);
            if *free == 0 {
                self.open.remove(&page)
            } else {
                self.open.insert(page)
            };
            Some(page + first * LargePages::PLACE)
        }

        fn give(&mut self, at: usize, count: usize) {
            let page = at / PAGE * PAGE;
            let Some(free) = self.free.get_mut(&page) else { return };
            *free |= bits((at - page) / LargePages::PLACE, count);
            if *free != u32::MAX {
                self.open.insert(page);
                return;
            }
            if let Some(needless) = self.spare.replace(page) {
                self.free.remove(&needless);
                self.open.remove(&needless);
                unmap(needless);
            }
            self.open.insert(page);
        }
    }

    /// `count` bits from `first` on.
    fn bits(first: usize, count: usize) -> u32 {
        (((1_u64 << count) - 1) << first) as u32
    }

    /// Where `count` bits of `free` follow each other.
    fn row(free: u32, count: usize) -> Option<usize> {
        (0..=u32::BITS as usize - count).find(|first| free & bits(*first, count) == bits(*first, count))
    }

    /// A page of the system's.
    fn map() -> Option<usize> {
        let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE | MapFlags::NORESERVE);
        // SAFETY: a mapping of its own, wherever the kernel likes.
        let begin = unsafe { mmap_anonymous(std::ptr::null_mut(), 2 * PAGE, protection, flags) }.ok()? as usize;
        let page = begin.next_multiple_of(PAGE);
        // What lies before and after it is not needed.
        for (from, to) in [(begin, page), (page + PAGE, begin + 2 * PAGE)] {
            if from < to {
                // SAFETY: a part of the mapping, which nobody has had.
                let unmapped = unsafe { munmap(from as *mut c_void, to - from) };
                debug_assert!(unmapped.is_ok());
            }
        }
        #[cfg(target_os = "linux")]
        {
            // SAFETY: the page, and the advice changes none of its bytes.
            let advised = unsafe { madvise(page as *mut c_void, PAGE, Advice::LinuxHugepage) };
            // A kernel without large pages says no.
            let _ = advised;
        }
        Some(page)
    }

    fn unmap(page: usize) {
        // SAFETY: all of its places are free.
        let unmapped = unsafe { munmap(page as *mut c_void, PAGE) };
        debug_assert!(unmapped.is_ok());
    }

    impl Drop for Pages {
        fn drop(&mut self) {
            self.free.keys().for_each(|page| unmap(*page));
        }
    }

    /// Places in a row, for `len` bytes.
    pub fn take(places: &Arc<Places>, count: usize, len: usize) -> Option<Place> {
        let at = NonNull::new(places.0.lock().take(count)? as *mut u8)?;
        Some(Place { places: places.clone(), at, count, len })
    }

    pub struct Place {
        places: Arc<Places>,
        at: NonNull<u8>,
        count: usize,
        len: usize,
    }

    // SAFETY: the memory belongs to the one place that was made of it.
    unsafe impl Send for Place {}
    // SAFETY: as above; it is only read once it is shared.
    unsafe impl Sync for Place {}

    impl Place {
        pub fn bytes(&mut self) -> &mut [u8] {
            // SAFETY: the places are mapped while this is there, zeros or what was written before, and nobody else's.
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
            self.places.0.lock().give(self.at.as_ptr() as usize, self.count);
        }
    }

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

    #[test]
    fn what_would_leave_much_idle_lies_elsewhere() {
        let takes = |len: usize| LargePages::takes(len) / KIB;
        assert_eq!([64, 60, 128, 120, 1024].map(|kib| takes(kib * KIB)), [64, 64, 128, 128, 1024]);
        assert_eq!([0, 4, 56, 70, 1088].map(|kib| takes(kib * KIB)), [0, 4, 56, 70, 1088]);
        let large = LargePages::new();
        let elsewhere = large.copy(&numbered(56 * KIB, 1));
        assert_eq!((pages(&large), &elsewhere[..]), (0, &numbered(56 * KIB, 1)[..]));
        assert!(large.copy(&[]).is_empty());
        let none = LargePages::default().copy(&numbered(64 * KIB, 2));
        assert!(none[..] == numbered(64 * KIB, 2));
    }

    #[test]
    fn no_piece_is_touched_by_another_and_places_are_used_again() {
        let large = LargePages::new();
        let mut kept: Vec<(usize, Bytes)> = Vec::new();
        let mut random = 7_u64;
        for turn in 0..4000 {
            random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            if kept.len() > 100 {
                let (seed, bytes) = kept.swap_remove((random >> 33) as usize % kept.len());
                assert!(bytes[..] == numbered(bytes.len(), seed), "piece {seed}");
            }
            let len =
                [64, 64, 64, 61, 128, 250, 512, 1024][(random >> 60) as usize & 7] * KIB - (random >> 50 & 31) as usize;
            kept.push((turn, large.copy(&numbered(len, turn))));
        }
        let takes: usize = kept.iter().map(|(_, bytes)| LargePages::takes(bytes.len())).sum();
        assert!(pages(&large) << 21 <= 2 * takes, "{} pages for {takes} bytes", pages(&large));
        let last = kept.pop().unwrap();
        drop(kept);
        assert!(pages(&large) <= 2, "a page of which nothing is used goes back");
        drop(large);
        assert!(last.1[..] == numbered(last.1.len(), last.0), "what is kept keeps its memory");
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
