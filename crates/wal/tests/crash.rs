//! The log on a disk that loses, tears and reorders whatever was not flushed.
//!
//! The seed decides what is appended, flushed and trimmed, when the power goes and what survives. After every crash:
//! - what is read back is a run of what was appended, in order, with the bytes that were appended;
//! - it reaches at least to the last position reported durable, and misses only what trimming was asked to drop;
//! - what was once missing at its end never comes back.
//!
//! At every write no frame reaches beyond the limit of the last header that was flushed: recovery looks no further.
//!
//! To replay a failure: `CRASH_SEED=<n> cargo test -p tarn-wal --test crash`.

mod common;

use std::io;
use std::sync::{Arc, Mutex};

use common::{Entries, Rng, SMALL, contents, create, master, restart};
use tarn_base::crc32c;
use tarn_base::ids::Position;
use tarn_wal::faulty::FaultyDisk;
use tarn_wal::{Log, LogDevice, LogError};

const SIZE: u64 = 8192 + (96 << 10);

/// What a header slot says (docs/format/log.md).
#[derive(Clone, Copy)]
struct Said {
    generation: u64,
    limit: u64,
}

fn number<const N: usize>(bytes: &[u8], at: usize) -> u64 {
    let mut out = [0; 8];
    out[..N].copy_from_slice(&bytes[at..at + N]);
    u64::from_le_bytes(out)
}

impl Said {
    fn of(slot: &[u8]) -> Option<Said> {
        if !slot.starts_with(b"TARNLOG\0") || slot[4092..] != crc32c(&slot[..4092]).to_le_bytes() {
            return None;
        }
        let (ring, blocks, end) = (number::<8>(slot, 40), number::<4>(slot, 60), number::<8>(slot, 80));
        let limit = end + if blocks == 0 { ring } else { blocks * 4096 };
        Some(Said { generation: number::<8>(slot, 16), limit })
    }
}

/// A device that panics where a frame is written beyond the limit of the last durable header.
struct Watched {
    device: Arc<dyn LogDevice>,
    durable: Mutex<Option<Said>>,
    written: Mutex<Option<Said>>,
}

impl Watched {
    fn over(device: Arc<dyn LogDevice>) -> Arc<dyn LogDevice> {
        let slots = [0, 4096].map(|at| {
            let mut slot = vec![0; 4096];
            device.read(at, &mut slot).ok().and_then(|()| Said::of(&slot))
        });
        let last = slots.into_iter().flatten().max_by_key(|said| said.generation);
        Arc::new(Watched { device, durable: Mutex::new(last), written: Mutex::new(None) })
    }
}

impl LogDevice for Watched {
    fn size(&self) -> u64 {
        self.device.size()
    }

    fn read(&self, at: u64, buf: &mut [u8]) -> io::Result<()> {
        self.device.read(at, buf)
    }

    fn write(&self, at: u64, data: &[u8]) -> io::Result<()> {
        if at < 8192 {
            *self.written.lock().unwrap() = Said::of(data);
            return self.device.write(at, data);
        }
        let heads = data
            .chunks(4096)
            .filter(|block| block.starts_with(b"TLFR") && block[92..96] == crc32c(&block[..92]).to_le_bytes());
        let ends = heads.map(|head| number::<8>(head, 32) + (96 + number::<4>(head, 28)).next_multiple_of(4096));
        let limit = self.durable.lock().unwrap().expect("a header comes before a frame").limit;
        for end in ends {
            assert!(end <= limit, "a frame reaches to {end}, and the last durable header says {limit}");
        }
        self.device.write(at, data)
    }

    fn flush(&self) -> io::Result<()> {
        let written = *self.written.lock().unwrap();
        self.device.flush()?;
        if written.is_some() {
            *self.durable.lock().unwrap() = written;
        }
        Ok(())
    }

    fn name(&self) -> String {
        self.device.name()
    }
}

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
        let Ok((found, log)) = restart(Watched::over(disk.device()), SMALL) else {
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
