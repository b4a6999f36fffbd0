//! The suite must notice what is wrong: the model with one fault each, which the suite has to find.

use std::sync::Arc;

use bytes::Bytes;
use tarn_base::ids::{Position, VolumeId};
use tarn_vfs::model::Model;
use tarn_vfs::*;

/// What is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    None,
    EverybodyIsSuperuser,
    TokensAreForgotten,
    GuardsAreIgnored,
    WritesReachLessThanAsked,
    ChangesAreNotShown,
    ListingsStartOver,
    PagesAreTooLong,
    ReadsNeverEnd,
    GroupsAreIgnored,
    LocksAreNotTested,
    LocksAlwaysWait,
    GuardedCreateTakesWhatIsThere,
    RemoveTakesDirectories,
    HolesReadAsOnes,
    RemovedObjectsLiveOn,
}

const FAULTS: [(Fault, &str); 15] = [
    (Fault::EverybodyIsSuperuser, "access"),
    (Fault::TokensAreForgotten, "once"),
    (Fault::GuardsAreIgnored, "setattr"),
    (Fault::WritesReachLessThanAsked, "write"),
    (Fault::ChangesAreNotShown, "create"),
    (Fault::ListingsStartOver, "list"),
    (Fault::PagesAreTooLong, "list"),
    (Fault::ReadsNeverEnd, "read"),
    (Fault::GroupsAreIgnored, "access"),
    (Fault::LocksAreNotTested, "lock"),
    (Fault::LocksAlwaysWait, "lock"),
    (Fault::GuardedCreateTakesWhatIsThere, "create"),
    (Fault::RemoveTakesDirectories, "remove"),
    (Fault::HolesReadAsOnes, "read"),
    (Fault::RemovedObjectsLiveOn, "lookup"),
];

struct Faulty {
    model: Model,
    fault: Fault,
}

impl Faulty {
    fn is(&self, fault: Fault) -> bool {
        self.fault == fault
    }

    fn caller(&self, caller: &Caller) -> Caller {
        let mut caller = caller.clone();
        match self.fault {
            Fault::EverybodyIsSuperuser => (caller.uid, caller.gid) = (0, 0),
            Fault::TokensAreForgotten => caller.once = None,
            Fault::GroupsAreIgnored => caller.groups.clear(),
            _ => {}
        }
        caller
    }

    /// The answer, which is there, with a change.
    fn alter<T>(&self, fault: Fault, answer: Answer<T>, with: impl FnOnce(&mut T)) -> Answer<T> {
        let mut reply = answer.now_or_later().unwrap_or_else(|_| panic!("the model made somebody wait"));
        if let (Ok(done), true) = (&mut reply, self.is(fault)) {
            with(&mut done.value);
        }
        Answer::ready(reply)
    }

    fn effect(&self, answer: Answer<Effect>) -> Answer<Effect> {
        self.alter(Fault::ChangesAreNotShown, answer, |effect| effect.changes = Default::default())
    }
}

impl FileSystem for Faulty {
    fn volumes(&self) -> Volumes {
        self.model.volumes()
    }
    fn handle_key(&self) -> HandleKey {
        self.model.handle_key()
    }
    fn write_verifier(&self) -> [u8; 8] {
        self.model.write_verifier()
    }
    fn incarnation(&self) -> u32 {
        self.model.incarnation()
    }
    fn durable(&self, position: Position) -> Answer<()> {
        self.model.durable(position)
    }
    fn statfs(&self, caller: &Caller, volume: VolumeId) -> Answer<FsStat> {
        self.model.statfs(caller, volume)
    }
    fn getattr(&self, caller: &Caller, node: Node) -> Answer<Attr> {
        match self.model.getattr(&self.caller(caller), node).now_or_later() {
            Ok(Err(_)) if self.is(Fault::RemovedObjectsLiveOn) => Answer::ok(Attr { node, ..Attr::default() }),
            Ok(reply) => Answer::ready(reply),
            Err(later) => later,
        }
    }
    fn setattr(&self, caller: &Caller, node: Node, mut set: SetAttr) -> Answer<Effect> {
        if self.is(Fault::GuardsAreIgnored) {
            set.guard = None;
        }
        self.effect(self.model.setattr(&self.caller(caller), node, set))
    }
    fn access(&self, caller: &Caller, node: Node, want: Access) -> Answer<(Access, Attr)> {
        self.model.access(&self.caller(caller), node, want)
    }
    fn readlink(&self, caller: &Caller, node: Node) -> Answer<(Bytes, Attr)> {
        self.model.readlink(&self.caller(caller), node)
    }
    fn read(&self, caller: &Caller, node: Node, offset: u64, count: u32) -> Answer<ReadReply> {
        let answer = self.model.read(&self.caller(caller), node, offset, count);
        let answer = self.alter(Fault::ReadsNeverEnd, answer, |reply| reply.eof = false);
        self.alter(Fault::HolesReadAsOnes, answer, |reply| {
            let ones = |piece: &Bytes| piece.iter().map(|&byte| byte.max(1)).collect::<Vec<u8>>().into();
            reply.data = reply.data.iter().map(ones).collect();
        })
    }
    fn write(&self, caller: &Caller, node: Node, offset: u64, data: Bytes, stability: Stability) -> Answer<Effect> {
        let answer = self.effect(self.model.write(&self.caller(caller), node, offset, data, stability));
        self.alter(Fault::WritesReachLessThanAsked, answer, |effect| {
            effect.reached = Stability::Unstable;
        })
    }
    fn commit(&self, caller: &Caller, node: Node) -> Answer<Effect> {
        self.effect(self.model.commit(&self.caller(caller), node))
    }
    fn lookup(&self, caller: &Caller, dir: Node, name: &[u8]) -> Answer<(Attr, Attr)> {
        self.model.lookup(&self.caller(caller), dir, name)
    }
    fn list(&self, caller: &Caller, dir: Node, mut request: ListRequest) -> Answer<ListReply> {
        if self.is(Fault::ListingsStartOver) && request.after > 1000 {
            request.after = 0;
        }
        if self.is(Fault::PagesAreTooLong) {
            request.bytes_max = u32::MAX;
        }
        self.model.list(&self.caller(caller), dir, request)
    }
    fn create(&self, caller: &Caller, dir: Node, name: &[u8], mut mode: CreateMode, set: SetAttr) -> Answer<Effect> {
        if self.is(Fault::GuardedCreateTakesWhatIsThere) && mode == CreateMode::Guarded {
            mode = CreateMode::Unchecked;
        }
        self.effect(self.model.create(&self.caller(caller), dir, name, mode, set))
    }
    fn mkdir(&self, caller: &Caller, dir: Node, name: &[u8], set: SetAttr) -> Answer<Effect> {
        self.effect(self.model.mkdir(&self.caller(caller), dir, name, set))
    }
    fn make(&self, caller: &Caller, dir: Node, name: &[u8], what: Special, set: SetAttr) -> Answer<Effect> {
        self.effect(self.model.make(&self.caller(caller), dir, name, what, set))
    }
    fn link(&self, caller: &Caller, node: Node, dir: Node, name: &[u8]) -> Answer<Effect> {
        self.effect(self.model.link(&self.caller(caller), node, dir, name))
    }
    fn remove(&self, caller: &Caller, dir: Node, name: &[u8]) -> Answer<Effect> {
        let caller = self.caller(caller);
        let answer = self.model.remove(&caller, dir, name);
        match answer.now_or_later() {
            Ok(Err(done)) if self.is(Fault::RemoveTakesDirectories) && done.value.errno == Errno::IsDirectory => {
                self.model.rmdir(&caller, dir, name)
            }
            Ok(reply) => self.effect(Answer::ready(reply)),
            Err(later) => later,
        }
    }
    fn rmdir(&self, caller: &Caller, dir: Node, name: &[u8]) -> Answer<Effect> {
        self.effect(self.model.rmdir(&self.caller(caller), dir, name))
    }
    fn rename(&self, caller: &Caller, from: Node, name: &[u8], to: Node, new_name: &[u8]) -> Answer<Effect> {
        self.effect(self.model.rename(&self.caller(caller), from, name, to, new_name))
    }
    fn lock(&self, caller: &Caller, mut request: LockRequest) -> Answer<LockOutcome> {
        request.wait |= self.is(Fault::LocksAlwaysWait);
        self.model.lock(&self.caller(caller), request)
    }
    fn unlock(&self, caller: &Caller, node: Node, owner: LockOwner, range: LockRange) -> Answer<()> {
        self.model.unlock(&self.caller(caller), node, owner, range)
    }
    fn test_lock(&self, caller: &Caller, lock: Lock) -> Answer<Option<Lock>> {
        self.alter(Fault::LocksAreNotTested, self.model.test_lock(caller, lock), |found| *found = None)
    }
    fn cancel_lock(&self, caller: &Caller, lock: Lock) -> Answer<bool> {
        self.model.cancel_lock(&self.caller(caller), lock)
    }
    fn release_client(&self, client: &[u8]) -> Answer<()> {
        self.model.release_client(client)
    }
    fn locks(&self) -> Vec<LockInfo> {
        self.model.locks()
    }
    fn locks_position(&self) -> Position {
        self.model.locks_position()
    }
    fn clients_to_notify(&self) -> Vec<(Bytes, Bytes)> {
        self.model.clients_to_notify()
    }
    fn client_notified(&self, client: &[u8]) -> Answer<()> {
        self.model.client_notified(client)
    }
    fn in_grace(&self) -> bool {
        self.model.in_grace()
    }
    fn set_event_sink(&self, sink: Arc<dyn EventSink>) {
        self.model.set_event_sink(sink);
    }
}

fn failed(fault: Fault) -> Vec<suite::Failed> {
    let faulty = Arc::new(Faulty { model: Model::with_volume(), fault });
    let volume = faulty.volumes()[0].clone();
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    match std::pin::pin!(suite::check(faulty, &volume)).poll(&mut context) {
        std::task::Poll::Ready(result) => result.err().unwrap_or_default(),
        std::task::Poll::Pending => panic!("the model made somebody wait"),
    }
}

#[test]
fn every_fault_is_found_where_it_belongs() {
    assert!(failed(Fault::None).is_empty());
    for (fault, file) in FAULTS {
        let failed = failed(fault);
        let expected = format!("::{file}::");
        assert!(failed.iter().any(|failed| failed.case.contains(&expected)), "{fault:?} is not found in {file}");
    }
}
