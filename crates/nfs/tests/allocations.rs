//! The shortest path allocates nothing of its own: what memory answers costs what the file system costs.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use tarn_base::time::Time;
use tarn_base::world::{BoxFuture, Clock, Random, Spawn, World};
use tarn_nfs::exports::{Exports, Names, Resolver};
use tarn_nfs::gate::Gate;
use tarn_nfs::ops::Nfs;
use tarn_nfs::service::{Dispatched, Programs, Transport, dispatch};
use tarn_nfs::session::record::{self, Framed, Framer};
use tarn_nfs::wire::rpc::{AuthSys, Call};
use tarn_nfs::wire::xdr::Writer;
use tarn_vfs::model::Model;
use tarn_vfs::{Caller, FileSystem};

thread_local! {
    static COUNT: Cell<u64> = const { Cell::new(0) };
}

struct Counting;

// SAFETY: everything is the system allocator's; only a number of this thread is counted up.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.set(COUNT.get() + 1);
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        unsafe { System.dealloc(pointer, layout) }
    }
    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        COUNT.set(COUNT.get() + 1);
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// A world in which nothing happens.
struct Still;

impl Clock for Still {
    fn now(&self) -> Time {
        Time::EPOCH
    }
    fn steady(&self) -> Duration {
        Duration::ZERO
    }
    fn sleep(&self, _: Duration) -> BoxFuture<()> {
        Box::pin(std::future::pending())
    }
}

impl Random for Still {
    fn fill(&self, out: &mut [u8]) {
        out.fill(0);
    }
}

impl Spawn for Still {
    fn spawn(&self, _: &'static str, _: BoxFuture<()>) {}
}

impl Resolver for Still {
    fn resolve(&self, _: &str) -> BoxFuture<Vec<IpAddr>> {
        Box::pin(std::future::ready(Vec::new()))
    }
}

fn counted(run: impl FnOnce()) -> u64 {
    let before = COUNT.get();
    run();
    COUNT.get() - before
}

#[test]
fn getattr_allocates_nothing_of_its_own() {
    let fs: Arc<dyn FileSystem> = Arc::new(Model::with_volume());
    let world = World { clock: Arc::new(Still), random: Arc::new(Still), spawn: Arc::new(Still) };
    let rules = "10.0.0.0/8 ro\n* rw,insecure".parse().unwrap();
    let gate = Gate::new(fs.clone(), Exports::new(fs.clone(), Names::new(Arc::new(Still), world), rules));
    let programs: Programs = vec![Arc::new(Nfs::new(Arc::new(gate)))];
    let root = fs.volumes()[0].root;

    let mut w = Writer::new();
    let mark = record::begin(&mut w);
    let gids = smallvec::smallvec![1, 2, 3];
    let sys = AuthSys { stamp: 0, machine: b"client", uid: 5, gid: 5, gids };
    Call::encode(&mut w, 1, 100_003, 3, 1, Some(&sys));
    w.opaque(&fs.handle_key().sign(root).0);
    record::end(&mut w, mark);
    let message = w.to_vec();

    let mut framer = Framer::default();
    let mut buffer = BytesMut::with_capacity(64 << 10);
    let mut out = Writer::new();
    let mut serve = || {
        buffer.reserve(16 << 10);
        buffer.extend_from_slice(&message);
        let Ok(Framed::Message(message)) = framer.next(&mut buffer) else { panic!("a whole message was given") };
        let mark = record::begin(&mut out);
        let done = dispatch(&programs, "10.0.0.1:700".parse().unwrap(), Transport::Tcp, &message, &mut out);
        assert!(matches!(done, Dispatched::Replied { status: 0, .. }));
        record::end(&mut out, mark);
        out.clear(64 << 10);
    };
    // The first calls fill the buffers that are used again.
    for _ in 0..3 {
        serve();
    }
    let caller = Caller::user(5, 5);
    let own = counted(|| drop(fs.getattr(&caller, root))) + counted(|| drop(fs.volumes()));
    let whole = counted(|| (0..1000).for_each(|_| serve()));
    assert!(whole <= own * 1000, "{whole} allocations in 1000 calls; the file system made {own} in each");
}
