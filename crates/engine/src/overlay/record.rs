//! The dirty bytes of one record within one generation.

use bytes::Bytes;
use tarn_wal::LogPlace;

/// Where dirty bytes are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    Ram(Bytes),
    /// Only in the log, to be read back.
    Log(LogPlace),
    Zero,
}

impl Source {
    /// The part from `skip` on, `len` bytes long.
    fn slice(&self, skip: u32, len: u32) -> Source {
        match self {
            Source::Ram(bytes) => Source::Ram(bytes.slice(skip as usize..(skip + len) as usize)),
            Source::Log(place) => Source::Log(LogPlace { frame: place.frame, start: place.start + skip, len }),
            Source::Zero => Source::Zero,
        }
    }
}

/// Dirty bytes `start..end` of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Extent {
    pub start: u32,
    pub end: u32,
    pub source: Source,
}

impl Extent {
    /// The part of it within `start..end`.
    pub fn clip(&self, start: u32, end: u32) -> Option<Extent> {
        let (from, to) = (self.start.max(start), self.end.min(end));
        (from < to).then(|| Extent { start: from, end: to, source: self.source.slice(from - self.start, to - from) })
    }

    fn ram_bytes(&self) -> u64 {
        match &self.source {
            Source::Ram(bytes) => bytes.len() as u64,
            Source::Log(_) | Source::Zero => 0,
        }
    }
}

/// Extents in order, without overlap. What lies between them is older.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DirtyRecord {
    /// Map generation it was written in.
    pub generation: u32,
    /// It was charged when it was written here: nothing older holds the charge.
    pub new: bool,
    pub extents: Vec<Extent>,
}

impl DirtyRecord {
    /// Puts `extent` over what is there; the newest bytes win. Gives the change of bytes held in RAM.
    pub fn write(&mut self, extent: Extent) -> i64 {
        let before = self.ram_bytes() as i64;
        if self.extents.last().is_none_or(|last| last.end <= extent.start) {
            self.extents.push(extent);
        } else {
            let mut out = Vec::with_capacity(self.extents.len() + 2);
            out.extend(self.extents.iter().filter_map(|old| old.clip(0, extent.start)));
            let end = extent.end;
            out.push(extent);
            out.extend(self.extents.iter().filter_map(|old| old.clip(end, u32::MAX)));
            self.extents = out;
        }
        self.ram_bytes() as i64 - before
    }

    /// Whether every byte of a record of `len` bytes is here.
    pub fn covers(&self, len: u32) -> bool {
        let mut at = 0;
        for extent in &self.extents {
            if extent.start > at {
                break;
            }
            at = extent.end;
        }
        at >= len
    }

    pub fn ram_bytes(&self) -> u64 {
        self.extents.iter().map(Extent::ram_bytes).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ram(start: u32, bytes: &'static [u8]) -> Extent {
        Extent { start, end: start + bytes.len() as u32, source: Source::Ram(Bytes::from_static(bytes)) }
    }

    #[test]
    fn the_newest_bytes_win_and_older_ones_stay_around_them() {
        let mut record = DirtyRecord::default();
        assert_eq!(record.write(ram(0, b"aaaaaaaa")), 8);
        assert_eq!(record.write(ram(2, b"bb")), 0);
        assert_eq!(record.extents, [ram(0, b"aa"), ram(2, b"bb"), ram(4, b"aaaa")]);
        assert!(record.covers(8) && !record.covers(9));
        record.write(Extent { start: 1, end: 6, source: Source::Zero });
        assert_eq!(record.ram_bytes(), 3);
        record.write(ram(20, b"c"));
        assert!(record.covers(8) && !record.covers(21));
    }
}
