//! How fast background work may read and write.

use std::time::Duration;

use tarn_base::world::World;

/// Bytes at the beginning that nothing waits for.
const BURST: u64 = 64 << 20;
/// The part of the rate that is left beside changes that press.
const PRESSED_PART: u64 = 4;

/// Spreads bytes over time.
#[derive(Debug)]
pub struct Pace {
    world: World,
    /// Bytes per second; `None`: as fast as it goes.
    rate: Option<u64>,
    burst: u64,
}

impl Pace {
    /// As fast as it goes.
    pub fn free(world: &World) -> Pace {
        Pace { world: world.clone(), rate: None, burst: 0 }
    }

    /// `rate` bytes per second, after a first burst.
    pub fn limited(world: &World, rate: u64) -> Pace {
        Pace { world: world.clone(), rate: Some(rate.max(1)), burst: BURST }
    }

    /// Waits until `bytes` more may be moved; longer, and without a burst, where changes press.
    pub async fn take(&mut self, bytes: u64, pressed: bool) {
        let Some(rate) = self.rate else { return };
        let (rate, burst) = if pressed { (rate.div_ceil(PRESSED_PART), 0) } else { (rate, self.burst) };
        let free = burst.min(bytes);
        self.burst -= free;
        let rest = bytes - free;
        if rest > 0 {
            let micros = u128::from(rest) * 1_000_000 / u128::from(rate);
            self.world.clock.sleep(Duration::from_micros(micros as u64)).await;
        }
    }
}
