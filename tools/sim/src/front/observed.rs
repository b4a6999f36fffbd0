//! The file system below the front end: each call is shown to the tracker as it takes effect.
//!
//! - A call that carries a number of the tracker's is that operation, or a repeat of it; the number goes no further.
//! - Any other call is one of the checks', and passes.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tarn_base::ids::{Position, VolumeId};
use tarn_base::memory::Memory;
use tarn_vfs::*;

use crate::tracker::Tracker;

/// Groups from here on are the tracker's numbers.
pub const TAG: u32 = 0x7000_0000;

/// See the head of the file.
pub struct Observed {
    inner: Arc<dyn FileSystem>,
    tracker: Arc<Tracker>,
}

impl Observed {
    pub fn new(inner: Arc<dyn FileSystem>, tracker: Arc<Tracker>) -> Observed {
        Observed { inner, tracker }
    }

    fn observe<T: Send + 'static>(
        &self,
        caller: &Caller,
        call: impl FnOnce(&dyn FileSystem, &Caller) -> Answer<T>,
    ) -> Answer<T> {
        let mut plain = caller.clone();
        plain.groups.retain(|group| *group < TAG);
        let tag = caller.groups.iter().find(|group| **group >= TAG);
        let issue = tag.and_then(|tag| self.tracker.issued(*tag - TAG));
        match issue {
            None => call(&*self.inner, &plain),
            Some(issue) => self.tracker.observe(&issue, || call(&*self.inner, &plain)),
        }
    }
}

impl FileSystem for Observed {
    fn volumes(&self) -> Volumes {
        self.inner.volumes()
    }

    fn handle_key(&self) -> HandleKey {
        self.inner.handle_key()
    }

    fn write_verifier(&self) -> [u8; 8] {
        self.inner.write_verifier()
    }

    fn incarnation(&self) -> u32 {
        self.inner.incarnation()
    }

    fn durable(&self, position: Position) -> Answer<()> {
        self.inner.durable(position)
    }

    fn awake(&self, now: Duration) -> Option<Answer<()>> {
        self.inner.awake(now)
    }

    fn room(&self, bytes: usize) -> Answer<()> {
        self.inner.room(bytes)
    }

    fn memory(&self) -> Memory {
        self.inner.memory()
    }

    fn statfs(&self, caller: &Caller, volume: VolumeId) -> Answer<FsStat> {
        self.observe(caller, |fs, caller| fs.statfs(caller, volume))
    }

    fn getattr(&self, caller: &Caller, node: Node) -> Answer<Attr> {
        self.observe(caller, |fs, caller| fs.getattr(caller, node))
    }

    fn setattr(&self, caller: &Caller, node: Node, set: SetAttr) -> Answer<Effect> {
        self.observe(caller, |fs, caller| fs.setattr(caller, node, set))
    }

    fn access(&self, caller: &Caller, node: Node, want: Access) -> Answer<(Access, Attr)> {
        self.observe(caller, |fs, caller| fs.access(caller, node, want))
    }

    fn readlink(&self, caller: &Caller, node: Node) -> Answer<(Bytes, Attr)> {
        self.observe(caller, |fs, caller| fs.readlink(caller, node))
    }

    fn read(&self, caller: &Caller, node: Node, offset: u64, count: u32) -> Answer<ReadReply> {
        self.observe(caller, |fs, caller| fs.read(caller, node, offset, count))
    }

    fn write(&self, caller: &Caller, node: Node, offset: u64, data: Bytes, stability: Stability) -> Answer<Effect> {
        self.observe(caller, |fs, caller| fs.write(caller, node, offset, data, stability))
    }

    fn commit(&self, caller: &Caller, node: Node) -> Answer<Effect> {
        self.observe(caller, |fs, caller| fs.commit(caller, node))
    }

    fn lookup(&self, caller: &Caller, dir: Node, name: &[u8]) -> Answer<(Attr, Attr)> {
        self.observe(caller, |fs, caller| fs.lookup(caller, dir, name))
    }

    fn list(&self, caller: &Caller, dir: Node, request: ListRequest) -> Answer<ListReply> {
        self.observe(caller, |fs, caller| fs.list(caller, dir, request))
    }

    fn create(&self, caller: &Caller, dir: Node, name: &[u8], mode: CreateMode, set: SetAttr) -> Answer<Effect> {
        self.observe(caller, |fs, caller| fs.create(caller, dir, name, mode, set))
    }

    fn mkdir(&self, caller: &Caller, dir: Node, name: &[u8], set: SetAttr) -> Answer<Effect> {
        self.observe(caller, |fs, caller| fs.mkdir(caller, dir, name, set))
    }

    fn make(&self, caller: &Caller, dir: Node, name: &[u8], what: Special, set: SetAttr) -> Answer<Effect> {
        self.observe(caller, |fs, caller| fs.make(caller, dir, name, what, set))
    }

    fn link(&self, caller: &Caller, node: Node, dir: Node, name: &[u8]) -> Answer<Effect> {
        self.observe(caller, |fs, caller| fs.link(caller, node, dir, name))
    }

    fn remove(&self, caller: &Caller, dir: Node, name: &[u8]) -> Answer<Effect> {
        self.observe(caller, |fs, caller| fs.remove(caller, dir, name))
    }

    fn rmdir(&self, caller: &Caller, dir: Node, name: &[u8]) -> Answer<Effect> {
        self.observe(caller, |fs, caller| fs.rmdir(caller, dir, name))
    }

    fn rename(&self, caller: &Caller, from: Node, name: &[u8], to: Node, new_name: &[u8]) -> Answer<Effect> {
        self.observe(caller, |fs, caller| fs.rename(caller, from, name, to, new_name))
    }

    fn lock(&self, caller: &Caller, request: LockRequest) -> Answer<LockOutcome> {
        self.observe(caller, |fs, caller| fs.lock(caller, request))
    }

    fn unlock(&self, caller: &Caller, node: Node, owner: LockOwner, range: LockRange) -> Answer<()> {
        self.observe(caller, |fs, caller| fs.unlock(caller, node, owner, range))
    }

    fn test_lock(&self, caller: &Caller, lock: Lock) -> Answer<Option<Lock>> {
        self.observe(caller, |fs, caller| fs.test_lock(caller, lock))
    }

    fn cancel_lock(&self, caller: &Caller, lock: Lock) -> Answer<bool> {
        self.observe(caller, |fs, caller| fs.cancel_lock(caller, lock))
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

    fn answered(&self, call: &Sent) {
        self.inner.answered(call);
    }

    fn was_answered(&self, call: &Sent) -> bool {
        self.inner.was_answered(call)
    }

    fn in_grace(&self) -> bool {
        self.inner.in_grace()
    }

    fn set_event_sink(&self, sink: Arc<dyn EventSink>) {
        self.inner.set_event_sink(sink);
    }
}
