//! What the log's tests share: a seeded source of numbers, a log on a device, its entries.
#![allow(dead_code)]

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use tarn_base::crypto::Key;
use tarn_base::ids::{Position, Uuid};
use tarn_wal::{CreateOptions, Log, LogDevice, LogError, LogOptions, Wake};

pub const SMALL: LogOptions =
    LogOptions { frame_soft: 8 << 10, write_soft: 8 << 10, buffered_max: 256 << 10, reserve_share: 16 };

pub struct Rng(pub u64);

impl Rng {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    pub fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.next() as u8).collect()
    }
}

pub fn master() -> Key {
    Key::new([1; 32])
}

pub fn create(device: Arc<dyn LogDevice>) -> Result<(), LogError> {
    let options = CreateOptions {
        id: Uuid([7; 16]),
        shard: 3,
        master: &master(),
        log_key: Key::new([2; 32]),
        wrap_nonce: [5; 12],
    };
    Log::create(device, options)
}

pub fn nobody() -> Wake {
    Arc::new(|| {})
}

pub type Entries = Vec<(Position, Vec<u8>)>;

/// Opens and replays; gives what was in the log, and the log under the next incarnation.
pub fn restart(device: Arc<dyn LogDevice>, options: LogOptions) -> Result<(Entries, Arc<Log>), LogError> {
    let mut recovery = Log::open(device, &master())?;
    let mut entries = Vec::new();
    recovery.replay(|entry| {
        entries.push((entry.position, entry.payload.to_vec()));
        Ok::<(), LogError>(())
    })?;
    let incarnation = recovery.incarnation() + 1;
    Ok((entries, recovery.start_with(incarnation, 0, nobody(), options)?))
}

/// What is in the log, without starting it.
pub fn contents(device: Arc<dyn LogDevice>) -> Result<Entries, LogError> {
    let mut entries = Vec::new();
    Log::open(device, &master())?.replay(|entry| {
        entries.push((entry.position, entry.payload.to_vec()));
        Ok::<(), LogError>(())
    })?;
    Ok(entries)
}

pub fn poll_once<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    pin!(future).poll(&mut Context::from_waker(Waker::noop()))
}

/// Appends and makes durable.
pub fn put(log: &Arc<Log>, payload: &[u8]) -> Position {
    let appended = log.append(&[payload]).expect("there is room");
    log.request_flush();
    log.flush_now();
    assert_eq!(log.durable(), appended.position);
    appended.position
}
