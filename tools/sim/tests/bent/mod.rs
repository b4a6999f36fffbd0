//! A file system and a device with one bug each, around ones that have none.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use tarn_base::ids::{Position, VolumeId};
use tarn_vfs::*;
use tarn_wal::LogDevice;

/// What is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    DurableAtOnce,
    ConstantVerifier,
    TokensIgnored,
    RemovesLost,
    BytesSpoilt,
    /// Clients are shown one verifier for ever, though the file system's own changes.
    VerifierSticks,
    /// Cookies of one opening mean something else in the next.
    CookiesMove,
}

pub struct Bent {
    inner: Arc<dyn FileSystem>,
    bug: Bug,
    calls: AtomicU64,
}

impl Bent {
    pub fn new(inner: Arc<dyn FileSystem>, bug: Bug) -> Bent {
        Bent { inner, bug, calls: AtomicU64::new(0) }
    }

    /// Every seventh time, if that is the bug.
    fn now_and_then(&self, bug: Bug) -> bool {
        self.bug == bug && self.calls.fetch_add(1, Ordering::Relaxed) % 7 == 6
    }

    fn caller(&self, caller: &Caller) -> Caller {
        let once = caller.once.filter(|_| self.bug != Bug::TokensIgnored);
        Caller { once, ..caller.clone() }
    }
}

impl FileSystem for Bent {
    fn volumes(&self) -> Volumes {
        self.inner.volumes()
    }

    fn handle_key(&self) -> HandleKey {
        self.inner.handle_key()
    }

    fn write_verifier(&self) -> [u8; 8] {
        let sticks = self.bug == Bug::VerifierSticks && self.calls.fetch_add(1, Ordering::Relaxed) > 0;
        if self.bug == Bug::ConstantVerifier || sticks { [7; 8] } else { self.inner.write_verifier() }
    }

    fn incarnation(&self) -> u32 {
        self.inner.incarnation()
    }

    fn durable(&self, position: Position) -> Answer<()> {
        if self.bug == Bug::DurableAtOnce { Answer::ok(()) } else { self.inner.durable(position) }
    }

    fn statfs(&self, caller: &Caller, volume: VolumeId) -> Answer<FsStat> {
        self.inner.statfs(caller, volume)
    }

    fn getattr(&self, caller: &Caller, node: Node) -> Answer<Attr> {
        self.inner.getattr(caller, node)
    }

    fn setattr(&self, caller: &Caller, node: Node, set: SetAttr) -> Answer<Effect> {
        self.inner.setattr(&self.caller(caller), node, set)
    }

    fn access(&self, caller: &Caller, node: Node, want: Access) -> Answer<(Access, Attr)> {
        self.inner.access(caller, node, want)
    }

    fn readlink(&self, caller: &Caller, node: Node) -> Answer<(Bytes, Attr)> {
        self.inner.readlink(caller, node)
    }

    fn read(&self, caller: &Caller, node: Node, offset: u64, count: u32) -> Answer<ReadReply> {
        self.inner.read(caller, node, offset, count)
    }

    fn write(&self, caller: &Caller, node: Node, offset: u64, data: Bytes, stability: Stability) -> Answer<Effect> {
        let mut data = data.to_vec();
        if self.now_and_then(Bug::BytesSpoilt)
            && let Some(last) = data.last_mut()
        {
            *last ^= 1;
        }
        self.inner.write(caller, node, offset, data.into(), stability)
    }

    fn commit(&self, caller: &Caller, node: Node) -> Answer<Effect> {
        self.inner.commit(caller, node)
    }

    fn lookup(&self, caller: &Caller, dir: Node, name: &[u8]) -> Answer<(Attr, Attr)> {
        self.inner.lookup(caller, dir, name)
    }

    fn list(&self, caller: &Caller, dir: Node, request: ListRequest) -> Answer<ListReply> {
        if self.bug != Bug::CookiesMove {
            return self.inner.list(caller, dir, request);
        }
        // "." and ".." are not moved.
        let by = u64::from(self.inner.incarnation());
        let after = if request.after > 2 { request.after.saturating_sub(by) } else { request.after };
        let moved = move |mut reply: Reply<ListReply>| {
            let entries = reply.iter_mut().flat_map(|done| &mut done.value.entries);
            entries.filter(|entry| entry.cookie > 2).for_each(|entry| entry.cookie += by);
            reply
        };
        match self.inner.list(caller, dir, ListRequest { after, ..request }) {
            Answer::Ready(reply) => Answer::Ready(reply.map(moved)),
            later => Answer::Waits(Box::pin(async move { moved(later.await) })),
        }
    }

    fn create(&self, caller: &Caller, dir: Node, name: &[u8], mode: CreateMode, set: SetAttr) -> Answer<Effect> {
        self.inner.create(&self.caller(caller), dir, name, mode, set)
    }

    fn mkdir(&self, caller: &Caller, dir: Node, name: &[u8], set: SetAttr) -> Answer<Effect> {
        self.inner.mkdir(&self.caller(caller), dir, name, set)
    }

    fn make(&self, caller: &Caller, dir: Node, name: &[u8], what: Special, set: SetAttr) -> Answer<Effect> {
        self.inner.make(&self.caller(caller), dir, name, what, set)
    }

    fn link(&self, caller: &Caller, node: Node, dir: Node, name: &[u8]) -> Answer<Effect> {
        self.inner.link(&self.caller(caller), node, dir, name)
    }

    fn remove(&self, caller: &Caller, dir: Node, name: &[u8]) -> Answer<Effect> {
        if self.now_and_then(Bug::RemovesLost) {
            return Answer::ok(Effect::default());
        }
        self.inner.remove(&self.caller(caller), dir, name)
    }

    fn rmdir(&self, caller: &Caller, dir: Node, name: &[u8]) -> Answer<Effect> {
        self.inner.rmdir(&self.caller(caller), dir, name)
    }

    fn rename(&self, caller: &Caller, from: Node, name: &[u8], to: Node, new_name: &[u8]) -> Answer<Effect> {
        self.inner.rename(&self.caller(caller), from, name, to, new_name)
    }

    fn lock(&self, caller: &Caller, request: LockRequest) -> Answer<LockOutcome> {
        self.inner.lock(caller, request)
    }

    fn unlock(&self, caller: &Caller, node: Node, owner: LockOwner, range: LockRange) -> Answer<()> {
        self.inner.unlock(caller, node, owner, range)
    }

    fn test_lock(&self, caller: &Caller, lock: Lock) -> Answer<Option<Lock>> {
        self.inner.test_lock(caller, lock)
    }

    fn cancel_lock(&self, caller: &Caller, lock: Lock) -> Answer<bool> {
        self.inner.cancel_lock(caller, lock)
    }

    fn release_client(&self, client: &[u8]) -> Answer<()> {
        self.inner.release_client(client)
    }

    fn locks(&self) -> Vec<LockInfo> {
        self.inner.locks()
    }

    fn locks_position(&self) -> Position {
        self.inner.locks_position()
    }

    fn clients_to_notify(&self) -> Vec<(Bytes, Bytes)> {
        self.inner.clients_to_notify()
    }

    fn client_notified(&self, client: &[u8]) -> Answer<()> {
        self.inner.client_notified(client)
    }

    fn in_grace(&self) -> bool {
        self.inner.in_grace()
    }

    fn set_event_sink(&self, sink: Arc<dyn EventSink>) {
        self.inner.set_event_sink(sink)
    }
}

/// A device whose flushes succeed and, once the log is open, do nothing.
pub struct LyingDevice {
    inner: Arc<dyn LogDevice>,
    flushes: AtomicU64,
}

impl LyingDevice {
    /// Flushes that are honest: those of an opening, or the next one finds the log older than the store and refuses it.
    const HONEST: u64 = 4;

    pub fn new(inner: Arc<dyn LogDevice>) -> LyingDevice {
        LyingDevice { inner, flushes: AtomicU64::new(0) }
    }
}

impl LogDevice for LyingDevice {
    fn size(&self) -> u64 {
        self.inner.size()
    }

    fn read(&self, at: u64, buf: &mut [u8]) -> io::Result<()> {
        self.inner.read(at, buf)
    }

    fn write(&self, at: u64, data: &[u8]) -> io::Result<()> {
        self.inner.write(at, data)
    }

    fn flush(&self) -> io::Result<()> {
        match self.flushes.fetch_add(1, Ordering::Relaxed) {
            ..Self::HONEST => self.inner.flush(),
            _ => Ok(()),
        }
    }

    fn name(&self) -> String {
        self.inner.name()
    }
}
