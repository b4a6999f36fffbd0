//! An export, by NFSv3 (RFC 1813) without a client's cache.

use super::{Data, Node, Pending};
use crate::Outcome;
use crate::drive::connection::{Answer, Call, Connection, Trouble};
use crate::drive::reactor::Reactor;
use crate::target::Target;
use crate::workload::definition::Stability;
use std::cell::Cell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use tarn_nfsclient::types::{Attributes, Change};
use tarn_nfsclient::xdr::{Reader, Writer};
use tarn_nfsclient::{Client, Credentials, Handle, Status};

/// NFS3ERR_JUKEBOX: come again.
const JUKEBOX: u32 = 10_008;
/// Bytes that are made at once: between two pieces begins what is due.
const PIECE: usize = 64 << 10;
/// Wire transfers of one operation in flight, as the seed's "biod" setting says.
const IN_FLIGHT: usize = 2;
/// Bytes of one reply of READDIR and READDIRPLUS.
const LISTING: u32 = 32 << 10;

static OPENED: AtomicU32 = AtomicU32::new(0);

/// Who is asked how.
pub struct Nfs {
    reactor: Reactor,
    connections: Vec<Connection>,
    turn: Cell<usize>,
    root: Node,
    transfer: (u64, u64),
}

impl Nfs {
    /// Connects and finds the limits of FSINFO. `directory` was made by the caller.
    pub fn open(
        reactor: &Reactor,
        target: &Target,
        directory: Handle,
        connections: usize,
        patience: Duration,
        trouble: &Rc<Trouble>,
    ) -> Outcome<Nfs> {
        // Several may be opened by one process: their calls' numbers differ all the same.
        let opened = OPENED.fetch_add(1, Ordering::Relaxed);
        let mut first = std::process::id().wrapping_add(opened << 16).wrapping_mul(7919);
        let mut open = || {
            first = first.wrapping_add(1 << 22);
            Connection::open(reactor, target.address, (0, 0), first, patience, trouble.clone())
        };
        let connections = (0..connections.max(1)).map(|_| open()).collect::<Outcome<Vec<Connection>>>()?;
        let mut client = Client::new(target.address, Credentials::root(), first.wrapping_add(1 << 22), patience);
        let attributes = client.getattr(&directory).map_err(|error| error.to_string())?;
        let transfer = fsinfo(target, &directory)?;
        let root = Node::Remote { handle: Rc::new(directory), fileid: attributes.fileid };
        Ok(Nfs { reactor: reactor.clone(), connections, turn: Cell::new(0), root, transfer })
    }

    pub fn connections(&self) -> usize {
        self.connections.len()
    }

    pub fn transfer_max(&self) -> (u64, u64) {
        self.transfer
    }

    pub fn root(&self) -> Node {
        self.root.clone()
    }

    /// The connection whose turn it is.
    fn next(&self) -> &Connection {
        let turn = self.turn.get();
        self.turn.set(turn.wrapping_add(1));
        &self.connections[turn % self.connections.len()]
    }

    fn begin(&self, procedure: u32, arguments: &[u8]) -> Call {
        self.next().call(procedure, |out| out.extend_from_slice(arguments))
    }

    /// A WRITE whose bytes are made where they go out from, piece by piece.
    fn begin_write(&self, header: &[u8], (offset, size): (u64, u64), fill: &dyn Fn(u64, &mut [u8])) -> Call {
        let connection = self.next();
        let size = size as usize;
        let mut record = connection.record(7, header.len() + size);
        record.extend_from_slice(header);
        for at in (0..size).step_by(PIECE) {
            let from = record.len();
            record.resize(from + PIECE.min(size - at), 0);
            fill(offset + at as u64, &mut record[from..]);
            self.reactor.give_way();
        }
        record.resize(record.len().next_multiple_of(4), 0);
        connection.send(record)
    }

    /// A call until it is answered with something else than JUKEBOX; any status but OK is an error.
    async fn ask(&self, procedure: u32, arguments: Writer) -> Outcome<Answer> {
        let begin = || self.begin(procedure, &arguments.0);
        self.finish(begin(), procedure, begin).await
    }

    async fn finish(&self, call: Call, procedure: u32, again: impl Fn() -> Call) -> Outcome<Answer> {
        let mut answer = call.await;
        loop {
            match answer.reader().u32().map_err(text)? {
                0 => return Ok(answer),
                JUKEBOX => {
                    let trouble = self.connections[0].trouble();
                    trouble.jukebox.set(trouble.jukebox.get() + 1);
                    self.reactor.sleep_until(Instant::now() + Duration::from_millis(50)).await;
                    answer = again().await;
                }
                status => return Err(format!("procedure {procedure}: {:?}", Status(status))),
            }
        }
    }

    pub async fn getattr(&self, node: &Node) -> Outcome<(u64, Instant)> {
        let (handle, fileid) = remote(node)?;
        let answer = self.ask(1, Writer::new().bytes(&handle.0)).await?;
        let attributes = Attributes::read(&mut results(&answer)?).map_err(text)?;
        if attributes.fileid != fileid {
            return Err(format!("GETATTR of file {fileid} answered for {}", attributes.fileid));
        }
        Ok((attributes.size, answer.at))
    }

    pub async fn lookup(&self, directory: &Node, name: &str) -> Outcome<(Node, Instant)> {
        let answer = self.ask(3, Writer::new().bytes(&remote(directory)?.0.0).bytes(name.as_bytes())).await?;
        let mut reader = results(&answer)?;
        let handle = Handle(reader.bytes().map_err(text)?.to_vec());
        let attributes = reader.optional(Attributes::read).map_err(text)?;
        let fileid = match attributes {
            Some(attributes) => attributes.fileid,
            None => self.fileid(&handle).await?,
        };
        Ok((Node::Remote { handle: Rc::new(handle), fileid }, answer.at))
    }

    pub async fn access(&self, node: &Node) -> Outcome<Instant> {
        let answer = self.ask(4, Writer::new().bytes(&remote(node)?.0.0).u32(0x3f)).await?;
        let mut reader = results(&answer)?;
        reader.optional(Attributes::read).map_err(text)?;
        if reader.u32().map_err(text)? & 1 == 0 {
            return Err("ACCESS denies reading to the owner".to_owned());
        }
        Ok(answer.at)
    }

    pub async fn setattr(&self, node: &Node, mode: u32) -> Outcome<Instant> {
        let arguments = Change::mode(mode).write(Writer::new().bytes(&remote(node)?.0.0)).u32(0);
        Ok(self.ask(2, arguments).await?.at)
    }

    pub async fn readlink(&self, node: &Node) -> Outcome<(Vec<u8>, Instant)> {
        let answer = self.ask(5, Writer::new().bytes(&remote(node)?.0.0)).await?;
        let mut reader = results(&answer)?;
        reader.optional(Attributes::read).map_err(text)?;
        Ok((reader.bytes().map_err(text)?.to_vec(), answer.at))
    }

    pub async fn readdir(&self, directory: &Node, plus: bool) -> Outcome<(Vec<String>, Instant)> {
        let arguments = Writer::new().bytes(&remote(directory)?.0.0).u64(0).u64(0);
        let answer = match plus {
            true => self.ask(17, arguments.u32(LISTING / 4).u32(LISTING)).await?,
            false => self.ask(16, arguments.u32(LISTING)).await?,
        };
        let names = listing(&mut results(&answer)?, plus).map_err(text)?;
        Ok((names, answer.at))
    }

    pub async fn fsstat(&self) -> Outcome<Instant> {
        Ok(self.ask(18, Writer::new().bytes(&remote(&self.root)?.0.0)).await?.at)
    }

    pub async fn create(&self, directory: &Node, name: &str) -> Outcome<(Node, Instant)> {
        let arguments = Writer::new().bytes(&remote(directory)?.0.0).bytes(name.as_bytes()).u32(1);
        self.made(8, Change::mode(0o644).write(arguments)).await
    }

    pub async fn mkdir(&self, directory: &Node, name: &str) -> Outcome<(Node, Instant)> {
        let arguments = Writer::new().bytes(&remote(directory)?.0.0).bytes(name.as_bytes());
        self.made(9, Change::mode(0o755).write(arguments)).await
    }

    pub async fn symlink(&self, directory: &Node, name: &str, to: &str) -> Outcome<(Node, Instant)> {
        let arguments = Writer::new().bytes(&remote(directory)?.0.0).bytes(name.as_bytes());
        self.made(10, Change::default().write(arguments).bytes(to.as_bytes())).await
    }

    async fn made(&self, procedure: u32, arguments: Writer) -> Outcome<(Node, Instant)> {
        let answer = self.ask(procedure, arguments).await?;
        let mut reader = results(&answer)?;
        let handle = reader.optional(|reader| reader.bytes()).map_err(text)?.ok_or("no handle came with a new file")?;
        let handle = Handle(handle.to_vec());
        let fileid = match reader.optional(Attributes::read).map_err(text)? {
            Some(attributes) => attributes.fileid,
            None => self.fileid(&handle).await?,
        };
        Ok((Node::Remote { handle: Rc::new(handle), fileid }, answer.at))
    }

    async fn fileid(&self, handle: &Handle) -> Outcome<u64> {
        let answer = self.ask(1, Writer::new().bytes(&handle.0)).await?;
        Ok(Attributes::read(&mut results(&answer)?).map_err(text)?.fileid)
    }

    pub async fn remove(&self, directory: &Node, name: &str) -> Outcome<Instant> {
        Ok(self.ask(12, Writer::new().bytes(&remote(directory)?.0.0).bytes(name.as_bytes())).await?.at)
    }

    pub async fn rename(&self, directory: &Node, from: &str, to: &str) -> Outcome<Instant> {
        let handle = remote(directory)?.0;
        let arguments = Writer::new().bytes(&handle.0).bytes(from.as_bytes()).bytes(&handle.0).bytes(to.as_bytes());
        Ok(self.ask(14, arguments).await?.at)
    }

    pub async fn read(&self, node: &Node, offset: u64, size: u64) -> Outcome<(Data, Instant)> {
        let handle = remote(node)?.0;
        let arguments = |at: u64, count: u64| Writer::new().bytes(&handle.0).u64(at).u32(count as u32).0;
        let mut parts: VecDeque<(u64, u64)> = pieces(offset, size, self.transfer.0).collect();
        let mut flying = VecDeque::new();
        let mut data = Vec::new();
        let mut last = Instant::now();
        while !parts.is_empty() || !flying.is_empty() {
            while flying.len() < IN_FLIGHT
                && let Some((at, count)) = parts.pop_front()
            {
                flying.push_back((at, count, self.begin(6, &arguments(at, count))));
            }
            let Some((at, count, call)) = flying.pop_front() else { break };
            let answer = self.finish(call, 6, || self.begin(6, &arguments(at, count))).await?;
            last = last.max(answer.at);
            let mut reader = results(&answer)?;
            reader.optional(Attributes::read).map_err(text)?;
            let (said, end) = (reader.u32().map_err(text)?, reader.bool().map_err(text)?);
            let from = answer.results().len() - reader.rest().len() + 4;
            let bytes = reader.bytes().map_err(text)?;
            if bytes.len() != said as usize || bytes.len() as u64 > count || at != offset + data.len() as u64 {
                return Err(format!("READ of {count} bytes answered {said} and brought {}", bytes.len()));
            }
            if bytes.len() as u64 == size {
                // All in one reply: it stays where it is.
                let range = from..from + bytes.len();
                return Ok((Data::Part(answer, range), last));
            }
            data.extend_from_slice(bytes);
            if (bytes.len() as u64) < count {
                // Less than asked for: at the end of the file, or the rest is asked for again.
                if end {
                    return Ok((Data::Own(data), last));
                }
                flying.clear();
                let from = at + bytes.len() as u64;
                parts = pieces(from, offset + size - from, self.transfer.0).collect();
            }
        }
        Ok((Data::Own(data), last))
    }

    pub async fn write(
        &self,
        node: &Node,
        (offset, size): (u64, u64),
        fill: &dyn Fn(u64, &mut [u8]),
        stable: Stability,
        pending: &mut Vec<Pending>,
    ) -> Outcome<Instant> {
        let handle = remote(node)?.0;
        let how = if stable == Stability::File { 2 } else { 0 };
        let mut parts = pieces(offset, size, self.transfer.1);
        let mut flying = VecDeque::new();
        let mut last = Instant::now();
        loop {
            while flying.len() < IN_FLIGHT
                && let Some((at, count)) = parts.next()
            {
                let header = Writer::new().bytes(&handle.0).u64(at).u32(count as u32).u32(how).u32(count as u32).0;
                flying.push_back(((at, count), self.begin_write(&header, (at, count), fill), header));
            }
            let Some((part, call, header)) = flying.pop_front() else { return Ok(last) };
            let answer = self.finish(call, 7, || self.begin_write(&header, part, fill)).await?;
            last = last.max(answer.at);
            let mut reader = results(&answer)?;
            weak_cache_data(&mut reader).map_err(text)?;
            let (count, reached) = (reader.u32().map_err(text)?, reader.u32().map_err(text)?);
            let verifier = reader.u64().map_err(text)?;
            if u64::from(count) != part.1 || reached < how {
                return Err(format!("WRITE of {} bytes answered {count}, stability {reached} for {how}", part.1));
            }
            if reached != 2 {
                pending.push(Pending { offset: part.0, size: part.1, verifier });
            }
        }
    }

    pub async fn commit(&self, node: &Node, pending: &[Pending]) -> Outcome<(Vec<Pending>, Instant)> {
        let answer = self.ask(21, Writer::new().bytes(&remote(node)?.0.0).u64(0).u32(0)).await?;
        let mut reader = results(&answer)?;
        weak_cache_data(&mut reader).map_err(text)?;
        let verifier = reader.u64().map_err(text)?;
        let lost: Vec<Pending> = pending.iter().filter(|range| range.verifier != verifier).copied().collect();
        if !lost.is_empty() {
            let trouble = self.connections[0].trouble();
            trouble.verifiers.set(trouble.verifiers.get() + 1);
        }
        Ok((lost, answer.at))
    }
}

fn text(error: tarn_nfsclient::Error) -> String {
    error.to_string()
}

fn remote(node: &Node) -> Outcome<(&Handle, u64)> {
    match node {
        Node::Remote { handle, fileid } => Ok((handle, *fileid)),
        Node::Path { .. } => Err("a path of this machine is not on a server".to_owned()),
    }
}

/// What follows the status.
fn results(answer: &Answer) -> Outcome<Reader<'_>> {
    let mut reader = answer.reader();
    reader.u32().map_err(text)?;
    Ok(reader)
}

fn weak_cache_data(reader: &mut Reader) -> tarn_nfsclient::Result<()> {
    reader.optional(|reader| reader.fixed(24))?;
    reader.optional(Attributes::read).map(|_| ())
}

/// (offset, size) of transfers that do not cross a multiple of the largest one.
fn pieces(offset: u64, size: u64, largest: u64) -> impl Iterator<Item = (u64, u64)> {
    let end = offset + size;
    let mut at = offset;
    std::iter::from_fn(move || {
        let from = at;
        at = (from / largest * largest + largest).min(end);
        (from < end).then_some((from, at - from))
    })
}

/// Names of a READDIR3 or READDIRPLUS3 result, behind the status.
fn listing(reader: &mut Reader, plus: bool) -> tarn_nfsclient::Result<Vec<String>> {
    reader.optional(Attributes::read)?;
    reader.fixed(8)?;
    let mut names = Vec::new();
    while reader.bool()? {
        let _fileid = reader.u64()?;
        names.push(String::from_utf8_lossy(reader.bytes()?).into_owned());
        let _cookie = reader.u64()?;
        if plus {
            reader.optional(Attributes::read)?;
            reader.optional(|reader| reader.bytes())?;
        }
    }
    Ok(names)
}

/// rtmax and wtmax of FSINFO.
fn fsinfo(target: &Target, root: &Handle) -> Outcome<(u64, u64)> {
    let wait = Duration::from_secs(10);
    let mut connection = tarn_nfsclient::Connection::open(target.address, wait).map_err(|error| error.to_string())?;
    let procedure = tarn_nfsclient::rpc::Procedure { program: 100_003, version: 3, number: 19 };
    let arguments = Writer::new().bytes(&root.0).0;
    let answer = connection.call(1, procedure, &Credentials::root(), &arguments).map_err(text)?;
    let mut reader = Reader::new(&answer);
    let limits = (|| {
        let status = reader.u32()?;
        reader.optional(Attributes::read)?;
        let (read, _, _, write) = (reader.u32()?, reader.u32()?, reader.u32()?, reader.u32()?);
        Ok((status, u64::from(read), u64::from(write)))
    })();
    match limits.map_err(text)? {
        (0, read, write) if read >= 512 && write >= 512 => Ok((read / 512 * 512, write / 512 * 512)),
        (status, ..) => Err(format!("FSINFO: {:?}", Status(status))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transfers_end_at_multiples_of_the_largest() {
        assert_eq!(pieces(512, 2048, 1024).collect::<Vec<_>>(), [(512, 512), (1024, 1024), (2048, 512)]);
        assert_eq!(pieces(0, 1024, 1024).collect::<Vec<_>>(), [(0, 1024)]);
        assert_eq!(pieces(7, 0, 1024).count(), 0);
    }
}
