//! A client that has restarted is told so when it is durable that its locks are gone.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tarn_base::world::BoxFuture;
use tarn_nfs::exports::{Exports, Names, Resolver};
use tarn_nfs::gate::Gate;
use tarn_nfs::nlm::{self, Nlm};
use tarn_nfs::nsm::{self, Nsm};
use tarn_nfs::peer::{Conversation, Dialer, Outbound};
use tarn_nfs::server::{Settings, Shared, answer_datagram};
use tarn_nfs::service::Transport;
use tarn_nfs::wire::rpc::{ReplyBody, decode_reply};
use tarn_vfs::{Caller, FileSystem, Lock, LockKind, LockOwner, LockRange, LockRequest};
use tokio::task::JoinHandle;

use crate::client::*;
use crate::gated::Gated;

const NOTIFY: u32 = 6;
const FREE_ALL: u32 = 23;

struct Nobody;

impl Dialer for Nobody {
    fn dial(&self, _: Transport, _: Option<IpAddr>, _: SocketAddr) -> BoxFuture<io::Result<Box<dyn Conversation>>> {
        Box::pin(async { Err(io::ErrorKind::ConnectionRefused.into()) })
    }
}

impl Resolver for Nobody {
    fn resolve(&self, _: &str) -> BoxFuture<Vec<IpAddr>> {
        Box::pin(async { Vec::new() })
    }
}

struct Rig {
    fs: Arc<Gated>,
    shared: Arc<Shared>,
    client: Client,
}

/// A server with a lock of `guest` at 127.0.0.1.
async fn with_lock() -> Rig {
    let fs = Gated::new();
    let mut server = Server::new(fs.clone(), "* rw");
    let names = Names::new(Arc::new(Nobody), server.world.clone());
    let gate = Arc::new(Gate::new(fs.clone(), Exports::new(fs.clone(), names, "* rw".parse().unwrap())));
    let outbound = Arc::new(Outbound::new(Arc::new(Nobody), server.world.clone()));
    let nlm = Nlm::new(gate, outbound, server.world.clone(), None);
    server.programs = vec![Arc::new(Nsm::new(fs.clone(), nlm.clone())), nlm];
    let owner = LockOwner { client: "guest@127.0.0.1".into(), owner: "7@guest".into(), process: 7 };
    let (node, range) = (fs.volumes()[0].root, LockRange { start: 0, end: 10 });
    let lock = Lock { node, owner, kind: LockKind::Exclusive, range };
    let request = LockRequest { lock, wait: false, reclaim: false, callback: Bytes::new() };
    fs.lock(&Caller::root(), request).await.unwrap();
    assert_eq!(fs.locks().len(), 1);
    let shared = Shared::new(fs.clone(), server.programs.clone(), server.world.clone(), Settings::default());
    Rig { fs, shared, client: server.client() }
}

impl Rig {
    /// The call that says that `guest` has restarted.
    fn tell(&mut self, program: (u32, u32), procedure: u32) -> JoinHandle<bool> {
        let message = self.client.encode(program, procedure, |w| {
            w.opaque(b"guest");
            w.u32(5);
        });
        let (shared, peer) = (self.shared.clone(), self.client.peer);
        tokio::spawn(async move {
            let reply = answer_datagram(&shared, peer, message.into()).await.expect("a reply");
            matches!(decode_reply(&reply), Ok((_, ReplyBody::Success(_))))
        })
    }
}

async fn confirmed(task: &mut JoinHandle<bool>) -> bool {
    tokio::time::timeout(Duration::from_millis(50), task).await.is_ok_and(|good| good.unwrap())
}

#[tokio::test]
async fn a_notice_and_its_repeat_are_confirmed_when_the_release_is_durable() {
    let mut rig = with_lock().await;
    let mut first = rig.tell((nsm::PROGRAM, nsm::VERSION), NOTIFY);
    assert!(!confirmed(&mut first).await && rig.fs.locks().is_empty(), "gone, but not for good yet");
    let mut repeat = rig.tell((nsm::PROGRAM, nsm::VERSION), NOTIFY);
    assert!(!confirmed(&mut repeat).await, "nor is a repeat");
    assert_eq!(rig.fs.flush(true), 2);
    assert!(confirmed(&mut first).await && confirmed(&mut repeat).await);
}

#[tokio::test]
async fn all_locks_are_freed_when_that_is_durable() {
    let mut rig = with_lock().await;
    let mut first = rig.tell((nlm::PROGRAM, nlm::VERSION), FREE_ALL);
    assert!(!confirmed(&mut first).await && rig.fs.locks().is_empty(), "gone, but not for good yet");
    assert_eq!(rig.fs.flush(true), 1);
    assert!(confirmed(&mut first).await);
}

#[tokio::test]
async fn a_client_whose_locks_were_just_released_by_another_call_waits_for_that() {
    let mut rig = with_lock().await;
    rig.fs.release_client(b"guest@127.0.0.1").await.unwrap();
    for (program, procedure) in [((nsm::PROGRAM, nsm::VERSION), NOTIFY), ((nlm::PROGRAM, nlm::VERSION), FREE_ALL)] {
        let mut call = rig.tell(program, procedure);
        assert!(!confirmed(&mut call).await, "{program:?}: a crash would bring the lock back");
        rig.fs.flush(true);
        assert!(confirmed(&mut call).await);
    }
}
