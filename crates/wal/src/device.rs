//! The medium under the log: positional, synchronous.
//!
//! - A write is durable only after a later `flush` returned without error.
//! - Reads see what was written, flushed or not.
//! - An error of `flush` is final: what was written since the last good one may be lost, whatever a later call says.

use std::io;

use parking_lot::RwLock;

/// A fixed number of bytes that survive, once flushed.
pub trait LogDevice: Send + Sync {
    /// Size in bytes, fixed for the device's life.
    fn size(&self) -> u64;
    /// Fills `buf` from `at`. All of the range lies within the device, else an error.
    fn read(&self, at: u64, buf: &mut [u8]) -> io::Result<()>;
    /// Writes `data` at `at`, all of it within the device; durable only after [`LogDevice::flush`].
    fn write(&self, at: u64, data: &[u8]) -> io::Result<()>;
    /// Makes everything written before this call durable.
    fn flush(&self) -> io::Result<()>;
    /// How messages name it: a path.
    fn name(&self) -> String;
    /// Whether what is written from now on will be read back soon. Only speed hangs on it.
    fn expect_reads(&self, _soon: bool) {}
    /// `len` bytes from `at` on, all within the device, are read next. Only speed hangs on it.
    fn read_ahead(&self, _at: u64, _len: u64) {}
}

/// Bytes in memory; survives nothing. For tests.
#[derive(Debug)]
pub struct MemDevice {
    bytes: RwLock<Vec<u8>>,
}

impl MemDevice {
    /// A device of `size` zero bytes.
    pub fn new(size: u64) -> MemDevice {
        MemDevice { bytes: RwLock::new(vec![0; size as usize]) }
    }
}

/// The range of `len` bytes from `at`, if it lies within `size`.
pub(crate) fn range_within(at: u64, len: usize, size: u64) -> io::Result<std::ops::Range<usize>> {
    match at.checked_add(len as u64) {
        Some(end) if end <= size => Ok(at as usize..end as usize),
        _ => Err(io::Error::new(io::ErrorKind::InvalidInput, "outside the device")),
    }
}

impl LogDevice for MemDevice {
    fn size(&self) -> u64 {
        self.bytes.read().len() as u64
    }

    fn read(&self, at: u64, buf: &mut [u8]) -> io::Result<()> {
        let bytes = self.bytes.read();
        let range = range_within(at, buf.len(), bytes.len() as u64)?;
        buf.copy_from_slice(&bytes[range]);
        Ok(())
    }

    fn write(&self, at: u64, data: &[u8]) -> io::Result<()> {
        let mut bytes = self.bytes.write();
        let range = range_within(at, data.len(), bytes.len() as u64)?;
        bytes[range].copy_from_slice(data);
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }

    fn name(&self) -> String {
        "memory".to_owned()
    }
}
