//! What the server does for an administrator, whichever way the request came.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use serde::Serialize;
use serde_json::Value;
use tokio::sync::mpsc::UnboundedSender;

use crate::front::{self, Front};
use crate::memory;
use crate::node::Node;
use crate::protocol::{Progress, Request, StatusView};

/// A running server as its administrator sees it.
pub struct Service {
    pub node: Arc<Node>,
    pub front: Arc<Front>,
    pub about: About,
}

/// What does not change while the server runs.
pub struct About {
    pub started: Instant,
    pub data: String,
    pub store: String,
    pub store_shape: Option<String>,
    pub unsafe_log: bool,
    pub cores: usize,
    pub nfs: SocketAddr,
    pub admin: Option<SocketAddr>,
    pub portmap: bool,
}

impl Service {
    /// Does what `request` says; `progress` hears of long walks. The error is one sentence for the operator.
    pub async fn run(&self, request: Request, progress: UnboundedSender<Progress>) -> Result<Value, String> {
        let tell = move |step: Progress| {
            // Nobody listening is no reason to stop a walk.
            let _ = progress.send(step);
        };
        let node = &self.node;
        match request {
            Request::Status => json(&self.status()),
            Request::Clients => json(&self.front.clients()),
            Request::Locks => json(&node.locks()),
            Request::BreakLocks { client } => json(&node.break_locks(&client).await?),
            Request::Volumes => json(&node.volumes()),
            Request::CreateVolume { name, mut change, uid, gid } => {
                front::check_rules(&mut change)?;
                json(&node.create_volume(&name, &change, uid, gid).await?)
            }
            Request::SetVolume { name, mut change } => {
                front::check_rules(&mut change)?;
                json(&node.set_volume(&name, &change).await?)
            }
            Request::DeleteVolume { name } => json(&node.delete_volume(&name).await?),
            Request::UndeleteVolume { name, new_name } => json(&node.undelete_volume(&name, &new_name).await?),
            Request::Checkpoint => json(&node.checkpoint().await?),
            Request::Fsck { deep } => json(&node.fsck(deep, &tell).await?),
            Request::Scrub => json(&node.scrub(&tell).await?),
        }
    }

    pub fn status(&self) -> StatusView {
        let mut status = StatusView {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            process: std::process::id(),
            uptime_seconds: self.about.started.elapsed().as_secs(),
            data: self.about.data.clone(),
            store: self.about.store.clone(),
            store_shape: self.about.store_shape.clone(),
            encryption: "AES-256-GCM".to_owned(),
            unsafe_log: self.about.unsafe_log,
            cores: self.about.cores as u64,
            nfs: self.about.nfs.to_string(),
            admin: self.about.admin.map(|address| address.to_string()),
            portmap: self.about.portmap,
            memory_bytes: memory::resident(),
            memory_limit_bytes: memory::limit(),
            ..StatusView::default()
        };
        self.node.fill(&mut status);
        self.front.fill(&mut status);
        status
    }
}

fn json(value: &impl Serialize) -> Result<Value, String> {
    serde_json::to_value(value).map_err(|error| error.to_string())
}
