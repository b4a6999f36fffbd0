//! Connections that have begun a message and say no more; one that the server cuts off is made again.

use super::SHARED;
use crate::random::Random;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::Ordering;
use std::time::Duration;

pub fn hold(address: SocketAddr, count: usize, seed: u64) {
    let mut random = Random::new(seed ^ 0x0a1f);
    let mut open: Vec<TcpStream> = Vec::with_capacity(count);
    while !SHARED.end.load(Ordering::Relaxed) {
        let before = open.len();
        open.retain_mut(still_open);
        SHARED.cut.fetch_add((before - open.len()) as u64, Ordering::Relaxed);
        while open.len() < count && !SHARED.end.load(Ordering::Relaxed) {
            let Ok(stream) = begin(address, &mut random) else { break };
            open.push(stream);
        }
        std::thread::sleep(Duration::from_millis(200));
    }
}

/// A connection with the beginning of a record of up to a mebibyte: nothing, part of its mark, or some of its bytes.
fn begin(address: SocketAddr, random: &mut Random) -> std::io::Result<TcpStream> {
    let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(5))?;
    let size = random.below(1 << 20) as u32 | 0x8000_0000;
    let mut bytes = size.to_be_bytes().to_vec();
    match random.below(4) {
        0 => bytes.clear(),
        1 => bytes.truncate(random.below(4) as usize),
        _ => {
            let more = random.below(400) as usize;
            bytes.extend(random.bytes(more));
        }
    }
    stream.write_all(&bytes)?;
    stream.set_nonblocking(true)?;
    Ok(stream)
}

fn still_open(stream: &mut TcpStream) -> bool {
    let mut byte = [0];
    match stream.read(&mut byte) {
        Ok(0) => false,
        Ok(_) => true,
        Err(error) => error.kind() == ErrorKind::WouldBlock,
    }
}
