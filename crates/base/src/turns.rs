//! Giving way amid work on much data, so that whoever serves on the same core does not wait for a tick of the clock.
//!
//! Not after every record: each time others may run for as long as they like, and a checkpoint of many small records would
//! hardly go on beside a busy client.

/// Bytes worked on between two times: some hundred microseconds of hashing, compressing and sealing.
const BYTES: usize = 512 << 10;

/// What has been worked on since the last time.
#[derive(Debug, Default)]
pub struct Turns(usize);

impl Turns {
    /// Notes work on `bytes`; gives way when it has come to enough.
    pub fn worked(&mut self, bytes: usize) {
        self.0 += bytes;
        if self.0 >= BYTES {
            self.0 = 0;
            std::thread::yield_now();
        }
    }
}
