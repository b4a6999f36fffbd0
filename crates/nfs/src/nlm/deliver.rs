//! Telling a client that a lock it waits for is its own.
//!
//! - A grant is repeated until the client answers, the client learns of it otherwise, or [`PATIENCE`] is over; then
//!   the lock is released, for a lock that nobody knows of stands in everybody's way.
//! - A client that says no has the lock taken back, unless an earlier delivery went unanswered: then it may have
//!   said yes to that one and forgotten that it waited; or unless its request came again over another connection and was
//!   answered there: then it may know by that. It keeps the lock: a lock released under its holder
//!   loses data, and a client that gave up waiting says so by CANCEL.

use std::time::Duration;

use tarn_vfs::{Caller, Event, EventSink, LockInfo, LockKind};

use super::clients;
use super::locks::{extent, owner_name};
use super::proto::{self, NLMPROC4_GRANTED, PROGRAM, Range, Status, VERSION};
use super::server::Nlm;
use super::waiters::Key;
use crate::peer::{Attempt, Contact, Question};

/// How long a client may stay silent before its lock is released. Longer than a client takes to restart its
/// lock daemon or to come back after a broken network; a client that still wants the lock asks again by itself.
const PATIENCE: Duration = Duration::from_secs(120);
const PAUSE_MIN: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(15);
/// How often a lock that is to be released is tried before that is left to an administrator.
const RELEASE_TRIES: u32 = 20;

/// What a client answered.
enum Answered {
    Yes,
    No,
    /// No, but it may have said yes before.
    Perhaps,
    Never,
    /// It has learned of the grant by the answer to a request, or given up.
    Overtaken,
}

impl EventSink for Nlm {
    fn event(&self, event: Event) {
        let Event::LockGranted(info) = event;
        // A client that does not wait knows already: by an answer that said so, or because it gave up.
        let Some(number) = self.waiters.granted(&Key::from(&info.lock)) else { return };
        if let Some(this) = self.shared() {
            self.world.spawn.spawn("lock-grant", Box::pin(async move { this.deliver(info, number).await }));
        }
    }
}

impl Nlm {
    /// Reads back who waits, after a start that found its locks again.
    pub fn resume(&self) {
        for info in self.gate.fs.locks() {
            if info.waiting && clients::parts(&info.lock.owner.client).is_some() {
                self.waiters.wait(Key::from(&info.lock));
            }
        }
    }

    async fn deliver(&self, info: LockInfo, number: u64) {
        let key = Key::from(&info.lock);
        let answered = match Contact::decode(&info.callback) {
            Ok(contact) => self.ask(&info, number, &contact).await,
            // Another front end's client, or a later version's.
            Err(_) => Answered::Never,
        };
        match answered {
            Answered::Overtaken => {}
            Answered::Yes => {
                self.waiters.settle(&key, number);
            }
            Answered::Perhaps => self.waiters.doubt(&key, number),
            Answered::No | Answered::Never => self.take_back(&info, number).await,
        }
    }

    async fn ask(&self, info: &LockInfo, number: u64, contact: &Contact) -> Answered {
        let key = Key::from(&info.lock);
        let (offset, length) = extent(info.lock.range);
        let (caller, _) = clients::parts(&info.lock.owner.client).unwrap_or((b"", contact.client));
        let range = Range {
            caller: bytes::Bytes::copy_from_slice(caller),
            handle: bytes::Bytes::copy_from_slice(&self.gate.key().sign(info.lock.node).0),
            owner: owner_name(&info.lock.owner),
            process: info.lock.owner.process,
            offset,
            length,
        };
        let exclusive = info.lock.kind == LockKind::Exclusive;
        let args = proto::encode_granted(&number.to_be_bytes(), exclusive, &range);
        let question = Question { program: PROGRAM, version: VERSION, procedure: NLMPROC4_GRANTED, args: &args };
        let began = self.world.clock.steady();
        let mut pause = PAUSE_MIN;
        // A repeat of an old grant would be taken for the answer to a new request.
        let wanted = || self.waiters.is_granting(&key, number);
        let mut attempt = Attempt { sent: 0, wanted: Some(&wanted) };
        loop {
            if !self.is_ours().await {
                return Answered::Overtaken;
            }
            let answer = self.outbound.call(contact, question, &mut attempt).await;
            let status = answer.ok().and_then(|results| proto::decode_status(&results).ok());
            match status {
                Some(status) if status == Status::Granted as u32 => return Answered::Yes,
                Some(status) if status == Status::Denied as u32 => {
                    return if attempt.sent <= 1 { Answered::No } else { Answered::Perhaps };
                }
                _ => {}
            }
            if !wanted() {
                return Answered::Overtaken;
            }
            if self.world.clock.steady().saturating_sub(began) >= PATIENCE {
                tracing::warn!(client = %contact.client, "a client does not hear that its lock is granted; it is released, unless an answer said so");
                return Answered::Never;
            }
            self.world.clock.sleep(pause).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    /// Whether the store still is, as far as this node can know before it says anything.
    pub(super) async fn is_ours(&self) -> bool {
        match self.gate.fs.awake(self.world.clock.steady()) {
            Some(sleeps) => sleeps.await.is_ok(),
            None => true,
        }
    }

    /// Releases a lock that nobody took, unless its owner has asked for it again meanwhile or may have been told by the answer
    /// to a copy of its call.
    async fn take_back(&self, info: &LockInfo, number: u64) {
        let lock = &info.lock;
        let _turn = self.turns.take(lock.node, &lock.owner).await;
        if !self.waiters.settle_untaken(&Key::from(lock), number) {
            return;
        }
        let mut tries = 0;
        while let Err(done) = self.gate.fs.unlock(&Caller::root(), lock.node, lock.owner.clone(), lock.range).await {
            tries += 1;
            let errno = done.value.errno;
            if errno != tarn_vfs::Errno::TryLater || tries == RELEASE_TRIES {
                tracing::warn!(%errno, "a lock that its client did not take cannot be released");
                return;
            }
            self.world.clock.sleep(PAUSE_MIN).await;
        }
    }
}
