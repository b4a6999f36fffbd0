//! What will be read soon, told to the processor, so that it lies near when it is read.

/// Bytes of a line of the caches.
const LINE: usize = 64;

/// So many lines from the beginning: once a reader is there, the processor sees by itself where it goes on.
const LINES: usize = 8;

/// `bytes` will be read from their beginning on, within microseconds. Nothing waits for them.
#[inline]
pub fn read(bytes: &[u8]) {
    #[cfg(target_arch = "x86_64")]
    for line in bytes.chunks(LINE).take(LINES) {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: it is a hint, which reads nothing into the program, wherever it points.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(line.as_ptr().cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (bytes, LINE, LINES);
}
