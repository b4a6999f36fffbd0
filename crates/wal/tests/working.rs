//! The log at work: appending, waiting, sharing flushes, reading back, trimming, refusing.

mod common;

use bytes::Bytes;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::task::Poll;

use common::{SMALL, contents, create, master, nobody, poll_once, put, restart};
use tarn_base::ids::Position;
use tarn_wal::faulty::FaultyDisk;
use tarn_wal::{ENTRY_SIZE_MAX, FileDevice, Log, LogDevice, LogError, LogOptions, LogPlace, MemDevice, Wake};

const SIZE: u64 = 8192 + (128 << 10);

fn fresh(size: u64, options: LogOptions, wake: Wake) -> Arc<Log> {
    let device: Arc<dyn LogDevice> = Arc::new(MemDevice::new(size));
    create(device.clone()).unwrap();
    Log::open(device, &master()).unwrap().start_with(1, 1, wake, options).unwrap()
}

fn small() -> Arc<Log> {
    fresh(SIZE, SMALL, nobody())
}

#[test]
fn an_entry_knows_its_position_while_it_is_written() {
    let log = small();
    for sequence in 1..50 {
        let appended = log.append_with(8, |position, out| out.extend_from_slice(&position.0.to_le_bytes())).unwrap();
        assert_eq!(appended.position, Position::new(1, sequence));
        assert_eq!(log.read(appended.place).unwrap()[..], appended.position.0.to_le_bytes());
    }
    let too_long = log.append_with(3, |_, out| out.extend_from_slice(b"four"));
    assert!(matches!(too_long, Err(LogError::Refused(_))));
    assert_eq!(log.appended(), Position::new(1, 49), "what is refused takes no position");
    assert!(matches!(log.append_with(ENTRY_SIZE_MAX + 1, |_, _| {}), Err(LogError::Refused(_))));
}

#[test]
fn whoever_waits_shares_one_flush_and_what_comes_meanwhile_takes_the_next() {
    let wakes = Arc::new(AtomicUsize::new(0));
    let counter = wakes.clone();
    let wake = move || {
        counter.fetch_add(1, Ordering::SeqCst);
    };
    let log = fresh(SIZE, SMALL, Arc::new(wake));
    let (a, b) = (log.append(&[b"a"]).unwrap(), log.append(&[b"b"]).unwrap());
    assert!(log.begin_flush().is_none(), "nobody wants it");
    assert_eq!(wakes.load(Ordering::SeqCst), 0);
    let (mut wait_a, mut wait_b) = (log.wait(a.position), log.wait(b.position));
    assert!(poll_once(&mut wait_a).is_pending() && poll_once(&mut wait_b).is_pending());
    assert!(wakes.load(Ordering::SeqCst) > 0);
    let mut job = log.begin_flush().unwrap();
    assert_eq!(job.last(), b.position);
    let c = log.append(&[b"c"]).unwrap();
    let before = wakes.load(Ordering::SeqCst);
    let mut wait_c = log.wait(c.position);
    assert!(poll_once(&mut wait_c).is_pending());
    assert_eq!(wakes.load(Ordering::SeqCst), before, "a flush is running: its driver looks again");
    assert!(log.begin_flush().is_none());
    let result = job.run();
    assert!(poll_once(&mut wait_a).is_pending(), "not yet published");
    log.finish_flush(job, result);
    assert!(matches!(poll_once(&mut wait_a), Poll::Ready(Ok(()))));
    assert!(matches!(poll_once(&mut wait_b), Poll::Ready(Ok(()))));
    assert!(poll_once(&mut wait_c).is_pending());
    log.flush_now();
    assert!(matches!(poll_once(&mut wait_c), Poll::Ready(Ok(()))));
    let mut beyond = log.wait(Position::new(1, 99));
    assert!(matches!(poll_once(&mut beyond), Poll::Ready(Err(LogError::Refused(_)))));
}

#[test]
fn what_nobody_waits_for_is_written_by_many_frames_at_once() {
    let wakes = Arc::new(AtomicUsize::new(0));
    let counter = wakes.clone();
    let wake = move || {
        counter.fetch_add(1, Ordering::SeqCst);
    };
    let log = fresh(SIZE, LogOptions { frame_soft: 1 << 10, write_soft: 16 << 10, ..SMALL }, Arc::new(wake));
    let mut places = Vec::new();
    while log.buffered() < 15 << 10 {
        places.push(log.append(&[&[places.len() as u8; 700]]).unwrap().place);
        assert!(log.begin_flush().is_none() && wakes.load(Ordering::SeqCst) == 0, "nobody wants so little");
    }
    assert!(places.windows(3).all(|three| three[0].frame < three[2].frame), "frames stay small");
    while log.buffered() < 16 << 10 {
        places.push(log.append(&[&[places.len() as u8; 700]]).unwrap().place);
    }
    assert_eq!(wakes.load(Ordering::SeqCst), 1);
    log.flush_now();
    assert_eq!(log.durable(), log.appended());
    for (at, place) in places.iter().enumerate() {
        assert_eq!(log.read(*place).unwrap()[..], [at as u8; 700]);
    }
}

#[test]
fn what_lies_in_the_logs_memory_is_held_there_and_anything_else_is_copied() {
    let log = small();
    let received = |len: usize| {
        let mut body = log.memory().take(len);
        body.resize(len, 7);
        log.memory().lend(body)
    };
    let large = received(1 << 20);
    let held = log.hold(&large.slice(100..));
    assert_eq!(held.as_ptr(), large[100..].as_ptr());
    let counted = log.held();
    assert!((1 << 20..(1 << 20) + (64 << 10)).contains(&counted), "{counted}");
    drop(held);
    assert_eq!(log.held(), 0);
    // A part of it would keep all of it; and what is not lent may be anybody's.
    for other in [large.slice(..1000), Bytes::from(vec![7; 1 << 20]), received(300 << 10)] {
        let held = log.hold(&other);
        assert!(held.as_ptr() != other.as_ptr() && held == other);
        assert!(log.held() <= other.len() + other.len() / 3, "{} for {}", log.held(), other.len());
    }
    assert_eq!(log.held(), 0);
}

/// Data whose owner is known to be gone.
fn owned(data: Vec<u8>) -> (Bytes, Weak<Vec<u8>>) {
    struct Owner(Arc<Vec<u8>>);
    impl AsRef<[u8]> for Owner {
        fn as_ref(&self) -> &[u8] {
            &self.0
        }
    }
    let data = Arc::new(data);
    let weak = Arc::downgrade(&data);
    (Bytes::from_owner(Owner(data)), weak)
}

#[test]
fn large_data_stays_where_it_lies_until_it_is_on_the_medium() {
    let device: Arc<dyn LogDevice> = Arc::new(MemDevice::new(8192 + (1 << 20)));
    create(device.clone()).unwrap();
    let (_, log) = restart(device.clone(), SMALL).unwrap();
    let before = log.append(&[b"before"]).unwrap();
    let ((one, first), (two, second)) = (owned(vec![1; 9000]), owned(vec![2; 70_000]));
    let whole = [&b"head"[..], &one, &two].concat();
    let large = log.append_before(4, |_, out| out.extend_from_slice(b"head"), vec![one, two]).unwrap();
    let after = log.append(&[b"after"]).unwrap();
    let alone = log.append_before(0, |_, _| {}, vec![Bytes::from_static(b"little")]).unwrap();
    assert!(after.place.frame < alone.place.frame);
    assert_eq!(large.place.len as usize, whole.len());
    assert!(before.place.frame < large.place.frame && large.place.frame < after.place.frame);
    let part = |start: u32, len: u32| LogPlace { start: large.place.start + start, len, ..large.place };
    let reads_back = || {
        assert!(log.read(large.place).unwrap()[..] == whole);
        for (start, len) in [(0, 4), (2, 10), (4, 9000), (9000, 8), (9004, 70_000), (79_000, 4)] {
            assert!(log.read(part(start, len)).unwrap()[..] == whole[start as usize..(start + len) as usize]);
        }
        assert!(log.read(part(79_000, 5)).is_err());
    };
    reads_back();
    assert!(first.upgrade().is_some() && second.upgrade().is_some());
    log.request_flush();
    log.flush_now();
    assert!(first.upgrade().is_none() && second.upgrade().is_none(), "nobody needs them any more");
    reads_back();
    let entries = contents(device).unwrap();
    let payloads: Vec<&[u8]> = entries.iter().map(|(_, payload)| &payload[..]).collect();
    assert!(payloads == [b"before", &whole[..], b"after", b"little"]);
    // What is refused is not kept.
    let (data, weak) = owned(vec![3; 2 << 20]);
    assert!(matches!(log.append_before(0, |_, _| {}, vec![data]), Err(LogError::Busy)));
    assert!(weak.upgrade().is_none());
}

/// Has each thing done on a thread of its own, in order.
fn beside(work: Box<dyn FnOnce() + Send>) {
    std::thread::spawn(work).join().unwrap();
}

#[test]
fn what_takes_several_writes_is_sealed_beside_them_and_fails_with_any() {
    let content = |round: usize| Bytes::from(vec![round as u8; (1 << 20) + round]);
    let disk = FaultyDisk::new(16 << 20, 1);
    create(disk.device()).unwrap();
    let (_, log) = restart(disk.device(), LogOptions::default()).unwrap();
    let append = |round| log.append_before(0, |_, _| {}, vec![content(round)]).unwrap();
    let places: Vec<LogPlace> = (0..5).map(|round| append(round).place).collect();
    log.request_flush();
    let before = disk.operations();
    let flush = |log: &Arc<Log>| {
        let mut job = log.begin_flush().expect("it is due");
        let result = job.run_beside(&beside);
        log.finish_flush(job, result);
    };
    flush(&log);
    assert_eq!(disk.operations() - before, 6, "a header that says how far, writes of two, two and one, two flushes");
    assert_eq!(log.durable(), log.appended());
    for (round, place) in places.iter().enumerate() {
        assert!(log.read(*place).unwrap() == content(round));
    }
    disk.crash();
    let (entries, log) = restart(disk.device(), LogOptions::default()).unwrap();
    assert!(entries.iter().enumerate().all(|(round, (_, payload))| *payload == content(round)));
    assert_eq!(entries.len(), 5);
    let durable = log.durable();
    (5..9).for_each(|round| {
        log.append_before(0, |_, _| {}, vec![content(round)]).unwrap();
    });
    log.request_flush();
    disk.fail_next_write();
    flush(&log);
    assert!(log.poisoned().is_some());
    assert_eq!(log.durable(), durable);
}

#[derive(Default)]
struct Woken(AtomicUsize);

impl std::task::Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn who_waits_for_room_is_let_in_in_order_as_parts_are_written() {
    const MIB: usize = 1 << 20;
    let most = 5 * MIB + 1000;
    let log = fresh(16 << 20, LogOptions::default(), nobody());
    for _ in 0..5 {
        log.append_before(0, |_, _| {}, vec![Bytes::from(vec![1; MIB])]).unwrap();
    }
    assert!(log.has_room(0, most) && !log.has_room(MIB, most));
    // Each with what it brings, and how often it was woken.
    let waits: Vec<_> =
        [1, 2, 1].map(|mib| (log.wait_for_room(mib * MIB, most, false), Arc::<Woken>::default())).into();
    let waits = std::cell::RefCell::new(waits);
    let is_over = |at: usize| {
        let (wait, woken) = &mut waits.borrow_mut()[at];
        let waker = woken.clone().into();
        std::pin::Pin::new(wait).poll(&mut std::task::Context::from_waker(&waker)).is_ready()
    };
    let woken = || waits.borrow().iter().map(|(_, woken)| woken.0.load(Ordering::SeqCst)).collect::<Vec<_>>();
    assert!((0..3).all(|at| !is_over(at)));
    assert!(!log.has_room(0, most), "who comes now comes after them");
    let written = std::cell::Cell::new(0);
    let looks = |work| {
        beside(work);
        written.set(written.get() + 1);
        if written.get() == 1 {
            // Two of five are written.
            assert_eq!(woken(), [1, 0, 0]);
            assert!(is_over(0));
            log.append_before(0, |_, _| {}, vec![Bytes::from(vec![1; MIB])]).unwrap();
            assert!(!is_over(1) && !is_over(2));
        }
    };
    let mut job = log.begin_flush().expect("the third waits");
    let result = job.run_beside(&looks);
    log.finish_flush(job, result);
    assert_eq!((written.get(), log.buffered()), (4, 0), "what it brought was taken in");
    assert!(woken().iter().all(|woken| *woken > 0) && is_over(1) && is_over(2));
    assert!(log.has_room(8 * MIB, most), "what nothing else waits with has room");
    log.append_before(0, |_, _| {}, vec![Bytes::from(vec![1; MIB])]).unwrap();
    // Who gives up is waited for no longer, and who is to be first is.
    let mut gives_up = log.wait_for_room(8 * MIB, most, false);
    let mut little = log.wait_for_room(MIB, most, false);
    assert!(poll_once(&mut gives_up).is_pending() && poll_once(&mut little).is_pending() && !log.has_room(MIB, most));
    assert!(poll_once(&mut log.wait_for_room(MIB, most, true)).is_ready());
    let (mut first, mut second) = (log.wait_for_room(8 * MIB, most, true), log.wait_for_room(MIB, most, true));
    assert!(poll_once(&mut first).is_pending() && poll_once(&mut second).is_pending(), "also among those in order");
    drop((first, second));
    drop(gives_up);
    assert!(log.has_room(MIB, most), "the other one was let in");
    assert!(poll_once(&mut little).is_ready());
}

#[test]
fn a_flush_takes_what_comes_meanwhile_until_somebody_waits_for_it() {
    const MIB: usize = 1 << 20;
    for waits in [false, true] {
        let log = fresh(64 << 20, LogOptions::default(), nobody());
        let append = |log: &Log| log.append_before(0, |_, _| {}, vec![Bytes::from(vec![1; MIB])]).unwrap().position;
        (0..3).for_each(|_| log.append_before(0, |_, _| {}, vec![Bytes::from(vec![1; MIB])]).map(drop).unwrap());
        let wait = std::cell::RefCell::new(None);
        let written = std::cell::Cell::new(0);
        let looks = |work| {
            beside(work);
            written.set(written.get() + 1);
            if written.get() < 100 {
                let position = append(&log);
                if waits && written.get() == 5 {
                    let mut waits = log.wait(position);
                    assert!(poll_once(&mut waits).is_pending());
                    wait.replace(Some(waits));
                }
            }
        };
        let mut job = log.begin_flush().expect("it is due");
        let result = job.run_beside(&looks);
        let last = job.last();
        log.finish_flush(job, result);
        let flushed = last.sequence() as usize;
        assert_eq!(log.durable(), last);
        assert!(last < log.appended());
        match waits {
            true => assert!((7..9).contains(&flushed), "{flushed}"),
            false => assert_eq!(flushed, 15, "of 16 MiB, what describes them included"),
        }
        log.request_flush();
        log.flush_now();
        assert_eq!(log.durable(), log.appended());
        assert!(wait.into_inner().is_none_or(|mut wait| poll_once(&mut wait).is_ready()));
    }
}

#[test]
fn threads_that_are_gone_poison_the_log() {
    let log = fresh(16 << 20, LogOptions::default(), nobody());
    for _ in 0..9 {
        log.append_before(0, |_, _| {}, vec![Bytes::from(vec![1; 1 << 20])]).unwrap();
    }
    let mut job = log.begin_flush().expect("it is due");
    let result = job.run_beside(&drop);
    log.finish_flush(job, result);
    assert!(log.poisoned().is_some());
    assert!(poll_once(&mut log.wait_for_room(1 << 20, 1 << 20, false)).is_ready(), "it is told so");
}

#[test]
fn a_frame_of_the_soft_size_is_written_though_nobody_waits() {
    let wakes = Arc::new(AtomicUsize::new(0));
    let counter = wakes.clone();
    let wake = move || {
        counter.fetch_add(1, Ordering::SeqCst);
    };
    let log = fresh(SIZE, SMALL, Arc::new(wake));
    log.append(&[&[1; 5000]]).unwrap();
    assert_eq!(wakes.load(Ordering::SeqCst), 0);
    let second = log.append(&[&[2; 5000]]).unwrap();
    assert_eq!(wakes.load(Ordering::SeqCst), 1);
    log.flush_now();
    assert_eq!(log.durable(), second.position);
}

#[test]
fn an_entry_is_read_back_from_wherever_it_is() {
    let log = small();
    let place = log.append(&[b"mem", b"ory"]).unwrap().place;
    let other = log.append(&[&[9; 9000]]).unwrap().place;
    let check = || {
        assert_eq!(&log.read(place).unwrap()[..], b"memory");
        assert_eq!(log.read(other).unwrap().len(), 9000);
    };
    check();
    log.request_flush();
    let mut job = log.begin_flush().unwrap();
    check();
    let result = job.run();
    check();
    log.finish_flush(job, result);
    check();
    check();
    assert!(matches!(log.read(LogPlace { len: 1 << 30, ..place }), Err(LogError::Refused(_))));
    assert!(matches!(log.read(LogPlace { frame: place.frame + 4096 * 20, ..place }), Err(LogError::Damaged { .. })));
    log.trim(log.durable()).unwrap();
    assert!(matches!(log.read(place), Err(LogError::Refused(_))));
}

#[test]
fn large_entries_are_read_back_whole_around_the_rings_end() {
    let directory = tempfile::tempdir().unwrap();
    let file: Arc<dyn LogDevice> =
        Arc::new(FileDevice::create(&directory.path().join("log"), 8 << 20, |_| {}).unwrap());
    let disk = FaultyDisk::new(8 << 20, 1);
    for device in [file, disk.device()] {
        create(device.clone()).unwrap();
        let log = Log::open(device, &master()).unwrap().start_with(1, 1, nobody(), LogOptions::default()).unwrap();
        let content = |round: usize| -> Vec<u8> { (0..(1 << 20) + round).map(|at| (at * 31 + round) as u8).collect() };
        let mut places = Vec::new();
        for round in 0..24 {
            places.push(log.append(&[&content(round)]).unwrap().place);
            log.append(&[b"a little in between"]).unwrap();
            log.request_flush();
            log.flush_now();
            // The last few lie there, one of them around the end of the ring in some of the rounds.
            for (round, place) in places.iter().enumerate().rev().take(4) {
                let part = LogPlace { start: place.start + 65_536, len: 65_536, ..*place };
                assert!(log.read(*place).unwrap()[..] == content(round), "{round}");
                assert!(log.read(part).unwrap()[..] == content(round)[65_536..131_072], "{round}");
            }
            if round >= 4 {
                log.trim(Position::new(1, 2 * (round as u64 - 3))).unwrap();
                assert!(matches!(log.read(places[round - 4]), Err(LogError::Refused(_))));
            }
        }
    }
}

#[test]
fn small_entries_are_read_back_alike_whichever_way_they_went() {
    let directory = tempfile::tempdir().unwrap();
    let device = FileDevice::create(&directory.path().join("log"), 1 << 20, |_| {}).unwrap();
    // Each block of the file is written both ways, now and then one after the other.
    laps(Arc::new(device), LogOptions::default(), 40, |log, round| log.expect_reads(round % 7 < 3));
}

#[test]
fn a_large_entry_that_was_damaged_is_not_read_back() {
    let disk = FaultyDisk::new(8 << 20, 1);
    let device = disk.device();
    create(device.clone()).unwrap();
    let log = Log::open(device, &master()).unwrap().start_with(1, 1, nobody(), LogOptions::default()).unwrap();
    let place = log.append(&[&[7; 1 << 20]]).unwrap().place;
    log.request_flush();
    log.flush_now();
    // The ring begins behind two slots of a block each.
    for (at, mask) in [(place.frame + 40, 1), (place.frame + 500_000, 0x80)] {
        disk.flip(8192 + at, mask);
        assert!(matches!(log.read(place), Err(LogError::Damaged { .. })), "byte {at}");
        disk.flip(8192 + at, mask);
    }
    assert!(log.read(place).unwrap()[..] == [7; 1 << 20]);
}

#[test]
fn a_full_log_refuses_keeps_its_reserve_and_goes_on_after_trimming() {
    let log = small();
    let mut count = 0;
    let full = loop {
        match log.append(&[&[3; 4000]]) {
            Ok(_) => count += 1,
            Err(error) => break error,
        }
        log.request_flush();
        log.flush_now();
    };
    assert!(matches!(full, LogError::Full));
    assert_eq!(count, (log.capacity() - log.reserve()) / 8192);
    assert!(log.room() < 8192 && log.used() <= log.capacity() - log.reserve());
    let image = log.append_reserved(4000, |_, out| out.extend_from_slice(&[4; 4000])).unwrap();
    log.request_flush();
    log.flush_now();
    assert!(matches!(log.append_reserved(8000, |_, _| {}), Err(LogError::Full)));
    // Trimming gives back whole frames only, and never what is not durable.
    log.trim(Position::new(1, 3)).unwrap();
    assert_eq!(log.used(), log.capacity() - 3 * 8192);
    log.trim(image.position).unwrap();
    assert_eq!((log.used(), log.room()), (0, log.capacity() - log.reserve()));
    put(&log, b"on it goes");
}

/// A device that looks at the log whenever it is flushed.
struct Watched {
    device: MemDevice,
    look: std::sync::OnceLock<Box<dyn Fn() + Send + Sync>>,
}

impl LogDevice for Watched {
    fn size(&self) -> u64 {
        self.device.size()
    }
    fn read(&self, at: u64, buf: &mut [u8]) -> std::io::Result<()> {
        self.device.read(at, buf)
    }
    fn write(&self, at: u64, data: &[u8]) -> std::io::Result<()> {
        self.device.write(at, data)
    }
    fn flush(&self) -> std::io::Result<()> {
        self.look.get().inspect(|look| look());
        self.device.flush()
    }
    fn name(&self) -> String {
        self.device.name()
    }
}

#[test]
fn room_is_given_back_only_once_the_header_is_durable() {
    let device = Arc::new(Watched { device: MemDevice::new(SIZE), look: std::sync::OnceLock::new() });
    create(device.clone()).unwrap();
    let (_, log) = restart(device.clone(), SMALL).unwrap();
    put(&log, b"x");
    let seen = Arc::new(AtomicUsize::new(0));
    let (watched, used) = (Arc::downgrade(&log), seen.clone());
    let look = move || {
        if let Some(log) = watched.upgrade() {
            used.store(log.used() as usize, Ordering::SeqCst);
        }
    };
    assert!(device.look.set(Box::new(look)).is_ok());
    log.trim(log.durable()).unwrap();
    assert_eq!((seen.load(Ordering::SeqCst), log.used()), (4096, 0));
}

#[test]
fn many_laps_come_back_whole() {
    laps(Arc::new(MemDevice::new(SIZE)), SMALL, 6, |_, _| {});
}

/// Goes round the ring, `keeping` so many entries: what is kept is read back, and found by who opens the log.
fn laps(device: Arc<dyn LogDevice>, options: LogOptions, keeping: usize, before: impl Fn(&Log, u32)) {
    create(device.clone()).unwrap();
    let (_, log) = restart(device.clone(), options).unwrap();
    let mut kept = std::collections::VecDeque::new();
    for round in 0..600u32 {
        before(&log, round);
        let payload = vec![round as u8; (round as usize * 37) % 9000];
        let appended = log.append(&[&payload]).unwrap();
        kept.push_back((appended.position, payload, appended.place));
        log.request_flush();
        log.flush_now();
        if kept.len() > keeping {
            let (gone, _, _) = kept.pop_front().unwrap();
            log.trim(gone).unwrap();
        }
        if round % 29 == 0 {
            let found = contents(device.clone()).unwrap();
            let expected: Vec<_> = kept.iter().map(|(position, payload, _)| (*position, payload.clone())).collect();
            assert_eq!(found, expected);
            kept.iter().for_each(|(_, payload, place)| assert_eq!(log.read(*place).unwrap()[..], payload[..]));
        }
    }
    assert!(log.used() < log.capacity());
}

#[test]
fn memory_is_bounded() {
    let log = fresh(8192 + (4 << 20), SMALL, nobody());
    let busy = (0..).find_map(|_| log.append(&[&[1; 4000]]).err()).unwrap();
    assert!(matches!(busy, LogError::Busy));
    assert!(log.buffered() <= SMALL.buffered_max);
    log.request_flush();
    log.flush_now();
    assert_eq!(log.buffered(), 0);
    log.append(&[&[1; 4000]]).unwrap();
}

#[test]
fn the_longest_entry_fits() {
    let log = fresh(8192 + (32 << 20), LogOptions::default(), nobody());
    let payload = vec![0xab; ENTRY_SIZE_MAX];
    log.append(&[b"before"]).unwrap();
    let place = log.append(&[&payload]).unwrap().place;
    log.request_flush();
    log.flush_now();
    assert_eq!(log.read(place).unwrap(), payload);
}

#[test]
fn one_failed_flush_poisons_for_ever() {
    let disk = FaultyDisk::new(SIZE, 1);
    create(disk.device()).unwrap();
    let (_, log) = restart(disk.device(), SMALL).unwrap();
    let kept = put(&log, b"kept");
    let lost = log.append(&[b"lost"]).unwrap();
    let mut wait = log.wait(lost.position);
    assert!(poll_once(&mut wait).is_pending());
    disk.fail_next_flush();
    log.flush_now();
    assert!(matches!(poll_once(&mut wait), Poll::Ready(Err(LogError::Poisoned { .. }))));
    assert!(matches!(log.append(&[b"more"]), Err(LogError::Poisoned { .. })));
    log.request_flush();
    assert!(log.begin_flush().is_none());
    assert!(matches!(log.trim(kept), Err(LogError::Poisoned { .. })));
    assert!(matches!(log.close_clean(log.appended()), Err(LogError::Poisoned { .. })));
    assert_eq!(log.durable(), kept);
    assert_eq!(&log.read(lost.place).unwrap()[..], b"lost", "what is in memory can still be read");
    match log.poisoned() {
        Some(LogError::Poisoned { device, reason }) => {
            assert_eq!((device.as_str(), reason.as_str()), ("a simulated disk", "a flush failed, as asked"));
        }
        other => panic!("{other:?}"),
    }
}

/// The host reports a failed write-back once, to whoever flushes first: here to the trim, not to the flush of frames.
#[test]
fn a_failed_header_poisons_a_flush_that_is_under_way() {
    let disk = FaultyDisk::new(SIZE, 1);
    create(disk.device()).unwrap();
    let (_, log) = restart(disk.device(), SMALL).unwrap();
    let kept = put(&log, b"kept");
    let lost = log.append(&[b"lost"]).unwrap();
    let mut wait = log.wait(lost.position);
    assert!(poll_once(&mut wait).is_pending());
    let mut job = log.begin_flush().unwrap();
    disk.fail_next_flush();
    assert!(matches!(log.trim(kept), Err(LogError::Poisoned { .. })));
    let result = job.run();
    assert!(result.is_err());
    log.finish_flush(job, Ok(()));
    assert!(matches!(poll_once(&mut wait), Poll::Ready(Err(LogError::Poisoned { .. }))));
    assert_eq!(log.durable(), kept);
}

#[test]
fn a_failed_write_and_an_abandoned_flush_poison_too() {
    let disk = FaultyDisk::new(SIZE, 1);
    create(disk.device()).unwrap();
    let (_, log) = restart(disk.device(), SMALL).unwrap();
    log.append(&[b"x"]).unwrap();
    log.request_flush();
    disk.fail_next_write();
    log.flush_now();
    assert!(log.poisoned().is_some());
    let log = small();
    log.append(&[b"x"]).unwrap();
    log.request_flush();
    drop(log.begin_flush());
    assert!(log.poisoned().is_some());
}

#[test]
fn an_encoder_that_panics_leaves_no_trace() {
    let log = small();
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        log.append_with(100, |_, out| {
            out.extend_from_slice(b"half");
            panic!("as asked");
        })
    }));
    assert!(panicked.is_err());
    let place = log.append(&[b"whole"]).unwrap().place;
    assert_eq!((place.start, &log.read(place).unwrap()[..]), (4, &b"whole"[..]));
}

/// Appenders and waiters on several threads, one thread that flushes: nothing is lost, nobody sleeps for ever.
#[test]
fn threads_share_the_log() {
    let (send, receive) = std::sync::mpsc::channel::<()>();
    let send = std::sync::Mutex::new(send);
    let device: Arc<dyn LogDevice> = Arc::new(MemDevice::new(8192 + (16 << 20)));
    create(device.clone()).unwrap();
    let wake: Wake = Arc::new(move || {
        let _ = send.lock().unwrap().send(());
    });
    let log = Log::open(device.clone(), &master()).unwrap().start(1, 1, wake).unwrap();
    let done = Arc::new(AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for thread in 0..4u8 {
            let (log, done) = (log.clone(), done.clone());
            scope.spawn(move || {
                for round in 0..300usize {
                    let appended = log.append(&[&vec![thread; round]]).unwrap();
                    block_on(log.wait(appended.position)).unwrap();
                    assert!(log.durable() >= appended.position);
                }
                done.fetch_add(1, Ordering::SeqCst);
            });
        }
        while done.load(Ordering::SeqCst) < 4 {
            let _ = receive.recv_timeout(std::time::Duration::from_millis(20));
            log.flush_now();
        }
    });
    assert_eq!(contents(device).unwrap().len(), 1200);
}

fn block_on<F: Future>(future: F) -> F::Output {
    struct Unpark(std::thread::Thread);
    impl std::task::Wake for Unpark {
        fn wake(self: Arc<Unpark>) {
            self.0.unpark();
        }
    }
    let waker = Arc::new(Unpark(std::thread::current())).into();
    let mut future = std::pin::pin!(future);
    loop {
        if let Poll::Ready(out) = future.as_mut().poll(&mut std::task::Context::from_waker(&waker)) {
            return out;
        }
        std::thread::park();
    }
}
