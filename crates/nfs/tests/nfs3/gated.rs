//! The model behind a gate: answers that come later, and a log that becomes durable when the test says so.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bytes::Bytes;
use parking_lot::Mutex;
use tarn_base::ids::{Position, VolumeId};
use tarn_vfs::model::Model;
use tarn_vfs::*;
use tokio::sync::oneshot;

/// Changes get positions; READLINK waits for [`Gated::open`].
pub struct Gated {
    pub model: Model,
    position: AtomicU64,
    waiting: Mutex<Vec<(Position, oneshot::Sender<Reply<()>>)>>,
    /// How often the log was asked.
    pub asked: AtomicU64,
    /// Position of the last change that the reply to an UNSTABLE write shows besides the data; 0 if all are durable.
    pub shown: AtomicU64,
    later: Mutex<Vec<Box<dyn FnOnce() + Send>>>,
    /// Large changes wait until [`Gated::open`].
    pub crowded: AtomicBool,
    /// Reads wait until [`Gated::open`].
    pub far: AtomicBool,
}

impl Gated {
    pub fn new() -> Arc<Gated> {
        Arc::new(Gated {
            model: Model::with_volume(),
            position: AtomicU64::new(1),
            waiting: Mutex::default(),
            asked: AtomicU64::new(0),
            shown: AtomicU64::new(0),
            later: Mutex::default(),
            crowded: AtomicBool::new(false),
            far: AtomicBool::new(false),
        })
    }

    /// All that waits for the log is durable, or lost.
    pub fn flush(&self, works: bool) -> usize {
        let waiting = std::mem::take(&mut *self.waiting.lock());
        let count = waiting.len();
        for (_, sender) in waiting {
            let reply = if works { Ok(Done::now(())) } else { Err(Done::now(Errno::Io.into())) };
            sender.send(reply).ok();
        }
        count
    }

    /// What was to come later comes; says how much that was.
    pub fn open(&self) -> usize {
        let later = std::mem::take(&mut *self.later.lock());
        let count = later.len();
        later.into_iter().for_each(|later| later());
        count
    }

    fn wait<T: Send + 'static>(&self, reply: Reply<T>) -> Answer<T> {
        let (sender, receiver) = oneshot::channel();
        self.later.lock().push(Box::new(move || drop(sender.send(reply))));
        Answer::Later(receiver)
    }

    /// Gives a change a position.
    fn placed<T: Send + 'static>(&self, answer: Answer<T>) -> Answer<T> {
        let Ok(Ok(done)) = answer.now_or_later() else { panic!("the model answers at once, and well") };
        let position = Position(self.position.fetch_add(1, Ordering::Relaxed));
        Answer::ready(Ok(Done { value: done.value, position }))
    }
}

/// Methods that the model answers.
macro_rules! pass {
    ($($name:ident($($arg:ident: $kind:ty),*) -> $out:ty;)*) => {
        $(fn $name(&self, $($arg: $kind),*) -> $out { self.model.$name($($arg),*) })*
    };
}

impl FileSystem for Gated {
    pass! {
        volumes() -> Volumes;
        handle_key() -> HandleKey;
        write_verifier() -> [u8; 8];
        incarnation() -> u32;
        statfs(caller: &Caller, volume: VolumeId) -> Answer<FsStat>;
        getattr(caller: &Caller, node: Node) -> Answer<Attr>;
        access(caller: &Caller, node: Node, want: Access) -> Answer<(Access, Attr)>;
        lookup(caller: &Caller, dir: Node, name: &[u8]) -> Answer<(Attr, Attr)>;
        list(caller: &Caller, dir: Node, request: ListRequest) -> Answer<ListReply>;
        create(caller: &Caller, dir: Node, name: &[u8], mode: CreateMode, set: SetAttr) -> Answer<Effect>;
        make(caller: &Caller, dir: Node, name: &[u8], what: Special, set: SetAttr) -> Answer<Effect>;
        link(caller: &Caller, node: Node, dir: Node, name: &[u8]) -> Answer<Effect>;
        remove(caller: &Caller, dir: Node, name: &[u8]) -> Answer<Effect>;
        rmdir(caller: &Caller, dir: Node, name: &[u8]) -> Answer<Effect>;
        rename(caller: &Caller, from: Node, name: &[u8], to: Node, new_name: &[u8]) -> Answer<Effect>;
        setattr(caller: &Caller, node: Node, set: SetAttr) -> Answer<Effect>;
        commit(caller: &Caller, node: Node) -> Answer<Effect>;
        lock(caller: &Caller, request: LockRequest) -> Answer<LockOutcome>;
        unlock(caller: &Caller, node: Node, owner: LockOwner, range: LockRange) -> Answer<()>;
        test_lock(caller: &Caller, lock: Lock) -> Answer<Option<Lock>>;
        cancel_lock(caller: &Caller, lock: Lock) -> Answer<bool>;
        locks() -> Vec<LockInfo>;
        clients_to_notify() -> Vec<(Bytes, Bytes)>;
        client_notified(client: &[u8]) -> Answer<()>;
        in_grace() -> bool;
        set_event_sink(sink: Arc<dyn EventSink>) -> ();
    }

    fn room(&self, _bytes: usize) -> Answer<()> {
        if !self.crowded.load(Ordering::Relaxed) {
            return Answer::ok(());
        }
        self.wait(Ok(Done::now(())))
    }

    fn read(&self, caller: &Caller, node: Node, offset: u64, count: u32) -> Answer<ReadReply> {
        let answer = self.model.read(caller, node, offset, count);
        if !self.far.load(Ordering::Relaxed) {
            return answer;
        }
        let Ok(reply) = answer.now_or_later() else { panic!("the model answers") };
        self.wait(reply)
    }

    fn durable(&self, position: Position) -> Answer<()> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        let (sender, receiver) = oneshot::channel();
        self.waiting.lock().push((position, sender));
        Answer::Later(receiver)
    }

    fn mkdir(&self, caller: &Caller, dir: Node, name: &[u8], set: SetAttr) -> Answer<Effect> {
        self.placed(self.model.mkdir(caller, dir, name, set))
    }

    fn release_client(&self, client: &[u8]) -> Answer<()> {
        self.placed(self.model.release_client(client))
    }

    /// That of the last change, whatever it was.
    fn locks_position(&self) -> Position {
        Position(self.position.load(Ordering::Relaxed) - 1)
    }

    /// As stable as was asked, so that the wait for the log can be seen.
    fn write(&self, caller: &Caller, node: Node, offset: u64, data: Bytes, stability: Stability) -> Answer<Effect> {
        let Ok(Ok(mut done)) = self.model.write(caller, node, offset, data, stability).now_or_later() else {
            panic!("the model writes at once");
        };
        done.value.reached = stability;
        if stability == Stability::Unstable {
            return Answer::ready(Ok(Done { position: Position(self.shown.load(Ordering::Relaxed)), ..done }));
        }
        self.placed(Answer::ready(Ok(done)))
    }

    fn readlink(&self, caller: &Caller, node: Node) -> Answer<(Bytes, Attr)> {
        let Ok(reply) = self.model.readlink(caller, node).now_or_later() else { panic!("the model answers") };
        self.wait(reply)
    }
}
