//! Who is connected, for listings.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use parking_lot::Mutex;
use tarn_base::time::Time;

/// A client as listings show it: all connections from one address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientInfo {
    pub address: IpAddr,
    pub connections: usize,
    /// When the oldest connection was made.
    pub since: Time,
    /// Programs called, by name, in the order of the port's list.
    pub programs: Vec<&'static str>,
    pub calls: u64,
    /// Time since the last call.
    pub idle: Duration,
}

/// One connection's own counters.
#[derive(Debug)]
pub(super) struct Connected {
    peer: SocketAddr,
    since: Time,
    calls: AtomicU64,
    /// Bit i: the i-th program of the port was called.
    programs: AtomicU64,
    /// Nanoseconds on the steady clock.
    last_call: AtomicU64,
}

impl Connected {
    /// Only the connection itself counts.
    pub(super) fn called(&self, program: Option<usize>, now: Duration) {
        self.calls.store(self.calls.load(Relaxed) + 1, Relaxed);
        self.last_call.store(now.as_nanos() as u64, Relaxed);
        if let Some(index) = program.filter(|index| *index < 64) {
            let bit = 1 << index;
            if self.programs.load(Relaxed) & bit == 0 {
                self.programs.fetch_or(bit, Relaxed);
            }
        }
    }
}

/// All connections.
#[derive(Debug, Default)]
pub struct Clients {
    connections: Mutex<(u64, BTreeMap<u64, Arc<Connected>>)>,
}

impl Clients {
    /// Enters a connection; it is taken off with the number given.
    pub(super) fn enter(&self, peer: SocketAddr, since: Time, now: Duration) -> (u64, Arc<Connected>) {
        let connected = Arc::new(Connected {
            peer,
            since,
            calls: AtomicU64::new(0),
            programs: AtomicU64::new(0),
            last_call: AtomicU64::new(now.as_nanos() as u64),
        });
        let mut connections = self.connections.lock();
        connections.0 += 1;
        let id = connections.0;
        connections.1.insert(id, connected.clone());
        (id, connected)
    }

    pub(super) fn leave(&self, id: u64) {
        self.connections.lock().1.remove(&id);
    }

    /// Connections open at present.
    pub fn connections(&self) -> usize {
        self.connections.lock().1.len()
    }

    /// By address. `programs` are the names of the port's programs.
    pub(super) fn list(&self, programs: &[&'static str], now: Duration) -> Vec<ClientInfo> {
        let mut out: BTreeMap<IpAddr, (ClientInfo, u64)> = BTreeMap::new();
        for connected in self.connections.lock().1.values() {
            let idle = now.saturating_sub(Duration::from_nanos(connected.last_call.load(Relaxed)));
            let new = || {
                let (address, since) = (connected.peer.ip(), connected.since);
                (ClientInfo { address, connections: 0, since, programs: Vec::new(), calls: 0, idle }, 0)
            };
            let (info, bits) = out.entry(connected.peer.ip()).or_insert_with(new);
            info.connections += 1;
            info.since = info.since.min(connected.since);
            info.calls += connected.calls.load(Relaxed);
            info.idle = info.idle.min(idle);
            *bits |= connected.programs.load(Relaxed);
        }
        let named = |(mut info, bits): (ClientInfo, u64)| {
            let used = programs.iter().enumerate().filter(|(index, _)| bits >> index & 1 == 1);
            info.programs = used.map(|(_, name)| *name).collect();
            info
        };
        out.into_values().map(named).collect()
    }
}
