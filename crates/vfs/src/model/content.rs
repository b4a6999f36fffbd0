//! The bytes of a file: records that hold data, and holes.
//!
//! - A record is never longer than the record size and ends at its last written byte; the rest reads as zeros.
//! - Records are shared between copies of the model until one changes them.

use std::collections::BTreeMap;
use std::sync::Arc;

/// The records of one file, by number.
#[derive(Clone, Debug)]
pub(super) struct Records {
    record_size: u64,
    records: BTreeMap<u64, Arc<Vec<u8>>>,
}

impl Records {
    pub fn new(record_size: u32) -> Records {
        Records { record_size: u64::from(record_size), records: BTreeMap::new() }
    }

    /// Bytes charged for the file.
    pub fn used(&self) -> u64 {
        self.records.len() as u64 * self.record_size
    }

    /// Bytes that a write would charge in addition.
    pub fn cost(&self, offset: u64, count: u64) -> u64 {
        if count == 0 {
            return 0;
        }
        let numbers = offset / self.record_size..=(offset + count - 1) / self.record_size;
        numbers.filter(|number| !self.records.contains_key(number)).count() as u64 * self.record_size
    }

    pub fn write(&mut self, offset: u64, data: &[u8]) {
        let (mut at, mut rest) = (offset, data);
        while !rest.is_empty() {
            let within = (at % self.record_size) as usize;
            let (piece, after) = rest.split_at(rest.len().min(self.record_size as usize - within));
            let record = Arc::make_mut(self.records.entry(at / self.record_size).or_default());
            if record.len() < within + piece.len() {
                record.resize(within + piece.len(), 0);
            }
            record[within..within + piece.len()].copy_from_slice(piece);
            at += piece.len() as u64;
            rest = after;
        }
    }

    pub fn read(&self, offset: u64, count: usize) -> Vec<u8> {
        let mut out = vec![0; count];
        if count == 0 {
            return out;
        }
        let numbers = offset / self.record_size..=(offset + count as u64 - 1) / self.record_size;
        for (number, record) in self.records.range(numbers) {
            let start = number * self.record_size;
            let from = offset.max(start);
            let to = (offset + count as u64).min(start + record.len() as u64);
            if from < to {
                let source = &record[(from - start) as usize..(to - start) as usize];
                out[(from - offset) as usize..(to - offset) as usize].copy_from_slice(source);
            }
        }
        out
    }

    /// Nothing is left at `size` or beyond it.
    pub fn truncate(&mut self, size: u64) {
        self.records.split_off(&size.div_ceil(self.record_size));
        if let Some(record) = self.records.get_mut(&(size / self.record_size)) {
            Arc::make_mut(record).truncate((size % self.record_size) as usize);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holes_and_what_was_cut_off_read_as_zeros() {
        let mut records = Records::new(4);
        records.write(3, b"abcdef");
        assert_eq!(records.read(2, 8), b"\0abcdef\0");
        assert_eq!((records.used(), records.cost(0, 20)), (12, 8));
        records.truncate(5);
        records.write(12, b"x");
        assert_eq!(records.read(0, 13), b"\0\0\0ab\0\0\0\0\0\0\0x");
        records.truncate(0);
        assert_eq!(records.used(), 0);
    }
}
