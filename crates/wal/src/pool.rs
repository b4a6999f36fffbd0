//! Memory that is kept beyond what it was taken for, and counted for as long: of data that is read from where it was received,
//! whether it comes into the log or not.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use tarn_base::memory::Memory;

#[derive(Debug, Default)]
pub(crate) struct Pool {
    pub memory: Memory,
    /// Bytes that somebody keeps.
    held: AtomicUsize,
}

impl Pool {
    pub fn held(&self) -> usize {
        self.held.load(Ordering::Relaxed)
    }

    /// `bytes`, that lie in `size` bytes of memory, counted.
    pub fn keep(self: &Arc<Pool>, bytes: Bytes, size: usize) -> Bytes {
        Bytes::from_owner(Kept { bytes, _counted: Counted::new(size, self.clone()) })
    }
}

/// Counts memory for as long as it is there.
struct Counted {
    size: usize,
    pool: Arc<Pool>,
}

impl Counted {
    fn new(size: usize, pool: Arc<Pool>) -> Counted {
        pool.held.fetch_add(size, Ordering::Relaxed);
        Counted { size, pool }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.pool.held.fetch_sub(self.size, Ordering::Relaxed);
    }
}

struct Kept {
    bytes: Bytes,
    _counted: Counted,
}

impl AsRef<[u8]> for Kept {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}
