//! What older openings left on the medium never comes back, and what the header says is believed.

mod common;

use std::sync::Arc;

use common::{SMALL, contents, create, master, nobody, put, restart};
use tarn_base::crypto::Key;
use tarn_base::ids::Position;
use tarn_wal::faulty::FaultyDisk;
use tarn_wal::{FileDevice, Log, LogDevice, LogError, Medium, MemDevice, medium};

const SIZE: u64 = 8192 + (128 << 10);
const RING: usize = 8192;

fn disk_of(image: &[u8]) -> Arc<dyn LogDevice> {
    FaultyDisk::with_image(image.to_vec(), 0).device()
}

fn flush(log: &Arc<Log>) {
    log.request_flush();
    log.flush_now();
}

/// One frame durable, then two that were written but not flushed: images with all of it, and without the second.
fn three_frames() -> (Vec<u8>, Vec<u8>) {
    let disk = FaultyDisk::new(SIZE, 1);
    create(disk.device()).unwrap();
    let (_, log) = restart(disk.device(), SMALL).unwrap();
    put(&log, b"one");
    log.append(&[b"two"]).unwrap();
    // Frames of one flush, so the third does not call the second durable.
    log.append(&[&[b'3'; 9000]]).unwrap();
    flush(&log);
    let all = disk.image();
    let mut without_second = all.clone();
    without_second[RING + 4096..RING + 8192].fill(0);
    (all, without_second)
}

#[test]
fn a_frame_beyond_a_lost_one_is_not_read() {
    let (all, without_second) = three_frames();
    assert_eq!(contents(disk_of(&all)).unwrap().len(), 3);
    assert_eq!(contents(disk_of(&without_second)).unwrap().len(), 1);
}

#[test]
fn a_frame_that_was_lost_and_is_there_again_stays_lost() {
    let (all, without_second) = three_frames();
    // An opening that writes nothing; then the medium shows the lost frame again.
    let disk = FaultyDisk::with_image(without_second, 0);
    let (found, _log) = restart(disk.device(), SMALL).unwrap();
    assert_eq!(found.len(), 1);
    let mut image = disk.image();
    image[RING + 4096..RING + 8192].copy_from_slice(&all[RING + 4096..RING + 8192]);
    assert_eq!(contents(disk_of(&image)).unwrap().len(), 1);
}

#[test]
fn a_new_frame_before_a_stale_one_does_not_revive_it() {
    let (_, without_second) = three_frames();
    let disk = FaultyDisk::with_image(without_second, 0);
    let (_, log) = restart(disk.device(), SMALL).unwrap();
    put(&log, b"new");
    let found = contents(disk.device()).unwrap();
    let payloads: Vec<_> = found.iter().map(|(_, payload)| payload.as_slice()).collect();
    assert_eq!(payloads, [&b"one"[..], b"new"]);
}

/// Two halves of a mirror that diverged: each frame is whole, but they are not one history.
#[test]
fn a_frame_that_does_not_continue_the_one_before_is_not_read() {
    let image = |entries: usize| {
        let disk = FaultyDisk::new(SIZE, 1);
        create(disk.device()).unwrap();
        let (_, log) = restart(disk.device(), SMALL).unwrap();
        for _ in 0..entries {
            log.append(&[b"one"]).unwrap();
        }
        flush(&log);
        put(&log, b"two");
        disk.image()
    };
    let (mut mixed, other) = (image(1), image(2));
    assert_eq!(contents(disk_of(&other)).unwrap().len(), 3);
    mixed[RING + 4096..RING + 8192].copy_from_slice(&other[RING + 4096..RING + 8192]);
    assert_eq!(contents(disk_of(&mixed)).unwrap().len(), 1);
}

/// After a failed flush the host shows what it has not written: a new process reads it, and must make it durable.
#[test]
fn what_is_read_back_is_made_durable_before_it_is_believed() {
    let disk = FaultyDisk::new(SIZE, 1);
    create(disk.device()).unwrap();
    let (_, log) = restart(disk.device(), SMALL).unwrap();
    put(&log, b"kept");
    log.append(&[b"unsure"]).unwrap();
    log.request_flush();
    disk.fail_next_flush();
    log.flush_now();
    assert!(log.poisoned().is_some());
    let (found, log) = restart(disk.device(), SMALL).unwrap();
    assert_eq!((found.len(), log.durable()), (2, found[1].0));
    disk.crash();
    assert_eq!(contents(disk.device()).unwrap(), found);
}

/// A trim's header knows how far the log was durable: damage to the last flush before it is then noticed, too.
#[test]
fn a_trim_says_how_far_the_log_was_durable() {
    let disk = FaultyDisk::new(SIZE, 1);
    create(disk.device()).unwrap();
    let (_, log) = restart(disk.device(), SMALL).unwrap();
    let first = put(&log, b"one");
    put(&log, b"two");
    log.trim(first).unwrap();
    assert_eq!(contents(disk.device()).unwrap().len(), 1);
    disk.flip(RING as u64 + 4096 + 97, 1);
    assert!(matches!(contents(disk.device()), Err(LogError::Damaged { offset: 4096, .. })));
}

#[test]
fn an_incarnation_goes_on_only_after_a_clean_close() {
    let device: Arc<dyn LogDevice> = Arc::new(MemDevice::new(SIZE));
    create(device.clone()).unwrap();
    let start = |incarnation, sequence| {
        Log::open(device.clone(), &master()).unwrap().start_with(incarnation, sequence, nobody(), SMALL)
    };
    assert!(matches!(start(0, 0), Err(LogError::Refused(_))));
    let log = start(4, 10).unwrap();
    assert_eq!(put(&log, b"a"), Position::new(4, 10));
    assert!(matches!(start(4, 11), Err(LogError::Refused(_))), "it was not closed");
    log.close_clean(log.appended()).unwrap();
    assert!(log.append(&[b"late"]).is_err());
    let recovery = Log::open(device.clone(), &master()).unwrap();
    assert!(recovery.clean() && recovery.incarnation() == 4 && recovery.shard() == 3);
    assert!(matches!(start(4, 13), Err(LogError::Refused(_))), "a gap");
    assert!(matches!(start(3, 0), Err(LogError::Refused(_))), "a step back");
    let log = start(4, 11).unwrap();
    assert_eq!(log.durable(), Position::new(4, 10));
    assert_eq!(put(&log, b"b"), Position::new(4, 11));
    assert_eq!(contents(device.clone()).unwrap().len(), 2);
}

#[test]
fn opening_and_verifying_write_nothing() {
    let disk = FaultyDisk::new(SIZE, 1);
    create(disk.device()).unwrap();
    let (_, log) = restart(disk.device(), SMALL).unwrap();
    put(&log, b"x");
    let before = (disk.operations(), disk.image());
    let replayed = Log::verify(disk.device(), &master()).unwrap();
    assert_eq!((replayed.frames, replayed.entries, replayed.bytes, replayed.end), (1, 1, 1, 4096));
    assert_eq!((disk.operations(), disk.image()), before);
}

#[test]
fn keys_versions_and_blanks_are_told_apart() {
    let disk = FaultyDisk::new(SIZE, 1);
    let opened = |image: &[u8], key: Key| Log::open(disk_of(image), &key).err();
    assert!(matches!(opened(&disk.image(), master()), Some(LogError::Blank { .. })));
    create(disk.device()).unwrap();
    assert!(matches!(create(disk.device()), Err(LogError::Refused(_))), "it holds a log");
    assert!(matches!(opened(&disk.image(), Key::new([8; 32])), Some(LogError::WrongKey { .. })));
    let mut newer = disk.image();
    newer[4096 + 8] = 2;
    let crc = tarn_base::crc32c(&newer[4096..8188]);
    newer[8188..8192].copy_from_slice(&crc.to_le_bytes());
    assert!(matches!(opened(&newer, master()), Some(LogError::Newer { version: 2, .. })));
    let (_, log) = restart(disk.device(), SMALL).unwrap();
    put(&log, b"x");
    let mut headless = disk.image();
    headless[0] ^= 1;
    headless[4096] ^= 1;
    assert!(matches!(opened(&headless, master()), Some(LogError::Damaged { .. })));
    headless[..8192].fill(0);
    assert!(matches!(opened(&headless, master()), Some(LogError::Damaged { .. })), "wiped, not blank");
    assert!(matches!(opened(&[], master()), Some(LogError::Damaged { .. })));
    let mut foreign = vec![0x5a; SIZE as usize];
    assert!(matches!(create(disk_of(&foreign)), Err(LogError::Damaged { .. })));
    foreign.truncate(4096);
    assert!(matches!(create(disk_of(&foreign)), Err(LogError::Refused(_))));
}

/// With the newest header gone the older one would give out its opening count, and so nonces, a second time.
#[test]
fn a_lost_header_is_noticed_by_the_frames_after_it() {
    for clean in [false, true] {
        let disk = FaultyDisk::new(SIZE, 1);
        create(disk.device()).unwrap();
        let (_, log) = restart(disk.device(), SMALL).unwrap();
        put(&log, b"x");
        if clean {
            log.close_clean(log.appended()).unwrap();
        }
        let before = disk.image();
        let (_, log) = restart(disk.device(), SMALL).unwrap();
        put(&log, b"y");
        let mut image = disk.image();
        image[..RING].copy_from_slice(&before[..RING]);
        let found = contents(disk_of(&image));
        assert!(matches!(found, Err(LogError::Damaged { .. })), "clean {clean}: {found:?}");
    }
}

#[test]
fn garbage_on_the_medium_never_panics() {
    let disk = FaultyDisk::new(SIZE, 1);
    create(disk.device()).unwrap();
    let (_, log) = restart(disk.device(), SMALL).unwrap();
    for _ in 0..10 {
        put(&log, &[6; 3000]);
    }
    let image = disk.image();
    let mut rng = common::Rng(5);
    for _ in 0..400 {
        let mut bad = image.clone();
        for _ in 0..1 + rng.below(4) {
            let at = rng.below(SIZE) as usize;
            let len = (rng.below(5000) as usize).min(bad.len() - at);
            let noise = rng.bytes(len);
            bad[at..at + len].copy_from_slice(&noise);
        }
        if let Ok(found) = contents(disk_of(&bad)) {
            assert!(found.iter().all(|(_, payload)| payload == &[6; 3000]));
        }
        tarn_wal::decoders::header(&bad[..4096]);
        tarn_wal::decoders::frame(&rng.bytes(96));
    }
}

#[test]
fn a_file_is_made_once_locked_and_comes_back() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log");
    let mut told = 0;
    let device: Arc<dyn LogDevice> = Arc::new(FileDevice::create(&path, SIZE, |written| told = written).unwrap());
    assert_eq!((told, device.size()), (SIZE, SIZE));
    create(device.clone()).unwrap();
    let kind = FileDevice::open(&path).unwrap_err().kind();
    assert_eq!(kind, std::io::ErrorKind::WouldBlock);
    assert!(FileDevice::create(&path, SIZE, |_| {}).is_err());
    let (_, log) = restart(device.clone(), SMALL).unwrap();
    put(&log, b"kept");
    assert!(device.write(SIZE - 1, b"xx").is_err(), "a file never grows");
    drop((log, device));
    let device = Arc::new(FileDevice::open(&path).unwrap());
    assert_eq!(contents(device).unwrap(), vec![(Position::new(1, 0), b"kept".to_vec())]);
    assert_eq!(contents(Arc::new(FileDevice::open_read_only(&path).unwrap())).unwrap().len(), 1);
}

#[test]
fn a_file_holds_what_was_written_whichever_way_it_went() {
    let dir = tempfile::tempdir().unwrap();
    let device = FileDevice::create(&dir.path().join("log"), SIZE, |_| {}).unwrap();
    let mut rng = common::Rng(5);
    let mut expected = vec![0; SIZE as usize];
    let memory = rng.bytes(SIZE as usize + 4096);
    let aligned = memory.as_ptr().align_offset(4096);
    // Whole blocks from where a disk takes them, the same from elsewhere, and what is no whole block.
    for (at, from, len) in [(8192, aligned, 65_536), (16_384, aligned + 8, 8192), (12_288, aligned, 4096), (9000, 3, 5)]
    {
        let data = &memory[from..from + len];
        device.write(at as u64, data).unwrap();
        expected[at..at + len].copy_from_slice(data);
        device.flush().unwrap();
        let mut found = vec![0; SIZE as usize];
        device.read(0, &mut found).unwrap();
        assert!(found == expected, "{len} bytes at {at}");
    }
}

#[test]
fn memory_is_no_medium() {
    assert!(medium(std::path::Path::new("/")).is_ok());
    if std::path::Path::new("/dev/shm").exists() {
        assert_eq!(medium(std::path::Path::new("/dev/shm/none")).unwrap(), Medium::Memory("tmpfs"));
    }
}

/// A log as version 1 wrote it, its last blocks of zeros left out; never edited.
#[test]
fn a_log_of_version_1_still_opens() {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/log-1.bin");
    if std::env::var_os("WRITE_FIXTURE").is_some() {
        let disk = FaultyDisk::new(8192 + (64 << 10), 1);
        create(disk.device()).unwrap();
        let (_, log) = restart(disk.device(), SMALL).unwrap();
        put(&log, b"first");
        log.append(&[b"second"]).unwrap();
        put(&log, &[3; 5000]);
        log.trim(Position::new(1, 0)).unwrap();
        std::fs::write(&path, &disk.image()[..8192 + (16 << 10)]).unwrap();
    }
    let mut image = std::fs::read(path).unwrap();
    image.resize(8192 + (64 << 10), 0);
    let expected = vec![(Position::new(1, 1), b"second".to_vec()), (Position::new(1, 2), vec![3; 5000])];
    assert_eq!(contents(disk_of(&image)).unwrap(), expected);
    let (_, log) = restart(disk_of(&image), SMALL).unwrap();
    assert_eq!(put(&log, b"goes on"), Position::new(2, 0));
}
