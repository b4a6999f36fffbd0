//! A disk that behaves as badly as disks may: it loses, tears and reorders what was not flushed.
//!
//! - One seed decides everything; the same calls give the same disk.
//! - What was flushed stays. Of what was not, a power cut keeps any subset of sectors, in any order.
//! - A device handle belongs to one time of power: after a cut it fails, and a new one is taken.

use std::io;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::device::{LogDevice, range_within};

/// What a disk writes whole or not at all, bytes.
pub const SECTOR_SIZE: usize = 512;

/// The disk itself; it outlives power cuts.
#[derive(Clone)]
pub struct FaultyDisk {
    inner: Arc<Mutex<Inner>>,
}

struct Inner {
    /// What survives.
    durable: Vec<u8>,
    /// What a reader sees.
    current: Vec<u8>,
    /// Sectors written since the last flush, in order: (sector, bytes).
    pending: Vec<(usize, [u8; SECTOR_SIZE])>,
    powered: u64,
    state: u64,
    /// Power goes before this many further writes or flushes, if set.
    cut_after: Option<u64>,
    fail_flush: bool,
    fail_write: bool,
    /// Every write and flush fails until the power goes.
    broken: bool,
    operations: u64,
}

impl FaultyDisk {
    /// A disk of `size` zero bytes, a multiple of the sector's.
    pub fn new(size: u64, seed: u64) -> FaultyDisk {
        FaultyDisk::with_image(vec![0; (size as usize).next_multiple_of(SECTOR_SIZE)], seed)
    }

    /// A disk that holds `image`.
    pub fn with_image(image: Vec<u8>, seed: u64) -> FaultyDisk {
        assert!(image.len().is_multiple_of(SECTOR_SIZE));
        let inner = Inner {
            current: image.clone(),
            durable: image,
            pending: Vec::new(),
            powered: 0,
            state: seed,
            cut_after: None,
            fail_flush: false,
            fail_write: false,
            broken: false,
            operations: 0,
        };
        FaultyDisk { inner: Arc::new(Mutex::new(inner)) }
    }

    /// The disk as a device, until the next power cut.
    pub fn device(&self) -> Arc<dyn LogDevice> {
        let powered = self.inner.lock().powered;
        Arc::new(FaultyDevice { disk: self.clone(), powered })
    }

    /// Cuts the power and restores it: some of what was not flushed is gone, all handles fail.
    pub fn crash(&self) {
        self.inner.lock().cut();
    }

    /// Power goes by itself before the `operations`th further write or flush; a write so hit may be torn.
    pub fn cut_power_after(&self, operations: u64) {
        self.inner.lock().cut_after = Some(operations);
    }

    /// Writes and flushes so far.
    pub fn operations(&self) -> u64 {
        self.inner.lock().operations
    }

    /// The next flush fails, as on Linux: what it should have made durable is seen by readers until the power goes
    /// and is lost then, whatever later flushes say - unless it is written again.
    pub fn fail_next_flush(&self) {
        self.inner.lock().fail_flush = true;
    }

    /// The next write fails and writes nothing.
    pub fn fail_next_write(&self) {
        self.inner.lock().fail_write = true;
    }

    /// Every write and flush fails from now on; the next time of power finds a good device with the same content.
    pub fn break_down(&self) {
        self.inner.lock().broken = true;
    }

    /// Damages the medium: flips `mask` in the byte at `at`.
    pub fn flip(&self, at: u64, mask: u8) {
        let mut inner = self.inner.lock();
        inner.durable[at as usize] ^= mask;
        inner.current[at as usize] ^= mask;
    }

    /// What a reader would see now.
    pub fn image(&self) -> Vec<u8> {
        self.inner.lock().current.clone()
    }
}

impl Inner {
    /// SplitMix64.
    fn random(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn cut(&mut self) {
        let mut pending = std::mem::take(&mut self.pending);
        // One sector in so many survives: none, all, or something between.
        let chance = match self.random() % 4 {
            0 => 0,
            1 => 1000,
            _ => self.random() % 1000,
        };
        // A prefix arrived in order, say, and the rest in any: overlapping writes may end up either way round.
        for at in (1..pending.len()).rev() {
            let other = (self.random() % (at as u64 + 1)) as usize;
            if self.random().is_multiple_of(4) {
                pending.swap(at, other);
            }
        }
        for (sector, bytes) in pending {
            if self.random() % 1000 < chance {
                self.durable[sector * SECTOR_SIZE..][..SECTOR_SIZE].copy_from_slice(&bytes);
            }
        }
        self.current = self.durable.clone();
        self.powered += 1;
        self.cut_after = None;
        self.fail_flush = false;
        self.fail_write = false;
        self.broken = false;
    }

    /// Counts an operation; true if the power goes now.
    fn hit(&mut self) -> bool {
        self.operations += 1;
        match &mut self.cut_after {
            Some(0) => true,
            Some(left) => {
                *left -= 1;
                false
            }
            None => false,
        }
    }

    fn write(&mut self, range: std::ops::Range<usize>, data: &[u8]) {
        let (first, last) = (range.start / SECTOR_SIZE, range.end.div_ceil(SECTOR_SIZE));
        self.current[range].copy_from_slice(data);
        for sector in first..last {
            let mut bytes = [0; SECTOR_SIZE];
            bytes.copy_from_slice(&self.current[sector * SECTOR_SIZE..][..SECTOR_SIZE]);
            self.pending.push((sector, bytes));
        }
    }
}

struct FaultyDevice {
    disk: FaultyDisk,
    powered: u64,
}

impl FaultyDevice {
    fn with<T>(&self, work: impl FnOnce(&mut Inner) -> io::Result<T>) -> io::Result<T> {
        let mut inner = self.disk.inner.lock();
        if inner.powered != self.powered {
            return Err(io::Error::other("the power is off"));
        }
        work(&mut inner)
    }
}

impl LogDevice for FaultyDevice {
    fn size(&self) -> u64 {
        self.disk.inner.lock().current.len() as u64
    }

    fn read(&self, at: u64, buf: &mut [u8]) -> io::Result<()> {
        self.with(|inner| {
            let range = range_within(at, buf.len(), inner.current.len() as u64)?;
            buf.copy_from_slice(&inner.current[range]);
            Ok(())
        })
    }

    fn write(&self, at: u64, data: &[u8]) -> io::Result<()> {
        self.with(|inner| {
            let range = range_within(at, data.len(), inner.current.len() as u64)?;
            if std::mem::take(&mut inner.fail_write) || inner.broken {
                return Err(io::Error::other("a write failed, as asked"));
            }
            let cut = inner.hit();
            inner.write(range, data);
            if cut {
                inner.cut();
                return Err(io::Error::other("the power went"));
            }
            Ok(())
        })
    }

    fn flush(&self) -> io::Result<()> {
        self.with(|inner| {
            if inner.hit() {
                inner.cut();
                return Err(io::Error::other("the power went"));
            }
            if std::mem::take(&mut inner.fail_flush) || inner.broken {
                inner.pending.clear();
                return Err(io::Error::other("a flush failed, as asked"));
            }
            for (sector, bytes) in std::mem::take(&mut inner.pending) {
                inner.durable[sector * SECTOR_SIZE..][..SECTOR_SIZE].copy_from_slice(&bytes);
            }
            Ok(())
        })
    }

    fn name(&self) -> String {
        "a simulated disk".to_owned()
    }
}
