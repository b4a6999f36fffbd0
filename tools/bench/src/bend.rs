//! A server that lies, made of one that does not: a relay that bends what passes. It shows that a run finds out.
//!
//! - `corrupt`: one READ reply in so many has one bit flipped.
//! - `forget`: one WRITE in so many is answered but never carried out, as by a server that lies about COMMIT and then
//!   restarts.
//! - `stall`: after so many calls nothing is answered for a second and a half.
//! - `die`: after so many calls the relay ends, and with it every connection.

use crate::Outcome;
use crate::stream::LAST;
use clap::ValueEnum;
use std::collections::HashMap;
use std::io::{Read, Result, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tarn_nfsclient::xdr::Writer;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Fault {
    Corrupt,
    Forget,
    Stall,
    Die,
}

const READ: u32 = 6;
const WRITE: u32 = 7;
const STALL: Duration = Duration::from_millis(1500);
/// Longest record that is relayed.
const RECORD_MAX: usize = 8 << 20;

struct Relay {
    to: SocketAddr,
    fault: Fault,
    one_in: u64,
    /// Reads, writes or calls so far, whatever the fault counts.
    count: AtomicU64,
    /// The server's write verifier, once one was seen.
    verifier: Mutex<Option<[u8; 8]>>,
}

/// Procedures of calls in flight on one connection.
type Flying = Arc<Mutex<HashMap<u32, u32>>>;

/// Relays connections to `to` until it is killed.
pub fn serve(listen: SocketAddr, to: SocketAddr, fault: Fault, one_in: u64) -> Outcome<()> {
    let listener = TcpListener::bind(listen).map_err(|error| format!("{listen}: {error}"))?;
    let verifier = Mutex::new(None);
    let relay = Arc::new(Relay { to, fault, one_in: one_in.max(1), count: AtomicU64::new(0), verifier });
    for client in listener.incoming().flatten() {
        let relay = relay.clone();
        std::thread::spawn(move || relay.connect(client));
    }
    Ok(())
}

impl Relay {
    fn connect(self: Arc<Relay>, client: TcpStream) {
        let Ok(server) = tarn_nfsclient::dial::dial(self.to, Duration::from_secs(5)) else { return };
        let flying = Flying::default();
        let (Ok(mut from_server), Ok(mut to_client)) = (server.try_clone(), client.try_clone()) else { return };
        let (relay, calls) = (self.clone(), flying.clone());
        std::thread::spawn(move || {
            let _ = relay.replies(&mut from_server, &mut to_client, &calls);
            let _ = to_client.shutdown(std::net::Shutdown::Both);
        });
        let _ = self.calls(&client, &server, &flying);
        let _ = server.shutdown(std::net::Shutdown::Both);
    }

    fn hits(&self) -> bool {
        self.count.fetch_add(1, Ordering::Relaxed) % self.one_in == self.one_in - 1
    }

    fn calls(&self, mut client: &TcpStream, mut server: &TcpStream, flying: &Flying) -> Result<()> {
        loop {
            let record = record(&mut client)?;
            let (xid, procedure) = (word(&record, 0), word(&record, 20));
            match self.fault {
                Fault::Stall if self.hits() => std::thread::sleep(STALL),
                Fault::Die if self.hits() => std::process::exit(0),
                Fault::Forget if procedure == WRITE && self.hits() => {
                    let verifier = *self.verifier.lock().unwrap_or_else(PoisonError::into_inner);
                    if let Some(verifier) = verifier {
                        send(&mut client, &forgotten(xid, &record, &verifier))?;
                        continue;
                    }
                }
                _ => {}
            }
            flying.lock().unwrap_or_else(PoisonError::into_inner).insert(xid, procedure);
            send(&mut server, &record)?;
        }
    }

    fn replies(&self, server: &mut TcpStream, client: &mut TcpStream, flying: &Flying) -> Result<()> {
        loop {
            let mut record = record(server)?;
            let procedure = flying.lock().unwrap_or_else(PoisonError::into_inner).remove(&word(&record, 0));
            match procedure {
                Some(READ) if self.fault == Fault::Corrupt && record.len() > 600 && self.hits() => {
                    let middle = record.len() - 100;
                    record[middle] ^= 1;
                }
                Some(WRITE) => {
                    if let Some(verifier) = record.last_chunk::<8>() {
                        *self.verifier.lock().unwrap_or_else(PoisonError::into_inner) = Some(*verifier);
                    }
                }
                _ => {}
            }
            send(client, &record)?;
        }
    }
}

/// WRITE3resok for a write that nobody carries out: no attributes, as many bytes as asked, as stable as asked.
fn forgotten(xid: u32, call: &[u8], verifier: &[u8; 8]) -> Vec<u8> {
    // Behind the header (24 bytes) stand credential and verifier, the handle, the offset, the count and the stability.
    let after = |at: usize| at + 8 + (word(call, at + 4) as usize).next_multiple_of(4);
    let handle = after(after(24));
    let offset = handle + 4 + (word(call, handle) as usize).next_multiple_of(4);
    let (count, stable) = (word(call, offset + 8), word(call, offset + 12));
    let header = Writer::new().u32(xid).u32(1).u32(0).u32(0).u32(0).u32(0);
    header.u32(0).u32(0).u32(0).u32(count).u32(stable).fixed(verifier).0
}

fn word(record: &[u8], at: usize) -> u32 {
    record.get(at..).and_then(|rest| rest.first_chunk::<4>()).map_or(0, |word| u32::from_be_bytes(*word))
}

fn record(stream: &mut impl Read) -> Result<Vec<u8>> {
    let mut mark = [0; 4];
    stream.read_exact(&mut mark)?;
    let size = (u32::from_be_bytes(mark) & !LAST) as usize;
    if size > RECORD_MAX {
        return Err(std::io::Error::other("a record is too long"));
    }
    let mut record = vec![0; size];
    stream.read_exact(&mut record)?;
    Ok(record)
}

fn send(stream: &mut impl Write, record: &[u8]) -> Result<()> {
    let mut whole = (record.len() as u32 | LAST).to_be_bytes().to_vec();
    whole.extend_from_slice(record);
    stream.write_all(&whole)
}
