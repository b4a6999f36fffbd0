//! How long a thread runs before another that has woken on its core: the slice that Linux gives it.
//!
//! - What a client waits for - the serving threads, the log's - has the shortest slice there is, so that it runs as soon as it
//!   wakes, whatever else runs. It gets no larger share of the core by that.
//! - Kernels before 6.12 have one slice for all, and take no notice.

/// The shortest slice of a thread, ns.
const SHORTEST: u64 = 100_000;

/// `struct sched_attr` of sched_setattr(2), its first version.
#[repr(C)]
struct Attributes {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    runtime: u64,
    deadline: u64,
    period: u64,
}

/// Gives the calling thread the shortest slice. That it cannot be had is no error.
pub fn shorten() {
    let nice = rustix::process::getpriority_process(None).unwrap_or(0);
    let size = std::mem::size_of::<Attributes>() as u32;
    let attributes =
        Attributes { size, policy: 0, flags: 0, nice, priority: 0, runtime: SHORTEST, deadline: 0, period: 0 };
    // SAFETY: the structure lives through the call, says its own size, and the call only reads it.
    let result = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) };
    if result != 0 {
        tracing::debug!("threads keep the usual slice: {}", std::io::Error::last_os_error());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_slice_changes_nothing_else() {
        shorten();
        assert_eq!(rustix::process::getpriority_process(None).unwrap(), 0);
        assert_eq!(unsafe { libc::sched_getscheduler(0) }, libc::SCHED_OTHER);
    }
}
