//! The server's side of the admin socket.
//!
//! - Only the server's own user and root are heard; whoever connects is asked of the kernel, not believed.
//! - A request is at most 1 MiB; a connection that says nothing holds one small task and nothing else.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::unix::OwnedWriteHalf;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::mpsc;

use super::client::SOCKET;
use super::service::Service;
use crate::exit::{Outcome, path_stop};
use crate::place;
use crate::protocol::{Line, Request};

const REQUEST_SIZE_MAX: u64 = 1 << 20;

/// Makes the socket in the data directory, whose lock the caller holds; an old one is of a server that is gone.
pub fn bind(data: &Path) -> Outcome<UnixListener> {
    let bind = || -> std::io::Result<UnixListener> {
        let _ = fs::remove_file(data.join(SOCKET));
        let (_dir, path) = place::short_path(data, SOCKET)?;
        let listener = UnixListener::bind(&path)?;
        fs::set_permissions(data.join(SOCKET), fs::Permissions::from_mode(0o600))?;
        Ok(listener)
    };
    bind().map_err(|error| path_stop(&data.join(SOCKET), "--data", &error))
}

/// Answers for ever.
pub async fn serve(listener: UnixListener, service: Arc<Service>) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                let service = service.clone();
                tokio::spawn(async move {
                    if let Err(error) = answer(stream, service).await {
                        tracing::debug!("a command went away: {error}");
                    }
                });
            }
            Err(error) => {
                tracing::warn!("the admin socket cannot accept: {error}");
                tokio::time::sleep(std::time::Duration::from_millis(200)).await;
            }
        }
    }
}

async fn answer(stream: UnixStream, service: Arc<Service>) -> std::io::Result<()> {
    let uid = stream.peer_cred()?.uid();
    let (reader, mut writer) = stream.into_split();
    if uid != 0 && uid != rustix::process::geteuid().as_raw() {
        let reason = format!("user {uid} is neither root nor the server's own");
        return send(&mut writer, Line::Refused(reason)).await;
    }
    let mut line = String::new();
    BufReader::new(reader.take(REQUEST_SIZE_MAX)).read_line(&mut line).await?;
    let request = match serde_json::from_str::<Request>(&line) {
        Ok(request) => request,
        Err(error) => {
            let reason = format!("the server is of another version and does not understand this: {error}");
            return send(&mut writer, Line::Refused(reason)).await;
        }
    };
    let (tell, mut heard) = mpsc::unbounded_channel();
    // A task of its own: a command that goes away does not undo half of what it asked for.
    let mut run = tokio::spawn(async move { service.run(request, tell).await });
    let done = loop {
        tokio::select! {
            biased;
            Some(step) = heard.recv() => send(&mut writer, Line::Progress(step)).await?,
            done = &mut run => break done.unwrap_or_else(|error| Err(format!("the command failed: {error}"))),
        }
    };
    send(&mut writer, done.map_or_else(Line::Refused, Line::Done)).await
}

async fn send(writer: &mut OwnedWriteHalf, line: Line) -> std::io::Result<()> {
    let mut text = serde_json::to_vec(&line)?;
    text.push(b'\n');
    writer.write_all(&text).await
}
