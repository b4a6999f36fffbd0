use super::*;

const TAKEN: u64 = 100 << 20;
const ROOM: u64 = 1000;

/// A brake that knows a speed, where a checkpoint that frees `frees` of [`ROOM`] has stored `stored`.
fn knows(row: u32, frees: u64, stored: u64) -> Brake {
    let brake = Brake::default();
    brake.taken.store(TAKEN, Ordering::Relaxed);
    brake.row.store(row, Ordering::Relaxed);
    brake.frees.store(frees, Ordering::Relaxed);
    brake.stored.store(stored, Ordering::Relaxed);
    brake
}

/// A checkpoint of `count` that took so long, as is taken for granted.
fn took(count: usize, took: Duration) -> Stored {
    Stored { count, took, before: Duration::ZERO, records: took.mul_f64(PARTS_UNKNOWN.records) }
}

/// What comes of what goes.
fn comes(brake: &Brake, used: u64) -> f64 {
    brake.rate(Fill::of_log(used, ROOM, 40)).map_or(f64::INFINITY, |rate| rate / TAKEN as f64)
}

#[test]
fn as_much_comes_as_goes_and_never_more_than_there_is_room_for() {
    let steady = |used| comes(&knows(2, 300, 100), used);
    assert_eq!(steady(350), f64::INFINITY, "much room");
    assert!((1.5..10.0).contains(&steady(365)), "it begins gently");
    assert_eq!(steady(490), 1.0, "half-way as much comes as goes");
    for used in [445, 535] {
        assert!((0.75..1.34).contains(&steady(used)), "it settles slowly: {}", steady(used));
    }
    assert_eq!(steady(600), SLOWLY, "there is room for it");
    assert!((steady(750) - 0.35).abs() < 0.01, "70 more until 200 are stored, for the next one is to free 520");
    assert!(steady(820) < 1e-9);
    let burst = |used| comes(&knows(1, 400, 100), used);
    assert_eq!(burst(449), f64::INFINITY, "a burst is taken in");
    assert_eq!(burst(500), 1.0, "and then as much comes as goes");
    assert!((burst(750) - 0.567).abs() < 0.01, "170 more until 300 are stored");
    assert!((comes(&knows(0, 600, 0), 670) - 0.5).abs() < 0.01, "the log is no larger than it is");
    assert!(Brake::default().rate(Fill::of_log(740, ROOM, 70)).is_none(), "no checkpoint has begun");
    assert!(Brake::default().rate(Fill::of_memory(460, ROOM)).is_some());
    assert!(comes(&knows(0, 0, 0), 700) < 0.4, "between two tries of a checkpoint all is to be stored");
}

#[test]
fn a_change_takes_its_turn_in_proportion_to_its_bytes() {
    let time = |rate, bytes| time_of_log(rate, bytes).0;
    assert_eq!(time(TAKEN as f64, TAKEN / 100), Duration::from_millis(10));
    assert_eq!(time(0.0, 4 << 20), WAIT_MAX);
    assert!(time_of_log(0.0, 4096).1 < Duration::from_millis(8), "who writes little never waits long");
}

#[test]
fn where_keys_fill_the_memory_as_many_come_as_go() {
    let brake = Brake::default();
    let half_way = (KEYS.0 + KEYS.1) / 2.0;
    let rate = |keys| brake.keys_rate(keys).map(f64::round);
    for nothing in [None, Some(took(50, Duration::from_millis(500)))] {
        brake.ends(nothing);
        assert_eq!(rate(half_way), Some(KEYS_UNKNOWN), "what was thrown away, or small, shows nothing");
    }
    brake.ends(Some(took(30_000, Duration::from_secs(3))));
    assert_eq!(
        [KEYS.0, half_way, 0.15, 0.25, KEYS.1, 0.64, KEYS_MOST].map(rate),
        [None, Some(1e4), Some(1.5e4), Some(5e3), Some(2e3), Some(2e3), Some(0.0)]
    );
    let closing = rate(KEYS_CLOSE).unwrap_or(f64::INFINITY);
    assert!(closing > 1e4 && KEYS_CLOSE > KEYS.0, "a checkpoint has begun before fewer come than it takes");
    brake.ends(Some(took(30_000, Duration::from_secs(1))));
    assert_eq!(rate(half_way), Some(2e4), "it follows what they show");
    let now = Duration::from_secs(5);
    let until = |keys| brake.until(100, false, Fill::of_log(0, 100, 40), keys, || now).map(Duration::from_nanos);
    assert_eq!(until(KEYS.0), None);
    let waits: Vec<_> = (0..100).map(|_| until(0.9)).collect();
    assert!(waits.iter().flatten().all(|until| *until <= now + KEYS_WAIT_MAX));
    assert!(waits.iter().filter(|until| until.is_some()).count() > 90);
}

#[test]
fn tries_that_fail_make_nobody_slower() {
    let brake = knows(1, 400, 100);
    let before = comes(&brake, 500);
    for _ in 0..100 {
        brake.begins(400, 400);
        brake.ends(None);
    }
    brake.begins(400, 400);
    brake.stored.store(100, Ordering::Relaxed);
    assert_eq!(comes(&brake, 500), before);
}

#[test]
fn of_what_is_written_over_checkpoints_take_more_of_the_log() {
    let brake = knows(1, 0, 0);
    let rate = |brake: &Brake| brake.rate(Fill::of_log(500 << 20, 1000 << 20, 40)).unwrap_or_default() / TAKEN as f64;
    brake.begins(400 << 20, 400 << 20);
    assert_eq!(rate(&brake), 1.0, "nothing was");
    brake.begins(400 << 20, 36 << 20);
    assert_eq!(rate(&brake), 4.0);
    brake.shows(1 << 20, Duration::from_secs(1), (true, true));
    assert_eq!(brake.speed(), TAKEN, "one of little shows nothing");
    brake.begins(400 << 20, 0);
    assert_eq!(rate(&brake), 6.25, "one of nothing takes its time too");
    // Half of what it frees, with what it takes besides.
    brake.begins(300 << 20, 86 << 20);
    brake.shows(200 << 20, Duration::from_secs(1), (true, true));
    assert_eq!(brake.speed(), (3 * TAKEN + (100 << 20)) / 4);
    brake.begins(300 << 20, 86 << 20);
    brake.shows(100 << 20, Duration::from_secs(1), (true, true));
    assert!(brake.speed() < TAKEN, "half of that was to be stored");
    brake.ends(None);
    assert_eq!(brake.written_over(), 2.0, "the next is taken for such a one");
}

/// All that is left of the processor, always.
const ALONE: fn(u32) -> f64 = |_| 1.0;
/// Tables are merged in two and a half of each thirteen seconds.
const MERGING: fn(u32) -> f64 = |turn| if turn % 6500 < 1250 { 0.35 } else { 1.0 };

/// Writers without end beside checkpoints, on one processor, that read for some seconds what they need first, and in each of `turns`
/// steps of 2 ms have a `share` of what is left of it: bytes that came in each `window` steps.
fn windows(cost_of_storing: f64, reading: f64, share: fn(u32) -> f64, turns: u32, window: u32) -> Vec<f64> {
    const STEP: Duration = Duration::from_millis(2);
    const LOG: f64 = 4e9;
    const COST: f64 = 4.5e-9;
    let step = STEP.as_secs_f64();
    let brake = Brake::default();
    let (mut used, mut frees, mut read, mut stored, mut batch, mut pressed) = (0.0, 0.0, 0.0, 0.0, 0.0, false);
    let mut times = [0.0; 3];
    let mut came = vec![0.0];
    for turn in 0..turns {
        let now = STEP * turn;
        let fastest = if frees > 0.0 { 0.9 / COST } else { 3.0 / COST };
        let let_in = brake.rate(Fill::of_log(used as u64, LOG as u64, 40)).unwrap_or(f64::INFINITY).min(fastest);
        let comes = if used < LOG { let_in * step } else { 0.0 };
        used += comes;
        *came.last_mut().unwrap() += comes;
        if turn % window == window - 1 {
            came.push(0.0);
        }
        if frees > 0.0 && read < reading {
            read += step * (1.0 - let_in * COST).max(0.1);
            times[0] += step;
            brake.prepares((read / reading * 1e6) as usize, 1_000_000);
        } else if frees > 0.0 && stored < frees {
            times[1] += step;
            stored += step * share(turn) * (1.0 - let_in * COST).max(0.1) / cost_of_storing;
            brake.goes_on((stored / frees * 1e6) as usize, 1_000_000, now);
        } else if frees > 0.0 && batch > 0.0 {
            batch -= step;
            times[2] += step;
        } else {
            used -= frees;
            let [before, records, _] = times.map(Duration::from_secs_f64);
            let took = times.iter().sum();
            let ended = Stored { count: 4, took: Duration::from_secs_f64(took), before, records };
            brake.ends((frees > 0.0).then_some(ended));
            (read, times) = (0.0, [0.0; 3]);
            pressed = used > LOG * if pressed { 0.2 } else { 0.4 };
            brake.closes(pressed);
            (frees, stored, batch) = (if pressed { used } else { 0.0 }, 0.0, 0.5);
            if pressed {
                brake.begins(frees as u64, frees as u64);
            }
        }
    }
    came.pop();
    came
}

/// The median of windows that are all within `part` of it.
fn steady(windows: &[f64], part: f64) -> f64 {
    let mut sorted = windows.to_vec();
    sorted.sort_by(f64::total_cmp);
    let median = sorted[sorted.len() / 2];
    let within = (1.0 - part) * median..(1.0 + part) * median;
    assert!(windows.iter().all(|window| within.contains(window)), "it is not steady: {windows:.0?}");
    median
}

#[test]
fn after_a_burst_as_much_comes_as_later() {
    for cost_of_storing in [3e-9, 5e-9, 7e-9] {
        let windows = windows(cost_of_storing, 0.0, ALONE, 30_000, 2500);
        let median = steady(&windows[1..], 0.2);
        assert!(windows[0] > 1.7 * median, "no burst is taken in: {windows:.0?}");
    }
}

#[test]
fn what_a_checkpoint_reads_first_makes_nobody_slower_at_its_end() {
    for cost_of_storing in [2e-9, 3e-9, 5e-9] {
        // Behind the burst, and the checkpoints that show it.
        steady(&windows(cost_of_storing, 0.7, ALONE, 30_000, 250)[60..], 0.15);
    }
}

#[test]
fn a_checkpoint_that_is_slow_for_seconds_makes_nobody_much_slower() {
    for cost_of_storing in [2e-9, 3e-9, 5e-9] {
        steady(&windows(cost_of_storing, 0.7, MERGING, 30_000, 500)[30..], 0.17);
    }
}

#[test]
fn a_store_that_becomes_slower_stops_nobody() {
    for cost_of_storing in [2e-9, 3e-9, 5e-9] {
        let windows = windows(cost_of_storing, 0.7, |turn| if turn < 20_000 { 1.0 } else { 0.25 }, 120_000, 500);
        let settled = windows[windows.len() - 1];
        let least = windows[40..].iter().copied().fold(f64::INFINITY, f64::min);
        assert!(least > settled * 0.5, "{least:e} of {settled:e}");
    }
}

#[test]
fn who_writes_little_beside_a_stream_does_not_wait_for_it() {
    let brake = Brake::default();
    // How many of a thousand changes that come at once go at once.
    let at_once = |bytes: usize, now: u64| {
        let now = Duration::from_secs(now);
        let goes = |_: &u32| brake.until(bytes, bytes >= 1 << 16, Fill::of_log(60, 100, 40), 0.0, || now).is_none();
        (0..1000).filter(goes).count()
    };
    let alone = at_once(4096, 1);
    assert!(alone < 700, "alone it fills the log: {alone}");
    assert!(brake.small_were_held() && !brake.small_were_held(), "it is told once");
    assert!(at_once(1 << 20, 2) < 10);
    assert_eq!(at_once(4096, 3), 1000);
    assert!(!brake.small_were_held());
    for now in 4..40 {
        at_once(4096, now);
    }
    assert!(at_once(4096, 40) < 800, "now it is small ones that fill it");
}

#[test]
fn the_speed_of_checkpoints_is_what_they_show_beside_changes_that_are_held() {
    let brake = Brake::default();
    let speed_at = |done, ms, held| {
        brake.held.store(held, Ordering::Relaxed);
        brake.goes_on(done, 1000, Duration::from_millis(ms));
        (brake.speed() as f64 / f64::from(1 << 20)).round()
    };
    brake.begins(1000 << 20, 1000 << 20);
    assert_eq!(speed_at(0, 10_000, false), 64.0, "nothing is known");
    assert_eq!(speed_at(100, 10_100, false), 64.0, "too early to tell");
    assert_eq!(speed_at(200, 11_000, false), 95.0, "half of what it does alone");
    assert_eq!(speed_at(201, 12_000, true), 95.0, "for a part of the time a burst went on beside it");
    assert_eq!(speed_at(401, 13_000, true), 190.0, "the first that is shown is believed");
    assert_eq!(speed_at(501, 14_000, true), 166.0, "95, by a quarter");
    assert_eq!(speed_at(502, 15_000, false), 166.0, "it was alone in the end");
    assert_eq!(speed_at(1000, 16_000, false), 166.0, "what it does alone does not count any more");
    assert!(brake.stored.load(Ordering::Relaxed) < 1000 << 20);
    brake.ends(None);
    assert_eq!(brake.stored.load(Ordering::Relaxed), 0);
}

/// A brake's speed, MiB/s, after a checkpoint of 1000 MiB that took so long.
fn speed_after(brake: &Brake, ms: u64, held: bool) -> f64 {
    brake.begins(1000 << 20, 1000 << 20);
    for (done, at) in [(10, 10), (500, ms / 2), (1000, ms - 10)] {
        brake.held.store(held, Ordering::Relaxed);
        brake.goes_on(done, 1000, Duration::from_millis(10_000 + at));
    }
    brake.held.store(held, Ordering::Relaxed);
    brake.ends(Some(took(4, Duration::from_millis(ms))));
    (brake.speed() as f64 / f64::from(1 << 20)).round()
}

#[test]
fn checkpoints_too_short_for_two_looks_show_their_speed_as_a_whole() {
    let brake = Brake::default();
    assert_eq!(speed_after(&brake, 50, true), 64.0, "this one is too short for that too");
    assert_eq!(speed_after(&brake, 800, false), 625.0, "half of what it does alone");
    assert_eq!(speed_after(&brake, 500, true), 2000.0, "beside changes that are held");
    assert_eq!(speed_after(&brake, 1000, true), 1750.0, "1000, by a quarter");
    assert_eq!(speed_after(&brake, 500, false), 1750.0, "and not alone any more");
    brake.begins(1000 << 20, 1000 << 20);
    brake.ends(Some(took(4, Duration::from_millis(800))));
    assert_eq!(brake.speed() >> 20, 1750, "one of no records shows nothing");
    let brake = Brake::default();
    brake.begins(1 << 20, 1 << 20);
    brake.goes_on(1, 1, Duration::from_secs(1));
    brake.ends(Some(took(4, Duration::from_millis(400))));
    assert_eq!(brake.speed(), TAKEN_UNKNOWN, "nor does one of a small file in a store that is far away");
}

#[test]
fn what_is_shown_once_is_not_believed_beyond_measure() {
    let brake = Brake::default();
    assert_eq!(speed_after(&brake, 200, true), 256.0, "5000");
    assert_eq!(speed_after(&brake, 200, true), 448.0, "5000, taken for 1024, by a quarter");
    brake.shows(1 << 20, Duration::from_secs(1), (true, true));
    assert_eq!(brake.speed() >> 20, 380, "1, taken for 112, by a fifth");
}

#[test]
fn each_look_counts_less_until_nobody_presses() {
    let brake = Brake::default();
    brake.begins(1000 << 20, 1000 << 20);
    let shows = |mib: u64| {
        brake.shows(mib << 20, Duration::from_secs(1), (true, true));
        brake.speed() >> 20
    };
    shows(64);
    brake.closes(true);
    let learned: Vec<_> = (0..40).map(|_| 256 - shows(256)).collect();
    assert_eq!(learned[..3], [144, 116, 96], "by a quarter, a fifth, a sixth");
    let known = brake.speed() >> 20;
    let part = |known: u64, now: u64| ((known - 64) as f64 / (known - now) as f64).round();
    let now = shows(64);
    assert!((29.0..=35.0).contains(&part(known, now)), "by a thirty-second");
    brake.closes(false);
    assert_eq!(part(now, shows(64)), 4.0, "by a quarter again");
}

#[test]
fn what_takes_more_of_the_log_than_its_bytes_waits_for_that() {
    let brake = knows(2, 300, 100);
    let before = comes(&brake, 490);
    let count = |mib: usize| {
        for _ in 0..mib {
            brake.until(1 << 20, true, Fill::of_log(0, ROOM, 40), 0.0, || Duration::ZERO);
        }
    };
    let of_before = || (comes(&brake, 490) / before * 100.0).round();
    count(100);
    brake.weighs(150 << 20);
    assert_eq!(of_before(), 67.0);
    count(1);
    brake.weighs(150 << 20);
    assert_eq!(of_before(), 67.0, "one of little shows nothing");
    count(100);
    brake.weighs(50 << 20);
    assert_eq!(of_before(), 100.0, "never less than its bytes");
    count(100);
    brake.weighs(10_000 << 20);
    assert_eq!(of_before(), 50.0, "nor beyond measure");
}

#[test]
fn one_that_was_long_shows_nothing_besides_its_looks() {
    let brake = Brake::default();
    brake.begins(1000 << 20, 1000 << 20);
    for (at, held) in [(10, true), (520, true), (1030, false), (1540, true)] {
        brake.held.store(held, Ordering::Relaxed);
        brake.goes_on(at, 1600, Duration::from_millis(at as u64));
    }
    brake.ends(Some(took(4, Duration::from_millis(1600))));
    assert_eq!(brake.speed(), TAKEN_UNKNOWN);
}
