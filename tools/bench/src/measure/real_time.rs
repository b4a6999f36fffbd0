//! Going before everything else on a core.

use std::marker::PhantomData;
use std::sync::Once;

/// The calling thread is of real time as long as this lives, where that is allowed: it runs as soon as it wakes, and else at
/// the end of what runs, which may be some milliseconds. Threads and processes that it starts meanwhile are of real time too.
pub struct RealTime {
    /// It was an ordinary thread before, and is one again at the end.
    taken: bool,
    /// It belongs to its thread.
    _thread: PhantomData<*const ()>,
}

impl RealTime {
    pub fn take() -> RealTime {
        // SAFETY: it takes no pointer.
        let ordinary = unsafe { libc::sched_getscheduler(0) } == libc::SCHED_OTHER;
        let taken = ordinary
            && schedule(libc::SCHED_FIFO, 1)
                .inspect_err(|error| {
                    static SAID: Once = Once::new();
                    SAID.call_once(|| {
                        eprintln!(
                            "no real-time priority for the generator ({error}): its own waits for its core are measured"
                        )
                    });
                })
                .is_ok();
        RealTime { taken, _thread: PhantomData }
    }

    /// What it is for an open loop of this process, for a report.
    pub fn words() -> &'static str {
        if RealTime::take().taken { "Open loops of real time." } else { "Open loops of no real time." }
    }
}

impl Drop for RealTime {
    fn drop(&mut self) {
        if self.taken
            && let Err(error) = schedule(libc::SCHED_OTHER, 0)
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
