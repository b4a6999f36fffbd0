//! Going before everything else on a core.

use std::sync::Once;

/// The calling thread is of real time as long as this lives, where that is allowed: it runs as soon as it wakes, and else at
/// the end of what runs, which may be some milliseconds. Processes it starts meanwhile would be of real time as well.
pub struct RealTime {
    /// What it is again at the end; `None`: it was of real time before, or is not allowed to be.
    before: Option<libc::c_int>,
}

impl RealTime {
    pub fn take() -> RealTime {
        // SAFETY: it takes no pointer.
        let before = unsafe { libc::sched_getscheduler(0) };
        if before == libc::SCHED_FIFO {
            return RealTime { before: None };
        }
        match schedule(libc::SCHED_FIFO, 1) {
            Ok(()) => RealTime { before: Some(before) },
            Err(error) => {
                static SAID: Once = Once::new();
                SAID.call_once(|| {
                    eprintln!(
                        "no real-time priority for the generator ({error}): its own waits for its core are measured"
                    )
                });
                RealTime { before: None }
            }
        }
    }
}

impl Drop for RealTime {
    fn drop(&mut self) {
        if let Some(policy) = self.before
            && let Err(error) = schedule(policy, 0)
        {
            eprintln!("the generator stays of real time: {error}");
        }
    }
}

fn schedule(policy: libc::c_int, priority: libc::c_int) -> std::io::Result<()> {
    let parameter = libc::sched_param { sched_priority: priority };
    // SAFETY: the parameter lives through the call, which only reads it.
    match unsafe { libc::sched_setscheduler(0, policy, &raw const parameter) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}
