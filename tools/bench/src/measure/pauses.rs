//! What keeps a core from the thread that runs on it: the host, interrupts, the kernel's own threads, other programs. An open
//! loop at half load pays each pause twice, since it takes as long again until what came meanwhile is answered.

use std::collections::BTreeMap;
use std::fs;
use std::time::{Duration, Instant};

use crate::Outcome;
use crate::measure::cpu;

/// Between two readings so far apart the thread did not run.
const PAUSE: Duration = Duration::from_micros(100);
const LENGTH: Duration = Duration::from_secs(4);
/// How many of the threads that ran most are named.
const NAMED: usize = 3;

/// What a thread saw that only read the clock.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Pauses {
    /// The share of the time that pauses had.
    lost: f64,
    longest: Duration,
}

impl Pauses {
    /// Reads the clock on this core.
    fn on(core: usize) -> Outcome<Pauses> {
        cpu::pin(core)?;
        let started = Instant::now();
        Ok(Pauses::of(Pauses::readings(|| started.elapsed())))
    }

    /// Readings of this clock up to the first at the end or past it, which a pause may have made late.
    fn readings(mut clock: impl FnMut() -> Duration) -> impl Iterator<Item = Duration> {
        let mut last = Duration::ZERO;
        std::iter::from_fn(move || {
            (last < LENGTH).then(|| {
                last = clock();
                last
            })
        })
    }

    /// Of readings, one after the other.
    fn of(readings: impl Iterator<Item = Duration>) -> Pauses {
        let (mut last, mut lost, mut longest) = (Duration::ZERO, Duration::ZERO, Duration::ZERO);
        for now in readings {
            let pause = now - last;
            if pause >= PAUSE {
                lost += pause;
                longest = longest.max(pause);
            }
            last = now;
        }
        Pauses { lost: lost.as_secs_f64() / last.as_secs_f64().max(f64::MIN_POSITIVE), longest }
    }

    fn words(&self, core: usize) -> String {
        let longest = self.longest.as_secs_f64() * 1e3;
        format!("on core {core} {:.2} % of the time, the longest {longest:.1} ms", self.lost * 100.0)
    }
}

/// How long each thread of the machine has run, but this process's, by its number. Kernel threads have their names; programs'
/// go by one, since reports are published.
#[derive(Debug, Default)]
struct Threads(BTreeMap<u32, (String, Duration)>);

impl Threads {
    fn now() -> Threads {
        let numbers = |path: &str| {
            let entries = fs::read_dir(path).into_iter().flatten().flatten();
            entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect::<Vec<u32>>()
        };
        let of_process = |process: &u32| {
            let tasks = format!("/proc/{process}/task");
            let is_program = fs::read(format!("/proc/{process}/cmdline")).is_ok_and(|line| !line.is_empty());
            numbers(&tasks).into_iter().filter_map(move |thread| {
                let name = match is_program {
                    true => "programs".to_owned(),
                    false => fs::read_to_string(format!("{tasks}/{thread}/comm")).ok()?,
                };
                let ran = fs::read_to_string(format!("{tasks}/{thread}/schedstat")).ok()?;
                Some((thread, (name.trim().to_owned(), ran_for(&ran)?)))
            })
        };
        let others = numbers("/proc").into_iter().filter(|process| *process != std::process::id());
        Threads(others.collect::<Vec<u32>>().iter().flat_map(of_process).collect())
    }

    /// Who of those that are here ran since `before`, for what part of `length`; nothing where the kernel does not tell.
    fn words_since(&self, before: &Threads, length: Duration) -> String {
        let mut ran: BTreeMap<&str, Duration> = BTreeMap::new();
        for (number, (name, now)) in &self.0 {
            // By number alone: a kernel thread is named after what it works on now.
            let then = before.0.get(number).map_or(Duration::ZERO, |(_, then)| *then);
            *ran.entry(name).or_default() += now.saturating_sub(then);
        }
        let all: Duration = ran.values().sum();
        if all.is_zero() {
            return String::new();
        }
        let percent = |time: Duration| time.as_secs_f64() / length.as_secs_f64() * 100.0;
        let mut most: Vec<(&str, Duration)> = ran.into_iter().filter(|(_, time)| !time.is_zero()).collect();
        most.sort_by_key(|(_, time)| std::cmp::Reverse(*time));
        let named: Vec<String> =
            most.iter().take(NAMED).map(|(name, time)| format!("{name} {:.2}", percent(*time))).collect();
        let all = percent(all);
        format!(" Other threads of the machine ran meanwhile for {all:.2} % of a core's time: {}.", named.join(", "))
    }
}

/// The first number of a thread's schedstat: nanoseconds on a core.
fn ran_for(schedstat: &str) -> Option<Duration> {
    Some(Duration::from_nanos(schedstat.split_ascii_whitespace().next()?.parse().ok()?))
}

/// What stands in a report of the cores that are measured on, all of them busy at once; nothing of none.
pub fn words(cores: &[usize]) -> Outcome<String> {
    if cores.is_empty() {
        return Ok(String::new());
    }
    let before = Threads::now();
    let began = Instant::now();
    // Threads of their own: the others stay where they are.
    let seen = std::thread::scope(|scope| {
        let threads: Vec<_> = cores.iter().map(|core| scope.spawn(|| Pauses::on(*core))).collect();
        let joined =
            threads.into_iter().map(|thread| thread.join().map_err(|_| "a thread that read the clock panicked")?);
        joined.collect::<Outcome<Vec<Pauses>>>()
    })?;
    let told: Vec<String> = seen.iter().zip(cores).map(|(pauses, core)| pauses.words(*core)).collect();
    Ok(format!(
        "A thread on each, all at once, that only read the clock for {} s, met pauses of {} us and more: {}.{}\n",
        LENGTH.as_secs(),
        PAUSE.as_micros(),
        told.join("; "),
        Threads::now().words_since(&before, began.elapsed()),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_is_lost_whole_and_a_short_one_is_none() {
        let pauses = Pauses::of([50, 149, 249, 2249, 2300, 4000, 10000].into_iter().map(Duration::from_micros));
        assert_eq!(pauses.words(1), "on core 1 98.00 % of the time, the longest 6.0 ms");
        assert_eq!(Pauses::of(std::iter::empty()), Pauses { lost: 0.0, longest: Duration::ZERO });
    }

    #[test]
    fn a_pause_beyond_the_end_is_seen() {
        let mut clock = [1, 3990, 4020, 4021].into_iter().map(Duration::from_millis);
        let readings: Vec<Duration> = Pauses::readings(|| clock.next().expect("a reading")).collect();
        assert_eq!(readings, [1, 3990, 4020].map(Duration::from_millis));
    }

    #[test]
    fn this_process_is_not_among_the_others_and_nothing_is_told_of_no_core() {
        assert!(!Threads::now().0.contains_key(&std::process::id()));
        assert_eq!(words(&[]), Ok(String::new()));
    }

    fn threads(ran: &[(u32, &str, u64)]) -> Threads {
        let thread =
            |(number, name, ms): &(u32, &str, u64)| (*number, ((*name).to_owned(), Duration::from_millis(*ms)));
        Threads(ran.iter().map(thread).collect())
    }

    #[test]
    fn those_that_ran_most_are_named_and_all_are_counted() {
        let before = threads(&[
            (1, "agent", 500),
            (2, "agent", 100),
            (3, "gone", 9),
            (4, "idle", 7),
            (5, "worker-a", 90),
            (8, "old", 50),
        ]);
        let after = threads(&[
            (1, "agent", 510),
            (2, "agent", 120),
            (4, "idle", 7),
            (5, "worker-b", 98),
            (6, "watcher", 40),
            (7, "flusher", 2),
            (8, "its number used again", 1),
        ]);
        assert_eq!(
            after.words_since(&before, Duration::from_secs(2)),
            " Other threads of the machine ran meanwhile for 4.00 % of a core's time: watcher 2.00, agent 1.50, worker-b 0.40.",
        );
        let idle = threads(&[(4, "idle", 7)]);
        assert_eq!(idle.words_since(&before, Duration::from_secs(2)), "", "a kernel that tells 0 of each");
        assert_eq!(Threads::default().words_since(&before, Duration::from_secs(2)), "", "a kernel that does not tell");
    }

    #[test]
    fn a_thread_tells_how_long_it_ran() {
        assert_eq!(ran_for("10497449714 5360601385 43336\n"), Some(Duration::from_nanos(10_497_449_714)));
        assert_eq!(ran_for("\n"), None);
    }
}
