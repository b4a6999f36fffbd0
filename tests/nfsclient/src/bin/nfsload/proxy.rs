//! A line to an object store that can be taken away: HTTP passed on, or answered with 503.
//!
//! - As long as the file `--away` is there, every request is answered with 503 and not passed on.
//! - One request a connection, so that there is never one from before: `Connection: close` is said to both sides.
//!   The signature of a request covers neither that header nor the connection.

use crate::Outcome;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::time::Duration;

#[derive(clap::Args)]
pub struct Arguments {
    #[arg(long)]
    listen: SocketAddr,
    /// The store
    #[arg(long)]
    to: SocketAddr,
    /// While this file is there the store is away
    #[arg(long)]
    away: PathBuf,
}

const HEAD_BYTES_MAX: usize = 64 << 10;
const TIMEOUT: Duration = Duration::from_secs(120);

/// Ends with the process only.
pub fn run(arguments: Arguments) -> Outcome<String> {
    let listener = TcpListener::bind(arguments.listen).map_err(|error| format!("{}: {error}", arguments.listen))?;
    let arguments: &'static Arguments = Box::leak(Box::new(arguments));
    for stream in listener.incoming().flatten() {
        std::thread::spawn(move || {
            // A line that breaks is what this is for.
            let _ = serve(stream, arguments);
        });
    }
    Ok(String::new())
}

fn serve(mut client: TcpStream, arguments: &Arguments) -> std::io::Result<()> {
    client.set_read_timeout(Some(TIMEOUT))?;
    client.set_nodelay(true)?;
    let (head, body) = read_head(&mut client)?;
    if arguments.away.exists() {
        return refuse(client, &head, body.len());
    }
    let mut store = TcpStream::connect(arguments.to)?;
    store.set_nodelay(true)?;
    store.write_all(&closing(&head))?;
    store.write_all(&body)?;
    let (mut from, mut to) = (client.try_clone()?, store.try_clone()?);
    std::thread::spawn(move || {
        let _ = std::io::copy(&mut from, &mut to);
    });
    let (head, body) = read_head(&mut store)?;
    client.write_all(&closing(&head))?;
    client.write_all(&body)?;
    std::io::copy(&mut store, &mut client)?;
    client.shutdown(Shutdown::Both)
}

/// Takes the whole request, as a store that is overloaded does, and says no.
fn refuse(mut client: TcpStream, head: &[u8], already: usize) -> std::io::Result<()> {
    let head = String::from_utf8_lossy(head).to_ascii_lowercase();
    if head.contains("expect: 100-continue") {
        client.write_all(b"HTTP/1.1 100 Continue\r\n\r\n")?;
    }
    let length = head.lines().find_map(|line| line.strip_prefix("content-length:"));
    let length: u64 = length.and_then(|text| text.trim().parse().ok()).unwrap_or(0);
    let rest = length.saturating_sub(already as u64);
    std::io::copy(&mut Read::by_ref(&mut client).take(rest), &mut std::io::sink())?;
    let body = "<?xml version=\"1.0\" encoding=\"UTF-8\"?><Error><Code>SlowDown</Code><Message>away</Message></Error>";
    write!(
        client,
        "HTTP/1.1 503 Slow Down\r\nContent-Type: application/xml\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    )?;
    if !head.starts_with("head ") {
        client.write_all(body.as_bytes())?;
    }
    client.shutdown(Shutdown::Write)
}

/// A head up to its empty line, and what came after it.
fn read_head(stream: &mut TcpStream) -> std::io::Result<(Vec<u8>, Vec<u8>)> {
    let mut bytes = Vec::new();
    let mut part = [0; 4096];
    loop {
        let count = stream.read(&mut part)?;
        if count == 0 || bytes.len() > HEAD_BYTES_MAX {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        bytes.extend_from_slice(&part[..count]);
        if let Some(at) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            let body = bytes.split_off(at + 4);
            return Ok((bytes, body));
        }
    }
}

/// The head, saying that nothing follows this message.
fn closing(head: &[u8]) -> Vec<u8> {
    let text = String::from_utf8_lossy(head);
    let lines = text.trim_end().split("\r\n").filter(|line| !line.to_ascii_lowercase().starts_with("connection:"));
    let mut out: Vec<&str> = lines.collect();
    out.push("Connection: close\r\n\r\n");
    out.join("\r\n").into_bytes()
}
