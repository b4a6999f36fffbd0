//! Telling clients that we have restarted without their locks, so that they reclaim them.
//!
//! - Each client is told once, under each of our names and under the address it called: a client that knows none
//!   of them ignores the notice.
//! - Clients are told at the same time, [`AT_ONCE`] of them; a silent one holds up no other.
//! - A client that stays silent for [`PATIENCE`] is taken off the list: its grace period is long over.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tarn_base::world::World;
use tarn_vfs::FileSystem;
use tokio::sync::Semaphore;

use super::proto::{Notice, PROGRAM, SM_NOTIFY, VERSION};
use super::server::state_number;
use crate::peer::{Attempt, Contact, Outbound, Question};
use crate::service::Transport;

/// Clients told at a time.
const AT_ONCE: u32 = 64;
/// As long as the notifier that Linux has keeps trying.
const PATIENCE: Duration = Duration::from_secs(15 * 60);
const PAUSE_MIN: Duration = Duration::from_secs(2);
const PAUSE_MAX: Duration = Duration::from_secs(60);

/// Tells every client that has to be told; completes when all know or are given up.
pub async fn notify_clients(fs: Arc<dyn FileSystem>, outbound: Arc<Outbound>, world: World, names: Vec<String>) {
    let notifier = Arc::new(Notifier { fs, outbound, world, names });
    let permits = Arc::new(Semaphore::new(AT_ONCE as usize));
    for (client, callback) in notifier.fs.clients_to_notify() {
        let Ok(permit) = permits.clone().acquire_owned().await else { return };
        let teller = notifier.clone();
        let task = async move {
            teller.tell(&client, &callback).await;
            drop(permit);
        };
        notifier.world.spawn.spawn("notify-client", Box::pin(task));
    }
    // All permits are back when all tasks are over.
    let _ = permits.acquire_many(AT_ONCE).await;
}

struct Notifier {
    fs: Arc<dyn FileSystem>,
    outbound: Arc<Outbound>,
    world: World,
    names: Vec<String>,
}

impl Notifier {
    async fn tell(&self, client: &Bytes, callback: &Bytes) {
        match Contact::decode(callback) {
            // Status monitors are called by UDP; some listen to nothing else.
            Ok(contact) => self.tell_at(&Contact { transport: Transport::Udp, ..contact }).await,
            // Not a client of this protocol.
            Err(_) => return,
        }
        if let Err(done) = self.fs.client_notified(client).await {
            // Told again after the next start: harmless, for the number is the same or newer.
            tracing::warn!(errno = %done.value.errno, "a client that was notified stays on the list");
        }
    }

    async fn tell_at(&self, contact: &Contact) {
        let state = state_number(self.fs.as_ref());
        let mut names = self.names.clone();
        names.extend(contact.server.as_ref().map(IpAddr::to_string));
        names.dedup();
        let began = self.world.clock.steady();
        let mut pause = PAUSE_MIN;
        loop {
            let mut silent = Vec::new();
            for name in names {
                let args = Notice { name: name.as_bytes(), state }.encode();
                let question = Question { program: PROGRAM, version: VERSION, procedure: SM_NOTIFY, args: &args };
                if self.outbound.call(contact, question, &mut Attempt::default()).await.is_err() {
                    silent.push(name);
                }
            }
            if silent.is_empty() {
                return;
            }
            if self.world.clock.steady().saturating_sub(began) >= PATIENCE {
                tracing::warn!(client = %contact.client, "a client cannot be told that its locks are lost");
                return;
            }
            names = silent;
            self.world.clock.sleep(pause).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }
}
