//! A lock manager, a file and clients to try them with.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use bytes::Bytes;
use smallvec::SmallVec;
use tarn_base::world::{BoxFuture, World};
use tarn_vfs::model::Model;
use tarn_vfs::{Caller, CreateMode, FileSystem, LockInfo, SetAttr};

use crate::exports::{Exports, Names, Resolver};
use crate::gate::Gate;
use crate::nlm::proto::{self, PROGRAM, Range, VERSION};
use crate::nlm::server::Nlm;
use crate::peer::Outbound;
use crate::peer::fake::{self, FakeNet, HandClock, Heard, Say, settle};
use crate::server::{Settings, Shared, answer_datagram};
use crate::wire::rpc::{self, AuthSys, Call, ReplyBody};
use crate::wire::xdr::{Reader, Writer};

pub const GRANTED: u32 = 0;
pub const DENIED: u32 = 1;
pub const BLOCKED: u32 = 3;
pub const GRACE: u32 = 4;

struct NoNames;

impl Resolver for NoNames {
    fn resolve(&self, _host: &str) -> BoxFuture<Vec<IpAddr>> {
        Box::pin(std::future::ready(Vec::new()))
    }
}

pub struct Bench {
    pub model: Arc<Model>,
    pub nlm: Arc<Nlm>,
    pub net: FakeNet,
    pub clock: HandClock,
    pub world: World,
    pub handle: Bytes,
    shared: Arc<Shared>,
}

/// One owner at one client.
#[derive(Clone, Debug)]
pub struct Owner {
    pub name: &'static str,
    pub address: &'static str,
    pub process: u32,
    /// The number of the client's life.
    pub state: u32,
}

pub fn owner(name: &'static str, address: &'static str, process: u32) -> Owner {
    Owner { name, address, process, state: 0 }
}

/// The results of GRANTED.
pub fn status(heard: &Heard, status: u32) -> Vec<u8> {
    let mut r = Reader::new(&heard.args);
    let mut w = Writer::new();
    w.opaque(r.opaque(1024).unwrap());
    w.u32(status);
    w.to_vec()
}

impl Bench {
    pub fn new() -> Bench {
        Bench::with_exports("10.0.0.0/8 rw,no_root_squash\nfd00::/8 ro\n", FakeNet::new(|_| Say::Silence))
    }

    pub fn with_exports(exports: &str, net: FakeNet) -> Bench {
        let model = Arc::new(Model::with_volume());
        Bench::over(model, exports, net)
    }

    /// A lock manager that was started over what another one left.
    pub fn restarted(&self) -> Bench {
        Bench::over(self.model.clone(), "10.0.0.0/8 rw", self.net.clone())
    }

    fn over(model: Arc<Model>, exports: &str, net: FakeNet) -> Bench {
        let (world, clock) = fake::world();
        let root = model.volumes()[0].root;
        let made = model.create(&Caller::root(), root, b"file", CreateMode::Unchecked, SetAttr::default());
        let file = made.now_or_later().unwrap().unwrap().value.attr.unwrap().node;
        let fs: Arc<dyn FileSystem> = model.clone();
        let names = Names::new(Arc::new(NoNames), world.clone());
        let exports = Exports::new(fs.clone(), names, exports.parse().unwrap());
        let gate = Arc::new(Gate::new(fs.clone(), exports));
        let handle = Bytes::copy_from_slice(&gate.key().sign(file).0);
        let outbound = Arc::new(Outbound::new(Arc::new(net.clone()), world.clone()));
        let nlm = Nlm::new(gate, outbound, world.clone(), Some("10.0.0.1".parse().unwrap()));
        fs.set_event_sink(nlm.clone());
        nlm.resume();
        let shared = Shared::new(fs, vec![nlm.clone()], world.clone(), Settings::default());
        Bench { model, nlm, net, clock, world, handle, shared }
    }

    /// Sends a call and gives its results, or the refusal.
    pub async fn call(&self, owner: &Owner, procedure: u32, args: &[u8]) -> Result<Vec<u8>, String> {
        self.call_as(self.world.random_u64() as u32, owner, procedure, args).await
    }

    /// The same, under a number of one's own.
    pub async fn call_as(&self, xid: u32, owner: &Owner, procedure: u32, args: &[u8]) -> Result<Vec<u8>, String> {
        let mut w = Writer::new();
        let gids = SmallVec::new();
        let sys = AuthSys { stamp: 0, machine: owner.name.as_bytes(), uid: 1000, gid: 1000, gids };
        Call::encode(&mut w, xid, PROGRAM, VERSION, procedure, Some(&sys));
        let message = [&w.to_vec()[..], args].concat();
        let peer = SocketAddr::new(owner.address.parse().unwrap(), 700);
        let reply = answer_datagram(&self.shared, peer, message.into()).await.ok_or("no reply")?;
        match rpc::decode_reply(&reply) {
            Ok((_, ReplyBody::Success(results))) => Ok(results.to_vec()),
            other => Err(format!("{other:?}")),
        }
    }

    pub fn range(&self, owner: &Owner, offset: u64, length: u64) -> Range {
        Range {
            caller: Bytes::from_static(owner.name.as_bytes()),
            handle: self.handle.clone(),
            owner: format!("{}@{}", owner.process, owner.name).into(),
            process: owner.process,
            offset,
            length,
        }
    }

    pub async fn test(&self, owner: &Owner, exclusive: bool, offset: u64, length: u64) -> Vec<u8> {
        let args = proto::encode_granted(b"ck", exclusive, &self.range(owner, offset, length));
        self.call(owner, 1, &args).await.unwrap()[8..].to_vec()
    }

    pub fn lock_args(&self, owner: &Owner, ask: Ask) -> Vec<u8> {
        let mut w = Writer::new();
        w.opaque(b"ck");
        w.bool(ask.block);
        w.bool(ask.exclusive);
        self.range(owner, ask.offset, ask.length).encode(&mut w);
        w.bool(ask.reclaim);
        w.u32(owner.state);
        w.to_vec()
    }

    pub async fn lock(&self, owner: &Owner, ask: Ask) -> u32 {
        let results = self.call(owner, 2, &self.lock_args(owner, ask)).await.unwrap();
        assert_eq!(results[..8], *b"\0\0\0\x02ck\0\0", "the cookie comes back");
        proto::decode_status(&results).unwrap()
    }

    pub async fn cancel(&self, owner: &Owner, ask: Ask) -> u32 {
        let args = self.lock_args(owner, ask);
        proto::decode_status(&self.call(owner, 3, &args[..args.len() - 8]).await.unwrap()).unwrap()
    }

    pub async fn unlock(&self, owner: &Owner, offset: u64, length: u64) -> u32 {
        let mut w = Writer::new();
        w.opaque(b"ck");
        self.range(owner, offset, length).encode(&mut w);
        proto::decode_status(&self.call(owner, 4, &w.to_vec()).await.unwrap()).unwrap()
    }

    /// Held and queued locks, as (client, owner's number, queued).
    pub fn locks(&self) -> Vec<(String, u32, bool)> {
        let line = |info: &LockInfo| {
            let client = String::from_utf8(info.lock.owner.client.to_vec()).unwrap();
            (client, info.lock.owner.process, info.waiting)
        };
        self.model.locks().iter().map(line).collect()
    }

    pub async fn settle(&self) {
        settle().await;
    }
}

/// How a lock is asked for.
#[derive(Clone, Copy, Debug)]
pub struct Ask {
    pub block: bool,
    pub exclusive: bool,
    pub reclaim: bool,
    pub offset: u64,
    pub length: u64,
}

/// The whole file, exclusively, and without waiting.
pub const ALL: Ask = Ask { block: false, exclusive: true, reclaim: false, offset: 0, length: 0 };
pub const WAIT: Ask = Ask { block: true, ..ALL };
