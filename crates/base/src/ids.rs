//! Numbers that name things, and how they are put together.

use std::fmt;

/// A volume: a file-system tree with its own inode space. 0 means "the whole shard" in keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VolumeId(pub u32);

/// An inode number: bit 63 zero, partition in 12 bits, number within it in 51 bits; never used again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ino(pub u64);

impl Ino {
    pub const NUMBER_BITS: u32 = 51;
    pub const NUMBER_MAX: u64 = (1 << Self::NUMBER_BITS) - 1;

    /// The inode `number` of `partition` (12 bits).
    pub fn new(partition: u16, number: u64) -> Ino {
        debug_assert!(partition < 4096 && number <= Self::NUMBER_MAX);
        Ino((u64::from(partition) << Self::NUMBER_BITS) | number)
    }

    pub fn partition(self) -> u16 {
        (self.0 >> Self::NUMBER_BITS) as u16 & 0xfff
    }

    pub fn number(self) -> u64 {
        self.0 & Self::NUMBER_MAX
    }
}

/// A place in the order of a shard's changes: incarnation (20 bits) and sequence (44 bits).
///
/// Counts entries. It is also an inode's change counter, so no value is ever given out twice.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position(pub u64);

impl Position {
    pub const SEQUENCE_BITS: u32 = 44;
    pub const SEQUENCE_MAX: u64 = (1 << Self::SEQUENCE_BITS) - 1;
    pub const INCARNATION_MAX: u32 = (1 << 20) - 1;
    pub const ZERO: Position = Position(0);

    pub fn new(incarnation: u32, sequence: u64) -> Position {
        debug_assert!(incarnation <= Self::INCARNATION_MAX && sequence <= Self::SEQUENCE_MAX);
        Position((u64::from(incarnation) << Self::SEQUENCE_BITS) | sequence)
    }

    pub fn incarnation(self) -> u32 {
        (self.0 >> Self::SEQUENCE_BITS) as u32
    }

    pub fn sequence(self) -> u64 {
        self.0 & Self::SEQUENCE_MAX
    }

    /// The position of the next entry of the same incarnation.
    pub fn next(self) -> Position {
        Position::new(self.incarnation(), self.sequence() + 1)
    }
}

impl fmt::Debug for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.incarnation(), self.sequence())
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// A segment's number: the owner epoch that drew it and a counter within that epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SegmentId {
    /// Owner epoch, counted at every opening for writing.
    pub epoch: u32,
    /// Counts up from 1 within the epoch.
    pub counter: u32,
}

impl fmt::Display for SegmentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}-{:08x}", self.epoch, self.counter)
    }
}

/// An identity drawn at random once: of a log, a bucket, a volume family.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Uuid(pub [u8; 16]);

impl fmt::Display for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&data_encoding::HEXLOWER.encode(&self.0))
    }
}

impl fmt::Debug for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_orders_by_incarnation_then_sequence() {
        assert!(Position::new(2, 0) > Position::new(1, Position::SEQUENCE_MAX));
        assert_eq!(Position::new(7, 9).next(), Position::new(7, 10));
        assert_eq!(Position::new(Position::INCARNATION_MAX, 5).sequence(), 5);
    }

    #[test]
    fn an_inode_keeps_partition_and_number_apart() {
        let ino = Ino::new(4095, Ino::NUMBER_MAX);
        assert_eq!((ino.partition(), ino.number()), (4095, Ino::NUMBER_MAX));
        assert_eq!(ino.0 >> 63, 0);
    }
}
