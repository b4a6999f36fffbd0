//! A million warm GETATTRs: the serving thread allocates nothing, takes no lock that others hold, and sleeps only at its
//! sockets.
//!
//! The whole server runs in this process, so that its allocations can be counted.

mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use clap::Parser;
use common::Place;
use tarn_filer::cli::Cli;
use tarn_nfs::wire::rpc::{AuthSys, Call};
use tarn_nfs::wire::xdr::Writer;

const CALLS: usize = 1_000_000;
/// Calls that are sent together.
const BATCH: usize = 64;
const SERVING: &[u8] = b"serve-0\0";

/// Allocations of serving threads.
static COUNT: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// Whether this is a serving thread; 2 while that is not known.
    static SERVES: Cell<u8> = const { Cell::new(2) };
}

fn count() {
    let known = SERVES.get();
    if known == 1 {
        COUNT.fetch_add(1, Ordering::Relaxed);
    } else if known == 2 {
        let mut name = [0u8; 16];
        // SAFETY: the buffer has the 16 bytes that PR_GET_NAME writes.
        unsafe { libc::prctl(libc::PR_GET_NAME, name.as_mut_ptr()) };
        // A thread has its own name only some time after its start; those of tests never become serving ones.
        if name.starts_with(SERVING) {
            SERVES.set(1);
        }
    }
}

struct Counting;

// SAFETY: everything is the system allocator's; only a number is counted up.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        unsafe { System.dealloc(pointer, layout) }
    }
    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// How often the serving thread has gone to sleep.
fn sleeps() -> u64 {
    let threads = std::fs::read_dir("/proc/self/task").unwrap().flatten();
    let serving = |thread: &std::fs::DirEntry| {
        std::fs::read(thread.path().join("comm")).is_ok_and(|name| name.trim_ascii() == b"serve-0")
    };
    let thread = threads.into_iter().find(serving).expect("a serving thread runs");
    let status = std::fs::read_to_string(thread.path().join("status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:")).unwrap();
    line.trim().parse().unwrap()
}

fn serve(place: &Place) -> SocketAddr {
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    std::fs::write(place.path("one.toml"), "log.size = '64MiB'\nlog.unsafe = true\nnfs.cores = 1\n").unwrap();
    let words = [
        "tarn",
        "serve",
        "--data",
        &place.shown("data"),
        "--config",
        &place.shown("one.toml"),
        "--nfs",
        &address.to_string(),
    ];
    let cli = Cli::parse_from(words);
    // A panic ends this process as it ends a server; what the harness has caught of it would be lost with that.
    std::panic::set_hook(Box::new(|panic| drop(writeln!(std::io::stderr(), "{panic}"))));
    std::thread::spawn(move || cli.run().unwrap());
    let begun = Instant::now();
    while std::fs::read_dir(place.path("data")).map_or(0, |all| all.count()) == 0
        || TcpStream::connect(address).is_err()
    {
        assert!(begun.elapsed() < Duration::from_secs(60), "no server");
        std::thread::sleep(Duration::from_millis(20));
    }
    address
}

/// Sends `batch` again and again, and reads `replies` bytes for each.
fn repeat(stream: &mut TcpStream, batch: &[u8], replies: &mut [u8], times: usize) {
    for _ in 0..times {
        stream.write_all(batch).unwrap();
        stream.read_exact(replies).unwrap();
    }
}

#[test]
fn a_million_warm_getattrs_cost_nothing_but_their_sockets() {
    let place = Place::new();
    let address = serve(&place);
    let client = common::nfs::Client::mount(address, "/vol");
    let mut batch = Vec::new();
    for xid in 0..BATCH as u32 {
        let mut w = Writer::new();
        let sys = AuthSys { stamp: 0, machine: b"steady", uid: 0, gid: 0, gids: Default::default() };
        Call::encode(&mut w, xid, 100_003, 3, 1, Some(&sys));
        w.opaque(&client.root);
        let message = w.to_vec();
        batch.extend_from_slice(&(message.len() as u32 | 1 << 31).to_be_bytes());
        batch.extend_from_slice(&message);
    }
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_nodelay(true).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    // Mark, header of an accepted reply, status, attributes.
    let mut replies = vec![0; BATCH * (4 + 24 + 4 + 84)];
    repeat(&mut stream, &batch, &mut replies, 500);
    assert_eq!(replies[28..32], [0; 4], "GETATTR");
    let (allocations, slept, begun) = (COUNT.load(Ordering::Relaxed), sleeps(), Instant::now());
    assert!(allocations > 0, "the count counts");
    let times = CALLS / BATCH;
    repeat(&mut stream, &batch, &mut replies, times);
    let seconds = begun.elapsed().as_secs_f64();
    let (allocations, slept) = (COUNT.load(Ordering::Relaxed) - allocations, sleeps() - slept);
    println!("{CALLS} calls in {seconds:.2} s: {allocations} allocations, {slept} sleeps in {times} batches");
    // The clock of the connection's limits is set anew every quarter of a minute.
    assert!(allocations <= 2 + seconds as u64 / 5, "{allocations} allocations");
    // It may sleep once for each batch that has to be waited for; the rest is for timers.
    assert!(slept <= 2 * times as u64 + 100, "{slept} sleeps");
}
