//! How far a run is, on a terminal: a bar that is drawn over itself on standard error, and nothing where there is none.

use crate::drive::reactor::Reactor;
use std::cell::Cell;
use std::io::{IsTerminal, Write};
use std::rc::Rc;
use std::time::{Duration, Instant};

const WIDTH: usize = 24;
/// Between two drawings: seldom enough that it costs the load nothing.
const EVERY: Duration = Duration::from_millis(250);

/// Draws, if standard error is a terminal.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    on: bool,
}

impl Progress {
    pub fn of_terminal() -> Progress {
        Progress { on: std::io::stderr().is_terminal() }
    }

    /// Draws nothing.
    pub fn none() -> Progress {
        Progress { on: false }
    }

    /// Follows the time from `begin` to `end`.
    pub fn follow_time(self, reactor: &Reactor, name: &str, (begin, end): (Instant, Instant)) {
        let whole = end.saturating_duration_since(begin).as_secs_f64();
        let name = name.to_owned();
        let share = move || begin.elapsed().as_secs_f64() / whole.max(0.001);
        self.follow(reactor, share, move |share| format!("{name}, {:.0} s left", whole * (1.0 - share)));
    }

    /// Follows bytes up to `total`.
    pub fn follow_bytes(self, reactor: &Reactor, name: &str, done: Rc<Cell<u64>>, total: u64) {
        let name = name.to_owned();
        let share = move || done.get() as f64 / total.max(1) as f64;
        self.follow(reactor, share, move |_| format!("{name} of {:.0} MB", total as f64 / 1e6));
    }

    fn follow(self, reactor: &Reactor, share: impl Fn() -> f64 + 'static, text: impl Fn(f64) -> String + 'static) {
        if !self.on {
            return;
        }
        let reactor_of_task = reactor.clone();
        reactor.spawn_beside(async move {
            while !reactor_of_task.stopping() {
                let share = share().clamp(0.0, 1.0);
                eprint!("\r\x1b[K{} {}", bar(share), text(share));
                reactor_of_task.sleep_until(Instant::now() + EVERY).await;
            }
        });
    }

    /// What is printed next begins on an empty line.
    pub fn end(self) {
        if self.on {
            eprint!("\r\x1b[K");
            let _ = std::io::stderr().flush();
        }
    }
}

fn bar(share: f64) -> String {
    let full = (share.clamp(0.0, 1.0) * WIDTH as f64) as usize;
    format!("[{}{}] {:>3.0} %", "#".repeat(full), "-".repeat(WIDTH - full), share * 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_grows() {
        assert_eq!(bar(0.0), format!("[{}]   0 %", "-".repeat(24)));
        assert_eq!(bar(0.5), format!("[{}{}]  50 %", "#".repeat(12), "-".repeat(12)));
        assert_eq!(bar(1.0), format!("[{}] 100 %", "#".repeat(24)));
    }
}
