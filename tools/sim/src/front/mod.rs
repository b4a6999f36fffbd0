//! The NFS front end in the simulated world: calls go as bytes through real connections, without sockets.
//!
//! - [`observed`]: what lies below the front end, where the tracker sees each call take effect.
//! - [`line`]: one connection, as a client has it; a machine's end takes the connections with it.
//! - [`wire`]: the file system as a client sees it: each method is a call encoded, each result a reply decoded.
//! - A call carries, as one more group of its credential, a number by which the tracker knows it again.

pub mod line;
pub mod manner;
pub mod observed;
pub mod status;
pub mod wire;

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use parking_lot::Mutex;
use tarn_base::world::{BoxFuture, World};
use tarn_nfs::exports::{Exports, Names, Resolver};
use tarn_nfs::gate::Gate;
use tarn_nfs::ops::Nfs;
use tarn_nfs::server::{Settings, Shared};
use tarn_vfs::{ClientId, FileSystem};
use tarn_wal::Log;

use crate::front::line::Line;
use crate::front::observed::Observed;
use crate::tracker::Tracker;

/// Clients that share an address and a connection: their calls travel together, and replies overtake one another.
const CLIENTS_PER_HOST: u64 = 2;
/// The address from which the checks ask.
pub const CHECKER: u64 = 200;

/// The front end of one life.
pub struct Front {
    shared: Arc<Shared>,
    world: World,
    log: Arc<Log>,
    /// The connection that each host uses at present.
    lines: Mutex<BTreeMap<u64, Arc<Line>>>,
    /// Numbers of calls; they go on over all lives, as those of a client that does not restart.
    xids: Arc<AtomicU32>,
}

/// No host has a name.
struct NoNames;

impl Resolver for NoNames {
    fn resolve(&self, _host: &str) -> BoxFuture<Vec<IpAddr>> {
        Box::pin(std::future::ready(Vec::new()))
    }
}

impl Front {
    /// Over the engine's file system `fs`.
    pub fn new(
        fs: &Arc<dyn FileSystem>,
        tracker: &Arc<Tracker>,
        world: &World,
        log: &Arc<Log>,
        xids: Arc<AtomicU32>,
    ) -> Arc<Front> {
        let below: Arc<dyn FileSystem> = Arc::new(Observed::new(fs.clone(), tracker.clone()));
        let names = Names::new(Arc::new(NoNames), world.clone());
        let rules = "* rw,no_root_squash,insecure".parse().unwrap_or_default();
        let gate = Arc::new(Gate::new(below.clone(), Exports::new(below.clone(), names, rules)));
        let shared = Shared::new(below, vec![Arc::new(Nfs::new(gate))], world.clone(), Settings::default());
        let (world, log, lines) = (world.clone(), log.clone(), Mutex::default());
        Arc::new(Front { shared, world, log, lines, xids })
    }

    fn next_xid(&self) -> u32 {
        self.xids.fetch_add(1, Ordering::Relaxed)
    }

    /// The connection that `host` uses.
    fn line(&self, host: u64) -> Arc<Line> {
        let mut lines = self.lines.lock();
        lines.entry(host).or_insert_with(|| self.connect(host)).clone()
    }

    /// Another connection for `host`. The one before is given; it lives as long as somebody has it.
    fn reconnect(&self, host: u64) -> Option<Arc<Line>> {
        let line = self.connect(host);
        self.lines.lock().insert(host, line)
    }

    fn connect(&self, host: u64) -> Arc<Line> {
        Line::open(&self.shared, &self.world, &self.log, SocketAddr::new(address(host), 700))
    }
}

/// The host that a client sits on.
pub fn host_of(client: u64) -> u64 {
    client / CLIENTS_PER_HOST
}

fn address(host: u64) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(192, 0, 2, host as u8 + 1))
}

/// What the file system knows a client's host by.
pub fn client_id(client: u64) -> ClientId {
    let IpAddr::V4(v4) = address(host_of(client)) else { return ClientId(0) };
    ClientId(v4.to_ipv6_mapped().to_bits())
}
