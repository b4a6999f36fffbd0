//! Sends garbage at a fixed rate: noise, and mutated calls.
//!
//! - Credentials are never mutated: the sender stays who it is.
//! - Replies are read and thrown away; a connection that the server cuts off is made again.

use super::{SHARED, calls};
use crate::random::Random;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tarn_nfsclient::Credentials;
use tarn_nfsclient::rpc::call_record;

/// The port of the port mapper; tried now and then, if it is there.
const PORTMAP_PORT: u16 = 111;

pub fn send(address: SocketAddr, targets: &calls::Targets, seed: u64, rate: u64) {
    let mut random = Random::new(seed);
    let who = Credentials::user(calls::USER);
    let mut noise = Line::new(address);
    let mut mutants = Line::new(address);
    let mut portmap = Line::new(SocketAddr::new(address.ip(), PORTMAP_PORT));
    let began = Instant::now();
    for number in 0u64.. {
        if SHARED.end.load(Ordering::Relaxed) {
            return;
        }
        let due = Duration::from_secs_f64(number as f64 / rate.max(1) as f64);
        std::thread::sleep(due.saturating_sub(began.elapsed()));
        if number % 2 == 0 {
            let line = if random.below(10) == 0 { &mut portmap } else { &mut noise };
            line.say(&random_bytes(&mut random));
            SHARED.noise.fetch_add(1, Ordering::Relaxed);
        } else {
            let (procedure, arguments) = targets.call(&mut random);
            let mut record = call_record(random.next() as u32, procedure, &who, &[]);
            let mutated = mutate(arguments, &mut random);
            record.extend_from_slice(&mutated);
            let size = (record.len() - 4) as u32 | 0x8000_0000;
            record[..4].copy_from_slice(&size.to_be_bytes());
            let line = if matches!(procedure.program, 100_000 | 100_024) { &mut portmap } else { &mut mutants };
            line.say(&record);
            SHARED.mutants.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Noise of three kinds: without a record, in a record, and behind the beginning of a call.
fn random_bytes(random: &mut Random) -> Vec<u8> {
    let size = match random.below(50) {
        0 => random.below(100_000),
        1..10 => random.below(5000),
        _ => random.below(300),
    };
    let bytes = random.bytes(size as usize);
    let kind = random.below(4);
    if kind == 0 {
        return bytes;
    }
    let head = [random.next() as u32, 0, 2, 100_003, 3, random.below(24) as u32, random.below(8) as u32];
    let words = if kind == 1 { 0 } else { 2 + random.below(6) as usize };
    let size = (words * 4 + bytes.len()) as u32 | 0x8000_0000;
    let head = head.iter().take(words).flat_map(|word| word.to_be_bytes());
    size.to_be_bytes().into_iter().chain(head).chain(bytes).collect()
}

/// One to four changes: bits, words of odd values, cut short, grown, pieces moved.
fn mutate(mut bytes: Vec<u8>, random: &mut Random) -> Vec<u8> {
    for _ in 0..1 + random.below(4) {
        let at = random.below(bytes.len() as u64) as usize;
        match random.below(7) {
            _ if bytes.is_empty() => {
                let more = random.below(40) as usize;
                bytes = random.bytes(more);
            }
            0 | 1 => bytes[at] ^= 1 << random.below(8),
            2 => bytes[at] = random.next() as u8,
            3 => {
                let odd =
                    [0, 1, 0x7fff_ffff, 0x8000_0000, u32::MAX, u32::MAX - 3, 1 << 20, 65][random.below(8) as usize];
                let at = at / 4 * 4;
                let end = bytes.len().min(at + 4);
                bytes[at..end].copy_from_slice(&u32::to_be_bytes(odd)[..end - at]);
            }
            4 => bytes.truncate(at),
            5 => {
                let more = random.below(64) as usize;
                bytes.extend(random.bytes(more));
            }
            _ => bytes.rotate_left(at),
        }
    }
    bytes
}

/// A connection, made again when it breaks.
struct Line {
    address: SocketAddr,
    stream: Option<TcpStream>,
}

impl Line {
    fn new(address: SocketAddr) -> Line {
        Line { address, stream: None }
    }

    fn say(&mut self, bytes: &[u8]) {
        if self.stream.is_none() {
            let made = TcpStream::connect_timeout(&self.address, Duration::from_secs(5));
            self.stream = made.and_then(|stream| stream.set_nonblocking(true).map(|()| stream)).ok();
        }
        let Some(stream) = &mut self.stream else { return };
        // What the server does not take at once is left unsent, and then nothing on this connection makes sense.
        let sent = stream.write(bytes).is_ok_and(|sent| sent == bytes.len());
        if !sent || !drain(stream) {
            self.stream = None;
            SHARED.cut.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Reads what is there; whether the connection still stands.
fn drain(stream: &mut TcpStream) -> bool {
    let mut buffer = [0; 16 << 10];
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => return false,
            Ok(_) => SHARED.replies.fetch_add(1, Ordering::Relaxed),
            Err(error) => return error.kind() == ErrorKind::WouldBlock,
        };
    }
}
