//! A client that speaks in bytes to a server in the same process.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use smallvec::SmallVec;
use tarn_base::time::Time;
use tarn_base::world::{BoxFuture, Clock, Random, Spawn, World};
use tarn_nfs::exports::{Exports, Names, Resolver};
use tarn_nfs::gate::Gate;
use tarn_nfs::mount::{Mount, Mounts};
use tarn_nfs::ops::Nfs;
use tarn_nfs::service::{Dispatched, Programs, Transport, dispatch, finish};
use tarn_nfs::wire::nfs3::{Fattr, WccData};
use tarn_nfs::wire::rpc::{AuthSys, Call, ReplyBody, decode_reply};
use tarn_nfs::wire::xdr::{Reader, Writer};
use tarn_vfs::FileSystem;
use tarn_vfs::model::Model;

pub const NFS: (u32, u32) = (100_003, 3);
pub const MOUNT: (u32, u32) = (100_005, 3);

/// Real time; tasks on the runtime of the test.
struct TestWorld(Instant);

impl Clock for TestWorld {
    fn now(&self) -> Time {
        Time { seconds: 1_000_000_000, nanos: 0 }
    }
    fn steady(&self) -> Duration {
        self.0.elapsed()
    }
    fn sleep(&self, span: Duration) -> BoxFuture<()> {
        Box::pin(tokio::time::sleep(span))
    }
}

impl Random for TestWorld {
    fn fill(&self, out: &mut [u8]) {
        out.fill(7);
    }
}

impl Spawn for TestWorld {
    fn spawn(&self, _: &'static str, task: BoxFuture<()>) {
        tokio::spawn(task);
    }
}

pub fn world() -> World {
    let world = Arc::new(TestWorld(Instant::now()));
    World { clock: world.clone(), random: world.clone(), spawn: world }
}

/// Knows one host.
struct OneHost;

impl Resolver for OneHost {
    fn resolve(&self, host: &str) -> BoxFuture<Vec<IpAddr>> {
        let found = host == "build.example";
        Box::pin(async move {
            tokio::time::sleep(Duration::from_millis(20)).await;
            if found { vec!["192.0.2.7".parse().unwrap()] } else { Vec::new() }
        })
    }
}

/// A server over any file system.
#[derive(Clone)]
pub struct Server {
    pub fs: Arc<dyn FileSystem>,
    pub programs: Programs,
    pub world: World,
    pub mounts: Arc<Mounts>,
}

impl Server {
    pub fn new(fs: Arc<dyn FileSystem>, rules: &str) -> Server {
        let world = world();
        let names = Names::new(Arc::new(OneHost), world.clone());
        let exports = Exports::new(fs.clone(), names, rules.parse().unwrap());
        let gate = Arc::new(Gate::new(fs.clone(), exports));
        let mounts = Arc::new(Mounts::default());
        let mount = Mount::new(gate.clone(), world.clone(), mounts.clone());
        Server { fs, programs: vec![Arc::new(Nfs::new(gate)), Arc::new(mount)], world, mounts }
    }

    /// Over the model with one volume, everything allowed.
    pub fn open() -> Server {
        Server::new(Arc::new(Model::with_volume()), "* rw,no_root_squash,insecure")
    }

    /// The handle of the root of the first volume.
    pub fn root(&self) -> Vec<u8> {
        self.fs.handle_key().sign(self.fs.volumes()[0].root).0.to_vec()
    }

    pub fn client(&self) -> Client {
        Client { server: self.clone(), peer: "127.0.0.1:700".parse().unwrap(), uid: 0, gid: 0, gids: vec![], xid: 0 }
    }
}

/// A caller.
#[derive(Clone)]
pub struct Client {
    pub server: Server,
    pub peer: SocketAddr,
    pub uid: u32,
    pub gid: u32,
    pub gids: Vec<u32>,
    pub xid: u32,
}

/// Arguments under construction.
pub type Args = Writer;

impl Client {
    pub fn user(mut self, uid: u32, gid: u32) -> Client {
        (self.uid, self.gid) = (uid, gid);
        self
    }

    pub fn from(mut self, peer: &str) -> Client {
        self.peer = peer.parse().unwrap();
        self
    }

    /// A call's bytes, under the next xid.
    pub fn encode(&mut self, program: (u32, u32), procedure: u32, args: impl FnOnce(&mut Args)) -> Vec<u8> {
        self.xid += 1;
        let gids = SmallVec::from_slice(&self.gids);
        let sys = AuthSys { stamp: 0, machine: b"test", uid: self.uid, gid: self.gid, gids };
        let mut w = Writer::new();
        Call::encode(&mut w, self.xid, program.0, program.1, procedure, Some(&sys));
        args(&mut w);
        w.to_vec()
    }

    /// Sends bytes; what comes back, if anything.
    pub async fn send(&self, message: Vec<u8>) -> Option<Vec<u8>> {
        let mut out = Writer::new();
        let message = Bytes::from(message);
        match dispatch(&self.server.programs, self.peer, Transport::Tcp, &message, &mut out) {
            Dispatched::Replied { .. } => Some(out.to_vec()),
            Dispatched::Later { called, reply, .. } => {
                let (mut results, progress) = reply.await;
                finish(called, progress, &mut out, |out| results.append_to(out));
                Some(out.to_vec())
            }
            Dispatched::Silent | Dispatched::Nonsense => None,
        }
    }

    /// The results of a call.
    pub async fn call(&mut self, program: (u32, u32), procedure: u32, args: impl FnOnce(&mut Args)) -> Results {
        let message = self.encode(program, procedure, args);
        let reply = self.send(message).await.expect("a reply");
        match decode_reply(&reply).unwrap() {
            (xid, ReplyBody::Success(results)) if xid == self.xid => Results { bytes: results.to_vec(), at: 0 },
            other => panic!("{other:?}"),
        }
    }

    pub async fn nfs(&mut self, procedure: u32, args: impl FnOnce(&mut Args)) -> Results {
        self.call(NFS, procedure, args).await
    }

    /// CREATE, unchecked, mode 0644; the handle.
    pub async fn create(&mut self, dir: &[u8], name: &str) -> Vec<u8> {
        let mut r = self.nfs(8, |w| dir_op(w, dir, name).u32(0).sattr(Some(0o644), None)).await;
        assert_eq!(r.u32(), 0);
        r.made().0.unwrap()
    }

    /// MKDIR, mode 0755; the handle.
    pub async fn mkdir(&mut self, dir: &[u8], name: &str) -> Vec<u8> {
        let mut r = self.nfs(9, |w| dir_op(w, dir, name).sattr(Some(0o755), None)).await;
        assert_eq!(r.u32(), 0);
        r.made().0.unwrap()
    }

    /// WRITE; the status.
    pub async fn write(&mut self, handle: &[u8], offset: u64, stable: u32, data: &[u8]) -> Results {
        self.nfs(7, |w| {
            w.opaque(handle);
            w.u64(offset);
            w.u32(data.len() as u32);
            w.u32(stable);
            w.opaque(data);
        })
        .await
    }

    /// GETATTR that succeeds.
    pub async fn getattr(&mut self, handle: &[u8]) -> Fattr {
        let mut r = self.nfs(1, |w| w.opaque(handle)).await;
        assert_eq!(r.u32(), 0);
        let attr = r.take(Fattr::decode);
        r.end();
        attr
    }

    /// LOOKUP: status and handle.
    pub async fn lookup(&mut self, dir: &[u8], name: &str) -> Result<Vec<u8>, u32> {
        let mut r = self.nfs(3, |w| dir_op(w, dir, name).end()).await;
        match r.u32() {
            0 => Ok(r.opaque()),
            status => Err(status),
        }
    }
}

/// Writes arguments that several procedures share.
pub struct More<'a>(&'a mut Args);

pub fn dir_op<'a>(w: &'a mut Args, dir: &[u8], name: &str) -> More<'a> {
    w.opaque(dir);
    w.opaque(name.as_bytes());
    More(w)
}

impl More<'_> {
    /// Nothing more follows.
    pub fn end(self) {}

    pub fn u32(self, v: u32) -> Self {
        self.0.u32(v);
        self
    }

    /// sattr3 with a mode and a size, nothing else.
    pub fn sattr(self, mode: Option<u32>, size: Option<u64>) {
        sattr(self.0, mode, size);
    }
}

pub fn sattr(w: &mut Args, mode: Option<u32>, size: Option<u64>) {
    w.option(mode, Writer::u32);
    w.bool(false);
    w.bool(false);
    w.option(size, Writer::u64);
    w.u32(0);
    w.u32(0);
}

/// Results being read; whatever is not there fails the test.
pub struct Results {
    pub bytes: Vec<u8>,
    at: usize,
}

impl Results {
    pub fn take<T>(&mut self, read: impl FnOnce(&mut Reader<'_>) -> tarn_nfs::wire::xdr::XdrResult<T>) -> T {
        let mut r = Reader::new(&self.bytes[self.at..]);
        let value = read(&mut r).expect("a result of this form");
        self.at = self.bytes.len() - r.rest().len();
        value
    }

    pub fn u32(&mut self) -> u32 {
        self.take(|r| r.u32())
    }

    pub fn u64(&mut self) -> u64 {
        self.take(|r| r.u64())
    }

    pub fn bool(&mut self) -> bool {
        self.take(|r| r.bool())
    }

    pub fn opaque(&mut self) -> Vec<u8> {
        self.take(|r| r.opaque(usize::MAX).map(<[u8]>::to_vec))
    }

    pub fn attr(&mut self) -> Option<Fattr> {
        self.take(|r| r.option(Fattr::decode))
    }

    pub fn wcc(&mut self) -> WccData {
        self.take(WccData::decode)
    }

    /// post_op_fh3, post_op_attr.
    pub fn made(&mut self) -> (Option<Vec<u8>>, Option<Fattr>) {
        let handle = self.take(|r| r.option(|r| r.opaque(64).map(<[u8]>::to_vec)));
        (handle, self.attr())
    }

    /// Nothing may be left.
    pub fn end(self) {
        assert_eq!(self.at, self.bytes.len(), "bytes are left over");
    }
}
