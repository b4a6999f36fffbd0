//! How soon a core wakes. In a virtual machine a halt is the host's to end, and one that ends late is counted nowhere: not as the
//! host's time, not as a server's. So a thread that does nothing but sleep says what a wait may meet.

use std::num::NonZeroU64;
use std::time::{Duration, Instant};

use rustix::thread::set_current_timer_slack;

use crate::Outcome;
use crate::measure::{RealTime, cpu};

/// About what an open loop rests, and what lies between two calls of a busy server.
const SLEEP: Duration = Duration::from_micros(20);
/// A sleep of so long ended late.
const LATE: Duration = Duration::from_micros(500);
const LENGTH: Duration = Duration::from_secs(2);

/// What a thread saw that slept again and again.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sleeper {
    /// Sleeps that ended late, of a second.
    late: f64,
    /// The share of the time that these had.
    lost: f64,
}

impl Sleeper {
    /// Sleeps on this core for two seconds.
    pub fn on(core: usize) -> Outcome<Sleeper> {
        let slept = || {
            cpu::pin(core)?;
            let _real_time = RealTime::take();
            set_current_timer_slack(Some(NonZeroU64::MIN)).map_err(|error| error.to_string())?;
            let started = Instant::now();
            Ok(Sleeper::of(std::iter::from_fn(|| {
                let began = Instant::now();
                (started.elapsed() < LENGTH).then(|| {
                    std::thread::sleep(SLEEP);
                    began.elapsed()
                })
            })))
        };
        // A thread of its own: the others stay where they are.
        std::thread::scope(|scope| scope.spawn(slept).join()).map_err(|_| "a sleeping thread panicked".to_owned())?
    }

    fn of(sleeps: impl Iterator<Item = Duration>) -> Sleeper {
        let (mut all, mut lost, mut late) = (Duration::ZERO, Duration::ZERO, 0);
        for sleep in sleeps {
            all += sleep;
            if sleep >= LATE {
                lost += sleep;
                late += 1;
            }
        }
        let seconds = all.as_secs_f64().max(f64::MIN_POSITIVE);
        Sleeper { late: f64::from(late) / seconds, lost: lost.as_secs_f64() / seconds }
    }

    pub fn words(&self, core: usize) -> String {
        format!("on core {core} {:.1} times a second, which took {:.2} % of the time", self.late, self.lost * 100.0)
    }
}

/// What stands in a report of the cores that are measured on; nothing of none.
pub fn words(cores: &[usize]) -> Outcome<String> {
    let told = cores.iter().map(|core| Ok(Sleeper::on(*core)?.words(*core))).collect::<Outcome<Vec<String>>>()?;
    Ok(match told.is_empty() {
        true => String::new(),
        false => format!(
            "Before the servers started, a thread that only slept, for {} us at a time in {} s, slept for {} us and more {}.\n",
            SLEEP.as_micros(),
            LENGTH.as_secs(),
            LATE.as_micros(),
            told.join("; "),
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sleep_that_ends_late_is_lost_whole() {
        let sleeper = Sleeper::of(
            [Duration::from_micros(500), Duration::from_micros(499), Duration::from_micros(9001)].into_iter(),
        );
        assert_eq!(sleeper.words(1), "on core 1 200.0 times a second, which took 95.01 % of the time");
        assert_eq!(Sleeper::of(std::iter::empty()), Sleeper { late: 0.0, lost: 0.0 });
    }
}
