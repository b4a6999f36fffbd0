//! The protocols' side of the server: the only module that knows what they are.

use std::collections::BTreeMap;
use std::future::Future;
use std::net::{IpAddr, SocketAddr, TcpListener, UdpSocket};
use std::pin::Pin;
use std::sync::Arc;

use tarn_base::world::World;
use tarn_nfs::exports::{Exports, LOOPBACK_DEFAULT, Names, RuleSet};
use tarn_nfs::gate::Gate;
use tarn_nfs::mount::{Mount, Mounts};
use tarn_nfs::ops::Nfs;
use tarn_nfs::server::{self, ProcedureStats, Shared};
use tarn_nfs::service::Programs;
use tarn_vfs::FileSystem;
use tokio::runtime::Handle;
use tokio::task::AbortHandle;

use crate::config::Settings;
use crate::exit::{Outcome, Stop};
use crate::net::SystemResolver;
use crate::protocol::{ClientView, OperationStatus, StatusView, VolumeChange};

/// Serves one connection to its end on the calling thread.
pub type Connection = Arc<dyn Fn(tokio::net::TcpStream, SocketAddr) -> Pin<Box<dyn Future<Output = ()>>> + Send + Sync>;

/// All programs and what they remember of their clients.
pub struct Front {
    shared: Arc<Shared>,
    mounts: Arc<Mounts>,
}

impl Front {
    /// The programs over `files`. Runs on the background runtime.
    pub fn new(files: Arc<dyn FileSystem>, world: &World, settings: &Settings) -> Outcome<Front> {
        let names = Names::new(Arc::new(SystemResolver(Handle::current())), world.clone());
        // A volume without rules is for this machine only, wherever the server listens.
        let default: RuleSet =
            LOOPBACK_DEFAULT.parse().map_err(|error| Stop::Internal(format!("the default export rules: {error}")))?;
        let gate = Arc::new(Gate::new(files.clone(), Exports::new(files.clone(), names, default)));
        let mounts = Arc::new(Mounts::default());
        let programs: Programs =
            vec![Arc::new(Nfs::new(gate.clone())), Arc::new(Mount::new(gate, world.clone(), mounts.clone()))];
        let limits = server::Settings { slow: Some(settings.slow_operation), ..server::Settings::default() };
        let shared = Shared::new(files, programs, world.clone(), limits);
        Ok(Front { shared, mounts })
    }

    /// What a serving thread does with a connection.
    pub fn connection(&self) -> Connection {
        let shared = self.shared.clone();
        Arc::new(move |stream, peer| {
            let shared = shared.clone();
            Box::pin(async move {
                let served = match server::prepare(&stream) {
                    Ok(()) => server::serve_connection(stream, peer, shared).await.map_err(|error| error.to_string()),
                    Err(error) => Err(error.to_string()),
                };
                if let Err(reason) = served {
                    tracing::debug!(%peer, "a connection ended: {reason}");
                }
            })
        })
    }

    /// Answers datagrams, and port 111, until the handles abort it. Runs on the background runtime.
    pub fn serve_datagrams(
        &self,
        nfs: Option<UdpSocket>,
        _portmap: Option<(TcpListener, UdpSocket)>,
    ) -> std::io::Result<Vec<AbortHandle>> {
        let mut tasks = Vec::new();
        if let Some(socket) = nfs {
            let socket = tokio::net::UdpSocket::from_std(socket)?;
            tasks.push(tokio::spawn(datagrams(socket, self.shared.clone())).abort_handle());
        }
        Ok(tasks)
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
