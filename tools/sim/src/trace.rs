//! The history as text, one line an event, and its digest.
//!
//! - The digest covers every line, whether it is printed or not: two runs with one digest did the same.

use std::fmt::Arguments;
use std::hash::Hasher;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tarn_base::world::Clock;

use crate::world::SimClock;

/// FNV-1a: stable over versions of the compiler.
struct Digest(u64);

impl Hasher for Digest {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// Where events go.
pub struct Trace {
    clock: Arc<SimClock>,
    print: bool,
    digest: Mutex<Digest>,
}

impl Trace {
    pub fn new(clock: Arc<SimClock>, print: bool) -> Trace {
        Trace { clock, print, digest: Mutex::new(Digest(0xcbf2_9ce4_8422_2325)) }
    }

    pub fn event(&self, who: &str, what: Arguments<'_>) {
        let line = format!("{} {who:<9} {what}", stamp(self.clock.steady()));
        let mut digest = self.digest.lock();
        digest.write(line.as_bytes());
        digest.write_u8(b'\n');
        if self.print {
            println!("{line}");
        }
    }

    pub fn digest(&self) -> u64 {
        self.digest.lock().finish()
    }
}

fn stamp(at: Duration) -> String {
    format!("{:>9.3}s", at.as_secs_f64())
}
