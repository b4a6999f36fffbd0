//! A client has restarted: what it held or waited for is given up.
//!
//! - A notice names the client's new life by a number, and so does every lock it asked for: locks of the new life
//!   stay, however late or often the notice comes.
//! - A client that gives no numbers with its locks is protected from repeats of a notice only.
//! - What was released, by whomever, is durable before anybody is told that it is gone.
//! - A notice from another address than the locks came from is believed only when nobody answers at
//!   the old address.

use std::net::SocketAddr;

use bytes::Bytes;
use tarn_base::ids::Position;
use tarn_vfs::{Caller, LockInfo, Sent};

use super::clients::{self, Concerned};
use super::proto::{NLMPROC4_NULL, PROGRAM, VERSION};
use super::server::Nlm;
use super::waiters::Key;
use crate::peer::{Attempt, CallFailed, Contact, Question};
use crate::service::Progress;
use crate::wire::rpc::AcceptStatus;

/// First port that anybody may use.
const PORT_FREE_MIN: u16 = 1024;

impl Nlm {
    /// FREE_ALL: all locks of the client that calls itself `name`. A copy of the call releases nothing: what is there now
    /// was taken since.
    pub(super) async fn free_all(&self, name: &[u8], source: SocketAddr, sent: &Sent) -> Progress {
        let _leaving = self.leaving.lock().await;
        if self.gate.fs.was_answered(sent) {
            return Progress::now(0);
        }
        let Ok(position) = self.client_restarted(name, source, 0).await else {
            return Progress::Refused(AcceptStatus::SystemError);
        };
        // A copy is told at once.
        if position != Position::ZERO && self.gate.fs.durable(position).await.is_err() {
            return Progress::Refused(AcceptStatus::SystemError);
        }
        if self.gate.lets_in(source.ip()) {
            self.gate.fs.answered(sent);
        }
        Progress::now(0)
    }

    /// The client called `subject` says from `source` that it has restarted and that its life's number is now
    /// `state` (0 if unknown). Gives what must be durable before that is confirmed; an error if it must be told again.
    pub async fn client_restarted(
        &self,
        subject: &[u8],
        source: SocketAddr,
        state: u32,
    ) -> Result<Position, tarn_vfs::Errno> {
        let locks = self.gate.fs.locks();
        // What is not there any more may have gone a moment ago.
        let shown = self.gate.fs.locks_position();
        let mut known: Vec<Bytes> = locks.iter().map(|info| info.lock.owner.client.clone()).collect();
        known.extend(self.shares.clients());
        known.sort();
        known.dedup();
        match clients::concerned(&known, subject, source.ip()) {
            Concerned::These(clients) => {
                let mut position = shown;
                for client in clients {
                    position = position.max(self.release_old_life(&client, &locks, state).await?);
                }
                Ok(position)
            }
            Concerned::Perhaps(clients) => {
                // Anybody may take a port from 1024 on, and any name.
                let clients = if source.port() < PORT_FREE_MIN { clients } else { Vec::new() };
                if clients.is_empty() {
                    tracing::debug!(%source, name = %String::from_utf8_lossy(subject), "a restarted client holds no locks");
                } else if let Some(this) = self.shared() {
                    let task = async move { this.release_moved(clients, state).await };
                    self.world.spawn.spawn("lock-client-moved", Box::pin(task));
                }
                Ok(shown)
            }
        }
    }

    /// Releases what `client` has from lives other than `state`.
    async fn release_old_life(
        &self,
        client: &Bytes,
        locks: &[LockInfo],
        state: u32,
    ) -> Result<Position, tarn_vfs::Errno> {
        let theirs = |info: &&LockInfo| info.lock.owner.client == *client;
        let is_new =
            |info: &LockInfo| state != 0 && Contact::decode(&info.callback).is_ok_and(|contact| contact.state == state);
        self.shares.forget_client(client);
        if !locks.iter().filter(theirs).any(is_new) {
            tracing::info!(client = %String::from_utf8_lossy(client), "a client has restarted; its locks are released");
            self.waiters.forget_client(client);
            return self
                .gate
                .fs
                .release_client(client)
                .await
                .map(|done| done.position)
                .map_err(|done| done.value.errno);
        }
        let mut position = Position::ZERO;
        for info in locks.iter().filter(theirs).filter(|info| !is_new(info)) {
            position = position.max(self.release_one(info).await?);
        }
        Ok(position)
    }

    async fn release_one(&self, info: &LockInfo) -> Result<Position, tarn_vfs::Errno> {
        let (caller, lock) = (Caller::root(), &info.lock);
        let _turn = self.turns.take(lock.node, &lock.owner).await;
        let answer = if info.waiting {
            self.waiters.told(&Key::from(lock));
            self.gate.fs.cancel_lock(&caller, lock.clone()).await.map(|done| done.position)
        } else {
            self.waiters.unlocked(lock.node, &lock.owner, lock.range);
            self.gate.fs.unlock(&caller, lock.node, lock.owner.clone(), lock.range).await.map(|done| done.position)
        };
        answer.map_err(|done| done.value.errno)
    }

    /// Releases those of `clients` at whose address nobody answers any more.
    async fn release_moved(&self, clients: Vec<Bytes>, state: u32) {
        for client in clients {
            let locks = self.gate.fs.locks();
            let callback = locks.iter().find(|info| info.lock.owner.client == client).map(|info| &info.callback);
            let Some(contact) = callback.and_then(|callback| Contact::decode(callback).ok()) else { continue };
            let question = Question { program: PROGRAM, version: VERSION, procedure: NLMPROC4_NULL, args: &[] };
            match self.outbound.call(&contact, question, &mut Attempt::default()).await {
                Err(CallFailed::Unreachable(_)) => {
                    if let Err(errno) = self.release_old_life(&client, &locks, state).await {
                        tracing::warn!(%errno, "the locks of a client that moved cannot be released");
                    }
                }
                _ => {
                    tracing::info!(client = %contact.client, "another machine of the same name has restarted; locks stay");
                }
            }
        }
    }
}
