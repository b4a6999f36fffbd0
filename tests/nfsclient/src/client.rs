//! The procedures of NFSv3 (RFC 1813, 3.3) and MOUNT (RFC 1813, 5.2), one function each.
//!
//! - With patience, a call whose connection breaks is sent again under the same number on a new connection, as the
//!   kernel's client does, until there is an answer: so every call has exactly one outcome, and a server that
//!   executes a repeated call twice is found out. JUKEBOX is waited out under a new number.
//! - Nothing is cached.

use crate::error::{Error, Result, Status};
use crate::rpc::{Connection, Credentials, Procedure};
use crate::types::{Attributes, Change, Entry, Handle, Kind, Stable};
use crate::xdr::{Reader, Writer};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

const NFS: u32 = 100_003;
const MOUNT: u32 = 100_005;

pub struct Client {
    address: SocketAddr,
    who: Credentials,
    connection: Option<Connection>,
    xid: u32,
    /// How long a call is repeated before its failure is told.
    pub patience: Duration,
    /// How long a connection may be silent before it counts as broken.
    pub timeout: Duration,
    /// Calls that were sent more than once.
    pub repeated: u64,
    /// Answers that said JUKEBOX, each waited out. Others may look at it, or count in it too.
    pub put_off: Arc<AtomicU64>,
}

const TIMEOUT: Duration = Duration::from_secs(10);

/// How CREATE treats a name that exists.
#[derive(Clone, Copy, Debug)]
pub enum How {
    Unchecked,
    Guarded,
    /// With its verifier.
    Exclusive(u64),
}

/// What a WRITE says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    pub count: u32,
    /// When it is durable: as asked for or better.
    pub stable: u32,
    pub verifier: u64,
}

/// What READ says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Data {
    pub bytes: Vec<u8>,
    pub end: bool,
}

impl Client {
    /// `first` makes the numbers of calls differ from other clients' on the same address.
    pub fn new(address: SocketAddr, who: Credentials, first: u32, patience: Duration) -> Client {
        Client {
            address,
            who,
            connection: None,
            xid: first,
            patience,
            timeout: TIMEOUT,
            repeated: 0,
            put_off: Arc::default(),
        }
    }

    /// The root of an export.
    pub fn mount(&mut self, path: &str) -> Result<Handle> {
        let procedure = Procedure { program: MOUNT, version: 3, number: 1 };
        let results = self.call(procedure, &Writer::new().bytes(path.as_bytes()).0)?;
        let mut reader = Reader::new(&results);
        check(&mut reader)?;
        Ok(Handle(reader.bytes()?.to_vec()))
    }

    pub fn null(&mut self) -> Result<()> {
        self.nfs(0, Writer::new()).map(|_| ())
    }

    pub fn getattr(&mut self, file: &Handle) -> Result<Attributes> {
        let results = self.nfs(1, Writer::new().bytes(&file.0))?;
        let mut reader = Reader::new(&results);
        check(&mut reader)?;
        Attributes::read(&mut reader)
    }

    pub fn setattr(&mut self, file: &Handle, change: Change) -> Result<()> {
        let arguments = Writer::new().bytes(&file.0).with(|writer| change.write(writer)).bool(false);
        self.status(2, arguments)
    }

    pub fn lookup(&mut self, directory: &Handle, name: &[u8]) -> Result<(Handle, Option<Attributes>)> {
        let results = self.nfs(3, Writer::new().bytes(&directory.0).bytes(name))?;
        let mut reader = Reader::new(&results);
        check(&mut reader)?;
        let handle = Handle(reader.bytes()?.to_vec());
        Ok((handle, reader.optional(Attributes::read)?))
    }

    /// The rights out of `wanted` that the caller has.
    pub fn access(&mut self, file: &Handle, wanted: u32) -> Result<u32> {
        let results = self.nfs(4, Writer::new().bytes(&file.0).u32(wanted))?;
        let mut reader = Reader::new(&results);
        check(&mut reader)?;
        reader.optional(Attributes::read)?;
        reader.u32()
    }

    pub fn readlink(&mut self, link: &Handle) -> Result<Vec<u8>> {
        let results = self.nfs(5, Writer::new().bytes(&link.0))?;
        let mut reader = Reader::new(&results);
        check(&mut reader)?;
        reader.optional(Attributes::read)?;
        Ok(reader.bytes()?.to_vec())
    }

    pub fn read(&mut self, file: &Handle, offset: u64, count: u32) -> Result<Data> {
        let results = self.nfs(6, Writer::new().bytes(&file.0).u64(offset).u32(count))?;
        let mut reader = Reader::new(&results);
        check(&mut reader)?;
        reader.optional(Attributes::read)?;
        let (count, end) = (reader.u32()?, reader.bool()?);
        let bytes = reader.bytes()?.to_vec();
        if bytes.len() != count as usize {
            return Err(Error::Protocol("READ's count is not the length of its data"));
        }
        Ok(Data { bytes, end })
    }

    /// Everything from the start to the end.
    pub fn read_all(&mut self, file: &Handle) -> Result<Vec<u8>> {
        let mut all = Vec::new();
        loop {
            let data = self.read(file, all.len() as u64, 1 << 18)?;
            let empty = data.bytes.is_empty();
            all.extend_from_slice(&data.bytes);
            if data.end {
                return Ok(all);
            }
            if empty {
                return Err(Error::Protocol("READ gives nothing before the end"));
            }
        }
    }

    pub fn write(&mut self, file: &Handle, offset: u64, data: &[u8], stable: Stable) -> Result<Written> {
        let arguments = Writer::new().bytes(&file.0).u64(offset).u32(data.len() as u32);
        let results = self.nfs(7, arguments.u32(stable as u32).bytes(data))?;
        let mut reader = Reader::new(&results);
        check(&mut reader)?;
        weak_cache_data(&mut reader)?;
        let written = Written { count: reader.u32()?, stable: reader.u32()?, verifier: reader.u64()? };
        if written.stable < stable as u32 {
            return Err(Error::Protocol("WRITE is less stable than was asked for"));
        }
        Ok(written)
    }

    pub fn create(&mut self, directory: &Handle, name: &[u8], how: How) -> Result<Handle> {
        let arguments = Writer::new().bytes(&directory.0).bytes(name);
        let arguments = match how {
            How::Unchecked => Change::mode(0o644).write(arguments.u32(0)),
            How::Guarded => Change::mode(0o644).write(arguments.u32(1)),
            How::Exclusive(verifier) => arguments.u32(2).u64(verifier),
        };
        self.made(8, arguments)
    }

    pub fn mkdir(&mut self, directory: &Handle, name: &[u8], mode: u32) -> Result<Handle> {
        let arguments = Writer::new().bytes(&directory.0).bytes(name);
        self.made(9, Change::mode(mode).write(arguments))
    }

    pub fn symlink(&mut self, directory: &Handle, name: &[u8], target: &[u8]) -> Result<Handle> {
        let arguments = Writer::new().bytes(&directory.0).bytes(name);
        self.made(10, Change::default().write(arguments).bytes(target))
    }

    pub fn mkfifo(&mut self, directory: &Handle, name: &[u8]) -> Result<Handle> {
        let arguments = Writer::new().bytes(&directory.0).bytes(name).u32(Kind::Fifo as u32);
        self.made(11, Change::mode(0o644).write(arguments))
    }

    pub fn remove(&mut self, directory: &Handle, name: &[u8]) -> Result<()> {
        self.status(12, Writer::new().bytes(&directory.0).bytes(name))
    }

    pub fn rmdir(&mut self, directory: &Handle, name: &[u8]) -> Result<()> {
        self.status(13, Writer::new().bytes(&directory.0).bytes(name))
    }

    pub fn rename(&mut self, from: (&Handle, &[u8]), to: (&Handle, &[u8])) -> Result<()> {
        let arguments = Writer::new().bytes(&from.0.0).bytes(from.1).bytes(&to.0.0).bytes(to.1);
        self.status(14, arguments)
    }

    pub fn link(&mut self, file: &Handle, directory: &Handle, name: &[u8]) -> Result<()> {
        self.status(15, Writer::new().bytes(&file.0).bytes(&directory.0).bytes(name))
    }

    /// All entries but `.` and `..`, over as many calls as it takes.
    pub fn readdir(&mut self, directory: &Handle) -> Result<Vec<Entry>> {
        self.list(directory, false)
    }

    /// As [`Client::readdir`], with attributes and handles.
    pub fn readdirplus(&mut self, directory: &Handle) -> Result<Vec<Entry>> {
        self.list(directory, true)
    }

    /// Makes UNSTABLE data durable; the verifier tells whether it is the same server still.
    pub fn commit(&mut self, file: &Handle) -> Result<u64> {
        let results = self.nfs(21, Writer::new().bytes(&file.0).u64(0).u32(0))?;
        let mut reader = Reader::new(&results);
        check(&mut reader)?;
        weak_cache_data(&mut reader)?;
        reader.u64()
    }

    fn list(&mut self, directory: &Handle, plus: bool) -> Result<Vec<Entry>> {
        let mut all = Vec::new();
        let (mut cookie, mut verifier) = (0, 0);
        loop {
            let arguments = Writer::new().bytes(&directory.0).u64(cookie).u64(verifier);
            let results = match plus {
                false => self.nfs(16, arguments.u32(32 << 10))?,
                true => self.nfs(17, arguments.u32(8 << 10).u32(64 << 10))?,
            };
            let mut reader = Reader::new(&results);
            check(&mut reader)?;
            reader.optional(Attributes::read)?;
            verifier = reader.u64()?;
            let before = cookie;
            while let Some(entry) = reader.optional(|reader| entry(reader, plus))? {
                cookie = entry.cookie;
                all.push(entry);
            }
            if reader.bool()? {
                all.retain(|entry| entry.name != b"." && entry.name != b"..");
                return Ok(all);
            }
            if cookie == before {
                return Err(Error::Protocol("a listing neither goes on nor ends"));
            }
        }
    }

    /// A procedure that makes something: its handle, looked up if the server did not tell.
    fn made(&mut self, number: u32, arguments: Writer) -> Result<Handle> {
        let results = self.nfs(number, arguments)?;
        let mut reader = Reader::new(&results);
        check(&mut reader)?;
        let handle = reader.optional(|reader| Ok(Handle(reader.bytes()?.to_vec())))?;
        handle.ok_or(Error::Protocol("no handle of what was made"))
    }

    fn status(&mut self, number: u32, arguments: Writer) -> Result<()> {
        let results = self.nfs(number, arguments)?;
        check(&mut Reader::new(&results))
    }

    fn nfs(&mut self, number: u32, arguments: Writer) -> Result<Vec<u8>> {
        let procedure = Procedure { program: NFS, version: 3, number };
        let started = Instant::now();
        loop {
            let results = self.call(procedure, &arguments.0)?;
            let jukebox = number != 0 && results.starts_with(&Status::JUKEBOX.0.to_be_bytes());
            if !jukebox || started.elapsed() > self.patience {
                return Ok(results);
            }
            self.put_off.fetch_add(1, Ordering::SeqCst);
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    fn call(&mut self, procedure: Procedure, arguments: &[u8]) -> Result<Vec<u8>> {
        self.xid = self.xid.wrapping_add(1);
        let started = Instant::now();
        let mut sent = 0;
        loop {
            let outcome = self.attempt(procedure, arguments, &mut sent);
            match outcome {
                Err(Error::Io(_)) if started.elapsed() < self.patience => {
                    self.connection = None;
                    std::thread::sleep(Duration::from_millis(20));
                }
                outcome => {
                    if sent > 1 {
                        self.repeated += 1;
                    }
                    return outcome;
                }
            }
        }
    }

    fn attempt(&mut self, procedure: Procedure, arguments: &[u8], sent: &mut u32) -> Result<Vec<u8>> {
        if self.connection.is_none() {
            self.connection = Some(Connection::open(self.address, self.timeout)?);
        }
        let Some(connection) = self.connection.as_mut() else {
            return Err(Error::Protocol("no connection"));
        };
        *sent += 1;
        connection.call(self.xid, procedure, &self.who, arguments)
    }
}

fn check(reader: &mut Reader) -> Result<()> {
    match reader.u32()? {
        0 => Ok(()),
        status => Err(Error::Status(Status(status))),
    }
}

/// wcc_data: attributes before, if known, and after.
fn weak_cache_data(reader: &mut Reader) -> Result<()> {
    reader.optional(|reader| reader.fixed(24).map(|_| ()))?;
    reader.optional(Attributes::read)?;
    Ok(())
}

fn entry(reader: &mut Reader, plus: bool) -> Result<Entry> {
    let (fileid, name, cookie) = (reader.u64()?, reader.bytes()?.to_vec(), reader.u64()?);
    let mut entry = Entry { fileid, name, cookie, attributes: None, handle: None };
    if plus {
        entry.attributes = reader.optional(Attributes::read)?;
        entry.handle = reader.optional(|reader| Ok(Handle(reader.bytes()?.to_vec())))?;
    }
    Ok(entry)
}
