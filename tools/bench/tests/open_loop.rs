//! The open loop: calls come at their times, and what waits behind a server that stands still is not forgotten.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::time::Duration;
use tarn_bench::load::jobs::Job;
use tarn_bench::load::run::run;
use tarn_bench::load::wire::{Reply, append, call};
use tarn_bench::load::{Length, Plan};
use tarn_bench::measure::Meter;

struct Null(Vec<u8>);

impl Job for Null {
    fn call(&mut self, _connection: usize, xid: u32, out: &mut Vec<u8>) -> u64 {
        append(out, &self.0, xid);
        0
    }

    fn judge(&mut self, _token: u64, _results: Reply) -> Result<(), String> {
        Ok(())
    }
}

/// Answers one call after another, and sleeps once for `stop` before the call numbered `at`.
fn server(size: usize, at: usize, stop: Duration) -> std::net::SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        let mut socket = listener.accept().unwrap().0;
        let mut call = vec![0; size];
        for index in 0.. {
            if socket.read_exact(&mut call).is_err() {
                return;
            }
            if index == at {
                std::thread::sleep(stop);
            }
            let mut reply = vec![0x80, 0, 0, 24];
            reply.extend_from_slice(&call[4..8]);
            reply.extend_from_slice(&[0, 0, 0, 1]);
            reply.resize(28, 0);
            socket.write_all(&reply).unwrap();
        }
    });
    address
}

#[test]
fn calls_come_at_their_times_and_a_stop_is_seen_by_all_that_were_due() {
    let template = call(0, &[]);
    let address = server(template.len(), 150, Duration::from_millis(200));
    let length = Length::Time(Duration::from_millis(800));
    // One place only: what is due during the stop has none, and waits.
    let plan = Plan { connections: 1, depth: 1, warm_up: Duration::from_millis(100), length, pace: Some(500.0) };
    let seen = run(address, plan, &mut Null(template), &Meter::default()).unwrap();
    assert!((300..=500).contains(&seen.calls), "{} calls of 400", seen.calls);
    let late = seen.latency.count_between(20_000_000, u64::MAX);
    assert!((70..=140).contains(&late), "{late} of the hundred calls that were due in the stop");
    assert!(seen.latency.max() >= 190_000_000);
}
