//! Who is connected: for listings, and to know whose calls may come on two connections.

use std::collections::{BTreeMap, BTreeSet};
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
    pub(super) fn called(&self, program: Option<usize>, now: Duration) {
        self.calls.fetch_add(1, Relaxed);
        self.last_call.store(now.as_nanos() as u64, Relaxed);
        if let Some(index) = program.filter(|index| *index < 64) {
            let bit = 1 << index;
            if self.programs.load(Relaxed) & bit == 0 {
                self.programs.fetch_or(bit, Relaxed);
            }
        }
    }
}

/// A call may be at work for so long after its connection has ended: longer than one waits for room in the log.
const AT_WORK_MAX: Duration = Duration::from_secs(60);
/// Addresses without connections that are kept, besides those that had one within [`AT_WORK_MAX`].
const HOSTS_MAX: usize = 64;

/// One address.
#[derive(Debug, Default)]
struct Host {
    /// Of its connections.
    numbers: BTreeSet<u64>,
    /// When one of them ended, last.
    left: Option<Duration>,
}

impl Host {
    fn had_one(&self, now: Duration) -> bool {
        self.left.is_some_and(|left| now.saturating_sub(left) < AT_WORK_MAX)
    }
}

#[derive(Debug, Default)]
struct All {
    /// Connections entered so far.
    entered: u64,
    connections: BTreeMap<u64, Arc<Connected>>,
    hosts: BTreeMap<IpAddr, Host>,
}

/// All connections.
#[derive(Debug, Default)]
pub struct Clients {
    all: Mutex<All>,
}

impl Clients {
    /// Enters a connection; it is taken off with the number given. Later ones have higher numbers, from 1 on.
    pub(super) fn enter(&self, peer: SocketAddr, since: Time, now: Duration) -> (u64, Arc<Connected>) {
        let connected = Arc::new(Connected {
            peer,
            since,
            calls: AtomicU64::new(0),
            programs: AtomicU64::new(0),
            last_call: AtomicU64::new(now.as_nanos() as u64),
        });
        let mut all = self.all.lock();
        all.entered += 1;
        let number = all.entered;
        all.connections.insert(number, connected.clone());
        all.hosts.entry(peer.ip()).or_default().numbers.insert(number);
        (number, connected)
    }

    pub(super) fn leave(&self, number: u64, now: Duration) {
        let mut all = self.all.lock();
        let Some(connected) = all.connections.remove(&number) else { return };
        if let Some(host) = all.hosts.get_mut(&connected.peer.ip()) {
            host.numbers.remove(&number);
            host.left = Some(now);
        }
        if all.hosts.len() > 2 * all.connections.len() + HOSTS_MAX {
            all.hosts.retain(|_, host| !host.numbers.is_empty() || host.had_one(now));
        }
    }

    /// Whether the client had another connection before this one on which, or from which, calls may still come.
    pub(super) fn follows(&self, number: u64, peer: SocketAddr, now: Duration) -> bool {
        let all = self.all.lock();
        let host = all.hosts.get(&peer.ip());
        host.is_some_and(|host| host.numbers.first().is_some_and(|first| *first < number) || host.had_one(now))
    }

    /// Connections open at present.
    pub fn connections(&self) -> usize {
        self.all.lock().connections.len()
    }

    /// By address. `programs` are the names of the port's programs.
    pub(super) fn list(&self, programs: &[&'static str], now: Duration) -> Vec<ClientInfo> {
        let mut out: BTreeMap<IpAddr, (ClientInfo, u64)> = BTreeMap::new();
        for connected in self.all.lock().connections.values() {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_follows_those_of_its_address_that_are_open_or_have_just_ended() {
        let clients = Clients::default();
        let (peer, other) = ("10.0.0.1:700".parse().unwrap(), "10.0.0.2:700".parse().unwrap());
        let at = Duration::from_secs;
        clients.enter(peer, Time::default(), at(0));
        clients.enter(other, Time::default(), at(0));
        assert!(!clients.follows(1, peer, at(0)) && !clients.follows(2, other, at(0)));
        clients.enter(peer, Time::default(), at(1));
        assert!(clients.follows(3, peer, at(1)) && !clients.follows(1, peer, at(1)), "the first follows none");
        clients.leave(1, at(10));
        assert!(clients.follows(3, peer, at(69)));
        assert!(!clients.follows(3, peer, at(71)), "what the other left behind has come to its end");
    }

    #[test]
    fn addresses_that_are_gone_are_forgotten() {
        let clients = Clients::default();
        for host in 0..10_000u32 {
            let now = Duration::from_secs(host.into());
            let peer = SocketAddr::new(std::net::Ipv4Addr::from(host).into(), 700);
            let (number, _) = clients.enter(peer, Time::default(), now);
            clients.leave(number, now);
        }
        assert!(clients.all.lock().hosts.len() <= 2 * HOSTS_MAX);
    }
}
