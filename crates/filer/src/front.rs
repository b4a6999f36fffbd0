//! The protocols' side of the server: the only module that knows what they are.

use std::future::Future;
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::pin::Pin;
use std::sync::Arc;

use tarn_base::world::World;
use tarn_vfs::FileSystem;
use tokio::task::AbortHandle;

use crate::config::Settings;
use crate::protocol::{ClientView, StatusView, VolumeChange};

/// Serves one connection to its end on the calling thread.
pub type Connection = Arc<dyn Fn(tokio::net::TcpStream, SocketAddr) -> Pin<Box<dyn Future<Output = ()>>> + Send + Sync>;

/// All programs and what they remember of their clients.
pub struct Front {}

impl Front {
    pub async fn new(_files: Arc<dyn FileSystem>, _world: &World, _settings: &Settings, _nfs: SocketAddr) -> Front {
        Front {}
    }

    pub fn connection(self: &Arc<Front>) -> Connection {
        Arc::new(|_, _| Box::pin(async {}))
    }

    pub fn serve_datagrams(
        &self,
        _nfs: Option<UdpSocket>,
        _portmap: Option<(TcpListener, UdpSocket)>,
        _world: &World,
    ) -> std::io::Result<Vec<AbortHandle>> {
        Ok(Vec::new())
    }

    pub fn clients(&self) -> Vec<ClientView> {
        Vec::new()
    }

    pub fn fill(&self, _status: &mut StatusView) {}
}

/// Refuses export rules that could not be understood when they are needed.
pub fn check_rules(change: &VolumeChange) -> Result<(), String> {
    match &change.exports {
        Some(text) => {
            text.replace(';', "\n").parse::<tarn_nfs::exports::RuleSet>().map(drop).map_err(|e| e.to_string())
        }
        None => Ok(()),
    }
}
