//! The engine as front ends see it: each method names its operation.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use smallvec::SmallVec;
use tarn_base::ids::{Position, VolumeId};
use tarn_base::memory::Memory;
use tarn_base::mutant;
use tarn_base::pages::Pages;
use tarn_vfs::*;

use crate::core::Core;
use crate::engine::Engine;
use crate::ops;

fn name_of(name: &[u8]) -> Bytes {
    Bytes::copy_from_slice(name)
}

impl FileSystem for Engine {
    fn volumes(&self) -> Volumes {
        self.core.volumes.listed()
    }

    fn lists(&self, volumes: &Volumes) -> bool {
        self.core.volumes.lists(volumes)
    }

    fn handle_key(&self) -> HandleKey {
        self.core.identity.handle_key
    }

    fn write_verifier(&self) -> [u8; 8] {
        let shard = self.core.config.shard.to_be_bytes();
        let incarnation = if mutant::on(mutant::VERIFIER_CONSTANT) { 1 } else { self.core.identity.incarnation };
        let mut out = [0; 8];
        out[..4].copy_from_slice(&shard);
        out[4..].copy_from_slice(&incarnation.to_be_bytes());
        out
    }

    fn incarnation(&self) -> u32 {
        self.core.identity.incarnation
    }

    fn durable(&self, position: Position) -> Answer<()> {
        self.core.durable(position)
    }

    fn awake(&self, now: Duration) -> Option<Answer<()>> {
        self.core.awake(now)
    }

    fn room(&self, bytes: usize) -> Answer<()> {
        self.core.room(bytes)
    }

    fn memory(&self) -> Memory {
        self.core.log.memory().clone()
    }

    fn pages(&self) -> Pages {
        self.core.caches.pages.clone()
    }

    fn statfs(&self, _caller: &Caller, volume: VolumeId) -> Answer<FsStat> {
        self.core.execute(ops::statfs::StatFs { volume })
    }

    fn getattr(&self, _caller: &Caller, node: Node) -> Answer<Attr> {
        self.core.execute(ops::getattr::GetAttr { node })
    }

    fn setattr(&self, caller: &Caller, node: Node, set: SetAttr) -> Answer<Effect> {
        self.core.execute_once(caller, ops::setattr::SetAttributes { caller: caller.clone(), node, set })
    }

    fn access(&self, caller: &Caller, node: Node, want: Access) -> Answer<(Access, Attr)> {
        self.core.execute(ops::access::AccessCheck { caller: caller.clone(), node, want })
    }

    fn readlink(&self, _caller: &Caller, node: Node) -> Answer<(Bytes, Attr)> {
        self.core.execute(ops::readlink::ReadLink { node })
    }

    fn read(&self, caller: &Caller, node: Node, offset: u64, count: u32) -> Answer<ReadReply> {
        self.core.read_ahead(node, offset, count);
        self.core.execute(ops::read::Read { caller: caller.clone(), node, offset, count })
    }

    fn write(&self, caller: &Caller, node: Node, offset: u64, data: Bytes, stability: Stability) -> Answer<Effect> {
        let operation = ops::write::Write { caller: caller.clone(), node, offset, data, stability };
        self.core.execute_sent(caller, operation)
    }

    fn commit(&self, _caller: &Caller, node: Node) -> Answer<Effect> {
        self.core.execute(ops::commit::Commit { node })
    }

    fn lookup(&self, caller: &Caller, dir: Node, name: &[u8]) -> Answer<(Attr, Attr)> {
        self.core.execute(ops::lookup::Lookup { caller: caller.clone(), dir, name: SmallVec::from_slice(name) })
    }

    fn list(&self, caller: &Caller, dir: Node, request: ListRequest) -> Answer<ListReply> {
        self.core.execute(ops::list::List { caller: caller.clone(), dir, request })
    }

    fn create(&self, caller: &Caller, dir: Node, name: &[u8], mode: CreateMode, set: SetAttr) -> Answer<Effect> {
        let operation = ops::create::Create { caller: caller.clone(), dir, name: name_of(name), mode, set };
        self.core.execute_once(caller, operation)
    }

    fn mkdir(&self, caller: &Caller, dir: Node, name: &[u8], set: SetAttr) -> Answer<Effect> {
        let operation = ops::make::Make { caller: caller.clone(), dir, name: name_of(name), special: None, set };
        self.core.execute_once(caller, operation)
    }

    fn make(&self, caller: &Caller, dir: Node, name: &[u8], what: Special, set: SetAttr) -> Answer<Effect> {
        let special = Some(what);
        let operation = ops::make::Make { caller: caller.clone(), dir, name: name_of(name), special, set };
        self.core.execute_once(caller, operation)
    }

    fn link(&self, caller: &Caller, node: Node, dir: Node, name: &[u8]) -> Answer<Effect> {
        let operation = ops::link::Link { caller: caller.clone(), node, dir, name: name_of(name) };
        self.core.execute_once(caller, operation)
    }

    fn remove(&self, caller: &Caller, dir: Node, name: &[u8]) -> Answer<Effect> {
        let operation = ops::remove::Remove { caller: caller.clone(), dir, name: name_of(name), directory: false };
        self.core.execute_once(caller, operation)
    }

    fn rmdir(&self, caller: &Caller, dir: Node, name: &[u8]) -> Answer<Effect> {
        let operation = ops::remove::Remove { caller: caller.clone(), dir, name: name_of(name), directory: true };
        self.core.execute_once(caller, operation)
    }

    fn rename(&self, caller: &Caller, from: Node, name: &[u8], to: Node, new_name: &[u8]) -> Answer<Effect> {
        let (name, new_name) = (name_of(name), name_of(new_name));
        let operation = ops::rename::Rename { caller: caller.clone(), from, name, to, new_name };
        self.core.execute_once(caller, operation)
    }

    fn lock(&self, caller: &Caller, request: LockRequest) -> Answer<LockOutcome> {
        self.core.execute_sent(caller, ops::lock::TakeLock { request })
    }

    fn unlock(&self, caller: &Caller, node: Node, owner: LockOwner, range: LockRange) -> Answer<()> {
        self.core.execute_sent(caller, ops::lock::Unlock { node, owner, range })
    }

    fn test_lock(&self, _caller: &Caller, lock: Lock) -> Answer<Option<Lock>> {
        self.core.execute(ops::lock::TestLock { lock })
    }

    fn cancel_lock(&self, caller: &Caller, lock: Lock) -> Answer<bool> {
        self.core.execute_sent(caller, ops::lock::CancelLock { lock })
    }

    fn release_client(&self, client: &[u8]) -> Answer<()> {
        self.core.execute(ops::lock::ReleaseClient { client: name_of(client) })
    }

    fn locks(&self) -> Vec<LockInfo> {
        self.core.session.table().list()
    }

    fn locks_position(&self) -> Position {
        self.core.session.changed()
    }

    fn clients_to_notify(&self) -> Vec<(Bytes, Bytes)> {
        self.core.session.table().to_notify()
    }

    fn client_notified(&self, client: &[u8]) -> Answer<()> {
        self.core.execute(ops::lock::ClientNotified { client: name_of(client) })
    }

    fn answered(&self, call: &Sent) {
        self.core.answered(call);
    }

    fn was_answered(&self, call: &Sent) -> bool {
        self.core.was_answered(call)
    }

    fn in_grace(&self) -> bool {
        self.core.session.in_grace(self.core.world.clock.steady())
    }

    fn set_event_sink(&self, sink: Arc<dyn EventSink>) {
        self.core.session.set_sink(sink);
    }
}

impl Core {
    /// Completes once `position` is on the log's medium.
    fn durable(self: &Arc<Self>, position: Position) -> Answer<()> {
        if self.pending(position) == Position::ZERO || mutant::on(mutant::REPLY_BEFORE_APPEND) {
            return Answer::ok(());
        }
        let wait = self.log.wait(position);
        let core = self.clone();
        Answer::Waits(Box::pin(async move {
            match wait.await {
                Ok(()) => Ok(Done::now(())),
                Err(error) => Err(Done::now(core.log_failed(&error).into())),
            }
        }))
    }
}
