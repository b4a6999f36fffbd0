//! A raw NFSv3 client, as small as the tests need it.

#![allow(dead_code)]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use socket2::{Domain, Protocol, Socket, Type};
use tarn_nfs::wire::rpc::{AuthSys, Call, ReplyBody, decode_reply};
use tarn_nfs::wire::xdr::{Reader, Writer};

const NFS: u32 = 100_003;
const MOUNT: u32 = 100_005;

/// A connection with the root of an export.
pub struct Client {
    stream: TcpStream,
    xid: u32,
    pub root: Vec<u8>,
}

impl Client {
    /// Connects, from a reserved port where the user may, and mounts `path`.
    pub fn mount(server: SocketAddr, path: &str) -> Client {
        let mut client = Client { stream: connect(server), xid: std::process::id() << 12, root: Vec::new() };
        client.root = client.call(
            MOUNT,
            1,
            |w| w.opaque(path.as_bytes()),
            |r| {
                assert_eq!(r.u32().unwrap(), 0, "MNT");
                r.opaque(64).unwrap().to_vec()
            },
        );
        client
    }

    fn call<T>(
        &mut self,
        program: u32,
        procedure: u32,
        args: impl FnOnce(&mut Writer),
        results: impl FnOnce(&mut Reader<'_>) -> T,
    ) -> T {
        self.xid += 1;
        let mut w = Writer::new();
        let user = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
        let sys = AuthSys { stamp: 0, machine: b"test", uid: user.0, gid: user.1, gids: Default::default() };
        Call::encode(&mut w, self.xid, program, 3, procedure, Some(&sys));
        args(&mut w);
        let reply = self.exchange(&w.to_vec()).unwrap();
        let (xid, body) = decode_reply(&reply).unwrap();
        assert_eq!(xid, self.xid);
        match body {
            ReplyBody::Success(bytes) => results(&mut Reader::new(bytes)),
            other => panic!("the call was refused: {other:?}"),
        }
    }

    fn exchange(&mut self, message: &[u8]) -> std::io::Result<Vec<u8>> {
        let mark = (message.len() as u32 | 1 << 31).to_be_bytes();
        self.stream.write_all(&[&mark[..], message].concat())?;
        let mut mark = [0; 4];
        self.stream.read_exact(&mut mark)?;
        let mut reply = vec![0; (u32::from_be_bytes(mark) & 0x7fff_ffff) as usize];
        self.stream.read_exact(&mut reply)?;
        Ok(reply)
    }

    /// Whether the server ends the connection instead of answering.
    pub fn is_cut_off(&mut self) -> bool {
        let mut w = Writer::new();
        Call::encode(&mut w, self.xid, NFS, 3, 0, None);
        self.exchange(&w.to_vec()).is_err()
    }

    /// Handle of `name` in `dir`.
    pub fn lookup(&mut self, dir: &[u8], name: &str) -> Result<Vec<u8>, u32> {
        let args = |w: &mut Writer| {
            w.opaque(dir);
            w.opaque(name.as_bytes());
        };
        self.call(NFS, 3, args, |r| match r.u32().unwrap() {
            0 => Ok(r.opaque(64).unwrap().to_vec()),
            status => Err(status),
        })
    }

    /// Makes a file; its handle.
    pub fn create(&mut self, dir: &[u8], name: &str) -> Result<Vec<u8>, u32> {
        self.make(8, dir, name, |w| w.u32(1))
    }

    pub fn mkdir(&mut self, dir: &[u8], name: &str) -> Result<Vec<u8>, u32> {
        self.make(9, dir, name, |_| ())
    }

    fn make(&mut self, procedure: u32, dir: &[u8], name: &str, how: impl FnOnce(&mut Writer)) -> Result<Vec<u8>, u32> {
        let args = |w: &mut Writer| {
            w.opaque(dir);
            w.opaque(name.as_bytes());
            how(w);
            // Mode 0755; uid, gid, size, atime and mtime as the server sees fit.
            for v in [1, 0o755, 0, 0, 0, 0, 0] {
                w.u32(v);
            }
        };
        self.call(NFS, procedure, args, |r| match r.u32().unwrap() {
            0 => {
                assert!(r.bool().unwrap(), "a handle comes with the reply");
                Ok(r.opaque(64).unwrap().to_vec())
            }
            status => Err(status),
        })
    }

    /// Writes `data`, FILE_SYNC.
    pub fn write(&mut self, file: &[u8], offset: u64, data: &[u8]) -> Result<u32, u32> {
        let args = |w: &mut Writer| {
            w.opaque(file);
            w.u64(offset);
            w.u32(data.len() as u32);
            w.u32(2);
            w.opaque(data);
        };
        self.call(NFS, 7, args, |r| match r.u32().unwrap() {
            0 => {
                skip_wcc(r);
                Ok(r.u32().unwrap())
            }
            status => Err(status),
        })
    }

    pub fn read(&mut self, file: &[u8], offset: u64, count: u32) -> Result<Vec<u8>, u32> {
        let args = |w: &mut Writer| {
            w.opaque(file);
            w.u64(offset);
            w.u32(count);
        };
        self.call(NFS, 6, args, |r| match r.u32().unwrap() {
            0 => {
                if r.bool().unwrap() {
                    r.fixed::<84>().unwrap();
                }
                let count = r.u32().unwrap();
                r.bool().unwrap();
                Ok(r.opaque(count as usize).unwrap().to_vec())
            }
            status => Err(status),
        })
    }

    /// A file with this content.
    pub fn put(&mut self, dir: &[u8], name: &str, data: &[u8]) -> Vec<u8> {
        let file = self.create(dir, name).unwrap();
        for (index, part) in data.chunks(256 << 10).enumerate() {
            assert_eq!(self.write(&file, (index * (256 << 10)) as u64, part), Ok(part.len() as u32));
        }
        file
    }

    /// The whole content of a file.
    pub fn get(&mut self, dir: &[u8], name: &str) -> Vec<u8> {
        let file = self.lookup(dir, name).unwrap();
        let mut out = Vec::new();
        loop {
            let part = self.read(&file, out.len() as u64, 256 << 10).unwrap();
            if part.is_empty() {
                return out;
            }
            out.extend(part);
        }
    }
}

fn skip_wcc(r: &mut Reader<'_>) {
    if r.bool().unwrap() {
        r.fixed::<24>().unwrap();
    }
    if r.bool().unwrap() {
        r.fixed::<84>().unwrap();
    }
}

fn connect(server: SocketAddr) -> TcpStream {
    for port in (512..1024).rev() {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP)).unwrap();
        if socket.bind(&SocketAddr::from(([127, 0, 0, 1], port)).into()).is_ok()
            && socket.connect(&server.into()).is_ok()
        {
            return finish(socket.into());
        }
        if !rustix::process::geteuid().is_root() {
            break;
        }
    }
    finish(TcpStream::connect(server).unwrap())
}

fn finish(stream: TcpStream) -> TcpStream {
    stream.set_nodelay(true).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    stream
}
