//! A small generator (xorshift64*): the seed decides everything.

pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// From 0 to `limit - 1`.
    pub fn below(&mut self, limit: u64) -> u64 {
        (self.next() >> 11) % limit.max(1)
    }

    pub fn bytes(&mut self, size: usize) -> Vec<u8> {
        let mut bytes: Vec<u8> = (0..size.div_ceil(8)).flat_map(|_| self.next().to_le_bytes()).collect();
        bytes.truncate(size);
        bytes
    }

    /// Bytes that a path may have: none is zero.
    pub fn path(&mut self, size: usize) -> Vec<u8> {
        self.bytes(size).into_iter().map(|byte| byte.max(1)).collect()
    }
}

/// A seed that no earlier run had.
pub fn seed() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    now.as_nanos() as u64 ^ u64::from(std::process::id()) << 40
}
