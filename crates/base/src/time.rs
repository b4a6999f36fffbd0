//! Time as files carry it.

/// Seconds and nanoseconds since 1970-01-01 UTC, leap seconds not counted (POSIX).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time {
    /// Seconds; negative before 1970.
    pub seconds: i64,
    /// Nanoseconds, 0 to 999,999,999.
    pub nanos: u32,
}

impl Time {
    pub const EPOCH: Time = Time { seconds: 0, nanos: 0 };

    /// The time `nanos` nanoseconds after 1970; the range is 1677 to 2262.
    pub fn from_nanos(nanos: i64) -> Time {
        Time { seconds: nanos.div_euclid(1_000_000_000), nanos: nanos.rem_euclid(1_000_000_000) as u32 }
    }

    /// Whole milliseconds since 1970, saturating.
    pub fn as_millis(self) -> i64 {
        self.seconds.saturating_mul(1000).saturating_add(i64::from(self.nanos / 1_000_000))
    }
}
