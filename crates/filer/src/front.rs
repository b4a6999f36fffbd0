//! The protocols' side of the server: the only module that knows what they are.
//!
//! - NFS, MOUNT and NLM share one port; port mapper and status monitor share port 111.
//! - The lock manager hears the file system's grants from the moment the front is made.

use std::collections::BTreeMap;
use std::future::Future;
use std::net::{IpAddr, SocketAddr, TcpListener, UdpSocket};
use std::pin::Pin;
use std::sync::Arc;

use tarn_base::world::World;
use tarn_nfs::exports::{Exports, LOOPBACK_DEFAULT, Names, RuleSet};
use tarn_nfs::gate::Gate;
use tarn_nfs::mount::{Mount, Mounts};
use tarn_nfs::nlm::Nlm;
use tarn_nfs::nsm::{self, Nsm};
use tarn_nfs::ops::Nfs;
use tarn_nfs::peer::Outbound;
use tarn_nfs::portmap::{Portmap, Table};
use tarn_nfs::server::{self, ProcedureStats, Shared};
use tarn_nfs::service::{Program, Programs, Transport};
use tarn_vfs::FileSystem;
use tokio::runtime::Handle;
use tokio::task::AbortHandle;

use crate::config::Settings;
use crate::exit::{Outcome, Stop};
use crate::net::{SystemDialer, SystemResolver};
use crate::protocol::{ClientView, OperationStatus, StatusView, VolumeChange};
use crate::socket::ClientSocket;

/// Serves one connection to its end on the calling thread.
pub type Connection =
    Arc<dyn Fn(tokio::net::TcpStream, SocketAddr) -> Pin<Box<dyn Future<Output = ()> + Send>> + Send + Sync>;

/// All programs and what they remember of their clients.
pub struct Front {
    files: Arc<dyn FileSystem>,
    world: World,
    shared: Arc<Shared>,
    /// Those that clients look for by datagram too.
    by_datagram: Programs,
    /// Those that clients look for by connection.
    by_connection: Programs,
    mounts: Arc<Mounts>,
    nlm: Arc<Nlm>,
    outbound: Arc<Outbound>,
    limits: server::Settings,
    nfs: SocketAddr,
}

impl Front {
    /// The programs over `files`, to be served at `nfs`. Runs on the background runtime.
    pub fn new(files: Arc<dyn FileSystem>, world: &World, settings: &Settings, nfs: SocketAddr) -> Outcome<Front> {
        let names = Names::new(Arc::new(SystemResolver(Handle::current())), world.clone());
        // A volume without rules is for this machine only, wherever the server listens.
        let default: RuleSet =
            LOOPBACK_DEFAULT.parse().map_err(|error| Stop::Internal(format!("the default export rules: {error}")))?;
        let gate = Arc::new(Gate::new(files.clone(), Exports::new(files.clone(), names, default)));
        let mounts = Arc::new(Mounts::default());
        let outbound = Arc::new(Outbound::new(Arc::new(SystemDialer(Handle::current())), world.clone()));
        let address = Some(nfs.ip()).filter(|ip| !ip.is_unspecified());
        let nlm = Nlm::new(gate.clone(), outbound.clone(), world.clone(), address);
        files.set_event_sink(nlm.clone());
        nlm.resume();
        let mount: Arc<dyn Program> = Arc::new(Mount::new(gate.clone(), world.clone(), mounts.clone()));
        let by_datagram: Programs = vec![mount, nlm.clone()];
        let by_connection: Programs =
            [vec![Arc::new(Nfs::new(gate)) as Arc<dyn Program>], by_datagram.clone()].concat();
        // What peers have not ended and calls have not answered, of all connections, before each is looked at.
        let unfinished = (settings.cache_data / 16).clamp(8 << 20, 256 << 20) as usize;
        let limits = server::Settings {
            slow: Some(settings.slow_operation),
            later_total_max: unfinished,
            stopped_size_max: unfinished,
            ..server::Settings::default()
        };
        let shared = Shared::new(files.clone(), by_connection.clone(), world.clone(), limits.clone());
        let world = world.clone();
        Ok(Front { files, world, shared, by_datagram, by_connection, mounts, nlm, outbound, limits, nfs })
    }

    /// What a serving thread does with a connection.
    pub fn connection(&self) -> Connection {
        let (shared, pages) = (self.shared.clone(), self.files.pages());
        Arc::new(move |stream, peer| {
            let (shared, pages) = (shared.clone(), pages.clone());
            Box::pin(async move {
                let served = match server::prepare(&stream) {
                    Ok(()) => {
                        let socket = ClientSocket::new(stream, pages);
                        server::serve_connection(socket, peer, shared).await.map_err(|error| error.to_string())
                    }
                    Err(error) => Err(error.to_string()),
                };
                if let Err(reason) = served {
                    tracing::debug!(%peer, "a connection ended: {reason}");
                }
            })
        })
    }

    /// Serves what clients look for on port 111, and what that sends to the NFS port by datagram, until the handles
    /// abort it. Runs on the background runtime.
    pub fn serve_portmap(&self, nfs: UdpSocket, tcp: TcpListener, udp: UdpSocket) -> std::io::Result<Vec<AbortHandle>> {
        let shared = |programs| Shared::new(self.files.clone(), programs, self.world.clone(), self.limits.clone());
        let port_111 = shared(self.port_111(tcp.local_addr()?));
        let (nfs, udp) = (tokio::net::UdpSocket::from_std(nfs)?, tokio::net::UdpSocket::from_std(udp)?);
        let tcp = tokio::net::TcpListener::from_std(tcp)?;
        Ok(vec![
            tokio::spawn(datagrams(nfs, shared(self.by_datagram.clone()))).abort_handle(),
            tokio::spawn(datagrams(udp, port_111.clone())).abort_handle(),
            tokio::spawn(connections(tcp, port_111)).abort_handle(),
        ])
    }

    /// The programs of port 111, at `address`.
    fn port_111(&self, address: SocketAddr) -> Programs {
        let nsm: Arc<dyn Program> = Arc::new(Nsm::new(self.files.clone(), self.nlm.clone()));
        let mut table = Table::new();
        let mut register = |program: &Arc<dyn Program>, transport, address| {
            table.register(program.number(), program.versions(), transport, address);
        };
        self.by_connection.iter().for_each(|program| register(program, Transport::Tcp, self.nfs));
        self.by_datagram.iter().for_each(|program| register(program, Transport::Udp, self.nfs));
        for transport in [Transport::Tcp, Transport::Udp] {
            register(&nsm, transport, address);
            // A list that shows itself, as clients expect; it answers before it is in it.
            let empty: Arc<dyn Program> = Arc::new(Portmap::new(Table::new(), self.world.clone()));
            register(&empty, transport, address);
        }
        vec![Arc::new(Portmap::new(table, self.world.clone())), nsm]
    }

    /// Tells clients whose locks were lost that the server has restarted. Once, when everything is served.
    pub async fn notify_clients(&self) {
        let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
        nsm::notify_clients(self.files.clone(), self.outbound.clone(), self.world.clone(), vec![name]).await;
    }

    /// Asks every connection to end once it has answered what it works on.
    pub fn stop(&self) {
        self.shared.stop();
    }

    pub fn clients(&self) -> Vec<ClientView> {
        let mut exports: BTreeMap<IpAddr, Vec<String>> = BTreeMap::new();
        for mounted in self.mounts.list() {
            exports.entry(mounted.client).or_default().push(mounted.path);
        }
        let view = |client: tarn_nfs::server::ClientInfo| ClientView {
            address: client.address.to_string(),
            exports: exports.get(&client.address).cloned().unwrap_or_default(),
            connections: client.connections as u64,
            operations: client.calls,
            idle_seconds: client.idle.as_secs(),
        };
        self.shared.clients().into_iter().map(view).collect()
    }

    pub fn fill(&self, status: &mut StatusView) {
        status.clients = self.shared.clients().len() as u64;
        status.connections = self.shared.connections() as u64;
        status.operations = self.shared.counters().snapshot().iter().map(operation).collect();
    }
}

fn operation(stats: &ProcedureStats) -> OperationStatus {
    OperationStatus {
        program: stats.program.to_owned(),
        procedure: stats.procedure.to_owned(),
        count: stats.calls,
        errors: stats.statuses.iter().filter(|(status, _)| *status != 0).map(|(_, count)| count).sum(),
        microseconds: stats.latency_sum.as_micros() as u64,
        // The last bucket has no bound; it is what the others leave of the count.
        buckets: stats.latency[..stats.latency.len() - 1].to_vec(),
    }
}

/// Largest datagram: the most that UDP carries.
const DATAGRAM_SIZE_MAX: usize = 65_535;
/// Calls of one socket that are worked on at once; more wait in the kernel's buffer, and are sent again.
const DATAGRAMS_MAX: usize = 256;

/// Serves connections on the background runtime: few and short ones.
async fn connections(listener: tokio::net::TcpListener, shared: Arc<Shared>) {
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => {
                let shared = shared.clone();
                tokio::spawn(async move {
                    let _ = server::serve_connection(stream, peer, shared).await;
                });
            }
            Err(error) => {
                tracing::warn!("a connection was not accepted: {error}");
                tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            }
        }
    }
}

async fn datagrams(socket: tokio::net::UdpSocket, shared: Arc<Shared>) {
    let socket = Arc::new(socket);
    let free = Arc::new(tokio::sync::Semaphore::new(DATAGRAMS_MAX));
    let mut buffer = vec![0; DATAGRAM_SIZE_MAX];
    loop {
        let Ok(permit) = free.clone().acquire_owned().await else { return };
        // An error here is about a datagram sent before, to a peer that is gone.
        let Ok((size, peer)) = socket.recv_from(&mut buffer).await else { continue };
        let message = bytes::Bytes::copy_from_slice(&buffer[..size]);
        let (socket, shared) = (socket.clone(), shared.clone());
        tokio::spawn(async move {
            if let Some(reply) = server::answer_datagram(&shared, peer, message).await {
                let _ = socket.send_to(&reply, peer).await;
            }
            drop(permit);
        });
    }
}

/// Refuses export rules that could not be understood when they are needed, and writes the others a line each.
pub fn check_rules(change: &mut VolumeChange) -> Result<(), String> {
    if let Some(text) = &mut change.exports {
        *text = text.replace(';', "\n");
        text.parse::<RuleSet>().map_err(|error| error.to_string())?;
    }
    Ok(())
}
