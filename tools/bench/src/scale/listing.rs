//! Listing a directory page by page, one call at a time, as a client must: each page begins at the last one's cookie.

use super::calls::listing;
use crate::Outcome;
use crate::load::wire::{Reply, append};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;
use tarn_nfsclient::Handle;

/// What a server may take for one page.
const PATIENCE: Duration = Duration::from_secs(60);

pub struct Lister {
    socket: TcpStream,
    directory: Handle,
    /// 16: READDIR, 17: READDIRPLUS.
    procedure: u32,
    /// Bytes asked for in a page.
    page_bytes: u32,
    cookie: u64,
    verifier: u64,
    xid: u32,
    pub over: bool,
    pub pages: u64,
    /// Entries that had attributes and a handle.
    pub whole: u64,
}

impl Lister {
    pub fn new(address: SocketAddr, directory: &Handle, procedure: u32, page_bytes: u32) -> Outcome<Lister> {
        let told = |error: std::io::Error| format!("{address}: {error}");
        let socket = TcpStream::connect_timeout(&address, Duration::from_secs(10)).map_err(told)?;
        socket.set_nodelay(true).and_then(|()| socket.set_read_timeout(Some(PATIENCE))).map_err(told)?;
        let xid = u32::from(socket.local_addr().map_err(told)?.port()) << 12;
        let directory = directory.clone();
        let (cookie, verifier, over, pages, whole) = (0, 0, false, 0, 0);
        Ok(Lister { socket, directory, procedure, page_bytes, cookie, verifier, xid, over, pages, whole })
    }

    /// Hands the next page's names to `each`; "." and ".." are left out. False if there was none.
    pub fn page(&mut self, each: &mut dyn FnMut(&[u8], u64) -> Outcome<()>) -> Outcome<bool> {
        if self.over {
            return Ok(false);
        }
        self.xid = self.xid.wrapping_add(1);
        let call = listing(self.procedure, &self.directory, self.cookie, self.verifier, self.page_bytes);
        let mut out = Vec::with_capacity(call.len());
        append(&mut out, &call, self.xid);
        self.socket.write_all(&out).map_err(|error| error.to_string())?;
        let record = self.record()?;
        self.take(Reply(&record, 0), each)?;
        self.pages += 1;
        Ok(true)
    }

    /// Everything from the beginning.
    pub fn all(&mut self, each: &mut dyn FnMut(&[u8], u64) -> Outcome<()>) -> Outcome<()> {
        (self.cookie, self.verifier, self.over) = (0, 0, false);
        while self.page(each)? {}
        Ok(())
    }

    fn record(&mut self) -> Outcome<Vec<u8>> {
        let mut record = Vec::new();
        loop {
            let mut mark = [0; 4];
            self.socket.read_exact(&mut mark).map_err(|error| format!("a listing: {error}"))?;
            let mark = u32::from_be_bytes(mark);
            let at = record.len();
            record.resize(at + (mark & 0x7fff_ffff) as usize, 0);
            self.socket.read_exact(&mut record[at..]).map_err(|error| format!("a listing: {error}"))?;
            if mark >> 31 == 1 {
                return Ok(record);
            }
        }
    }

    fn take(&mut self, mut reply: Reply, each: &mut dyn FnMut(&[u8], u64) -> Outcome<()>) -> Outcome<()> {
        if reply.accepted()? != self.xid {
            return Err("a reply to another call".to_owned());
        }
        reply.status().map_err(|error| format!("a listing: {error}"))?;
        reply.optional_attributes()?;
        self.verifier = reply.u64()?;
        while reply.u32()? == 1 {
            let number = reply.u64()?;
            let size = reply.u32()? as usize;
            let name = &reply.bytes(size.next_multiple_of(4))?[..size];
            self.cookie = reply.u64()?;
            if self.procedure == 17 {
                let attributes = reply.optional_attributes()?;
                if attributes.is_some_and(|fileid| fileid != number) {
                    return Err("an entry has another file's attributes".to_owned());
                }
                let handle = reply.u32()? == 1;
                if handle {
                    let size = reply.u32()? as usize;
                    reply.bytes(size.next_multiple_of(4))?;
                }
                self.whole += u64::from(handle && attributes.is_some());
            }
            if name != b"." && name != b".." {
                each(name, number)?;
            }
        }
        self.over = reply.u32()? == 1;
        Ok(())
    }
}
