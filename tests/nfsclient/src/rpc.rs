//! ONC RPC (RFC 5531) over one TCP connection: record marking, AUTH_SYS, replies matched by number.
//!
//! - [`Connection::send`] and [`Connection::receive`] are apart, so that a load generator keeps many calls in flight.
//! - Nothing is repeated here; [`crate::Client`] does that.

use crate::dial::dial;
use crate::error::{Error, Result};
use crate::xdr::{Reader, Writer};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// AUTH_SYS (RFC 5531, 8.2 and appendix A).
#[derive(Clone, Debug)]
pub struct Credentials {
    pub machine: String,
    pub uid: u32,
    pub gid: u32,
    pub groups: Vec<u32>,
}

impl Credentials {
    pub fn root() -> Credentials {
        Credentials::user(0)
    }

    pub fn user(id: u32) -> Credentials {
        Credentials { machine: "rawclient".to_owned(), uid: id, gid: id, groups: Vec::new() }
    }

    fn write(&self, writer: Writer) -> Writer {
        let body = Writer::new().u32(0).bytes(self.machine.as_bytes()).u32(self.uid).u32(self.gid);
        let body = self.groups.iter().fold(body.u32(self.groups.len() as u32), |body, group| body.u32(*group));
        writer.u32(1).bytes(&body.0).u32(0).u32(0)
    }
}

/// A record is at most this long: 1 MiB of data and a generous rest.
const RECORD_BYTES_MAX: usize = 4 << 20;

pub struct Connection {
    stream: TcpStream,
}

/// Which procedure.
#[derive(Clone, Copy, Debug)]
pub struct Procedure {
    pub program: u32,
    pub version: u32,
    pub number: u32,
}

/// A call as it goes over a connection, record mark included.
pub fn call_record(xid: u32, procedure: Procedure, who: &Credentials, arguments: &[u8]) -> Vec<u8> {
    let Procedure { program, version, number } = procedure;
    let call = Writer::new().u32(0).u32(xid).u32(0).u32(2).u32(program).u32(version).u32(number);
    let mut record = call.with(|writer| who.write(writer)).0;
    record.extend_from_slice(arguments);
    let size = (record.len() - 4) as u32;
    record[..4].copy_from_slice(&(size | 0x8000_0000).to_be_bytes());
    record
}

impl Connection {
    /// `timeout` bounds the connect and every later read and write.
    pub fn open(address: SocketAddr, timeout: Duration) -> std::io::Result<Connection> {
        let stream = dial(address, timeout)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(timeout))?;
        stream.set_write_timeout(Some(timeout))?;
        Ok(Connection { stream })
    }

    pub fn send(&mut self, xid: u32, procedure: Procedure, who: &Credentials, arguments: &[u8]) -> Result<()> {
        self.stream.write_all(&call_record(xid, procedure, who, arguments))?;
        Ok(())
    }

    /// The next reply: its number and its results.
    pub fn receive(&mut self) -> Result<(u32, Vec<u8>)> {
        let mut record = Vec::new();
        loop {
            let mut mark = [0; 4];
            self.stream.read_exact(&mut mark)?;
            let mark = u32::from_be_bytes(mark);
            let size = (mark & 0x7fff_ffff) as usize;
            if record.len() + size > RECORD_BYTES_MAX {
                return Err(Error::Protocol("a record is too long"));
            }
            let start = record.len();
            record.resize(start + size, 0);
            self.stream.read_exact(&mut record[start..])?;
            if mark & 0x8000_0000 != 0 {
                break;
            }
        }
        let mut reader = Reader::new(&record);
        let xid = reader.u32()?;
        if reader.u32()? != 1 {
            return Err(Error::Protocol("a reply is a call"));
        }
        if reader.u32()? != 0 {
            return Err(Error::Refused(reader.u32()?));
        }
        let _verifier = (reader.u32()?, reader.bytes()?);
        match reader.u32()? {
            0 => Ok((xid, reader.rest().to_vec())),
            status => Err(Error::Refused(status)),
        }
    }

    /// One call and its reply.
    pub fn call(&mut self, xid: u32, procedure: Procedure, who: &Credentials, arguments: &[u8]) -> Result<Vec<u8>> {
        self.send(xid, procedure, who, arguments)?;
        loop {
            // A reply to an earlier call that was given up is passed over.
            let (answered, results) = self.receive()?;
            if answered == xid {
                return Ok(results);
            }
        }
    }
}
