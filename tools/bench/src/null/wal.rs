//! The null server's log: records gathered, written with one pwrite to a file written before, then fdatasync.
//!
//! - The file is a ring, and nobody reads it: it is there to cost what a log costs.

use crate::Outcome;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;

const SIZE: u64 = 256 << 20;

pub struct Wal {
    file: File,
    gathered: Vec<u8>,
    at: u64,
}

impl Wal {
    /// Makes the file and fills it.
    pub fn open(path: &Path) -> Outcome<Wal> {
        let make = || -> std::io::Result<File> {
            let file = OpenOptions::new().create(true).truncate(true).write(true).open(path)?;
            let zeros = vec![0; 1 << 20];
            for offset in (0..SIZE).step_by(zeros.len()) {
                file.write_all_at(&zeros, offset)?;
            }
            file.sync_all()?;
            Ok(file)
        };
        let file = make().map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(Wal { file, gathered: Vec::new(), at: 0 })
    }

    /// Adds a record behind a header of 32 bytes, as a log would.
    pub fn append(&mut self, record: &[u8]) -> Outcome<()> {
        if (self.gathered.len() + 32 + record.len()) as u64 > SIZE / 2 {
            self.flush()?;
        }
        let size = record.len() as u64;
        self.gathered.extend_from_slice(&[size, self.at, !size, !self.at].map(u64::to_le_bytes).concat());
        self.gathered.extend_from_slice(record);
        Ok(())
    }

    /// Makes everything appended durable.
    pub fn flush(&mut self) -> Outcome<()> {
        if self.gathered.is_empty() {
            return Ok(());
        }
        if self.at + self.gathered.len() as u64 > SIZE {
            self.at = 0;
        }
        let written = self.file.write_all_at(&self.gathered, self.at).and_then(|()| self.file.sync_data());
        self.at += self.gathered.len() as u64;
        self.gathered.clear();
        written.map_err(|error| format!("the null server's log: {error}"))
    }
}
