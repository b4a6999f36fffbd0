//! The log on a disk that loses, tears and reorders whatever was not flushed.
//!
//! The seed decides what is appended, flushed and trimmed, when the power goes and what survives. After every crash:
//! - what is read back is a run of what was appended, in order, with the bytes that were appended;
//! - it reaches at least to the last position reported durable, and misses only what trimming was asked to drop;
//! - what was once missing at its end never comes back.
//!
//! To replay a failure: `CRASH_SEED=<n> cargo test -p tarn-wal --test crash`.

mod common;

use std::sync::Arc;

use common::{Entries, Rng, SMALL, contents, create, master, restart};
use tarn_base::ids::Position;
use tarn_wal::faulty::FaultyDisk;
use tarn_wal::{Log, LogError};

const SIZE: u64 = 8192 + (96 << 10);

struct History {
    /// Everything that may still be in the log, in order.
    entries: Entries,
    durable: Position,
    trimmed: Position,
}

impl History {
    fn check(&mut self, seed: u64, found: &Entries) {
        let first = match found.first() {
            Some((position, _)) => self.entries.iter().position(|(known, _)| known == position),
            None => Some(self.entries.partition_point(|(known, _)| *known <= self.trimmed.max(self.durable))),
        };
        let first = first.unwrap_or_else(|| panic!("seed {seed}: what was never appended, or lost before, is there"));
        let run = &self.entries[first..(first + found.len()).min(self.entries.len())];
        assert!(run == &found[..], "seed {seed}: what is read back is not what was appended");
        let missing = self.entries[..first].iter().find(|(known, _)| *known > self.trimmed);
        assert!(missing.is_none(), "seed {seed}: {missing:?} was not trimmed, and is gone");
        let last = self.entries[..first + found.len()].last().map_or(self.trimmed, |(known, _)| *known);
        assert!(last >= self.durable, "seed {seed}: {last} is the last, but {} was durable", self.durable);
        self.entries = found.clone();
    }

    /// Works until the power goes or enough is done.
    fn work(&mut self, log: &Arc<Log>, rng: &mut Rng) {
        let mut serial = 0u64;
        for _ in 0..rng.below(120) {
            match rng.below(10) {
                0..=5 => {
                    let len = match rng.below(8) {
                        0 => rng.below(20_000),
                        1 => 0,
                        _ => rng.below(600),
                    };
                    serial += 1;
                    let mut payload = rng.bytes(len as usize);
                    payload.extend_from_slice(&serial.to_le_bytes());
                    match log.append(&[&payload[..4], &payload[4..]]) {
                        Ok(appended) => self.entries.push((appended.position, payload)),
                        Err(LogError::Full | LogError::Busy | LogError::Poisoned { .. }) => {}
                        Err(other) => panic!("{other}"),
                    }
                }
                6..=8 => self.flush(log, rng),
                _ => self.trim(log, rng),
            }
        }
    }

    fn flush(&mut self, log: &Arc<Log>, rng: &mut Rng) {
        log.request_flush();
        if let Some(mut job) = log.begin_flush() {
            let result = job.run();
            if rng.below(8) == 0 {
                // Crashes between the flush and its publication: nobody was told.
                drop(job);
            } else {
                log.finish_flush(job, result);
            }
        }
        self.durable = self.durable.max(log.durable());
    }

    fn trim(&mut self, log: &Arc<Log>, rng: &mut Rng) {
        let durable = self.entries.partition_point(|(known, _)| *known <= self.durable);
        if durable > 0 {
            let upto = self.entries[rng.below(durable as u64) as usize].0;
            self.trimmed = self.trimmed.max(upto);
            let _ = log.trim(upto);
        }
    }
}

fn run(seed: u64) -> u64 {
    let mut rng = Rng(seed);
    let disk = FaultyDisk::new(SIZE, rng.next());
    let mut history = History { entries: Vec::new(), durable: Position::ZERO, trimmed: Position::ZERO };
    // Creation itself may be interrupted; it is then done again.
    disk.cut_power_after(rng.below(3));
    while create(disk.device()).is_err() {
        match Log::open(disk.device(), &master()) {
            Err(LogError::Blank { .. }) => {}
            Err(other) => panic!("seed {seed}: {other}"),
            Ok(_) => break,
        }
    }
    let mut written = 0;
    for _ in 0..12 {
        // The power may go during recovery, too, which then starts again.
        if rng.below(3) == 0 {
            disk.cut_power_after(rng.below(6));
        }
        let found = contents(disk.device()).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        history.check(seed, &found);
        let Ok((found, log)) = restart(disk.device(), SMALL) else {
            assert!(contents(disk.device()).is_ok(), "seed {seed}: not only the power went");
            continue;
        };
        history.check(seed, &found);
        if rng.below(2) == 0 {
            disk.cut_power_after(rng.below(60));
        }
        history.work(&log, &mut rng);
        written = log.appended().incarnation();
        if rng.below(4) == 0 && log.poisoned().is_none() {
            let last = log.appended();
            match log.close_clean(last) {
                Ok(()) => history.durable = last,
                Err(LogError::Poisoned { .. }) => {}
                Err(other) => panic!("seed {seed}: {other}"),
            }
            history.durable = history.durable.max(log.durable());
        }
        disk.crash();
    }
    u64::from(written)
}

#[test]
fn whatever_survives_is_a_prefix_with_all_that_was_durable() {
    if let Ok(seed) = std::env::var("CRASH_SEED") {
        run(seed.parse().expect("CRASH_SEED is a number"));
        return;
    }
    let restarts: u64 = (0..1500).map(run).sum();
    assert!(restarts > 1500, "the worlds did nothing");
}

/// Everything durable, then one flipped byte anywhere in it but the last flush: an error, never a shorter log.
#[test]
fn damage_to_what_a_later_frame_calls_durable_is_reported() {
    let mut rng = Rng(99);
    for round in 0..60 {
        let disk = FaultyDisk::new(SIZE, round);
        create(disk.device()).unwrap();
        let (_, log) = restart(disk.device(), SMALL).unwrap();
        let mut places = Vec::new();
        for _ in 0..10 {
            let len = rng.below(6000) as usize;
            let place = log.append(&[&rng.bytes(len)]).unwrap().place;
            places.push((place.frame, u64::from(place.start) + len as u64 + 96));
            log.request_flush();
            log.flush_now();
        }
        places.pop();
        if round % 3 > 0 {
            // The other header may not be the last.
            let device = disk.device();
            device.write((round % 3 - 1) * 4096, &[0; 4096]).and_then(|()| device.flush()).unwrap();
        }
        let (frame, len) = places[rng.below(places.len() as u64) as usize];
        disk.flip(8192 + frame + rng.below(len), 1 << rng.below(8));
        let damaged = contents(disk.device());
        assert!(
            matches!(damaged, Err(LogError::Damaged { offset, .. }) if offset == frame || round % 3 > 0),
            "round {round}: {damaged:?}"
        );
    }
}

#[test]
fn damage_anywhere_in_a_log_closed_cleanly_is_reported() {
    let mut rng = Rng(7);
    for round in 0..40 {
        let disk = FaultyDisk::new(SIZE, round);
        create(disk.device()).unwrap();
        let (_, log) = restart(disk.device(), SMALL).unwrap();
        let mut end = 0;
        for _ in 0..5 {
            let place = log.append(&[&rng.bytes(3000)]).unwrap().place;
            end = place.frame + u64::from(place.start + place.len) + 96;
        }
        log.close_clean(log.appended()).unwrap();
        assert_eq!(contents(disk.device()).unwrap().len(), 5);
        // Padding between frames is nobody's: only bytes of frames are flipped.
        let at = if round % 2 == 0 { rng.below(96) } else { end - 1 - rng.below(3000) };
        disk.flip(8192 + at, 0x40);
        assert!(matches!(contents(disk.device()), Err(LogError::Damaged { .. })), "round {round}");
    }
}
